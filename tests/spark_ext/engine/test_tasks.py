"""A task writes exactly its slice, says so in a receipt, and leaves nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_ext.engine.tasks import find_receipt, installed_versions
from tableformat.errors import Action, InternalError, RefusedError, SourceError, TableFormatError
from tableformat.export.slices import DataCheck, Share, Slice, WritePlan
from tableformat.file_names import data_file_name
from tableformat.receipt import Receipt
from tests.support.frozen_parts import LAYOUT, PLAN, Source, insert, make_source
from tests.support.in_child import in_child

# Writes slices in one process; receipts, or the errors.
WRITE = """
from spark_ext.engine.tasks import write_slice
from tableformat.errors import TableFormatError
found = []
for number, (plan, slice_) in enumerate(values):
    rows = []
    try:
        found.append((write_slice(plan, slice_, f"0-{number}", rows.append), rows))
    except TableFormatError as error:
        found.append((error, rows))
answer(found)
"""
UTF8 = DataCheck(
    column="name",
    what="text that is not UTF-8",
    bad_sql="NOT isValidUTF8(__src.`name`)",
    sample_sql="hex(__src.`name`)",
    way_round="Export the column as binary",
    always=False,
)
SMALL = DataCheck(
    column="id",
    what="a value above 2000",
    bad_sql="__src.`id` > 2000",
    sample_sql="__src.`id`",
    way_round="Leave it out.",
    always=True,
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return make_source(
        tmp_path_factory.mktemp("source") / "disk",
        insert(0, 1000, 3),
        insert(1, 100, 3, name="if(number = 60, unhex('FF00'), 'x')"),
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Return a part of 3 MB whose rows are a file of a few hundred kB.

    A value comes again after more than 64 KiB, too late for LZ4; Parquet has it in a dictionary.
    """
    value = "hex(SHA512(toString(number % 1000))) || hex(SHA512(toString(number % 1000 + 5000)))"
    return make_source(tmp_path_factory.mktemp("large") / "disk", insert(0, 12_000, 1, name=value))


def plan_in(lake: Path, **changes: Any) -> WritePlan:
    return dataclasses.replace(
        PLAN,
        data_location=f"file://{lake}/data",
        receipts_location=f"file://{lake}/metadata/mergeberg",
        versions=installed_versions(),
        **changes,
    )


def write(*wanted: tuple[WritePlan, Slice]) -> list[tuple[Receipt | TableFormatError, list[int]]]:
    found: list[tuple[Receipt | TableFormatError, list[int]]] = in_child(WRITE, *wanted)
    return found


def failure(plan: WritePlan, slice_: Slice) -> TableFormatError:
    ((error, _),) = write((plan, slice_))
    assert isinstance(error, TableFormatError)
    return error


def files(lake: Path) -> list[str]:
    return sorted(str(p.relative_to(lake)) for p in lake.rglob("*") if p.is_file())


def test_a_slice_becomes_one_file_and_one_receipt(source: Source, tmp_path: Path) -> None:
    (slice_,) = source.slices(part=0)
    ((receipt, rows),) = write((plan_in(tmp_path), slice_))

    assert isinstance(receipt, Receipt)
    name = data_file_name("k" * 26, "77", 0, "0-0")
    assert files(tmp_path) == [
        f"data/p=1/{name}",
        f"metadata/mergeberg/{'k' * 26}/77/0-0-0.json",
    ]
    path = tmp_path / "data/p=1" / name
    assert receipt.file_path == f"file://{path}"
    assert receipt.file_bytes == path.stat().st_size
    assert receipt.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (receipt.rows, receipt.rows_expected, rows[-1]) == (1000, 1000, 1000)
    assert receipt.ranges == slice_.ranges
    assert receipt.peak_memory > 50_000_000
    stored = (tmp_path / f"metadata/mergeberg/{'k' * 26}/77/0-0-0.json").read_text()
    assert Receipt.from_json(stored) == receipt

    table = pq.read_table(path)
    assert table.column("id").to_pylist() == list(range(0, 3000, 3))
    assert table.column("name").to_pylist() == [f"n{n}" for n in range(0, 3000, 3)]
    flags = [None if n % 5 == 0 else n % 2 == 0 for n in range(1000)]
    assert table.column("flag").to_pylist() == flags


def test_what_old_parts_lack_is_computed_in_the_time_zone_of_the_server(
    source: Source, tmp_path: Path
) -> None:
    """An executor in another zone would write another day into a column with a default."""
    layout = dataclasses.replace(
        LAYOUT,
        columns=f"{LAYOUT.columns}, `at` DateTime DEFAULT toDateTime(`id`),"
        " `read` DateTime64(0) DEFAULT toDateTime64('1970-01-01 00:00:00', 0)",
        zone="Asia/Tokyo",
    )
    select = (
        "toInt64(__src.`id`) AS `id`, concat(toString(__src.`at`), ' ', toString(toInt64("
        "__src.`read`))) AS `name`, __src.`flag` AS `flag`"
    )
    (slice_,) = source.slices(part=0)

    write((plan_in(tmp_path, layout=layout, select=select), slice_))

    (path,) = (tmp_path / "data").rglob("*.parquet")
    assert pq.read_table(path).column("name")[0].as_py() == "1970-01-01 09:00:00 -32400"


def test_a_check_speaks_of_times_in_the_zone_of_the_server(source: Source, tmp_path: Path) -> None:
    """Otherwise a default that only the check computes would be another than the written one."""
    layout = dataclasses.replace(
        LAYOUT,
        columns=f"{LAYOUT.columns}, `at` DateTime DEFAULT toDateTime(`id`)",
        zone="Asia/Tokyo",
    )
    check = dataclasses.replace(SMALL, bad_sql="__src.`id` = 0", sample_sql="__src.`at`")
    (slice_,) = source.slices(part=0)

    error = failure(plan_in(tmp_path, layout=layout, checks=(check,)), slice_)

    assert "for example 1970-01-01 09:00:00" in error.message


def test_a_finished_file_is_found_again_only_for_exactly_its_rows(
    source: Source, tmp_path: Path
) -> None:
    """A repeated task must not write it twice, nor take another slice's file for its own."""
    (slice_,) = source.slices(part=0)
    plan = plan_in(tmp_path)
    assert find_receipt(plan, slice_) is None
    ((receipt, _),) = write((plan, slice_))

    assert find_receipt(plan, slice_) == receipt
    span = dataclasses.replace(slice_.ranges[0], start=0, stop=10)
    assert find_receipt(plan, dataclasses.replace(slice_, ranges=(span,))) is None
    assert find_receipt(plan, dataclasses.replace(slice_, epoch=2)) is None
    assert find_receipt(plan, dataclasses.replace(slice_, number=1)) is None
    assert find_receipt(plan, dataclasses.replace(slice_, transaction_id="78")) is None


def test_two_attempts_of_a_slice_never_share_a_name(source: Source, tmp_path: Path) -> None:
    """Spark may repeat a task whose first attempt still lives."""
    (slice_,) = source.slices(part=0)
    (first, _), (second, _) = write(*[(plan_in(tmp_path), slice_)] * 2)

    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert first.file_path != second.file_path
    assert first.sha256 == second.sha256, "the same rows make the same bytes"


def test_text_that_is_not_utf8_is_explained_with_count_and_sample(
    source: Source, tmp_path: Path
) -> None:
    (slice_,) = source.slices(part=1)
    error = failure(plan_in(tmp_path, checks=(UTF8,)), slice_)

    assert isinstance(error, RefusedError)
    assert str(error) == (
        "Cannot export partition all of d.t: column name: text that is not UTF-8 in 1 row, "
        "for example FF00. Export the column as binary."
    )
    assert files(tmp_path) == []


@pytest.mark.parametrize("action", Action)
def test_a_task_gives_its_messages_the_verb_of_the_command(
    source: Source, tmp_path: Path, action: Action
) -> None:
    """Harm prevented: who archives or fetches reads that something cannot be exported."""
    (good,), (bad,) = source.slices(part=0), source.slices(part=1)
    plan = plan_in(tmp_path, checks=(UTF8,), action=action)

    (value, _), (rows, _) = write((plan, bad), (plan, dataclasses.replace(good, rows=999)))

    assert str(value).startswith(f"Cannot {action} partition all of d.t: column name: text that ")
    assert str(rows).startswith(f"Cannot {action} partition all of d.t: slice 0 gave 1000 rows")


def test_data_that_no_check_explains_is_a_bug_and_no_file(source: Source, tmp_path: Path) -> None:
    (slice_,) = source.slices(part=1)
    error = failure(plan_in(tmp_path), slice_)

    assert isinstance(error, InternalError)
    assert "UTF8" in str(error)
    assert files(tmp_path) == []


def test_a_check_that_always_runs_refuses_before_anything_is_written(
    source: Source, tmp_path: Path
) -> None:
    (slice_,) = source.slices(part=0)
    error = failure(plan_in(tmp_path, checks=(SMALL, UTF8)), slice_)

    assert isinstance(error, RefusedError)
    assert "column id: a value above 2000 in 333 rows, for example 2" in str(error)
    assert files(tmp_path) == []


def test_other_rows_than_planned_make_no_file(source: Source, tmp_path: Path) -> None:
    (slice_,) = source.slices(part=0)
    error = failure(plan_in(tmp_path), dataclasses.replace(slice_, rows=999))

    assert isinstance(error, SourceError)
    assert "slice 0 gave 1000 rows, planned were 999" in str(error)
    assert files(tmp_path) == []


def test_other_versions_on_the_executor_are_refused(source: Source, tmp_path: Path) -> None:
    (slice_,) = source.slices(part=0)
    plan = dataclasses.replace(plan_in(tmp_path), versions=(("chdb-core", "1.0"),))
    error = failure(plan, slice_)

    assert isinstance(error, SourceError)
    assert "Cannot read d.t on executor host " in str(error)
    assert "the command was planned with 1.0" in str(error)


def test_a_source_that_is_not_on_the_executor_is_named(source: Source, tmp_path: Path) -> None:
    (slice_,) = source.slices(part=0)
    span = dataclasses.replace(slice_.ranges[0], path="/nowhere/1_1_1_0/")
    error = failure(plan_in(tmp_path), dataclasses.replace(slice_, ranges=(span,)))

    assert isinstance(error, SourceError)
    assert "Cannot read /nowhere/1_1_1_0/ on executor host " in str(error)
    assert "no such directory" in str(error)


@pytest.mark.parametrize("check", [False, True])
def test_a_part_is_read_no_faster_than_the_bandwidth(
    tmp_path: Path, large: Source, *, check: bool
) -> None:
    """RQ…ServerSettings.MaxBandwidth is about reading; what is written may be a tenth of it.

    Harm prevented: the disk that serves the users is read as fast as it can be, whatever limit its
    administrator sets.
    """
    (slice_,) = large.slices()
    read = sum(part.part.bytes_on_disk for part in large.partition.parts)
    always = dataclasses.replace(UTF8, always=True)
    checks = (always,) if check else ()
    rows = dataclasses.replace(PLAN.format, row_group_rows=100_000)
    plan = plan_in(tmp_path, share=Share(1, read // 3), checks=checks, format=rows)

    ((receipt, _),) = write((plan, slice_))

    assert isinstance(receipt, Receipt)
    assert receipt.file_bytes < read // 5
    # Each query has a second's worth at once.
    assert receipt.seconds >= (4.0 if check else 2.0) * 0.95
