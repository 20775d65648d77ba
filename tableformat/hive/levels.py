"""The levels of a tree's directories: how a value of the partition key is spelled in a name.

A reader takes the value of a column from the directory, also where the file has the column. So no
value may be spelled as a reader spells another one. What each reader does was seen on DuckDB,
Spark, PyArrow and Polars (docs/spec/hive.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StringType

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError
from tableformat.hive_names import HIVE_NULL, escape, spelled_name

__all__ = ["Level", "levels_of", "tree_directory", "why_no_directory"]

_LONGEST: Final = 255
"""Bytes of a name on the usual file systems."""
_NULL_OF_DUCKDB: Final = "null"
"""DuckDB takes a directory for NULL whose value is this word, in any case of letters."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of directories: the column's name and type."""

    name: str
    type: IcebergType


def levels_of(schema: Schema, spec: PartitionSpec) -> tuple[Level, ...]:
    """Return the levels of a tree from its root.

    Args:
        schema: of the tree.
        spec: has one identity field for each level.
    """
    return tuple(Level(f.name, schema.find_type(f.source_id)) for f in spec.fields)


def why_no_directory(level: Level, value: str | None) -> str:
    """Return '' for a value that readers take from its directory, else why they would not.

    Args:
        level: of the directory.
        value: as in `Receipt.partition`.
    """
    if not isinstance(level.type, StringType):
        return ""
    if value == "":
        return "is the empty text, whose directory is that of NULL"
    if value == HIVE_NULL:
        return f"is the text {HIVE_NULL}, whose directory is that of NULL"
    return ""


def tree_directory(levels: Sequence[Level], values: Sequence[str | None]) -> str:
    """Return the directory of a partition below the root, `eventDate=2024-01-01/retention=7`.

    Readers take the values from it, so that nothing is cut.

    Args:
        levels: of the tree, from the root.
        values: as in `Receipt.partition`.

    Raises:
        UnsupportedError: a name and value are longer than file systems take (code 48).
    """
    found = [
        f"{spelled_name(level.name)}={_spelled(value)}"
        for level, value in zip(levels, values, strict=True)
    ]
    for level, name in zip(levels, found, strict=True):
        if (size := len(name.encode())) > _LONGEST:
            message = (
                f"Cannot export a partition to a Hive directory: the name of its {level.name} is "
                f"{size} bytes long, file systems take {_LONGEST}. Export it to an Iceberg table."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    return "/".join(found)


def _spelled(value: str | None) -> str:
    # Trees of earlier releases have the empty text in the directory of NULL.
    if not value:
        return HIVE_NULL
    if value.casefold() == _NULL_OF_DUCKDB:
        return f"%{ord(value[0]):02X}{value[1:]}"
    return escape(value)
