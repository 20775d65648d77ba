"""What a network does to an upload to gs: it goes on by itself, and the object is there once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.storages.gs.storage import GsStorage
from catalog.time_outs import TimeOuts
from tests.services.fake_gcs import FakeGcs
from tests.services.relay import Relay, relay
from tests.services.server_process import wait_until
from tests.services.toxiproxy import FROM_SERVER, Proxy, toxiproxy

pytestmark = [
    # The connections that were cut are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.nightly,
]

LARGE = os.urandom(16 * 1024 * 1024 + 17)
PATIENT = TimeOuts(connect=1, read=2, retry_for=60)


class Way:
    """A bucket, and the way to it, which can be disturbed."""

    def __init__(self, store: FakeGcs, proxy: Proxy) -> None:
        self.proxy, self.location = proxy, f"gs://{store.make_bucket()}/lake/f"
        access = store.access(endpoint=f"https://{proxy.address}", time_outs=PATIENT)
        self.storage, self.direct = GsStorage(access), GsStorage(store.access())

    def there(self) -> list[str]:
        return [one.location for one in self.direct.list(self.location.rpartition("/")[0])]

    def assert_there(self, content: bytes) -> None:
        assert self.there() == [self.location]
        assert self.direct.sha256(self.location) == hashlib.sha256(content).hexdigest()


@pytest.fixture
def way(gs_server: FakeGcs) -> Iterator[Way]:
    with toxiproxy() as server:
        yield Way(gs_server, server.before(gs_server.port))


def test_an_answer_that_never_comes_was_a_success(way: Way) -> None:
    """Harm prevented: the file that is there counts as somebody else's, and the export fails."""
    sink = way.storage.create(way.location)
    sink.write(b"rows")
    assert way.storage.list(way.location) == (), "the connection is there before it is disturbed"
    way.proxy.timeout(streams=FROM_SERVER)

    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(sink.commit)
        wait_until(lambda: way.there() != [], "the server had the file")
        assert not committing.done()
        way.proxy.heal()
        committing.result()

    way.assert_there(b"rows")


@pytest.mark.parametrize(
    "disturb",
    [lambda p: p.down(), lambda p: p.timeout(), lambda p: p.reset_peer()],
    ids=["refused", "silent", "reset"],
)
def test_an_upload_goes_on_when_the_way_is_free_again(
    way: Way, caplog: pytest.LogCaptureFixture, disturb: Callable[[Proxy], None]
) -> None:
    sink = way.storage.create(way.location)
    sink.write(LARGE)
    disturb(way.proxy)

    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(sink.commit)
        wait_until(lambda: "trying again to write" in caplog.text, "it met the disturbance")
        way.proxy.heal()
        committing.result()

    way.assert_there(LARGE)


def test_over_a_slow_way_it_takes_its_time(way: Way) -> None:
    way.proxy.bandwidth(4_000)
    sink = way.storage.create(way.location)
    sink.write(LARGE)
    sink.commit()

    way.assert_there(LARGE)
    assert way.storage.read(way.location) == LARGE


@pytest.mark.parametrize(
    "disturb",
    [Relay.flip_after, Relay.cut_after, Relay.stall_after],
    ids=["changed", "cut", "silent"],
)
def test_an_answer_that_does_not_come_as_it_was_sent_is_asked_for_again(
    gs_server: FakeGcs,
    caplog: pytest.LogCaptureFixture,
    disturb: Callable[[Relay, int], None],
) -> None:
    """Harm prevented: half an object, or another one, is taken for metadata or a receipt."""
    location = f"gs://{gs_server.make_bucket()}/lake/f"
    GsStorage(gs_server.access()).put(location, LARGE)
    with relay(gs_server.port) as between:
        endpoint = f"https://127.0.0.1:{between.port}"
        storage = GsStorage(gs_server.access(endpoint=endpoint, time_outs=PATIENT))
        assert storage.size(location) == len(LARGE), "it is connected before that"
        disturb(between, len(LARGE) // 2)

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(storage.read, location)
            wait_until(lambda: "trying again to read" in caplog.text, "it met the disturbance")
            between.resume()
            found = reading.result()

    assert found == LARGE
