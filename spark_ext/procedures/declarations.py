"""Declares procedures of `CALL <catalog>.system.<name>(...)` and system tables.

The jar has a JSON resource that is generated from these declarations (`spark_ext.jvm.jar`). The
conventions are those of Iceberg's own procedures: snake_case, `table`
first, named or positional arguments, counts in the output. `table` is a table of the lake, in the
call's catalog unless it names another, and `source` the ClickHouse table that belongs to it:

    CALL lake.system.export_partition(
        table => 'analytics.events', source => 'ch.db.events', partition_id => '202401')

If a procedure reads only one table, `table` may be a ClickHouse table such as `ch.db.events`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import SparkSession

from spark_ext.sql.session_settings import SourceTable
from tableformat.errors import InternalError, UsageError

__all__ = ["Call", "Column", "Parameter", "Procedure", "Rows", "SystemTable", "Value"]

Value: TypeAlias = str | int | float | bool | Mapping[str, str] | tuple[str, ...] | None
"""A SQL value of an argument or a result; timestamps are ISO text in JSON, arrays are tuples."""

Rows: TypeAlias = tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: `type` is a Spark DDL type, `default` a SQL literal or None if required."""

    name: str
    type: str
    comment: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result; `type` is a Spark DDL type."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a procedure: its session, catalog and arguments.

    `catalog` is the name before `.system.`. `arguments` has every parameter by name, with defaults
    filled in. `conf` has the SQL settings of the caller's session, with secrets, so that it is not
    in the repr. `source` is a Python object instead of the argument `source`, and `tables` are such
    objects for table names in a statement. `current` is the session's current catalog followed by
    its namespace; if None, they are read when a name is resolved.
    """

    spark: SparkSession
    catalog: str
    arguments: Mapping[str, Value]
    conf: Mapping[str, str] = field(repr=False)
    source: SourceTable | None = None
    current: tuple[str, ...] | None = None
    tables: Mapping[str, SourceTable] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return an argument that is a text.

        Raises:
            InternalError: it has another type, although Spark coerces arguments to their types.
        """
        value = self.arguments[name]
        if not isinstance(value, str):
            raise self._of_another_type(name)
        return value

    def text_or_none(self, name: str) -> str | None:
        """Return an argument that is a text or NULL."""
        return None if self.arguments[name] is None else self.text(name)

    def flag(self, name: str) -> bool:
        """Return an argument that is true or false.

        Raises:
            InternalError: it has another type.
        """
        value = self.arguments[name]
        if not isinstance(value, bool):
            raise self._of_another_type(name)
        return value

    def number(self, name: str) -> int:
        """Return an argument that is a whole number.

        Raises:
            InternalError: it has another type.
        """
        value = self.arguments[name]
        if not isinstance(value, int):
            raise self._of_another_type(name)
        return value

    def pairs(self, name: str) -> dict[str, str]:
        """Return an argument that is a map.

        Raises:
            InternalError: it has another type.
        """
        value = self.arguments[name]
        if not isinstance(value, Mapping):
            raise self._of_another_type(name)
        return dict(value)

    def _of_another_type(self, name: str) -> InternalError:
        message = (
            f"The argument `{name}` is {self.arguments[name]!r}; this is a bug, please report it."
        )
        return InternalError(message)


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure; `run` returns the rows of its result, or raises a `TableFormatError`."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    run: Callable[[Call], Rows]

    def check(self, arguments: Mapping[str, Value]) -> None:
        """Check that no argument is NULL, except parameters whose default is NULL.

        Raises:
            UsageError: another argument is NULL.
        """
        for one in self.parameters:
            if arguments[one.name] is None and one.default != "NULL":
                more = "" if one.default is None else ", or leave it out"
                message = f"Cannot call {self.name}: `{one.name}` is NULL. Give it a value{more}."
                raise UsageError(message)


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A table `mergeberg.system.<name>`; `run` returns all of its current rows.

    The `Call` of a system table has no arguments.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    run: Callable[[Call], Rows]
