"""Tables of ClickHouse over objects: where they are, and how ClickHouse divides them.

`engine_full` has the arguments of the engine as they were given, secrets hidden. Nothing of it is
shown: an access key is no secret there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.connection import Connection, text, texts
from catalog.clickhouse.describe import of_table
from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_text import parse_expression
from tableformat.names import TableName

__all__ = ["ObjectTable", "object_table"]

_HIVE: Final = "hive"


@dataclass(frozen=True, slots=True)
class ObjectTable:
    """A table over objects; `address` is '' where a named collection has it.

    `is_hive` tells that its rows are in directories `column=value` (`partition_strategy`).
    """

    engine: str
    address: str
    format: str
    is_hive: bool
    partition_by: str
    columns: tuple[str, ...]


def object_table(connection: Connection, name: TableName) -> ObjectTable | None:
    """Return a table over objects; None when there is none, or its engine is of another kind.

    Raises:
        SourceError: the source cannot be read.
    """
    found = connection.rows(
        f"SELECT engine_full FROM system.tables WHERE {of_table(name, column='name')}"
    )
    if not found:
        return None
    try:
        engine = parse_engine(text(found[0][0]))
        whole = parse_expression(f"tuple({engine.arguments})")
    except (UsageError, UnsupportedError):
        # What is not written like functions of literals is no engine of this kind.
        return None
    given = whole.arguments if isinstance(whole, Call) else ()
    options = _options(given)
    first = given[0] if given else None
    columns = texts(connection, f"SELECT name FROM system.columns WHERE {of_table(name)}")
    return ObjectTable(
        engine.name,
        first.value if isinstance(first, Literal) and isinstance(first.value, str) else "",
        options.get("format", ""),
        options.get("partition_strategy", "").lower() == _HIVE,
        engine.partition_by,
        columns,
    )


def _options(given: tuple[Expression, ...]) -> Mapping[str, str]:
    """Return the arguments that are given by name, as texts."""
    found = {}
    for one in given:
        match one:
            case Call("equals", (ColumnName(name), Literal(str(value)))):
                found[name] = value
            case _:
                pass
    return found
