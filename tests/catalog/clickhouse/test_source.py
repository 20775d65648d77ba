"""The source as a job uses it: look, freeze, release; leftovers of abandoned jobs are swept."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.source import ClickHouseSource
from tableformat.errors import NotFoundError, RefusedError, SourceError, UsageError
from tableformat.names import TableName
from tableformat.source import FrozenPartition
from tests.support.clickhouse_source import Clickhouse, ids, rows_as_files


@pytest.fixture(scope="module")
def keys(clickhouse: Clickhouse) -> TableName:
    """A table whose partition key has a date and a text."""
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY (toYYYYMM(d), s) ORDER BY k",
        "d Date, k UInt64, s String",
    )
    clickhouse.command(
        f"INSERT INTO {name.sql} VALUES ('2024-01-05', 1, 'a'), ('2024-02-05', 2, 'b')"
    )
    return name


@pytest.mark.parametrize(
    "expression", ["(202401, 'a')", "tuple(202401, 'a')", " ( 202401 , 'a' ) "]
)
def test_a_partition_is_found_by_its_value(
    clickhouse: Clickhouse, keys: TableName, expression: str
) -> None:
    """ClickHouse itself computes the id: no second hash that could differ."""
    found = clickhouse.source.find_partition(clickhouse.source.describe(keys), expression)

    assert clickhouse.rows(f"SELECT sum(k) FROM {keys.sql} WHERE _partition_id = '{found}'") == (
        (1,),
    )
    assert not [n for n in clickhouse.staging_tables() if str(n).startswith("scratch")]


def test_a_partition_is_found_by_its_id(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} DELETE WHERE p = 0 SETTINGS mutations_sync = 2")
    table = clickhouse.source.describe(name)

    assert clickhouse.source.find_partition(table, "ID '1'") == ids("1")[0]
    assert clickhouse.source.find_partition(table, "ID '0'") == ids("0")[0], "empty, but there"
    assert clickhouse.source.find_partition(table, "1") == ids("1")[0]


@pytest.mark.parametrize("expression", ["(202409, 'a')", "(202401, 'b')", "ID 'nosuch'"])
def test_a_value_that_no_part_has_is_not_found(
    clickhouse: Clickhouse, keys: TableName, expression: str
) -> None:
    """ClickHouse attaches nothing and calls it a success."""
    with pytest.raises(NotFoundError, match="no active part has that value"):
        clickhouse.source.find_partition(clickhouse.source.describe(keys), expression)


@pytest.mark.parametrize(
    ("expression", "match"),
    [
        ("202401", r"partition expression.*The partition key is \(toYYYYMM\(d\), s\)"),
        ("(202401, 'a', 3)", r"partition expression.*The partition key is"),
        ("ALL", "it means all partitions"),
        ("(202401, 'a'", "Cannot read the partition"),
        ("(202401, 'a'); DROP TABLE x", "Cannot read the partition"),
    ],
)
def test_what_does_not_fit_the_key_is_refused_with_the_key(
    clickhouse: Clickhouse, keys: TableName, expression: str, match: str
) -> None:
    with pytest.raises(UsageError, match=match):
        clickhouse.source.find_partition(clickhouse.source.describe(keys), expression)


def test_a_partition_with_pending_updates_is_named_by_its_id_instead(
    clickhouse: Clickhouse,
) -> None:
    name = clickhouse.filled(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k"
        " SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1"
    )
    clickhouse.command(f"UPDATE {name.sql} SET s = 'new' WHERE k = 4")
    table = clickhouse.source.describe(name)

    with pytest.raises(RefusedError, match=r"APPLY PATCHES IN PARTITION 0 SETTINGS"):
        clickhouse.source.find_partition(table, "0")
    assert clickhouse.source.find_partition(table, "ID '0'") == ids("0")[0]


def test_releasing_gives_the_disk_space_back_and_may_be_repeated(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    snapshot = clickhouse.snapshot(name, job="released")
    (directory,) = {Path(f.part.path).parent for p in snapshot.partitions for f in p.parts}
    assert directory.exists()

    clickhouse.source.release(snapshot)
    clickhouse.source.release(snapshot)

    assert not directory.exists()
    assert clickhouse.source.describe(name).name == name


def test_only_what_dead_jobs_left_is_swept(clickhouse: Clickhouse) -> None:
    """The staging table of a job that still writes must survive every other job."""
    name = clickhouse.filled()
    clickhouse.snapshot(name, job="dead_one")
    clickhouse.snapshot(name, job="dead_one")
    clickhouse.snapshot(name, job="alive")
    clickhouse.command("CREATE TABLE mergeberg_staging.somebodys (k UInt8) ENGINE = Memory")

    swept = clickhouse.source.sweep_leftovers(lambda job: job != "dead_one")

    assert swept == ("dead_one_1", "dead_one_2")
    assert {"alive_1", "somebodys"} <= set(clickhouse.staging_tables())
    assert not {"dead_one_1", "dead_one_2"} & set(clickhouse.staging_tables())


@pytest.mark.parametrize("policy", ["jbod", "tiered"])
def test_parts_on_several_disks_stay_where_they_are(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path, policy: str
) -> None:
    """A copy on another disk would cost hours; the hard links cost nothing."""
    name = clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS storage_policy = '{policy}'"
    )
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    for first in range(0, 300, 100):
        clickhouse.insert(name, first)
    if policy == "tiered":
        clickhouse.command(f"ALTER TABLE {name.sql} MOVE PART '0_1_1_0' TO DISK 'cold'")
        clickhouse.command(f"ALTER TABLE {name.sql} MOVE PARTITION ID '1' TO VOLUME 'c'")

    snapshot = clickhouse.snapshot(name)

    assert snapshot.refused == ()
    disks = {frozen.part.disk for partition in snapshot.partitions for frozen in partition.parts}
    assert {Path(disk).name for disk in disks} == {"hot", "cold"}
    for partition in snapshot.partitions:
        sources = {p.name: p for p in clickhouse.source.parts(name, partition.partition_id)}
        for frozen in partition.parts:
            source = sources[frozen.source_name]
            assert source.disk == frozen.part.disk
            assert Path(source.path, "data.bin").samefile(Path(frozen.part.path, "data.bin"))
    count, total = 300, sum(range(300))
    assert rows_as_files(
        reader, snapshot.layout, snapshot.partitions, tmp_path, "count(), sum(k)"
    ) == ((count, total),)


def test_the_directory_is_open_only_from_the_first_question_to_its_release(
    tmp_path: Path,
) -> None:
    """Tasks write for hours; meanwhile others must be able to use the ClickHouse directory."""
    directory = tmp_path / "data"
    with EmbeddedConnection(directory, create=True) as connection:
        name = Clickhouse(connection).filled()
    source = ClickHouseSource(lambda _: EmbeddedConnection(directory, wait=0))

    with source:
        table = source.describe(name)
        snapshot = source.snapshot(table, ids("0", "1"), job="job", probes=())
        with pytest.raises(SourceError, match="in use by another process"):
            EmbeddedConnection(directory, wait=0)

    with EmbeddedConnection(directory, wait=0) as other:
        Clickhouse(other).insert(name, 100)
    assert paths_exist(snapshot.partitions)
    with source:
        source.release(snapshot)
    source.close()
    assert not paths_exist(snapshot.partitions)


def paths_exist(partitions: tuple[FrozenPartition, ...]) -> bool:
    return all(Path(f.part.path).is_dir() for p in partitions for f in p.parts)


def test_staging_tables_of_a_killed_process_are_found_by_the_next(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with EmbeddedConnection(directory, create=True) as connection:
        clickhouse = Clickhouse(connection)
        clickhouse.snapshot(clickhouse.filled(), job="7291")
        connection._child.kill()

    with ClickHouseSource(lambda _: EmbeddedConnection(directory)) as source:
        assert source.sweep_leftovers(lambda _job: False) == ("7291_1",)
        assert source.sweep_leftovers(lambda _job: False) == ()
