"""The SELECT list: one explicit expression per column, never `SELECT *` (types.md section 0).

Every source column is written as `t`.`column`. An alias that equals a key column would otherwise
take the key's place in ORDER BY, and ClickHouse would sort again what it could read in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tableformat.mergetree.table import Column
from tableformat.mergetree.wire_types import qualified, wire_expression
from tableformat.names import quote_identifier

__all__ = ["select_list"]

_NO_CONVERSIONS: Final[Mapping[str, str]] = MappingProxyType({})


def select_list(columns: Iterable[Column], conversions: Mapping[str, str] = _NO_CONVERSIONS) -> str:
    """Return `expression AS column, ...` in the order of `columns`.

    Args:
        columns: stored columns that `iceberg.schema.map_columns` has accepted.
        conversions: column name to what the user chose (`--convert`).

    Raises:
        InternalError: a column's type has no mapping.
    """
    return ", ".join(
        f"{wire_expression(qualified(c.name), c.type, conversion=conversions.get(c.name, ''))}"
        f" AS {quote_identifier(c.name)}"
        for c in columns
    )
