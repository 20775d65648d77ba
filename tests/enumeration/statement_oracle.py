"""What must be true of the tables of a statement: at every moment, and in the end."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self, TypeVar

from pyiceberg.table.refs import SnapshotRefType

from catalog.iceberg.table import IcebergTable
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH, LakeTableState
from tableformat.effects import Direct, Effects, Step
from tableformat.file_names import exported_by, key_in
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import LeaseHeld, Row
from tests.enumeration.oracle import check_referred, files_of
from tests.enumeration.scenarios import World
from tests.support.foreign_actions import numbers
from tests.support.scenarios import TO
from tests.support.two_lake_tables import OTHER

__all__ = ["Seen", "Visible", "Watched", "check_end", "check_found", "look", "visible"]

T = TypeVar("T")
Rows = tuple[tuple[str, int], ...]
"""Rows of a branch or tag, as partition and number: sorted."""


_CHANGES: Final = (Step.SEND, Step.FIRST_SNAPSHOT)
"""Nothing that readers see changes otherwise."""


@dataclass(frozen=True, slots=True)
class Visible:
    """What readers see: the rows of main and of what is detached, here, and of main there."""

    here: Rows
    detached: Rows
    there: Rows


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that can be seen from outside.

    `tags` are the rows of each tag, `ledger` what it tells of each key.
    """

    visible: Visible
    tags: tuple[tuple[str, Rows], ...]
    ledger: tuple[object, ...]
    leases: tuple[LeaseHeld, ...]
    opened: _Opened


@dataclass
class Watched:
    """Effects of all processes of a world; a reader looks after each request to the catalog."""

    world: World
    inner: Effects = field(default_factory=Direct)
    seen: dict[Visible, None] = field(default_factory=dict)

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Perform an effect, and look."""
        done = self.inner(step, act)
        if step in _CHANGES:
            self.seen[visible(self.world)] = None
        return done


def visible(world: World) -> Visible:
    """Return what readers see now."""
    return _Opened.of(world).visible()


def look(world: World) -> Seen:
    """Look at everything."""
    opened = _Opened.of(world)
    uuids = [state.layout.table_uuid for state in opened.states]
    with contextlib.closing(world.place.ledger(world.clock)) as ledger:
        held = (ledger.holder(r.key.hash) for r in opened.rows)
        leases = tuple(one for one in held if one is not None)
    return Seen(
        opened.visible(),
        tuple(sorted(opened.tags())),
        tuple(sorted(_recorded(row, uuids.index(row.key.destination)) for row in opened.rows)),
        leases,
        opened,
    )


def check_end(world: World, now: Seen, undisturbed: Seen, *, repeats: bool) -> None:
    """Check a world in which the statement was run again after a fault.

    Args:
        world: that of the case.
        now: how it is seen.
        undisturbed: what a run without a fault leaves.
        repeats: the statement does again what it finds done.
    """
    assert now.visible == undisturbed.visible
    tags = now.tags[: len(undisturbed.tags)] if repeats else now.tags
    assert tags == undisturbed.tags
    assert now.ledger == undisturbed.ledger, _differences(now.ledger, undisturbed.ledger)
    assert now.leases == (), "a lease is left"
    there = files_of(world)
    for table, state in zip(now.opened.tables, now.opened.states, strict=True):
        check_referred(table_of(state), there)
        for row in now.opened.rows:
            if row.key.destination == state.layout.table_uuid:
                _check_row(row, state, table)


def check_found(world: World, now: Seen) -> None:
    """Check that a reader finds all rows of main by a condition, whatever their files' specs."""
    table = table_of(world.table().load())
    found = table.scan(row_filter="n >= 0 and n < 1000000").to_arrow().column("n").to_pylist()
    assert sorted(found) == sorted(number for _, number in now.visible.here)


def _differences(now: tuple[object, ...], then: tuple[object, ...]) -> str:
    return f"the ledger tells {[*({*now} - {*then})]}, not {[*({*then} - {*now})]}"


def _check_row(row: Row, state: LakeTableState, table: IcebergTable) -> None:
    """Check that main has of a key what the ledger says that it has."""
    if not row.landed:
        return
    last, mark = row.landed[-1], state.mark(row.key.hash)
    assert mark is None or (mark.epoch, mark.snapshot_id) == (last.epoch, last.snapshot_id), row
    assert last.snapshot_id in state.snapshots, "it tells of a snapshot that is not in the table"
    if last.left is None:
        return
    files, rows = Counter[str](), Counter[str]()
    for file in table.files_of(state, row.key.hash):
        transaction_id = (exported_by(file.path) or ("", ""))[1]
        files[transaction_id] += 1
        rows[transaction_id] += file.rows
    held = {h.transaction_id: (h.data_files, h.rows) for h in last.left}
    assert {of: (files[of], rows[of]) for of in files} == held, f"{row}: it holds something else"


@dataclass(frozen=True, slots=True)
class _Opened:
    """Both tables, each as of one moment, and what the ledger has."""

    tables: tuple[IcebergTable, ...]
    states: tuple[LakeTableState, ...]
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, world: World) -> Self:
        """Open them."""
        lake = world.place.lake()
        here, there = lake.table(TO), lake.table(OTHER)
        assert here is not None
        assert there is not None
        with contextlib.closing(world.place.ledger(world.clock)) as ledger:
            rows = tuple(ledger.rows())
        return cls((here, there), (here.load(), there.load()), rows)

    def visible(self) -> Visible:
        """Return the rows of their branches."""
        return Visible(
            self._on(0, MAIN_BRANCH), self._on(0, DETACHED_BRANCH), self._on(1, MAIN_BRANCH)
        )

    def tags(self) -> Iterator[tuple[str, Rows]]:
        """Yield the rows of each tag."""
        opened = table_of(self.states[0])
        for name, ref in opened.metadata.refs.items():
            if ref.snapshot_ref_type is SnapshotRefType.TAG:
                tasks = opened.scan(snapshot_id=ref.snapshot_id).plan_files()
                yield name, self._numbers(t.file.file_path for t in tasks)

    def _on(self, number: int, branch: str) -> Rows:
        files = self.tables[number].files_on(self.states[number], branch)
        return self._numbers(f.path for f in files)

    def _numbers(self, paths: Iterable[str]) -> Rows:
        """Return the rows of files; those of other writers are of no partition."""
        ids = {row.key.hash: row.key.partition_id for row in self.rows}
        return tuple(sorted((ids.get(key_in(p), ""), n) for p in paths for n in numbers(p)))


def _recorded(row: Row, table: int) -> tuple[object, ...]:
    """Return what the ledger tells of a key, but for what differs from run to run."""
    done, last = row.done, row.landed[-1] if row.landed else None
    held = last.left if last is not None else None
    return (
        row.key.source,
        row.key.partition_id,
        table,
        row.state.value,
        row.move is None,
        last.statement if last is not None else "",
        last.moved_to if last is not None else "",
        str(sorted((h.data_files, h.rows) for h in held) if held is not None else None),
        (done.landed.rows, done.landed.data_files, done.forgotten) if done is not None else (),
        tuple((p.name, p.hash_of_all_files) for p in done.parts) if done is not None else (),
    )
