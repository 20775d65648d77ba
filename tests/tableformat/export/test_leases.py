"""The thread that renews leases and looks at rows, while the ledger is away."""

from __future__ import annotations

import threading

import pytest

import tableformat.export.leases as module
from catalog.ledgers.memory import MemoryLedger
from tableformat.effects import Direct
from tableformat.errors import LedgerError
from tableformat.export.leases import Leases
from tableformat.ledger import Lease, LeaseHeld, Owner, Row

ME = Owner("host", 1, "then")
KEYS = tuple(f"key{number}" for number in range(100))
LONG = 60.0


class Away(MemoryLedger):
    """A ledger that can be made silent: then each request waits for a signal, and is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.asked: list[str] = []
        self.was_asked = threading.Event()
        self.refuse = threading.Event()

    def _respond(self, what: str) -> None:
        self.asked.append(what)
        self.was_asked.set()
        if self.is_away:
            assert self.refuse.wait(LONG)
            message = "Cannot ask the ledger: nobody answers. Run it again."
            raise LedgerError(message)

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        self._respond(f"read {len(keys)}")
        return super().read_all(keys)

    def renew(self, lease: Lease, seconds: float) -> Lease | LeaseHeld:
        self._respond("renew")
        return super().renew(lease, seconds)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Away:
    """Return a ledger that leases of a hundred keys are looked at and renewed in all the time."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.0)
    return Away()


@pytest.mark.parametrize("is_watched", [True, False])
def test_leaving_waits_for_one_request_when_the_ledger_is_away(
    ledger: Away, *, is_watched: bool
) -> None:
    """Harm prevented: Ctrl-C is obeyed after minutes, a request for each of a hundred keys."""
    leases = Leases(ledger, ME, effects=Direct(), is_alive=lambda _: True)
    assert leases.take_all(KEYS) == {}
    if is_watched:
        for key in KEYS:
            leases.watch(key, 1)
    ledger.is_away = True
    with leases:
        assert ledger.was_asked.wait(LONG)
        leases._ended.set()
        ledger.refuse.set()

    assert ledger.asked == ["read 100" if is_watched else "renew"]
    assert ledger.holder(KEYS[0]) is None


def test_a_ledger_that_is_away_is_asked_once_in_each_round(ledger: Away) -> None:
    """Harm prevented: a look at one key comes minutes late, because 99 others were tried again."""
    rounds = 5
    ledger.is_away = True
    ledger.refuse.set()
    leases = Leases(ledger, ME, effects=Direct(), is_alive=lambda _: True)
    leases.take_all(KEYS)
    for key in KEYS:
        leases.watch(key, 1)
    with leases:
        for _ in range(rounds):
            ledger.was_asked.clear()
            assert ledger.was_asked.wait(LONG)

    assert len(ledger.asked) >= rounds
    assert ledger.asked == (["read 100", "renew"] * len(ledger.asked))[: len(ledger.asked)]


def test_every_lease_is_renewed_while_the_ledger_is_there(ledger: Away) -> None:
    with Leases(ledger, ME, effects=Direct(), is_alive=lambda _: True) as leases:
        leases.take_all(KEYS)
        before = {key: leases._held[key].until for key in KEYS}
        while not all(leases._held[key].until > before[key] for key in KEYS):
            ledger.was_asked.clear()
            assert ledger.was_asked.wait(LONG)
