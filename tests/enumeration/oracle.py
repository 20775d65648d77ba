"""What must be true at the end of every case, and of every outcome on the way."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.table import Table

from tableformat.committer import LakeTableState
from tableformat.export.outcome import Outcome, Status
from tableformat.file_names import exported_by
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import ExportedPart, LeaseHeld, Record, Row, State
from tableformat.names import LakeName
from tests.enumeration.faults import DEATHS, PAUSES, Fault
from tests.enumeration.scenarios import Scenario, World
from tests.enumeration.values import ValuedParts, partition_of
from tests.places.place import objects_below
from tests.support.cleaning_up import left_behind
from tests.support.explained import unexplained
from tests.support.scenarios import TO, lake

__all__ = [
    "IN_MAIN",
    "Seen",
    "check_cleaned_up",
    "check_end",
    "check_outcomes",
    "check_reachable",
    "check_referred",
    "check_values",
    "check_whole",
    "explained",
    "files_of",
    "look",
    "unknown_files",
]

IN_MAIN: Final = (Status.COMMITTED, Status.REPLACED, Status.ALREADY_EXPORTED, Status.UNCHANGED)
"""Outcomes that say that all rows of the partition are in main now."""
_NOT_LANDED: Final = (Status.FAILED, Status.REFUSED)
_FOREIGN: Final = ("", "")
Rows = Counter[tuple[tuple[str, int], ...]]
"""Rows by what they hold, without NULLs, and how often each is there."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What can be seen from outside: the lake as a reader finds it, the ledger, the leases.

    `main` has the rows of each file of main by its path, twice where it is listed twice. `values`
    are the rows themselves by partition, where the source has values.
    """

    state: LakeTableState
    main: tuple[tuple[str, int], ...]
    rows: tuple[Row, ...]
    leases: tuple[LeaseHeld, ...]
    values: Mapping[str, Rows]

    @property
    def table(self) -> Table:
        """The lake table as another engine opens it."""
        return table_of(self.state)

    def of(self, partition_id: str) -> Row:
        """Return the ledger row of a partition."""
        (row,) = (r for r in self.rows if r.key.partition_id == partition_id)
        return row

    @property
    def here(self) -> tuple[Row, ...]:
        """The ledger rows of the table as it is, not of one of its name that was dropped."""
        return tuple(r for r in self.rows if r.key.destination == self.state.layout.table_uuid)

    @property
    def columns(self) -> tuple[tuple[int, str, str, bool], ...]:
        """The columns of the table."""
        fields = self.table.schema().fields
        return tuple((f.field_id, f.name, str(f.field_type), f.required) for f in fields)

    @property
    def held(self) -> Counter[str]:
        """The rows of main by key."""
        found: Counter[str] = Counter()
        for path, count in self.main:
            found[(exported_by(path) or _FOREIGN)[0]] += count
        return found

    @property
    def figures(self) -> dict[str, tuple[int, int]]:
        """The rows and files of main by partition; those of other writers stand under ''."""
        keys = {r.key.hash: r.key.partition_id for r in self.rows}
        names = [keys.get((exported_by(path) or _FOREIGN)[0], "") for path, _ in self.main]
        files = Counter(names)
        rows: Counter[str] = Counter()
        for name, (_, count) in zip(names, self.main, strict=True):
            rows[name] += count
        return {name: (rows[name], files[name]) for name in files}


def look(world: World) -> Seen:
    """Look at everything once."""
    state = world.table().load()
    tasks = table_of(state).scan(snapshot_id=state.main).plan_files() if state.main else ()
    main = tuple((t.file.file_path, t.file.record_count) for t in tasks)
    with contextlib.closing(world.place.ledger(world.clock)) as ledger:
        rows = tuple(ledger.rows())
        leases = tuple(held for r in rows if (held := ledger.holder(r.key.hash)) is not None)
    return Seen(state, main, rows, leases, _read(world, state))


def _read(world: World, state: LakeTableState) -> Mapping[str, Rows]:
    """Return the rows of main, as another engine reads them."""
    found: dict[str, Rows] = {}
    if not isinstance(world.source, ValuedParts) or state.main is None:
        return found
    for row in table_of(state).scan(snapshot_id=state.main).to_arrow().to_pylist():
        values = tuple((name, value) for name, value in row.items() if value is not None)
        found.setdefault(partition_of(row["n"]), Counter())[values] += 1
    return found


def check_whole(now: Seen, first: Seen | None, last: Seen) -> None:
    """Check that a reader sees each partition, and the columns, as before or as after.

    Args:
        now: at any moment.
        first: before the run, None where there was no table.
        last: after a run without a fault.
    """
    none: Mapping[str, object] = {}
    for seen, before, after in (
        (now.figures, first.figures if first else none, last.figures),
        (now.values, first.values if first else none, last.values),
    ):
        for name in {*seen, *before}:
            allowed = [before.get(name), after.get(name)]
            assert seen.get(name) in allowed, f"half of partition {name!r} is visible"
    columns = [last.columns, *((first.columns,) if first else ())]
    assert now.columns in columns, "half of the columns are there"


def check_values(world: World, end: Seen) -> None:
    """Check that main has the rows of the source, where it has values."""
    source = world.source
    if isinstance(source, ValuedParts):
        there = {name: Counter(dict(row)["n"] for row in end.values[name]) for name in end.values}
        assert there == {name: Counter(source.numbers_of(name)) for name in source.by_id}
        rows = (dict(row) for found in end.values.values() for row in found)
        assert all(row.get("later") in (None, row["n"] + 1) for row in rows), "a wrong value"


def check_outcomes(outcomes: tuple[Outcome, ...], before: Seen | None, now: Seen) -> None:
    """Check that the outcome of each partition is true of main."""
    old = {path for path, _ in before.main} if before is not None else set()
    fresh = {exported_by(path) for path, _ in now.main if path not in old}
    for outcome in outcomes:
        row = next((r for r in now.rows if r.key.partition_id == outcome.partition_id), None)
        key = row.key.hash if row is not None else ""
        if outcome.status in IN_MAIN:
            assert now.held[key] == outcome.rows > 0, f"{outcome}; main holds {now.held[key]}"
        elif outcome.status in _NOT_LANDED:
            assert (key, outcome.transaction_id) not in fresh, f"{outcome}; its rows are in main"
        assert "bug" not in outcome.message, outcome


def check_end(
    world: World, now: Seen, undisturbed: Seen, fault: Fault, scenario: Scenario, *,
    snapshots: range,
) -> None:  # fmt: skip
    """Check a world in which the command was run again after a fault.

    Args:
        world: that of the case.
        now: how it is seen.
        undisturbed: what a run without a fault leaves.
        fault: what happened in the first run.
        scenario: what was run.
        snapshots: how many there may be.
    """
    assert now.figures == undisturbed.figures
    assert (now.values, now.columns) == (undisturbed.values, undisturbed.columns)
    assert len(now.main) == len(dict(now.main)), "a file is in main twice"
    _check_snapshots(now, snapshots, undisturbed)
    check_reachable(world, now)
    _check_ledger(now, undisturbed, repeats=scenario.repeats)
    _check_written(world, now, fault)
    assert now.leases == (), "a lease is left"
    assert unknown_files(world, now) == [], "files that no ledger row tells of"


def check_cleaned_up(world: World, name: LakeName = TO) -> None:
    """Clean up a table for which every run ended: all that nothing explains goes, no more."""
    head = f"{lake(world.directory, name).load().location}/"
    found, before = unexplained(world.directory, name), files_of(world)
    useless = {path if "://" in path else head + path for path in found}
    kept = left_behind(world.directory, clock=world.clock, name=name)
    wrong = sorted((before - files_of(world)) ^ useless)
    assert wrong == [], "it is not what nothing explains that was removed"
    assert kept == [], "what dead attempts left stays"


def files_of(world: World) -> set[str]:
    """Return the locations of all that is in the warehouse."""
    place = world.place
    found = objects_below(place.storage(place.warehouse), place.warehouse)
    return {one.location for one in found}


def unknown_files(world: World, now: Seen) -> list[str]:
    """Return the data files of exports that no ledger row tells of, so that nobody removes them."""
    known = {(r.key.hash, c) for r in now.rows for c in _transactions(r)}
    files = (f for f in files_of(world) if f.endswith(".parquet"))
    return [f for f in files if (owner := exported_by(f)) is not None and owner not in known]


def _transactions(row: Row) -> set[str]:
    claimed = {c.transaction_id for c in (row.claim, *row.old)}
    return claimed | {x.transaction_id for x in row.landed}


def _check_snapshots(now: Seen, allowed: range, undisturbed: Seen) -> None:
    """Every snapshot is explained, and everything that it needs is there."""
    seen = now.state.snapshots
    assert len(seen) in allowed, f"{len(seen)} snapshots, {allowed} are explained"
    landed = {x.snapshot_id for r in now.rows for x in r.landed}
    assert landed <= seen.keys(), "the ledger tells of a landing that is not in the table"
    others = len(undisturbed.state.snapshots) - len(
        {x.snapshot_id for r in undisturbed.rows for x in r.landed}
    )
    assert len(seen.keys() - landed) == others, "a snapshot that the ledger does not tell of"


def check_reachable(world: World, now: Seen) -> None:
    """Check that everything is there that a snapshot of the table refers to."""
    check_referred(now.table, files_of(world))


def check_referred(table: Table, there: set[str]) -> None:
    """Check that all that the snapshots of a table refer to is among these files."""
    io, checked = table.io, set[str]()
    for snapshot in table.metadata.snapshots:
        assert snapshot.manifest_list in there, snapshot
        for manifest in snapshot.manifests(io):
            if manifest.manifest_path in checked:
                continue
            checked.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
                assert entry.data_file.file_path in there, entry.data_file


def _check_ledger(now: Seen, undisturbed: Seen, *, repeats: bool) -> None:
    """Ledger and table agree."""
    for row in now.rows:
        expected = undisturbed.of(row.key.partition_id)
        assert row.state is State.COMPLETED, row
        assert row.done is not None
        newest = row.done.landed
        assert newest == row.landed[-1] == max(row.landed, key=lambda x: x.epoch)
        assert now.state.is_ancestor(newest.snapshot_id)
        assert (newest.rows, newest.data_files) == now.figures[row.key.partition_id]
        assert expected.done is not None
        assert _exported(row.done) == _exported(expected.done)
        assert repeats or len(row.landed) == len(expected.landed), "it landed more than once"
        mark = now.state.mark(row.key.hash)
        assert mark is None or (mark.epoch, mark.snapshot_id) == (newest.epoch, newest.snapshot_id)


def _exported(done: Record) -> tuple[str, tuple[ExportedPart, ...]]:
    return done.landed.fingerprint, tuple(replace(p, remote_paths=()) for p in done.parts)


def _check_written(world: World, now: Seen, fault: Fault) -> None:
    """A finished file is never written again: as often as its content landed.

    Another run that knows this one dead, though it is not, may begin before its files are finished.
    """
    doubled = fault in PAUSES and not fault.others_live
    for (partition_id, rows), times in world.written.items():
        row = now.of(partition_id)
        assert row.done is not None
        newest = row.done.landed.fingerprint
        if not {(p.name, p.hash_of_all_files) for p in row.done.parts} >= {r[:2] for r in rows}:
            continue
        landed = sum(x.fingerprint == newest for x in row.landed)
        most = landed + doubled
        assert landed <= times <= most, f"{partition_id} {rows} was written {times} times"


def explained(fault: Fault, scenario: Scenario, undisturbed: int, struck: int, later: int) -> range:
    """Return how many snapshots a case may end with.

    Args:
        fault: what happened in the first run.
        scenario: what was run.
        undisturbed: snapshots after a run without a fault.
        struck: snapshots after the first run.
        later: runs after the first, nested ones not counted.
    """
    if scenario.repeats:
        # Every run that ends well exports once more.
        return range(struck + 1, struck + later + 1)
    if scenario.request.commit_after == 0:
        # Files that a dead run has finished become visible together.
        return range(struck, undisturbed + 2)
    if fault in (*DEATHS, Fault.LOST_RESPONSE):
        return range(undisturbed, undisturbed + 1)
    # A partition that an error, or another run, takes out of its group lands in a snapshot alone.
    return range(undisturbed, undisturbed + 2)
