"""Two tables in the small world, and what goes from one to the other, as new processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from catalog.iceberg.table import IcebergTable
from catalog.rewriting.copies import CopiedFiles
from tableformat.committer import LakeTableState
from tableformat.effects import Direct, Effects, Step
from tableformat.export.job import export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ExportOptions
from tableformat.ledger import StatementKind
from tableformat.names import LakeName, PartitionId
from tableformat.operations.copy_from import CopyFrom, Fetch, OtherTable, divided_here, other_table
from tableformat.operations.move import Moving
from tableformat.operations.partition_files import Partitions as LakePartitions
from tableformat.operations.run import Running
from tableformat.operations.statement import (
    AllPartitions,
    Copies,
    FileCopier,
    OnePart,
    OnePartition,
    Which,
)
from tests.places.found import place_at
from tests.support.dying import Dies
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    in_files,
    partition,
    running,
)
from tests.support.scenarios import (
    AtStep,
    Partitions,
    lake,
    ports_of,
    row_of,
)

__all__ = [
    "OTHER",
    "P1",
    "TO_OTHER",
    "between",
    "copy",
    "fetch",
    "killed_between",
    "move",
    "moving",
    "other",
    "piece",
    "prepared",
    "rows_of_p1",
    "to_other",
]

OTHER = LakeName("lake", ("n",), "other")
TO_OTHER = replace(IN_FILES, to=OTHER, options=ExportOptions(force=True))
P1 = partition("p1")


def prepared(directory: Path) -> Partitions:
    """Make a table with p1 (12 rows in two files) and p2 (3), and another that has p2 alone."""
    made = in_files(directory)
    p2 = Partitions()
    del p2.by_id["p1"]
    to_other(directory, p2)
    return made


def to_other(directory: Path, source: Partitions) -> dict[str, Status]:
    """Export to the other table; return what became of each partition."""
    done = export(TO_OTHER, ports_of(directory, source, clock=LATER.__next__), slots=1)
    return {o.partition_id: o.status for o in done}


def other(directory: Path) -> IcebergTable:
    """Return the other table."""
    table = place_at(directory).lake().table(OTHER)
    assert table is not None
    return table


def copy(
    directory: Path,
    which: OnePartition | AllPartitions,
    *,
    replaces: bool = False,
    allow_empty: bool = False,
    effects: Effects | None = None,
    table: object = None,
    rows: ForeignPartitions | None = None,
    alive: bool = False,
) -> Outcome:
    """Attach from the other table, or replace, as a new process."""
    ready, there = _from_other(directory, which, effects, table, rows, alive=alive)
    return ready.run(CopyFrom(which, there, replaces=replaces, allow_empty=allow_empty))


def piece(
    directory: Path,
    which: OnePartition | AllPartitions,
    within: str,
    *,
    effects: Effects | None = None,
    table: object = None,
    rows: ForeignPartitions | None = None,
    alive: bool = False,
) -> Outcome:
    """Attach from the other table what lies in one partition here, as a new process."""
    ready, there = _from_other(directory, which, effects, table, rows, alive=alive)
    lie = frozenset({PartitionId(within)})
    here, there = divided_here("Cannot", which, there, lambda _: lie)
    return ready.run(CopyFrom(here, there, replaces=False, named=which))


def fetch(
    directory: Path,
    which: OnePartition | OnePart,
    *,
    effects: Effects | None = None,
    table: object = None,
    rows: ForeignPartitions | None = None,
    alive: bool = False,
) -> Outcome:
    """Fetch from the other table, as a new process."""
    ready, there = _from_other(directory, which, effects, table, rows, alive=alive)
    return ready.run(Fetch(which, str(there.name), StatementKind.FETCH, there.keys))


def _from_other(
    directory: Path,
    which: Which,
    effects: Effects | None,
    table: object,
    rows: ForeignPartitions | None,
    *,
    alive: bool = False,
) -> tuple[Running, OtherTable]:
    """Return a new process that copies files of the other table, and what that has."""
    foreign = rows or ForeignPartitions()
    opened = cast("IcebergTable | None", table)
    ready = running(directory, effects=effects, table=opened, rows=foreign, alive=alive)
    found, here = other(directory), lake(directory)
    ledger = ready.ports.commit.ledger
    there = other_table(
        found.load(), LakePartitions(OTHER, found, ledger, foreign, Direct()), which
    )
    copies = CopiedFiles(found.load(), found.storages, here.load(), here.storages)
    return replace(ready, ports=replace(ready.ports, writer=FileCopier(copies))), there


def between(
    directory: Path,
    source: LakeName,
    to: LakeName,
    which: OnePartition | AllPartitions = P1,
    *,
    at: int | None = None,
    replaces: bool = False,
    rows: ForeignPartitions,
) -> Outcome:
    """Attach, or replace, in one table from another or from itself, as of a snapshot."""
    found, into = lake(directory, source), lake(directory, to)
    ready = running(directory, rows=rows, table=into, name=to)
    state, here = found.load(), into.load()
    state = replace(state, main=state.main if at is None else at)
    ledger = ready.ports.commit.ledger
    there = other_table(state, LakePartitions(source, found, ledger, rows, Direct()), which)
    copier = FileCopier(CopiedFiles(state, found.storages, here, into.storages))
    ready = replace(ready, ports=replace(ready.ports, writer=copier))
    return ready.run(CopyFrom(which, there, replaces=replaces))


def moving(
    directory: Path,
    *,
    effects: Effects | None = None,
    here: object = None,
    there: object = None,
    rows: ForeignPartitions | None = None,
    alive: bool = False,
) -> Moving:
    """Return what moves partitions, as a new process."""
    found = cast("IcebergTable", here or lake(directory))
    into = cast("IcebergTable", there or other(directory))
    one = running(directory, effects=effects, table=found, rows=rows, alive=alive)
    two = running(directory, effects=effects, table=into, rows=rows, name=OTHER)
    two = replace(two, ports=replace(two.ports, owner=one.ports.owner, is_alive=one.ports.is_alive))

    def copies(source: LakeTableState, destination: LakeTableState) -> Copies:
        return CopiedFiles(source, lake(directory).storages, destination, other(directory).storages)

    catalog = place_at(directory).lake()
    return Moving(one, two, copies, lambda *_: None, lambda *_: None, catalog.name_of)


def move(
    directory: Path,
    effects: Effects | None = None,
    *,
    here: object = None,
    there: object = None,
    rows: ForeignPartitions | None = None,
) -> Outcome:
    """Move p1, as a new process."""
    return moving(directory, effects=effects, here=here, there=there, rows=rows).run(P1)


def rows_of_p1(directory: Path) -> tuple[int, int]:
    """Return the rows of p1 in both tables, by the keys in the names of files."""
    key = row_of(directory, "p1").key
    found = []
    for table in (lake(directory), other(directory)):
        state = table.load()
        own = replace(key, destination=state.layout.table_uuid).hash
        found.append(sum(f.rows for f in table.files_of(state, own)))
    return found[0], found[1]


def killed_between(directory: Path) -> None:
    """Leave a MOVE that has landed there and not here."""
    with pytest.raises(Dies):
        move(directory, AtStep(Step.SEND, _die, nth=2))
    assert rows_of_p1(directory) == (12, 12)


def _die() -> None:
    raise Dies
