"""The names of lake parts, of the form of ClickHouse's and stable (P-03, P-74), and their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from tableformat.iceberg.manifest_scan import MainFiles, lake_part_name
from tableformat.names import PartitionId, PartName
from tests.support.lake_statements import in_files
from tests.support.other_engines import delete_first_row
from tests.support.scenarios import pyiceberg, state

ids = st.from_regex(r"[A-Za-z0-9-]{1,20}", fullmatch=True).map(PartitionId)


@given(ids, st.text(max_size=30), st.text(max_size=30))
def test_a_name_is_a_part_name_of_its_partition_and_of_its_file_alone(
    partition: PartitionId, one: str, other: str
) -> None:
    """Harm prevented: two files of one name, of which a statement drops the wrong one."""
    name = lake_part_name(partition, one)

    assert PartName.parse(str(name)) == name
    assert (name.partition_id, name.low, name.level) == (partition, name.high, 0)
    assert name == lake_part_name(partition, one)
    assert (name == lake_part_name(partition, other)) == (one == other)


def test_the_name_of_a_file_never_changes_between_releases() -> None:
    """Harm prevented: a script that keeps names drops other parts after an upgrade."""
    name = lake_part_name(PartitionId("202401"), "file:///lake/n/t/data/a.parquet")

    assert str(name) == "202401_141294020721195_141294020721195_0"


def test_deletes_of_one_file_change_nothing_of_the_others(tmp_path: Path) -> None:
    """Harm prevented: ATTACH is refused because of a DELETE in another partition."""
    in_files(tmp_path)
    table = pyiceberg(tmp_path)
    (first, *_) = (task.file for task in table.scan().plan_files())
    path = tmp_path / "empty.parquet"
    column = pa.field("n", pa.int64(), nullable=False)
    pq.write_table(pa.table([pa.array([], pa.int64())], pa.schema([column])), path)
    table.add_files([f"file://{path}"])
    before = MainFiles().on(state(tmp_path), "main")

    delete_first_row(pyiceberg(tmp_path), first)

    after = MainFiles().on(state(tmp_path), "main")
    assert {replace(file, deletes=False) for file in after} == set(before)
    assert first.file_path in {file.path for file in after if file.deletes}
    assert all(file.sequence_number for file in after)
