"""Repeated requests are bounded in time, and failures have a reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from catalog.ledgers.keeper.session import AttemptError, KeeperSession, NoResponseError, stat
from tableformat.errors import LedgerError
from tests.services.zookeeper import ZooKeeper
from tests.support.keeper_ledgers import address_of

PATIENCE = 0.5


@pytest.fixture
def session(zookeeper_server: ZooKeeper) -> Iterator[KeeperSession]:
    """Return a session that waits half a second for a response."""
    address = replace(address_of(zookeeper_server.address), seconds=PATIENCE)
    with closing(KeeperSession(address)) as made:
        # The first connection may take longer than that.
        made._deadline.at = time.monotonic() + 60
        made.send(stat("/"))
        yield made


def asking(session: KeeperSession, seconds: float) -> int:
    """Send requests for some seconds; return the number of responses."""
    end = time.monotonic() + seconds
    responses = 0
    while time.monotonic() < end:
        responses += len(session.send(stat("/")))
    return responses


def counting(attempt: Callable[[int], int]) -> tuple[list[int], Callable[[], int]]:
    """Return an attempt that gets its own number, and the list of its calls."""
    made: list[int] = []

    def counted() -> int:
        made.append(len(made))
        return attempt(len(made))

    return made, counted


def test_a_loss_at_the_end_of_a_long_attempt_is_tried_again(session: KeeperSession) -> None:
    """Harm prevented: a write of thousands of rows fails by one lost packet."""

    def attempt(number: int) -> int:
        responses = asking(session, PATIENCE * 2)
        if number == 1:
            raise NoResponseError("lost")
        return responses

    made, counted = counting(attempt)

    assert session.within("write", counted) > 0
    assert len(made) == 2


def test_attempts_that_fail_in_spite_of_responses_end(session: KeeperSession) -> None:
    """Harm prevented: competing processes retry for ever."""

    def attempt(_: int) -> int:
        asking(session, PATIENCE * 2)
        raise AttemptError("other processes keep drawing epochs", retryable=True)

    made, counted = counting(attempt)

    with pytest.raises(LedgerError, match=r"keep drawing epochs, for 2 s\. Run it again"):
        session.within("draw an epoch", counted)
    assert len(made) == 2


def test_others_in_the_way_are_no_servers_that_are_away(session: KeeperSession) -> None:
    """Harm prevented: after contention the next requests give up after two seconds, unasked."""

    def in_the_way() -> int:
        session.send(stat("/"))
        raise AttemptError("other processes keep drawing epochs", retryable=True)

    with pytest.raises(LedgerError) as raised:
        session.within("draw an epoch", in_the_way)

    assert "servers" not in str(raised.value)
    assert not session._is_unreachable


def test_silent_servers_count_as_unreachable_until_they_respond(
    session: KeeperSession, zookeeper_server: ZooKeeper
) -> None:
    zookeeper_server.pause()
    try:
        with pytest.raises(LedgerError, match=r"for 0\.\d s. Check that its servers run"):
            session.within("look", lambda: session.send(stat("/")))
        assert session._is_unreachable
    finally:
        zookeeper_server.resume()

    session._deadline.at = time.monotonic() + 60
    session.send(stat("/"))
    assert not session._is_unreachable
