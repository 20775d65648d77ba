"""The names of lake parts: of the form of ClickHouse's, and stable (P-03, P-74)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.names import PartitionId, PartName

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
