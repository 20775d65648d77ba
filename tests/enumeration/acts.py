"""Statements that histories have not: of parts, of pieces, from files, views and ClickHouse.

Each is run as a new process. Where ClickHouse or Spark would be asked there are their results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, cast
from unittest.mock import patch

from catalog.clickhouse.rows.partitions import RowPartitions
from catalog.clickhouse.source import ClickHouseSource
from catalog.rewriting.copies import MovedFiles
from catalog.rewriting.foreign_files import ForeignFiles, ParquetDirectory
from catalog.rewriting.integrity import checks
from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from catalog.storages.schemes import Access, open_storage
from spark_ext.operations import fetch as parts_from
from spark_ext.operations.fetch import key_of_unowned
from spark_ext.operations.from_clickhouse import Coming, FromClickHouse, Local
from spark_ext.operations.tables import OpensPorts, RememberingTable
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_settings import StatementSettings
from tableformat.disks import Disks
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts, Written
from tableformat.export.slices import Slice, WritePlan, tasks
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.iceberg.properties import remembered_source
from tableformat.names import PartitionId, TableName
from tableformat.operations.attach import Attach
from tableformat.operations.copy_from import CopyFromView, OtherKey, files_in
from tableformat.operations.rewrite import MoveToDisk
from tableformat.operations.run import Running
from tableformat.operations.statement import FileCopier, FileRewriter, OnePart, Statement
from tableformat.operations.take_out import Detach, Drop
from tableformat.receipt import Receipt
from tests.places.found import place_at
from tests.places.place import objects_below
from tests.support import foreign_actions
from tests.support.dying import Dies
from tests.support.fakes import TABLE
from tests.support.history_acts import OF_OTHERS, Act, Seat, freeze
from tests.support.lake_statements import drop_detached, running
from tests.support.row_changes import clear_numbers
from tests.support.scenarios import (
    TO,
    Partitions,
    RealFiles,
    lake,
    parts_of,
    ports_of,
    pyiceberg,
    row_of,
)
from tests.support.two_lake_tables import P1, piece
from tests.tableformat.operations import test_clear_index as clearing_index
from tests.tableformat.operations import test_fetching_files as fetching_files

__all__ = ["MORE", "Sources", "files_are_there", "has_disks"]

_SECOND: Final = "the second shard"


@dataclass
class Sources(Partitions):
    """A table, and one of other rows of the same partition: that of a second shard."""

    second: Partitions = field(
        default_factory=lambda: Partitions(
            table=replace(TABLE, identity=_SECOND), by_id={"p1": parts_of("p1", 4)}
        )
    )


def _part(at: Path) -> OnePart:
    """Name the first file that was exported of p1, wherever it is by now."""
    key, place = row_of(at, "p1").key.hash, place_at(at)
    found = objects_below(place.storage(place.warehouse), place.warehouse)
    path = min(f.location for f in found if key in f.location and f.location.endswith(".parquet"))
    return OnePart(lake_part_name(PartitionId("p1"), path))


def _of_part(of: Callable[[OnePart], Statement], at: Path, _: Partitions, seat: Seat) -> Status:
    ready = running(at, effects=seat.by, rows=OF_OTHERS, alive=seat.alive)
    return ready.run(of(_part(at))).status


def _drop_detached_part(at: Path, _: Partitions, seat: Seat) -> Status:
    return drop_detached(at, _part(at), effects=seat.by, rows=OF_OTHERS, alive=seat.alive).status


def _piece(at: Path, _: Partitions, seat: Seat) -> Status:
    return piece(at, P1, "p2", effects=seat.by, alive=seat.alive).status


def _clear_column(at: Path, _: Partitions, seat: Seat) -> Status:
    return clear_numbers(at, P1, effects=seat.by, rows=OF_OTHERS, alive=seat.alive).status


def _clear_index(at: Path, _: Partitions, seat: Seat) -> Status:
    """Unlike that of histories it finds nothing to do once it is done."""
    return clearing_index.clear(at, effects=seat.by, alive=seat.alive).status


def has_disks(at: Path) -> None:
    """Let the table have a disk of its own, in the warehouse."""
    with pyiceberg(at).transaction() as transaction:
        transaction.set_properties({"mergeberg.disk.cold": f"{place_at(at).warehouse}/cold"})


def _to_disk(at: Path, _: Partitions, seat: Seat) -> Status:
    found = lake(at)
    disks = Disks.of(found.load())
    one = running(at, effects=seat.by, rows=OF_OTHERS, alive=seat.alive)
    files = MovedFiles(found.storages, one.ports.note, checks(fast=False))
    one = replace(one, ports=replace(one.ports, writer=FileRewriter(files)))
    return one.run(MoveToDisk(P1, disks.disk("cold", "Cannot"), disks)).status


def files_are_there(at: Path) -> None:
    """Put Parquet files with the rows of p1 (12) outside of the lake."""
    for name, rows in (("a", 7), ("b", 5)):
        fetching_files.put_there(at / "there" / f"{name}.parquet", rows)


def _fetch_files(at: Path, _: Partitions, seat: Seat) -> Status:
    return fetching_files.fetch(at, effects=seat.by, alive=seat.alive).status


def _from_view(at: Path, _: Partitions, seat: Seat, *, replaces: bool) -> Status:
    """Run it when the view is evaluated: its rows of the partition are files outside the lake."""
    ready, to = _remembering(at, seat)
    state, rows = to.found.load(), cast("RowPartitions", fetching_files.AllOfP1())
    found = ParquetDirectory("Cannot", str(at / "there"), to.found.storages, state, rows)
    files = found.files(P1.partition_id)
    key = key_of_unowned("Cannot", P1.partition_id, ready, to)
    copies = ForeignFiles({one.file.path: one for one in files}, state, to.found.storages)
    ready = replace(ready, ports=replace(ready.ports, writer=FileCopier(copies)))
    keys = (OtherKey(key, tuple(one.file for one in files)),)
    before = files_in(ready.partitions.files(state, P1.partition_id))
    request = CopyFromView(
        P1, "v", replaces, allow_empty=False, keys=keys, schema_id=state.layout.schema_id,
        before=before,
    )  # fmt: skip
    return ready.run(request).status


def _remembering(at: Path, seat: Seat) -> tuple[Running, RememberingTable]:
    ready = running(at, effects=seat.by, rows=OF_OTHERS, alive=seat.alive)
    found = lake(at)
    source = remembered_source(found.load().properties)
    assert source is not None
    return ready, RememberingTable(TO, found, source, ready.ports.commit.ledger)


def _write(
    plan: WritePlan, slices: tuple[Slice, ...], _access: Access | None, _server: object
) -> tuple[Receipt, ...]:
    """Do what the process of a task does."""
    writer, dealt = RealFiles(storage=open_storage), tasks(slices, 1)
    writing = writer.write(plan, dealt, on_rows=lambda _: None, should_stop=lambda: False)
    while True:
        try:
            next(writing)
        except StopIteration as ended:
            return cast("Written", ended.value).receipts


def _fetch_parts(at: Path, source: Partitions, seat: Seat) -> Status:
    """Run it when the parts are proved; what was frozen of a process that dies stays."""
    ready, to = _remembering(at, seat)
    origin = parts_from.PartsOrigin(
        "'parts:/there'", cast("ClickHouseSource", source), TableName("db", "t")
    )
    key_of = partial(key_of_unowned, "Cannot", P1.partition_id, ready, to)
    with ExitStack() as stack, patch.object(parts_from, "written_slices", _write):
        ready, of = parts_from.fetching_parts("Cannot", origin, P1, ready, to, key_of, stack)
        try:
            return ready.run(of).status
        except Dies:
            stack.pop_all()
            raise


@dataclass(frozen=True)
class _Exports:
    """Exports of the statement, from the sources by the names of their places."""

    directory: Path
    sources: dict[str, Partitions]
    seat: Seat
    settings: StatementSettings = field(default_factory=StatementSettings)
    slots: int = 1

    def tables(self, source: SourceTable) -> tuple[LocalTable, ...]:
        message = f"{source} was looked up, and the tables behind FROM are given"
        raise AssertionError(message)

    def running(self) -> AbstractContextManager[OpensPorts]:
        return contextlib.nullcontext(self._opened)

    def _opened(self, place: SourcePlace) -> JobPorts:
        seat, source = self.seat, self.sources[place.uri]
        ports = ports_of(self.directory, source, effects=seat.by, alive=seat.alive)
        own = f"job{ports.owner.pid}"
        return replace(ports, job=own, job_is_alive=lambda job: seat.alive or job in ("job", own))


def _from_clickhouse(
    at: Path, source: Partitions, seat: Seat, *, replaces: bool, shards: int
) -> Status:
    ready, to = _remembering(at, seat)
    sources = {"one": source}
    if shards > 1:
        assert isinstance(source, Sources)
        sources["two"] = source.second
    tables = tuple(
        Local(
            LocalTable(SourcePlace(uri), TableName("db", "t"), n if shards > 1 else None),
            of.table,
            has_parts=True,
        )
        for n, (uri, of) in enumerate(sources.items(), start=1)
    )
    exports = _Exports(at, sources, seat)
    coming = Coming(P1, "ch.db.t", tables, to, ready, exports, replaces=replaces, allow_empty=False)
    found = FromClickHouse(coming, place_at(at).lake())
    return _worst(found.outcomes(dry_run=False))


def _worst(outcomes: Iterator[Outcome]) -> Status:
    """Return what a statement says of its tables together: of the one that is not done."""
    statuses = [one.status for one in outcomes]
    assert statuses
    return next((one for one in statuses if one.exit_code), statuses[0])


def _change_table(at: Path, _: Partitions, _seat: Seat) -> Status:
    """Do as the table's owner: what is there is of an earlier spec, and lacks a column."""
    foreign_actions.add_column(at)
    foreign_actions.divide(at)
    return Status.COMMITTED


MORE: dict[str, Act] = {
    "others change the table": _change_table,
    "drop part": partial(_of_part, Drop),
    "detach part": partial(_of_part, Detach),
    "attach part": partial(_of_part, Attach),
    "drop detached part": _drop_detached_part,
    "attach a piece": _piece,
    "clear column": _clear_column,
    "clear index": _clear_index,
    "freeze by number": partial(freeze, None),
    "move to disk": _to_disk,
    "fetch files": _fetch_files,
    "fetch parts": _fetch_parts,
    "attach from view": partial(_from_view, replaces=False),
    "replace from view": partial(_from_view, replaces=True),
    "attach from ClickHouse": partial(_from_clickhouse, replaces=False, shards=1),
    "attach from two shards": partial(_from_clickhouse, replaces=False, shards=2),
    "replace from ClickHouse": partial(_from_clickhouse, replaces=True, shards=1),
    "replace from two shards": partial(_from_clickhouse, replaces=True, shards=2),
}
