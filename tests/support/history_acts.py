"""Everything that somebody may do in a history, as a new process, and what is seen afterwards."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyiceberg.table.snapshots import Operation

from catalog.iceberg.table import IcebergTable
from catalog.rewriting.changed_rows import ChangedFiles, FilteredFiles
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH, BranchFile
from tableformat.effects import Effects
from tableformat.errors import NotFoundError, RefusedError, TableFormatError, UnsupportedError
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Status
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.iceberg.snapshot import table_of
from tableformat.names import PartitionId
from tableformat.operations.attach import Attach
from tableformat.operations.forget import Forget
from tableformat.operations.freeze import Freeze, Unfreeze
from tableformat.operations.rewrite import ClearIndex
from tableformat.operations.statement import Alone, FileRewriter, OnePart, Statement
from tableformat.operations.take_out import Detach, Drop
from tableformat.parquet.writer import FileFormat
from tests.places.found import place_at
from tests.support import foreign_actions
from tests.support.foreign_actions import numbers, opened
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    attach,
    detach,
    drop,
    drop_detached,
    on,
    running,
)
from tests.support.other_engines import origin_of, rewrite
from tests.support.row_changes import change
from tests.support.row_merges import optimize
from tests.support.scenarios import TO, Partitions, ledger_rows, parts_of, ports_of
from tests.support.two_lake_tables import OTHER, P1, TO_OTHER, copy, fetch, moving

__all__ = [
    "ACTS",
    "FOREIGN",
    "GROWS",
    "OF_OTHERS",
    "OURS",
    "PARTS",
    "Act",
    "Seat",
    "Seen",
    "done",
    "freeze",
    "of_this_table",
    "seen",
]

OF_OTHERS = ForeignPartitions(rest="p1")


@dataclass(frozen=True)
class Seat:
    """Where somebody sits: through which effects they act, and whether others are `alive`."""

    by: Effects | None = None
    alive: bool = False


Act = Callable[[Path, Partitions, Seat], Status]
"""What somebody does, as a new process."""


def _export(request: ExportRequest, at: Path, source: Partitions, seat: Seat) -> Status:
    ports = ports_of(at, source, clock=LATER.__next__, effects=seat.by, alive=seat.alive)
    with contextlib.closing(ports.ledger):
        ended = {o.partition_id: o.status for o in export(request, ports, slots=1)}
    return ended["p1"]


def _here(of: Callable[[str], Statement], at: Path, _: Partitions, seat: Seat) -> Status:
    return running(at, effects=seat.by, rows=OF_OTHERS, alive=seat.alive).run(of("p1")).status


def _drop_there(at: Path, _: Partitions, seat: Seat) -> Status:
    there = place_at(at).lake().table(OTHER)
    ready = running(at, effects=seat.by, rows=OF_OTHERS, table=there, name=OTHER, alive=seat.alive)
    return ready.run(drop("p1")).status


def _copy(at: Path, _: Partitions, seat: Seat, *, replaces: bool) -> Status:
    return copy(at, P1, replaces=replaces, effects=seat.by, rows=OF_OTHERS, alive=seat.alive).status


def _fetch(at: Path, _: Partitions, seat: Seat) -> Status:
    return fetch(at, P1, effects=seat.by, rows=OF_OTHERS, alive=seat.alive).status


def _move(at: Path, _: Partitions, seat: Seat) -> Status:
    return moving(at, effects=seat.by, rows=OF_OTHERS, alive=seat.alive).run(P1).status


def _drop_detached(at: Path, _: Partitions, seat: Seat) -> Status:
    return drop_detached(at, P1, effects=seat.by, rows=OF_OTHERS, alive=seat.alive).status


def _change(at: Path, _: Partitions, seat: Seat, *, deletes: bool) -> Status:
    _refuse_renamed(at)
    return change(at, P1, deletes=deletes, effects=seat.by, rows=OF_OTHERS, alive=seat.alive).status


def _refuse_renamed(at: Path) -> None:
    """Do what ClickHouse does to a statement whose column is not there."""
    table = opened(at)
    if table is not None and "n" not in table.schema().column_names:
        message = "Cannot change n: there is no such column."
        raise RefusedError(message)


def _optimize(at: Path, _: Partitions, seat: Seat, *, deduplicates: bool) -> Status:
    return optimize(
        at, P1, deduplicates=deduplicates, effects=seat.by, rows=OF_OTHERS, alive=seat.alive
    ).status


def _clear_index(at: Path, _: Partitions, seat: Seat) -> Status:
    found = place_at(at).lake().table(TO)
    assert found is not None
    state = found.load()
    filtered = FilteredFiles(found.storages, frozenset({1}))
    files = ChangedFiles(found.storages, filtered, FileFormat(), without=frozenset({1}))
    ready = running(at, effects=seat.by, rows=OF_OTHERS, table=found, alive=seat.alive)
    ready = replace(ready, ports=replace(ready.ports, writer=FileRewriter(files)))

    def has(file: BranchFile) -> bool:
        # As if each had some: the rewrite is what counts here.
        return filtered(file) or True

    of = ClearIndex(P1, f"CLEAR INDEX i IN {P1}", has, state.layout.schema_id)
    return ready.run(of).status


def _alone(of: Alone, at: Path, _: Partitions, seat: Seat) -> Status:
    one = running(at, effects=seat.by, rows=OF_OTHERS, alive=seat.alive)
    return of.run(one.ports, one.partitions).status


def _part(of: Callable[[OnePart], Statement], at: Path, _: Partitions, seat: Seat) -> Status:
    """Run a statement on the file of p1 with the fewest rows, in main or detached."""
    branch = DETACHED_BRANCH if of is Attach else MAIN_BRANCH
    keys = {row.key.hash for row in ledger_rows(at) if row.key.partition_id == "p1"}
    paths = (path for path in on(at, branch) if origin_of(path) in keys)
    found = min(paths, key=lambda path: (len(numbers(path)), sorted(numbers(path))), default=None)
    if found is None:
        message = "There is no such part."
        raise NotFoundError(message)
    part = OnePart(lake_part_name(PartitionId("p1"), found))
    return running(at, effects=seat.by, rows=OF_OTHERS, alive=seat.alive).run(of(part)).status


def freeze(name: str | None, at: Path, source: Partitions, seat: Seat) -> Status:
    """Freeze p1; each process knows by itself what it has frozen."""
    return _alone(Freeze(P1, name), at, source, seat)


def _grow(_: Path, source: Partitions, _seat: Seat) -> Status:
    source.by_id["p1"] = parts_of("p1", 20, len(source.by_id["p1"]))
    return Status.COMMITTED


def _rewrite_p1(at: Path, operation: Operation = Operation.OVERWRITE) -> None:
    keys = {r.key.hash for r in ledger_rows(at) if r.key.partition_id == "p1"}
    table = opened(at)
    if table is not None and table.current_snapshot() is not None:
        rewrite(at, lambda path: origin_of(path) in keys, operation=operation)


def _others(act: Callable[[Path], None], at: Path, _: Partitions, _seat: Seat) -> Status:
    act(at)
    return Status.COMMITTED


def _recreate(at: Path, source: Partitions, _seat: Seat) -> Status:
    foreign_actions.drop_table(at)
    return _export(IN_FILES, at, source, Seat())


OURS: dict[str, Act] = {
    "export": partial(_export, IN_FILES),
    "export there": partial(_export, TO_OTHER),
    "drop": partial(_here, drop),
    "drop there": _drop_there,
    "detach": partial(_here, detach),
    "attach": partial(_here, attach),
    "drop detached": _drop_detached,
    "attach from": partial(_copy, replaces=False),
    "replace from": partial(_copy, replaces=True),
    "fetch": _fetch,
    "move": _move,
    "update": partial(_change, deletes=False),
    "delete": partial(_change, deletes=True),
    "clear index": _clear_index,
    "optimize": partial(_optimize, deduplicates=False),
    "deduplicate": partial(_optimize, deduplicates=True),
    "freeze": partial(freeze, "f"),
    "unfreeze": partial(_alone, Unfreeze(P1, "f")),
    "forget": partial(_alone, Forget(P1)),
}
PARTS: dict[str, Act] = {
    "drop smallest part": partial(_part, Drop),
    "detach smallest part": partial(_part, Detach),
    "attach smallest part": partial(_part, Attach),
}
GROWS = "the source grows"
FOREIGN: dict[str, Act] = {
    "others append": partial(_others, foreign_actions.append),
    "others rewrite": partial(_others, _rewrite_p1),
    "others compact p1": partial(_others, partial(_rewrite_p1, operation=Operation.REPLACE)),
    "others compact": partial(_others, foreign_actions.compact),
    "others delete a file": partial(_others, foreign_actions.delete_file),
    "others delete rows": partial(_others, foreign_actions.delete_rows),
    "others add a column": partial(_others, foreign_actions.add_column),
    "others promote it": partial(_others, foreign_actions.promote_column),
    "others rename it": partial(_others, foreign_actions.rename_column),
    "others drop it": partial(_others, foreign_actions.drop_column),
    "others rename n": partial(_others, foreign_actions.rename_numbers),
    "others drop the table": partial(_others, foreign_actions.drop_table),
    "others make the table anew": _recreate,
    "others move main back": partial(_others, foreign_actions.move_back),
}
ACTS = {**OURS, **PARTS, GROWS: _grow, **FOREIGN}


def done(name: str, at: Path, source: Partitions, seat: Seat = Seat()) -> Status:
    """Do it; what is refused has changed nothing."""
    if name in {**OURS, **PARTS} and not name.startswith("export") and opened(at) is None:
        # As the interfaces say: there is no such table.
        return Status.REFUSED
    try:
        return ACTS[name](at, source, seat)
    except (RefusedError, NotFoundError, UnsupportedError):
        return Status.REFUSED
    except TableFormatError:
        return Status.FAILED


Seen = Counter[tuple[object, ...]]


def seen(at: Path) -> Seen:
    """Return every row by table, branch and partition; columns, and which tags there are.

    Of what others wrote there is one partition.
    """
    named = {row.key.hash: row.key.partition_id for row in ledger_rows(at) if row.key.is_of_export}
    found: Seen = Counter()
    for where, name in (("here", TO), ("there", OTHER)):
        table = place_at(at).lake().table(name)
        if table is not None:
            _add(found, where, table, named)
    return found


def _add(found: Seen, where: str, table: IcebergTable, named: dict[str, str]) -> None:
    state = table.load()
    for branch in (MAIN_BRANCH, DETACHED_BRANCH):
        for file in table.files_on(state, branch):
            of = named.get(origin_of(file.path), "others")
            found.update((where, branch, of, number) for number in numbers(file.path))
    columns = table_of(state).schema().fields
    found[where, "columns", *((f.name, str(f.field_type)) for f in columns)] = 1
    found.update((where, "reference", name) for name in table.references(state))


def of_this_table(rows: Seen) -> Seen:
    """Return what is here of what is in both tables."""
    return Counter({at: number for at, number in rows.items() if at[0] == "here"})
