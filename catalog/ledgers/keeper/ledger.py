"""The ledger in ZooKeeper or ClickHouse Keeper: for any number of hosts.

Layout: docs/spec/keeper-ledger.md. Reading never makes a ledger; the first write, or asking for its
identity, makes it and the missing nodes above it. Every read comes after a `sync`, and every change
of a row, an epoch or the counters asks in the same step whether this still is the ledger that was
opened. An operation ends within the address's time-out, else in a LedgerError; after one of a write
nobody knows whether it was made, and doing it again is safe.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kazoo.exceptions import NoNodeError
from kazoo.security import Permissions

from catalog.ledgers.keeper.address import KeeperAddress
from catalog.ledgers.keeper.leases import KeeperLeases, KeeperPast
from catalog.ledgers.keeper.paths import LAYOUT, KeeperPaths, ledger_root
from catalog.ledgers.keeper.rows import (
    KeeperRows,
    confirmed,
    damaged,
    member,
    members,
    sealed_members,
)
from catalog.ledgers.keeper.session import (
    KeeperSession,
    Trouble,
    changing,
    check,
    children,
    create,
    first_failure,
    read,
    set_data,
    sync,
)
from catalog.ledgers.memory import milliseconds, running_exports
from catalog.network import some
from tableformat.history import MOST_EVENTS, Event, counted
from tableformat.ledger import Lease, LeaseHeld, Owner, Row, Stale

__all__ = ["KeeperLedger"]

_ANYBODY: Final = "world"
_CHANGES: Final = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN


class KeeperLedger:
    """A ledger in Keeper, made by the first write. Safe from threads, processes and hosts."""

    def __init__(
        self,
        address: KeeperAddress,
        *,
        clock: Callable[[], int] = milliseconds,
        most_events: int = MOST_EVENTS,
    ) -> None:
        """Keep where it is; the first access connects.

        Args:
            address: of the servers; bounds in time what is done.
            clock: milliseconds since 1970; tests move it.
            most_events: how many of the latest are kept.
        """
        self._address, self._clock, self._most_events = address, clock, most_events
        self._session = KeeperSession(address)
        self._lock = threading.Lock()
        self._opened: _Opened | None = None

    @property
    def identity(self) -> str:
        """The ledger's identity; asking for it makes the ledger."""
        return self._session.within("open the identity", self._made).paths.identity

    @property
    def uri(self) -> str:
        """Where it is, without a secret."""
        return self._address.shown

    @property
    def requests(self) -> int:
        """How many requests were sent to Keeper."""
        return self._session.requests

    def is_made(self) -> bool:
        """Whether it is there."""
        return self._session.within("find the nodes", self._found) is not None

    def read(self, key: str) -> Row | None:
        """Return the latest row of a key hash."""
        (row,) = self.read_all((key,))
        return row

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        """Return the latest rows of key hashes; many requests are under way at a time."""

        def attempt() -> tuple[Row | None, ...]:
            found = self._found()
            return tuple(found.rows.read(keys)) if found else (None,) * len(keys)

        return self._session.within(_doing("read", keys), attempt) if keys else ()

    def rows(self) -> Iterator[Row]:
        """Return all rows, latest update first."""

        def attempt() -> list[Row]:
            found = self._found()
            rows = found.rows.read(found.rows.keys()) if found else []
            return sorted((r for r in rows if r), key=lambda r: (-r.updated, r.key))

        return iter(self._session.within("read the rows", attempt))

    def write(self, row: Row) -> Row | Stale:
        """Replace the row that has `row.version`."""
        (written,) = self.write_all((row,))
        return written

    def write_all(self, rows: tuple[Row, ...]) -> tuple[Row | Stale, ...]:
        """Replace each row that has its version; many requests are under way at a time."""
        if not rows:
            return ()
        doing = _doing("write", [row.key.hash for row in rows])
        made = self._session.within("make the nodes", self._made)
        return self._session.within(doing, made.rows.writing(rows))

    def remove(self, row: Row) -> Stale | None:
        """Remove the row that has `row.version`, with all its nodes."""
        doing = _doing("remove", [row.key.hash])
        found = self._session.within("find the nodes", self._found)
        return None if found is None else self._session.within(doing, found.rows.removing(row))

    def next_epoch(self, count: int = 1) -> int:
        """Return the next number of the counter, the first of `count`; one may be left out."""

        def attempt() -> int:
            paths = self._made().paths
            last, version = self._epoch(paths)
            data = sealed_members({"epoch": last + count})
            (answers,) = self._session.ask(
                changing(check(paths.mark), set_data(paths.epoch, data, version))
            )
            if first_failure(answers) is not None:
                raise Trouble("others draw epochs all the time", passes=True)
            return last + 1

        return self._session.within("draw an epoch", attempt)

    def highest_epoch(self) -> int:
        """Return the last number given."""

        def attempt() -> int:
            found = self._found()
            return self._epoch(found.paths)[0] if found else 0

        return self._session.within("read the epoch", attempt)

    def _epoch(self, paths: KeeperPaths) -> tuple[int, int]:
        (found,) = confirmed(self._session, paths, read(paths.epoch))
        if isinstance(found, NoNodeError):
            raise damaged(paths.epoch, "it is not there")
        epoch = member(members(found[0], paths.epoch), "epoch", int, paths.epoch)
        return epoch, int(found[1].version)

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number that any row of a destination knows."""

        def attempt() -> int:
            found = self._found()
            return found.rows.highest_landed(destination) if found else 0

        return self._session.within("read what has landed", attempt)

    def take_lease(
        self, key: str, owner: Owner, seconds: float, *, instead_of: Owner | None = None
    ) -> Lease | LeaseHeld:
        """Give the lease when it is free, expired, or held by `owner` or `instead_of`."""
        return self._take((key,), owner, seconds, instead_of)[0]

    def take_leases(
        self, keys: tuple[str, ...], owner: Owner, seconds: float
    ) -> tuple[Lease | LeaseHeld, ...]:
        """Give each lease that is free, expired, or held by `owner`."""
        return self._take(keys, owner, seconds, None)

    def _take(
        self, keys: tuple[str, ...], owner: Owner, seconds: float, instead_of: Owner | None
    ) -> tuple[Lease | LeaseHeld, ...]:
        leases = self._session.within("make the nodes", self._made).leases
        return self._session.within("take leases", leases.taking(keys, owner, seconds, instead_of))

    def renew(self, lease: Lease, seconds: float) -> Lease | LeaseHeld:
        """Lengthen a lease that its owner still has, or had when this process was taken for dead.

        In the second case it is taken again, unless somebody else has it by now.
        """
        leases = self._session.within("make the nodes", self._made).leases
        return self._session.within("renew a lease", leases.renewing(lease, seconds))

    def release(self, *leases: Lease) -> None:
        """Give back each lease that is still its owner's."""
        found = self._session.within("find the nodes", self._found)
        if found is not None and leases:
            self._session.within("release leases", found.leases.releasing(leases))

    def holder(self, key: str) -> LeaseHeld | None:
        """Return who has an unexpired lease of a key."""

        def attempt() -> LeaseHeld | None:
            found = self._found()
            return found.leases.held([key])[0] if found else None

        return self._session.within(f"read the lease of {key}", attempt)

    def note(self, events: tuple[Event, ...]) -> None:
        """Keep events, and add what they count."""
        if events:
            made = self._session.within("make the nodes", self._made)
            self._session.within("note events", made.past.noting(events))

    def events(self, since: int | None, most: int) -> tuple[Event, ...]:
        """Return the latest events, the last noted first."""

        def attempt() -> tuple[Event, ...]:
            found = self._found()
            return found.past.events(since, most) if found else ()

        return self._session.within("read the events", attempt)

    def counters(self) -> Mapping[str, int]:
        """Return what was counted, and how many exports run now."""

        def attempt() -> Mapping[str, int]:
            found = self._found()
            if found is None:
                return counted({}, 0)
            keys = found.leases.keys()
            leases = zip(keys, found.leases.held(keys), strict=True)
            held = {key: lease.owner for key, lease in leases if lease is not None}
            running = running_exports(held, found.rows.read(list(held)))
            return counted(found.past.totals(), running)

        return self._session.within("read the counters", attempt)

    def leave(self) -> None:
        """Wait from now on for as long as servers that are away are waited for, and once."""
        self._session.leave()

    def close(self) -> None:
        """End the session, and with it the leases that were not released."""
        self._session.close()

    def _found(self) -> _Opened | None:
        """Return the ledger, None when there is none."""
        with self._lock:
            if self._opened is not None:
                return self._opened
        root = ledger_root(self._address.chroot)
        identities = f"{root}/{LAYOUT}/identity"
        _, layouts, names = self._session.ask(sync(root), children(root), children(identities))
        if isinstance(layouts, NoNodeError):
            return None
        if layouts != [LAYOUT]:
            found = ", ".join(sorted(layouts)) or "none"
            raise Trouble(
                f"the node {root} has the layout {found}, this release reads {LAYOUT}",
                "Use the release that wrote it, or name another place for a new ledger",
            )
        if isinstance(names, NoNodeError) or len(names) != 1:
            raise damaged(identities, "it does not have the one node that names the ledger")
        if self._address.has_credentials:
            self._check_rights(root)
        return self._kept(KeeperPaths(self._address.chroot, names[0]))

    def _check_rights(self, root: str) -> None:
        """Refuse nodes that anybody may change, from somebody who logs in."""
        (answer,) = self._session.ask(lambda client: client.get_acls_async(root))
        rights = [] if isinstance(answer, NoNodeError) else answer[0]
        if any(one.id.scheme == _ANYBODY and one.perms & _CHANGES for one in rights):
            raise Trouble(
                f"anybody may change the node {root}: the ledger was made by somebody who did not "
                "log in",
                "Name another place for a new ledger, or let an administrator give its nodes to "
                "the user",
            )

    def _made(self) -> _Opened:
        """Return the ledger, made when there is none."""
        if (found := self._found()) is not None:
            return found
        paths = KeeperPaths(self._address.chroot, str(uuid.uuid4()))
        changes = [
            *(create(path, b"") for path in paths.folders),
            create(paths.mark, b""),
            create(paths.epoch, sealed_members({"epoch": 0})),
            create(paths.counters, sealed_members({"totals": {}})),
        ]
        (answers,) = self._session.ask(changing(*changes))
        failure = first_failure(answers)
        if failure is None:
            return self._kept(paths)
        if isinstance(failure[1], NoNodeError):
            self._make_above(ledger_root(self._address.chroot))
        raise Trouble("somebody else makes and removes them all the time", passes=True)

    def _make_above(self, path: str) -> None:
        """Make the node above one, and what is missing above that.

        Asked from below: what is there need not let us look at it, or make nodes beside it.
        """
        above = path.rpartition("/")[0]
        (answers,) = self._session.ask(changing(create(above, b"")))
        failure = first_failure(answers)
        if failure is not None and isinstance(failure[1], NoNodeError):
            self._make_above(above)
            self._session.ask(changing(create(above, b"")))

    def _kept(self, paths: KeeperPaths) -> _Opened:
        with self._lock:
            if self._opened is None:
                self._opened = _Opened(self._session, paths, self._clock, self._most_events)
            return self._opened


def _doing(verb: str, keys: Sequence[str]) -> str:
    return f"{verb} the row{'s' * (len(keys) > 1)} {some(keys)}"


class _Opened:
    """The parts of a ledger that is there."""

    def __init__(
        self,
        session: KeeperSession,
        paths: KeeperPaths,
        clock: Callable[[], int],
        most_events: int,
    ) -> None:
        self.paths = paths
        self.rows = KeeperRows(session, paths)
        self.leases = KeeperLeases(session, paths, clock)
        self.past = KeeperPast(session, paths, most_events)
