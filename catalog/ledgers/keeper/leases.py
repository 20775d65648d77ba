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

from catalog.ledgers.keeper.paths import BlockName, KeeperPaths
from catalog.ledgers.keeper.rows import (
    confirmed,
    damaged,
    member,
    members,
    other_ledger,
    sealed_members,
)
from catalog.ledgers.keeper.session import (
    Change,
    KeeperSession,
    Request,
    Trouble,
    changing,
    check,
    children,
    create,
    delete,
    first_failure,
    read,
    set_data,
)
from tableformat.errors import LedgerError
from tableformat.history import Event
from tableformat.ledger import Lease, LeaseHeld, Owner

__all__ = ["KeeperLeases", "KeeperPast"]


@dataclass(frozen=True, slots=True)
class _Node:
    """A lease as it is stored; `session` is the one with which it goes."""

    held: LeaseHeld
    version: int
    session: int


class KeeperLeases:
    """Gives leases of one ledger. What it raises is `Trouble`."""

    def __init__(
        self, session: KeeperSession, paths: KeeperPaths, clock: Callable[[], int]
    ) -> None:
        """Keep how to ask, where, and the clock, in milliseconds since 1970."""
        self._session, self._paths, self._clock = session, paths, clock
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, Owner], int] = {}

    def taking(
        self, keys: Sequence[str], owner: Owner, seconds: float, instead_of: Owner | None
    ) -> Callable[[], tuple[Lease | LeaseHeld, ...]]:
        """Return what takes leases, and may be done again when an answer was lost."""
        taken: dict[str, Lease | LeaseHeld] = {}

        def attempt() -> tuple[Lease | LeaseHeld, ...]:
            now = self._clock()
            wanted = LeaseHeld(owner, now, now + int(seconds * 1000))
            while waiting := [key for key in keys if key not in taken]:
                found = self._nodes(waiting)
                free: list[tuple[str, Request]] = []
                for key, node in zip(waiting, found, strict=True):
                    held = node.held if node else None
                    if held and held.until > now and held.owner not in (owner, instead_of):
                        taken[key] = held
                    else:
                        free.append((key, self._put(key, wanted, node)))
                number = self._session.number
                for key in self._made(free):
                    taken[key] = self._noted(Lease(key, owner, wanted.until), number)
            return tuple(taken[key] for key in keys)

        return attempt

    def renewing(self, lease: Lease, seconds: float) -> Callable[[], Lease | LeaseHeld]:
        """Return what lengthens a lease, and may be done again when an answer was lost.

        One that went with its session, because this process stood still, is taken again.
        """

        def attempt() -> Lease | LeaseHeld:
            now = self._clock()
            until = now + int(seconds * 1000)
            while True:
                (node,) = self._nodes([lease.key])
                if node is None and not self._is_lost(lease):
                    return LeaseHeld(lease.owner, now, now)
                if node is not None and node.held.owner != lease.owner:
                    return node.held
                since = node.held.since if node else now
                put = self._put(lease.key, LeaseHeld(lease.owner, since, until), node)
                number = self._session.number
                if self._made([(lease.key, put)]):
                    return self._noted(Lease(lease.key, lease.owner, until), number)

        return attempt

    def releasing(self, leases: Sequence[Lease]) -> Callable[[], None]:
        """Return what gives leases back, and may be done again when an answer was lost."""
        left = list(leases)

        def attempt() -> None:
            while left:
                # Of one key somebody else's may be there, too: it is not theirs any more.
                ours: dict[str, tuple[Lease, Request]] = {}
                nodes = self._nodes([lease.key for lease in left])
                for lease, node in zip(left, nodes, strict=True):
                    if node is not None and node.held.owner == lease.owner:
                        gone = changing(delete(self._paths.lease(lease.key), node.version))
                        ours[lease.key] = lease, gone
                    else:
                        self._forget(lease)
                made = self._made([(key, gone) for key, (_, gone) in ours.items()])
                for key in made:
                    self._forget(ours[key][0])
                left[:] = [lease for key, (lease, _) in ours.items() if key not in made]

        return attempt

    def held(self, keys: Sequence[str]) -> list[LeaseHeld | None]:
        """Return who has an unexpired lease of some keys."""
        now = self._clock()
        return [node.held if node and node.held.until > now else None for node in self._nodes(keys)]

    def keys(self) -> list[str]:
        """Return the key hashes of all leases, also of those whose time is over."""
        (names,) = confirmed(self._session, self._paths, children(self._paths.leases))
        return [] if isinstance(names, NoNodeError) else [str(name) for name in names]

    def _nodes(self, keys: Sequence[str]) -> list[_Node | None]:
        paths = [self._paths.lease(key) for key in keys]
        answers = confirmed(self._session, self._paths, *(read(path) for path in paths))
        return [_node(answer, path) for answer, path in zip(answers, paths, strict=True)]

    def _put(self, key: str, held: LeaseHeld, node: _Node | None) -> Request:
        """Return what makes a lease this session's, if it still is what was read."""
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
            return changing(set_data(path, data, node.version))
        before: tuple[Change, ...] = () if node is None else (delete(path, node.version),)
        return changing(*before, create(path, data, ephemeral=True))

    def _made(self, puts: Sequence[tuple[str, Request]]) -> list[str]:
        """Return the keys of those changes that nothing was in the way of."""
        answers = self._session.ask(*(request for _, request in puts))
        made, is_gone = [], False
        for (key, _), answer in zip(puts, answers, strict=True):
            failure = first_failure(answer)
            if failure is None:
                made.append(key)
            elif isinstance(failure[1], NoNodeError):
                is_gone = True
        if is_gone:
            self._make_folder()
        return made

    def _make_folder(self) -> None:
        """Make the parent of the leases again, which somebody may have removed with them."""
        folder = create(self._paths.leases, b"")
        (answers,) = self._session.ask(changing(check(self._paths.mark), folder))
        failure = first_failure(answers)
        if failure is not None and failure[0] == 0:
            raise other_ledger()

    def _noted(self, lease: Lease, number: int) -> Lease:
        with self._lock:
            self._sessions[lease.key, lease.owner] = number
        return lease

    def _forget(self, lease: Lease) -> None:
        with self._lock:
            self._sessions.pop((lease.key, lease.owner), None)

    def _is_lost(self, lease: Lease) -> bool:
        """Whether a lease that is not there was this ledger's, in a session that is over."""
        with self._lock:
            session = self._sessions.get((lease.key, lease.owner))
        return session not in (None, self._session.number)


def _node(answer: Any, path: str) -> _Node | None:
    if isinstance(answer, NoNodeError):
        return None
    stored, description = answer
    found = members(stored, path)
    host, start = (member(found, name, str, path) for name in ("host", "start"))
    pid, since, until = (member(found, name, int, path) for name in ("pid", "since", "until"))
    held = LeaseHeld(Owner(host, pid, start), since, until)
    return _Node(held, int(description.version), int(description.ephemeralOwner))


_BLOCK: Final = 128 * 1024
"""Characters of a block of events; one that is longer has a block of its own."""
_MOST_BETWEEN: Final = 64
"""After so many blocks somebody looks for those that are not kept."""
_AT_ONCE: Final = 16


class KeeperPast:
    """Keeps events and counters of one ledger. What it raises is `Trouble`."""

    def __init__(self, session: KeeperSession, paths: KeeperPaths, most_events: int) -> None:
        """Keep how to ask, where, and how many of the latest events are kept."""
        self._session, self._paths, self._most = session, paths, most_events

    def noting(self, events: Sequence[Event]) -> Callable[[], None]:
        """Return what keeps events, and may be done again when an answer was lost."""
        counted = Totals[str]()
        for event in events:
            if event.counter is not None:
                counted[event.counter.value] += event.parts
        blocks = _blocks([event.to_json() for event in events[-self._most :]])
        write = uuid.uuid4().hex
        names = [BlockName(len(block), write, n) for n, block in enumerate(blocks)]
        made = [
            create(self._paths.block(name), sealed_members({"events": block}), numbered=True)
            for name, block in zip(names, blocks, strict=True)
        ]
        before: list[int] = []

        def attempt() -> None:
            # Asked for again, some of it may be done.
            there = {name.block for name in self._names() if name.write == write} if before else ()
            before.append(1)
            if names[-1].block in there:
                return
            left = [made[n.block] for n in names[:-1] if n.block not in there]
            self._session.ask(*(changing(one) for one in left))
            path = self._paths.counters
            (found,) = confirmed(self._session, self._paths, read(path))
            totals, version = _totals(found, path)
            # Not `+`: it drops what counted nothing, of which nobody would ask.
            data = sealed_members({"totals": {**totals, **_sum(totals, counted)}})
            last = self._session.ask(
                changing(check(self._paths.mark), made[-1], set_data(path, data, version))
            )[0]
            if first_failure(last) is not None:
                raise Trouble("others note events all the time", passes=True)
            self._sweep_after(BlockName.parse(str(last[1]).rpartition("/")[2]).number, len(names))

        return attempt

    def events(self, since: int | None, most: int) -> tuple[Event, ...]:
        """Return the latest events, the last noted first."""
        found: list[Event] = []
        left = self._most
        names = self._names()
        for begin in range(0, len(names), _AT_ONCE):
            if left <= 0 or len(found) >= most:
                break
            paths = [self._paths.block(name) for name in names[begin : begin + _AT_ONCE]]
            answers = confirmed(self._session, self._paths, *map(read, paths))
            for path, answer in zip(paths, answers, strict=True):
                if not isinstance(answer, NoNodeError):
                    kept = list(reversed(_events(answer[0], path)))[: max(left, 0)]
                    left -= len(kept)
                    found += [event for event in kept if since is None or event.time >= since]
        return tuple(found[:most])

    def totals(self) -> dict[str, int]:
        """Return what was counted."""
        path = self._paths.counters
        (found,) = confirmed(self._session, self._paths, read(path))
        return _totals(found, path)[0]

    def _names(self) -> list[BlockName]:
        """Return the blocks, the last one first."""
        (names,) = confirmed(self._session, self._paths, children(self._paths.events))
        if isinstance(names, NoNodeError):
            raise damaged(self._paths.events, "it is not there")
        return sorted(map(self._name, names), key=lambda n: n.number, reverse=True)

    def _name(self, text: str) -> BlockName:
        try:
            return BlockName.parse(text)
        except ValueError as error:
            raise Trouble(
                f"the node {self._paths.events}/{text} is no block of events", "Remove it"
            ) from error

    def _sweep_after(self, number: int, blocks: int) -> None:
        """Remove blocks of which no event is kept, once in a while."""
        every = min(_MOST_BETWEEN, self._most)
        if number // every == (number - blocks) // every:
            return
        try:
            kept, gone = 0, []
            for name in self._names():
                if kept >= self._most:
                    gone.append(changing(delete(self._paths.block(name))))
                kept += name.events
            self._session.ask(*gone)
        except Trouble:
            # The events are noted; the next time removes what is left.
            return


def _blocks(texts: Sequence[str]) -> list[list[str]]:
    blocks: list[list[str]] = []
    size = _BLOCK
    for text in texts:
        size += len(text)
        if size > _BLOCK:
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


def _totals(answer: Any, path: str) -> tuple[dict[str, int], int]:
    """Return the counters, and the version of their node."""
    if isinstance(answer, NoNodeError):
        raise damaged(path, "it is not there")
    totals = member(members(answer[0], path), "totals", dict, path)
    return {str(name): int(count) for name, count in totals.items()}, int(answer[1].version)


def _sum(totals: dict[str, int], counted: Totals[str]) -> dict[str, int]:
    return {name: totals.get(name, 0) + count for name, count in counted.items()}
