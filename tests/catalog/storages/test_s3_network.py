"""What a network does to an upload that is under way: it goes on by itself, and is there once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.storages.s3.sink import PART_BYTES
from catalog.storages.s3.storage import S3Storage
from catalog.time_outs import TimeOuts
from tests.s3_places import access_to
from tests.services.minio import MinIO
from tests.services.relay import relay
from tests.services.server_process import wait_until
from tests.services.toxiproxy import FROM_SERVER, Proxy, toxiproxy

pytestmark = [
    # The connections that were cut are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.nightly,
]

LARGE = os.urandom(2 * PART_BYTES + 17)
PATIENT = TimeOuts(connect=1, read=2, retry_for=60)


class Way:
    """A bucket, and the way to it, which can be disturbed."""

    def __init__(self, store: MinIO, proxy: Proxy) -> None:
        self.proxy, self.location = proxy, f"s3://{store.make_bucket()}/lake/f"
        endpoint = f"https://{proxy.address}"
        self.storage = S3Storage(access_to(store, endpoint=endpoint, time_outs=PATIENT))
        self.direct = S3Storage(access_to(store))

    def there(self) -> list[str]:
        return [one.location for one in self.direct.list(self.location.rpartition("/")[0])]

    def assert_there(self, content: bytes) -> None:
        assert self.there() == [self.location]
        assert self.direct.sha256(self.location) == hashlib.sha256(content).hexdigest()


@pytest.fixture
def way(minio_server: MinIO) -> Iterator[Way]:
    with toxiproxy() as server:
        yield Way(minio_server, server.before(minio_server.port))


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
    sink.write(LARGE[: PART_BYTES + 1])
    disturb(way.proxy)

    with ThreadPoolExecutor(1) as pool:
        sink.write(LARGE[PART_BYTES + 1 :])
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


def test_bytes_of_an_answer_that_change_on_their_way_are_asked_for_again(
    minio_server: MinIO, caplog: pytest.LogCaptureFixture
) -> None:
    """Harm prevented: the command ends with a bug's traceback, in the middle of an export."""
    location = f"s3://{minio_server.make_bucket()}/lake/f"
    S3Storage(access_to(minio_server)).put(location, LARGE)
    with relay(minio_server.port) as between:
        endpoint = f"https://127.0.0.1:{between.port}"
        storage = S3Storage(access_to(minio_server, endpoint=endpoint, time_outs=PATIENT))
        assert storage.size(location) == len(LARGE), "it is connected before that"
        between.flip_after(PART_BYTES)

        found = storage.read(location)

        assert between.connections == 2
    assert found == LARGE
    assert "trying again to read" in caplog.text
