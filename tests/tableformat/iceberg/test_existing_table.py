"""An existing lake table is taken as it is, or refused with every difference."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from tableformat.errors import Advice
from tableformat.iceberg.existing_table import (
    ExistingTable,
    check_existing,
    existing_refusal,
    written_schema,
)
from tableformat.iceberg.partition_spec import DerivedSpec, chosen_spec, derive_spec
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.iceberg.schema_evolution import evolve
from tableformat.iceberg.spec_fields import partition_spec
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import parse_type
from tableformat.messages import plain
from tests.strategies.existing import mutated_schemas
from tests.strategies.mapping import Sample, column_of, samples, table_of

INTS = ListType(9, IntegerType(), element_required=True)
UNPARTITIONED = DerivedSpec((), "")
ONLY_A = StructType(NestedField(9, "a", IntegerType(), required=False))


def differences(
    columns: dict[str, str], *lake: NestedField, version: int = 2, key: str = ""
) -> tuple[str, ...]:
    table = table_of(*(Column(n, parse_type(t), t) for n, t in columns.items()), partition_by=key)
    mapped = map_columns(table)
    found = check_existing(existing(*lake, version=version), mapped, derive_spec(table, mapped))
    return tuple(map(plain, found))


def existing(*lake: NestedField, version: int = 2) -> ExistingTable:
    return ExistingTable("lake.n.t", Schema(*lake), UNPARTITIONED_PARTITION_SPEC, version)


def field(number: int, name: str, of: IcebergType, *, required: bool = False) -> NestedField:
    return NestedField(number, name, of, required=required)


def test_columns_are_matched_by_name_and_optional_ones_of_the_lake_stay_null() -> None:
    found = differences(
        {"a": "Int32", "b": "String"},
        field(1, "more", StringType()),
        field(2, "b", StringType()),
        field(3, "a", IntegerType(), required=True),
    )

    assert found == ()


@pytest.mark.parametrize(
    ("clickhouse", "lake"),
    [
        ("Int32", LongType()),
        ("Float32", DoubleType()),
        ("Decimal(9, 2)", DecimalType(20, 2)),
        ("Array(UInt8)", ListType(9, LongType(), element_required=False)),
        ("Tuple(a Int8)", StructType(NestedField(9, "a", LongType(), required=False))),
        ("Map(Int8, Int8)", MapType(8, LongType(), 9, IntegerType(), value_required=False)),
    ],
)
def test_a_wider_column_of_the_lake_takes_every_value(clickhouse: str, lake: IcebergType) -> None:
    assert differences({"c": clickhouse}, field(1, "c", lake)) == ()


@pytest.mark.parametrize(
    ("clickhouse", "lake", "required", "why"),
    [
        ("Int64", IntegerType(), False, "c is long for ClickHouse and int in the destination"),
        ("String", BinaryType(), False, "--convert c=binary"),
        ("UInt64", LongType(), False, "--convert c=long"),
        ("UUID", StringType(), False, "--convert c=string"),
        ("Array(UUID)", ListType(9, FixedType(16), element_required=False), False,
         "--convert c=binary"),
        ("DateTime", TimestampType(), False, "no conversion makes them equal"),
        ("Int256", DecimalType(38, 0), False, r"--convert c=decimal\(38,0\)"),
        ("Decimal(9, 2)", DecimalType(20, 3), False, r"decimal\(9, 2\)"),
        ("Nullable(Int32)", IntegerType(), True, "c may be NULL in the source"),
        ("Array(Nullable(Int32))", INTS, False, r"c\.element may be NULL"),
        ("Tuple(a Int8, b Int8)", ONLY_A, False, r"c\.b \(int\) is missing"),
        ("Tuple(a Int8)", IntegerType(), False, "struct<.*> for ClickHouse and int"),
    ],
)  # fmt: skip
def test_a_column_that_would_not_hold_every_value_is_a_difference(
    clickhouse: str,
    lake: IcebergType,
    required: bool,  # noqa: FBT001  a column of the table above
    why: str,
) -> None:
    (found,) = differences({"c": clickhouse}, field(1, "c", lake, required=required))

    assert re.search(why, found)
    assert found.startswith("Tables have different structure: column c")


def test_all_differences_are_listed_at_once() -> None:
    found = differences(
        {"a": "Int32", "b": "String"},
        field(1, "a", StringType()),
        field(2, "extra", LongType(), required=True),
        version=1,
        key="a",
    )

    assert len(found) == 5
    assert "format version 1" in found[0]
    assert "column a is int" in found[1]
    assert "column b (string) is missing" in found[2]
    assert "extra is required in the destination" in found[3]
    assert found[4].startswith("Tables have different partition key")


@pytest.mark.parametrize(
    ("version", "key", "lake", "code"),
    [
        (1, "", IntegerType(), 48),
        (3, "a", IntegerType(), 48),
        (2, "a", IntegerType(), 36),
        (2, "a", StringType(), 122),
    ],
)
def test_the_refusal_has_clickhouses_code_for_the_first_difference(
    version: int, key: str, lake: IcebergType, code: int
) -> None:
    table = table_of(Column("a", parse_type("Int32"), "Int32"), partition_by=key)
    mapped = map_columns(table)

    refused = existing_refusal(
        "to lake.n.t",
        existing(field(1, "a", lake), version=version),
        mapped,
        derive_spec(table, mapped),
    )

    assert refused is not None
    assert refused.code == code
    assert refused.message.startswith("Cannot export to lake.n.t: ")


@pytest.mark.parametrize("name", ["a", "a;b", "a; --evolve-schema adds it"])
def test_the_way_out_depends_on_no_name(name: str) -> None:
    """Harm prevented: no message says that no conversion helps, because of its name."""
    (difference,) = differences({name: "Array(Int32)"}, field(1, name, IntegerType()))

    assert difference.endswith("in the destination; no conversion makes them equal")


@pytest.mark.parametrize("name", ["a", "a; --evolve-schema adds it"])
def test_what_is_advised_is_a_value(name: str) -> None:
    """Harm prevented: a next command that cannot help, because of the name of a column."""
    table = table_of(Column(name, parse_type("Int32"), "Int32"))
    mapped = map_columns(table)
    spec = derive_spec(table, mapped)

    lacking = existing_refusal("db.t", existing(field(1, "z", StringType())), mapped, spec)
    renamed = existing_refusal("db.t", existing(field(1, "z", IntegerType())), mapped, spec)
    differing = existing_refusal("db.t", existing(field(1, name, StringType())), mapped, spec)

    assert lacking is not None
    assert differing is not None
    assert renamed is not None
    assert renamed.advice == frozenset()
    assert lacking.advice == {Advice.EVOLVE_SCHEMA}
    assert differing.advice == frozenset()


@pytest.mark.parametrize(
    ("columns", "lake", "what"),
    [
        ({"a": "Int32", "b": "String"}, [field(1, "a", IntegerType())], "b (string) is missing "),
        ({"b": "Int32"}, [field(1, "a", IntegerType())], "which has a (int) in its place"),
        (
            {"a": "Int32"},
            [field(1, "a", IntegerType()), field(2, "b", IntegerType(), required=True)],
            "b is required in the destination, and the source has no such column",
        ),
        ({"a": "Nullable(Int8)"}, [field(1, "a", IntegerType(), required=True)], "a may be NULL"),
        ({"a": "Int64"}, [field(1, "a", IntegerType())], "a is long for ClickHouse and int in "),
        ({"a": "UInt64"}, [field(1, "a", LongType())], "a is decimal(20, 0) for ClickHouse and "),
        ({"a": "Tuple(a Int8, b Int8)"}, [field(1, "a", ONLY_A)], "a.b (int) is missing in the "),
    ],
)
def test_the_advice_for_a_tree_is_another_destination(
    columns: dict[str, str], lake: list[NestedField], what: str
) -> None:
    """Harm prevented: an ALTER TABLE of a tree, which no engine runs."""
    table = table_of(*(Column(n, parse_type(t), t) for n, t in columns.items()))
    mapped = map_columns(table)
    tree = replace(existing(*lake), name="hive:file:///tree", tree=True)

    refused = existing_refusal("db.t", tree, mapped, derive_spec(table, mapped))

    assert refused is not None
    assert what in refused.message
    assert refused.message.endswith("; export to another tree, or to an Iceberg table.")
    assert refused.message.count(";") == 1
    assert refused.advice == frozenset()


def test_a_table_that_fits_is_not_refused() -> None:
    table = table_of(Column("a", parse_type("Int32"), "Int32"))
    mapped = map_columns(table)

    assert (
        existing_refusal(
            "db.t",
            existing(*mapped.schema.fields),
            mapped,
            derive_spec(table, mapped),
        )
        is None
    )


SAYS = {
    "missing": "(",
    "fixed": "(",
    "extra": "is required in the destination",
    "null": "may be NULL",
    "type": "is ",
}


def columns_of_samples(found: list[Sample]) -> MappedColumns:
    return map_columns(table_of(*(column_of(f"c{i}", s.type) for i, s in enumerate(found))))


def assert_says_exactly(found: tuple[str, ...], expected: list[tuple[str, str]]) -> None:
    """Check that there is one sentence for each difference, and no other."""
    left = list(found)
    # A field that may be the one that is missing, under its old name, is reported with it.
    renamed = [pair for pair in expected if pair[1] == "extra" and _is_old_name(pair[0], found)]
    expected = [pair for pair in expected if pair not in renamed]
    for path, kind in sorted(expected, key=lambda pair: (pair[1] == "type", pair)):
        start = f"Tables have different structure: column {path} {SAYS[kind]}"
        (text, *_) = [text for text in left if text.startswith(start)] or [f"no {path}: {kind}"]
        assert text in left, (text, left)
        left.remove(text)
    assert left == []


def _is_old_name(path: str, found: tuple[str, ...]) -> bool:
    return any(f", which has {path} (" in text for text in found)


COLUMNS = st.lists(samples(rows=1), min_size=1, max_size=5).map(columns_of_samples)
PROPERTY = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@PROPERTY
@given(data=st.data(), mapped=COLUMNS)
def test_all_relevant_changes_of_a_table_and_no_others_are_listed(
    data: st.DataObject, mapped: MappedColumns
) -> None:
    """Harm prevented: a difference that is found only after the others were mended, or never."""
    lake = data.draw(mutated_schemas(mapped.schema, first_id=7))

    found = check_existing(existing(*lake.schema.fields), mapped, UNPARTITIONED)

    assert_says_exactly(found, lake.forbidden)


@PROPERTY
@given(data=st.data(), mapped=COLUMNS)
def test_a_table_that_grew_lacks_nothing_and_keeps_what_it_had(
    data: st.DataObject, mapped: MappedColumns
) -> None:
    """Harm prevented: an id that is used twice shows one column's values in another."""
    lake = data.draw(mutated_schemas(mapped.schema, first_id=7))
    last = lake.schema.highest_field_id + 20

    grown = evolve(lake.schema, UNPARTITIONED_PARTITION_SPEC, mapped, last)

    missing = sorted(path for path, kind in lake.forbidden if kind == "missing")
    if grown is None:
        assert missing == []
        return
    assert sorted(text.partition(" (")[0] for text in grown.added) == missing
    before, after = ids_of(lake.schema), ids_of(grown.schema)
    assert {name: after[name] for name in before} == before
    assert all(number > last for name, number in after.items() if name not in before)
    assert len(set(after.values())) == len(after)
    assert evolve(grown.schema, UNPARTITIONED_PARTITION_SPEC, mapped, max(after.values())) is None
    wider = {(text.partition(" (")[0], "type") for text in grown.widened}
    assert wider <= {*lake.forbidden}
    others = [pair for pair in lake.forbidden if pair[1] != "missing" and pair not in wider]
    found = check_existing(existing(*grown.schema.fields), mapped, UNPARTITIONED)
    assert_says_exactly(found, others)


@PROPERTY
@given(data=st.data(), mapped=COLUMNS)
def test_files_hold_the_fields_that_table_and_source_share_by_the_tables_ids(
    data: st.DataObject, mapped: MappedColumns
) -> None:
    """Harm prevented: values under the id of another field, which readers would show as its."""
    lake = data.draw(mutated_schemas(mapped.schema, forbidden=False, first_id=7))

    written = written_schema(lake.schema, mapped)

    there = ids_of(lake.schema)
    assert set(ids_of(written)) == set(ids_of(mapped.schema))
    assert {name: there[name] for name in ids_of(written)} == ids_of(written)


def ids_of(schema: Schema) -> dict[str, int]:
    """Return the id of every field at every depth, by its whole name."""
    return {str(schema.find_column_name(i)): i for i in schema.field_ids}


@pytest.mark.parametrize(
    ("clickhouse", "lake", "way"),
    [
        ("Int64", IntegerType(), "c TYPE bigint"),
        ("Decimal(9, 2)", DecimalType(5, 2), "c TYPE decimal(9,2)"),
        ("Array(Float64)", ListType(9, FloatType(), element_required=False),
         "c.element TYPE double"),
    ],
)  # fmt: skip
def test_a_table_that_could_become_wider_is_refused_with_the_statement(
    clickhouse: str, lake: IcebergType, way: str
) -> None:
    """Other people's tables are never changed silently."""
    (found,) = differences({"c": clickhouse}, field(1, "c", lake))

    assert found.endswith(f"ALTER TABLE lake.n.t ALTER COLUMN {way}")


@pytest.mark.parametrize(
    ("clickhouse", "lake", "wider", "widened"),
    [
        ("Int64", IntegerType(), LongType(), "c (int to long)"),
        ("Float64", FloatType(), DoubleType(), "c (float to double)"),
        ("Decimal(9, 2)", DecimalType(5, 2), DecimalType(9, 2),
         "c (decimal(5, 2) to decimal(9, 2))"),
        ("Array(Int64)", ListType(9, IntegerType(), element_required=False),
         ListType(9, LongType(), element_required=False), "c.element (int to long)"),
    ],
)  # fmt: skip
def test_a_type_that_is_too_narrow_is_widened_where_that_is_allowed(
    clickhouse: str, lake: IcebergType, wider: IcebergType, widened: str
) -> None:
    mapped = map_columns(table_of(column_of("c", parse_type(clickhouse))))

    grown = evolve(Schema(field(1, "c", lake)), UNPARTITIONED_PARTITION_SPEC, mapped, 20)

    assert grown is not None
    assert (grown.schema.find_field("c").field_type, grown.widened) == (wider, (widened,))
    assert not grown.added
    assert grown.changed == {"c"}
    (found,) = differences({"c": clickhouse}, field(1, "c", lake))
    assert "; --evolve-schema widens it, or ALTER TABLE lake.n.t ALTER COLUMN c" in found


@pytest.mark.parametrize(
    ("clickhouse", "lake"),
    [
        ("Int32", LongType()),
        ("Float64", IntegerType()),
        ("Int64", FloatType()),
        ("Decimal(9, 3)", DecimalType(9, 2)),
        ("String", IntegerType()),
    ],
)
def test_no_other_type_is_changed(clickhouse: str, lake: IcebergType) -> None:
    mapped = map_columns(table_of(column_of("c", parse_type(clickhouse))))

    assert evolve(Schema(field(1, "c", lake)), UNPARTITIONED_PARTITION_SPEC, mapped, 20) is None


def test_a_column_that_divides_the_table_is_not_widened() -> None:
    """Harm prevented: partition values of two types, which engines compare as different."""
    mapped = map_columns(table_of(column_of("c", parse_type("Int64"))))
    schema = Schema(field(1, "c", IntegerType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c"))

    assert evolve(schema, spec, mapped, 20) is None
    found, *_ = check_existing(ExistingTable("lake.n.t", schema, spec, 2), mapped, UNPARTITIONED)
    assert "; widen it there: ALTER TABLE lake.n.t ALTER COLUMN c TYPE bigint" in found


def test_a_key_of_a_map_is_not_widened() -> None:
    mapped = map_columns(table_of(column_of("c", parse_type("Map(Int64, String)"))))
    lake = MapType(8, IntegerType(), 9, StringType(), value_required=True)

    assert evolve(Schema(field(1, "c", lake)), UNPARTITIONED_PARTITION_SPEC, mapped, 20) is None


@pytest.mark.parametrize("required", [True, False])
def test_a_column_that_was_renamed_is_refused_with_the_statement(*, required: bool) -> None:
    """Harm prevented: two reasons that seem to have nothing to do with each other."""
    (found,) = differences(
        {"id": "Int64", "path": "String"},
        field(1, "id", LongType()),
        NestedField(2, "url", StringType(), required=required),
    )

    null = "allow NULL there: ALTER TABLE lake.n.t ALTER COLUMN url DROP NOT NULL, and "
    assert found.endswith(
        "column path (string) is missing in the destination, which has url (string) in its place; "
        "if it was renamed, rename it there: ALTER TABLE lake.n.t RENAME COLUMN url TO path; "
        f"otherwise {null if required else ''}--evolve-schema adds it"
    )


def test_a_member_of_a_struct_may_have_been_renamed_too() -> None:
    lake = StructType(field(2, "x y", LongType()), field(3, "b", StringType()))

    (found,) = differences({"c": "Tuple(a Int64, b String)"}, field(1, "c", lake))

    assert "ALTER TABLE lake.n.t RENAME COLUMN c.`x y` TO a; otherwise" in found


@pytest.mark.parametrize(
    "lake",
    [
        (field(1, "url", StringType()), field(2, "id", LongType())),
        (field(1, "id", LongType()), field(2, "url", DoubleType())),
    ],
    ids=["another position", "another type"],
)
def test_what_stands_elsewhere_or_is_of_another_type_was_not_renamed(
    lake: tuple[NestedField, ...],
) -> None:
    found = differences({"id": "Int64", "path": "String"}, *lake)

    assert not any("RENAME COLUMN" in text for text in found)


def test_a_table_that_forbids_null_is_refused_with_the_statement() -> None:
    found = differences(
        {"a b": "Nullable(Int32)"},
        field(1, "a b", IntegerType(), required=True),
        field(2, "x", IntegerType(), required=True),
    )

    assert [text.rpartition(": ")[2] for text in found] == [
        "ALTER TABLE lake.n.t ALTER COLUMN `a b` DROP NOT NULL",
        "ALTER TABLE lake.n.t ALTER COLUMN x DROP NOT NULL",
    ]


@pytest.mark.parametrize(
    ("lake", "stands"),
    [
        ((field(1, "ID", LongType()),), "ID"),
        ((field(1, "s", StructType(field(2, "id", LongType(), required=False))),), None),
        ((field(1, "x", LongType()),), None),
    ],
)
def test_a_column_that_differs_only_in_case_is_not_added(
    lake: tuple[NestedField, ...], stands: str | None
) -> None:
    """Harm prevented: a table that Spark cannot read any more."""
    (found,) = differences({"id": "Int64"}, *lake)

    way = f"cannot be added next to {stands}; rename one" if stands else "--evolve-schema adds it"
    assert way in found


def test_a_column_is_not_added_under_the_name_of_a_partition_field() -> None:
    mapped = map_columns(table_of(Column("ts_month", parse_type("Int64"), "Int64")))
    lake = Schema(field(1, "ts", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "ts_month"))

    assert evolve(lake, spec, mapped, 1) is None
    found = check_existing(ExistingTable("t", lake, spec, 2), mapped, UNPARTITIONED)
    assert "cannot be added next to the partition field ts_month" in found[0]


@pytest.mark.parametrize("version", [1, 3, 4])
def test_other_format_versions_are_refused_with_the_reason(version: int) -> None:
    says = {
        1: r"SET TBLPROPERTIES \('format-version'='2'\)",
        3: "does not support version 3",
        4: "not know",
    }

    (found,) = differences({"a": "Int32"}, field(1, "a", IntegerType()), version=version)

    assert re.search(says[version], found)
    assert f"Iceberg of format version {version} does not support MergeTree parts" in found


@pytest.mark.parametrize(
    ("key", "remembered", "is_refused"),
    [
        ("toYYYYMM(d)", "toYYYYMM(d)", False),
        ("toYYYYMM(d)", None, False),
        ("(toYYYYMM(d))", "toYYYYMM(`d`)", False),
        ("toStartOfMonth(d)", "toYYYYMM(d)", True),
        ("toYYYYMM(d)", "toStartOfMonth(d)", True),
        ("toYYYYMM(d)", "", True),
    ],
)
def test_another_expression_of_the_same_spec_is_refused_if_one_is_stored(
    key: str, remembered: str | None, *, is_refused: bool
) -> None:
    """Harm prevented: DETACH PARTITION 202401 takes rows out that the source calls 20240101."""
    table = table_of(Column("d", parse_type("Date"), "Date"), partition_by=key)
    mapped = map_columns(table)
    derived = derive_spec(table, mapped)
    spec = partition_spec(derived.fields, mapped.schema)
    there = ExistingTable("lake.n.t", mapped.schema, spec, 2, remembered)

    refused = existing_refusal("db.t to lake.n.t", there, mapped, derived)
    chosen = existing_refusal("db.t to lake.n.t", there, mapped, chosen_spec(table, derived.fields))

    assert chosen is None
    assert (refused is not None) == is_refused
    if refused is not None:
        assert refused.code == 36
        assert "Tables have different partition key" in refused.message
        assert "--partition-spec 'month(d)'" in str(refused)
