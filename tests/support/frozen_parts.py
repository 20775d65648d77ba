"""Real parts for tests: made by an embedded ClickHouse in a child process, as files on a disk.

The test process never loads chdb: it would not survive a later fork (`tests/support/in_child.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, NestedField, StringType

from tableformat.export.slices import FileFormat, Slice, SliceTarget, WritePlan, slices
from tableformat.mergetree.table import Part
from tableformat.names import PartitionId
from tableformat.source import FrozenPart, FrozenPartition, PartsLayout
from tests.support.in_child import in_child

ROOT: Final = Path(__file__).parents[2]
_MAKE: Final = """
import chdb
from chdb.session import Session
directory, statements = values
session = Session(directory)
for statement in statements:
    session.query(statement)
found = session.query(
    "SELECT name, rows, hash_of_all_files, path, bytes_on_disk, part_type, has_lightweight_delete,"
    " min_block_number, max_block_number, level, data_version FROM system.parts"
    " WHERE active AND database = 'd' AND rows > 0 ORDER BY name", "ArrowTable").to_pylist()
for part in found:
    seen = session.query(f"SELECT count() c FROM d.t WHERE _part = '{part['name']}'", "ArrowTable")
    part["visible"] = seen.to_pylist()[0]["c"]
session.close()
answer(found)
"""
COLUMNS: Final = "`id` UInt32, `name` String, `flag` Nullable(Bool)"
LAKE_SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "flag", BooleanType()),
)
LAYOUT: Final = PartsLayout(COLUMNS, "tuple()", "id", "", (("index_granularity", "64"),))
PLAN: Final = WritePlan(
    table="d.t",
    layout=LAYOUT,
    select="toInt64(__src.`id`) AS `id`, __src.`name` AS `name`, __src.`flag` AS `flag`",
    order_by="__src.`id`",
    schema_json=LAKE_SCHEMA.model_dump_json(),
    spec_id=0,
    sort_order_id=1,
    sort_fields=((1, False, True),),
    checks=(),
    data_location="",
    receipts_location="",
    format=FileFormat(row_group_rows=400),
    job="job1",
    versions=(),
)
_CREATE: Final = (
    f"CREATE TABLE d.t ({COLUMNS}) ENGINE = MergeTree ORDER BY id SETTINGS index_granularity = 64,"
    " min_bytes_for_wide_part = 0, max_bytes_to_merge_at_max_space_in_pool = 1,"
    " max_bytes_to_merge_at_min_space_in_pool = 1"
)


@dataclass(frozen=True, slots=True)
class Source:
    """Parts of one partition below `disk`. Whole numbers `id` are all different."""

    disk: Path
    partition: FrozenPartition

    def slices(self, *, part: int | None = None, target: int = 1 << 30) -> tuple[Slice, ...]:
        """Return slices of all parts or of one, of files of `target` bytes."""
        parts = self.partition.parts
        chosen = parts if part is None else (parts[part],)
        return slices(
            FrozenPartition(self.partition.partition_id, chosen, ()),
            SliceTarget("k" * 26, 1, "77", "p=1", ()),
            fmt=FileFormat(target_file_bytes=target),
            bytes_ratio=1.0,
            columns=3,
        )


def make_source(disk: Path, *inserts: str) -> Source:
    """Make a table on `disk`, run statements (a part for each insert), and close it again."""
    found = in_child(_MAKE, str(disk), ("CREATE DATABASE d", _CREATE, *inserts))
    frozen = tuple(
        FrozenPart(
            Part(
                name=p["name"],
                partition_id=PartitionId("all"),
                rows=p["rows"],
                bytes_on_disk=p["bytes_on_disk"],
                uncompressed_bytes=p["bytes_on_disk"],
                hash_of_all_files=p["hash_of_all_files"],
                disk=str(disk),
                path=p["path"],
                part_type=p["part_type"],
                min_block=p["min_block_number"],
                max_block=p["max_block_number"],
                level=p["level"],
                data_version=p["data_version"],
                has_lightweight_delete=bool(p["has_lightweight_delete"]),
            ),
            p["name"],
            p["visible"],
            str(disk),
        )
        for p in found
    )
    return Source(disk, FrozenPartition(PartitionId("all"), frozen, ()))


def insert(first: int, rows: int, step: int = 1, name: str = "concat('n', toString(id))") -> str:
    """Return an INSERT of `rows` ids from `first`, `step` apart."""
    return (
        f"INSERT INTO d.t SELECT {first} + number * {step} AS id, {name},"
        f" if(number % 5 = 0, NULL, number % 2 = 0) FROM numbers({rows})"
    )
