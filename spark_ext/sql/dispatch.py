"""Lists all procedures and system tables, and handles the JVM's requests for them.

`PROCEDURES` and `TABLES` are the lists, which the resource of the jar and the reference page use,
too. `respond` takes one JSON text, returns one, and never raises.

A request is `{"call": name, "catalog": text or null, "arguments": {...}}`, or `{"table": name,
"catalog": text}` for all rows of a system table. In both, `"user"` is the SQL user of the
statement, or null if it is unknown (`spark_ext.access`). A response is `{"rows": [[...], ...]}`, or
`{"error": {"kind", "message", "code", "sqlstate"}}` for an error that the user can fix. The error
of a bug also has `"traceback"`.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from pyspark.sql import SparkSession

from catalog.iceberg.catalogs import LOCAL_CATALOG
from spark_ext import system_tables
from spark_ext.access.check import check_access
from spark_ext.procedures.archive import ARCHIVE_PARTITION
from spark_ext.procedures.declarations import Call, Procedure, SystemTable
from spark_ext.procedures.export import EXPORT_PARTITION, EXPORT_PARTITIONS
from spark_ext.procedures.exports import CANCEL_EXPORT, EXPORTS, FORGET_EXPORT
from spark_ext.procedures.lake_tables import (
    CREATE_TABLE_LIKE,
    GC,
    PARTITIONS,
    PARTS,
    VERIFY_PARTITION,
)
from spark_ext.procedures.statements import EXECUTE_ALTER, TYPED_PROCEDURES
from spark_ext.sql.catalogs import current_of, settings_of
from spark_ext.sql.messages import in_call, in_statement
from tableformat.clickhouse_codes import ACCESS_DENIED
from tableformat.errors import (
    InternalError,
    NotFoundError,
    RefusedError,
    StoppedError,
    TableFormatError,
    UnsupportedError,
    UsageError,
)

__all__ = ["PROCEDURES", "TABLES", "interrupted", "respond", "worded", "words_of"]

PROCEDURES: Final[Mapping[str, Procedure]] = {
    procedure.name: procedure
    for procedure in (
        ARCHIVE_PARTITION,
        CANCEL_EXPORT,
        CREATE_TABLE_LIKE,
        EXECUTE_ALTER,
        EXPORTS,
        EXPORT_PARTITION,
        EXPORT_PARTITIONS,
        FORGET_EXPORT,
        GC,
        PARTITIONS,
        PARTS,
        VERIFY_PARTITION,
        *TYPED_PROCEDURES,
    )
}
"""The procedures by name."""

TABLES: Final[Mapping[str, SystemTable]] = {
    table.name: table
    for table in (
        system_tables.EVENTS,
        system_tables.METRICS,
        system_tables.PARTITIONS,
        system_tables.PARTS,
        system_tables.DETACHED_PARTS,
        system_tables.PART_LOG,
        system_tables.REPLICATED_PARTITION_EXPORTS,
    )
}
"""The system tables by name."""


_CANCELLED: Final = "57014"
_STATES: Final = (
    (NotFoundError, "42P01"),
    (UnsupportedError, "0A000"),
    (UsageError, "42000"),
    (StoppedError, _CANCELLED),
)
_DENIED: Final = "42501"
_OUTSIDE: Final = "58000"
_BUG: Final = "XX000"


def respond(request: str, spark: SparkSession) -> str:
    """Run a request in the caller's session; return rows or an error as JSON.

    Args:
        request: the request as JSON, in the form above.
        spark: the session of the statement.
    """
    try:
        asked = json.loads(request)
        words = words_of(asked.get("call"))
        return json.dumps({"rows": worded(_rows(asked, spark), words)})
    except InternalError as error:
        return _bug(error, error.message)
    except TableFormatError as error:
        found = (state for kind, state in _STATES if isinstance(error, kind))
        is_denied = isinstance(error, RefusedError) and error.code == ACCESS_DENIED
        state = _DENIED if is_denied else next(found, _OUTSIDE)
        return json.dumps({"error": _error(error, words(error.message), state, error.code)})
    except Exception as error:  # noqa: BLE001  Py4J would lose the traceback of a bug
        return _bug(error, f"{type(error).__name__}: {error}. This is a bug, please report it.")


def interrupted() -> str:
    """Return the response of a process that was interrupted during a request."""
    message = (
        "Cannot finish: the statement was interrupted. Finished work is kept; run the same "
        "statement again to continue."
    )
    return json.dumps({"error": _error(StoppedError(message), message, _CANCELLED, None)})


def _rows(request: dict[str, Any], spark: SparkSession) -> list[list[object]]:
    arguments = request.get("arguments", {})
    target = _target(request, arguments.keys())
    if isinstance(target, Procedure):
        target.check(arguments)
    conf = settings_of(spark)
    catalog = request["catalog"] or LOCAL_CATALOG
    # Read once, so that the access check and the statement use the same current catalog, even if
    # the session runs USE in between.
    call = Call(spark, catalog, arguments, conf, current=current_of(spark))
    check_access(target, call, request.get("user"))
    return [list(row) for row in target.run(call)]


def _target(request: dict[str, Any], arguments: AbstractSet[str]) -> Procedure | SystemTable:
    """Return the procedure or system table of a request.

    Raises:
        UsageError: the jar has other procedures or parameters than this Python package.
    """
    name = request.get("table") or request["call"]
    found = TABLES.get(name) if "table" in request else PROCEDURES.get(name)
    declared = {one.name for one in found.parameters} if isinstance(found, Procedure) else set()
    if found is None or arguments != declared:
        message = (
            f"Cannot run {name}: the jar in this Spark is of another version of mergeberg than the "
            f"Python at {sys.executable}. Start Spark with the settings that `python -m spark_ext` "
            "prints."
        )
        raise UsageError(message)
    return found


def words_of(procedure: str | None) -> Callable[[str], str]:
    """Return what writes the texts of a procedure, or of a system table, with the names of SQL."""
    return in_statement if procedure == EXECUTE_ALTER.name else in_call


def worded(value: Any, words: Callable[[str], str]) -> Any:
    """Return a value of a result with the names of SQL in its texts."""
    match value:
        case str():
            return words(value)
        case list() | tuple():
            return [worded(one, words) for one in value]
        case dict():
            return {name: worded(one, words) for name, one in value.items()}
        case _:
            return value


def _bug(error: Exception, message: str) -> str:
    fields = _error(error, message, _BUG, None)
    return json.dumps({"error": {**fields, "traceback": traceback.format_exc()}})


def _error(error: Exception, message: str, state: str, code: int | None) -> dict[str, object]:
    return {"kind": type(error).__name__, "message": message, "code": code, "sqlstate": state}
