"""Builds the SELECT list and ORDER BY of an export, and reads which columns have bloom filters.

`select_list` uses explicit expressions, never `SELECT *` (docs/reference/types.md has the types).
Every source column is qualified by `SOURCE_ALIAS`. Otherwise an alias equal to a key column would
take the key's place in ORDER BY, and ClickHouse would sort rows that it can read in order.

`filtered_columns` and `filters_kept` return the columns of a Parquet file that have bloom
filters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tableformat.mergetree.expression import qualify
from tableformat.mergetree.expression_parser import parse_sorting_key
from tableformat.mergetree.table import Column, Engine
from tableformat.mergetree.wire_types import qualified, wire_expression
from tableformat.names import quote_identifier
from tableformat.parquet.statistics import FIELD_ID

__all__ = ["filtered_columns", "filters_kept", "order_by", "select_list"]

_NO_CONVERSIONS: Final[Mapping[str, str]] = MappingProxyType({})


def select_list(columns: Iterable[Column], conversions: Mapping[str, str] = _NO_CONVERSIONS) -> str:
    """Return `expression AS column, ...` in the order of `columns`.

    Args:
        columns: stored columns that `iceberg.schema.map_columns` has accepted.
        conversions: `--convert` by column name.

    Raises:
        InternalError: a column's type has no mapping.
    """
    return ", ".join(
        f"{wire_expression(qualified(c.name), c.type, conversion=conversions.get(c.name, ''))}"
        f" AS {quote_identifier(c.name)}"
        for c in columns
    )


def order_by(engine: Engine) -> str:
    """Return the text after ORDER BY for the order of rows in parts, '' for none.

    A descending key needs NULLS FIRST, which is the order in parts; ORDER BY alone puts NULLs last
    in both directions. Without it ClickHouse would sort all rows again, into another order.

    Raises:
        UsageError: the key cannot be parsed.
    """
    return ", ".join(
        f"{qualify(key.expression)}{' DESC NULLS FIRST' if key.descending else ''}"
        for key in parse_sorting_key(engine.order_by or engine.primary_key)
    )


def filtered_columns(parquet: pq.ParquetFile) -> frozenset[int]:
    """Return the field ids of the columns with bloom filters in any row group.

    Members of nested columns are not included, and a file without field ids has none.
    """
    metadata = parquet.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    filtered = {
        group.column(i).path_in_schema
        for group in groups
        for i in range(group.num_columns)
        if group.column(i).bloom_filter_offset is not None
    }
    return frozenset(_id_of(f) for f in parquet.schema_arrow if f.name in filtered and _id_of(f))


def filters_kept(
    files: Collection[pq.ParquetFile], schema: pa.Schema, without: frozenset[int] = frozenset()
) -> tuple[str, ...]:
    """Return the columns of a new file that have bloom filters in its source files.

    Args:
        files: the source files.
        schema: of the new file, with field ids.
        without: columns, by field id, whose filters are dropped.
    """
    wanted = frozenset[int]().union(*(filtered_columns(one) for one in files)) - without
    return tuple(field.name for field in schema if _id_of(field) in wanted)


def _id_of(field: pa.Field) -> int:
    """Return the field id, 0 for none: Iceberg's ids begin at 1."""
    return int((field.metadata or {}).get(FIELD_ID, 0))
