"""Network faults of uploads and responses: requests are retried, and objects stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from catalog.network import TimeOuts
from catalog.storages.over_http.storage import ObjectStorage
from catalog.storages.s3.storage import PART_BYTES, S3Storage
from tests.services.relay import Relay, relay
from tests.services.server_process import wait_until
from tests.services.toxiproxy import FROM_SERVER, Proxy, toxiproxy
from tests.support.store_kinds import GsPlace, MinIOPlace, S3ProxyPlace
from tests.support.store_places import LARGE, Place, over

pytestmark = [
    # The connections that were cut are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning"
    ),
]

PATIENT = TimeOuts(connect=1, read=2, retry_for=60)
over_both = over(MinIOPlace, GsPlace)


@dataclass(frozen=True, slots=True)
class Way:
    """A place, a proxy before its server, and the storage as it is reached through the proxy."""

    place: Place
    proxy: Proxy
    storage: S3Storage | ObjectStorage


@pytest.fixture
def way(place: Place) -> Iterator[Way]:
    with toxiproxy() as server:
        proxy = server.before(place.server.port)
        endpoint = f"https://{proxy.address}"
        yield Way(place, proxy, place.reached(endpoint=endpoint, time_outs=PATIENT))


@over_both
def test_a_response_that_never_arrives_was_a_success(way: Way) -> None:
    """Harm prevented: the stored file counts as another writer's, and the export fails."""
    sink = way.storage.create(way.place.file)
    sink.write(b"rows")
    assert way.storage.list(way.place.root) == (), "the connection is there before it is disturbed"
    way.proxy.timeout(streams=FROM_SERVER)

    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(sink.commit)
        wait_until(lambda: way.place.stored() != [], "the server had the file")
        assert not committing.done()
        way.proxy.heal()
        committing.result()

    way.place.assert_there(b"rows")


@over_both
@pytest.mark.parametrize(
    "disturb",
    [lambda p: p.down(), lambda p: p.timeout(), lambda p: p.reset_peer()],
    ids=["refused", "silent", "reset"],
)
def test_an_upload_resumes_when_the_way_is_free_again(
    way: Way, caplog: pytest.LogCaptureFixture, disturb: Callable[[Proxy], None]
) -> None:
    sink = way.storage.create(way.place.file)
    sink.write(LARGE[: PART_BYTES + 1])
    disturb(way.proxy)

    with ThreadPoolExecutor(1) as pool:
        sink.write(LARGE[PART_BYTES + 1 :])
        committing = pool.submit(sink.commit)
        wait_until(lambda: "trying again to write" in caplog.text, "it met the disturbance")
        way.proxy.heal()
        committing.result()

    way.place.assert_there(LARGE)


@over_both
def test_over_a_slow_way_it_takes_its_time(way: Way) -> None:
    way.proxy.bandwidth(4_000)
    sink = way.storage.create(way.place.file)
    sink.write(LARGE)
    sink.commit()

    way.place.assert_there(LARGE)
    assert way.storage.read(way.place.file) == LARGE


@over(S3ProxyPlace, MinIOPlace, GsPlace)
@pytest.mark.parametrize(
    "disturb",
    [Relay.flip_after, Relay.cut_after, Relay.stall_after],
    ids=["changed", "cut", "silent"],
)
def test_a_damaged_response_is_requested_again(
    place: Place, caplog: pytest.LogCaptureFixture, disturb: Callable[[Relay, int], None]
) -> None:
    """Harm prevented: a partial or wrong object is read as metadata or a receipt."""
    place.storage.put(place.file, LARGE)
    with relay(place.server.port) as between:
        endpoint = f"https://127.0.0.1:{between.port}"
        storage = place.reached(endpoint=endpoint, time_outs=PATIENT)
        assert storage.size(place.file) == len(LARGE), "it is connected before that"
        disturb(between, len(LARGE) // 2)

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(storage.read, place.file)
            wait_until(lambda: "trying again to read" in caplog.text, "it met the disturbance")
            between.resume()
            found = reading.result()

        assert between.connections == 2
    assert found == LARGE
