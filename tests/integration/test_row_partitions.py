"""In which partitions rows of a file lie: ClickHouse says the same of it as of the table.

The oracle is the export itself: a file of it holds rows of the partition of its ledger key.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.clickhouse.rows.partitions import RowPartitions
from tableformat.committer import BranchFile
from tableformat.errors import DestinationError, RefusedError
from tableformat.export.outcome import Status
from tableformat.file_names import key_in
from tableformat.iceberg.arrow_schema import file_schema
from tableformat.iceberg.properties import remembered_source
from tableformat.iceberg.snapshot import state_of
from tableformat.names import PartitionId, TableName
from tests.support.real_export import RealExport

KEYS = {
    "toYYYYMM(c)": ("Date", "toDate('2023-11-01') + number % 90"),
    "toDate(c)": (
        "DateTime('Asia/Tokyo')",
        "toDateTime('2024-01-01 00:00:00', 'Asia/Tokyo') + number * 3600",
    ),
    "toStartOfHour(c)": (
        "DateTime64(3, 'UTC')",
        "toDateTime64('1969-12-31 23:00:00', 3, 'UTC') + number * 60",
    ),
    "(c, cityHash64(n) % 2)": (
        "LowCardinality(String)",
        "['a', '', 'ü b', 'x/y'][number % 4 + 1]",
    ),
    "intDiv(c, 10)": ("Int32", "toInt32(number) - 40"),
    "c % 7": ("Int64", "toInt64(number) - 40"),
    "tuple()": ("Int32", "number"),
}
PLAIN = {
    "UInt64": "18446744073709551615 - number % 3",
    "UInt256": "toUInt256(number % 3) * 10000000000000000000",
    "Enum8('one' = -1, 'two' = 2)": "if(number % 2, 'one', 'two')",
    "UUID": "toUUID(concat('00000000-0000-0000-0000-00000000000', toString(number % 4)))",
    "IPv4": "toIPv4(concat('10.0.0.', toString(number % 3)))",
    "IPv6": "toIPv6(concat('2001:db8::', toString(number % 3)))",
    "Decimal(9, 2)": "toDecimal32(number % 3, 2) / 8",
    "Bool": "number % 2",
    "Nullable(Int16)": "if(number % 3, number % 3, NULL)",
    "FixedString(2)": "toFixedString(['ab', 'c'][number % 2 + 1], 2)",
}
TYPES = {of: f"c{number}" for number, of in enumerate(PLAIN)}


def file_at(path: str) -> BranchFile:
    """Return a file whose partition values are unknown."""
    return BranchFile(path, 0, 0, 0)


def made(exports: RealExport, name: str, columns: str, key: str, values: str) -> TableName:
    table = TableName("default", name)
    exports.clickhouse.command(
        f"CREATE TABLE {table.sql} ({columns}, n UInt64) ENGINE = MergeTree PARTITION BY {key}"
        " ORDER BY n SETTINGS allow_nullable_key = 1"
    )
    exports.clickhouse.command(
        f"INSERT INTO {table.sql} SELECT {values}, number FROM numbers(100)"
        " SETTINGS max_partitions_per_insert_block = 0"
    )
    return table


def filled(exports: RealExport, key: str, name: str) -> TableName:
    of, values = KEYS[key]
    return made(exports, name, f"c {of}", key, values)


def assert_each_file_lies_in_its_partition(exports: RealExport, name: TableName) -> None:
    done = exports.run(name, partition_spec="unpartitioned")
    assert {o.status for o in done} == {Status.COMMITTED}
    keys = {row.key.hash: PartitionId(row.key.partition_id) for row in exports.ledger_rows(name)}
    table = exports.lake(name)
    source = remembered_source(table.properties)
    assert source is not None

    with RowPartitions(source, exports.catalog("lake").storages) as rows:
        state = state_of(table)
        found = {
            f.file_path: rows.ids(file_at(f.file_path), state) for f in exports.data_files(name)
        }

    assert len(found) == len(keys)
    assert {path: frozenset({keys[key_in(path)]}) for path in found} == found


@pytest.mark.parametrize("key", KEYS)
def test_every_file_of_an_export_lies_in_its_partition(exports: RealExport, key: str) -> None:
    """Harm prevented: rows of others are taken for those of another partition, and dropped."""
    name = filled(exports, key, f"keyed_{list(KEYS).index(key)}")

    assert_each_file_lies_in_its_partition(exports, name)


def test_so_does_one_of_a_key_of_many_types(exports: RealExport) -> None:
    columns = ", ".join(f"{name} {of}" for of, name in TYPES.items())
    key = f"({', '.join(TYPES.values())})"
    name = made(exports, "of_many_types", columns, key, ", ".join(PLAIN.values()))

    assert_each_file_lies_in_its_partition(exports, name)


def test_a_file_with_rows_of_several_lies_in_all_of_them(exports: RealExport) -> None:
    name = filled(exports, "intDiv(c, 10)", "of_several")
    exports.run(name, partition_spec="unpartitioned")
    table = exports.lake(name)
    before = {f.file_path for f in exports.data_files(name)}
    rows = [{"c": value, "n": 1} for value in (5, 15, 16)]
    arrow = table.schema().as_arrow()
    table.append(pa.Table.from_pylist(rows, schema=arrow))
    made = {f.file_path for f in exports.data_files(name)} - before
    source = remembered_source(table.properties)
    assert source is not None

    with RowPartitions(source, exports.catalog("lake").storages) as of_rows:
        found = [of_rows.ids(file_at(path), state_of(exports.lake(name))) for path in made]

    assert {str(one) for ids in found for one in ids} == {"0", "1"}


BEYOND = {
    "Date": (date(2149, 6, 7), date(9999, 12, 31), date(1969, 12, 31)),
    "LowCardinality(Nullable(Date))": (date(2149, 6, 7),),
    "DateTime('Asia/Tokyo')": (
        datetime(2106, 2, 7, 6, 28, 16, tzinfo=UTC),
        datetime(2160, 3, 9, 6, 28, 16, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
    # As ClickHouse rounds it is of the next day.
    "Nullable(DateTime64(3, 'UTC'))": (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),),
}


def test_a_time_that_the_source_cannot_hold_lies_in_no_partition(
    exports: RealExport, tmp_path: Path
) -> None:
    """Harm prevented: a row of 9999-12-31 is taken for one of 2105, and dropped with that month."""
    names = {f"c{number}": of for number, of in enumerate(BEYOND)}
    columns = ", ".join(f"{name} {of}" for name, of in names.items())
    table = TableName("default", "beyond")
    exports.clickhouse.command("SET allow_suspicious_low_cardinality_types = 1")
    exports.clickhouse.command(
        f"CREATE TABLE {table.sql} ({columns}) ENGINE = MergeTree"
        f" PARTITION BY ({', '.join(f'toDate({name})' for name in names)}) ORDER BY tuple()"
        " SETTINGS allow_nullable_key = 1"
    )
    exports.clickhouse.command(
        f"INSERT INTO {table.sql} SELECT '2024-01-02', NULL, '2024-01-02 00:00:01', NULL"
    )
    exports.run(table, partition_spec="unpartitioned")
    state = state_of(exports.lake(table))
    source = remembered_source(exports.lake(table).properties)
    assert source is not None
    arrow = file_schema(exports.lake(table).schema())
    fits = {
        "c0": date(2149, 6, 6),
        "c1": None,
        "c2": datetime(2106, 2, 7, 6, 28, 15, 999_999, tzinfo=UTC),
        "c3": datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    }
    path = tmp_path / "rows.parquet"

    with RowPartitions(source, exports.catalog("lake").storages) as rows:
        pq.write_table(pa.Table.from_pylist([fits], schema=arrow), path)
        assert len(rows.ids_in(path, state)) == 1
        for name, of in names.items():
            for value in BEYOND[of]:
                odd = [fits, fits | {name: value}]
                pq.write_table(pa.Table.from_pylist(odd, schema=arrow), path)
                with pytest.raises(OSError, match=f"column {name} has a value that .*Date"):
                    rows.ids_in(path, state)


def test_a_column_of_the_key_that_others_renamed_is_named(exports: RealExport) -> None:
    name = filled(exports, "c % 7", "renamed")
    exports.run(name, partition_spec="unpartitioned")
    source = remembered_source(exports.lake(name).properties)
    assert source is not None
    with exports.lake(name).update_schema() as update:
        update.rename_column("c", "d")
    path = exports.data_files(name)[0].file_path

    with (
        RowPartitions(source, exports.catalog("lake").storages) as rows,
        pytest.raises(RefusedError, match="it no longer has the column c"),
    ):
        rows.ids(file_at(path), state_of(exports.lake(name)))


def test_a_file_that_is_gone_is_named(exports: RealExport) -> None:
    name = filled(exports, "toYYYYMM(c)", "gone")
    exports.run(name, partition_spec="unpartitioned")
    table = exports.lake(name)
    source = remembered_source(table.properties)
    assert source is not None
    gone = f"{table.location()}/data/gone.parquet"

    with (
        RowPartitions(source, exports.catalog("lake").storages) as rows,
        pytest.raises(DestinationError, match=r"Cannot .*gone\.parquet"),
    ):
        rows.ids(file_at(gone), state_of(table))
