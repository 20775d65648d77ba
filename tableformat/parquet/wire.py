"""What is selected, and in which order: explicit expressions, never `SELECT *`.

The rules are types.md sections 0 and 3. Every source column is qualified by `SOURCE_ALIAS`: an
alias that equals a key column would otherwise take the key's place in ORDER BY, and ClickHouse
would sort again what it could read in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tableformat.mergetree.expression_text import parse_sorting_key, qualify
from tableformat.mergetree.table import Column, Engine
from tableformat.mergetree.wire_types import qualified, wire_expression
from tableformat.names import quote_identifier

__all__ = ["order_by", "select_list"]

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


def order_by(engine: Engine) -> str:
    """Return the text after ORDER BY that gives rows as parts hold them, '' for none.

    A descending key says NULLS FIRST: that is how parts hold it, while ORDER BY alone puts NULLs
    last in both directions. Without it ClickHouse sorts everything anew, into an order that nobody
    declared.

    Raises:
        UsageError: the key's text cannot be read.
    """
    return ", ".join(
        f"{qualify(key.expression)}{' DESC NULLS FIRST' if key.descending else ''}"
        for key in parse_sorting_key(engine.order_by or engine.primary_key)
    )
