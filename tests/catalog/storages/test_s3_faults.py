"""What a network and a server do to objects in S3: whole or not at all, and an end in time.

The server is a real one, and so is what it stores: where an answer is lost, it was given.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from catalog.storages.s3.access import S3Access
from catalog.storages.s3.requests import Requests
from catalog.storages.s3.sink import PART_BYTES
from catalog.storages.s3.storage import S3Storage
from catalog.time_outs import TimeOuts
from tableformat.errors import DestinationError
from tests.s3_places import access_to
from tests.services.certificates import Authority
from tests.services.minio import READ_ONLY, Account, MinIO
from tests.services.server_process import free_port
from tests.support.time_bounds import ENDS_WITHIN

pytestmark = [
    # The connections to a server that was killed are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning"
    ),
]

LARGE = os.urandom(2 * PART_BYTES + 17)
IMPATIENT = TimeOuts(connect=1, read=2, retry_for=1)


class Place:
    """A storage with a bucket of its own."""

    def __init__(self, store: MinIO) -> None:
        self.store, self.bucket = store, store.make_bucket()
        # Clients are kept by their access: a region of its own makes this one the test's.
        self.access = access_to(store, store.account("s3:*", bucket=self.bucket))
        self.storage = S3Storage(self.access)
        self.root = f"s3://{self.bucket}/lake"

    def as_account(self, account: Account) -> S3Storage:
        return S3Storage(access_to(self.store, account))

    def on(self, event: str, act: Callable[..., None]) -> None:
        """Meddle once with what this storage's client sends or gets."""
        events, done = Requests(self.access).client.meta.events, list[bool]()

        def once(**given: Any) -> None:
            if not done:
                done.append(True)
                act(**given)

        events.register_first(event, once)

    def lose_answer(self, operation: str) -> None:
        """Lose the next answer to an operation, which the server has performed."""

        def lose(**_: Any) -> None:
            raise ConnectionClosedError(endpoint_url=self.store.endpoint)

        self.on(f"after-call.s3.{operation}", lose)


@pytest.fixture
def place(minio_server: MinIO) -> Place:
    return Place(minio_server)


def written(place: Place, content: bytes, name: str = "f") -> None:
    sink = place.storage.create(f"{place.root}/{name}")
    sink.write(content)
    sink.commit()


def assert_there(place: Place, content: bytes, name: str = "f") -> None:
    whole = hashlib.sha256(content).hexdigest()
    assert [one.size for one in place.storage.list(place.root)] == [len(content)]
    assert place.storage.sha256(f"{place.root}/{name}") == whole
    assert place.storage.list_unfinished(place.root) == ()


@pytest.mark.parametrize(
    ("operation", "content"),
    [
        ("PutObject", b"small"),
        ("CreateMultipartUpload", LARGE),
        ("UploadPart", LARGE),
        ("CompleteMultipartUpload", LARGE),
    ],
    ids=["PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"],
)
def test_a_lost_answer_is_found_to_be_a_success(
    place: Place, operation: str, content: bytes
) -> None:
    """Harm prevented: a finished file is taken for somebody else's, and the export fails."""
    place.lose_answer(operation)

    written(place, content)

    for begun in place.storage.list_unfinished(place.root):
        assert operation == "CreateMultipartUpload"
        place.storage.delete(begun.location)
    assert_there(place, content)


def test_a_claim_whose_answer_was_lost_is_won_once(place: Place) -> None:
    """Harm prevented: nobody has the claim, or two who would write the same."""
    place.lose_answer("PutObject")

    assert place.storage.put_if_absent(f"{place.root}/claim", b"same") is True
    assert place.storage.put_if_absent(f"{place.root}/claim", b"same") is False


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_an_object_of_somebody_else_is_kept(place: Place, content: bytes) -> None:
    """Harm prevented: a file that a snapshot refers to gets other bytes."""
    sink = place.storage.create(f"{place.root}/f")
    sink.write(content)
    place.storage.put(f"{place.root}/f", b"theirs")

    with pytest.raises(DestinationError, match="there is another object of that name"):
        sink.commit()
    sink.abort()

    assert_there(place, b"theirs")


@pytest.mark.parametrize(("operation", "content"), [("PutObject", b"small"), ("UploadPart", LARGE)])
def test_bytes_that_change_on_their_way_are_sent_again(
    place: Place, operation: str, content: bytes
) -> None:
    def flip(request: Any, **_: Any) -> None:
        body = bytearray(request.body.read())
        body[len(body) // 2] ^= 1
        request.body = bytes(body)

    place.on(f"before-send.s3.{operation}", flip)

    written(place, content)

    assert_there(place, content)


def test_an_upload_goes_on_when_the_server_is_back(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed in the middle of an upload, with some of its parts stored."""
    sink = place.storage.create(f"{place.root}/f")
    sink.write(LARGE)

    place.store.kill()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(place.store.start)
        sink.commit()

    assert f"trying again to write {place.root}/f" in caplog.text
    assert_there(place, LARGE)


@pytest.mark.parametrize("pauses", [False, True], ids=["killed", "silent"])
def test_a_server_that_stays_away_ends_it_in_time(place: Place, pauses: bool) -> None:  # noqa: FBT001  a parameter
    storage = S3Storage(access_to(place.store, time_outs=IMPATIENT))
    sink = storage.create(f"{place.root}/f")
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
    place.store.mend()
    assert place.storage.list(place.root) == ()


def test_nobody_who_answers_is_an_end_in_time(place: Place) -> None:
    nobody = access_to(
        place.store, endpoint=f"https://127.0.0.1:{free_port()}", time_outs=IMPATIENT
    )

    with pytest.raises(DestinationError, match="did not recover within 1 s"):
        S3Storage(nobody).list(place.root)


@contextlib.contextmanager
def plain_http() -> Iterator[str]:
    """Run a server that knows no TLS; its address, as https."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture
def failure_of(caplog: pytest.LogCaptureFixture) -> Callable[[Callable[[], object]], str]:
    """Return a function that returns the message of a refusal, which is not tried again."""

    def message_of(act: Callable[[], object]) -> str:
        with pytest.raises(DestinationError) as caught:
            act()
        assert "trying again" not in caplog.text
        return caught.value.message

    return message_of


def test_what_will_never_work_fails_at_once(
    place: Place, tmp_path: Path, failure_of: Callable[[Callable[[], object]], str]
) -> None:
    """Harm prevented: fifteen minutes of waiting for a right that nobody grants."""
    location, root = f"{place.root}/f", place.store.root
    reader = place.as_account(place.store.account(*READ_ONLY, bucket=place.bucket))
    said = failure_of(lambda: reader.put(location, b"x"))
    assert "AccessDenied" in said
    assert "Grant s3:ListBucket, s3:GetObject, s3:PutObject" in said
    assert "AccessDenied" in failure_of(lambda: reader.create(location).commit())
    assert "AccessDenied" in failure_of(lambda: reader.put_if_absent(location, b"x"))

    wrong = place.as_account(Account(root.access_key, "another secret of someone"))
    said = failure_of(lambda: wrong.list(place.root))
    assert "SignatureDoesNotMatch" in said
    assert "another secret of someone" not in said
    assert "set s3.access-key-id" in said
    unknown = place.as_account(Account("nobody", root.secret_key))
    assert "InvalidAccessKeyId" in failure_of(lambda: unknown.read(location))

    gone = S3Storage(access_to(place.store))
    assert "NoSuchBucket" in failure_of(lambda: gone.put("s3://not-there/f", b"x"))
    assert "Make the bucket" in failure_of(lambda: gone.list("s3://not-there/f"))

    with plain_http() as endpoint:
        no_tls = S3Storage(access_to(place.store, endpoint=endpoint))
        said = failure_of(lambda: no_tls.list(place.root))
    assert "The server speaks http there" in said

    stranger = Authority(tmp_path, "stranger")
    untrusted = S3Storage(access_to(place.store, ca_file=stranger.file))
    said = failure_of(lambda: untrusted.list(place.root))
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "mergeberg.ca-file" in said


def test_a_copy_for_which_there_is_no_space_is_an_error_and_leaves_nothing(
    place: Place, tmp_path: Path
) -> None:
    """Harm prevented: `export --verify` dies of it in the middle of a group."""
    written(place, LARGE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PART_BYTES, hard))
    try:
        with pytest.raises(DestinationError, match=rf"Cannot copy {place.root}/f .*TMPDIR"):
            place.storage.fetch(f"{place.root}/f", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(tmp_path.iterdir()) == []


def test_a_bucket_that_goes_in_the_middle_leaves_nothing_half(place: Place) -> None:
    sink = place.storage.create(f"{place.root}/f")
    sink.write(LARGE)
    for begun in place.storage.list_unfinished(place.root):
        place.storage.delete(begun.location)
    place.store.client().delete_bucket(Bucket=place.bucket)

    said = failure_of(sink.commit)
    sink.abort()

    assert "NoSuchBucket" in said or "NoSuchUpload" in said or "lost what was sent" in said


def test_without_a_mark_nothing_is_taken_for_ones_own(place: Place) -> None:
    """An object that others put there by another program has none."""
    place.store.client().put_object(Bucket=place.bucket, Key="lake/f", Body=b"")

    assert place.storage.put_if_absent(f"{place.root}/f", b"") is False


def test_an_access_shows_no_secret() -> None:
    access = S3Access(secret_key="hidden-1", token="hidden-2", proxy="http://u:hidden-3@p")  # noqa: S106  a test's

    assert "hidden" not in f"{access!r} {access} {Requests(access)!r}"
    assert access.masked("a hidden-1 b hidden-2") == "a *** b ***"
