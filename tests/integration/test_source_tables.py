"""Whatever a source table is made of and wherever it lies, its visible rows are in the lake.

SRS-016 SourceEngines, PartitionContent, PartitionKeyTypes, StoragePolicies, SourcePartStorage,
EmptyPartition, Corrupted; N-34, N-35. ClickHouse, task code and catalog are the real ones.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.expressions import EqualTo, Reference

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.export.request import ById
from tableformat.names import PartitionId, TableName
from tests.support.clickhouse_source import ids
from tests.support.far_disks import store_config_text
from tests.support.real_export import RealExport
from tests.support.store_kinds import AbfsPlace, HdfsPlace, S3ProxyPlace
from tests.support.store_places import Place, over

KEYS = "PARTITION BY p ORDER BY k"
COLUMNS = (
    "p UInt8, k UInt32, s String, sign Int8 DEFAULT 1, Path String, Time DateTime,"
    " Value UInt64, Timestamp DateTime"
)
PLAIN = "p UInt8, k UInt32, s String"
ENGINES = [
    "MergeTree",
    "ReplacingMergeTree(k)",
    "SummingMergeTree(Value)",
    "AggregatingMergeTree",
    "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree(sign, Value)",
    "GraphiteMergeTree('graphite_rollup')",
    "CoalescingMergeTree",
]
UNMERGED = (
    "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
)
MIXED = f"ENGINE = MergeTree {KEYS} SETTINGS min_bytes_for_wide_part = 3000, {UNMERGED}"

OTHER_TYPES = (
    "a UInt16, b UInt32, c UInt64, d Int8, e Date32, f DateTime('UTC'), g DateTime64(3, 'UTC'),"
    " h FixedString(2)"
)
OTHER_VALUES = (
    "1, 2, 18446744073709551615, -1, toDate32('1950-01-01'), toDateTime(number % 2, 'UTC'),"
    " toDateTime64(7, 3, 'UTC'), 'ab'"
)


def unmerged(exports: RealExport, clauses: str, columns: str = PLAIN) -> TableName:
    """Make an empty table whose parts stay as they are inserted."""
    name = exports.clickhouse.table(clauses, columns)
    exports.clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    return name


def mixed(exports: RealExport) -> TableName:
    """Make two partitions with a compact part of 50 rows and a wide one of 1000 each."""
    name = exports.clickhouse.table(MIXED, PLAIN)
    exports.clickhouse.insert(name)
    exports.clickhouse.insert(name, 100, 2000)
    return name


def part_types(exports: RealExport, name: TableName, partition: str) -> list[str]:
    found = exports.clickhouse.source.parts(name, PartitionId(partition))
    return [part.part_type for part in found]


def statuses_of(exports: RealExport, name: TableName) -> dict[str, str]:
    return {partition: status for partition, (status, _) in exports.statuses(name).items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_of_the_family_is_exported_with_all_its_rows(
    exports: RealExport, engine: str
) -> None:
    """Rows that the engine would replace, sum or collapse in a merge arrive as they are."""
    name = unmerged(exports, f"ENGINE = {engine} {KEYS}", COLUMNS)
    exports.clickhouse.insert(name)
    exports.clickhouse.insert(name)

    assert statuses_of(exports, name) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name) == exports.in_source(name)
    assert len(exports.in_lake(name)) == 200


@pytest.mark.parametrize("engine", [ENGINES[0], ENGINES[1], ENGINES[5]])
def test_a_table_attached_as_replicated_is_exported(exports: RealExport, engine: str) -> None:
    """Without a Keeper it can only be read, which is all that an export does with it."""
    name = unmerged(exports, f"ENGINE = {engine} {KEYS}", COLUMNS)
    exports.clickhouse.insert(name)
    exports.clickhouse.insert(name)
    before = exports.in_source(name)
    exports.clickhouse.command(f"DETACH TABLE {name.sql}")
    exports.clickhouse.command(f"ATTACH TABLE {name.sql} AS REPLICATED")

    assert statuses_of(exports, name) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name) == before
    assert {row.key.source.startswith("keeper:") for row in exports.ledger_rows(name)} == {True}


def test_wide_compact_and_mixed_partitions_arrive_without_their_deleted_rows(
    exports: RealExport,
) -> None:
    """Harm prevented: rows that were deleted come back, or a part of another kind is left out."""
    name = mixed(exports)
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} SELECT 2 AS p, number, toString(number) FROM numbers(1000)"
    )
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (3, 1, 'a'), (3, 2, 'b')")
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (4, 1, 'a'), (4, 2, 'b')")
    exports.clickhouse.command(f"DELETE FROM {name.sql} WHERE k % 3 = 0 OR p = 4")
    kinds = {partition: part_types(exports, name, partition) for partition in "0123"}

    assert kinds == {"0": ["Compact", "Wide"], "1": ["Compact", "Wide"], "2": ["Wide"],
                     "3": ["Compact"]}  # fmt: skip
    assert statuses_of(exports, name) == {**dict.fromkeys("0123", "committed"), "4": "empty"}
    assert exports.in_lake(name) == exports.in_source(name)
    assert len(exports.in_lake(name)) == 1400 + 666 + 2


@pytest.mark.parametrize(
    "delete",
    ["DELETE FROM {} WHERE p = 0", "ALTER TABLE {} DELETE WHERE p = 0 SETTINGS mutations_sync = 2"],
    ids=["lightly", "by a mutation"],
)
def test_a_partition_without_visible_rows_is_empty_and_makes_no_file(
    exports: RealExport, delete: str
) -> None:
    """Harm prevented: an empty snapshot or a failure for a partition that holds nothing."""
    name = exports.clickhouse.filled()
    exports.clickhouse.command(delete.format(name.sql))

    found = exports.statuses(name, ById(PartitionId("0")))

    assert [status for status, _ in found.values()] == ["empty"]
    assert exports.files_on_disk(name) == set()
    assert exports.ledger_rows(name) == []
    assert len(exports.lake(name).metadata.snapshots) == 1


@pytest.mark.parametrize("policy", ["jbod", "tiered"])
def test_parts_on_several_disks_are_exported(exports: RealExport, policy: str) -> None:
    """Harm prevented: only what lies on the first disk of a partition arrives."""
    name = unmerged(exports, f"ENGINE = MergeTree {KEYS} SETTINGS storage_policy = '{policy}'")
    for first in range(0, 300, 100):
        exports.clickhouse.insert(name, first)
    if policy == "tiered":
        for move in ("PART '0_1_1_0' TO DISK 'cold'", "PARTITION ID '1' TO VOLUME 'c'"):
            exports.clickhouse.command(f"ALTER TABLE {name.sql} MOVE {move}")
    disks = {Path(part.disk).name for part in exports.clickhouse.source.all_parts(name)}

    assert disks == {"hot", "cold"}
    assert statuses_of(exports, name) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name) == exports.in_source(name)
    assert len(exports.in_lake(name)) == 300


@pytest.mark.parametrize("disk", ["secret", "bare", "objects", "cached"])
def test_parts_on_a_disk_that_holds_no_plain_files_are_exported(
    exports: RealExport, disk: str
) -> None:
    """Harm prevented: bytes that no task understands, or a table that no export can read."""
    settings = f"SETTINGS storage_policy = '{disk}'"
    name = exports.clickhouse.filled(f"ENGINE = MergeTree {KEYS} {settings}")
    exports.clickhouse.insert(name, 100)
    exports.clickhouse.command(f"DELETE FROM {name.sql} WHERE k < 10")

    assert statuses_of(exports, name) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name) == exports.in_source(name)
    assert len(exports.in_lake(name)) == 190
    assert exports.clickhouse.staging_tables() == ()


def test_a_partition_with_one_part_on_object_storage_is_exported_whole(exports: RealExport) -> None:
    """Harm prevented: only the parts that tasks can open arrive."""
    name = unmerged(exports, f"ENGINE = MergeTree {KEYS} SETTINGS storage_policy = 'far'")
    for first in range(0, 300, 100):
        exports.clickhouse.insert(name, first)
    exports.clickhouse.command(f"ALTER TABLE {name.sql} MOVE PART '0_1_1_0' TO DISK 'objects'")

    assert statuses_of(exports, name) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name) == exports.in_source(name)
    assert len(exports.in_lake(name)) == 300


@over(S3ProxyPlace, AbfsPlace, HdfsPlace)
def test_parts_in_a_remote_store_are_exported(place: Place, tmp_path: Path) -> None:
    """Harm prevented: a table whose parts are in a real object store cannot be exported."""
    config = tmp_path / "config.xml"
    config.write_text(store_config_text(place))
    with EmbeddedConnection(tmp_path / "data", create=True, config_file=config) as connection:
        exports = RealExport(connection, tmp_path)
        clauses = f"ENGINE = MergeTree {KEYS} SETTINGS storage_policy = 'far'"
        name = exports.clickhouse.filled(clauses)

        assert place.stored()
        assert statuses_of(exports, name) == {"0": "committed", "1": "committed"}
        assert exports.in_lake(name) == exports.in_source(name)
        assert len(exports.in_lake(name)) == 100


@pytest.mark.parametrize(("kind", "file"), [("Compact", "data.bin"), ("Wide", "s.bin")])
def test_a_damaged_part_fails_its_partition_before_any_file(
    exports: RealExport, kind: str, file: str
) -> None:
    """Harm prevented: a partition without the rows of its damaged part."""
    name = mixed(exports)
    parts = exports.clickhouse.source.parts(name, ids("0")[0])
    (part,) = (p for p in parts if p.part_type == kind)
    damaged = Path(part.path) / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    found = exports.statuses(name)

    assert found["0"][0] == "failed"
    assert f"CHECK TABLE finds damage in part {part.name}" in found["0"][1]
    assert found["1"][0] == "committed"
    assert {p for p, _, _ in exports.in_lake(name)} == {1}
    assert len(exports.in_lake(name)) == 1050
    assert len(exports.files_on_disk(name)) == len(exports.data_files(name))
    assert [row.key.partition_id for row in exports.ledger_rows(name)] == ["1"]


def test_only_active_parts_are_exported(exports: RealExport) -> None:
    """Harm prevented: rows twice from parts that were merged, or rows that a user took away."""
    name = exports.clickhouse.table(f"ENGINE = MergeTree {KEYS} SETTINGS old_parts_lifetime = 600")
    for first in range(0, 400, 100):
        exports.clickhouse.insert(name, first)
    exports.clickhouse.command(f"OPTIMIZE TABLE {name.sql} FINAL")
    exports.clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    for first in (400, 500):
        exports.clickhouse.insert(name, first)
    newest = exports.clickhouse.source.parts(name, ids("0")[0])[-1].name
    exports.clickhouse.command(f"ALTER TABLE {name.sql} DETACH PART '{newest}'")
    ((inactive, detached),) = exports.clickhouse.rows(
        "SELECT (SELECT count() FROM system.parts WHERE NOT active AND"
        f" table = '{name.name}' AND rows > 0), (SELECT count() FROM system.detached_parts"
        f" WHERE table = '{name.name}')"
    )

    assert (inactive != 0, detached) == (True, 1)
    assert statuses_of(exports, name) == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name) == exports.in_source(name)
    assert len(exports.in_lake(name)) == 550


def test_only_the_exported_partition_is_held_and_only_while_it_is_exported(
    exports: RealExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a dropped partition keeps its disk space because another one is exported."""
    name = exports.clickhouse.filled()
    before = [row for row in exports.in_source(name) if row[0] == 1]
    held: list[object] = []

    def look(*_: object) -> None:
        exports.clickhouse.command(f"ALTER TABLE {name.sql} DROP PARTITION ID '0'")
        exports.clickhouse.command(f"ALTER TABLE {name.sql} DROP PARTITION ID '1'")
        held.extend(staged(exports))

    monkeypatch.setattr(exports, "before", look)

    assert [o.status.value for o in exports.run(name, ById(PartitionId("1")))] == ["committed"]
    assert held == [("1", 50)]
    assert exports.in_lake(name) == before
    assert staged(exports) == ()


def staged(exports: RealExport) -> tuple[tuple[object, ...], ...]:
    return exports.clickhouse.rows(
        "SELECT partition_id, sum(rows) FROM system.parts WHERE active AND"
        " database = 'mergeberg_staging' GROUP BY partition_id"
    )


@pytest.mark.parametrize(
    ("key", "columns", "values"),
    [
        ("n", "n Int64", "number % 3 - 1"),
        ("d", "d Date", "toDate('2024-01-30') + number % 4"),
        ("toYYYYMM(d)", "d Date", "toDate('2024-01-30') + number % 4"),
        ("s", "s String", "['', 'a b', 'a/b=%', 'é€😀'][number % 4 + 1]"),
        ("(d, s)", "d Date, s String", "toDate(number % 2), toString(number % 3)"),
        ("(a, b, c, d, e, f, g, h)", OTHER_TYPES, OTHER_VALUES),
        ("", "d Date", "toDate(number % 5)"),
    ],
    ids=["integers", "dates", "months", "strings", "a tuple", "other types", "none"],
)
def test_a_reader_that_filters_by_the_key_finds_every_row_of_every_partition(
    exports: RealExport, key: str, columns: str, values: str
) -> None:
    """Harm prevented: rows under a partition value that is not theirs are never seen."""
    by = f"PARTITION BY {key}" if key else ""
    name = exports.clickhouse.table(f"ENGINE = MergeTree {by} ORDER BY k", f"k UInt32, {columns}")
    names = re.findall(r"(?:^|, )([a-z]) ", columns)
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (k, {', '.join(names)}) SELECT number, {values} FROM numbers(60)"
    )
    partitions = exports.clickhouse.source.partitions(name)

    assert statuses_of(exports, name) == {str(p.partition_id): "committed" for p in partitions}
    table = exports.lake(name)
    rows = table.scan().to_arrow()
    assert sorted(rows["k"].to_pylist()) == list(range(60))
    assert len(exports.data_files(name)) == len(partitions)
    assert len(table.spec().fields) == (len(names) if key else 0)
    for column in names:
        for value, count in Counter(rows[column].to_pylist()).items():
            found = table.scan(row_filter=EqualTo(term=Reference(column), value=value))
            assert len(found.to_arrow()) == count
            assert count == 60 or not key or len(list(found.plan_files())) < len(partitions)
