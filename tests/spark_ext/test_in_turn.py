"""output_format_parallel_formatting = 0: what reads a slice has ended before it is written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_ext.engine.tasks import installed_versions
from tableformat.export.slices import FileFormat, Share, Slice
from tests.support.frozen_parts import PLAN, Source, insert, make_source
from tests.support.in_child import in_child

ROWS = 200_000
# Writes a slice; says at each write into its file which of ClickHouse's threads were reading.
WATCH = """
from pathlib import Path
from spark_ext.engine import tasks
from tests.services.server_process import wait_until

plan, slice_ = values
readers, seen = "QueryPull", []

def reading():
    names = [p.read_text() for p in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith(readers) for name in names)

def reading_on():
    # A thread keeps its name for a moment after its query has ended.
    if plan.share.in_turn:
        wait_until(lambda: reading() == 0, "the readers have ended")
    return reading()

class Seen:
    def __init__(self, sink):
        self.sink, self.commit, self.abort = sink, sink.commit, sink.abort
    def write(self, data):
        seen.append(reading_on())
        self.sink.write(data)

class Storage:
    def __init__(self, storage):
        self.put, self._create = storage.put, storage.create
    def create(self, location):
        return Seen(self._create(location))

opened = tasks.open_storage
tasks.open_storage = lambda location, access=None: Storage(opened(location, access))
tasks.write_slice(plan, slice_, "0-0", lambda rows: None)
answer(seen)
"""


@pytest.fixture(scope="module")
def slice_(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    """Return the slice of two parts, which are read together, in the order of their key."""
    half = ROWS // 2
    disk = tmp_path_factory.mktemp("source") / "disk"
    source: Source = make_source(disk, insert(0, half, 2), insert(1, half, 2))
    (found,) = source.slices()
    return found


# Only Linux tells a process the names of its threads.
@pytest.mark.nightly
@pytest.mark.parametrize("in_turn", [False, True])
def test_a_reader_lives_while_a_file_is_written_unless_the_setting_ends_it(
    slice_: Slice,
    tmp_path: Path,
    in_turn: bool,  # noqa: FBT001  a parameter
) -> None:
    plan = dataclasses.replace(
        PLAN,
        data_location=str(tmp_path / "data"),
        receipts_location=str(tmp_path / "metadata/mergeberg"),
        versions=installed_versions(),
        format=FileFormat(row_group_rows=20_000),
        share=Share(1, in_turn=in_turn),
    )

    readers: list[int] = in_child(WATCH, plan, slice_)

    assert len(readers) > ROWS // 20_000
    assert max(readers) == (0 if in_turn else 1)
    (path,) = (tmp_path / "data").rglob("*.parquet")
    assert pq.read_table(path).column("id").to_pylist() == list(range(ROWS))
