"""Files of a whole export stand in the partition and in the order that the lake says they do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import SortDirection

from tests.support.real_export import RealExport

COLUMNS = (
    "ts Nullable(DateTime64(3, 'UTC')), k UInt64, s Nullable(String), e Enum8('b' = 1, 'a' = 2)"
)
ROWS = (
    "SELECT if(number % 7 = 0, NULL, toDateTime64('1969-12-30 12:00:00', 3, 'UTC') + number * 7000)"
    ", cityHash64(number) AS k, if(number % 5 = 0, NULL, toString(k % 7)), 1 + number % 2"
    " FROM numbers(60)"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("order", "fields"),
    [
        (
            "(toDate32(ts) DESC, toHour(ts), intDiv(k, 1000), e)",
            ["day", "hour", "truncate[1000]", "identity"],
        ),
        (
            "(substringUTF8(s, 1, 1) DESC, icebergBucket(4, s), k)",
            ["truncate[1]", "bucket[4]", "identity"],
        ),
    ],
)
def test_a_file_that_is_marked_as_sorted_is_in_that_order(
    exports: RealExport, order: str, fields: list[str]
) -> None:
    """Harm prevented: a reader that trusts the order skips rows, or merges files wrongly."""
    name = exports.clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY toYYYYMM(ts) ORDER BY {order} "
        "SETTINGS allow_nullable_key = 1, allow_experimental_reverse_key = 1",
        COLUMNS,
    )
    exports.clickhouse.command(f"INSERT INTO {name.sql} {ROWS}")
    exports.clickhouse.command(f"INSERT INTO {name.sql} {ROWS}")

    outcomes = exports.run(name, conversions={"e": "long"})

    assert {o.status.value for o in outcomes} == {"committed"}
    table = exports.lake(name)
    declared = table.sort_order()
    assert [str(f.transform) for f in declared.fields] == fields
    marked = [f for f in exports.data_files(name) if f.sort_order_id == declared.order_id]
    assert len(marked) == len(exports.data_files(name)) == 3
    for file in marked:
        rows = pq.read_table(urlparse(file.file_path).path).to_pylist()
        keys = [
            tuple(
                _sortable(
                    f.transform.transform(table.schema().find_type(f.source_id))(
                        _internal(row[table.schema().find_column_name(f.source_id) or ""])
                    ),
                    descending=f.direction is SortDirection.DESC,
                )
                for f in declared.fields
            )
            for row in rows
        ]
        assert all(one <= other for one, other in pairwise(keys))


def test_partitions_have_the_values_of_their_rows_and_readable_directories(
    exports: RealExport,
) -> None:
    name = exports.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY (toYear(ts), toMonth(ts), e, s) ORDER BY k "
        "SETTINGS allow_nullable_key = 1",
        COLUMNS,
    )
    exports.clickhouse.command(f"INSERT INTO {name.sql} {ROWS}")

    exports.run(name)

    spec = exports.lake(name).spec()
    assert [(f.name, str(f.transform)) for f in spec.fields] == [
        ("ts_month", "month"),
        ("e", "identity"),
        ("s", "identity"),
    ]
    for file in exports.data_files(name):
        month, label, text = file.partition[0], file.partition[1], file.partition[2]
        rows = pq.read_table(urlparse(file.file_path).path).to_pylist()
        assert {_month(row["ts"]) for row in rows} == {month}
        assert {(row["e"], row["s"]) for row in rows} == {(label, text)}
        shown = {None: "__HIVE_DEFAULT_PARTITION__", -1: "1969-12", 0: "1970-01"}[month]
        assert f"/ts_month={shown}/e={label}/s=" in file.file_path


def _internal(value: object) -> object:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return value


def _sortable(value: object, *, descending: bool) -> tuple[bool, object]:
    """Return a value as it sorts, NULL last ascending and first descending."""
    if value is None:
        return (not descending, 0)
    if isinstance(value, str):
        value = tuple(value.encode())
    if descending:
        value = (*(-b for b in value), 1) if isinstance(value, tuple) else -value  # type: ignore[operator]
    return (descending, value)


def _month(value: datetime | None) -> int | None:
    return None if value is None else (value.year - 1970) * 12 + value.month - 1
