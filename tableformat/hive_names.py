"""Renders and parses directory names `name=value/name=value` that all readers parse alike.

Hive, Spark, DuckDB, Polars and PyArrow decode percent signs differently for spaces and for
characters beyond ASCII. All of them read one form in the same way (docs/spec/hive.md): every ASCII
character outside `[A-Za-z0-9_.-]` as %XX, other characters unchanged, and NULL as Hive's own word.
In Hive an empty text shares the directory of NULL. Readers of an Iceberg table take values from its
metadata; a Hive tree refuses empty texts (`tableformat/hive/levels.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

__all__ = ["HIVE_NULL", "directory_values", "escape", "partition_directory", "spelled_name"]

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_ASCII: Final = 128


def escape(text: str) -> str:
    """Return `text` as one path component; only ASCII characters are escaped with percent signs."""
    return "".join(c if c in _PLAIN or ord(c) >= _ASCII else f"%{ord(c):02X}" for c in text)


def spelled_name(name: str) -> str:
    """Return the name of a column in the directories of a tree, in which a space is not escaped.

    Spark and PyArrow decode names, DuckDB and ClickHouse do not. All of them read a name without
    percent signs correctly.
    """
    return escape(name).replace("%20", " ")


def partition_directory(names: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the directory of a partition below the data location, '' for no partition fields.

    Args:
        names: the partition fields, in the order of the spec.
        values: the values in Iceberg's readable form (`2024-01` for a month); None is NULL.

    Raises:
        ValueError: the numbers of names and values differ.
    """
    return "/".join(
        f"{escape(name)}={escape(value) if value else HIVE_NULL}"
        for name, value in zip(names, values, strict=True)
    )


def directory_values(path: str) -> dict[str, str | None]:
    """Return the values in the directories of a file, by name; None is NULL or the empty text."""
    found = {}
    for component in path.split("/")[:-1]:
        name, _, value = component.partition("=")
        found[unquote(name)] = None if value == HIVE_NULL else unquote(value)
    return found
