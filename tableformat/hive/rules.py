"""The rules by which a tree was made: a number that its identity has, for ever.

Trees without it follow the first rules, whose files have names of columns as Iceberg escapes them
(`n_x2Ea`). Since the second ones they have the table's own. A tree is never of both. Trees that
are divided by times or fixed texts follow the third ones (`levels.py`); every other tree that is
made now is of the second, which earlier releases know, too.
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
    """Return the property of a tree that is made now.

    Args:
        spelled: how its times and fixed texts are spelled, by level.
    """
    return {_PROPERTY: _THIRD if spelled else _SECOND}


def check_rules(what: str, to: LakeName, schema: Schema, properties: Mapping[str, str]) -> None:
    """Refuse to write files into a tree whose files have other names of columns.

    Args:
        what: cannot be done when it is refused, without the leading "Cannot".
        to: the tree.
        schema: of the tree.
        properties: of the tree.

    Raises:
        UnsupportedError: its files have escaped names (code 48).
        DestinationError: a newer release made it.
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
