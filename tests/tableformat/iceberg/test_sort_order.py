"""The declared sort order holds for rows that ClickHouse has sorted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from tableformat.export.slice_sql import order_by, select_list
from tableformat.iceberg.arrow_schema import to_file
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.sort_order import (
    SortedField,
    file_order,
    same_order,
    sort_order,
    sort_prefix,
)
from tableformat.mergetree.expression_parser import parse_sorting_key
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    LowCardinality,
    Nullable,
    Simple,
)
from tests.strategies.mapping import column_of, table_of, type_samples
from tests.support.embedded_clickhouse import EmbeddedClickHouse

EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
SORTED: list[DataType] = [
    *(Simple(n) for n in ("Int8", "Int64", "UInt32", "UInt64", "Bool", "String", "Date", "Date32")),
    DateTime("Asia/Tokyo"),
    DateTime64(3, "UTC"),
    DateTime64(9, "America/New_York"),
    Decimal(9, 2),
    Decimal(38, 10),
    FixedString(3),
    LowCardinality(Simple("String")),
    Nullable(Simple("Int32")),
    Nullable(Simple("String")),
    LowCardinality(Nullable(Simple("String"))),
    Nullable(DateTime64(0, "UTC")),
]
UNSORTED: list[DataType] = [
    *(Simple(n) for n in ("UUID", "Float64", "BFloat16", "Int128", "UInt256")),
    Enum(8, (("b", 1), ("a", 2))),
    Decimal(50, 2),
    Array(Simple("Int8")),
    Nullable(Simple("UUID")),
]


_NONE: Mapping[str, str] = MappingProxyType({})


def prefix_of(
    key: str, conversions: Mapping[str, str] = _NONE, **columns: DataType
) -> tuple[SortedField, ...]:
    table = table_of(*(column_of(n, of) for n, of in columns.items()), order_by=key)
    return sort_prefix(table, map_columns(table, conversions))


def shown(prefix: tuple[SortedField, ...]) -> list[str]:
    direction = {False: "asc", True: "desc"}
    nulls = {False: "last", True: "first"}
    return [f"{f.field} {direction[f.descending]} nulls {nulls[f.nulls_first]}" for f in prefix]


@pytest.mark.parametrize("of", UNSORTED, ids=str)
def test_a_column_that_sorts_otherwise_on_the_other_side_ends_the_prefix(of: DataType) -> None:
    """A false sort order makes readers skip rows."""
    prefix = prefix_of("(id, c, d)", id=Simple("UInt64"), c=of, d=Simple("Date"))

    assert shown(prefix) == ["id asc nulls last"]


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("", []),
        ("tuple()", []),
        ("(id, s)", ["id asc nulls last", "s asc nulls last"]),
        ("(id DESC, s)", ["id desc nulls first", "s asc nulls last"]),
        ("(toDate(ts), id)", ["day(ts) asc nulls last", "id asc nulls last"]),
        ("(toStartOfHour(ts) DESC, id)", ["hour(ts) desc nulls first", "id asc nulls last"]),
        ("(s, -id32)", ["s asc nulls last", "id32 desc nulls last"]),
        ("(s, -id)", ["s asc nulls last"]),
        ("(s, lower(s), id)", ["s asc nulls last"]),
        ("(s, cityHash64(id))", ["s asc nulls last"]),
        ("(toYYYYMM(tokyo), id)", []),
        ("(toDate(fine), id)", []),
        ("(toYYYYMM(fine), id)", ["month(fine) asc nulls last", "id asc nulls last"]),
        ("(toYear(ts), toMonth(ts))", ["year(ts) asc nulls last", "month(ts) asc nulls last"]),
        ("(toDate(ts) DESC, toHour(ts))", ["day(ts) desc nulls first", "hour(ts) asc nulls last"]),
        ("(toDate(ts), toMonday(ts), s)", ["day(ts) asc nulls last", "s asc nulls last"]),
        ("(toMonth(ts), s)", []),
        ("(toYear(ts), toDayOfMonth(ts))", ["year(ts) asc nulls last"]),
        ("(toDate(bare), s)", []),
        ("(bare, s)", ["bare asc nulls last", "s asc nulls last"]),
        ("(toDate(bare, 'UTC'), s)", ["day(bare) asc nulls last", "s asc nulls last"]),
        ("(toUnixTimestamp(bare), s)", ["bare asc nulls last", "s asc nulls last"]),
        ("(formatDateTime(ts, '%Y-%m'), s)", ["month(ts) asc nulls last", "s asc nulls last"]),
        ("(formatDateTime(ts, '%m/%Y'), s)", []),
        ("(intDiv(id, 10), s)", ["truncate(10, id) asc nulls last", "s asc nulls last"]),
        ("(id - id % 10, s)", []),
        (
            "(icebergTruncate(10, id32), s)",
            ["truncate(10, id32) asc nulls last", "s asc nulls last"],
        ),
        ("(icebergBucket(8, s), id)", ["bucket(8, s) asc nulls last", "id asc nulls last"]),
        ("(substringUTF8(s, 1, 2), id)", ["truncate(2, s) asc nulls last", "id asc nulls last"]),
    ],
)
def test_the_longest_true_prefix_is_declared(key: str, order: list[str]) -> None:
    prefix = prefix_of(
        key,
        id=Simple("UInt64"),
        id32=Simple("UInt32"),
        s=Simple("String"),
        ts=DateTime("UTC"),
        tokyo=DateTime("Asia/Tokyo"),
        fine=DateTime64(3, "UTC"),
        bare=DateTime(),
    )

    assert shown(prefix) == order


@pytest.mark.parametrize(
    ("of", "conversion"),
    [
        (Enum(8, (("b", 1), ("a", 2))), "long"),
        (Simple("IPv4"), "long"),
        (Simple("IPv6"), "binary"),
        (Simple("UInt64"), "long"),
        (Simple("Int128"), "decimal(38,0)"),
        (Decimal(50, 2), "decimal(38,2)"),
        (Simple("String"), "binary"),
    ],
)
def test_a_conversion_that_keeps_the_order_is_declared(of: DataType, conversion: str) -> None:
    prefix = prefix_of("(c, id)", {"c": conversion}, c=of, id=Simple("Int8"))

    assert shown(prefix) == ["c asc nulls last", "id asc nulls last"]


@pytest.mark.parametrize(
    ("of", "conversion"),
    [
        (Simple("UUID"), "binary"),
        (Simple("UInt64"), "string"),
        (DateTime64(9, "UTC"), "truncate"),
        (Decimal(50, 2), "string"),
    ],
)
def test_a_conversion_that_loses_the_order_ends_the_prefix(of: DataType, conversion: str) -> None:
    """UUIDs compare their low half first, also as bytes; rounded times are equal."""
    assert prefix_of("(c, id)", {"c": conversion}, c=of, id=Simple("Int8")) == ()


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        started.run("SET allow_suspicious_low_cardinality_types = 1")
        yield started


NEGATED: list[DataType] = [Simple("UInt8"), Decimal(9, 2), Nullable(Simple("UInt32"))]
KEYS = [
    *("(a, b)", "(a DESC, b)", "(a, b DESC)", "b DESC", "(toYYYYMM(t), a)"),
    *("(toDate(t) DESC, b)", "(-u, a)", "(-u DESC, a)"),
    *("(toYear(t), toMonth(t))", "(toDate(t) DESC, toHour(t))", "(toLastDayOfMonth(t), a)"),
    *("(intDiv(w, 10), a)", "(icebergTruncate(7, w) DESC, b)", "(icebergBucket(3, s), b)"),
    *("(substringUTF8(s, 1, 1), a)", "(toStartOfInterval(t, INTERVAL 1 HOUR), b)"),
]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_rows_that_clickhouse_has_sorted_are_in_the_declared_order(
    clickhouse: EmbeddedClickHouse, data: st.DataObject
) -> None:
    """By Iceberg's rules: unsigned bytes, the declared place of NULLs, transforms."""
    types: dict[str, DataType] = {
        "a": data.draw(st.sampled_from(SORTED)),
        "b": data.draw(st.sampled_from(SORTED)),
        "t": DateTime("UTC"),
        "u": data.draw(st.sampled_from(NEGATED)),
        "w": Simple("UInt32"),
        "s": Nullable(Simple("String")),
    }
    samples = {n: data.draw(type_samples(of, rows=4)) for n, of in types.items()}
    table = table_of(
        *(column_of(n, of) for n, of in types.items()), order_by=data.draw(st.sampled_from(KEYS))
    )
    columns = map_columns(table)
    prefix = sort_prefix(table, columns)
    # Few distinct values per column, so that the second field of the key decides, too.
    inserted = ", ".join(
        f"arrayElement([{', '.join(s.sql)}], 1 + intDiv(number * {i + 3}, 5) % 4) AS {n}"
        for i, (n, s) in enumerate(samples.items())
    )
    clickhouse.run(
        "DROP TABLE IF EXISTS sorted SYNC",
        f"CREATE TABLE sorted ({', '.join(f'{c.name} {c.type_text}' for c in table.columns)}) "
        f"ENGINE = MergeTree ORDER BY {table.engine.order_by} "
        "SETTINGS allow_nullable_key = 1, allow_experimental_reverse_key = 1",
        f"INSERT INTO sorted SELECT {inserted} FROM numbers(12)",
        f"INSERT INTO sorted SELECT {inserted} FROM numbers(7)",
    )
    wire, order = select_list(table.columns), order_by(table.engine)
    query = f"SELECT {wire} FROM sorted AS __src ORDER BY {order}"

    seen = to_file(clickhouse.arrow(query), columns.schema).to_pylist()

    assert len(prefix) == len(parse_sorting_key(table.engine.order_by))
    assert all(compare(prefix, columns, x, y) <= 0 for x, y in pairwise(seen))
    plan = "\n".join(line for (line,) in clickhouse.rows(f"EXPLAIN actions = 1 {query}"))
    assert "Prefix sort description" in plan, "the rows are read in order, not sorted anew"


def compare(
    prefix: tuple[SortedField, ...], columns: Any, x: dict[str, Any], y: dict[str, Any]
) -> int:
    for f in prefix:
        of = columns.find(f.field.column).type
        one, other = (
            bytes_of(f.field.iceberg.transform(of)(internal(row[f.field.column]))) for row in (x, y)
        )
        if one == other:
            continue
        if one is None or other is None:
            return -1 if (one is None) == f.nulls_first else 1
        return -1 if (one < other) != f.descending else 1
    return 0


def internal(value: Any) -> Any:
    match value:
        case datetime():
            delta = value - EPOCH
            return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
        case date():
            return value.toordinal() - 719_163
        case _:
            return value


def bytes_of(value: Any) -> Any:
    """Iceberg compares strings as UTF-8."""
    return value.encode() if isinstance(value, str) else value


def test_the_tables_order_and_the_files_order_speak_of_its_own_field_ids() -> None:
    table = table_of(
        column_of("other", Simple("Int8")),
        column_of("id", Nullable(Simple("Int32"))),
        column_of("ts", DateTime("UTC")),
        order_by="(id DESC, toDate(ts), other)",
    )
    columns = map_columns(table)
    schema = assign_fresh_schema_ids(columns.schema, iter(range(7, 99)).__next__)
    prefix = sort_prefix(table, columns)

    order = sort_order(prefix, schema)

    ids = {c.name: c.field_id for c in schema.fields}
    assert [f.source_id for f in order.fields] == [ids["id"], ids["ts"], ids["other"]]
    assert [str(f.transform) for f in order.fields] == ["identity", "day", "identity"]
    assert order.fields[0].direction is SortDirection.DESC
    assert order.fields[0].null_order is NullOrder.NULLS_FIRST
    assert file_order(prefix, schema) == ((ids["id"], True, True),)


def test_files_claim_a_tables_order_only_if_it_is_a_prefix_of_theirs() -> None:
    table = table_of(
        column_of("a", Simple("Int8")), column_of("b", Simple("Int8")), order_by="(a, b)"
    )
    columns = map_columns(table)
    prefix = sort_prefix(table, columns)
    schema = columns.schema

    assert same_order(prefix, sort_order(prefix, schema), schema)
    assert same_order(prefix, sort_order(prefix[:1], schema), schema)
    assert not same_order(prefix, sort_order(prefix[1:], schema), schema)
    assert not same_order(prefix[:1], sort_order(prefix, schema), schema)
    assert not same_order(prefix, SortOrder(), schema)
