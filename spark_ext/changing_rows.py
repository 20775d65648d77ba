"""UPDATE, DELETE and CLEAR COLUMN on a lake table: what ClickHouse is asked, and what writes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TypeAlias

from catalog.changed_files import ChangedFiles
from catalog.clickhouse.row_changes import RowChanges
from spark_ext.other_tables import RememberingTable
from spark_ext.sql.statement_text import render_command
from spark_ext.sql.statements import ClearColumn, Delete, Update
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.expression_text import columns_of, render_expression
from tableformat.mergetree.outside_of_row import functions_outside
from tableformat.mergetree.row_change import RowChange
from tableformat.operations.change_rows import ChangeRows
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition
from tableformat.parquet.file_format import FileFormat

__all__ = ["ChangesRows", "changing"]

ChangesRows: TypeAlias = Update | Delete | ClearColumn
"""The commands that change rows."""


def changing(
    command: ChangesRows,
    which: OnePartition | AllPartitions,
    running: Running,
    of: RememberingTable,
    stack: ExitStack,
) -> tuple[Running, ChangeRows]:
    """Return a statement that changes rows, and what runs it.

    Args:
        command: as it was given.
        which: its partition.
        running: what runs statements on the table.
        of: the table.
        stack: closes what is opened.

    Raises:
        RefusedError: ClickHouse refuses it (its code and text).
        UnsupportedError: it needs what is not at hand.
        SourceError: ClickHouse does not start.
    """
    state, storages = of.found.load(), of.found.storages
    change = _change(command)
    rows = stack.enter_context(RowChanges(of.source, storages, state, change))
    files = ChangedFiles(storages, rows, FileFormat())
    ready = replace(running, ports=replace(running.ports, rewrite=files))
    return ready, ChangeRows(which, _text(command, which), rows, state.layout.schema_id)


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
    # In the ClickHouse of our own that runs the statement they would be another thing.
    found = next((name for one in expressions for name in functions_outside(one)), None)
    if found is not None:
        message = (
            f"Cannot run {text}: the function {found} reads what is outside of the row, and a lake "
            "table has none of it. Compute the value first."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
