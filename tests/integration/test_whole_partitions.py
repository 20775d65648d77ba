"""A partition arrives whole, as one snapshot of an Iceberg table, or not at all.

SRS-016 S3 (the Iceberg half), SchemaCompatibility; N-24, N-39.
"""

from __future__ import annotations

import shutil

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType

from catalog.iceberg.catalogs import open_catalog
from tableformat.export.request import ById
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.names import PartitionId, TableName
from tests.support.real_export import RealExport

TIERED = "ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS storage_policy = 'tiered'"


def on_two_disks(exports: RealExport) -> TableName:
    """Make two partitions of 200 rows, each in parts on two disks: each becomes two files."""
    name = exports.clickhouse.table(TIERED)
    exports.clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    for first in range(0, 400, 100):
        exports.clickhouse.insert(name, first)
    for part in ("0_1_1_0", "1_2_2_0"):
        exports.clickhouse.command(f"ALTER TABLE {name.sql} MOVE PART '{part}' TO DISK 'cold'")
    return name


def test_a_partition_with_a_failed_slice_is_unseen_and_the_next_run_is_whole(
    exports: RealExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: readers count the rows of half a partition, or some rows twice later."""
    name = on_two_disks(exports)
    zero = ById(PartitionId("0"))

    def lose_a_part(_plan: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        slices = [one for task in tasks for one in task.slices]
        # The slice that failed is tried again, in vain.
        if len(slices) == 2:
            shutil.rmtree(slices[0].ranges[0].path)

    with monkeypatch.context() as patch:
        patch.setattr(exports, "before", lose_a_part)
        (failed,) = exports.run(name, zero)
    left = exports.files_on_disk(name)
    seen = exports.in_lake(name)
    (done,) = exports.run(name, zero)

    assert (failed.status.value, len(left), seen) == ("failed", 1, [])
    assert (done.status.value, done.rows, done.data_files) == ("committed", 200, 2)
    assert exports.in_lake(name) == [row for row in exports.in_source(name) if row[0] == 0]


def test_partitions_are_files_and_together_one_snapshot(exports: RealExport) -> None:
    """Harm prevented: a rollback of one partition takes another one with it."""
    name = on_two_disks(exports)

    outcomes = exports.run(name)

    table = exports.lake(name)
    (snapshot,) = (s for s in table.metadata.snapshots if s.parent_snapshot_id)
    assert {o.snapshot_id for o in outcomes} == {snapshot.snapshot_id}
    assert {(o.rows, o.data_files) for o in outcomes} == {(200, 2)}
    assert snapshot.summary is not None
    assert snapshot.summary["mergeberg.exports"] == str(len(outcomes))
    assert snapshot.summary["added-records"] == str(200 * len(outcomes))
    assert snapshot.summary["added-data-files"] == str(2 * len(outcomes))
    assert exports.in_lake(name) == exports.in_source(name)


def test_columns_find_their_place_by_name_in_a_table_that_is_there(exports: RealExport) -> None:
    """Harm prevented: values of one column under the name of another."""
    name = exports.clickhouse.table("ENGINE = MergeTree ORDER BY k", "k UInt64, s String, p UInt8")
    exports.clickhouse.insert(name)
    lake = open_catalog("lake", warehouse=exports.warehouse).catalog
    lake.create_namespace_if_not_exists("n")
    lake.create_table(
        f"n.{name.name}",
        Schema(
            NestedField(1, "more", LongType()),
            NestedField(2, "s", StringType()),
            NestedField(3, "p", IntegerType()),
            NestedField(4, "k", DecimalType(20, 0)),
        ),
    )

    assert [o.status.value for o in exports.run(name)] == ["committed"]
    assert exports.in_lake(name) == exports.in_source(name)
    assert {more for (more,) in exports.in_lake(name, "more")} == {None}


def test_a_spec_that_changed_after_the_plan_gets_nothing(
    exports: RealExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: files divided by one expression stand under another one."""
    name = exports.clickhouse.filled()
    exports.run(name, ById(PartitionId("0")))
    before = exports.in_lake(name)

    def change(*_: object) -> None:
        with exports.lake(name).update_spec() as update:
            update.add_identity("s")

    monkeypatch.setattr(exports, "before", change)
    (outcome,) = exports.run(name, ById(PartitionId("1")))

    assert outcome.status.value in {"refused", "failed"}
    assert "between plan and commit" in outcome.message
    assert exports.in_lake(name) == before
