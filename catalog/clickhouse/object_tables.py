"""Tables of ClickHouse over objects: where they are, and how ClickHouse divides them.

`engine_full` has the arguments of the engine as they were given, secrets hidden. Nothing of it is
shown: an access key is no secret there. Engines say in their own ways that rows are in directories
`column=value`:

    S3, GCS           partition_strategy = 'hive', by name
    AzureBlobStorage  (connection or address, container, path, [account, key,] format, compression,
                      'hive'), by position
    HDFS              knows no strategy; a pattern of all Parquet files below a directory,
                      `hdfs://host:port/dir/**/*.parquet`, and PARTITION BY
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
_AZURE: Final = "AzureBlobStorage"
_HDFS: Final = "HDFS"
_BELOW: Final = ("/**/*.parquet", "/**.parquet")
_PLACE: Final = 3
"""Arguments of AzureBlobStorage that say where it is."""


@dataclass(frozen=True, slots=True)
class ObjectTable:
    """A table over objects; `address` is '' where a named collection has it.

    In Azure `address` is a connection string or that of an account, and `container` and `path` are
    there; in HDFS it is that of the directory. `is_hive` tells that its rows are in directories
    `column=value`.
    """

    engine: str
    address: str
    container: str
    path: str
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
    placed = _placed(engine.name, _texts(given), _options(given), divided=bool(engine.partition_by))
    columns = texts(connection, f"SELECT name FROM system.columns WHERE {of_table(name)}")
    return ObjectTable(engine.name, *placed, engine.partition_by, columns)


def _placed(
    engine: str, given: tuple[str, ...], options: Mapping[str, str], *, divided: bool
) -> tuple[str, str, str, str, bool]:
    """Return address, container, path and format, and whether the table is over directories."""
    first = given[0] if given else ""
    if engine == _AZURE and len(given) >= _PLACE:
        address, container, path, *rest = given
        # It stands behind the format and its compression.
        at = next((n for n, one in enumerate(rest) if n > 1 and one.lower() == _HIVE), None)
        return address, container, path, "" if at is None else rest[at - 2], at is not None
    if engine == _HDFS:
        below = next((first.removesuffix(end) for end in _BELOW if first.endswith(end)), "")
        return below, "", "", given[1] if len(given) > 1 else "", bool(below) and divided
    is_hive = options.get("partition_strategy", "").lower() == _HIVE
    return first, "", "", options.get("format", ""), is_hive


def _texts(given: tuple[Expression, ...]) -> tuple[str, ...]:
    """Return the arguments that are given by position, as texts; '' for any other."""
    unnamed = (one for one in given if not (isinstance(one, Call) and one.function == "equals"))
    return tuple(
        one.value if isinstance(one, Literal) and isinstance(one.value, str) else ""
        for one in unnamed
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
