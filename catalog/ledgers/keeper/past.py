"""The history: blocks of events, numbered by Keeper, and one node of counters.

The counters move together with the last block of a write, by compare-and-set, so that a write whose
answer was lost is not counted twice. More events than are kept may be stored for a while: readers
leave out those before, and a writer removes their blocks now and then.
"""

from __future__ import annotations

import uuid
from collections import Counter as Totals
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from catalog.ledgers.keeper.nodes import damaged, member, members, sealed_members
from catalog.ledgers.keeper.rows import confirmed
from catalog.ledgers.keeper.session import (
    KeeperSession,
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
from catalog.ledgers.keeper_paths import BlockName, KeeperPaths
from tableformat.errors import LedgerError
from tableformat.history import Event

__all__ = ["KeeperPast"]

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
