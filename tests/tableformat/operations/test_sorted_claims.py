"""The order that a rewritten file declares is true, whatever the old file declared."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from tableformat.committer import MAIN_BRANCH
from tableformat.export.outcome import Status
from tests.support.lake_statements import ForeignPartitions, in_files, on, partition
from tests.support.row_changes import change, numbers_in
from tests.support.scenarios import pyiceberg

P3, THERE = partition("p3"), ForeignPartitions(rest="p3")


def add_sorted(
    directory: Path, columns: dict[str, list[int]], *, by: int = 0, rows: int = 100, order: int = 0
) -> None:
    """Append a file of another engine whose row groups are declared as sorted by a column."""
    table = pyiceberg(directory)
    ids = {field.name: field.field_id for field in table.schema().fields}
    fields = [
        pa.field(name, pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(ids[name])})
        for name in columns
    ]
    path = directory / "sorted.parquet"
    pq.write_table(
        pa.table(list(columns.values()), schema=pa.schema(fields)),
        path,
        row_group_size=rows,
        sorting_columns=[pq.SortingColumn(by)],
    )
    made = DataFile.from_args(
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(next(iter(columns.values()))),
        file_size_in_bytes=path.stat().st_size,
        sort_order_id=order or None,
    )
    made.spec_id = table.spec().spec_id
    with table.transaction() as change_of, change_of.update_snapshot().fast_append() as update:
        update.append_data_file(made)


def rewritten(directory: Path, before: Iterable[str]) -> tuple[str, list[str]]:
    """Return the file that came, and the columns that it says it is sorted by."""
    (path,) = set(on(directory, MAIN_BRANCH)) - set(before)
    metadata = pq.read_metadata(path.removeprefix("file://"))
    declared = metadata.row_group(0).sorting_columns
    return path, [metadata.schema.column(one.column_index).path for one in declared]


@pytest.mark.parametrize(("rows", "expected"), [(100, ["n"]), (2, [])])
def test_row_groups_that_are_each_sorted_are_not_sorted_together(
    tmp_path: Path, rows: int, expected: list[str]
) -> None:
    """Harm prevented: readers that rely on the order pass over rows."""
    in_files(tmp_path)
    before = on(tmp_path, MAIN_BRANCH)
    numbers = sorted([7, 5, 6, 1]) if expected else [5, 7, 1, 6]
    add_sorted(tmp_path, {"n": numbers}, rows=rows)

    done = change(tmp_path, P3, between=(5, 7), deletes=True, rows=THERE)

    path, by = rewritten(tmp_path, before)
    assert (done.status, by) == (Status.CHANGED, expected)
    assert numbers_in(path) == [n for n in numbers if n != 6]


def test_a_column_that_has_got_another_ones_name_does_not_get_its_order(tmp_path: Path) -> None:
    in_files(tmp_path)
    before = on(tmp_path, MAIN_BRANCH)
    with pyiceberg(tmp_path).update_schema() as schema:
        schema.add_column("m", LongType())
    add_sorted(tmp_path, {"n": [1, 2, 3], "m": [9, 8, 7]})
    with pyiceberg(tmp_path).update_schema() as schema:
        schema.rename_column("n", "old").rename_column("m", "n")

    change(tmp_path, P3, between=(1, 3), deletes=True, rows=THERE)

    path, by = rewritten(tmp_path, before)
    assert by == ["old"]
    assert pq.read_table(path.removeprefix("file://")).column("old").to_pylist() == [1, 3]


@pytest.mark.parametrize(("deletes", "kept"), [(True, 1), (False, None)])
def test_a_file_keeps_a_tables_order_only_while_its_columns_keep_values(
    tmp_path: Path, *, deletes: bool, kept: int | None
) -> None:
    """Harm prevented: a file that is sorted by an order which the table has no longer."""
    in_files(tmp_path)
    with pyiceberg(tmp_path).update_schema() as schema:
        schema.add_column("m", LongType())
    with pyiceberg(tmp_path).update_sort_order() as order:
        order.asc("n", IdentityTransform())
    add_sorted(tmp_path, {"n": [1, 2, 3], "m": [9, 8, 7]}, order=1)
    with pyiceberg(tmp_path).update_sort_order() as order:
        order.asc("m", IdentityTransform())
    before = on(tmp_path, MAIN_BRANCH)

    change(tmp_path, P3, between=(1, 3), deletes=deletes, rows=THERE)

    path, _ = rewritten(tmp_path, [f for f in before if not f.endswith("sorted.parquet")])
    files = {t.file.file_path: t.file for t in pyiceberg(tmp_path).scan().plan_files()}
    assert files[path].sort_order_id == kept
