"""Defines the rules by which a tree was created, a permanent number in its identity.

Trees without a number follow rules 1: their files have column names as Iceberg escapes them
(`n_x2Ea`). Under rules 2 files have the table's own names. A tree never mixes both. Trees that are
partitioned by times or fixed texts follow rules 3 (`levels.py`). All other new trees follow rules
2, which earlier releases know, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.schema import Schema, index_by_id, make_compatible_name

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import DestinationError, UnsupportedError
from tableformat.names import LakeName

__all__ = ["check_rules", "rules_of"]

_PROPERTY: Final = "mergeberg.tree.rules"
_FIRST: Final = "1"
_SECOND: Final = "2"
_THIRD: Final = "3"


def rules_of(spelled: Mapping[str, str]) -> dict[str, str]:
    """Return the property of a new tree.

    Args:
        spelled: the spelling of its times and fixed texts, by level.
    """
    return {_PROPERTY: _THIRD if spelled else _SECOND}


def check_rules(what: str, to: LakeName, schema: Schema, properties: Mapping[str, str]) -> None:
    """Refuse to write files into a tree whose files have other column names.

    Args:
        what: the action as it follows "Cannot " in the message.
        to: the tree.
        schema: of the tree.
        properties: of the tree.

    Raises:
        UnsupportedError: its files have escaped names (code 48).
        DestinationError: a newer release created it.
    """
    rules = properties.get(_PROPERTY, _FIRST)
    if rules not in (_FIRST, _SECOND, _THIRD):
        message = (
            f"Cannot {what}: the tree {to} was made by the rules {rules}, and this release has "
            f"{_THIRD}. Use the release that made the tree, or a newer one."
        )
        raise DestinationError(message)
    names = [f.name for f in index_by_id(schema).values()] if rules == _FIRST else []
    escaped = [f"{n} as {make_compatible_name(n)}" for n in names if make_compatible_name(n) != n]
    if escaped:
        message = (
            f"Cannot {what}: the files of {to} were written by an earlier release, which escaped "
            f"names ({', '.join(dict.fromkeys(escaped))}). New files have the table's own, and "
            "readers would see both. The tree can be read and verified as it is; export to "
            "another tree."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
