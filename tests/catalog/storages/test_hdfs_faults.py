"""What a network and a cluster do to files in HDFS: whole or not at all, and an end in time.

The cluster is Hadoop itself: where an answer is lost, it was given.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import ProtocolError
from urllib3.response import BaseHTTPResponse

from catalog.storages.hdfs.objects import HdfsObjects
from catalog.storages.hdfs.storage import HdfsStorage, requests_of
from catalog.time_outs import TimeOuts
from tableformat.errors import DestinationError, LastingError
from tests.services.certificates import Authority
from tests.services.hdfs import Hdfs
from tests.services.server_process import wait_until
from tests.support.time_bounds import ENDS_WITHIN

pytestmark = [
    # The connections to a server that was killed are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning"
    ),
]

IMPATIENT = TimeOuts(connect=1, read=2, retry_for=1)
PATIENT = TimeOuts(connect=5, read=10, retry_for=20)


class Place:
    """A storage with a directory of its own."""

    def __init__(self, store: Hdfs, time_outs: TimeOuts = PATIENT) -> None:
        self.store, self.root, self.lost = store, store.make_directory(), list[str]()
        # Connections are kept by their access: a bound of its own makes these the test's.
        bound = time_outs.read + secrets.randbelow(10**9) / 10**10
        self.access = store.access(time_outs=dataclasses.replace(time_outs, read=bound))
        self.storage = HdfsStorage(self.access)

    def lose_answer(self, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
        """Lose the answer to the next PUT whose address has a text, which the cluster performed."""
        objects = requests_of(self.access).client
        assert isinstance(objects, HdfsObjects)
        real = objects.pool.request

        def request(method: str, url: str, **given: Any) -> BaseHTTPResponse:
            answer = real(method, url, **given)
            if method == "PUT" and what in url and not self.lost:
                self.lost.append(url)
                assert answer.status in (200, 201)
                raise ProtocolError("the connection was closed")
            return answer

        monkeypatch.setattr(objects.pool, "request", request)

    def pass_over_options(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the cluster hear what HttpFS makes of a rename: one without its options."""
        objects = requests_of(self.access).client
        assert isinstance(objects, HdfsObjects)
        real = objects.pool.request

        def request(method: str, url: str, **given: Any) -> BaseHTTPResponse:
            return real(method, re.sub("&renameoptions=[A-Z]+", "", url), **given)

        monkeypatch.setattr(objects.pool, "request", request)

    def assert_there(self, content: bytes) -> None:
        assert self.storage.read(f"{self.root}/f") == content
        assert self.store.files(self.root) == [f"{self.root.removeprefix(self.store.root)}/f"]


@pytest.fixture
def place(hdfs_server: Hdfs) -> Place:
    return Place(hdfs_server)


LOST = pytest.mark.parametrize(
    "what", ["op=RENAME", "op=SETXATTR", "namenoderpcaddress="], ids=["shown", "marked", "sent"]
)


@LOST
def test_a_lost_answer_is_found_to_be_a_success(
    place: Place, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Harm prevented: a finished file is taken for somebody else's, and the export fails."""
    place.lose_answer(monkeypatch, what)
    sink = place.storage.create(f"{place.root}/f")
    sink.write(b"rows")

    sink.commit()

    assert place.lost
    place.assert_there(b"rows")


def test_a_gateway_that_passes_over_conditions_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: two writers have the same claim, and old metadata is taken for new."""
    place.storage.put(f"{place.root}/f", b"theirs")
    place.pass_over_options(monkeypatch)

    for write in (place.storage.put, place.storage.put_if_absent):
        with pytest.raises(LastingError, match=r"Name the NameNode itself as .*http-address"):
            write(f"{place.root}/f", b"ours")

    place.assert_there(b"theirs")


@LOST
def test_a_claim_whose_answer_was_lost_is_won_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Harm prevented: nobody has the claim, or two who would write the same."""
    place.lose_answer(monkeypatch, what)

    assert place.storage.put_if_absent(f"{place.root}/f", b"same") is True
    assert place.storage.put_if_absent(f"{place.root}/f", b"same") is False
    assert place.lost
    place.assert_there(b"same")


def test_a_file_of_somebody_else_is_kept(place: Place) -> None:
    """Harm prevented: a file that a snapshot refers to gets other bytes."""
    sink = place.storage.create(f"{place.root}/f")
    sink.write(b"ours")
    place.storage.put(f"{place.root}/f", b"theirs")

    with pytest.raises(DestinationError, match="there is another object of that name"):
        sink.commit()
    sink.abort()

    place.assert_there(b"theirs")


def test_what_may_be_shown_is_removed_when_it_is_given_up(
    hdfs_server: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a file that nobody counts stays beside those of an export."""
    place = Place(hdfs_server, TimeOuts(connect=5, read=10, retry_for=0.000001))
    sink = place.storage.create(f"{place.root}/f")
    sink.write(b"rows")
    place.lose_answer(monkeypatch, "op=RENAME")

    with pytest.raises(DestinationError, match="the connection was closed"):
        sink.commit()
    assert len(hdfs_server.files(place.root)) == 1
    sink.abort()

    assert hdfs_server.files(place.root) == []


def test_bytes_that_changed_in_the_store_are_not_read(hdfs_server: Hdfs, tmp_path: Path) -> None:
    """Harm prevented: a receipt, or metadata, with other bytes than were written."""
    place = Place(hdfs_server, IMPATIENT)
    content = os.urandom(300_001)
    place.storage.put(f"{place.root}/f", content)
    (block,) = [one for one in hdfs_server.blocks() if one.stat().st_size == len(content)]
    with block.open("r+b") as file:
        file.seek(len(content) // 2)
        file.write(bytes([content[len(content) // 2] ^ 1]))

    for use in (
        place.storage.read,
        place.storage.sha256,
        lambda at: place.storage.fetch(at, tmp_path),
    ):
        with pytest.raises(DestinationError, match=r"Cannot read .*did not recover"):
            use(f"{place.root}/f")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_a_write_goes_on_when_the_cluster_is_back(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins again, and is not ready at once: it says so, and is waited for."""
    place.storage.put(f"{place.root}/f", b"before")
    patient = HdfsStorage(place.store.access(time_outs=TimeOuts(5, 10, retry_for=120)))

    place.store.kill()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(patient.put, f"{place.root}/f", b"after")
        wait_until(lambda: "trying again to write" in caplog.text, "it met the outage")
        place.store.start()
        writing.result()

    place.assert_there(b"after")


def test_a_cluster_that_is_silent_ends_it_in_time(hdfs_server: Hdfs) -> None:
    place = Place(hdfs_server, IMPATIENT)
    sink = place.storage.create(f"{place.root}/f")
    sink.write(b"rows")
    begun = time.monotonic()
    place.store.pause()

    with pytest.raises(LastingError) as caught:
        sink.commit()
    sink.abort()

    assert time.monotonic() - begun < ENDS_WITHIN
    assert caught.value.message.startswith(f"Cannot write {place.root}/f: ")
    assert "did not recover within 1 s (--retry-for)" in caught.value.message


def failure_of(act: Callable[[], object]) -> str:
    """Return the message of a refusal that is not tried again."""
    with pytest.raises(LastingError) as caught:
        act()
    assert "did not recover" not in caught.value.message
    return caught.value.message


def test_another_cluster_is_not_taken_for_this_one(place: Place) -> None:
    """Harm prevented: rows go where no reader of the location looks, or are found gone."""
    storage, elsewhere = place.storage, "hdfs://other.example.com:8020/lake/f"
    acts: tuple[Callable[[str], object], ...] = (
        *(storage.read, storage.size, storage.sha256, storage.list, storage.delete),
        lambda at: storage.put_if_absent(at, b"x"),
    )
    for act in acts:
        said = failure_of(partial(act, elsewhere))
        assert f"serves {place.store.root}, not hdfs://other.example.com:8020" in said
        assert "Correct the location" in said


def test_who_has_no_right_is_told_what_to_do(place: Place) -> None:
    place.store.ask(
        "PUT", place.root.removeprefix(place.store.root), "SETPERMISSION", permission="700"
    )
    stranger = HdfsStorage(place.store.access(user="stranger"))

    for act in (
        lambda: stranger.put_if_absent(f"{place.root}/f", b"x"),
        lambda: stranger.list(place.root),
        lambda: stranger.delete(f"{place.root}/f"),
    ):
        said = failure_of(act)
        assert "AccessControlException" in said
        assert "Let the user read, write and enter the directory" in said
    assert place.store.files(place.root) == []


def test_who_is_not_trusted_is_told_nothing(place: Place, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    untrusted = HdfsStorage(place.store.access(ca_file=stranger.file))

    said = failure_of(lambda: untrusted.list(place.root))

    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "mergeberg.ca-file" in said
