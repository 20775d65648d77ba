"""Frozen parts become a snapshot of the lake without their server, as the server's own would."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.frozen.definition import FrozenSettings
from catalog.clickhouse.frozen.source import FrozenPartsSource
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.export.slices import FileFormat, SliceTask, WritePlan
from tableformat.names import TableName
from tests.services.old_clickhouse import OldPair
from tests.support.child_writer import ChildWriter
from tests.support.frozen_folders import Folders, freeze, listing
from tests.support.old_source import KEYS, OldSource
from tests.support.real_export import RealExport

_COLUMNS = (
    "p UInt8, k UInt64, s String, sign Int8 DEFAULT 1, Path String, Time DateTime,"
    " Value UInt64, Timestamp DateTime"
)
_KEYS = "PARTITION BY p ORDER BY k"


def exported(exports: RealExport, folders: Folders) -> dict[str, str]:
    """Export everything; return the status word by partition id. The folders are untouched."""
    before = listing(folders.directory)
    found = exports.run(folders.table, source=folders.source(), verify=True)
    assert listing(folders.directory) == before
    return {o.partition_id: o.status.value for o in found}


@pytest.mark.parametrize(
    "clauses",
    [
        f"ENGINE = MergeTree {_KEYS}",
        f"ENGINE = MergeTree {_KEYS} SETTINGS min_bytes_for_wide_part = 0",
        f"ENGINE = ReplacingMergeTree(Value) {_KEYS}",
        f"ENGINE = SummingMergeTree(Value) {_KEYS}",
        f"ENGINE = CollapsingMergeTree(sign) {_KEYS}",
        f"ENGINE = VersionedCollapsingMergeTree(sign, Value) {_KEYS}",
        f"ENGINE = MergeTree {_KEYS} TTL Timestamp + INTERVAL 1 DAY",
    ],
)
def test_every_row_of_every_engine_arrives(
    exports: RealExport, tmp_path: Path, clauses: str
) -> None:
    """Rows that a merge would replace, sum up or expire are in the parts and so in the lake."""
    name = exports.clickhouse.table(clauses, _COLUMNS)
    exports.clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    exports.clickhouse.insert(name)
    exports.clickhouse.insert(name, 50, 100)

    found = exported(exports, freeze(exports.clickhouse, name, tmp_path))

    assert found == {"0": "committed", "1": "committed"}
    assert exports.in_lake(name) == exports.in_source(name)


def test_a_replicated_table_is_the_same_from_its_server_and_from_its_shadow(
    exports: RealExport, tmp_path: Path
) -> None:
    """Exported from the server first: the shadow has nothing to add, and adds nothing."""
    name = exports.clickhouse.filled()
    exports.clickhouse.command(f"DETACH TABLE {name.sql}")
    exports.clickhouse.command(f"ATTACH TABLE {name.sql} AS REPLICATED")
    folders = freeze(exports.clickhouse, name, tmp_path)
    identity = exports.clickhouse.source.describe(name).identity
    folders = folders.with_settings(identity="")
    statement = folders.settings.ddl_file.read_text()
    assert "ENGINE = ReplicatedMergeTree(" in statement

    first = exports.statuses(name)
    with folders.source() as source, pytest.raises(RefusedError, match="identity=keeper:PATH"):
        source.describe(name)
    second = exported(exports, folders.with_settings(identity=identity))

    assert {one: status for one, (status, _) in first.items()} == {
        "0": "committed",
        "1": "committed",
    }
    assert set(second.values()) == {"already_exported"}
    assert exports.in_lake(name) == exports.in_source(name)


def test_rows_that_were_deleted_lightly_stay_deleted(exports: RealExport, tmp_path: Path) -> None:
    name = exports.clickhouse.filled()
    exports.clickhouse.command(f"DELETE FROM {name.sql} WHERE k % 3 = 0")

    found = exported(exports, freeze(exports.clickhouse, name, tmp_path))

    assert set(found.values()) == {"committed"}
    assert len(exports.in_lake(name)) == 66
    assert exports.in_lake(name) == exports.in_source(name)


def test_projections_and_indices_do_not_matter(exports: RealExport, tmp_path: Path) -> None:
    name = exports.clickhouse.table(
        f"ENGINE = MergeTree {_KEYS}",
        "p UInt8, k UInt64, s String, INDEX i s TYPE bloom_filter,"
        " PROJECTION sums (SELECT p, sum(k) GROUP BY p), PROJECTION by_s (SELECT * ORDER BY s)",
    )
    exports.clickhouse.insert(name)
    folders = freeze(exports.clickhouse, name, tmp_path)
    assert list(folders.directory.glob("*/sums.proj"))

    assert set(exported(exports, folders).values()) == {"committed"}
    assert exports.in_lake(name) == exports.in_source(name)


def test_a_large_part_is_cut_into_several_files(exports: RealExport, tmp_path: Path) -> None:
    """Ranges of a part are read from the directory itself, and none of their rows twice."""
    name = exports.clickhouse.table(f"ENGINE = MergeTree {_KEYS} SETTINGS index_granularity = 64")
    exports.clickhouse.insert(name, 0, 4000)
    folders = freeze(exports.clickhouse, name, tmp_path)

    from_file = exports.run(
        name, source=folders.source(), file_format=FileFormat(target_file_bytes=4000)
    )

    assert {o.status.value for o in from_file} == {"committed"}
    assert len(exports.data_files(name)) > 4
    assert exports.in_lake(name) == exports.in_source(name)


def test_a_damaged_part_refuses_its_partition_and_the_other_one_lands(
    exports: RealExport, tmp_path: Path
) -> None:
    name = exports.clickhouse.filled()
    folders = freeze(exports.clickhouse, name, tmp_path)
    (broken,) = folders.directory.glob("1_*")
    (broken / "checksums.txt").unlink()

    found = exported(exports, folders)

    assert found == {"0": "committed", "1": "refused"}
    assert [row[0] for row in exports.in_lake(name)] == [0] * 50


def test_an_interrupted_export_resumes_with_its_finished_files(
    exports: RealExport, tmp_path: Path
) -> None:
    """The parts are found again by name, hash and rows; nothing is written a second time."""
    name = exports.clickhouse.filled()
    folders = freeze(exports.clickhouse, name, tmp_path)
    dead = RuntimeError("the driver died")

    def write_and_die(plan: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        writer = ChildWriter(lambda *_: None)
        for _ in writer.write(plan, tasks, on_rows=lambda _: None, should_stop=lambda: False):
            pass
        raise dead

    exports.before = write_and_die
    try:
        with pytest.raises(RuntimeError, match="the driver died"):
            exported(exports, folders)
    finally:
        exports.before = lambda *_: None
    begun = {row.key.partition_id: row.claim for row in exports.ledger_rows(name)}
    written = exports.files_on_disk(name)
    assert len(written) == 2
    assert all(claim.staging == (f"parts:{folders.directory}",) for claim in begun.values())

    assert exported(exports, folders) == {"0": "committed", "1": "committed"}

    assert exports.files_on_disk(name) == written
    ended = {row.key.partition_id: row.claim for row in exports.ledger_rows(name)}
    assert {one: claim.transaction_id for one, claim in ended.items()} == {
        one: claim.transaction_id for one, claim in begun.items()
    }
    assert exports.in_lake(name) == exports.in_source(name)


def test_a_restored_backup_is_exported_and_the_backup_itself_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.xml"
    config.write_text(
        "<clickhouse><backups><allowed_path>"
        f"{tmp_path}/backups/</allowed_path></backups></clickhouse>"
    )
    with EmbeddedConnection(tmp_path / "data", create=True, config_file=config) as connection:
        exports = RealExport(connection, tmp_path)
        name = exports.clickhouse.filled()
        to = f"File('{tmp_path}/backups/b1')"
        connection.command(f"BACKUP TABLE {name.sql} TO {to}")
        connection.command(f"RESTORE TABLE {name.sql} AS db.restored FROM {to}")
        ((path,),) = connection.rows(
            "SELECT data_paths[1] FROM system.tables WHERE name = 'restored'"
        )
        (statement,) = (tmp_path / "backups" / "b1" / "metadata").rglob(f"{name.name}.sql")
        copied = tmp_path / "restored"
        shutil.copytree(str(path), copied)
        settings = FrozenSettings(copied, statement, identity="name:restored from b1")

        with (
            FrozenPartsSource(FrozenSettings(tmp_path / "backups", statement)) as source,
            pytest.raises(RefusedError, match=r"b1 is a backup, which .* Restore it first"),
        ):
            source.describe(name)
        found = exported(exports, Folders(name, settings, copied))

        assert found == {"0": "committed", "1": "committed"}
        assert exports.in_lake(name) == exports.in_source(name)


@pytest.mark.parametrize(
    "engine",
    [
        "ReplicatedMergeTree('/frozen/{shard}/NAME', '{replica}')",
        "ReplicatedReplacingMergeTree('/frozen/{shard}/NAME', '{replica}')",
        "MergeTree()",
        "SummingMergeTree()",
    ],
)
def test_parts_that_the_oldest_version_froze_arrive_with_its_rows_and_sums(
    exports: RealExport, old_servers: OldPair, tmp_path: Path, engine: str
) -> None:
    """Files of 18.16, opened by the newest ClickHouse."""
    exports = RealExport(exports.clickhouse.connection, tmp_path)
    old = OldSource(old_servers)
    name = old.table(f"ENGINE = {engine.replace('NAME', str(tmp_path.name))} {KEYS}")
    for first in (0, 500):
        old.insert(name, first)
    folders = frozen_by(old, name, tmp_path)
    if "Replicated" in engine:
        identity = old.source.describe(name).identity
        assert identity == f"keeper:/frozen/01/{tmp_path.name}"
        folders = folders.with_settings(identity=identity)

    assert exported(exports, folders) == {"202401": "committed", "202402": "committed"}

    sums = "sum(k), sum(n), count(n), sum(m), sum(length(s)), sum(e = 'a'), sum(length(arr[1]))"
    counted = old.query(f"SELECT count(), {sums} FROM {name.sql}")
    lake = exports.lake(name).scan().to_arrow().to_pylist()
    numbers = [row["n"] for row in lake if row["n"] is not None]
    assert [int(text) for text in counted.split("\t")] == [
        len(lake),
        sum(row["k"] for row in lake),
        sum(numbers),
        len(numbers),
        sum(row["m"] for row in lake),
        sum(len(row["s"]) for row in lake),
        sum(row["e"] == "a" for row in lake),
        sum(len(row["arr"][0]) for row in lake),
    ]


def test_an_old_table_of_the_old_syntax_is_refused_with_the_way_round(
    old_servers: OldPair, tmp_path: Path
) -> None:
    """Its parts open under no statement that has a place for a disk."""
    old = OldSource(old_servers)
    name = old.table("ENGINE = MergeTree(d, (k, s), 8192)")
    old.insert(name)
    folders = frozen_by(old, name, tmp_path)

    with folders.source() as source, pytest.raises(UnsupportedError, match="of the old syntax"):
        source.describe(name)


def frozen_by(old: OldSource, name: TableName, directory: Path) -> Folders:
    """Freeze a table on an old server and copy its part folders and its statement."""
    for month in ("202401", "202402"):
        old.query(f"ALTER TABLE {name.sql} FREEZE PARTITION {month}")
    shadow = old.pair.replica(old.number).directory / "data" / "shadow"
    parts = directory / "parts"
    for part in shadow.glob(f"*/data/{name.database}/{name.name}/*"):
        shutil.copytree(part, parts / part.name)
    file = directory / "table.sql"
    # The client's own form: one line, with a backslash before every quote.
    file.write_text(old.query(f"SHOW CREATE TABLE {name.sql}") + "\n")
    settings = FrozenSettings(parts, file, f"name:{directory.name}", zone="UTC")
    return Folders(name, settings, shadow)
