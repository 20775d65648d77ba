"""Specs of partition keys; inexact keys are refused with a remedy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.transforms import MonthTransform

from tableformat.errors import RefusedError, UsageError
from tableformat.iceberg.partition_spec import DerivedSpec, chosen_spec, derive_spec, spec_matches
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.spec_fields import SpecField, parse_spec, partition_spec, render_spec
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    FixedString,
    Simple,
)
from tests.strategies.mapping import column_of, table_of

UTC = DateTime("UTC")


def table(key: str, *, ts: DataType = UTC, server_zone: str = "UTC") -> MergeTreeTable:
    return table_of(
        column_of("ts", ts),
        column_of("d", Simple("Date")),
        column_of("id", Simple("UInt64")),
        column_of("region", Simple("String")),
        column_of("u", Simple("UUID")),
        column_of("f", Simple("Float64")),
        column_of("tags", Array(Simple("String"))),
        column_of("money", Decimal(30, 2)),
        partition_by=key,
        server_zone=server_zone,
    )


def derived(key: str, **more: DataType | str) -> DerivedSpec:
    made = table(key, **more)  # type: ignore[arg-type]
    return derive_spec(made, map_columns(made))


@pytest.mark.parametrize(
    ("key", "spec"),
    [
        ("", "unpartitioned"),
        ("tuple()", "unpartitioned"),
        ("region", "region"),
        ("(region, d)", "region, d"),
        ("toYYYYMM(ts)", "month(ts)"),
        ("toYYYYMMDD(ts)", "day(ts)"),
        ("toYear(d)", "year(d)"),
        ("toDate(ts)", "day(ts)"),
        ("toStartOfMonth(d)", "month(d)"),
        ("toStartOfHour(ts)", "hour(ts)"),
        ("(toYYYYMM(ts), region)", "month(ts), region"),
        ("(toYYYYMM(ts), toDate(ts), region)", "day(ts), region"),
        ("(toYYYYMM(ts), toYYYYMM(d))", "month(ts), month(d)"),
        ("(toYear(ts), toMonth(ts))", "month(ts)"),
        ("(toHour(ts), region, toDate(ts))", "hour(ts), region"),
        ("(toYear(ts), toMonth(d), toYear(d))", "year(ts), month(d)"),
        ("(d, toMonday(d), region, lower(region))", "d, region"),
        ("(d, concat(region, toString(d)), region)", "d, region"),
        ("intDiv(id, 1000)", "truncate(1000, id)"),
        ("(icebergBucket(8, region), toYear(d))", "bucket(8, region), year(d)"),
    ],
)
def test_a_key_that_is_exact_is_derived(key: str, spec: str) -> None:
    assert str(derived(key)) == spec
    assert derived(key).notes == ()


def test_a_key_that_wraps_outside_1970_to_2105_is_derived_with_a_note() -> None:
    """ToDate of a DateTime64 is the most common key; the proof refuses wrapped values."""
    spec = derived("toDate(ts)", ts=DateTime64(3, "UTC"))

    assert str(spec) == "day(ts)"
    assert "1970 to 2105 only" in spec.notes[0]


def test_a_part_with_a_key_that_wraps_is_derived_with_the_note() -> None:
    spec = derived("(toDate(ts), toHour(ts))", ts=DateTime64(3, "UTC"))

    assert str(spec) == "hour(ts)"
    assert "toDate(ts) is day(ts) from 1970 to 2105 only" in spec.notes[0]


@pytest.mark.parametrize(
    "key", ["toStartOfHour(ts)", "toStartOfMinute(ts)", "(toStartOfHour(ts), region)"]
)
def test_a_key_finer_than_hours_is_refused_with_that_suggestion(key: str) -> None:
    """Zones of whole hours divide as UTC does, others do not: only the data tells."""
    with pytest.raises(RefusedError, match=r"for example 'hour\(ts\)"):
        derived(key, ts=DateTime("Asia/Tokyo"))


@pytest.mark.parametrize(
    ("key", "spec"),
    [
        ("intDiv(toUnixTimestamp(ts), 3600)", "hour(ts)"),
        ("intDiv(toUnixTimestamp(ts), 86400)", "day(ts)"),
        ("toUnixTimestamp(ts)", "ts"),
        ("toDaysSinceYearZero(ts)", "day(ts)"),
        ("icebergHour(ts)", "hour(ts)"),
        ("toYYYYMM(toTimezone(ts, 'Etc/UTC'))", "month(ts)"),
        ("toDate(toDateTime(ts, 'UTC'))", "day(ts)"),
    ],
)
def test_a_function_of_the_instant_follows_no_zone(key: str, spec: str) -> None:
    assert str(derived(key, ts=DateTime("Asia/Kolkata"))) == spec


def test_days_since_year_zero_of_a_fine_time_follow_its_zone() -> None:
    """ClickHouse counts days of a DateTime in UTC, and of a DateTime64 in the column's zone."""
    with pytest.raises(RefusedError, match="time zone Asia/Tokyo"):
        derived("toDaysSinceYearZero(ts)", ts=DateTime64(3, "Asia/Tokyo"))


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "Asia/Kolkata", "Europe/London"])
def test_a_key_in_another_zone_than_utc_is_refused(zone: str) -> None:
    """A Tokyo month is not an Iceberg month: rows of the first nine hours would be hidden."""
    with pytest.raises(RefusedError, match=f"time zone {zone}.*UTC"):
        derived("toYYYYMM(ts)", ts=DateTime(zone))


def test_a_column_without_a_zone_follows_the_server() -> None:
    assert str(derived("toYYYYMM(ts)", ts=DateTime())) == "month(ts)"
    with pytest.raises(RefusedError, match="time zone Asia/Tokyo"):
        derived("toYYYYMM(ts)", ts=DateTime(), server_zone="Asia/Tokyo")


def test_an_explicit_utc_is_utc_whatever_the_column_says() -> None:
    assert str(derived("toYYYYMM(ts, 'UTC')", ts=DateTime("Asia/Tokyo"))) == "month(ts)"


@pytest.mark.parametrize(
    ("key", "why", "offer"),
    [
        ("toMonday(ts)", "no Iceberg transform", "unpartitioned"),
        ("(toMonday(ts), region)", "no Iceberg transform", "region"),
        ("toStartOfFiveMinutes(ts)", "no Iceberg transform", r"hour\(ts\)"),
        (
            "icebergBucket(16, id)",
            "another hash; --convert id=long keeps the hash",
            "unpartitioned",
        ),
        ("u", "prune identity of a uuid wrongly", r"bucket\(16, u\)"),
        ("(toYear(ts), toQuarter(ts))", "toQuarter.*no Iceberg transform", r"year\(ts\)"),
        ("toMonth(ts)", "no Iceberg transform", "unpartitioned"),
        ("toStartOfInterval(ts, INTERVAL 15 MINUTE)", "no Iceberg transform", r"hour\(ts\)"),
        ("toStartOfInterval(ts, INTERVAL 6 HOUR)", "no Iceberg transform", r"day\(ts\)"),
        ("toStartOfInterval(ts, INTERVAL 5 HOUR)", "no Iceberg transform", "unpartitioned"),
        ("dateTrunc('quarter', ts)", "no Iceberg transform", r"year\(ts\)"),
        ("intDiv(toUnixTimestamp(ts), 600)", "no Iceberg transform", r"hour\(ts\)"),
        ("left(region, 3)", "counts bytes", r"truncate\(3, region\)"),
        ("murmurHash3_32(id) % 16", "no Iceberg transform", "unpartitioned"),
        ("icebergBucket(4, cityHash64(id))", "something else than a column", "unpartitioned"),
        ("intDiv(nope, 10)", "stores no column nope", "unpartitioned"),
        ("toYear(region)", "when region is a String", "unpartitioned"),
        ("f", "do not identify a partition", "unpartitioned"),
        ("tags", "only single values", "unpartitioned"),
    ],
)
def test_a_key_that_is_not_exact_is_refused_with_the_spec_to_choose(
    key: str, why: str, offer: str
) -> None:
    with pytest.raises(RefusedError, match=f"(?s)--partition-spec, for example '{offer}'.*{why}"):
        derived(key)


def test_every_expression_of_a_key_that_cannot_be_derived_is_named_at_once() -> None:
    with pytest.raises(
        RefusedError, match=r"(?s)toMonday\(ts\) of .*cityHash64\(id\) of "
    ) as found:
        derived("(toMonday(ts), region, cityHash64(id))")

    assert found.value.code == 36


@pytest.mark.parametrize(
    ("key", "spec", "same"),
    [
        ("(id, other)", "id, other", r"decimal\(20, 0\)"),
        ("(id, intDiv(other, 10))", "id, truncate(10, other)", r"decimal\(20, 0\)"),
        ("(short, short2)", "short, short2", r"fixed\[4\]"),
    ],
)
def test_two_fields_of_one_decimal_or_fixed_type_are_refused(
    key: str, spec: str, same: str
) -> None:
    """Harm prevented: a table whose manifests define an Avro type twice ends DuckDB's process."""
    more = (
        column_of("id", Simple("UInt64")),
        column_of("other", Simple("UInt64")),
        column_of("short", FixedString(4)),
        column_of("short2", FixedString(4)),
    )
    made = table_of(*more, partition_by=key)
    columns = map_columns(made)

    for refuse in (lambda: derive_spec(made, columns), lambda: parse_spec(spec, columns)):
        with pytest.raises(RefusedError, match=f"has the same type {same}") as found:
            refuse()
        assert found.value.code == 36

    one_as_long = map_columns(made, {"other": "long"}) if "other" in key else None
    if one_as_long is not None:
        assert len(derive_spec(made, one_as_long).fields) == 2


NAMES = st.sampled_from(["ts", "d", "id", "region", "money", "unpartitioned", "a b", "`q"])


@given(
    fields=st.lists(
        st.one_of(
            st.builds(SpecField, NAMES, st.sampled_from(["identity", "year", "month", "day"])),
            st.builds(
                SpecField, NAMES, st.sampled_from(["bucket", "truncate"]), st.integers(1, 2**31 - 1)
            ),
        ),
        max_size=3,
        unique_by=lambda f: f.column,
    )
)
def test_a_spec_reads_back_as_it_was_written(fields: list[SpecField]) -> None:
    columns = map_columns(
        table_of(
            *(
                column_of(
                    n, Simple("Date" if f.transform in ("year", "month", "day") else "String")
                )
                for f in fields
                for n in [f.column]
            ),
            column_of("other", Simple("Int8")),
        )
    )

    again = parse_spec(render_spec(tuple(fields)), columns)

    assert [f.meaning for f in again] == [f.meaning for f in fields]


def test_a_users_spec_may_speak_like_spark() -> None:
    columns = map_columns(table(""))

    fields = parse_spec("months(ts), bucket(id, 16), truncate(4, region)", columns)

    assert render_spec(fields) == "month(ts), bucket(16, id), truncate(4, region)"
    assert [f.name for f in fields] == ["ts_month", "id_bucket", "region_trunc"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("month(nothing)", "no column nothing"),
        ("month(region)", "month cannot be taken of an Iceberg string"),
        ("u", "bucket"),
        ("month(ts), day(ts)", "already divides ts"),
    ],
)
def test_a_users_spec_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        parse_spec(text, map_columns(table("")))


@pytest.mark.parametrize("text", ["week(ts)", "bucket(0, id)", "month(ts, 3)", "5"])
def test_a_users_spec_that_is_none_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"'month\(ts\), bucket\(16, id\)'"):
        parse_spec(text, map_columns(table("")))


def test_a_partition_field_never_takes_the_name_of_a_column() -> None:
    """Iceberg refuses a table whose field ts_month is not of the column ts_month."""
    made = table_of(
        column_of("ts", DateTime("UTC")),
        column_of("ts_month", Simple("Int32")),
        partition_by="toYYYYMM(ts)",
    )

    assert derive_spec(made, map_columns(made)).fields[0].name == "ts_month_2"


def test_a_table_with_the_same_division_matches_under_any_field_names() -> None:
    made = table("toYYYYMM(ts)")
    columns = map_columns(made)
    schema = assign_fresh_schema_ids(columns.schema)
    spec = derive_spec(made, columns)

    assert spec_matches(spec, partition_spec(spec.fields, schema), schema) == ""
    renamed = PartitionSpec(
        PartitionField(schema.find_field("ts").field_id, 1007, MonthTransform(), "m")
    )
    assert spec_matches(spec, renamed, schema) == ""


def test_a_table_with_another_division_is_refused_with_both() -> None:
    made = table("toYYYYMM(ts)")
    columns = map_columns(made)

    difference = spec_matches(derive_spec(made, columns), PartitionSpec(), columns.schema)

    assert difference.startswith("Tables have different partition key")
    assert "'month(ts)'" in difference
    assert "'unpartitioned'" in difference


def test_a_spec_that_the_user_chose_says_so() -> None:
    made = table("toMonday(ts)")

    spec = chosen_spec(made, parse_spec("hour(ts)", map_columns(made)))

    assert spec.chosen
    assert str(spec) == "hour(ts)"
