"""Chooses the columns that have bloom filters in the data files of a lake table.

Iceberg's property `write.parquet.bloom-filter-enabled.column.<name>` names them for every engine. A
new table gets it for the columns of the source's skip indices on single values. Readers compare
hashes of stored values, so floating point columns get no filter: 0 and -0 are equal, but their
hashes differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from tableformat.mergetree.expression import Call, ColumnName
from tableformat.mergetree.expression_text import parse_expression
from tableformat.mergetree.table import SkipIndex

__all__ = ["FILTER_PROPERTY", "filter_properties", "filters_of", "single_value_columns"]

FILTER_PROPERTY: Final = "write.parquet.bloom-filter-enabled.column."
_KINDS: Final = frozenset({"bloom_filter", "set", "tokenbf_v1", "ngrambf_v1"})
_TYPES: Final = (
    IntegerType,
    LongType,
    StringType,
    BinaryType,
    FixedType,
    UUIDType,
    DecimalType,
    DateType,
    TimestampType,
    TimestamptzType,
)


def single_value_columns(index: SkipIndex) -> frozenset[str]:
    """Return the columns whose single values an index finds; none for other index types.

    An expression of a column, `lower(s)`, is not its value.
    """
    if index.type_text.partition("(")[0].strip() not in _KINDS:
        return frozenset()
    match parse_expression(f"tuple({index.expression})"):
        case Call("tuple", (Call("tuple", members),)) | Call("tuple", members):
            return frozenset(one.name for one in members if isinstance(one, ColumnName))
        case _:
            return frozenset()


def filter_properties(indices: Iterable[SkipIndex], schema: Schema) -> dict[str, str]:
    """Return the bloom filter properties of a new table for the source's skip indices."""
    indexed = frozenset[str]().union(*(single_value_columns(one) for one in indices))
    return {f"{FILTER_PROPERTY}{name}": "true" for name in _filterable(schema) if name in indexed}


def filters_of(properties: Mapping[str, str], schema: Schema) -> tuple[str, ...]:
    """Return the columns that a table's properties select for bloom filters."""
    wanted = {
        key.removeprefix(FILTER_PROPERTY)
        for key, value in properties.items()
        if key.startswith(FILTER_PROPERTY) and value.lower() == "true"
    }
    return tuple(name for name in _filterable(schema) if name in wanted)


def _filterable(schema: Schema) -> tuple[str, ...]:
    return tuple(f.name for f in schema.fields if isinstance(f.field_type, _TYPES))
