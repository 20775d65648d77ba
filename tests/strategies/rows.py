"""Rows of a lake table with one column of every kind that bounds are made for, and their schema."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

LAKE_SCHEMA = Schema(
    NestedField(1, "text", StringType()),
    NestedField(2, "bytes", BinaryType()),
    NestedField(3, "small", DecimalType(9, 2)),
    NestedField(4, "large", DecimalType(38, 10)),
    NestedField(5, "double", DoubleType()),
    NestedField(6, "float", FloatType()),
    NestedField(7, "int", IntegerType()),
    NestedField(8, "long", LongType()),
    NestedField(9, "day", DateType()),
    NestedField(10, "time", TimestamptzType()),
    NestedField(11, "flag", BooleanType()),
    NestedField(12, "id", UUIDType()),
    NestedField(13, "n.dotted", StringType()),
    NestedField(14, "many", ListType(20, DoubleType(), element_required=False)),
    NestedField(
        15,
        "inner",
        StructType(NestedField(21, "x", DoubleType()), NestedField(22, "s", StringType())),
    ),
)
_UTC = dt.UTC
# Bounds are cut at 16: texts around that length, with few and with the highest characters.
_CHARACTERS = st.sampled_from("ab\x00\x7f\xff\ud7ff\ue000\uffff\U00010000\U0010ffff")
TEXTS = st.one_of(
    st.text(_CHARACTERS, max_size=20),
    st.integers(14, 20).map(lambda n: "\U0010ffff" * n),
    st.text(max_size=5),
)
BYTES = st.one_of(st.binary(max_size=20), st.integers(14, 20).map(lambda n: b"\xff" * n))
DOUBLES = st.floats(width=64)
FLOATS = st.floats(width=32)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXTS,
    "bytes": BYTES,
    "small": st.decimals(Decimal("-9999999.99"), Decimal("9999999.99"), places=2),
    "large": st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -10))
    ),
    "double": DOUBLES,
    "float": FLOATS,
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "day": st.dates(),
    "time": st.datetimes(timezones=st.just(_UTC)),
    "flag": st.booleans(),
    "id": st.uuids(),
    "n.dotted": TEXTS,
}


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


ROWS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {name: optional(values) for name, values in VALUES.items()}
    | {
        "many": optional(st.lists(optional(DOUBLES), max_size=3)),
        "inner": optional(st.fixed_dictionaries({"x": optional(DOUBLES), "s": optional(TEXTS)})),
    }
)


def arrow_table(rows: list[dict[str, Any]], schema: pa.Schema, names: list[str]) -> pa.Table:
    """Return rows as a table of a file schema; `names` are the columns as the rows call them."""
    columns = []
    for field, name in zip(schema, names, strict=True):
        values = [row[name] for row in rows]
        if isinstance(field.type, pa.UuidType):
            raw = [None if v is None else v.bytes for v in values]
            storage = pa.array(raw, pa.binary(16))
            columns.append(pa.ExtensionArray.from_storage(field.type, storage))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def internal(value: Any) -> Any:
    """Return a value as it compares in Iceberg: dates and times as numbers, ids as bytes."""
    match value:
        case dt.datetime():
            return (value - dt.datetime(1970, 1, 1, tzinfo=_UTC)) // dt.timedelta(microseconds=1)
        case dt.date():
            return (value - dt.date(1970, 1, 1)).days
        case UUID():
            return value.bytes
        case _:
            return value


def single(value: float) -> float:
    """Return a number as a 32-bit float holds it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
