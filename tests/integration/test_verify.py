"""An undamaged export is equal to its source, and all damage of a data file is reported by column.

docs/operating/verify.md, docs/spec/digest.md. ClickHouse, task code, catalog and files are the real
ones; damage is written under the file's own name, so that the lake table reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalog.clickhouse.rows.digests import FileDigests
from tableformat.export.request import ById
from tableformat.export.verification import Verdict
from tableformat.names import PartitionId, TableName
from tests.integration.test_every_type import ALLOWED, GROUPS, ROWS
from tests.support.clickhouse_source import ids
from tests.support.real_export import RealExport
from tests.support.type_cases import Case

UNMERGED = (
    "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1,"
    " allow_dimensions_outside_sorting_key = 1"
)
CLAUSES = f"PARTITION BY p ORDER BY k SETTINGS min_bytes_for_wide_part = 9000, {UNMERGED}"
ENGINES = [
    "MergeTree",
    "ReplacingMergeTree(ver)",
    "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree(sign, ver)",
    "SummingMergeTree(ver)",
    "AggregatingMergeTree",
    "CoalescingMergeTree",
]
COLUMNS = (
    "p UInt8, k UInt32, s String, sign Int8, ver UInt64, total SimpleAggregateFunction(sum, Int64)"
)
COMPACT, WIDE, MIXED, DELETED = range(4)
PARTS = [(COMPACT, 50), (WIDE, 1000), (MIXED, 50), (MIXED, 1000), (DELETED, 50), (DELETED, 1000)]


@pytest.fixture(scope="module")
def digests() -> Iterator[FileDigests]:
    with FileDigests() as opened:
        yield opened


def verdicts(found: list[Any]) -> dict[str, Verdict]:
    return {c.partition_id: c.verdict for c in found}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_export_of_every_engine_and_kind_of_part_is_equal_to_its_source(
    exports: RealExport, digests: FileDigests, engine: str
) -> None:
    """Rows that a merge would fold, parts of both kinds, and rows that are deleted lightly."""
    name = exports.clickhouse.table(f"ENGINE = {engine} {CLAUSES}", COLUMNS)
    for partition, rows in PARTS:
        exports.clickhouse.command(
            f"INSERT INTO {name.sql} SETTINGS optimize_on_insert = 0 SELECT {partition}, number,"
            f" toString(sipHash64(number)), 1 - 2 * (number % 2), number % 7, number"
            f" FROM numbers({rows})"
        )
    exports.clickhouse.command(f"DELETE FROM {name.sql} WHERE p = {DELETED} AND k % 3 = 0")
    kinds = [{p.part_type for p in exports.clickhouse.source.parts(name, i)} for i in ids(*"0123")]

    exported = exports.run(name, verify=True)
    found = exports.verify(name, digests)

    assert kinds == [{"Compact"}, {"Wide"}, {"Compact", "Wide"}, {"Compact", "Wide"}]
    assert [(o.status.value, o.verified) for o in exported] == [("committed", True)] * 4
    assert verdicts(found) == dict.fromkeys("0123", Verdict.EQUAL)
    assert {c.compared_with for c in found} == {"source"}
    assert [c.rows for c in found] == [50, 1000, 1050, 33 + 666]


@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: f"{cases[0].name} and more")
def test_an_export_of_every_type_is_equal_to_its_source(
    exports: RealExport, cases: list[Case]
) -> None:
    """Harm prevented: a type whose undamaged values are called wrong."""
    columns = ", ".join(f"c{i} {c.type}" for i, c in enumerate(cases))
    name = exports.clickhouse.table(
        f"ENGINE = MergeTree ORDER BY n SETTINGS {ALLOWED}", f"n UInt8, {columns}"
    )
    for row in range(ROWS):
        values = ", ".join(f"{c.sql[row % len(c.sql)]} AS c{i}" for i, c in enumerate(cases))
        exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT {row} AS n, {values}")
    conversions = {f"c{i}": c.conversion for i, c in enumerate(cases) if c.conversion}

    (outcome,) = exports.run(name, conversions=conversions, verify=True)

    assert (outcome.message, outcome.verified) == ("", True)


DAMAGED_COLUMNS = (
    "k UInt32, a Int64, b Int64, f Nullable(Float64), s String, n Nullable(String),"
    " ts DateTime64(6, 'UTC'), l Array(Nullable(Int32)), t Tuple(x Nullable(Int32))"
)
DAMAGED_VALUES = (
    "number, number * 3, number * 5, number / 7, if(number = 5, '', toString(number)),"
    " if(number = 5, '', 'x'), toDateTime64(1700000000 + number, 6, 'UTC'),"
    " if(number = 5, [], [number]), tuple(toInt32(number))"
)
Damage = Callable[[pa.Table], pa.Table]


def replaced(table: pa.Table, column: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with other values in a column; NULLs are allowed from now on."""
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(column).with_nullable(nullable=True), values)


def with_value(column: str, row: int, value: Any) -> Damage:
    """Return a damage of one value."""

    def damage(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        values[row] = value(values[row]) if callable(value) else value
        return replaced(table, column, pa.array(values, table.schema.field(column).type))

    return damage


def shifted(microseconds: int) -> Damage:
    """Return a damage that moves every instant."""

    def damage(table: pa.Table) -> pa.Table:
        instants = table.column("ts").cast(pa.int64())
        moved = pc.add(instants, microseconds).cast(table.schema.field("ts").type)
        return replaced(table, "ts", moved)

    return damage


def exchanged_columns(table: pa.Table) -> pa.Table:
    """Give two columns of one type each other's values."""
    return replaced(replaced(table, "a", table.column("b")), "b", table.column("a"))


def exchanged_rows(table: pa.Table) -> pa.Table:
    """Give two rows each other's value of one column."""
    values = table.column("s").to_pylist()
    values[1], values[2] = values[2], values[1]
    return replaced(table, "s", pa.array(values, pa.string()))


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a lost row": (lambda t: t.slice(1), "rows 100 in the source, 99 in the lake"),
    "a doubled row": (
        lambda t: pa.concat_tables([t, t.slice(7, 1)]),
        "rows 100 in the source, 101 in the lake",
    ),
    "one changed bit": (with_value("a", 3, lambda v: v ^ 1 << 40), "column a: "),
    "a changed float": (with_value("f", 3, lambda v: v + 1e-15), "column f: checksum"),
    "two columns exchanged": (exchanged_columns, "column b: "),
    "a microsecond more": (shifted(1), "column ts: least 2023-11-14 22:13:20.000000"),
    "an hour more": (shifted(3_600_000_000), "column ts: greatest 2023-11-14 22:14:59.000000"),
    "two values exchanged": (exchanged_rows, "exchanged between rows"),
    "NULL for empty text": (with_value("n", 5, None), "column n: NULLs 0 in the source, 1 in"),
    "NULL where none may be": (with_value("s", 5, None), "column s: NULLs 0 in the source, 1 in"),
    "empty text for NULL": (with_value("s", 6, ""), "column s: checksum"),
    "NULL for an empty list": (with_value("l", 5, None), "column l: NULLs 0 in the source, 1 in"),
    "a value inside a list": (with_value("l", 4, [5]), "column l: checksum"),
    "NULL inside a list": (with_value("l", 4, [None]), "column l: NULLs 0 in the source, 1 in"),
    "a struct that is NULL": (with_value("t", 4, None), "column t: NULLs 0 in the source, 1 in"),
}


@pytest.fixture(scope="module")
def exported(exports: RealExport) -> TableName:
    name = exports.clickhouse.table("ENGINE = MergeTree ORDER BY k", DAMAGED_COLUMNS)
    exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT {DAMAGED_VALUES} FROM numbers(100)")
    assert exports.statuses(name) == {"all": ("committed", "")}
    return name


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_reported_with_its_column_and_both_figures(
    exports: RealExport, exported: TableName, digests: FileDigests, what: str
) -> None:
    """Harm prevented: the lake holds something else, and the proof says that it is equal."""
    (file,) = exports.data_files(exported)
    path = Path(urlparse(file.file_path).path)
    whole = path.read_bytes()
    damage, message = DAMAGES[what]
    table = pq.ParquetFile(pa.BufferReader(whole)).read()
    assert table.num_rows == 100
    try:
        pq.write_table(damage(table), path)
        (damaged,) = exports.verify(exported, digests)
    finally:
        path.write_bytes(whole)
    (mended,) = exports.verify(exported, digests)

    assert damaged.verdict is Verdict.DIFFERS
    assert any(message in str(d) for d in damaged.differences), damaged.differences
    named = {d.column for d in damaged.differences if d.column}
    assert len(named) <= (9 if "row" in what else 2)
    assert mended.verdict is Verdict.EQUAL


def test_a_file_that_cannot_be_read_fails_and_is_named(
    exports: RealExport, exported: TableName, digests: FileDigests
) -> None:
    (file,) = exports.data_files(exported)
    path = Path(urlparse(file.file_path).path)
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[: len(whole) // 2])
        (found,) = exports.verify(exported, digests)
    finally:
        path.write_bytes(whole)

    assert found.verdict is Verdict.FAILED
    assert f"Cannot verify {file.file_path}: the file cannot be read" in found.message


def test_a_flipped_bit_of_the_disk_is_never_called_equal(
    exports: RealExport, exported: TableName, digests: FileDigests
) -> None:
    """Harm prevented: a page whose checksum is wrong is read as if nothing were."""
    (file,) = exports.data_files(exported)
    path = Path(urlparse(file.file_path).path)
    whole = path.read_bytes()
    try:
        for at in range(100, len(whole) // 2, 401):
            damaged = bytearray(whole)
            damaged[at] ^= 16
            path.write_bytes(damaged)
            (found,) = exports.verify(exported, digests)
            assert found.verdict in (Verdict.FAILED, Verdict.DIFFERS), at
    finally:
        path.write_bytes(whole)


def test_a_partition_value_with_every_character_is_read_from_its_own_files(
    exports: RealExport, digests: FileDigests
) -> None:
    """Harm prevented: a directory's name that ClickHouse takes for a pattern or a file list."""
    name = exports.clickhouse.table("ENGINE = MergeTree PARTITION BY s ORDER BY s", "s String")
    values = ["a{1,2}b", "*", "?", "%20", "ü/ö", "50%", "{0..9}", "it's", "[x]", "a b"]
    listed = ", ".join("'" + v.replace("'", "\\'") + "'" for v in values)
    exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT arrayJoin([{listed}])")

    assert {o.verified for o in exports.run(name, verify=True)} == {True}
    assert set(verdicts(exports.verify(name, digests)).values()) == {Verdict.EQUAL}


def test_a_later_lake_column_is_null_in_older_files_and_reported(
    exports: RealExport, digests: FileDigests
) -> None:
    """A column that an old file does not have reads as NULL, in ClickHouse it has its default."""
    name = exports.clickhouse.filled()
    assert {o.status.value for o in exports.run(name)} == {"committed"}
    exports.clickhouse.command(f"ALTER TABLE {name.sql} ADD COLUMN d Int32 DEFAULT 7")

    before = exports.verify(name, digests, ById(PartitionId("0")))
    exports.clickhouse.command(f"INSERT INTO {name.sql} (p, k, s) VALUES (2, 1, 'x')")
    assert "committed" in {o.status.value for o in exports.run(name, evolve_schema=True)}
    after = exports.verify(name, digests)

    assert [str(d) for d in before[0].differences] == [
        "column d: it is in the source, is not in the lake"
    ]
    assert [str(d) for d in after[0].differences if "NULLs" in str(d)] == [
        "column d: NULLs 0 in the source, 50 in the lake"
    ]
    assert verdicts(after) == {"0": Verdict.DIFFERS, "1": Verdict.DIFFERS, "2": Verdict.EQUAL}


def test_a_column_that_the_lake_renamed_is_found_by_its_id(
    exports: RealExport, digests: FileDigests
) -> None:
    """Harm prevented: files of before a rename read as NULL, because names are compared."""
    name = exports.clickhouse.table("ENGINE = MergeTree ORDER BY k", "k UInt32, s String")
    exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT number, 'x' FROM numbers(9)")
    assert exports.run(name)[0].status.value == "committed"
    with exports.lake(name).update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("s", "label")
    exports.clickhouse.command(f"ALTER TABLE {name.sql} RENAME COLUMN s TO label")

    (found,) = exports.verify(name, digests)

    assert (found.verdict, found.differences) == (Verdict.EQUAL, ())
