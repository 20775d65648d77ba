"""Faults of networks and servers in every store: objects are complete or absent, errors in time.

The servers are real ones, or local ones with the properties that an export needs: a lost response
was sent. `tests/support/store_kinds.py` has the differences between stores.
"""

from __future__ import annotations

import contextlib
import re
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from catalog.network import TimeOuts
from catalog.storages.over_http.storage import ObjectStorage
from catalog.storages.s3.storage import S3Storage
from tableformat.errors import DeniedError, DestinationError, LastingError
from tests.services.certificates import Authority
from tests.services.server_process import free_port, wait_until
from tests.support.store_kinds import (
    EVERY,
    AbfsPlace,
    GsPlace,
    HdfsPlace,
    MinIOPlace,
    S3Place,
    S3ProxyPlace,
)
from tests.support.store_places import LARGE, SMALL, Place, Step, over, over_steps
from tests.support.time_bounds import ENDS_WITHIN

pytestmark = [
    # The connections to a server that was killed are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning"
    ),
]

SIZES = pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
IMPATIENT = TimeOuts(connect=1, read=2, retry_for=1)
AT_ONCE = TimeOuts(connect=5, read=10, retry_for=0.000001)
# HDFS takes no files for some time after its start.
PATIENT = TimeOuts(connect=2, read=5, retry_for=120)
CHECKED = (S3ProxyPlace, MinIOPlace, GsPlace, AbfsPlace)
"""Stores that compare the bytes that come with a digest."""
WAITING = (GsPlace, AbfsPlace, HdfsPlace)
"""Stores whose objects wait on the writer's host until they are whole."""
Bucket = S3Place | GsPlace | AbfsPlace
Storage = S3Storage | ObjectStorage
Refusal = Callable[..., str]


@over_steps(*EVERY)
def test_a_lost_response_is_found_to_be_a_success(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    """Harm prevented: a finished file counts as another writer's, and the export fails."""
    place.lose_response(monkeypatch, step)

    place.write(step.content)

    assert place.met
    for begun in place.storage.list_unfinished(place.root):
        assert step.name == "begin"
        place.storage.delete(begun.location)
    place.assert_there(step.content)


@over_steps(*EVERY, where=lambda step: not step.large)
def test_a_claim_with_a_lost_response_is_won_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    """Harm prevented: no process has the claim, or two have it."""
    place.lose_response(monkeypatch, step)

    assert place.storage.put_if_absent(place.file, b"same") is True
    assert place.storage.put_if_absent(place.file, b"same") is False
    assert place.met
    place.assert_there(b"same")


@over(*EVERY)
@SIZES
def test_an_object_of_another_writer_is_kept(place: Place, content: bytes) -> None:
    """Harm prevented: a file that a snapshot refers to gets other bytes."""
    sink = place.storage.create(place.file)
    sink.write(content)
    place.storage.put(place.file, b"theirs")

    with pytest.raises(DestinationError, match="there is another object of that name"):
        sink.commit()
    sink.abort()

    place.assert_there(b"theirs")


@over(*EVERY)
def test_without_a_mark_nothing_is_taken_for_ones_own(place: Place) -> None:
    """An object that others put there by another program has none."""
    place.storage.put(place.file, b"")

    assert place.storage.put_if_absent(place.file, b"") is False


@over_steps(*CHECKED, where=lambda step: step.sends)
def test_bytes_that_change_on_their_way_are_sent_again(
    place: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: Step
) -> None:
    place.flip_byte(monkeypatch, step)

    place.write(step.content)

    assert re.search(f"trying again to write .*{place.changed}", caplog.text)
    place.assert_there(step.content)


@over(*WAITING)
def test_bytes_that_changed_in_the_store_are_not_read(
    place: GsPlace | AbfsPlace | HdfsPlace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Harm prevented: a receipt, or metadata, with other bytes than were written."""
    spoiled = place.another(IMPATIENT)
    # No other file has so many bytes.
    spoiled.write(LARGE[:-1])
    spoiled.spoil(monkeypatch)

    storage = spoiled.storage
    for use in (storage.read, storage.sha256, lambda at: storage.fetch(at, tmp_path)):
        with pytest.raises(DestinationError, match=rf"Cannot read .*{place.spoiled}"):
            use(spoiled.file)
    assert list(tmp_path.iterdir()) == []


@over(*WAITING)
def test_nothing_is_stored_of_an_uncommitted_object(place: Place) -> None:
    """Harm prevented: hidden blocks that cost money."""
    sink = place.storage.create(place.file)
    sink.write(LARGE)
    assert place.stored() == []

    sink.abort()

    assert place.stored() == []
    assert place.storage.list_unfinished(place.root) == ()


@over(*EVERY)
def test_an_upload_resumes_when_the_server_is_back(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed in the middle of an upload: S3 has stored some of its parts."""
    patient = place.another(PATIENT)
    sink = patient.storage.create(patient.file)
    sink.write(LARGE)

    patient.take_away()
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(sink.commit)
        wait_until(
            lambda: f"trying again to write {patient.file}" in caplog.text, "it met the outage"
        )
        place.server.mend()
        committing.result()

    patient.assert_there(LARGE)


@over(*EVERY)
@pytest.mark.parametrize("pauses", [False, True], ids=["killed", "silent"])
def test_a_server_that_stays_away_ends_it_in_time(place: Place, pauses: bool) -> None:  # noqa: FBT001  a parameter
    impatient = place.another(IMPATIENT)
    sink = impatient.storage.create(impatient.file)
    sink.write(b"rows")
    begun = time.monotonic()
    if pauses:
        place.server.pause()
    else:
        place.server.kill()

    with pytest.raises(LastingError) as caught:
        sink.commit()
    sink.abort()

    assert time.monotonic() - begun < ENDS_WITHIN
    assert caught.value.message.startswith(f"Cannot write {impatient.file}: ")
    assert "did not recover within 1 s (--retry-for)" in str(caught.value)
    assert "safe to run again" in caught.value.message
    place.server.mend()
    if pauses or place.outlives_kill:
        assert place.storage.list(impatient.root) == ()


@over(*EVERY)
def test_an_address_without_a_server_ends_it_in_time(place: Place) -> None:
    nobody = place.reached(endpoint=f"https://127.0.0.1:{free_port()}", time_outs=IMPATIENT)

    with pytest.raises(LastingError, match="did not recover within 1 s"):
        nobody.list(place.root)


@over_steps(*EVERY, where=lambda step: step.shows)
def test_an_object_that_may_be_stored_is_removed_when_it_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    """Harm prevented: an uncounted file stays among those of an export."""
    hasty = place.another(AT_ONCE)
    sink = hasty.storage.create(hasty.file)
    sink.write(step.content)
    hasty.lose_response(monkeypatch, step)

    with pytest.raises(DestinationError, match=r"(?i)connection was closed"):
        sink.commit()
    assert hasty.stored() == ["f"]
    sink.abort()

    assert hasty.stored() == []
    assert hasty.storage.list_unfinished(hasty.root) == ()


@pytest.fixture
def refusal(caplog: pytest.LogCaptureFixture) -> Refusal:
    """Return a function that returns the message of a refusal, without retries and secrets."""

    def message_of(
        storage: Storage,
        act: Callable[[Any], object],
        kind: type[LastingError] = LastingError,
    ) -> str:
        with pytest.raises(kind) as caught:
            act(storage)
        message = caught.value.message
        assert "trying again" not in caplog.text
        assert "did not recover" not in message
        hidden = ("key", "sas", "secret_key", "token")
        known = (getattr(storage._requests.access, name, None) for name in hidden)
        assert [one for one in known if one and one in message] == []
        return message

    return message_of


@over(MinIOPlace, AbfsPlace, HdfsPlace)
def test_a_refused_write_names_the_right_to_grant(
    place: MinIOPlace | AbfsPlace | HdfsPlace, refusal: Refusal
) -> None:
    """Harm prevented: fifteen minutes of waiting for a missing right."""
    reader = place.without_right()

    def write(storage: Storage) -> None:
        sink = storage.create(place.file)
        try:
            sink.commit()
        finally:
            sink.abort()

    acts: tuple[Callable[[Storage], object], ...] = (
        *(write, lambda to: to.put(place.file, b"x")),
        lambda to: to.put_if_absent(place.file, b"x"),
    )
    for act in acts:
        assert re.search(place.refused, refusal(reader, act, DeniedError))
    assert place.stored() == []


@over(S3ProxyPlace, MinIOPlace, AbfsPlace)
def test_a_wrong_key_is_refused_at_once(place: S3Place | AbfsPlace, refusal: Refusal) -> None:
    """Harm prevented: fifteen minutes of hopeless retries."""
    message = refusal(place.with_wrong_key(), lambda to: to.put(place.file, b"x"))

    assert re.search(place.wrong_key, message)


@over(*CHECKED)
def test_a_missing_bucket_is_not_an_empty_one(place: Bucket, refusal: Refusal) -> None:
    """Harm prevented: a lake that is away is taken for one that was never made."""
    absent = f"{place.absent}/f"
    acts: dict[str, Callable[[Any], object]] = {
        "read": lambda to: to.read(absent),
        "size": lambda to: to.size(absent),
        "sha256": lambda to: to.sha256(absent),
        "list": lambda to: to.list(absent),
        "delete": lambda to: to.delete(absent),
        "put": lambda to: to.put(absent, b"x"),
        "put_if_absent": lambda to: to.put_if_absent(absent, b"x"),
    }

    for name in sorted(acts.keys() - place.blind):
        message = refusal(place.storage, acts[name])
        assert place.make_it in message
        assert "there is no such object" not in message


@contextlib.contextmanager
def plain_http() -> Iterator[str]:
    """Run a server that knows no TLS; its address, as https."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@over(*EVERY)
def test_a_server_without_tls_is_refused_at_once(place: Place, refusal: Refusal) -> None:
    with plain_http() as endpoint:
        message = refusal(place.reached(endpoint=endpoint), lambda to: to.list(place.root))

    assert "The server speaks http there" in message


@over(*EVERY)
def test_a_server_of_an_unknown_authority_is_refused_at_once(
    place: Place, tmp_path: Path, refusal: Refusal
) -> None:
    stranger = Authority(tmp_path, "stranger")
    untrusted = place.reached(ca_file=stranger.file)

    message = refusal(untrusted, lambda to: to.list(place.root))

    assert "CERTIFICATE_VERIFY_FAILED" in message
    assert "mergeberg.ca-file" in message


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Limit the files of this process to half of a large object."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LARGE) // 2, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@over(*EVERY)
def test_a_copy_without_space_is_an_error_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    """Harm prevented: `export --verify` dies of it in the middle of a group."""
    place.write(LARGE)

    with (
        full_disk(),
        pytest.raises(DestinationError, match=rf"Cannot copy {place.file} .*TMPDIR"),
    ):
        place.storage.fetch(place.file, tmp_path)

    assert list(tmp_path.iterdir()) == []


@over(*WAITING)
def test_a_write_without_space_is_an_error_and_leaves_nothing(place: Place) -> None:
    """Harm prevented: the export fails half-way without advice."""
    sink = place.storage.create(place.file)

    with full_disk(), pytest.raises(DestinationError, match=rf"Cannot write {place.file}.*TMPDIR"):
        sink.write(LARGE)
    sink.abort()

    assert place.stored() == []
