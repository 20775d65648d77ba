"""Reads what the owner of a lake table lets expire: `history.expire.*` and `gc.enabled`.

Source: Iceberg's configuration, "Table behavior properties", and docs/spec/table-properties.md. The
age that a branch has of its own is in the metadata (tableformat/export/maintenance.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tableformat.errors import RefusedError
from tableformat.names import LakeName

__all__ = ["Retention", "refuse_kept_files", "retention_of"]

_AGE: Final = "history.expire.max-snapshot-age-ms"
_KEEPS: Final = "history.expire.min-snapshots-to-keep"
_AGE_OF_REFERENCES: Final = "history.expire.max-ref-age-ms"
_COLLECTED: Final = "gc.enabled"
_WEEK: Final = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class Retention:
    """What stays: snapshots younger than `age` milliseconds, and `keeps` of each branch."""

    age: int
    keeps: int


def retention_of(
    properties: Mapping[str, str], name: LakeName, *, age: int | None, keeps: int | None
) -> Retention:
    """Return what the user asked for, else what the table's owner has set, else a week and one.

    Args:
        properties: of the table.
        name: of the table, for an error.
        age: an age in milliseconds, None if the user gave none.
        keeps: a number of snapshots, None if the user gave none.

    Raises:
        RefusedError: a property has a value that it cannot have.
    """
    # Iceberg's procedure reads all three, whatever it is called with.
    of_owner = {key: _number(properties, name, key) for key in (_AGE, _KEEPS, _AGE_OF_REFERENCES)}
    return Retention(
        of_owner[_AGE] or _WEEK if age is None else age,
        of_owner[_KEEPS] or 1 if keeps is None else keeps,
    )


def _number(properties: Mapping[str, str], name: LakeName, key: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if text.isdecimal() and int(text):
        return int(text)
    message = (
        f"Cannot expire snapshots of {name}: its property {key} is {text!r}, and not a number "
        "above 0. Set such a value, or remove the property."
    )
    raise RefusedError(message)


def refuse_kept_files(properties: Mapping[str, str], name: LakeName, way: str) -> None:
    """Refuse to expire snapshots, or to remove files, of a table whose owner forbids it.

    Another table may refer to the same files, as one that Spark's procedure `snapshot` makes does.

    Args:
        properties: of the table.
        name: of the table.
        way: what the user may do instead, as the end of a sentence.

    Raises:
        RefusedError: the property `gc.enabled` is not `true`.
    """
    text = properties.get(_COLLECTED, "true")
    # As in Iceberg, which takes any other text for false.
    if text.lower() != "true":
        message = (
            f"Cannot expire snapshots of {name} or remove its files: its property {_COLLECTED} is "
            f"{text!r}, because another table may refer to the files. Set it to true if none does, "
            f"or {way}."
        )
        raise RefusedError(message)
