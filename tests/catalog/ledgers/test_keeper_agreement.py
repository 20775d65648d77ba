"""The ledger in ZooKeeper agrees with the ledger in memory, through two sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from catalog.ledgers.keeper.address import parse_keeper
from catalog.ledgers.keeper.ledger import KeeperLedger
from conformance.suites.ledger import ledger_agreement
from tests.services.zookeeper import ZooKeeper
from tests.support.keeper_ledgers import new_chroot

_KEPT = 7
"""Fewer events than a run of the test notes, so that the oldest are given up."""
_PLACES: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _place(zookeeper_server: ZooKeeper) -> Iterator[None]:
    # A state machine asks for no fixture.
    _PLACES["server"], _PLACES["run"] = zookeeper_server.address, new_chroot()
    yield
    _PLACES.clear()


def _open(clock: Callable[[], int], name: str) -> KeeperLedger:
    uri = f"keeper://{_PLACES['server']}{_PLACES['run']}/{name}"
    return KeeperLedger(parse_keeper(uri, environment={}), clock=clock, most_events=_KEPT)


TestKeeperAgrees = ledger_agreement(_open, most_events=_KEPT).TestCase
TestKeeperAgrees.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
