"""Tests that a ledger behaves as the one in memory: random operations give the same results.

    from conformance.suites.ledger import ledger_agreement
    TestMine = ledger_agreement(lambda clock, name: MyLedger(..., clock=clock)).TestCase

`open_ledger(clock, name)` opens the ledger called `name`, which is empty the first time and keeps
the latest `most_events` events. `clock` returns milliseconds since 1970. Each test opens the ledger
twice by the same name, as two processes would.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from catalog.ledgers.memory import MemoryLedger
from tableformat.history import MOST_EVENTS, RUNNING_EXPORTS, Counter, Event, EventKind
from tableformat.ledger import (
    Claim,
    Key,
    Landed,
    Lease,
    Ledger,
    Owner,
    Row,
    Stale,
    State,
    StatementKind,
)

__all__ = ["ledger_agreement"]

_KEYS = (*(Key("source", partition, "table") for partition in ("1", "2")), Key("s'", "1", "table"))
_OWNERS = tuple(Owner("host", pid, "then") for pid in (1, 2))
_CLAIM = Claim(1, "7", "f", 1, recipe="r")
_NAMES = itertools.count()
_EVENTS = st.builds(
    Event,
    time=st.integers(0, 4_000_000),
    kind=st.sampled_from(EventKind),
    table=st.just("db.t"),
    destination=st.just("lake.n.t"),
    partition_id=st.sampled_from(["1", "2"]),
    part_name=st.sampled_from(["", "1_1_1_0"]),
    status=st.sampled_from(["committed", "failed"]),
    error=st.text(max_size=20),
    counter=st.sampled_from([None, *Counter]),
    parts=st.integers(0, 5),
)


class LedgerAgreement(RuleBasedStateMachine):
    """Applies every operation to both ledgers; every result must be the same."""

    open_ledger: ClassVar[Callable[[Callable[[], int], str], Ledger]]
    most_events: ClassVar[int] = MOST_EVENTS

    def __init__(self) -> None:
        """Open the ledger in memory, and two handles of one new ledger of the tested kind."""
        super().__init__()
        self.now = 1_000_000
        self.model = MemoryLedger(clock=lambda: self.now, most_events=self.most_events)
        name = f"ledger-{next(_NAMES)}"
        self.handles = [type(self).open_ledger(lambda: self.now, name) for _ in range(2)]
        self.leases: list[Lease] = []
        self.removed: list[Row] = []

    def teardown(self) -> None:
        """Close both handles."""
        for handle in self.handles:
            handle.close()

    @rule(
        key=st.sampled_from(_KEYS),
        by=st.integers(0, 1),
        version=st.sampled_from(["current", "older", "none"]),
        state=st.sampled_from(State),
        error=st.text(max_size=20),
        kind=st.sampled_from([None, StatementKind.UPDATE]),
    )
    def write(
        self,
        key: Key,
        by: int,
        version: str,
        state: State,
        error: str,
        kind: StatementKind | None,
    ) -> None:
        seen = self.model.read(key.hash)
        row = self._next_row(key, version, state, error, kind)
        expected, found = self.model.write(row), self.handles[by].write(row)
        assert found == expected
        if isinstance(found, Stale):
            assert row.version != (seen.version if seen else 0)

    @rule(
        keys=st.lists(st.sampled_from(_KEYS), unique=True),
        versions=st.tuples(*(st.sampled_from(["current", "older", "none"]) for _ in _KEYS)),
        by=st.integers(0, 1),
        state=st.sampled_from(State),
    )
    def write_many(self, keys: list[Key], versions: tuple[str, ...], by: int, state: State) -> None:
        before = [self.model.read(key.hash) for key in keys]
        rows = tuple(
            self._next_row(key, version, state, "")
            for key, version in zip(keys, versions, strict=False)
        )
        found = self.handles[by].write_all(rows)
        assert found == self.model.write_all(rows)
        for row, seen, result in zip(rows, before, found, strict=True):
            assert isinstance(result, Stale) == (row.version != (seen.version if seen else 0))

    @rule(key=st.sampled_from(_KEYS), by=st.integers(0, 1), is_current=st.booleans())
    def remove(self, key: Key, by: int, *, is_current: bool) -> None:
        seen = self.model.read(key.hash)
        if seen is None:
            return
        row = seen if is_current else replace(seen, version=seen.version + 1)
        found = self.handles[by].remove(row)
        assert found == self.model.remove(row)
        assert (found is None) == is_current
        if is_current:
            # A row that is made again is made later.
            self.now += 1
            self.removed.append(seen)

    @rule(index=st.integers(0, 20), by=st.integers(0, 1), removes=st.booleans())
    def come_late(self, index: int, by: int, *, removes: bool) -> None:
        """Write or remove a row that was removed before, and may have been created again since."""
        if not self.removed:
            return
        row = self.removed[index % len(self.removed)]
        before = self.model.read(row.key.hash)
        if removes:
            assert self.handles[by].remove(row) is None
        else:
            found = self.handles[by].write(row)
            assert found == self.model.write(row)
            assert isinstance(found, Stale)
        assert self.model.read(row.key.hash) == before

    def _next_row(
        self,
        key: Key,
        version: str,
        state: State,
        error: str,
        kind: StatementKind | None = None,
    ) -> Row:
        base = self.model.read(key.hash) or Row(
            key, "db.t", "lake.n.t", state, _CLAIM, self.now, self.now
        )
        landed = Landed(1, "7", "f", len(base.landed) + 1, 9, rows=3, data_files=1)
        return replace(
            base.with_landed(landed),
            version={"current": base.version, "older": base.version - 1, "none": 0}[version],
            state=state,
            last_error=error,
            updated=self.now,
            claim=replace(
                base.claim,
                kind=kind,
                statement="" if kind is None else f"{kind} n",
                query_id="" if kind is None else f"of {key.partition_id}",
            ),
        )

    @rule(by=st.integers(0, 1), count=st.integers(1, 5))
    def count(self, by: int, count: int) -> None:
        before = self.model.highest_epoch()
        first = self.handles[by].next_epoch(count)
        assert first == self.model.next_epoch(count) == before + 1
        assert self.handles[by].highest_epoch() == before + count

    @rule(
        key=st.sampled_from(_KEYS),
        owner=st.sampled_from(_OWNERS),
        instead=st.sampled_from((*_OWNERS, None)),
        seconds=st.sampled_from([0.5, 60.0]),
        by=st.integers(0, 1),
    )
    def take(self, key: Key, owner: Owner, instead: Owner | None, seconds: float, by: int) -> None:
        expected = self.model.take_lease(key.hash, owner, seconds, instead_of=instead)
        assert self.handles[by].take_lease(key.hash, owner, seconds, instead_of=instead) == expected
        if isinstance(expected, Lease):
            self.leases.append(expected)

    @rule(
        keys=st.lists(st.sampled_from(_KEYS), unique=True),
        owner=st.sampled_from(_OWNERS),
        seconds=st.sampled_from([0.5, 60.0]),
        by=st.integers(0, 1),
    )
    def take_many(self, keys: list[Key], owner: Owner, seconds: float, by: int) -> None:
        hashes = tuple(key.hash for key in keys)
        expected = self.model.take_leases(hashes, owner, seconds)
        assert self.handles[by].take_leases(hashes, owner, seconds) == expected
        self.leases += [taken for taken in expected if isinstance(taken, Lease)]

    @rule(index=st.integers(0, 20), by=st.integers(0, 1), seconds=st.sampled_from([0.5, 60.0]))
    def renew(self, index: int, by: int, seconds: float) -> None:
        if self.leases:
            lease = self.leases[index % len(self.leases)]
            assert self.handles[by].renew(lease, seconds) == self.model.renew(lease, seconds)

    @rule(indices=st.lists(st.integers(0, 20), max_size=3), by=st.integers(0, 1))
    def release(self, indices: list[int], by: int) -> None:
        if self.leases:
            leases = [self.leases[index % len(self.leases)] for index in indices]
            self.model.release(*leases)
            self.handles[by].release(*leases)

    @rule(events=st.lists(_EVENTS, max_size=6).map(tuple), by=st.integers(0, 1))
    def note(self, events: tuple[Event, ...], by: int) -> None:
        self.model.note(events)
        self.handles[by].note(events)
        kept = self.model.events(None, self.most_events + 1)
        assert len(kept) <= self.most_events
        assert kept[: len(events)] == tuple(reversed(events))[: self.most_events]

    @rule(
        since=st.one_of(st.none(), st.integers(0, 4_000_000)),
        most=st.integers(0, 10),
        by=st.integers(0, 1),
    )
    def look_back(self, since: int | None, most: int, by: int) -> None:
        assert self.handles[by].events(since, most) == self.model.events(since, most)

    @rule(milliseconds=st.sampled_from([1, 400, 600, 61_000]))
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds

    @invariant()
    def both_show_the_same(self) -> None:
        for handle in self.handles:
            assert list(handle.rows()) == list(self.model.rows())
            assert handle.highest_epoch() == self.model.highest_epoch()
            assert handle.counters() == self.model.counters()
            assert handle.counters()[RUNNING_EXPORTS] == self._exports_now()
            for destination in {key.destination for key in _KEYS}:
                assert handle.highest_landed(destination) == self.model.highest_landed(destination)
            hashes = tuple(key.hash for key in _KEYS)
            assert handle.read_all(hashes) == tuple(map(self.model.read, hashes))
            assert handle.read_all(hashes[1::-1]) == self.model.read_all(hashes[1::-1])
            for key in _KEYS:
                assert handle.read(key.hash) == self.model.read(key.hash)
                assert handle.holder(key.hash) == self.model.holder(key.hash)

    @invariant()
    def both_select_the_same(self) -> None:
        rows = list(self.model.rows())
        for ledger in (self.model, *self.handles):
            for state in State:
                assert list(ledger.rows(state=state)) == [r for r in rows if r.state is state]
            for query_id in ("of 1", "of 2", "of none"):
                of_query = [r for r in rows if r.claim.query_id == query_id]
                assert list(ledger.rows(query_id=query_id)) == of_query
            for source in ("source", "s'"):
                others = [r for r in rows if r.key.source != source]
                assert list(ledger.rows(not_of=source)) == others

    def _exports_now(self) -> int:
        """Return the number of keys that exports hold leases of, without those of statements."""
        rows = (row for row in self.model.rows() if self.model.holder(row.key.hash))
        return sum(r.state is State.RUNNING and r.claim.kind is None for r in rows)

    @invariant()
    def one_identity_for_ever(self) -> None:
        assert self.handles[0].identity == self.handles[1].identity


def ledger_agreement(
    open_ledger: Callable[[Callable[[], int], str], Ledger], *, most_events: int = MOST_EVENTS
) -> type[LedgerAgreement]:
    """Return the state machine that compares an implementation with the ledger in memory.

    Args:
        open_ledger: opens a ledger by its name, as described above.
        most_events: the number of events that each opened ledger keeps.
    """
    inside = {"open_ledger": staticmethod(open_ledger), "most_events": most_events}
    return type("Agreement", (LedgerAgreement,), inside)
