"""What a procedure of `CALL <catalog>.system.<name>(...)` is: parameters, columns, and its run.

The Java side knows procedures by a JSON resource made of these values (`spark_ext.jvm.jar`);
everything is decided here. Conventions are those of Iceberg's own procedures: snake_case, `table`
first, named or positional arguments, counts in the output. `table` is a table of the lake, in the
call's catalog unless it names another, and `source` the ClickHouse table that belongs to it:

    CALL lake.system.export_partition(
        table => 'analytics.events', source => 'ch.db.events', partition_id => '202401')

Where a procedure only looks at one table of either side, `table` may be `ch.db.events` too.
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
"""A SQL value of an argument or an answer; timestamps are ISO text in JSON, arrays are tuples."""

Rows: TypeAlias = tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: `type` in Spark's DDL, `default` a SQL literal; without one it is required."""

    name: str
    type: str
    comment: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the answer: `type` in Spark's DDL."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call: in which session, `catalog` as it stands before `.system.`, and the arguments.

    `arguments` has every parameter by name, defaults filled in. `conf` are the SQL settings of the
    caller's session; they hold secrets, so no repr shows them. `source` is the table that the
    argument of that name stands for where no text can say it, `tables` those that names of a
    statement stand for. `current` is the session's catalog and then its namespace; where none is
    given, whatever they are when a name is looked up.
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
            InternalError: it is none; Spark coerces arguments to the types that are declared.
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
            InternalError: it is neither.
        """
        value = self.arguments[name]
        if not isinstance(value, bool):
            raise self._of_another_type(name)
        return value

    def number(self, name: str) -> int:
        """Return an argument that is a whole number.

        Raises:
            InternalError: it is none.
        """
        value = self.arguments[name]
        if not isinstance(value, int):
            raise self._of_another_type(name)
        return value

    def pairs(self, name: str) -> dict[str, str]:
        """Return an argument that is a map.

        Raises:
            InternalError: it is none.
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
    """A procedure: `run` returns the rows of its answer, or raises a `TableFormatError`."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    run: Callable[[Call], Rows]

    def check(self, arguments: Mapping[str, Value]) -> None:
        """Check that no argument is NULL whose default is not: what it would mean nobody said.

        Raises:
            UsageError: one is.
        """
        for one in self.parameters:
            if arguments[one.name] is None and one.default != "NULL":
                more = "" if one.default is None else ", or leave it out"
                message = f"Cannot call {self.name}: `{one.name}` is NULL. Give it a value{more}."
                raise UsageError(message)


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A table `mergeberg.system.<name>`: `run` returns all of its rows as they are now.

    Its call has no arguments, and `catalog` is the session's current one.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    run: Callable[[Call], Rows]
