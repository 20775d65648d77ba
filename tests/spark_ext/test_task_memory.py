"""A task needs no more memory for a large part than for a small one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spark_ext.engine.tasks import installed_versions
from tableformat.export.slices import FileFormat, Slice
from tests.support.frozen_parts import PLAN, insert, make_source
from tests.support.in_child import in_child

SMALL = 40_000
TIMES = 10
# A kilobyte of each row cannot be compressed, so that the parts have 40 MB and 400 MB.
LARGE_VALUES = "randomPrintableASCII(1000)"
GROUP_ROWS = 10_000
ONE_PART = " SETTINGS max_block_size = 1000000, min_insert_block_size_bytes = 0"
# The goal of the design is 5 %; what the allocators keep varies by some more.
MOST_GROWTH = 1.2
WRITE = """
from spark_ext.engine import tasks
plan, slice_ = values
receipt = tasks.write_slice(plan, slice_, "0-0", lambda rows: None)
answer((receipt.rows, receipt.peak_memory))
"""


@pytest.mark.nightly
def test_ten_times_the_rows_need_the_same_memory(tmp_path: Path) -> None:
    """Harm prevented: the partitions that matter most are those that no host can export."""
    source = make_source(
        tmp_path / "disk",
        insert(0, SMALL, name=LARGE_VALUES) + ONE_PART,
        insert(SMALL, SMALL * TIMES, name=LARGE_VALUES) + ONE_PART,
    )

    def written(slice_: Slice) -> tuple[int, int]:
        plan = dataclasses.replace(
            PLAN,
            data_location=str(tmp_path / f"data-{slice_.ranges[0].name}"),
            receipts_location=str(tmp_path / "metadata/mergeberg"),
            versions=installed_versions(),
            format=FileFormat(row_group_rows=GROUP_ROWS),
        )
        found: tuple[int, int] = in_child(WRITE, plan, slice_)
        return found

    (small,), (large,) = (source.slices(part=part) for part in range(2))
    (rows, memory), (more_rows, more_memory) = written(small), written(large)

    assert (rows, more_rows) == (SMALL, SMALL * TIMES)
    assert more_memory < memory * MOST_GROWTH
