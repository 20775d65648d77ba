"""The Python interface: `spark_ext.export_partition`, `export_partitions`, `sql` and statements.

It needs no jar: it runs the procedures of CALL, and the statements that the JVM would pass to
Python. Names, catalogs, sources and the ledger are those of the session.

The functions are generated from the procedures of CALL:

    spark_ext.export_partition(spark, "lake.n.events", "ch.db.events", partition_id="202401")
    spark_ext.detach_partition(spark, "lake.analytics.events", partition_id="202401")

Each function calls the procedure of its name, with the same parameters and defaults. All parameters
are keyword arguments, except the lake table and the ClickHouse table of an export. Type checkers
read `spark_ext/__init__.pyi`. `spark_ext.python_actions` has the other functions: `archive`,
`verify`, `check`, `exports`, `gc` and more.

`spark_ext.SessionTable` is a table of a ClickHouse session that the caller has open in this
process. The page for users is docs/reference/python-api.md.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from catalog.clickhouse.session import ChdbSession, check_session, find_table, open_session
from catalog.sources import SourcePlace
from spark_ext.procedures.declarations import Call, Parameter, Procedure, Rows, Value
from spark_ext.procedures.export import EXPORT_PARTITION, EXPORT_PARTITIONS
from spark_ext.procedures.statements import EXECUTE_ALTER, TYPED_PROCEDURES
from spark_ext.sql.catalogs import settings_of
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.messages import in_python, in_statement
from spark_ext.sql.session_settings import SourceTable
from tableformat.errors import TableFormatError, UsageError
from tableformat.names import split_identifiers

__all__ = [
    "FUNCTIONS",
    "OF_SESSIONS",
    "ExportedPartition",
    "Given",
    "SessionTable",
    "called",
    "called_rows",
    "in_words",
    "session_call",
    "sql",
]

_MOST_PARTS: Final = 2


@dataclass(frozen=True, slots=True)
class SessionTable:
    """A table of an open `chdb.session.Session`, as the source of an export.

    `table` is `database.table`, or a table without a database: a temporary table, or else a table
    of the session's current database. The session stays open and unchanged.
    """

    session: ChdbSession = field(repr=False)
    table: str

    def __post_init__(self) -> None:
        """Check the session and the name.

        Raises:
            UsageError: the session is not an open chdb session, or the name is malformed.
        """
        check_session(self.session)
        parts = split_identifiers(self.table)
        if len(parts) > _MOST_PARTS:
            message = (
                f"Cannot read the table {self.table!r} of a session: it has {len(parts)} parts. "
                "Write database.table; the session identifies the ClickHouse."
            )
            raise UsageError(message)

    def named(self) -> SourceTable:
        """Return the table in the form that exports expect.

        Raises:
            UsageError: the session is closed.
            SourceError: the session does not respond.
        """
        check_session(self.session)
        found = find_table(self.session, split_identifiers(self.table))
        place = SourcePlace("chdb:session", opened=lambda: open_session(self.session, found))
        return SourceTable(place, found.name)


OF_SESSIONS: Final = ("source", "from_table")
"""The arguments that accept a `SessionTable`."""
_BY_PLACE: Final = ("table", "source")
"""The positional arguments."""
_OF_PYTHON: Final = {"NULL": "None", "true": "True", "false": "False"}
_IN_SQL: Final = re.compile("|".join(rf"\b{literal}\b" for literal in _OF_PYTHON))

_TYPES: Final[Mapping[str, type]] = {
    "STRING": str,
    "BOOLEAN": bool,
    "INT": int,
    "BIGINT": int,
    "DOUBLE": float,
    "TIMESTAMP": datetime,
    "MAP<STRING, STRING>": Mapping,
}
Given: TypeAlias = Value | datetime | SessionTable
"""An argument of a function."""
_NO_TABLES: Final[Mapping[str, SessionTable]] = {}


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """The outcome of one partition, with the columns of the procedures' result.

    With `dry_run`, `status` is the action that would be taken. Without `wait`, it is `in_progress`
    if the export is still running.
    """

    partition_id: str
    status: str
    rows: int
    data_files: int
    bytes: int
    snapshot_id: int | None
    transaction_id: str | None
    message: str | None


def sql(
    spark: SparkSession, text: str, *, tables: Mapping[str, SessionTable] = _NO_TABLES
) -> DataFrame:
    """Run a ClickHouse statement about partitions, or any other statement with Spark.

    docs/reference/statements.md lists the ClickHouse statements; none of them is valid in Spark or
    Iceberg. CALL of mergeberg's procedures is a statement for Spark, and needs the jar.

    Args:
        spark: the session.
        text: one statement.
        tables: tables of open sessions, by the names that the statement uses for them, after FROM
            or as the exported table.

    Raises:
        UsageError: `tables` is given with a statement for Spark.
        TableFormatError: a ClickHouse statement cannot be parsed or run.
    """
    try:
        if parse_statement(text) is None:
            if tables:
                message = (
                    f"Cannot use tables {', '.join(tables)} in a statement of Spark: only EXPORT, "
                    "and ATTACH and REPLACE PARTITION … FROM, accept them. Leave tables out."
                )
                raise UsageError(message)
            return spark.sql(text)
        held = {name: table.named() for name, table in tables.items()}
        rows = EXECUTE_ALTER.run(replace(session_call(spark, {"statement": text}), tables=held))
    except TableFormatError as error:
        error.reword(in_statement)
        raise
    columns = ", ".join(f"{column.name} {column.type}" for column in EXECUTE_ALTER.columns)
    return spark.createDataFrame([*rows], columns)


def called(
    procedure: Procedure, spark: SparkSession, given: Mapping[str, Given]
) -> tuple[ExportedPartition, ...]:
    """Call a procedure that returns the outcomes of partitions.

    Args:
        procedure: the procedure.
        spark: the session.
        given: all arguments by name; some accept a `SessionTable` (`OF_SESSIONS`).

    Raises:
        UsageError: an argument has another type.
        TableFormatError: the procedure failed or was refused.
    """
    found = (ExportedPartition(*row) for row in called_rows(procedure, spark, given))  # type: ignore[arg-type]
    return tuple(replace(one, message=in_python(one.message or "") or None) for one in found)


def called_rows(procedure: Procedure, spark: SparkSession, given: Mapping[str, Given]) -> Rows:
    """Call a procedure, and return its rows; arguments and errors are those of `called`."""
    held: dict[str, SourceTable] = {}
    arguments: dict[str, Value] = {}
    for parameter in procedure.parameters:
        name, value = parameter.name, given[parameter.name]
        if isinstance(value, SessionTable) and name in OF_SESSIONS:
            held[name], value = value.named(), value.table
        arguments[name] = _checked(procedure, parameter, value)
    source = held.pop("source", None)
    if source is not None and not arguments.get("wait", True):
        message = (
            f"Cannot begin to export {source.table} with wait=False: its session may be closed "
            "before the export has ended. Leave wait out, or call from a thread of your own."
        )
        raise UsageError(message)
    tables = {str(arguments[name]): table for name, table in held.items()}
    with in_words():
        return procedure.run(replace(session_call(spark, arguments), source=source, tables=tables))


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Reword errors with the parameters of Python functions."""
    try:
        yield
    except TableFormatError as error:
        error.reword(in_python)
        raise


def _checked(procedure: Procedure, parameter: Parameter, value: Given) -> Value:
    """Return an argument in the form of CALL, after a check of its type as in Spark.

    Raises:
        UsageError: the argument has another type.
    """
    wanted = _TYPES[parameter.type]
    if value is None and parameter.default == "NULL":
        return value
    if isinstance(value, datetime) and wanted is datetime:
        return value.isoformat()
    taken = (int, float) if wanted is float else wanted
    fits = isinstance(value, taken) and isinstance(value, bool) == (wanted is bool)
    if fits and not isinstance(value, SessionTable | datetime):
        return value
    message = (
        f"Cannot call {procedure.name}: {parameter.name} is {value!r}, and {parameter.type} is "
        "expected."
    )
    raise UsageError(message)


def session_call(spark: SparkSession, arguments: Mapping[str, Value]) -> Call:
    """Return a call without a catalog of its own, so that the session's current one counts."""
    return Call(spark, "", arguments, settings_of(spark))


_Function: TypeAlias = Callable[..., tuple[ExportedPartition, ...]]
_LITERALS: Final[Mapping[str | None, object]] = {
    None: inspect.Parameter.empty,
    "NULL": None,
    "false": False,
    "true": True,
    "map()": {},
}
"""The Python values of defaults that are not numbers."""


def __getattr__(name: str) -> _Function:
    """Return a function by its name."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def _function(procedure: Procedure) -> _Function:
    signature = _signature(procedure)

    def run(*given: object, **named: object) -> tuple[ExportedPartition, ...]:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        arguments: dict[str, Given] = dict(bound.arguments)
        spark = arguments.pop("spark")
        return called(procedure, spark, arguments)  # type: ignore[arg-type]

    run.__name__ = run.__qualname__ = procedure.name
    run.__doc__ = _documented(procedure)
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def _signature(procedure: Procedure) -> inspect.Signature:
    positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter("spark", positional, annotation=SparkSession),
            *(
                _parameter(one, positional if one.name in _BY_PLACE else keyword)
                for one in procedure.parameters
            ),
        ],
        return_annotation=tuple[ExportedPartition, ...],
    )


def _parameter(one: Parameter, kind: inspect._ParameterKind) -> inspect.Parameter:
    takes: Any = Mapping[str, str] if _TYPES[one.type] is Mapping else _TYPES[one.type]
    if one.name in OF_SESSIONS:
        takes |= SessionTable
    if one.default == "NULL":
        takes |= None
    is_number = one.default is not None and one.default.isdecimal()
    default = int(one.default or 0) if is_number else _LITERALS[one.default]
    return inspect.Parameter(one.name, kind, default=default, annotation=takes)


def _documented(procedure: Procedure) -> str:
    arguments = "\n".join(f"    {one.name}: {_description(one)}." for one in procedure.parameters)
    return (
        f"{procedure.description}\n\nArgs:\n    spark: the session.\n{arguments}\n\n"
        "Raises:\n    TableFormatError: it cannot be done.\n"
    )


def _description(one: Parameter) -> str:
    """Return the description of a parameter, with Python's literals."""
    text = _IN_SQL.sub(lambda found: _OF_PYTHON[found[0]], one.comment)
    return f"{text}, or a SessionTable" if one.name in OF_SESSIONS else text


FUNCTIONS: Final[Mapping[str, _Function]] = {
    one.name: _function(one) for one in (EXPORT_PARTITION, EXPORT_PARTITIONS, *TYPED_PROCEDURES)
}
"""The functions by name."""
