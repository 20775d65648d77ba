"""Frozen parts are a source like any other: described, listed, proved, found again, kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.frozen.definition import parse_parts, render_parts
from tableformat.errors import NotFoundError, UnsupportedError
from tableformat.names import PartitionId, TableName
from tableformat.source import FrozenPart, LeftPart, LeftSnapshot, Probe, ProbedValue
from tests.support.clickhouse_source import Clickhouse, as_files, ids
from tests.support.frozen_folders import Folders, freeze, listing

_SUMS = "count(), sum(k), groupBitXor(cityHash64(*))"


@pytest.fixture(scope="module")
def folders(clickhouse: Clickhouse, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Two partitions, 0 with two parts and 1 with one; nothing in these tests changes them."""
    name = clickhouse.table("ENGINE = MergeTree PARTITION BY p ORDER BY k")
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (0, 1000, 'late')")
    return freeze(clickhouse, name, tmp_path_factory.mktemp("folders"))


def test_the_table_is_what_its_server_describes(clickhouse: Clickhouse, folders: Folders) -> None:
    """The same identity above all: else the rows would be exported once from each."""
    with folders.source() as source:
        found = source.describe(folders.table)

    assert found == clickhouse.source.describe(folders.table)


def test_the_path_of_a_freeze_says_whose_the_parts_are(
    clickhouse: Clickhouse, folders: Folders
) -> None:
    """Named is only the directory of the FREEZE and the statement."""
    above = folders.shadow.parents[2]
    with folders.with_settings(directory=above, identity="").source() as source:
        found = source.describe(folders.table)

    assert found == clickhouse.source.describe(folders.table)


def test_a_statement_without_a_name_is_that_of_the_requested_table(
    folders: Folders, tmp_path: Path
) -> None:
    """As a metadata file of an Atomic database has it; no other table is made up from it."""
    statement = folders.settings.ddl_file.read_text()
    file = tmp_path / "metadata.sql"
    file.write_text(statement.replace(f"CREATE TABLE {folders.table}", "ATTACH TABLE _"))
    with folders.with_settings(ddl_file=file).source() as source:
        assert source.engine_of(TableName("lake", "t")) is None
        assert source.describe(folders.table).name == folders.table
        assert sum(p.rows for p in source.partitions(folders.table)) == 101


def test_partitions_and_parts_are_the_servers(clickhouse: Clickhouse, folders: Folders) -> None:
    def contents(parts: tuple[FrozenPart, ...]) -> list[tuple[object, ...]]:
        return [(f.part.name, f.part.content, f.source_name, f.visible_rows) for f in parts]

    with folders.source() as source:
        assert source.partitions(folders.table) == clickhouse.source.partitions(folders.table)
        here = source.parts(folders.table, *ids("0", "1"))
    there = clickhouse.source.parts(folders.table, *ids("0", "1"))

    assert [(p.name, p.content) for p in here] == [(p.name, p.content) for p in there]
    assert all(p.path == f"{folders.directory}/{p.name}/" for p in here)
    frozen = folders.snapshot().partitions[0]
    assert contents(frozen.parts) == [(p.name, p.content, p.name, p.rows) for p in there[:2]]


def test_a_snapshot_has_the_rows_that_the_server_counts(
    clickhouse: Clickhouse, reader: EmbeddedConnection, folders: Folders, tmp_path: Path
) -> None:
    snapshot = folders.snapshot()

    assert [p.visible_rows for p in snapshot.partitions] == [51, 50]
    assert as_files(reader, snapshot, tmp_path, _SUMS) == clickhouse.rows(
        f"SELECT {_SUMS} FROM {folders.table.sql}"
    )


def test_a_directory_may_have_any_name(folders: Folders, tmp_path: Path) -> None:
    odd = tmp_path / "it's %41 & `back\\slash` ümläut"
    shutil.copytree(folders.directory, odd)

    settings = parse_parts(render_parts(folders.with_settings(directory=odd).settings))

    snapshot = folders.with_settings(directory=settings.directory).snapshot()
    assert [p.visible_rows for p in snapshot.partitions] == [51, 50]
    assert snapshot.partitions[0].parts[0].part.path == f"{odd}/0_1_1_0/"


def test_nothing_in_the_directory_changes(folders: Folders) -> None:
    """Names, inodes, links, times and sizes of every file, over a whole life of the source."""
    before = listing(folders.directory)

    with folders.source() as source:
        described = source.describe(folders.table)
        snapshot = source.snapshot(described, ids("0", "1"), job="job")
        source.refusals(folders.table, ids("0", "1"))
        source.release(snapshot)
        assert source.sweep_leftovers(lambda _: False) == ()
        assert source.leftovers() == ()

    assert listing(folders.directory) == before


def test_a_value_names_the_partition_that_it_names_on_the_server(folders: Folders) -> None:
    with folders.source() as source:
        described = source.describe(folders.table)

        assert source.find_partition(described, "1") == PartitionId("1")
        with pytest.raises(NotFoundError, match=r"Cannot find the partition 7 of .*no part has"):
            source.find_partition(described, "7")


def test_probes_return_values(folders: Folders) -> None:
    probe = Probe("__src.k", "toString(v)")

    (first, second) = folders.snapshot(probes=(probe,)).partitions

    assert first.probed == (ProbedValue("0", "1000", 0),)
    assert second.probed == (ProbedValue("1", "99", 0),)
    with folders.source() as source:
        assert source.probe(folders.table, PartitionId("1"), (probe,)) == second.probed


def test_what_a_dead_job_had_frozen_is_found_again_by_name_hash_and_rows(folders: Folders) -> None:
    frozen = folders.snapshot()
    recorded = {
        p.partition_id: LeftSnapshot(
            frozen.handle,
            tuple(LeftPart(f.part.name, f.part.hash_of_all_files, f.part.rows) for f in p.parts),
        )
        for p in frozen.partitions
    }
    other = LeftSnapshot(frozen.handle, (LeftPart("1_1_1_0", "other", 50),))

    with folders.source() as source:
        described = source.describe(folders.table)
        again = source.find_snapshot(described, recorded)
        changed = source.find_snapshot(described, {**recorded, PartitionId("1"): other})

    assert again == frozen
    assert frozen.handle
    assert [str(p.partition_id) for p in changed.partitions] == ["0"]
    assert changed.refused == ()


def test_the_source_opens_again_after_it_was_closed(folders: Folders) -> None:
    with folders.source() as source:
        described = source.describe(folders.table)
        source.close()

        assert source.describe(folders.table) == described


def test_another_table_is_not_there(folders: Folders) -> None:
    with folders.source() as source:
        source.describe(folders.table)
        with pytest.raises(
            NotFoundError, match=r"Cannot find the table db\.nope: the statement in"
        ):
            source.describe(TableName("db", "nope"))
        assert source.engine_of(TableName("db", "nope")) is None
        assert source.engine_of(folders.table) == "MergeTree"


def test_frozen_parts_are_never_taken_out(folders: Folders) -> None:
    with (
        folders.source() as source,
        pytest.raises(UnsupportedError, match="which mergeberg only reads"),
    ):
        source.take_out(folders.table, PartitionId("0"), ())


def test_a_changed_statement_refuses_what_was_described_before(folders: Folders) -> None:
    with folders.source() as source:
        described = source.describe(folders.table)
        statement = folders.settings.ddl_file.read_text()
        try:
            source.close()
            folders.replaced("`s` String", "`s` String,\n    `late` UInt8")
            snapshot = source.snapshot(described, ids("0"), job="job")
        finally:
            folders.statement(statement)

    ((_, error),) = snapshot.refused
    assert "its columns changed in" in error.message
