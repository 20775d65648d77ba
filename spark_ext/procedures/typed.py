"""The procedures that are statements on lake tables, made from the list of `spark_ext.typed`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from spark_ext.procedures.declared import Call, Parameter, Procedure, Rows
from spark_ext.procedures.exporting import EXPORTED, exported_rows
from spark_ext.procedures.naming import CallNames
from spark_ext.procedures.parameters import LAKE_TABLE
from spark_ext.procedures.statements import run_on_lake
from spark_ext.sql.statements import Alter, DottedName, Optimize
from spark_ext.sql.wording import in_call
from spark_ext.typed.arguments import Argument, GivenValue
from spark_ext.typed.statements import TYPED, TypedStatement
from tableformat.errors import TableFormatError
from tableformat.names import split_identifiers

__all__ = ["TYPED_PROCEDURES", "statement_of"]

_DRY_RUN: Final = Parameter("dry_run", "BOOLEAN", "say what would be done, and do nothing", "false")
_COMMENTS: Final[Mapping[str, str]] = {
    "partition_id": "the partition, or *",
    "status": "detached, attached, dropped, ..., unchanged, or empty: nothing was there",
    "rows": "rows that it is about, or that changed",
    "data_files": "their data files",
    "bytes": "their bytes; 0 where nobody has noted them",
    "snapshot_id": "the snapshot that has it; NULL where none was needed",
    "transaction_id": "the export that it made; NULL where it made none",
}
_COLUMNS: Final = tuple(
    replace(column, comment=_COMMENTS.get(column.name, column.comment)) for column in EXPORTED
)


def statement_of(typed: TypedStatement, call: Call) -> Alter | Optimize:
    """Return the statement that a call of a typed procedure is.

    Raises:
        UsageError: an argument cannot be read, or they contradict each other.
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
    statement = statement_of(typed, call)
    try:
        ended = run_on_lake(statement, table, names.names, call, dry_run=call.flag(_DRY_RUN.name))
    except TableFormatError as error:
        error.message = typed.told(error.message, _spelled)
        error.args = (error.message,)
        raise
    return exported_rows(ended, in_call)


def _parameter(one: Argument) -> Parameter:
    if one.is_flag:
        return Parameter(one.name, "BOOLEAN", one.says, "false")
    return Parameter(one.name, "STRING", one.says, None if one.is_required else "NULL")


def _procedure(typed: TypedStatement) -> Procedure:
    parameters = (LAKE_TABLE, *(_parameter(one) for one in typed.arguments), _DRY_RUN)
    return Procedure(typed.name, typed.description, parameters, _COLUMNS, partial(_run, typed))


TYPED_PROCEDURES: Final = tuple(_procedure(typed) for typed in TYPED.values())
"""One procedure for each typed statement."""
