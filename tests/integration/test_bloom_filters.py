"""Readers find the rows of columns that have a skip index in ClickHouse, by equality."""

from __future__ import annotations

import duckdb

from tests.support.real_export import RealExport

COLUMNS = (
    "n UInt32, h FixedString(16), b String, u UUID, s String,"
    " INDEX i (h, b, u, s) TYPE bloom_filter(0.01)"
)
ROWS = 50


def test_duckdb_finds_bytes_of_columns_that_clickhouse_indexes(exports: RealExport) -> None:
    """Harm prevented: no rows for a hash that is in the table, without an error."""
    name = exports.clickhouse.table("ENGINE = MergeTree ORDER BY n", COLUMNS)
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} SELECT number, MD5(toString(number)), MD5(toString(number)),"
        f" reinterpret(MD5(toString(number)), 'UUID'), toString(number) FROM numbers({ROWS})"
    )
    exports.run(name, conversions={"b": "binary"})
    table = exports.lake(name)
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    read = f"read_parquet({files})"
    rows = duckdb.sql(f"SELECT n, hex(h), u, s FROM {read} ORDER BY n").fetchall()

    found = []
    for number, digits, uuid, text in rows:
        conditions = (
            f"h = from_hex('{digits}')",
            f"b = from_hex('{digits}')",
            f"u = '{uuid}'",
            f"s = '{text}'",
        )
        for condition in conditions:
            found.append(duckdb.sql(f"SELECT n FROM {read} WHERE {condition}").fetchall())
            assert found[-1] == [(number,)], condition

    assert len(found) == 4 * ROWS
    filtered = "write.parquet.bloom-filter-enabled.column."
    assert {k for k in table.properties if k.startswith(filtered)} == {
        f"{filtered}u",
        f"{filtered}s",
    }
