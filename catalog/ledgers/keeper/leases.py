"""Stores the leases, the event history and the counters of a ledger in Keeper.

- A lease is an ephemeral node of the session that took or renewed it last, so the death of a
  process frees it with its session. It also carries its end time, as in every ledger.
- The history is a sequence of event blocks, numbered by Keeper, and one node of counters.
- The counters and the last block of a write change together, by compare-and-set. A write whose
  response was lost is therefore not counted twice.
- More events than the limit may be stored for a while. Readers skip the surplus, and a writer
  removes its blocks now and then.

Layout: docs/spec/keeper-ledger.md.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter as Totals
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from catalog.ledgers.keeper.address import BlockName, KeeperPaths
from catalog.ledgers.keeper.rows import (
    damaged,
    member,
    members,
    other_ledger,
    sealed_members,
    send_confirmed,
)
from catalog.ledgers.keeper.session import (
    AttemptError,
    Change,
    KeeperSession,
    Request,
    check,
    children,
    create,
    delete,
    first_failure,
    read,
    set_data,
    transaction,
)
from tableformat.errors import LedgerError
from tableformat.history import Event
from tableformat.ledger import Lease, LeaseHeld, Owner

__all__ = ["KeeperHistory", "KeeperLeases"]


@dataclass(frozen=True, slots=True)
class _LeaseNode:
    """A lease as stored; it ends with its `session`."""

    held: LeaseHeld
    version: int
    session: int


class KeeperLeases:
    """Takes, renews and releases the leases of one ledger. Methods raise `AttemptError`."""

    def __init__(
        self, session: KeeperSession, paths: KeeperPaths, clock: Callable[[], int]
    ) -> None:
        """Keep the session, the ledger's nodes and a clock in milliseconds since 1970."""
        self._session, self._paths, self._clock = session, paths, clock
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, Owner], int] = {}

    def take_attempt(
        self, keys: Sequence[str], owner: Owner, seconds: float, instead_of: Owner | None
    ) -> Callable[[], tuple[Lease | LeaseHeld, ...]]:
        """Return an attempt that takes leases; it may run again after a lost response."""
        results: dict[str, Lease | LeaseHeld] = {}

        def attempt() -> tuple[Lease | LeaseHeld, ...]:
            now = self._clock()
            wanted = LeaseHeld(owner, now, now + int(seconds * 1000))
            while waiting := [key for key in keys if key not in results]:
                found = self._nodes(waiting)
                free: list[tuple[str, Request]] = []
                for key, node in zip(waiting, found, strict=True):
                    held = node.held if node else None
                    if held and held.until > now and held.owner not in (owner, instead_of):
                        results[key] = held
                    else:
                        free.append((key, self._lease_change(key, wanted, node)))
                number = self._session.number
                for key in self._apply(free):
                    results[key] = self._remember(Lease(key, owner, wanted.until), number)
            return tuple(results[key] for key in keys)

        return attempt

    def renew_attempt(self, lease: Lease, seconds: float) -> Callable[[], Lease | LeaseHeld]:
        """Return an attempt that extends a lease; it may run again after a lost response.

        If the lease ended with its session because this process was suspended, it is taken again.
        """

        def attempt() -> Lease | LeaseHeld:
            now = self._clock()
            until = now + int(seconds * 1000)
            while True:
                (node,) = self._nodes([lease.key])
                if node is None and not self._was_lost_with_session(lease):
                    return LeaseHeld(lease.owner, now, now)
                if node is not None and node.held.owner != lease.owner:
                    return node.held
                since = node.held.since if node else now
                put = self._lease_change(lease.key, LeaseHeld(lease.owner, since, until), node)
                number = self._session.number
                if self._apply([(lease.key, put)]):
                    return self._remember(Lease(lease.key, lease.owner, until), number)

        return attempt

    def release_attempt(self, leases: Sequence[Lease]) -> Callable[[], None]:
        """Return an attempt that releases leases; it may run again after a lost response."""
        left = list(leases)

        def attempt() -> None:
            while left:
                # `left` may name another owner's lease of the same key, which has lost it.
                held_by_us: dict[str, tuple[Lease, Request]] = {}
                nodes = self._nodes([lease.key for lease in left])
                for lease, node in zip(left, nodes, strict=True):
                    if node is not None and node.held.owner == lease.owner:
                        removal = transaction(delete(self._paths.lease(lease.key), node.version))
                        held_by_us[lease.key] = lease, removal
                    else:
                        self._forget(lease)
                made = self._apply([(key, removal) for key, (_, removal) in held_by_us.items()])
                for key in made:
                    self._forget(held_by_us[key][0])
                left[:] = [lease for key, (lease, _) in held_by_us.items() if key not in made]

        return attempt

    def held(self, keys: Sequence[str]) -> list[LeaseHeld | None]:
        """Return the unexpired lease of each key, None where there is none."""
        now = self._clock()
        return [node.held if node and node.held.until > now else None for node in self._nodes(keys)]

    def keys(self) -> list[str]:
        """Return the key hashes of all leases, expired ones included."""
        (names,) = send_confirmed(self._session, self._paths, children(self._paths.leases))
        return [] if isinstance(names, NoNodeError) else [str(name) for name in names]

    def _nodes(self, keys: Sequence[str]) -> list[_LeaseNode | None]:
        paths = [self._paths.lease(key) for key in keys]
        responses = send_confirmed(self._session, self._paths, *(read(path) for path in paths))
        return [
            _lease_node(response, path) for response, path in zip(responses, paths, strict=True)
        ]

    def _lease_change(self, key: str, held: LeaseHeld, node: _LeaseNode | None) -> Request:
        """Return the request that moves a lease to this session, if its node is still as read."""
        path, owner = self._paths.lease(key), held.owner
        data = sealed_members(
            {
                "host": owner.host,
                "pid": owner.pid,
                "start": owner.start,
                "since": held.since,
                "until": held.until,
            }
        )
        if node is not None and node.session == self._session.number:
            return transaction(set_data(path, data, node.version))
        before: tuple[Change, ...] = () if node is None else (delete(path, node.version),)
        return transaction(*before, create(path, data, ephemeral=True))

    def _apply(self, puts: Sequence[tuple[str, Request]]) -> list[str]:
        """Send changes; return the keys of those that were made."""
        responses = self._session.send(*(request for _, request in puts))
        applied, is_gone = [], False
        for (key, _), response in zip(puts, responses, strict=True):
            failure = first_failure(response)
            if failure is None:
                applied.append(key)
            elif isinstance(failure[1], NoNodeError):
                is_gone = True
        if is_gone:
            self._create_folder()
        return applied

    def _create_folder(self) -> None:
        """Create the parent node of the leases again after it was removed with them."""
        folder = create(self._paths.leases, b"")
        (responses,) = self._session.send(transaction(check(self._paths.mark), folder))
        failure = first_failure(responses)
        if failure is not None and failure[0] == 0:
            raise other_ledger()

    def _remember(self, lease: Lease, number: int) -> Lease:
        with self._lock:
            self._sessions[lease.key, lease.owner] = number
        return lease

    def _forget(self, lease: Lease) -> None:
        with self._lock:
            self._sessions.pop((lease.key, lease.owner), None)

    def _was_lost_with_session(self, lease: Lease) -> bool:
        """Whether this ledger held a missing lease in a session that has ended."""
        with self._lock:
            session = self._sessions.get((lease.key, lease.owner))
        return session not in (None, self._session.number)


def _lease_node(response: Any, path: str) -> _LeaseNode | None:
    if isinstance(response, NoNodeError):
        return None
    stored, description = response
    found = members(stored, path)
    host, start = (member(found, name, str, path) for name in ("host", "start"))
    pid, since, until = (member(found, name, int, path) for name in ("pid", "since", "until"))
    held = LeaseHeld(Owner(host, pid, start), since, until)
    return _LeaseNode(held, int(description.version), int(description.ephemeralOwner))


_BLOCK_CHARACTERS: Final = 128 * 1024
"""Characters of a block of events; a longer event gets its own block."""
_MOST_BLOCKS_BETWEEN_SWEEPS: Final = 64
"""A writer looks for surplus blocks after this many blocks."""
_BLOCKS_IN_FLIGHT: Final = 16


class KeeperHistory:
    """Stores the events and counters of one ledger. Methods raise `AttemptError`."""

    def __init__(self, session: KeeperSession, paths: KeeperPaths, most_events: int) -> None:
        """Keep the session, the ledger's nodes and the number of events to keep."""
        self._session, self._paths, self._most = session, paths, most_events

    def note_attempt(self, events: Sequence[Event]) -> Callable[[], None]:
        """Return an attempt that stores events; it may run again after a lost response."""
        counted = Totals[str]()
        for event in events:
            if event.counter is not None:
                counted[event.counter.value] += event.parts
        blocks = _blocks([event.to_json() for event in events[-self._most :]])
        write = uuid.uuid4().hex
        names = [BlockName(len(block), write, n) for n, block in enumerate(blocks)]
        creations = [
            create(self._paths.block(name), sealed_members({"events": block}), numbered=True)
            for name, block in zip(names, blocks, strict=True)
        ]
        before: list[int] = []

        def attempt() -> None:
            # A repeated attempt may find that some blocks are stored.
            stored = {name.block for name in self._names() if name.write == write} if before else ()
            before.append(1)
            if names[-1].block in stored:
                return
            left = [creations[n.block] for n in names[:-1] if n.block not in stored]
            self._session.send(*(transaction(one) for one in left))
            path = self._paths.counters
            (found,) = send_confirmed(self._session, self._paths, read(path))
            totals, version = _totals(found, path)
            # Not `Counter + Counter`: it drops counters that are 0.
            data = sealed_members({"totals": {**totals, **_sum(totals, counted)}})
            last = self._session.send(
                transaction(check(self._paths.mark), creations[-1], set_data(path, data, version))
            )[0]
            if first_failure(last) is not None:
                raise AttemptError("other processes keep writing events", retryable=True)
            self._sweep_after(BlockName.parse(str(last[1]).rpartition("/")[2]).number, len(names))

        return attempt

    def events(self, since: int | None, most: int) -> tuple[Event, ...]:
        """Return the latest events, newest first."""
        found: list[Event] = []
        left = self._most
        names = self._names()
        for begin in range(0, len(names), _BLOCKS_IN_FLIGHT):
            if left <= 0 or len(found) >= most:
                break
            paths = [self._paths.block(name) for name in names[begin : begin + _BLOCKS_IN_FLIGHT]]
            responses = send_confirmed(self._session, self._paths, *map(read, paths))
            for path, response in zip(paths, responses, strict=True):
                if not isinstance(response, NoNodeError):
                    kept = list(reversed(_events(response[0], path)))[: max(left, 0)]
                    left -= len(kept)
                    found += [event for event in kept if since is None or event.time >= since]
        return tuple(found[:most])

    def totals(self) -> dict[str, int]:
        """Return the counters."""
        path = self._paths.counters
        (found,) = send_confirmed(self._session, self._paths, read(path))
        return _totals(found, path)[0]

    def _names(self) -> list[BlockName]:
        """Return the names of the blocks, newest first."""
        (names,) = send_confirmed(self._session, self._paths, children(self._paths.events))
        if isinstance(names, NoNodeError):
            raise damaged(self._paths.events, "it is not there")
        return sorted(map(self._name, names), key=lambda n: n.number, reverse=True)

    def _name(self, text: str) -> BlockName:
        try:
            return BlockName.parse(text)
        except ValueError as error:
            raise AttemptError(
                f"the node {self._paths.events}/{text} is no block of events", "Remove it"
            ) from error

    def _sweep_after(self, number: int, blocks: int) -> None:
        """Remove blocks beyond the limit once every few blocks."""
        every = min(_MOST_BLOCKS_BETWEEN_SWEEPS, self._most)
        if number // every == (number - blocks) // every:
            return
        try:
            kept, removals = 0, []
            for name in self._names():
                if kept >= self._most:
                    removals.append(transaction(delete(self._paths.block(name))))
                kept += name.events
            self._session.send(*removals)
        except AttemptError:
            # The events are stored; the next sweep removes the rest.
            return


def _blocks(texts: Sequence[str]) -> list[list[str]]:
    blocks: list[list[str]] = []
    size = _BLOCK_CHARACTERS
    for text in texts:
        size += len(text)
        if size > _BLOCK_CHARACTERS:
            blocks.append([])
            size = len(text)
        blocks[-1].append(text)
    return blocks


def _events(stored: bytes, path: str) -> list[Event]:
    texts = member(members(stored, path), "events", list, path)
    try:
        return [Event.from_json(text) for text in texts]
    except LedgerError as error:
        raise damaged(path, error.message) from error


def _totals(response: Any, path: str) -> tuple[dict[str, int], int]:
    """Return the counters and their node's version."""
    if isinstance(response, NoNodeError):
        raise damaged(path, "it is not there")
    totals = member(members(response[0], path), "totals", dict, path)
    return {str(name): int(count) for name, count in totals.items()}, int(response[1].version)


def _sum(totals: dict[str, int], counted: Totals[str]) -> dict[str, int]:
    return {name: totals.get(name, 0) + count for name, count in counted.items()}
