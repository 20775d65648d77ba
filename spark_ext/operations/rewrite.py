"""Statements that rewrite lake files: UPDATE, DELETE, CLEAR COLUMN, CLEAR INDEX and OPTIMIZE.

- UPDATE, DELETE and CLEAR COLUMN: ClickHouse computes which files change, and their new rows.
- OPTIMIZE TABLE: groups of files are merged; ClickHouse determines the rows that stay.
- CLEAR INDEX: files are written without the bloom filters of an index.

UPDATE, DELETE, CLEAR COLUMN and OPTIMIZE run in this process or in tasks of a Spark session, with
the same code; a session handles more files, or more groups of files, at a time. A few small files
are faster in the current process (`is_worth_tasks`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Final, TypeAlias, TypeVar

from pyspark.sql import SparkSession

from catalog.processes import ScratchDirectory
from catalog.rewriting.changed_rows import (
    ChangedFiles,
    FileLooker,
    FileRewrite,
    FileWriter,
    FilteredFiles,
    Looked,
    LookedFiles,
    RowChanges,
)
from catalog.rewriting.file_partitions import OwnPartitions
from catalog.rewriting.merged_files import (
    HostMerger,
    Merged,
    MergedFiles,
    MergedRows,
    MergeWriter,
    RowOrder,
)
from catalog.storages.schemes import Storages
from spark_ext.engine.jobs import (
    TaskDirectory,
    in_tasks,
    is_worth_tasks,
    sent_storages,
    task_directory,
)
from spark_ext.operations.tables import RememberingTable
from spark_ext.sql.clauses import Deduplicate
from spark_ext.sql.grammar import render_deduplicate
from spark_ext.sql.statements import ClearColumn, ClearIndex, Delete, Optimize, Update
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import RefusedError, SourceError, StoppedError
from tableformat.iceberg.copied_files import Rewritten
from tableformat.iceberg.properties import RememberedSource, single_value_columns
from tableformat.iceberg.row_change_limits import refuse_change, refuse_merged_columns
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.schema_evolution import as_wide_as
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.sort_order import file_order, same_order, sort_prefix
from tableformat.ledger import StatementKind
from tableformat.mergetree.expression import Expression, columns_of, render_expression
from tableformat.mergetree.final_merge import RowMerge
from tableformat.mergetree.row_change import RowChange, columns_of_change, columns_set
from tableformat.mergetree.row_functions import refuse_outside
from tableformat.mergetree.table import MergeTreeTable, SkipIndex
from tableformat.operations.rewrite import ChangeRows, ChangingKind
from tableformat.operations.rewrite import ClearIndex as Clearing
from tableformat.operations.rewrite import Optimize as Optimizing
from tableformat.operations.run import Running
from tableformat.operations.statement import AllPartitions, FileRewriter, OnePartition
from tableformat.parquet.writer import FileFormat, file_format

__all__ = [
    "ChangesRows",
    "ChangingInTasks",
    "MergingInTasks",
    "changing",
    "clearing_index",
    "cost_of",
    "optimizing",
    "write_in_tasks",
]

T = TypeVar("T")
R = TypeVar("R")

# The fixed cost of one more file, in bytes to read.
_FILE_COST_BYTES: Final = 1024 * 1024


def cost_of(files: Iterable[BranchFile]) -> int:
    """Return the cost of rewriting files, in bytes to read."""
    return sum(file.bytes + _FILE_COST_BYTES for file in files)


def write_in_tasks(
    spark: SparkSession,
    what: str,
    items: Sequence[T],
    cost: Callable[[T], int],
    work: Callable[[Iterable[T]], Iterator[R]],
    look: Callable[[], None],
) -> tuple[R, ...]:
    """Write files for claims in Spark tasks, with `in_tasks`.

    Raises:
        StoppedError: `look` raised it, because the files are not needed any more.
        TableFormatError: the error of the first item that has one, or Spark failed.
    """
    watched = _Watched(look)
    try:
        return in_tasks(spark, what, items, cost, work, watched)
    except StoppedError as error:
        if watched.stopped:
            raise
        # `look` raised no error, so that no process has taken over the claims: the Spark job was
        # cancelled.
        raise SourceError(error.message) from error


@dataclass(slots=True)
class _Watched:
    """Calls `look`, and records whether it raised StoppedError."""

    look: Callable[[], None]
    stopped: bool = False

    def __call__(self) -> None:
        """Call `look`.

        Raises:
            StoppedError: `look` raised it.
        """
        try:
            self.look()
        except StoppedError:
            self.stopped = True
            raise


@dataclass(frozen=True, slots=True)
class _Writing:
    """The function that rewrites files on an executor, one after the other."""

    write: FileWriter

    def __call__(self, rewrites: Iterable[FileRewrite]) -> Iterator[Rewritten]:
        """Rewrite the files."""
        with ScratchDirectory("change") as scratch:
            yield from map(partial(self.write, scratch=scratch.path), rewrites)


@dataclass(slots=True)
class ChangingInTasks:
    """Finds and rewrites changed files in Spark tasks, if that is faster than in this process.

    `what` is the beginning of error messages, "Cannot ...". `looker` examines a file, as in this
    process. `stack` removes the temporary files below `table_location` or on this host.
    """

    spark: SparkSession
    what: str
    table_location: str
    storages: Storages
    looker: FileLooker
    stack: ExitStack
    _directory: TaskDirectory | None = None

    def look(self, files: tuple[BranchFile, ...]) -> tuple[Looked, ...] | None:
        """Examine files for changes; return None if this process should examine them.

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
        rewrites: tuple[FileRewrite, ...],
        look: Callable[[], None],
    ) -> tuple[Rewritten, ...] | None:
        """Rewrite files; return None if this process should rewrite them.

        Raises:
            StoppedError: `look` raised it.
            TableFormatError: the error of the first file that has one, or Spark failed.
        """
        files = tuple(file for one in rewrites for file in one.of.files)
        kept = looked.kept
        at = {file.path: kept.at[file.path] for file in files}
        if not is_worth_tasks(self.spark, files) or not self._is_reached(at.values()):
            return None
        places = (*at, *at.values(), *(one.place.directory for one in rewrites))
        sent = sent_storages(self.spark, self.storages, places)
        left = replace(kept, at=at, storages=sent)
        work = _Writing(replace(writer, storages=sent, changes=left))
        return write_in_tasks(self.spark, self.what, rewrites, _rewrite_cost, work, look)

    def _is_reached(self, locations: Iterable[str]) -> bool:
        """Whether tasks can read the changed rows, some of which this process may have found."""
        made = self._directory
        if made is None:
            return False
        return made.at_hand or all(one.startswith(f"{made.location}/") for one in locations)


def _cost(file: BranchFile) -> int:
    return cost_of((file,))


def _rewrite_cost(one: FileRewrite) -> int:
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
    """Prepare UPDATE, DELETE or CLEAR COLUMN.

    Args:
        command: the command.
        which: its partition, or all partitions.
        running: runs statements on the table.
        of: the table.
        stack: closes ClickHouse at its end.
        spark: the session whose tasks examine and rewrite many or large files; None for none.

    Returns:
        The statement, and `running` with a function that rewrites files.

    Raises:
        RefusedError: ClickHouse refuses it, with its code and text.
        UnsupportedError: it reads anything but the row.
        SourceError: ClickHouse does not start.
    """
    state, storages = of.found.load(), of.found.storages
    change, text, table = _change(command), _text(command, which), table_of(state)
    # Expressions are evaluated over the types that the lake table has now.
    source = as_wide_as(of.source, table.schema())
    columns = columns_of_change(change, source.table.columns)
    refuse_change(change, columns, columns_set(change, columns), source, table)
    rows = stack.enter_context(RowChanges(source, storages, table.schema(), change))
    partitions, form = OwnPartitions(storages), _file_format(of, state)
    if spark is None:
        looked = LookedFiles(rows, storages)
        files = ChangedFiles(storages, looked, form, partitions=partitions)
    else:
        looker = FileLooker(source, table.schema(), change, storages)
        what = f"Cannot run {text} on {of.name}"
        tasks = ChangingInTasks(spark, what, state.location, storages, looker, stack)
        looked = LookedFiles(rows, storages, tasks.look)
        writes = partial(tasks.write, looked)
        files = ChangedFiles(storages, looked, form, elsewhere=writes, partitions=partitions)
    ahead = None if spark is None else files.ahead
    # Repeating DELETE or CLEAR changes nothing, so that only UPDATE must be recognized.
    asked = str(command) if isinstance(command, Update) else ""
    ports = replace(running.ports, writer=FileRewriter(files, ahead), asked=asked)
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
    """Return the statement for the ledger and the snapshot, without its values.

    Values may be the data that the statement deletes for privacy, and must not be kept there.
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
        UnsupportedError: an expression has such a function.
    """
    for one in expressions:
        refuse_outside(f"run {text}", one, "Compute the value first.")


@dataclass(frozen=True, slots=True)
class MergingInTasks:
    """Merges files in Spark tasks, if that is faster than in this process; a `MergesElsewhere`.

    `what` is the beginning of error messages, "Cannot ...".
    """

    spark: SparkSession
    what: str
    storages: Storages
    source: RememberedSource
    merge: RowMerge

    def __call__(
        self, writer: MergeWriter, groups: tuple[Merged, ...], look: Callable[[], None]
    ) -> tuple[tuple[Rewritten, ...], ...] | None:
        """Merge groups of files; return None if this process should merge them.

        Raises:
            StoppedError: `look` raised it.
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
    """Prepare OPTIMIZE.

    Args:
        command: the command.
        which: its partition, or all partitions.
        running: runs statements on the table.
        of: the table.
        stack: closes ClickHouse at its end.
        spark: the session whose tasks merge files if the merge keeps all rows; None for none.

    Returns:
        The statement, and `running` with a function that merges files.

    Raises:
        RefusedError: a write property has a value that it cannot have, or a partition field depends
            on a column that the merge computes (code 420).
        UnsupportedError: the merge of this engine is not supported.
    """
    state, storages = of.found.load(), of.found.storages
    lake, text = table_of(state), _optimize_text(command, which)
    of = replace(of, source=as_wide_as(of.source, lake.schema()))
    table = of.source.table
    merges = command.final and table.engine.family != _MERGES_NOTHING
    merge = RowMerge(text, merges, _same_by(command.deduplicate, table))
    rows = stack.enter_context(MergedRows(of.source, storages, lake.schema(), merge))
    refuse_merged_columns(merge, rows.computed, of.source, lake)
    form, order = _file_format(of, state), _order(of.source, state)
    partitions = OwnPartitions(storages)
    files = MergedFiles(storages, rows, form, order, partitions=partitions)
    ready = replace(running, ports=replace(running.ports, writer=FileRewriter(files)))
    # If the merge drops rows, this process determines which; tasks would have to repeat that.
    if spark is not None and merge.leaves_all:
        what = f"Cannot run {text} on {of.name}"
        files = replace(files, elsewhere=MergingInTasks(spark, what, storages, of.source, merge))
        ready = replace(
            running, ports=replace(running.ports, writer=FileRewriter(files, files.ahead))
        )
    left = None if merge.leaves_all else rows
    partition_of = partial(partitions, state=state)
    size = form.target_bytes
    return ready, Optimizing(which, text, state.layout.schema_id, size, left, partition_of)


def _file_format(of: RememberingTable, state: LakeTableState) -> FileFormat:
    """Return the settings of a table's data files.

    Raises:
        RefusedError: a property of the table has a value that it cannot have.
    """
    return file_format(FileFormat(), state.properties, of.name)


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
    """Return the columns by which DEDUPLICATE compares rows; () without DEDUPLICATE."""
    if by is None:
        return ()
    if by.columns:
        return by.columns
    return tuple(
        c.name
        for c in table.stored_columns
        if not by.star or (c.default_kind not in _COMPUTED and c.name not in by.without)
    )


def _order(source: RememberedSource, state: LakeTableState) -> RowOrder:
    """Return the sort order of merged files, as in an export."""
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
    """Prepare CLEAR INDEX.

    Args:
        command: the command.
        which: its partition, or all partitions.
        running: runs statements on the table.
        of: the table.

    Returns:
        The statement, and `running` with a function that rewrites files.

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
    partitions = OwnPartitions(storages)
    form = _file_format(of, state)
    files = ChangedFiles(storages, filtered, form, without=ids, partitions=partitions)
    place = f" IN {which}" if isinstance(which, OnePartition) else ""
    text = f"CLEAR INDEX {command.index}{place}"
    ready = replace(running, ports=replace(running.ports, writer=FileRewriter(files)))
    partition_of = partial(partitions, state=state)
    return ready, Clearing(which, text, filtered, state.layout.schema_id, unmoved, partition_of)


def _columns(command: ClearIndex, of: RememberingTable) -> tuple[frozenset[str], str]:
    """Return the columns whose bloom filters belong to an index or to `bloom_filter(column)`.

    The second value is the message for a partition whose files have no such filter.

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
        f"Cannot run CLEAR INDEX {command.index} on {of.name}: it has no such index. It records "
        f"these of its ClickHouse table: {known}. Name one of them, or `bloom_filter(c)` for the "
        "bloom filters of a column c."
    )
    raise RefusedError(message, code=BAD_ARGUMENTS)


def _of_index(index: SkipIndex, indices: tuple[SkipIndex, ...]) -> tuple[frozenset[str], str]:
    """Return the columns whose bloom filters belong to this index only, with the message.

    A filter that belongs to another index too is kept.
    """
    what = f"index {index.name} is {index.type_text} of {index.expression}"
    columns = single_value_columns(index)
    if not columns:
        return columns, (
            f"{what}, which data files have no filters of: they hold the bloom filters of columns"
        )
    others = frozenset[str]().union(
        *(single_value_columns(other) for other in indices if other.name != index.name)
    )
    if not columns - others:
        return frozenset(), f"{what}, and its filters are those of another index, too"
    return columns - others, f"{what}, and no file of it has a bloom filter of that"
