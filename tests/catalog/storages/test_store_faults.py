"""What a network and a server do to objects in gs: whole or not at all, and an end in time.

The server is a local one that keeps the promises an export stands on, and stores what it is sent:
where an answer is lost, it was given.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import resource
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import ProtocolError
from urllib3.response import BaseHTTPResponse

from catalog.storages.gs.objects import GsObjects
from catalog.storages.gs.storage import GsStorage, requests_of
from catalog.time_outs import TimeOuts
from tableformat.errors import DestinationError
from tests.services.certificates import Authority
from tests.services.fake_gcs import FakeGcs
from tests.services.server_process import free_port
from tests.support.time_bounds import ENDS_WITHIN

pytestmark = [
    # The connections to a server that was killed are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning"
    ),
]

LARGE = os.urandom(16 * 1024 * 1024 + 17)
SIZES = pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
IMPATIENT = TimeOuts(connect=1, read=2, retry_for=1)
Send = Callable[..., BaseHTTPResponse]


class Place:
    """A storage with a bucket of its own."""

    def __init__(self, store: FakeGcs, time_outs: TimeOuts | None = None) -> None:
        self.store, self.bucket = store, store.make_bucket()
        # Connections are kept by their access: a token of its own makes these the test's.
        bounds = time_outs or TimeOuts(connect=5, read=10, retry_for=20)
        self.access = store.access(token=secrets.token_hex(), time_outs=bounds)
        self.storage = GsStorage(self.access)
        self.root = f"gs://{self.bucket}/lake"

    def once(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[Send, Any], Any]) -> None:
        """Meddle with the next POST of this storage."""
        client, done = requests_of(self.access).client, list[bool]()
        assert isinstance(client, GsObjects)
        pool = client.http._pool
        real: Send = pool.request

        def request(method: str, url: str, **given: Any) -> BaseHTTPResponse:
            if method != "POST" or done:
                return real(method, url, **given)
            done.append(True)
            changed: BaseHTTPResponse = act(lambda **more: real(method, url, **given | more), given)
            return changed

        monkeypatch.setattr(pool, "request", request)

    def lose_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lose the answer to the next POST, which the server has performed."""

        def lose(send: Send, _: Any) -> None:
            assert send().status == 200
            raise ProtocolError("the connection was closed")

        self.once(monkeypatch, lose)


@pytest.fixture
def place(gs_server: FakeGcs) -> Place:
    return Place(gs_server)


def written(place: Place, content: bytes, name: str = "f") -> None:
    sink = place.storage.create(f"{place.root}/{name}")
    sink.write(content)
    sink.commit()


def assert_there(place: Place, content: bytes, name: str = "f") -> None:
    whole = hashlib.sha256(content).hexdigest()
    assert [one.size for one in place.storage.list(place.root)] == [len(content)]
    assert place.storage.sha256(f"{place.root}/{name}") == whole


@SIZES
def test_a_lost_answer_is_found_to_be_a_success(
    place: Place, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """Harm prevented: a finished file is taken for somebody else's, and the export fails."""
    place.lose_answer(monkeypatch)

    written(place, content)

    assert_there(place, content)


def test_a_claim_whose_answer_was_lost_is_won_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: nobody has the claim, or two who would write the same."""
    place.lose_answer(monkeypatch)

    assert place.storage.put_if_absent(f"{place.root}/claim", b"same") is True
    assert place.storage.put_if_absent(f"{place.root}/claim", b"same") is False


@SIZES
def test_an_object_of_somebody_else_is_kept(place: Place, content: bytes) -> None:
    """Harm prevented: a file that a snapshot refers to gets other bytes."""
    sink = place.storage.create(f"{place.root}/f")
    sink.write(content)
    place.storage.put(f"{place.root}/f", b"theirs")

    with pytest.raises(DestinationError, match="there is another object of that name"):
        sink.commit()
    sink.abort()

    assert_there(place, b"theirs")


def test_without_a_mark_nothing_is_taken_for_ones_own(place: Place) -> None:
    """An object that others put there by another program has none."""
    place.storage.put(f"{place.root}/f", b"")

    assert place.storage.put_if_absent(f"{place.root}/f", b"") is False


@SIZES
def test_bytes_that_change_on_their_way_are_sent_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    def flip(send: Send, given: Any) -> BaseHTTPResponse:
        pieces: Iterator[bytes] = iter(given["body"])
        head, first = next(pieces), next(pieces)
        changed = bytes([first[0] ^ 1]) + first[1:]
        return send(body=itertools.chain((head, changed), pieces))

    place.once(monkeypatch, flip)

    written(place, content)

    assert "MD5" in caplog.text
    assert_there(place, content)


def test_bytes_that_changed_in_the_store_are_not_read(gs_server: FakeGcs, tmp_path: Path) -> None:
    """Harm prevented: a receipt, or metadata, with other bytes than were written."""
    place = Place(gs_server, IMPATIENT)
    written(place, LARGE)
    with gs_server.file_of(place.bucket, "lake/f").open("r+b") as file:
        file.seek(len(LARGE) // 2)
        file.write(bytes([LARGE[len(LARGE) // 2] ^ 1]))

    for use in (
        place.storage.read,
        place.storage.sha256,
        lambda at: place.storage.fetch(at, tmp_path),
    ):
        with pytest.raises(DestinationError, match="its bytes are not those that were stored"):
            use(f"{place.root}/f")
    assert list(tmp_path.iterdir()) == []


def test_an_upload_goes_on_when_the_server_is_back(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    sink = place.storage.create(f"{place.root}/f")
    sink.write(LARGE)

    place.store.kill()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(place.store.start)
        sink.commit()

    assert f"trying again to write {place.root}/f" in caplog.text
    assert_there(place, LARGE)


@pytest.mark.parametrize("pauses", [False, True], ids=["killed", "silent"])
def test_a_server_that_stays_away_ends_it_in_time(gs_server: FakeGcs, pauses: bool) -> None:  # noqa: FBT001  a parameter
    place = Place(gs_server, IMPATIENT)
    sink = place.storage.create(f"{place.root}/f")
    sink.write(b"rows")
    begun = time.monotonic()
    if pauses:
        place.store.pause()
    else:
        place.store.kill()

    with pytest.raises(DestinationError) as caught:
        sink.commit()
    sink.abort()

    assert time.monotonic() - begun < ENDS_WITHIN
    assert caught.value.message.startswith(f"Cannot write {place.root}/f: ")
    assert "did not recover within 1 s (--retry-for)" in caught.value.message
    assert "safe to run again" in caught.value.message


def test_what_may_be_stored_is_removed_when_it_is_given_up(
    gs_server: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a file that nobody counts stays beside those of an export."""
    place = Place(gs_server, TimeOuts(connect=5, read=10, retry_for=0.000001))
    sink = place.storage.create(f"{place.root}/f")
    sink.write(b"rows")
    place.lose_answer(monkeypatch)

    with pytest.raises(DestinationError, match="the connection was closed"):
        sink.commit()
    assert gs_server.objects(place.bucket) == ["lake/f"]
    sink.abort()

    assert gs_server.objects(place.bucket) == []


def failure_of(act: Callable[[], object]) -> str:
    """Return the message of a refusal that is not tried again."""
    with pytest.raises(DestinationError) as caught:
        act()
    assert "did not recover" not in caught.value.message
    return caught.value.message


def test_a_bucket_that_is_not_there_is_not_an_empty_one(place: Place) -> None:
    """Harm prevented: a lake that is away is taken for one that was never made."""
    storage, absent = place.storage, "gs://not-there/f"
    acts: tuple[Callable[[str], object], ...] = (
        *(storage.read, storage.size, storage.sha256, storage.list, storage.delete),
    )
    for act in acts:
        said = failure_of(partial(act, absent))
        assert "404" in said
        assert "Make the bucket" in said
        assert "there is no such object" not in said
    assert "404" in failure_of(lambda: storage.put_if_absent(absent, b"x"))


def test_who_is_not_trusted_is_told_nothing(place: Place, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    untrusted = GsStorage(place.store.access(ca_file=stranger.file))

    said = failure_of(lambda: untrusted.list(place.root))

    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "mergeberg.ca-file" in said


def test_nobody_who_answers_is_an_end_in_time(place: Place) -> None:
    nobody = place.store.access(endpoint=f"https://127.0.0.1:{free_port()}", time_outs=IMPATIENT)

    with pytest.raises(DestinationError, match="did not recover within 1 s"):
        GsStorage(nobody).list(place.root)


def test_where_there_is_no_space_it_is_an_error_and_leaves_nothing(
    place: Place, tmp_path: Path
) -> None:
    """Harm prevented: the export dies of it in the middle, without a word of what to do."""
    written(place, LARGE)
    sink = place.storage.create(f"{place.root}/g")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9 * 1024 * 1024, hard))
    try:
        with pytest.raises(DestinationError, match=rf"Cannot copy {place.root}/f .*TMPDIR"):
            place.storage.fetch(f"{place.root}/f", tmp_path)
        with pytest.raises(DestinationError, match=rf"Cannot write {place.root}/g.*TMPDIR"):
            sink.write(LARGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    sink.abort()

    assert list(tmp_path.iterdir()) == []
    assert place.store.objects(place.bucket) == ["lake/f"]
