"""The procedure `execute_alter`, and the procedures for single statements on lake tables.

The JVM passes the text of a ClickHouse statement to `execute_alter`, which runs EXPORT itself.
`spark_ext.operations.operate` runs statements on lake tables. The table's own ClickHouse runs
statements about a ClickHouse table, if the source allows that.

The other procedures are generated from the list `spark_ext.sql.statements`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from catalog.rewriting.integrity import checks
from spark_ext.actions.cancel import KilledPartition, kill_in_session
from spark_ext.actions.export_ports import Places
from spark_ext.actions.logs import log_note
from spark_ext.operations.operate import Operation, operate, operation_of
from spark_ext.operations.spark_views import session_views
from spark_ext.operations.tables import OtherTables, SessionExports
from spark_ext.procedures.declarations import Call, Parameter, Procedure, Rows, Value
from spark_ext.procedures.export import (
    EXPORTED,
    LAKE_TABLE,
    exported_rows,
    report,
    without_figures,
)
from spark_ext.procedures.names import CallNames
from spark_ext.sql.arguments import Argument, GivenValue
from spark_ext.sql.catalogs import (
    names_of,
    open_named,
    open_session_ledger,
    refresh_errors,
    session_ledger,
)
from spark_ext.sql.export import KINDS_OF_STATUS, begin_in_session, export_in_session, joined
from spark_ext.sql.grammar import parse_statement, syntax_error_of
from spark_ext.sql.names import Names, Parts
from spark_ext.sql.session_settings import SessionSettings, SourceTable
from spark_ext.sql.statement_exports import (
    exports_of,
    refuse_temporary,
    requested_exports,
    run_by_clickhouse,
)
from spark_ext.sql.statement_reader import DottedName, shown_statement
from spark_ext.sql.statement_settings import read_operation_settings, read_statement_settings
from spark_ext.sql.statements import (
    TYPED,
    Alter,
    ChangeRows,
    KillQuery,
    MoveToTable,
    Optimize,
    Statement,
    TypedStatement,
)
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, SYNTAX_ERROR
from tableformat.errors import (
    DestinationError,
    TableFormatError,
    UnsupportedError,
    UsageError,
)
from tableformat.export.outcome import Outcome, Status
from tableformat.names import LakeName, split_identifiers

__all__ = ["EXECUTE_ALTER", "TYPED_PROCEDURES", "check_all_done", "run_on_lake", "statement_of"]


def _execute(call: Call) -> Rows:
    text = call.text("statement")
    statement = parse_statement(text)
    if statement is None:
        message = (
            f"Cannot read the statement {shown_statement(text)[:60]!r}: it is not about "
            "partitions of ClickHouse's or of the lake. docs/reference/statements.md lists the "
            "statements."
        )
        raise syntax_error_of(text) or UsageError(message, code=SYNTAX_ERROR)
    names = names_of(call.spark, call.conf, current=call.current)
    unused = _unused_ending(statement)
    if unused:
        warnings.warn(
            f"{unused} has no effect in Spark SQL: the statement returns its result as rows, and "
            "nothing is written to a server's disk.",
            stacklevel=2,
        )
    if not isinstance(statement, Alter) or not exports_of(statement):
        return _not_exporting(statement, names, call)
    settings = read_statement_settings(statement, call.conf)
    exports = requested_exports(statement, settings, names, call.tables)
    export = export_in_session if settings.wait else begin_in_session
    return exported_rows(export(exports, call.spark, call.conf))


def _not_exporting(statement: Statement, names: Names, call: Call) -> Rows:
    """Run a statement without EXPORT: in the lake, in ClickHouse, or KILL QUERY.

    Args:
        statement: the statement.
        names: the name resolution of the session.
        call: the call, with its session.

    Raises:
        TableFormatError: the statement is refused or fails.
    """
    if isinstance(statement, KillQuery):
        killed = kill_in_session(statement.query_ids, call.conf, statement.mode)
        return tuple(_killed(one) for one in killed)
    held = call.tables.get(".".join(statement.table.parts))
    refuse_temporary(statement, held)
    if held is not None:
        message = (
            f"Cannot run it on {held.table}: it is a table of an open session, on which only "
            "EXPORT, and ATTACH and REPLACE … FROM, run here. Run the statement in that session."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    table = names.table(statement.table.parts)
    if isinstance(table, SourceTable):
        run_by_clickhouse(statement, statement.table.parts[0], table)
        return (without_figures("done", f"run by ClickHouse on {table.table}"),)
    return exported_rows(run_on_lake(statement, table, names, call))


def run_on_lake(
    statement: Alter | Optimize | ChangeRows,
    table: LakeName,
    names: Names,
    call: Call,
    *,
    dry_run: bool = False,
) -> tuple[Outcome, ...]:
    """Run a statement on a lake table, and refresh the changed tables in the session.

    Args:
        statement: the statement.
        table: the lake table.
        names: the name resolution for other tables in the statement.
        call: the call, with its session.
        dry_run: only report the changes, and make none.

    Raises:
        TableFormatError: as for `check_all_done`.
    """
    operation = operation_of(statement)
    settings = read_operation_settings(operation, call.conf)
    lake = open_named(table.catalog, call.conf)
    address = session_ledger(SessionSettings.of(call.conf), lake)
    exports = SessionExports(call.spark, lambda place: Places(place, lake, address), settings)
    opened = partial(open_named, conf=call.conf)
    others = OtherTables(
        partial(_named, names, call.tables),
        opened,
        exports,
        allow_empty=settings.allow_empty,
        checks=checks(fast=settings.fast),
        sources=names.settings.sources,
        view=session_views(call.spark, call.conf, call.tables),
        spark=call.spark,
    )
    ended: list[Outcome] = []
    errors: list[TableFormatError] = []
    with contextlib.closing(open_session_ledger(call.conf, table.catalog)) as ledger:
        try:
            # One by one: a command that fails must not lose the outcomes of those before it.
            ended.extend(operate(operation, table, lake, ledger, log_note, others, dry_run=dry_run))
        except TableFormatError as error:
            errors.append(error)
        finally:
            for changed in (table, *_moved_to(operation, names)):
                errors.extend(refresh_errors(call.spark, changed))
    check_all_done(table, ended, errors, dry_run=dry_run)
    return tuple(ended)


_SAME: Final = frozenset({Status.UNCHANGED, Status.ALREADY_EXPORTED, Status.EMPTY})
"""The statuses of commands that succeeded and changed nothing."""
_KINDS: Final[Mapping[Status, type[TableFormatError]]] = {
    **KINDS_OF_STATUS,
    Status.FAILED: DestinationError,
}


def check_all_done(
    table: LakeName,
    ended: Sequence[Outcome],
    errors: Sequence[TableFormatError],
    *,
    dry_run: bool = False,
) -> None:
    """Check that all commands of a statement on a lake table succeeded.

    Args:
        table: the lake table.
        ended: the outcomes of the commands that were run.
        errors: the errors that ended the statement.
        dry_run: whether the outcomes are those of a dry run, which has changed nothing.

    Raises:
        TableFormatError: a command was refused or failed. The message has each reason, what the
            other commands changed, and the statements that undo it. The class is that of the worst
            error or status (docs/reference/spark-sql.md, Errors): a failure counts more than a
            refusal, because the same statement may cure it.
    """
    wrong = [_error_of(table, one) for one in ended if one.status.exit_code]
    found = sorted((*wrong, *errors), key=lambda error: isinstance(error, UsageError))
    if not found:
        return
    done = () if dry_run else tuple(one for one in ended if not one.status.exit_code)
    together = joined(found, _changes(table, done))
    if together is found[0]:
        raise together
    raise together from found[0]


def _error_of(table: LakeName, one: Outcome) -> TableFormatError:
    """Return the error for a command that did not succeed, with the class of its status."""
    why = one.message.rstrip(". ") or "no reason was given"
    message = f"Cannot change partition {one.partition_id} of {table}: {one.status.value}: {why}."
    return _KINDS.get(one.status, DestinationError)(message, code=one.code)


def _changes(table: LakeName, done: Sequence[Outcome]) -> str:
    """Return sentences on what the other commands changed, and how to undo it; '' for nothing."""
    changed = [one for one in done if one.status not in _SAME]
    if not changed:
        return ""
    each = " ".join(
        f"partition {one.partition_id}: {': '.join(filter(None, (one.status, report(one))))}."
        for one in changed
    )
    several = sum(bool(one.undo) for one in changed) > 1
    return (
        f"The statement has changed {table}: {each}{' Undo the last one first.' if several else ''}"
    )


def _named(names: Names, given: Mapping[str, SourceTable], parts: Parts) -> SourceTable | LakeName:
    """Return the table of a name: one of `given`, or one that the session resolves."""
    return given.get(".".join(parts)) or names.table(parts)


def _moved_to(statement: Operation, names: Names) -> tuple[LakeName, ...]:
    """Return the lake tables that a statement moves partitions to."""
    commands = statement.commands if isinstance(statement, Alter) else ()
    moves = (one for one in commands if isinstance(one, MoveToTable))
    found = (names.table(one.table.parts) for one in moves)
    return tuple(name for name in found if isinstance(name, LakeName))


def _killed(one: KilledPartition) -> tuple[Value, ...]:
    what = f"{one.query_id}: {one.row.source_table} to {one.row.destination_table}"
    message = f"{one.query_id if one.is_whole else what}: {one.message}"
    return without_figures(one.status.value, message, one.partition_id or None)


def _unused_ending(statement: Statement) -> str:
    """Return the clauses of a statement that only the command line applies, or ''."""
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


_DRY_RUN: Final = Parameter("dry_run", "BOOLEAN", "only report what would be done", "false")
_COMMENTS: Final[Mapping[str, str]] = {
    "partition_id": "the partition, or *",
    "status": "detached, attached, dropped, ..., unchanged, or empty: nothing was there; with "
    "dry_run detach, attach, drop, ...",
    "rows": "affected rows",
    "data_files": "their data files",
    "bytes": "their bytes; 0 if they are not recorded",
    "snapshot_id": "the snapshot that has it; NULL if none was needed",
    "transaction_id": "the export that it made; NULL if it made none",
}
_COLUMNS: Final = tuple(
    replace(column, comment=_COMMENTS.get(column.name, column.comment)) for column in EXPORTED
)


def statement_of(typed: TypedStatement, call: Call) -> Alter | Optimize:
    """Return the statement for a call of its procedure.

    Raises:
        UsageError: an argument is malformed, or arguments contradict each other.
    """
    values: dict[str, GivenValue] = {}
    for one in typed.arguments:
        values[one.name] = call.flag(one.name) if one.is_flag else call.text_or_none(one.name)
    table = DottedName(split_identifiers(call.text(LAKE_TABLE.name)))
    return typed.of(table, values, _spelled)


def _spelled(one: Argument) -> str:
    return f"`{one.name} => true`" if one.is_flag else f"`{one.name}`"


def _run(typed: TypedStatement, call: Call) -> Rows:
    names = CallNames.of(call)
    table = names.lake(LAKE_TABLE.name)
    statement, dry_run = statement_of(typed, call), call.flag(_DRY_RUN.name)
    ended = run_on_lake(statement, table, names.names, call, dry_run=dry_run)
    return exported_rows(ended, dry_run=dry_run)


def _parameter(one: Argument) -> Parameter:
    if one.is_flag:
        return Parameter(one.name, "BOOLEAN", one.description, "false")
    return Parameter(one.name, "STRING", one.description, None if one.is_required else "NULL")


def _procedure(typed: TypedStatement) -> Procedure:
    parameters = (LAKE_TABLE, *(_parameter(one) for one in typed.arguments), _DRY_RUN)
    return Procedure(typed.name, typed.description, parameters, _COLUMNS, partial(_run, typed))


TYPED_PROCEDURES: Final = tuple(_procedure(typed) for typed in TYPED.values())
"""One procedure for each typed statement."""
