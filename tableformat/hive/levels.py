"""Renders partition values as directory names, one level for each column of the partition key.

A reader takes the value of a column from the directory, even if the file has the column. So a
reader must not read a value's name as another value. The behaviour of DuckDB, Spark, PyArrow and
Polars was observed (docs/spec/hive.md).

The tree's properties store a spelling for each level of times and fixed texts:

    DateTime, DateTime64    UTC, UTC.3   as ClickHouse writes it, in UTC: `2024-01-31 10:00:00.250`
    FixedString             text-or-hex  the text without trailing zero bytes; all bytes in hex if
                                         it is not UTF-8, is empty or has a zero byte

A text is never longer than its bytes, and their hex is twice as long, so no text equals the hex of
another value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, IcebergType, StringType, TimestamptzType

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import Unable, UnsupportedError
from tableformat.file_names import HIVE_NULL, escape, spelled_name

__all__ = [
    "TEXT_OR_HEX",
    "Level",
    "levels_of",
    "remembered_spellings",
    "remembering_spellings",
    "spelled_in_utc",
    "tree_directory",
    "value_in_files",
    "why_no_directory",
]

_LONGEST: Final = 255
"""Bytes of a name on common file systems."""
_NULL_OF_DUCKDB: Final = "null"
"""DuckDB reads this word, in any case, as NULL."""

_PROPERTY: Final = "mergeberg.tree.spelling"
_UTC: Final = "UTC"
_MOST_DIGITS: Final = 6
_SECONDS: Final = len("2024-01-31 10:00:00")

TEXT_OR_HEX: Final = "text-or-hex"
"""The spelling of fixed texts."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of directories: the column's name, its type, and the spelling of its values.

    `spelling` is '' except for times and fixed texts.
    """

    name: str
    type: IcebergType
    spelling: str = ""

    @property
    def digits(self) -> int:
        """Fractional digits of a second."""
        return int(self.spelling.partition(".")[2] or 0)


def levels_of(
    schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]
) -> tuple[Level, ...]:
    """Return the levels of a tree from its root.

    Args:
        schema: of the tree.
        spec: has one identity field for each level.
        properties: of the tree.
    """
    spelled = remembered_spellings(properties)
    return tuple(
        Level(f.name, schema.find_type(f.source_id), spelled.get(f.name, "")) for f in spec.fields
    )


def spelled_in_utc(digits: int) -> str:
    """Return the spelling of times with this many fractional digits in ClickHouse.

    The lake has microseconds, so directories have at most six digits.
    """
    return f"{_UTC}.{min(digits, _MOST_DIGITS)}" if digits else _UTC


def remembering_spellings(spelled: Mapping[str, str]) -> dict[str, str]:
    """Return the property that stores a tree's spellings by level; none without spellings."""
    return {_PROPERTY: json.dumps(dict(spelled))} if spelled else {}


def remembered_spellings(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the spellings that a tree's properties store, by level."""
    found: dict[str, str] = json.loads(properties.get(_PROPERTY, "{}"))
    return found


def why_no_directory(level: Level, value: str | None) -> str:
    """Return '' if readers restore a value from its directory, else the reason why not.

    Args:
        level: of the directory.
        value: as in `Receipt.partition`.
    """
    if isinstance(level.type, TimestamptzType) and value is not None:
        finer = _time(value)[_SECONDS + 1 + level.digits :].strip("0")
        shown = f"{level.digits} digits of a second's fraction" if level.digits else "whole seconds"
        return f"is {value}, and its directories have {shown}" if finer else ""
    if not isinstance(level.type, StringType):
        return ""
    if value == "":
        return "is the empty text, whose directory is that of NULL"
    if value == HIVE_NULL:
        return f"is the text {HIVE_NULL}, whose directory is that of NULL"
    return ""


def tree_directory(levels: Sequence[Level], values: Sequence[str | None]) -> str:
    """Return the directory of a partition below the root, `eventDate=2024-01-01/retention=7`.

    Names are never cut, because readers take the values from them.

    Args:
        levels: of the tree, from the root.
        values: as in `Receipt.partition`.

    Raises:
        UnsupportedError: a name is too long for file systems (code 48).
    """
    found = [
        f"{spelled_name(level.name)}={_spelled(_shown(level, value))}"
        for level, value in zip(levels, values, strict=True)
    ]
    for level, name in zip(levels, found, strict=True):
        if (size := len(name.encode())) > _LONGEST:
            why = (
                f"the name of its {level.name} is {size} bytes long, file systems allow "
                f"{_LONGEST}. Export it to an Iceberg table."
            )
            message = Unable.of("a partition to a Hive directory", why)
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    return "/".join(found)


def _spelled(value: str | None) -> str:
    # In trees of earlier releases the empty text is in the directory of NULL.
    if not value:
        return HIVE_NULL
    if value.casefold() == _NULL_OF_DUCKDB:
        return f"%{ord(value[0]):02X}{value[1:]}"
    return escape(value)


def value_in_files(level: Level, text: str) -> str:
    """Return a time or fixed text of a directory in the form of the files' rows.

    Args:
        level: of the directory.
        text: its value, decoded.
    """
    match level.type:
        case TimestamptzType():
            return f"{text}+00:00"
        case FixedType() if len(text) < 2 * len(level.type):
            return text.encode().ljust(len(level.type), b"\0").hex()
        case _:
            return text


def _shown(level: Level, value: str | None) -> str | None:
    """Return a value of `Receipt.partition` as ClickHouse writes it."""
    match level.type:
        case TimestamptzType() if value is not None:
            return _time(value)[: _SECONDS + (1 + level.digits if level.digits else 0)]
        case FixedType() if value is not None:
            return _fixed(value)
        case _:
            return value


def _time(value: str) -> str:
    moment = datetime.fromisoformat(value).astimezone(UTC)
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds")


def _fixed(value: str) -> str:
    try:
        text = bytes.fromhex(value).rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return value
    return value if text in ("", HIVE_NULL) or "\0" in text else text
