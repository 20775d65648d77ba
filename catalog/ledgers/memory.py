"""Implements the ledger in memory: the reference for every other implementation."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from catalog.processes import may_be_alive
from tableformat.history import MOST_EVENTS, Event, counted
from tableformat.ledger import Lease, LeaseHeld, Owner, Row, Stale, State

__all__ = ["MemoryLedger", "milliseconds", "running_exports", "selected"]


def milliseconds() -> int:
    """Return the current time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def running_exports(owners: Mapping[str, Owner], rows: Iterable[Row | None]) -> int:
    """Return the number of exports that are running.

    Args:
        owners: the owners of unexpired leases, by key hash. A lease outlives a killed process.
        rows: the rows of these keys, None for a key without one.
    """
    exporting = (row for row in rows if row is not None and row.is_exporting)
    return sum(may_be_alive(owners[row.key.hash]) for row in exporting)


def selected(
    rows: Iterable[Row], *, state: State | None, query_id: str, not_of: str
) -> Iterator[Row]:
    """Return the rows that `Ledger.rows` returns for its arguments, in their order."""
    return (
        row
        for row in rows
        if state in (None, row.state)
        and query_id in ("", row.claim.query_id)
        and (not not_of or row.key.source != not_of)
    )


class MemoryLedger:
    """A ledger that ends with its process. Safe from threads."""

    def __init__(
        self, *, clock: Callable[[], int] = milliseconds, most_events: int = MOST_EVENTS
    ) -> None:
        """Start empty, with a new identity.

        Args:
            clock: milliseconds since 1970; tests move it.
            most_events: how many of the latest events are kept.
        """
        self._identity = str(uuid.uuid4())
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._leases: dict[str, tuple[Owner, int, int]] = {}
        self._landed: dict[str, int] = {}
        self._epoch = 0
        self._events: deque[Event] = deque(maxlen=most_events)
        self._totals: Counter[str] = Counter()

    @property
    def identity(self) -> str:
        """The ledger's identity."""
        return self._identity

    @property
    def uri(self) -> str:
        """`memory:`; no other process can open it."""
        return "memory:"

    def is_made(self) -> bool:
        """Return True: it always exists."""
        return True

    def read(self, key: str) -> Row | None:
        """Return the latest row of a key hash."""
        (row,) = self.read_all((key,))
        return row

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        """Return the latest rows of key hashes."""
        with self._lock:
            return tuple(self._rows.get(key) for key in keys)

    def rows(
        self, *, state: State | None = None, query_id: str = "", not_of: str = ""
    ) -> Iterator[Row]:
        """Return all rows, or the selected ones, latest update first."""
        with self._lock:
            rows = sorted(self._rows.values(), key=lambda r: (-r.updated, r.key))
        return selected(rows, state=state, query_id=query_id, not_of=not_of)

    def write(self, row: Row) -> Row | Stale:
        """Replace the row that has `row.version`."""
        (written,) = self.write_all((row,))
        return written

    def write_all(self, rows: tuple[Row, ...]) -> tuple[Row | Stale, ...]:
        """Replace each row that has its version."""
        with self._lock:
            return tuple(self._write(row) for row in rows)

    def _write(self, row: Row) -> Row | Stale:
        if (stale := self._moved_on(row)) is not None:
            return stale
        written = replace(row, version=row.version + 1)
        self._rows[row.key.hash] = written
        of, known = row.key.destination, (x.sequence_number for x in row.landed)
        self._landed[of] = max(self._landed.get(of, 0), *known, 0)
        return written

    def _moved_on(self, row: Row) -> Stale | None:
        """Return `Stale` if the stored row is not the one that the writer has read."""
        found = self._rows.get(row.key.hash)
        if found is None:
            return Stale(None) if row.version else None
        same = found.version == row.version and found.created == row.created
        return None if same else Stale(found.version)

    def remove(self, row: Row) -> Stale | None:
        """Remove the row that has `row.version`."""
        with self._lock:
            found = self._rows.get(row.key.hash)
            if found is None or found.created != row.created:
                return None
            if (stale := self._moved_on(row)) is None:
                del self._rows[row.key.hash]
            return stale

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number in the rows of a destination."""
        with self._lock:
            return self._landed.get(destination, 0)

    def next_epoch(self, count: int = 1) -> int:
        """Return the next number of the counter, the first of `count`."""
        with self._lock:
            self._epoch += count
            return self._epoch - count + 1

    def highest_epoch(self) -> int:
        """Return the last number drawn."""
        with self._lock:
            return self._epoch

    def take_lease(
        self, key: str, owner: Owner, seconds: float, *, instead_of: Owner | None = None
    ) -> Lease | LeaseHeld:
        """Take a lease that is free, expired, or held by `owner` or `instead_of`."""
        with self._lock:
            return self._take(key, owner, seconds, instead_of)

    def take_leases(
        self, keys: tuple[str, ...], owner: Owner, seconds: float
    ) -> tuple[Lease | LeaseHeld, ...]:
        """Take each lease that is free, expired, or held by `owner`."""
        with self._lock:
            return tuple(self._take(key, owner, seconds, None) for key in keys)

    def _take(
        self, key: str, owner: Owner, seconds: float, instead_of: Owner | None
    ) -> Lease | LeaseHeld:
        now = self._clock()
        held = self._leases.get(key)
        if held and held[2] > now and held[0] not in (owner, instead_of):
            return LeaseHeld(*held)
        until = now + int(seconds * 1000)
        self._leases[key] = (owner, now, until)
        return Lease(key, owner, until)

    def renew(self, lease: Lease, seconds: float) -> Lease | LeaseHeld:
        """Extend a lease that its owner still holds."""
        with self._lock:
            held = self._leases.get(lease.key)
            now = self._clock()
            if held is None:
                return LeaseHeld(lease.owner, now, now)
            if held[0] != lease.owner:
                return LeaseHeld(*held)
            until = now + int(seconds * 1000)
            self._leases[lease.key] = (lease.owner, held[1], until)
            return Lease(lease.key, lease.owner, until)

    def release(self, *leases: Lease) -> None:
        """Release each lease that its owner still holds."""
        with self._lock:
            for lease in leases:
                held = self._leases.get(lease.key)
                if held and held[0] == lease.owner:
                    del self._leases[lease.key]

    def holder(self, key: str) -> LeaseHeld | None:
        """Return the unexpired lease of a key."""
        with self._lock:
            held = self._leases.get(key)
            return LeaseHeld(*held) if held and held[2] > self._clock() else None

    def note(self, events: tuple[Event, ...]) -> None:
        """Store events and add to their counters."""
        with self._lock:
            self._events.extend(events)
            for event in events:
                if event.counter is not None:
                    self._totals[event.counter] += event.parts

    def events(self, since: int | None, most: int) -> tuple[Event, ...]:
        """Return the latest events, newest first."""
        with self._lock:
            kept = [e for e in reversed(self._events) if since is None or e.time >= since]
        return tuple(kept[:most])

    def counters(self) -> Mapping[str, int]:
        """Return the counters and the number of running exports."""
        with self._lock:
            now = self._clock()
            held = {k: owner for k, (owner, _, until) in self._leases.items() if until > now}
            return counted(self._totals, running_exports(held, map(self._rows.get, held)))

    def leave(self) -> None:
        """Do nothing: no operation waits."""

    def close(self) -> None:
        """Do nothing: the rows live as long as the object."""
