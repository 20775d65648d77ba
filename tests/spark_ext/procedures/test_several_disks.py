"""Statements on lake tables of a source whose parts lie on several disks, in several places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.properties.duckdb_reader import DuckDBReader
from tests.support.clickhouse_source import config_text
from tests.support.session_lake import alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_ROWS = 300
_TIERED = (
    "(p UInt8, k UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY k"
    " SETTINGS storage_policy = 'tiered'"
)


@pytest.fixture
def tiered(session: NoSpark, tmp_path: Path) -> NoSpark:
    """Return a session whose source has parts of db.tiered on a hot and a cold disk."""
    for disk in ("hot", "cold"):
        (tmp_path / disk).mkdir()
    config = tmp_path / "config.xml"
    config.write_text(config_text(tmp_path))
    with EmbeddedConnection(tmp_path / "data", create=True, config_file=config) as connection:
        for sql in (
            "CREATE DATABASE db",
            f"CREATE TABLE db.tiered {_TIERED}",
            "SYSTEM STOP MERGES db.tiered",
            *(f"INSERT INTO db.tiered SELECT number % 2, number FROM numbers({n}, 100)"
              for n in range(0, _ROWS, 100)),
            "ALTER TABLE db.tiered MOVE PART '0_1_1_0' TO DISK 'cold'",
            "ALTER TABLE db.tiered MOVE PARTITION 1 TO VOLUME 'c'",
        ):  # fmt: skip
            connection.command(sql)
    source = f"chdb:{tmp_path / 'data'}?config-file={config}"
    return replace(session, settings={**session.settings, "spark.mergeberg.source.ch": source})


def test_partitions_of_tiered_storage_are_detached_attached_and_replaced(
    places: Places, tiered: NoSpark, tmp_path: Path
) -> None:
    """Harm prevented: what is on another disk than the table stays behind, or is lost."""
    places.reads_parts = True
    for name in ("tiered", "copied"):
        done = export_all(tiered, "tiered", name)
        assert {one["status"] for one in done} == {"committed"}
        with opened(places, name).transaction() as transaction:
            transaction.set_properties({"mergeberg.disk.cold": f"file://{tmp_path}/lake"})
    lake = "ALTER TABLE lake.n"

    for statement, became in (
        (f"{lake}.tiered MOVE PARTITION 1 TO DISK 'cold'", "moved"),
        (f"{lake}.tiered DETACH PARTITION ALL", "detached"),
        (f"{lake}.tiered ATTACH PARTITION 0", "attached"),
        (f"{lake}.tiered ATTACH PARTITION 1", "attached"),
        (f"{lake}.copied DROP PARTITION 1", "dropped"),
        (f"{lake}.copied ATTACH PARTITION 1 FROM lake.n.tiered", "attached"),
        (f"{lake}.copied REPLACE PARTITION 0 FROM lake.n.tiered", "unchanged"),
        (f"{lake}.copied MOVE PARTITION 1 TO DISK 'cold'", "moved"),
    ):
        assert [one["status"] for one in alter(tiered, statement)] == [became], statement

    duckdb = DuckDBReader()
    for name in ("tiered", "copied"):
        table = opened(places, name)
        paths = [task.file.file_path for task in table.scan().plan_files()]
        below = f"file://{tmp_path}/lake/{table.metadata.table_uuid}/"
        assert 0 < sum(path.startswith(below) for path in paths) < len(paths)
        for rows in (table.scan().to_arrow(), duckdb.read(table, ["p", "k"])):
            assert sorted(rows.column("k").to_pylist()) == list(range(_ROWS))
        assert {r["status"] for r in export_all(tiered, "tiered", name)} == {"already_exported"}
    duckdb.close()
