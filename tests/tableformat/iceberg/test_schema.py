"""Columns become an Iceberg schema; whatever cannot is refused, all of it at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from pyiceberg.schema import Schema

from tableformat.errors import RefusedError
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.conversions import Faithfulness
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import (
    Array,
    DateTime,
    Enum,
    Map,
    Nullable,
    Simple,
    Tuple,
    Unknown,
    parse_type,
)
from tests.strategies.mapping import Sample, column_of, samples, table_of


def mapped(**columns: str) -> Schema:
    return map_columns(
        table_of(*(Column(name, parse_type(text), text) for name, text in columns.items()))
    ).schema


@pytest.mark.parametrize(
    ("clickhouse", "iceberg", "faithfulness"),
    [
        ("Int8", "int", "A"),
        ("UInt16", "int", "A"),
        ("UInt32", "long", "A"),
        ("UInt64", "decimal(20, 0)", "A"),
        ("Int128", "string", "B"),
        ("Float32", "float", "A"),
        ("BFloat16", "float", "A"),
        ("Bool", "boolean", "A"),
        ("Decimal(38, 10)", "decimal(38, 10)", "C"),
        ("Decimal(39, 10)", "string", "B"),
        ("String", "string", "C"),
        ("FixedString(5)", "fixed[5]", "A"),
        ("Date", "date", "A"),
        ("Date32", "date", "A"),
        ("DateTime('Asia/Tokyo')", "timestamptz", "A"),
        ("DateTime64(6)", "timestamptz", "A"),
        ("DateTime64(9)", "timestamptz", "C"),
        ("Time", "long", "B"),
        ("Time64(3)", "decimal(18, 3)", "B"),
        ("Enum8('a' = 1)", "string", "B"),
        ("UUID", "uuid", "A"),
        ("LowCardinality(Nullable(UInt32))", "long", "A"),
        ("Array(UInt32)", "list<long>", "A"),
        ("Map(Date, Int8)", "map<date, int>", "C"),
    ],
)
def test_each_type_has_one_iceberg_type(clickhouse: str, iceberg: str, faithfulness: str) -> None:
    columns = map_columns(table_of(Column("c", parse_type(clickhouse), clickhouse)))

    assert str(columns.columns[0].type) == iceberg
    assert columns.columns[0].faithfulness is Faithfulness(faithfulness)
    assert columns.columns[0].required == ("Nullable" not in clickhouse)


def test_the_doc_has_facts_that_the_iceberg_type_lacks() -> None:
    columns = table_of(
        column_of("ts", DateTime("Asia/Tokyo"), comment="when it happened"),
        column_of("e", Enum(8, (("a", 1),))),
        column_of("n", Simple("Int32")),
    )

    schema = map_columns(columns).schema

    assert schema.find_field("ts").doc == "when it happened (zone Asia/Tokyo)"
    assert schema.find_field("e").doc == "(label of Enum8)"
    assert schema.find_field("n").doc is None


def test_unnamed_members_are_numbered_and_values_required_unless_nullable() -> None:
    schema = mapped(c="Tuple(UInt8, Array(Nullable(String)))")

    assert schema.find_field("c._1").required
    assert schema.find_field("c._2").required
    assert not schema.find_field("c._2.element").required


def test_members_of_nested_stay_lists_of_their_own() -> None:
    schema = mapped(**{"n.a": "Array(UInt8)", "n.b": "Array(String)"})

    assert [f.name for f in schema.fields] == ["n.a", "n.b"]
    assert str(schema.find_type("n.b")) == "list<string>"


def test_columns_that_are_not_stored_are_not_exported() -> None:
    table = table_of(
        column_of("a", Simple("Int8")),
        column_of("b", Simple("Int8"), default_kind="ALIAS", default_expression="a"),
        column_of("m", Simple("Int8"), default_kind="MATERIALIZED", default_expression="a"),
    )

    assert [f.name for f in map_columns(table).schema.fields] == ["a", "m"]


def test_every_column_that_has_no_mapping_is_named_at_once() -> None:
    table = table_of(
        column_of("j", Unknown("UUID2")),
        column_of("ok", Simple("Int8")),
        column_of("t", Tuple((("a", Unknown("QBit(Float32, 3, 4)")), ("b", Simple("Nothing"))))),
    )

    with pytest.raises(RefusedError, match=r"Cannot export db\.t: 3 reasons") as refused:
        map_columns(table)

    assert refused.value.code == 48
    for words in ("column j: ", "UUID2", "column t: ", "QBit", "Nothing"):
        assert words in refused.value.message
    assert "column ok" not in refused.value.message


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"a.b": "Array(Int8)", "a": "Tuple(b Int8)"}, r"a\.b: two fields have this name"),
        ({"a": "Int8", "A": "Int8"}, "A and a: the names differ only in case"),
        ({"t": "Tuple(x Int8, X Int8)"}, r"t\.X and t\.x: the names differ only in case"),
        ({"_file": "Int8"}, "_file: that name is taken by Iceberg"),
        ({"a.b": "Array(Int8)", "a_x2Eb": "Int8"}, "both are written as a_x2Eb"),
        ({"t": "Tuple()"}, "empty Tuple"),
        ({"a\0b": "Int8"}, r"column 'a\\x00b': the name holds a NUL character"),
        ({"t": "Tuple(`x\\0y` Int8)"}, r"column 't\.x\\x00y': the name holds a NUL character"),
    ],
)
def test_names_that_iceberg_cannot_hold_are_refused(columns: dict[str, str], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        mapped(**columns)


@pytest.mark.parametrize(
    "column",
    [
        Column("c\udcff", Simple("Int8"), "Int8"),
        Column("c", Enum(8, (("\udcff", 1),)), "Enum8('\udcff' = 1)"),
        Column("c", Simple("String"), "String", "DEFAULT", "'\udcff'"),
        Column("c", Simple("Int8"), "Int8", comment="\udcff"),
    ],
)
def test_a_definition_that_is_not_utf8_is_refused_by_name(column: Column) -> None:
    """Lake tables cannot store it, and the catalog's error would name no column."""
    with pytest.raises(RefusedError, match=r"column c.*holds bytes that are not UTF-8") as refused:
        map_columns(table_of(column))

    assert str(refused.value).encode()


def test_strict_refuses_what_would_change_kind() -> None:
    table = table_of(column_of("e", Enum(8, (("a", 1),))), column_of("s", Simple("String")))

    with pytest.raises(RefusedError, match=r"column e: .*Enum8.*string.*--strict"):
        map_columns(table, strict=True)


def test_a_conversion_applies_to_every_fitting_value_of_the_column() -> None:
    table = table_of(
        column_of("s", Nullable(Simple("String"))),
        column_of("m", Map(Simple("String"), Array(Simple("UInt64")))),
    )

    columns = map_columns(table, {"s": "binary", "m": "long"})

    assert str(columns.schema.find_type("s")) == "binary"
    assert str(columns.schema.find_type("m")) == "map<string, list<long>>"
    assert columns.conversions == {"s": "binary", "m": "long"}


@pytest.mark.parametrize(
    ("conversions", "why"),
    [
        ({"n": "binary"}, "does not apply to the ClickHouse type Int8; it takes no conversion"),
        (
            {"s": "wkb"},
            r"s=wkb does not apply.*available are, by ClickHouse type, String: string, b",
        ),
        ({"m": "json"}, r"type, UInt64: long, string; Decimal\(9, 2\): decimal\(P,2\)\.$"),
        ({"m": "decimal(8,2)"}, r"m=decimal\(8,2\) does not apply"),
        ({"m": "decimal(39,2)"}, r"m=decimal\(39,2\) does not apply"),
        ({"m": "decimal(12,3)"}, r"m=decimal\(12,3\) does not apply"),
        ({"nothing": "long"}, "names the column nothing"),
    ],
)
def test_a_conversion_that_does_not_apply_is_refused_with_those_that_do(
    conversions: dict[str, str], why: str
) -> None:
    table = table_of(
        column_of("n", Simple("Int8")),
        column_of("s", Simple("String")),
        column_of("m", parse_type("Map(UInt64, Nullable(Decimal(9, 2)))")),
    )

    with pytest.raises(RefusedError, match=why):
        map_columns(table, conversions)


@pytest.mark.parametrize(
    ("type_text", "why"),
    [
        ("AggregateFunction(sum, UInt64)", r"exported only by a conversion .*choose --convert c=s"),
        ("Array(Dynamic)", r"Dynamic is .* choose --convert c=json or --convert c=string or --con"),
        ("Nullable(QBit(Float32, 2))", r"no list that may be NULL.*choose --convert c=string"),
    ],
)
def test_a_type_that_needs_a_conversion_is_refused_with_those_that_would_do(
    type_text: str, why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        mapped(c=type_text)


def test_strict_accepts_what_a_conversion_requests() -> None:
    """A user who gives --convert e=string accepts the other kind of value."""
    table = table_of(
        column_of("e", Enum(8, (("a", 1),))),
        column_of("t", parse_type("Tuple(a IPv4, b Time)")),
    )

    with pytest.raises(RefusedError, match=r"Cannot export db\.t: column t: .*Time as seconds"):
        map_columns(table, {"e": "string", "t": "long"}, strict=True)


def test_the_doc_says_what_the_iceberg_type_does_not() -> None:
    schema = mapped(
        i="IntervalWeek",
        s="SimpleAggregateFunction(max, UInt8)",
        v="Variant(UInt8, Array(Int8))",
        f="FixedString(3)",
    )

    assert schema.find_field("i").doc == "(number of weeks)"
    assert schema.find_field("s").doc == "(max, of rows that may not be merged yet)"
    assert schema.find_field("v").doc == "(Variant as a struct; Array_Int8 is Array(Int8))"
    assert schema.find_field("f").doc is None


def test_a_conversion_is_stored_in_one_form() -> None:
    table = table_of(column_of("d", parse_type("Decimal(9, 2)")))

    assert map_columns(table, {"d": " decimal( 12 , 2 ) "}).conversions == {"d": "decimal(12,2)"}


def test_members_of_a_variant_are_unique_without_regard_to_case() -> None:
    """Spark takes `a` and `A` for one; `type` is the discriminator."""
    schema = mapped(v="Variant(Tuple(a Int8), Tuple(A Int8), Enum8('x' = 1), Enum8('y' = 1))")

    members = [f.name for f in schema.find_type("v").fields]  # type: ignore[attr-defined]
    assert members == ["type", "Tuple_a_Int8", "Tuple_A_Int8_2", "Enum8", "Enum8_2"]


@given(sample=samples())
def test_every_type_of_the_first_half_has_a_schema_with_distinct_ids(sample: Sample) -> None:
    columns = map_columns(table_of(column_of("c", sample.type), column_of("d", sample.type)))

    ids = list(columns.schema._lazy_id_to_name)
    assert len(ids) == len(set(ids))
    assert [c.type for c in columns.columns] == [f.field_type for f in columns.schema.fields]
