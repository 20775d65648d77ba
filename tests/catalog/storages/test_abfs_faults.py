"""What a network and a server do to objects in abfs: whole or not at all, and an end in time.

What is written through is shared with gs, whose tests have more of it. The server is a local one
that stores what it is sent: where an answer is lost, it was given.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from urllib3.exceptions import ProtocolError
from urllib3.response import BaseHTTPResponse

from catalog.storages.abfs.objects import AbfsObjects
from catalog.storages.abfs.storage import AbfsStorage, requests_of
from catalog.time_outs import TimeOuts
from tableformat.errors import DestinationError, EndedCredentialsError, LastingError
from tests.services.azurite import Azurite
from tests.support.time_bounds import ENDS_WITHIN

pytestmark = [
    # The connections to a server that was killed are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl:pytest.PytestUnraisableExceptionWarning"
    ),
]

LARGE = os.urandom(16 * 1024 * 1024 + 17)
SIZES = pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
ALL = "rwdlac"
Send = Callable[..., BaseHTTPResponse]


class Place:
    """A storage with a container of its own."""

    def __init__(self, store: Azurite, *, sas: str | None = None, retry_for: float = 20) -> None:
        self.store, self.container = store, store.make_container()
        # Connections are kept by their access: a time of its own makes these the test's.
        bounds = TimeOuts(connect=5, read=10, retry_for=retry_for + next(_NUMBERS) / 1000)
        self.access = store.access(sas=sas, time_outs=bounds)
        self.storage = AbfsStorage(self.access)
        self.root = f"{store.location(self.container)}/lake"

    def once(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[Send, Any], Any]) -> None:
        """Meddle with the next PUT of this storage."""
        client, done = requests_of(self.access).client, list[bool]()
        assert isinstance(client, AbfsObjects)
        real: Send = client.http._pool.request

        def request(method: str, url: str, **given: Any) -> BaseHTTPResponse:
            if method != "PUT" or done:
                return real(method, url, **given)
            done.append(True)
            changed: BaseHTTPResponse = act(lambda **more: real(method, url, **given | more), given)
            return changed

        monkeypatch.setattr(client.http._pool, "request", request)

    def lose_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lose the answer to the next PUT, which the server has performed."""

        def lose(send: Send, _: Any) -> None:
            assert send().status == 201
            raise ProtocolError("the connection was closed")

        self.once(monkeypatch, lose)


_NUMBERS = itertools.count(1)


@pytest.fixture
def place(abfs_server: Azurite) -> Place:
    return Place(abfs_server)


def written(place: Place, content: bytes) -> None:
    sink = place.storage.create(f"{place.root}/f")
    sink.write(content)
    try:
        sink.commit()
    except DestinationError:
        sink.abort()
        raise


def assert_there(place: Place, content: bytes) -> None:
    assert [one.size for one in place.storage.list(place.root)] == [len(content)]
    assert place.storage.sha256(f"{place.root}/f") == hashlib.sha256(content).hexdigest()


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


@SIZES
def test_bytes_that_change_on_their_way_are_sent_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    def flip(send: Send, given: Any) -> BaseHTTPResponse:
        pieces: Iterator[bytes] = iter(given["body"])
        first = next(pieces)
        return send(body=itertools.chain((bytes([first[0] ^ 1]) + first[1:],), pieces))

    place.once(monkeypatch, flip)

    written(place, content)

    assert_there(place, content)


def test_bytes_that_changed_where_they_lie_are_not_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a receipt, or metadata, with a flipped bit."""
    impatient = Place(place.store, retry_for=0)
    written(impatient, b"small")
    client = requests_of(impatient.access).client
    assert isinstance(client, AbfsObjects)
    real: Send = client.http._pool.request

    def flipped(method: str, url: str, **given: Any) -> BaseHTTPResponse:
        answer = real(method, url, **given)
        chunks = answer.stream
        monkeypatch.setattr(answer, "stream", lambda size: (b"x" + c[1:] for c in chunks(size)))
        return answer

    monkeypatch.setattr(client.http._pool, "request", flipped)

    with pytest.raises(DestinationError, match="its bytes are not those that were stored"):
        impatient.storage.read(f"{impatient.root}/f")


def test_what_is_begun_leaves_nothing(place: Place) -> None:
    """Harm prevented: blocks that nobody finds, and that are paid for."""
    sink = place.storage.create(f"{place.root}/f")
    sink.write(LARGE)
    assert place.store.objects(place.container) == []

    sink.abort()

    assert place.store.objects(place.container) == []
    assert place.storage.list_unfinished(place.root) == ()


def test_it_goes_on_when_the_server_is_back(place: Place) -> None:
    place.storage.put(f"{place.root}/before", b"x")
    place.store.pause()
    back = threading.Timer(1.0, place.store.resume)
    back.start()

    written(place, b"small")

    back.join()
    assert sorted(o.size for o in place.storage.list(place.root)) == [1, 5]


def test_a_server_that_stays_away_is_given_up_in_time(place: Place) -> None:
    impatient = Place(place.store, retry_for=1)
    place.store.kill()
    begun = time.monotonic()

    with pytest.raises(LastingError, match="did not recover within 1"):
        written(impatient, b"small")

    assert time.monotonic() - begun < ENDS_WITHIN


@pytest.mark.parametrize(
    ("permissions", "seconds", "kind", "said"),
    [
        ("rl", 3600, LastingError, "Grant reading, writing, deleting and listing"),
        (ALL, -60, EndedCredentialsError, "The credentials are wrong or have ended"),
    ],
    ids=["may only read", "has ended"],
)
def test_who_may_not_write_is_told_at_once(
    place: Place, permissions: str, seconds: int, kind: type[DestinationError], said: str
) -> None:
    """Harm prevented: fifteen minutes of trying what will never work."""
    sas = place.store.signature(permissions, seconds=seconds)
    other = Place(place.store, sas=sas)

    with pytest.raises(kind, match=said) as caught:
        written(other, b"small")

    assert sas not in caught.value.message
    assert other.store.objects(other.container) == []


def test_who_has_a_signature_writes_as_with_the_key(place: Place) -> None:
    other = Place(place.store, sas=place.store.signature(ALL))

    written(other, LARGE)

    assert_there(other, LARGE)
    other.storage.delete(f"{other.root}/f")
    assert other.storage.list(other.root) == ()


def test_another_key_is_refused(place: Place) -> None:
    wrong = place.store.connection(key="d3Jvbmc=")
    given = {"adls.connection-string": wrong, "mergeberg.ca-file": str(place.store.ca_file)}
    access = type(place.access).of(place.root, given, environment={})

    with pytest.raises(LastingError, match="The credentials are wrong or have ended"):
        AbfsStorage(access).put(f"{place.root}/f", b"x")


def test_a_container_that_is_not_there_is_not_an_empty_one(place: Place) -> None:
    """Harm prevented: gc, or a resumed export, takes a lost container for one without files."""
    gone = f"{place.store.location('no-such')}/lake"

    for act in (
        lambda: place.storage.list(gone),
        lambda: place.storage.read(f"{gone}/f"),
        lambda: place.storage.delete(f"{gone}/f"),
    ):
        with pytest.raises(LastingError, match="Make the container"):
            act()
