"""UPDATE, DELETE and CLEAR COLUMN on a lake table: what ClickHouse is asked, and what writes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from pyspark.sql import SparkSession

from catalog.changed_files import ChangedFiles
from catalog.clickhouse.row_changes import RowChanges
from catalog.file_partitions import OwnPartitions
from catalog.looked_files import FileLooker, LookedFiles
from spark_ext.operations.changing_in_tasks import ChangingInTasks
from spark_ext.operations.other_tables import RememberingTable
from spark_ext.sql.statement_text import render_command
from spark_ext.sql.statements import ClearColumn, Delete, Update
from tableformat.iceberg.row_change_limits import refuse_change
from tableformat.iceberg.snapshot import table_of
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.expression_text import columns_of, render_expression
from tableformat.mergetree.row_change import RowChange, columns_of_change, columns_set
from tableformat.mergetree.row_functions import refuse_outside
from tableformat.operations.change_rows import ChangeRows
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition
from tableformat.parquet.file_format import FileFormat

__all__ = ["ChangesRows", "changing"]

ChangesRows: TypeAlias = Update | Delete | ClearColumn
"""The commands that change rows."""
_VERBS: Final = {Update: "updated", Delete: "deleted", ClearColumn: "cleared"}


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
    lies = OwnPartitions(storages)
    if spark is None:
        looked = LookedFiles(rows, storages)
        files = ChangedFiles(storages, looked, FileFormat(), lies=lies)
    else:
        looker = FileLooker(source, table.schema(), change, storages)
        what = f"Cannot run {text} on {of.name}"
        tasks = ChangingInTasks(spark, what, state.location, storages, looker, stack)
        looked = LookedFiles(rows, storages, tasks.look)
        writes = partial(tasks.write, looked)
        files = ChangedFiles(storages, looked, FileFormat(), elsewhere=writes, lies=lies)
    ahead = None if spark is None else files.ahead
    # DELETE and CLEAR that are made twice are the same as once.
    asked = render_command(command) if isinstance(command, Update) else ""
    ports = replace(running.ports, rewrite=files, ahead=ahead, asked=asked)
    ready = replace(running, ports=ports)
    check = partial(lies, state=state)
    verb = _VERBS[type(command)]
    return ready, ChangeRows(which, text, looked, state.layout.schema_id, verb, check)


def _change(command: ChangesRows) -> RowChange:
    text = render_command(replace(command, partition=None))
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
