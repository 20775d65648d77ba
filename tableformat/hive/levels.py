"""The levels of a tree's directories: how a value of the partition key is spelled in a name.

A reader takes the value of a column from the directory, also where the file has the column. So no
value may be spelled as a reader spells another one. What each reader does was seen on DuckDB,
Spark, PyArrow and Polars (docs/spec/hive.md).

Times and fixed texts are spelled by a rule that the tree remembers for each of its levels:

    DateTime, DateTime64    UTC, UTC.3   as ClickHouse writes it, in UTC: `2024-01-31 10:00:00.250`
    FixedString             text-or-hex  the text without the zero bytes at its end; all bytes in
                                         hex where it is not UTF-8, is empty or has a zero byte

A text is never longer than its bytes, and their hex is twice as long, so that no text is the hex of
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
from tableformat.errors import UnsupportedError
from tableformat.hive_names import HIVE_NULL, escape, spelled_name

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
"""Bytes of a name on the usual file systems."""
_NULL_OF_DUCKDB: Final = "null"
"""DuckDB takes a directory for NULL whose value is this word, in any case of letters."""

_PROPERTY: Final = "mergeberg.tree.spelling"
_UTC: Final = "UTC"
_MOST_DIGITS: Final = 6
_SECONDS: Final = len("2024-01-31 10:00:00")

TEXT_OR_HEX: Final = "text-or-hex"
"""The spelling of a fixed text."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of directories: the column's name, its type, and how its values are spelled.

    `spelling` is '' but for times and fixed texts.
    """

    name: str
    type: IcebergType
    spelling: str = ""

    @property
    def digits(self) -> int:
        """Digits of the fraction of a second."""
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
    """Return the spelling of times that have some digits of a second's fraction in ClickHouse.

    A lake has microseconds, and so have directories.
    """
    return f"{_UTC}.{min(digits, _MOST_DIGITS)}" if digits else _UTC


def remembering_spellings(spelled: Mapping[str, str]) -> dict[str, str]:
    """Return the properties by which a tree remembers spellings by level; none without them."""
    return {_PROPERTY: json.dumps(dict(spelled))} if spelled else {}


def remembered_spellings(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the spellings that a tree remembers, by the name of the level."""
    found: dict[str, str] = json.loads(properties.get(_PROPERTY, "{}"))
    return found


def why_no_directory(level: Level, value: str | None) -> str:
    """Return '' for a value that readers take from its directory, else why they would not.

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

    Readers take the values from it, so that nothing is cut.

    Args:
        levels: of the tree, from the root.
        values: as in `Receipt.partition`.

    Raises:
        UnsupportedError: a name and value are longer than file systems take (code 48).
    """
    found = [
        f"{spelled_name(level.name)}={_spelled(_shown(level, value))}"
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


def value_in_files(level: Level, text: str) -> str:
    """Return a value that a directory of a time or a fixed text says, as rows of files show it.

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
    """Return a value as ClickHouse writes it, of what `Receipt.partition` says."""
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
