"""The procedure behind ClickHouse's statements: Java hands over a text that Spark refused.

EXPORT is answered here, and whatever a ClickHouse table is asked to do goes to its ClickHouse where
the source allows that. An operation on lake tables that does not exist yet says so by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Final, assert_never

from spark_ext.killing import KilledPartition, kill_in_session
from spark_ext.procedures.declared import Call, Parameter, Procedure, Rows, Value
from spark_ext.procedures.exporting import EXPORTED, exported_rows, without_figures
from spark_ext.sql.asked import asked_by, exports_of
from spark_ext.sql.background import begin_in_session
from spark_ext.sql.catalogs import names_of
from spark_ext.sql.exporting import export_in_session
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.names import Names
from spark_ext.sql.passing_on import run_by_clickhouse
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_settings import read_statement_settings
from spark_ext.sql.statement_text import render_command
from spark_ext.sql.statements import Alter, ChangeRows, KillQuery, Optimize, Statement
from spark_ext.sql.wording import in_statement
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError, UsageError
from tableformat.names import LakeName

__all__ = ["EXECUTE_ALTER", "refuse_on_lake_table"]


def _execute(call: Call) -> Rows:
    text = call.text("statement")
    statement = parse_statement(text)
    if statement is None:
        message = (
            f"Cannot read the statement {text[:60]!r}: it is none of ClickHouse's that are "
            "answered here. docs/reference/statements.md lists them."
        )
        raise UsageError(message)
    names = names_of(call.spark, call.conf)
    unused = _unused_ending(statement)
    if unused:
        warnings.warn(
            f"{unused} has no effect in Spark SQL: the answer is the statement's result, and "
            "nothing is written to a server's disk.",
            stacklevel=2,
        )
    if not isinstance(statement, Alter) or not exports_of(statement):
        return _pass_on_or_refuse(statement, names, call.conf)
    settings = read_statement_settings(statement, call.conf)
    asked = asked_by(statement, settings, names)
    export = export_in_session if settings.wait else begin_in_session
    return exported_rows(export(asked, call.spark, call.conf), in_statement)


def _pass_on_or_refuse(statement: Statement, names: Names, conf: Mapping[str, str]) -> Rows:
    """Let a ClickHouse run a statement about its table, kill queries, or refuse by name.

    Args:
        statement: one that exports nothing.
        names: how its names are looked up.
        conf: the settings of the session.

    Raises:
        UnsupportedError: it is about a table of the lake, and this operation is not there yet.
        TableFormatError: its ClickHouse, or the ledger, refuses it.
    """
    if isinstance(statement, KillQuery):
        killed = kill_in_session(statement.query_ids, conf, statement.mode)
        return tuple(_killed(one) for one in killed)
    table = names.table(statement.table.parts)
    if not isinstance(table, SourceTable):
        raise refuse_on_lake_table(statement, table)
    run_by_clickhouse(statement, statement.table.parts[0], table)
    return (without_figures("done", f"run by ClickHouse on {table.table}"),)


def _killed(one: KilledPartition) -> tuple[Value, ...]:
    row = one.row
    what = f"{row.claim.query_id}: {row.source_table} to {row.destination_table}"
    message = f"{what}: {in_statement(one.message)}"
    return without_figures(one.status.value, message, row.key.partition_id)


def refuse_on_lake_table(
    statement: Alter | Optimize | ChangeRows, table: LakeName
) -> UnsupportedError:
    """Return the refusal of an operation on a lake table that does not exist yet."""
    message = (
        f"Cannot run {_what(statement)} on the lake table {table}: this operation is not there "
        "yet, only EXPORT PARTITION writes to lake tables. Nothing was changed."
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)


def _what(statement: Alter | Optimize | ChangeRows) -> str:
    match statement:
        case Alter(_, commands):
            return ", ".join(render_command(one) for one in commands)
        case Optimize():
            return "OPTIMIZE TABLE"
        case ChangeRows(_, command):
            return f"{type(command).__name__.upper()} IN PARTITION"
        case _ as never:
            assert_never(never)


def _unused_ending(statement: Statement) -> str:
    """Return what of a statement shapes its answer on the command line only, '' for nothing."""
    unused = (
        *(("INTO OUTFILE",) if statement.ending.outfile is not None else ()),
        *(("FORMAT",) if statement.ending.format is not None else ()),
    )
    return " and ".join(unused)


EXECUTE_ALTER: Final = Procedure(
    name="execute_alter",
    description="Runs a ClickHouse statement: ALTER TABLE ... PARTITION, OPTIMIZE, KILL QUERY.",
    parameters=(Parameter("statement", "STRING", "the text of the statement"),),
    columns=EXPORTED,
    run=_execute,
)
