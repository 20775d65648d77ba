"""Statements that rewrite lake files: UPDATE, DELETE, CLEAR COLUMN, CLEAR INDEX and OPTIMIZE.

- UPDATE, DELETE and CLEAR COLUMN: ClickHouse computes which files change, and their new rows.
- OPTIMIZE TABLE: groups of files are merged; ClickHouse determines the rows that stay.
- CLEAR INDEX: files are written without the bloom filters of an index.

UPDATE, DELETE, CLEAR COLUMN and OPTIMIZE run in this process or in tasks of a Spark session, with
the same code; a session handles more files, or more groups of files, at a time.
A task starts its own ClickHouse, and the first tasks of a session start a Python each, so a few
small files are faster in the current process (`is_worth_tasks`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Final, Protocol, TypeAlias, TypeVar

from pyspark.sql import SparkSession

from catalog.clickhouse.rows.changes import RowChanges
from catalog.clickhouse.rows.merged import MergedRows
from catalog.processes import ScratchDirectory
from catalog.rewriting.changed_rows import (
    ChangedFiles,
    FileLooker,
    FileRewrite,
    FileWriter,
    FilteredFiles,
    Looked,
    LookedFiles,
)
from catalog.rewriting.file_partitions import OwnPartitions
from catalog.rewriting.merged_files import HostMerger, Merged, MergedFiles, MergeWriter, RowOrder
from catalog.storages.schemes import Opens, ReachedStorages, Storages
from spark_ext.engine.jobs import TaskDirectory, in_tasks, task_directory
from spark_ext.operations.tables import RememberingTable
from spark_ext.sql.clauses import Deduplicate
from spark_ext.sql.statement_text import render_deduplicate
from spark_ext.sql.statements import ClearColumn, ClearIndex, Delete, Optimize, Update
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import RefusedError, SourceError, StoppedError
from tableformat.iceberg.bloom_filters import single_value_columns
from tableformat.iceberg.copied_files import Rewritten
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.row_change_limits import refuse_change, refuse_merged_columns
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.sort_order import file_order, same_order, sort_prefix
from tableformat.ledger import StatementKind
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.expression_text import columns_of, render_expression
from tableformat.mergetree.final_merge import RowMerge
from tableformat.mergetree.row_change import RowChange, columns_of_change, columns_set
from tableformat.mergetree.row_functions import refuse_outside
from tableformat.mergetree.table import MergeTreeTable, SkipIndex
from tableformat.operations.rewrite import ChangeRows, ChangingKind
from tableformat.operations.rewrite import ClearIndex as Clearing
from tableformat.operations.rewrite import Optimize as Optimizing
from tableformat.operations.run import Running
from tableformat.operations.statement import AllPartitions, OnePartition
from tableformat.parquet.writer import FileFormat
from tableformat.storage import Storage

__all__ = [
    "LEAST_BYTES",
    "LEAST_FILES",
    "ChangesRows",
    "ChangingInTasks",
    "MergingInTasks",
    "changing",
    "clearing_index",
    "cost_of",
    "is_worth_tasks",
    "optimizing",
    "sent_storages",
    "write_in_tasks",
]

T = TypeVar("T")
R = TypeVar("R")

LEAST_FILES: Final = 64
LEAST_BYTES: Final = 128 * 1024 * 1024
# What beginning and ending one more file costs, as bytes of it.
_FILE_COST_BYTES: Final = 1024 * 1024


def is_worth_tasks(spark: SparkSession, files: Iterable[BranchFile]) -> bool:
    """Whether tasks end sooner with files than this process: there are many, or large ones."""
    sizes = [file.bytes for file in files]
    many = len(sizes) >= LEAST_FILES or (len(sizes) > 1 and sum(sizes) >= LEAST_BYTES)
    return many and spark.sparkContext.defaultParallelism > 1


class _Sent(Protocol):
    """Holds how to reach storages, with their secrets: a broadcast."""

    @property
    def value(self) -> ReachedStorages:
        """What is held."""
        ...


@dataclass(frozen=True, slots=True)
class _SentStorages:
    """Opens storages on an executor."""

    sent: _Sent

    def __call__(self, location: str) -> Storage:
        """Open the storage that a location belongs to."""
        return self.sent.value(location)


def sent_storages(spark: SparkSession, storages: Storages, locations: Iterable[str]) -> Opens:
    """Send how storages are reached: each time anew, for credentials may have been renewed.

    Raises:
        UsageError: one is not served, or nobody says how to reach it.
    """
    return _SentStorages(spark.sparkContext.broadcast(storages.reached(locations)))


def cost_of(files: Iterable[BranchFile]) -> int:
    """Return what reading files, and writing them anew, costs, in bytes of them."""
    return sum(file.bytes + _FILE_COST_BYTES for file in files)


def write_in_tasks(
    spark: SparkSession,
    what: str,
    things: Sequence[T],
    cost: Callable[[T], int],
    work: Callable[[Iterable[T]], Iterator[R]],
    look: Callable[[], None],
) -> tuple[R, ...]:
    """Write files for claims in tasks, as `in_tasks` does; what was told to stop has stopped.

    Raises:
        StoppedError: `look` says that it is not needed any more.
        TableFormatError: the error of the first thing that has one, or Spark failed.
    """
    watched = _Watched(look)
    try:
        return in_tasks(spark, what, things, cost, work, watched)
    except StoppedError as error:
        if watched.told:
            raise
        # Nobody took the claims over: Spark's job was cancelled.
        raise SourceError(error.message) from error


@dataclass(slots=True)
class _Watched:
    """Looks, and knows whether that said to stop."""

    look: Callable[[], None]
    told: bool = False

    def __call__(self) -> None:
        """Look.

        Raises:
            StoppedError: it is to stop.
        """
        try:
            self.look()
        except StoppedError:
            self.told = True
            raise


@dataclass(frozen=True, slots=True)
class _Writing:
    """What writes files on an executor, one after the other."""

    write: FileWriter

    def __call__(self, things: Iterable[FileRewrite]) -> Iterator[Rewritten]:
        """Write them."""
        with ScratchDirectory("change") as scratch:
            yield from map(partial(self.write, scratch=scratch.path), things)


@dataclass(slots=True)
class ChangingInTasks:
    """Looks at files and writes them anew, in tasks of a session, where that is worth it.

    `what` begins messages: what cannot be done. `looker` looks as it does here. What is made for a
    while below `table_location`, or on this host, is removed with `stack`.
    """

    spark: SparkSession
    what: str
    table_location: str
    storages: Storages
    looker: FileLooker
    stack: ExitStack
    _directory: TaskDirectory | None = None

    def look(self, files: tuple[BranchFile, ...]) -> tuple[Looked, ...] | None:
        """Look at files; None where they are better looked at here.

        Raises:
            TableFormatError: the error of the first file that has one, or Spark failed.
        """
        if not is_worth_tasks(self.spark, files):
            return None
        if self._directory is None:
            context = self.spark.sparkContext
            made = task_directory(context, "left", self.table_location, self.storages)
            self._directory = self.stack.enter_context(made)
        kept, at_hand = self._directory.location, self._directory.at_hand
        places = (*(file.path for file in files), kept)
        sent = sent_storages(self.spark, self.storages, places)
        work = replace(self.looker, storages=sent, kept=kept, at_hand=at_hand)
        return in_tasks(self.spark, self.what, files, _cost, work)

    def write(
        self,
        looked: LookedFiles,
        writer: FileWriter,
        anew: tuple[FileRewrite, ...],
        look: Callable[[], None],
    ) -> tuple[Rewritten, ...] | None:
        """Write files of which rows are left; None where they are better written here.

        Raises:
            StoppedError: `look` says so.
            TableFormatError: the error of the first file that has one, or Spark failed.
        """
        files = tuple(file for one in anew for file in one.of.files)
        kept = looked.kept
        at = {file.path: kept.at[file.path] for file in files}
        if not is_worth_tasks(self.spark, files) or not self._is_reached(at.values()):
            return None
        places = (*at, *at.values(), *(one.place.directory for one in anew))
        sent = sent_storages(self.spark, self.storages, places)
        left = replace(kept, at=at, storages=sent)
        work = _Writing(replace(writer, storages=sent, changes=left))
        return write_in_tasks(self.spark, self.what, anew, _cost_of_new, work, look)

    def _is_reached(self, locations: Iterable[str]) -> bool:
        """Whether tasks can read what is left of files: not all need have been looked at there."""
        made = self._directory
        if made is None:
            return False
        return made.at_hand or all(one.startswith(f"{made.location}/") for one in locations)


def _cost(file: BranchFile) -> int:
    return cost_of((file,))


def _cost_of_new(one: FileRewrite) -> int:
    return cost_of(one.of.files)


ChangesRows: TypeAlias = Update | Delete | ClearColumn
"""The commands that change rows."""
_VERBS: Final = {Update: "updated", Delete: "deleted", ClearColumn: "cleared"}
_KINDS: Final[dict[type, ChangingKind]] = {
    Update: StatementKind.UPDATE,
    Delete: StatementKind.DELETE,
    ClearColumn: StatementKind.CLEAR_COLUMN,
}


def changing(
    command: ChangesRows,
    which: OnePartition | AllPartitions,
    running: Running,
    of: RememberingTable,
    stack: ExitStack,
    spark: SparkSession | None = None,
) -> tuple[Running, ChangeRows]:
    """Return a statement that changes rows, and what runs it.

    Args:
        command: as it was given.
        which: its partition.
        running: what runs statements on the table.
        of: the table.
        stack: closes what is opened.
        spark: the session whose tasks look at many files and write them, where there is one.

    Raises:
        RefusedError: ClickHouse refuses it (its code and text).
        UnsupportedError: it needs what is not at hand.
        SourceError: ClickHouse does not start.
    """
    state, storages, source = of.found.load(), of.found.storages, of.source
    change, text, table = _change(command), _text(command, which), table_of(state)
    columns = columns_of_change(change, source.table.columns)
    refuse_change(change, columns, columns_set(change, columns), source, table)
    rows = stack.enter_context(RowChanges(source, storages, table.schema(), change))
    partitions = OwnPartitions(storages)
    if spark is None:
        looked = LookedFiles(rows, storages)
        files = ChangedFiles(storages, looked, FileFormat(), partitions=partitions)
    else:
        looker = FileLooker(source, table.schema(), change, storages)
        what = f"Cannot run {text} on {of.name}"
        tasks = ChangingInTasks(spark, what, state.location, storages, looker, stack)
        looked = LookedFiles(rows, storages, tasks.look)
        writes = partial(tasks.write, looked)
        files = ChangedFiles(
            storages, looked, FileFormat(), elsewhere=writes, partitions=partitions
        )
    ahead = None if spark is None else files.ahead
    # DELETE and CLEAR that are made twice are the same as once.
    asked = str(command) if isinstance(command, Update) else ""
    ports = replace(running.ports, rewrite=files, ahead=ahead, asked=asked)
    ready = replace(running, ports=ports)
    check = partial(partitions, state=state)
    verb = _VERBS[type(command)]
    schema_id = state.layout.schema_id
    return ready, ChangeRows(which, _KINDS[type(command)], text, looked, schema_id, verb, check)


def _change(command: ChangesRows) -> RowChange:
    text = str(replace(command, partition=None))
    match command:
        case Update(assignments, where):
            expressions = (where, *(value for _, value in assignments))
            _refuse_outside(text, expressions)
            reads = frozenset[str]().union(*(columns_of(one) for one in expressions))
            sets = frozenset(name for name, _ in assignments)
            return RowChange(text, render_expression(where), reads, sets)
        case Delete(where):
            _refuse_outside(text, (where,))
            return RowChange(text, render_expression(where), columns_of(where), frozenset())
        case ClearColumn(column):
            sets = frozenset({".".join(column.parts)})
            return RowChange(text, "", frozenset(), sets, to_default=True)


def _text(command: ChangesRows, which: OnePartition | AllPartitions) -> str:
    """Return the statement as the ledger and the snapshot keep it.

    Without its values: what was deleted because nobody is to have it must not be kept there.
    """
    place = f" IN {which}" if isinstance(which, OnePartition) else ""
    match command:
        case Update(assignments):
            return f"UPDATE {', '.join(name for name, _ in assignments)}{place}"
        case Delete():
            return f"DELETE{place or ' IN PARTITION ALL'}"
        case ClearColumn(column):
            return f"CLEAR COLUMN {column}{place}"


def _refuse_outside(text: str, expressions: tuple[Expression, ...]) -> None:
    """Refuse functions that read anything but the row.

    Raises:
        UnsupportedError: there is one.
    """
    for one in expressions:
        refuse_outside(f"run {text}", one, "Compute the value first.")


@dataclass(frozen=True, slots=True)
class MergingInTasks:
    """Merges files in tasks, where that is worth it; a `MergesElsewhere`.

    `what` begins messages: what cannot be done.
    """

    spark: SparkSession
    what: str
    storages: Storages
    source: RememberedSource
    merge: RowMerge

    def __call__(
        self, writer: MergeWriter, groups: tuple[Merged, ...], look: Callable[[], None]
    ) -> tuple[tuple[Rewritten, ...], ...] | None:
        """Merge groups of files; None where they are better merged here.

        Raises:
            StoppedError: `look` says so.
            TableFormatError: the error of the first group that has one, or Spark failed.
        """
        files = tuple(file for one in groups for file in one.of.files)
        if len(groups) == 1 or not is_worth_tasks(self.spark, files):
            return None
        places = (place.directory for one in groups for place in one.places)
        locations = (*(file.path for file in files), *places)
        sent = sent_storages(self.spark, self.storages, locations)
        form = writer.schema, writer.format, writer.order
        work = HostMerger(self.source, self.merge, sent, *form)
        return write_in_tasks(self.spark, self.what, groups, _merge_cost, work, look)


def _merge_cost(one: Merged) -> int:
    return cost_of(one.of.files)


_TARGET: Final = "write.target-file-size-bytes"
_MERGES_NOTHING: Final = "MergeTree"
_COMPUTED: Final = ("MATERIALIZED", "ALIAS")


def optimizing(
    command: Optimize,
    which: OnePartition | AllPartitions,
    running: Running,
    of: RememberingTable,
    stack: ExitStack,
    spark: SparkSession | None = None,
) -> tuple[Running, Optimizing]:
    """Return OPTIMIZE of a partition, or of all, and what runs it.

    Args:
        command: as it was given.
        which: its partition.
        running: what runs statements on the table.
        of: the table.
        stack: closes what is opened.
        spark: the session whose tasks merge where all rows are left, where there is one.

    Raises:
        RefusedError: the table's target size of files is none, or a partition field is made of what
            the merge computes (code 420).
        UnsupportedError: it needs what is not at hand.
    """
    state, storages, table = of.found.load(), of.found.storages, of.source.table
    text = _optimize_text(command, which)
    merges = command.final and table.engine.family != _MERGES_NOTHING
    merge = RowMerge(text, merges, _same_by(command.deduplicate, table))
    lake = table_of(state)
    rows = stack.enter_context(MergedRows(of.source, storages, lake.schema(), merge))
    refuse_merged_columns(merge, rows.computed, of.source, lake)
    size = _target(of, state)
    files = MergedFiles(
        storages, rows, FileFormat(target_file_bytes=size), _order(of.source, state)
    )
    ready = replace(running, ports=replace(running.ports, rewrite=files))
    # Which rows others leave is found out here, so that it need not be found out again.
    if spark is not None and merge.leaves_all:
        what = f"Cannot run {text} on {of.name}"
        files = replace(files, elsewhere=MergingInTasks(spark, what, storages, of.source, merge))
        ready = replace(running, ports=replace(running.ports, rewrite=files, ahead=files.ahead))
    left = None if merge.leaves_all else rows
    return ready, Optimizing(which, text, state.layout.schema_id, size, left)


def _optimize_text(command: Optimize, which: OnePartition | AllPartitions) -> str:
    by = command.deduplicate
    words = (
        "OPTIMIZE TABLE",
        str(which) if isinstance(which, OnePartition) else "",
        "FINAL" if command.final else "",
        "" if by is None else render_deduplicate(by),
    )
    return " ".join(word for word in words if word)


def _same_by(by: Deduplicate | None, table: MergeTreeTable) -> tuple[str, ...]:
    """Return the columns by which rows are the same, () without DEDUPLICATE."""
    if by is None:
        return ()
    if by.columns:
        return by.columns
    return tuple(
        c.name
        for c in table.stored_columns
        if not by.star or (c.default_kind not in _COMPUTED and c.name not in by.without)
    )


def _target(of: RememberingTable, state: LakeTableState) -> int:
    """Return the size of files that the table wants, in bytes.

    Raises:
        RefusedError: what it says is no size.
    """
    said = state.properties.get(_TARGET, "")
    if not said:
        return FileFormat().target_file_bytes
    if said.isdecimal() and int(said):
        return int(said)
    message = (
        f"Cannot optimize {of.name}: its property {_TARGET} is {said!r}, and no number of bytes. "
        "Set it to one."
    )
    raise RefusedError(message)


def _order(source: RememberedSource, state: LakeTableState) -> RowOrder:
    """Return what files may be declared to be sorted by, as those of an export are."""
    table, mapped = table_of(state), map_columns(source.table, source.conversions)
    schema, order = table.schema(), table.sort_order()
    there = {field.name for field in schema.fields}
    prefix = tuple(takewhile(lambda f: f.field.column in there, sort_prefix(source.table, mapped)))
    declared = order.order_id if same_order(prefix, order, schema) else None
    return RowOrder(file_order(prefix, schema), declared)


_OF_COLUMN: Final = re.compile(r"bloom_filter\((.+)\)")


def clearing_index(
    command: ClearIndex,
    which: OnePartition | AllPartitions,
    running: Running,
    of: RememberingTable,
) -> tuple[Running, Clearing]:
    """Return CLEAR INDEX of a partition, or of all, and what runs it.

    Args:
        command: as it was given.
        which: its partition.
        running: what runs statements on the table.
        of: the table.

    Raises:
        RefusedError: there is no such index (code 36).
    """
    state, storages = of.found.load(), of.found.storages
    table = table_of(state)
    names, unmoved = _columns(command, of)
    ids = frozenset(
        field.field_id
        for field in table.schema().fields
        if any(f"{name}.".startswith(f"{field.name}.") for name in names)
    )
    filtered = FilteredFiles(storages, ids)
    files = ChangedFiles(storages, filtered, FileFormat(), without=ids)
    place = f" IN {which}" if isinstance(which, OnePartition) else ""
    text = f"CLEAR INDEX {command.index}{place}"
    ready = replace(running, ports=replace(running.ports, rewrite=files))
    return ready, Clearing(which, text, filtered, state.layout.schema_id, unmoved)


def _columns(command: ClearIndex, of: RememberingTable) -> tuple[frozenset[str], str]:
    """Return the columns whose filters are those of an index, or of `bloom_filter(column)`.

    With what is said where files have none of them.

    Raises:
        RefusedError: there is no such index or column (code 36).
    """
    name, table = ".".join(command.index.parts), of.source.table
    if (column := _OF_COLUMN.fullmatch(name)) and any(c.name == column[1] for c in table.columns):
        return frozenset({column[1]}), f"no file of it has a bloom filter of {column[1]}"
    for index in table.indices:
        if index.name == name:
            return _of_index(index, table.indices)
    if command.if_exists:
        return frozenset(), ""
    known = ", ".join(index.name for index in table.indices) or "none"
    message = (
        f"Cannot run CLEAR INDEX {command.index} on {of.name}: it has no such index. Of its "
        f"ClickHouse table it remembers these: {known}. Name one of them, or `bloom_filter(c)` for "
        "the bloom filters of a column c."
    )
    raise RefusedError(message, code=BAD_ARGUMENTS)


def _of_index(index: SkipIndex, indices: tuple[SkipIndex, ...]) -> tuple[frozenset[str], str]:
    """Return the columns whose filters are those of this index and of no other one.

    A filter that another index has, too, stays with that one.
    """
    what = f"index {index.name} is {index.type_text} of {index.expression}"
    told = single_value_columns(index)
    if not told:
        return told, (
            f"{what}, which data files have no filters of: they hold the bloom filters of columns"
        )
    others = frozenset[str]().union(
        *(single_value_columns(other) for other in indices if other.name != index.name)
    )
    if not told - others:
        return frozenset(), f"{what}, and its filters are those of another index, too"
    return told - others, f"{what}, and no file of it has a bloom filter of that"
