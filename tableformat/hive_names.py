"""Directory names `name=value/name=value` that every reader takes apart in the same way.

Hive, Spark, DuckDB, Polars and PyArrow decode percent signs differently for spaces and for
characters beyond ASCII. One form is read alike by all of them (docs/spec/hive.md): every ASCII
character outside `[A-Za-z0-9_.-]` as %XX, everything else as it is, and a NULL as Hive's own word.
An empty text has no directory of its own in Hive and shares that of NULL. Readers of an Iceberg
table take values from its metadata; a tree refuses such texts (`tableformat/hive/levels.py`).
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
    """Return `text` as one path component: percent signs for ASCII, other characters literal."""
    return "".join(c if c in _PLAIN or ord(c) >= _ASCII else f"%{ord(c):02X}" for c in text)


def spelled_name(name: str) -> str:
    """Return the name of a column as directories of a tree have it: a space is literal, too.

    Spark and PyArrow decode names, DuckDB and ClickHouse do not: they read a name right that has
    nothing to decode.
    """
    return escape(name).replace("%20", " ")


def partition_directory(names: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the directory of a partition below the data location, '' for no partition fields.

    Args:
        names: of the partition fields, in the order of the spec.
        values: the values as people read them (`2024-01` for a month); None is NULL.

    Raises:
        ValueError: there are more names than values, or the other way round.
    """
    return "/".join(
        f"{escape(name)}={escape(value) if value else HIVE_NULL}"
        for name, value in zip(names, values, strict=True)
    )


def directory_values(path: str) -> dict[str, str | None]:
    """Return what the directories above a file say, by name; None is NULL, or the empty text."""
    found = {}
    for component in path.split("/")[:-1]:
        name, _, value = component.partition("=")
        found[unquote(name)] = None if value == HIVE_NULL else unquote(value)
    return found
