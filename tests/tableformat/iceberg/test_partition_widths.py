"""Truncations and buckets of numbers, texts and ids, by the lake's type."""

from __future__ import annotations

import pytest

from tableformat.iceberg.partition_spec import DerivedField, derive_field
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.mergetree.types import parse_type
from tableformat.messages import plain
from tests.strategies.mapping import column_of, table_of


def found(key: str, of: str, conversion: str = "") -> DerivedField | str:
    made = table_of(column_of("c", parse_type(of)))
    columns = map_columns(made, {"c": conversion} if conversion else {})
    return derive_field(parse_expression(key), columns, "UTC")


@pytest.mark.parametrize(
    ("key", "of", "conversion", "spec"),
    [
        ("intDiv(c, 10)", "UInt32", "", "truncate(10, c)"),
        ("c DIV 10", "UInt64", "", "truncate(10, c)"),
        ("c DIV 10", "UInt64", "long", "truncate(10, c)"),
        ("intDiv(c, 10) * 10", "Nullable(UInt8)", "", "truncate(10, c)"),
        ("c - c % 10", "UInt16", "", "truncate(10, c)"),
        ("c - positiveModulo(c, 10)", "Int64", "", "truncate(10, c)"),
        ("c - PMOD(c, 10)", "Int8", "", "truncate(10, c)"),
        ("icebergTruncate(10, c)", "Int32", "", "truncate(10, c)"),
        ("icebergTruncate(10, c)", "Decimal(18, 4)", "", "truncate(10, c)"),
        ("bitShiftRight(c, 4)", "Int16", "", "truncate(16, c)"),
        ("icebergTruncate(3, c)", "String", "", "truncate(3, c)"),
        ("substringUTF8(c, 1, 3)", "LowCardinality(String)", "", "truncate(3, c)"),
        ("leftUTF8(c, 3)", "String", "", "truncate(3, c)"),
        ("substring(c, 1, 3)", "String", "binary", "truncate(3, c)"),
        ("SUBSTR(c, 1, 3)", "String", "binary", "truncate(3, c)"),
        ("left(c, 3)", "String", "binary", "truncate(3, c)"),
        ("icebergBucket(16, c)", "String", "binary", "bucket(16, c)"),
        ("icebergBucket(16, c)", "FixedString(3)", "", "bucket(16, c)"),
        ("icebergBucket(16, c)", "UUID", "", "bucket(16, c)"),
        ("icebergBucket(16, c)", "Date32", "", "bucket(16, c)"),
        ("icebergBucket(16, c)", "Decimal(38, 3)", "", "bucket(16, c)"),
        ("icebergBucket(16, c)", "DateTime64(6, 'Asia/Tokyo')", "", "bucket(16, c)"),
        ("icebergBucket(16, toDateTime64(c, 6))", "DateTime", "", "bucket(16, c)"),
        ("icebergBucket(16, c)", "UInt64", "long", "bucket(16, c)"),
        ("icebergBucket(16, CAST(c AS Decimal(20, 0)))", "UInt64", "", "bucket(16, c)"),
        ("icebergBucket(16, toString(c))", "Enum8('a' = 1)", "", "bucket(16, c)"),
        ("toString(c)", "Enum8('a' = 1)", "", "c"),
        ("toString(c)", "IPv4", "", "c"),
        ("c", "Enum8('a' = 1)", "", "c"),
        ("c", "Enum8('a' = 1)", "long", "c"),
        ("c", "UInt64", "", "c"),
        ("c", "FixedString(3)", "", "c"),
        ("c", "Bool", "", "c"),
        ("c", "IPv6", "binary", "c"),
        ("c", "UUID", "binary", "c"),
        ("c", "Decimal(50, 2)", "", "c"),
        ("c", "Int128", "", "c"),
        ("c", "Time64(3)", "", "c"),
    ],
)
def test_what_divides_as_iceberg_does_is_derived(
    key: str, of: str, conversion: str, spec: str
) -> None:
    derived = found(key, of, conversion)

    assert isinstance(derived, DerivedField), derived
    assert str(derived.field) == spec
    assert derived.exact


@pytest.mark.parametrize(
    ("key", "of", "conversion", "why"),
    [
        ("intDiv(c, 10)", "Int32", "", "towards zero"),
        ("c - c % 10", "Int64", "", "towards zero"),
        ("bitShiftRight(c, 8)", "Int8", "", "every bit out of a Int8"),
        ("intDiv(c, 10)", "UInt128", "decimal(38,0)", "more than 64 bits"),
        ("intDiv(c, 10)", "UInt64", "string", "which the lake keeps as string"),
        ("intDiv(c, 10)", "Decimal(9, 2)", "", "no Iceberg transform"),
        ("icebergTruncate(10, c)", "Decimal(38, 2)", "", "no Iceberg transform"),
        ("substring(c, 1, 3)", "String", "", "counts bytes"),
        ("substringUTF8(c, 1, 3)", "String", "binary", "keeps as binary"),
        ("substringUTF8(c, 2, 3)", "String", "", "no Iceberg transform"),
        ("icebergTruncate(0, c)", "Int8", "", "no Iceberg transform"),
        ("intDiv(c, -10)", "UInt8", "", "no Iceberg transform"),
        ("c - d % 10", "UInt8", "", "no Iceberg transform"),
        ("icebergBucket(16, c)", "UInt64", "", "another hash; --convert c=long"),
        ("icebergBucket(16, c)", "Bool", "", "another hash"),
        ("icebergBucket(16, c)", "Float64", "", "another hash"),
        ("icebergBucket(16, c)", "IPv4", "long", "another hash"),
        ("icebergBucket(16, CAST(c AS Decimal(18, 0)))", "UInt64", "", "something else"),
        ("icebergBucket(16, toDateTime64(c, 3))", "DateTime", "", "something else"),
        ("c", "Float32", "", "do not identify"),
        ("c", "UUID", "", "prune identity of a uuid wrongly"),
        ("c", "DateTime64(9, 'UTC')", "truncate", "may be one value of the lake's timestamptz"),
        ("c", "Array(Int8)", "", "only single values"),
        ("toString(c)", "FixedString(3)", "string", "no Iceberg transform"),
    ],
)
def test_a_spec_that_divides_otherwise_has_a_reason(
    key: str, of: str, conversion: str, why: str
) -> None:
    derived = found(key, of, conversion)

    assert isinstance(derived, str)
    assert why in plain(derived)
