"""Implements the ledger in ZooKeeper or ClickHouse Keeper, for any number of hosts.

- Reading never creates a ledger. The first write, or a request for its identity, creates it with
  the missing nodes above it.
- Every read follows a `sync`. Every change of a row, an epoch or the counters checks in the same
  transaction that the ledger is still the one that was opened.
- An operation ends within the address's time-out, or with a LedgerError. After an error of a write
  it is unknown whether the write was made, and writing again is safe.

Layout: docs/spec/keeper-ledger.md.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kazoo.exceptions import NoNodeError
from kazoo.security import Permissions

from catalog.ledgers.keeper.address import LAYOUT, KeeperAddress, KeeperPaths, ledger_root
from catalog.ledgers.keeper.leases import KeeperHistory, KeeperLeases
from catalog.ledgers.keeper.rows import (
    KeeperRows,
    damaged,
    member,
    members,
    sealed_members,
    send_confirmed,
)
from catalog.ledgers.keeper.session import (
    AttemptError,
    KeeperSession,
    check,
    children,
    create,
    first_failure,
    read,
    set_data,
    sync,
    transaction,
)
from catalog.ledgers.memory import milliseconds, running_exports, selected
from catalog.network import some
from tableformat.history import MOST_EVENTS, Event, counted
from tableformat.ledger import Lease, LeaseHeld, Owner, Row, Stale, State

__all__ = ["KeeperLedger"]

_EVERY_CLIENT: Final = "world"
_CHANGES: Final = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN


class KeeperLedger:
    """A ledger in Keeper, created by the first write. Safe from threads, processes and hosts."""

    def __init__(
        self,
        address: KeeperAddress,
        *,
        clock: Callable[[], int] = milliseconds,
        most_events: int = MOST_EVENTS,
    ) -> None:
        """Keep the address; the first access connects.

        Args:
            address: the servers, and the time limit of an operation.
            clock: milliseconds since 1970; tests move it.
            most_events: how many of the latest events are kept.
        """
        self._address, self._clock, self._most_events = address, clock, most_events
        self._session = KeeperSession(address)
        self._lock = threading.Lock()
        self._opened: _OpenLedger | None = None

    @property
    def identity(self) -> str:
        """The ledger's identity; reading it creates the ledger."""
        return self._session.within("open the identity", self._open_or_create).paths.identity

    @property
    def uri(self) -> str:
        """The ledger's address without secrets."""
        return self._address.shown

    @property
    def requests(self) -> int:
        """How many requests were sent to Keeper."""
        return self._session.requests

    def is_made(self) -> bool:
        """Whether the ledger exists."""
        return self._session.within("find the nodes", self._open_existing) is not None

    def read(self, key: str) -> Row | None:
        """Return the latest row of a key hash."""
        (row,) = self.read_all((key,))
        return row

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        """Return the latest rows of key hashes; many requests are in flight at a time."""

        def attempt() -> tuple[Row | None, ...]:
            found = self._open_existing()
            return tuple(found.rows.read(keys)) if found else (None,) * len(keys)

        return self._session.within(_row_action("read", keys), attempt) if keys else ()

    def rows(
        self, *, state: State | None = None, query_id: str = "", not_of: str = ""
    ) -> Iterator[Row]:
        """Return all rows, or the selected ones, latest update first. It reads all of them."""

        def attempt() -> list[Row]:
            found = self._open_existing()
            rows = found.rows.read(found.rows.keys()) if found else []
            return sorted((r for r in rows if r), key=lambda r: (-r.updated, r.key))

        rows = self._session.within("read the rows", attempt)
        return selected(rows, state=state, query_id=query_id, not_of=not_of)

    def write(self, row: Row) -> Row | Stale:
        """Replace the row that has `row.version`."""
        (written,) = self.write_all((row,))
        return written

    def write_all(self, rows: tuple[Row, ...]) -> tuple[Row | Stale, ...]:
        """Replace each row that has its version; many requests are in flight at a time."""
        if not rows:
            return ()
        action = _row_action("write", [row.key.hash for row in rows])
        made = self._session.within("make the nodes", self._open_or_create)
        return self._session.within(action, made.rows.write_attempt(rows))

    def remove(self, row: Row) -> Stale | None:
        """Remove the row that has `row.version`, with all its nodes."""
        action = _row_action("remove", [row.key.hash])
        found = self._session.within("find the nodes", self._open_existing)
        return (
            None if found is None else self._session.within(action, found.rows.remove_attempt(row))
        )

    def next_epoch(self, count: int = 1) -> int:
        """Return the next number of the counter, the first of `count`; numbers may be skipped."""

        def attempt() -> int:
            paths = self._open_or_create().paths
            last, version = self._epoch(paths)
            data = sealed_members({"epoch": last + count})
            (responses,) = self._session.send(
                transaction(check(paths.mark), set_data(paths.epoch, data, version))
            )
            if first_failure(responses) is not None:
                raise AttemptError("other processes keep drawing epochs", retryable=True)
            return last + 1

        return self._session.within("draw an epoch", attempt)

    def highest_epoch(self) -> int:
        """Return the last number drawn."""

        def attempt() -> int:
            found = self._open_existing()
            return self._epoch(found.paths)[0] if found else 0

        return self._session.within("read the epoch", attempt)

    def _epoch(self, paths: KeeperPaths) -> tuple[int, int]:
        (found,) = send_confirmed(self._session, paths, read(paths.epoch))
        if isinstance(found, NoNodeError):
            raise damaged(paths.epoch, "it is not there")
        epoch = member(members(found[0], paths.epoch), "epoch", int, paths.epoch)
        return epoch, int(found[1].version)

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number in the rows of a destination."""

        def attempt() -> int:
            found = self._open_existing()
            return found.rows.highest_landed(destination) if found else 0

        return self._session.within("read what has landed", attempt)

    def take_lease(
        self, key: str, owner: Owner, seconds: float, *, instead_of: Owner | None = None
    ) -> Lease | LeaseHeld:
        """Take a lease that is free, expired, or held by `owner` or `instead_of`."""
        return self._take((key,), owner, seconds, instead_of)[0]

    def take_leases(
        self, keys: tuple[str, ...], owner: Owner, seconds: float
    ) -> tuple[Lease | LeaseHeld, ...]:
        """Take each lease that is free, expired, or held by `owner`."""
        return self._take(keys, owner, seconds, None)

    def _take(
        self, keys: tuple[str, ...], owner: Owner, seconds: float, instead_of: Owner | None
    ) -> tuple[Lease | LeaseHeld, ...]:
        leases = self._session.within("make the nodes", self._open_or_create).leases
        return self._session.within(
            "take leases", leases.take_attempt(keys, owner, seconds, instead_of)
        )

    def renew(self, lease: Lease, seconds: float) -> Lease | LeaseHeld:
        """Extend a lease that its owner still holds, or lost because its session expired.

        In the second case the lease is taken again, unless another owner holds it.
        """
        leases = self._session.within("make the nodes", self._open_or_create).leases
        return self._session.within("renew a lease", leases.renew_attempt(lease, seconds))

    def release(self, *leases: Lease) -> None:
        """Release each lease that its owner still holds."""
        found = self._session.within("find the nodes", self._open_existing)
        if found is not None and leases:
            self._session.within("release leases", found.leases.release_attempt(leases))

    def holder(self, key: str) -> LeaseHeld | None:
        """Return the unexpired lease of a key."""

        def attempt() -> LeaseHeld | None:
            found = self._open_existing()
            return found.leases.held([key])[0] if found else None

        return self._session.within(f"read the lease of {key}", attempt)

    def note(self, events: tuple[Event, ...]) -> None:
        """Store events and add to their counters."""
        if events:
            made = self._session.within("make the nodes", self._open_or_create)
            self._session.within("note events", made.history.note_attempt(events))

    def events(self, since: int | None, most: int) -> tuple[Event, ...]:
        """Return the latest events, newest first."""

        def attempt() -> tuple[Event, ...]:
            found = self._open_existing()
            return found.history.events(since, most) if found else ()

        return self._session.within("read the events", attempt)

    def counters(self) -> Mapping[str, int]:
        """Return the counters and the number of running exports."""

        def attempt() -> Mapping[str, int]:
            found = self._open_existing()
            if found is None:
                return counted({}, 0)
            keys = found.leases.keys()
            leases = zip(keys, found.leases.held(keys), strict=True)
            held = {key: lease.owner for key, lease in leases if lease is not None}
            running = running_exports(held, found.rows.read(list(held)))
            return counted(found.history.totals(), running)

        return self._session.within("read the counters", attempt)

    def leave(self) -> None:
        """Wait for at most two seconds without a response from now on (`KeeperSession.leave`)."""
        self._session.leave()

    def close(self) -> None:
        """End the session, which frees the leases that were not released."""
        self._session.close()

    def _open_existing(self) -> _OpenLedger | None:
        """Return the ledger, None if it does not exist."""
        with self._lock:
            if self._opened is not None:
                return self._opened
        root = ledger_root(self._address.chroot)
        identities = f"{root}/{LAYOUT}/identity"
        _, layouts, names = self._session.send(sync(root), children(root), children(identities))
        if isinstance(layouts, NoNodeError):
            return None
        if layouts != [LAYOUT]:
            found = ", ".join(sorted(layouts)) or "none"
            raise AttemptError(
                f"the node {root} has the layout {found}, this release reads {LAYOUT}",
                "Use the release that wrote it, or name another place for a new ledger",
            )
        if isinstance(names, NoNodeError) or len(names) != 1:
            raise damaged(identities, "it does not have the one node that names the ledger")
        if self._address.has_credentials:
            self._check_rights(root)
        return self._remember(KeeperPaths(self._address.chroot, names[0]))

    def _check_rights(self, root: str) -> None:
        """Refuse nodes that every client may change, if the address has credentials.

        Raises:
            AttemptError: the ledger was created by a client that did not log in.
        """
        (response,) = self._session.send(lambda client: client.get_acls_async(root))
        rights = [] if isinstance(response, NoNodeError) else response[0]
        if any(one.id.scheme == _EVERY_CLIENT and one.perms & _CHANGES for one in rights):
            raise AttemptError(
                f"every client may change the node {root}, because the client that created the "
                "ledger did not log in",
                "Name another place for a new ledger, or let an administrator restrict its nodes "
                "to the user",
            )

    def _open_or_create(self) -> _OpenLedger:
        """Return the ledger, created if it does not exist."""
        if (found := self._open_existing()) is not None:
            return found
        paths = KeeperPaths(self._address.chroot, str(uuid.uuid4()))
        changes = [
            *(create(path, b"") for path in paths.folders),
            create(paths.mark, b""),
            create(paths.epoch, sealed_members({"epoch": 0})),
            create(paths.counters, sealed_members({"totals": {}})),
        ]
        (responses,) = self._session.send(transaction(*changes))
        failure = first_failure(responses)
        if failure is None:
            return self._remember(paths)
        if isinstance(failure[1], NoNodeError):
            self._create_parents(ledger_root(self._address.chroot))
        raise AttemptError("other processes keep creating and removing them", retryable=True)

    def _create_parents(self, path: str) -> None:
        """Create a node's parent, and the missing nodes above it.

        It starts below: existing nodes above may forbid this user to look at them or to add nodes.
        """
        above = path.rpartition("/")[0]
        (responses,) = self._session.send(transaction(create(above, b"")))
        failure = first_failure(responses)
        if failure is not None and isinstance(failure[1], NoNodeError):
            self._create_parents(above)
            self._session.send(transaction(create(above, b"")))

    def _remember(self, paths: KeeperPaths) -> _OpenLedger:
        with self._lock:
            if self._opened is None:
                self._opened = _OpenLedger(self._session, paths, self._clock, self._most_events)
            return self._opened


def _row_action(verb: str, keys: Sequence[str]) -> str:
    return f"{verb} the row{'s' * (len(keys) > 1)} {some(keys)}"


class _OpenLedger:
    """The parts of a ledger that exists."""

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
        self.history = KeeperHistory(session, paths, most_events)
