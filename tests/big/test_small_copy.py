"""A small copy of `make big`, by the same functions; and that its checks can fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.big.check import Check, report
from tests.big.export import Big
from tests.big.files import BOUNDED, file_checks, rows_out_of_order
from tests.big.lake import Lake, LakeFile, load_lake
from tests.big.table import COLUMNS, KEY, TABLE, Partition
from tests.big.values import Sums, lake_sums, source_sums, value_checks

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PARTITIONS = (Partition(1, 8_000, 1), Partition(2, 48_000, 40), Partition(3, 4_000, 3))


@dataclass(frozen=True, slots=True)
class Exported:
    """What the one export of this file left."""

    lake: Lake
    source: Sums
    reader: EmbeddedConnection
    checks: list[Check]
    notes: list[tuple[str, str]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    directory = tmp_path_factory.mktemp("big")
    checks, notes = Big(directory, PARTITIONS, target_mib=2).run(lambda _: None)
    lake = load_lake(directory / "warehouse", f"lake.{TABLE}")
    with EmbeddedConnection(directory / "clickhouse") as clickhouse:
        source = source_sums(clickhouse, PARTITIONS)
    with EmbeddedConnection(directory / "other", create=True) as reader:
        yield Exported(lake, source, reader, checks, notes)


def failed(checks: Iterator[Check]) -> set[str]:
    return {f"{c.subject} of {c.where.partition(',')[0]}" for c in checks if not c.passed}


def changed(exported: Exported, file: LakeFile, path: Path, table: pa.Table) -> Lake:
    """Return the lake with one file replaced by another one."""
    pq.write_table(table, path)
    files = (replace(f, path=str(path)) if f is file else f for f in exported.lake.files)
    return replace(exported.lake, files=tuple(files))


def test_every_check_of_a_small_copy_holds(exported: Exported) -> None:
    table, number = report(exported.checks, exported.notes)

    assert number == 0, table
    assert table.splitlines()[-1] == f"big: {len(exported.checks)} checks, 0 failed"
    subjects = Counter(check.subject for check in exported.checks)
    assert subjects["checksums"] == len(PARTITIONS) * (len(COLUMNS) + 1)
    assert subjects["rows in order"] == subjects["field ids"] == len(exported.lake.files)
    assert subjects["bounds"] == len(BOUNDED) * len(exported.lake.files)
    assert len(exported.lake.of("202402")) > 1


def swapped(table: pa.Table) -> pa.Table:
    """Exchange one value of two rows: every column keeps exactly its values."""
    names = table.column("name").to_pylist()
    other = next(i for i, name in enumerate(names) if name != names[0])
    names[0], names[other] = names[other], names[0]
    field = table.schema.field("name")
    return table.set_column(table.column_names.index("name"), field, pa.array(names, field.type))


def one_null_is_text(table: pa.Table) -> pa.Table:
    field = table.schema.field("note")
    text = pc.coalesce(table.column("note"), pa.scalar("NULL"))
    return table.set_column(table.column_names.index("note"), field, text)


def two_columns_exchanged(table: pa.Table) -> pa.Table:
    """Two columns of one type under each other's name."""
    names = table.column_names
    first, second = names.index("name"), names.index("text")
    names[first], names[second] = names[second], names[first]
    return table.rename_columns(names)


def last_row_is_first_again(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, table.num_rows - 1), table.slice(0, 1)])


def one_row_twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


@pytest.mark.parametrize(
    ("damage", "noticed"),
    [
        (swapped, {"checksums of whole rows"}),
        pytest.param(
            one_null_is_text,
            {"NULLs of note", "checksums of note", "checksums of whole rows"},
            marks=pytest.mark.soak,
        ),
        pytest.param(
            two_columns_exchanged,
            {"checksums of name", "checksums of text", "checksums of whole rows"},
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_value_that_is_not_the_source_s_is_noticed(
    exported: Exported,
    tmp_path: Path,
    damage: Callable[[pa.Table], pa.Table],
    noticed: set[str],
) -> None:
    """A check that cannot fail proves nothing."""
    file = exported.lake.of("202401")[0]
    lake = changed(exported, file, tmp_path / "x.parquet", damage(pq.read_table(file.path)))

    found = lake_sums(exported.reader, lake, PARTITIONS)

    assert failed(value_checks(exported.source, found)) == noticed


@pytest.mark.parametrize("damage", [last_row_is_first_again, one_row_twice])
def test_a_lost_or_doubled_row_is_noticed(
    exported: Exported, tmp_path: Path, damage: Callable[[pa.Table], pa.Table]
) -> None:
    file = exported.lake.of("202401")[0]
    lake = changed(exported, file, tmp_path / "x.parquet", damage(pq.read_table(file.path)))

    noticed = failed(value_checks(exported.source, lake_sums(exported.reader, lake, PARTITIONS)))

    assert {"checksums of id", "checksums of whole rows"} <= noticed
    assert ("rows of 202401" in noticed) is (damage is one_row_twice)


def test_a_file_that_is_lost_is_noticed(exported: Exported) -> None:
    files = exported.lake.files
    lost = replace(exported.lake, files=tuple(f for f in files if f.partition_id != "202403"))

    found = lake_sums(exported.reader, lost, PARTITIONS)

    assert "rows of 202403" in failed(value_checks(exported.source, found))


def test_a_file_without_ids_order_and_statistics_is_noticed(
    exported: Exported, tmp_path: Path
) -> None:
    """Another writer's file of the same rows, turned round, under the entry of the real one."""
    file = exported.lake.of("202401")[0]
    rows = pq.read_table(file.path)
    plain = pa.table(dict(zip(rows.column_names, rows.columns, strict=True)))
    turned = plain.take(pa.array(range(rows.num_rows - 1, -1, -1)))
    lake = changed(exported, file, tmp_path / "x.parquet", turned)
    lake = replace(lake, files=(lake.of("202401")[0],))

    noticed = {c.subject for c in file_checks(lake, target_bytes=1) if not c.passed}

    assert noticed == {
        "rows in order", "sorting columns", "field ids", "rows and bytes in the manifest",
        "file size",
    }  # fmt: skip


def test_rows_out_of_order_are_counted_across_batches(tmp_path: Path) -> None:
    ids = [*range(70_000), 3, 4]
    table = pa.table({"kind": ["k"] * len(ids), "account": ids})
    pq.write_table(table, tmp_path / "x.parquet")

    assert rows_out_of_order(str(tmp_path / "x.parquet"), ("kind", "account")) == 1
    assert rows_out_of_order(str(tmp_path / "x.parquet"), ("kind",)) == 0
    assert KEY[:2] == ("kind", "account")


def test_a_failed_check_is_reported_and_counted() -> None:
    checks = [
        Check("rows", "202401", passed=True, seen="5"),
        Check("rows", "202402", passed=False, seen="4, not 5"),
    ]

    table, number = report(checks, [("seconds", "1.0")])

    assert number == 1
    assert table.splitlines() == [
        "what     checks  failed  seen",
        "rows          2       1  5; 4, not 5",
        "seconds                  1.0",
        "FAILED rows of 202402: 4, not 5",
        "big: 2 checks, 1 failed",
    ]
