"""What a dead job froze is found again when it is whole, and never when anything of it is not."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.snapshot.staging import staging_table
from catalog.clickhouse.source import ClickHouseSource
from tableformat.mergetree.digest_sql import source_columns
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName
from tableformat.source import LeftPart, LeftSnapshot, Probe, SourceSnapshot
from tests.support.clickhouse_source import (
    COLUMNS,
    KEYS,
    Clickhouse,
    Through,
    as_files,
    frozen,
    ids,
)
from tests.support.dying import Dies

ROOT = Path(__file__).parents[3]
OPEN = "ALTER TABLE {staging} MODIFY SETTING table_readonly = 0"
START = "SYSTEM START MERGES {staging}"
CLOSE = "ALTER TABLE {staging} MODIFY SETTING table_readonly = 1"
SETTINGS = "index_granularity = 64, allow_nullable_key = 1, storage_policy = 'tiered'"
PROBES = (Probe(f"{SOURCE_ALIAS}.k", "toString(v)"),)

Wanted = dict[PartitionId, LeftSnapshot]


def recorded(snapshot: SourceSnapshot) -> Wanted:
    """Return what a ledger keeps of a snapshot."""
    return {
        partition.partition_id: LeftSnapshot(
            snapshot.handle,
            tuple(
                LeftPart(f.source_name, f.part.hash_of_all_files, f.part.rows)
                for f in partition.parts
            ),
        )
        for partition in snapshot.partitions
    }


def find(clickhouse: Clickhouse, name: TableName, wanted: Wanted) -> SourceSnapshot:
    """Look for partitions as a later job does; it makes nothing and refuses nothing."""
    before = clickhouse.staging_tables()
    found = clickhouse.source.find_snapshot(clickhouse.source.describe(name), wanted, probes=PROBES)
    assert clickhouse.staging_tables() == before
    assert found.refused == ()
    return found


def found_ids(found: SourceSnapshot) -> str:
    """Return the ids of the found partitions, each of one letter; nothing found has no handle."""
    assert bool(found.partitions) == bool(found.handle)
    return "".join(str(partition.partition_id) for partition in found.partitions)


def several_parts(clickhouse: Clickhouse) -> TableName:
    """Make a table of the partitions 0 and 1 with two parts each; nothing merges them."""
    name = clickhouse.table(f"ENGINE = MergeTree {KEYS}")
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    clickhouse.insert(name, 100)
    return name


_DRIVER = """
import pickle, sys
from pathlib import Path
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.source import ClickHouseSource
directory, name, ids, probes = pickle.load(sys.stdin.buffer)
connection = EmbeddedConnection(directory)
source = ClickHouseSource(lambda _: connection)
snapshot = source.snapshot(source.describe(name), ids, job="7291", probes=probes)
pickle.dump((snapshot, connection.process_id), sys.stdout.buffer)
sys.stdout.flush()
sys.stdin.read()
"""


def freeze_and_die(directory: Path, name: TableName, *, clickhouse_too: bool) -> SourceSnapshot:
    """Freeze in another process, which is killed when it has reported what it froze."""
    with subprocess.Popen(
        [sys.executable, "-c", _DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        pickle.dump((directory, name, ids("0", "1"), PROBES), driver.stdin)
        driver.stdin.flush()
        snapshot, clickhouse = pickle.load(driver.stdout)  # noqa: S301  written by our own child
        if clickhouse_too:
            os.kill(clickhouse, signal.SIGKILL)
        driver.kill()
    assert driver.returncode == -signal.SIGKILL
    assert isinstance(snapshot, SourceSnapshot)
    return snapshot


@pytest.mark.parametrize("clickhouse_too", [False, True], ids=["driver", "driver and ClickHouse"])
def test_a_snapshot_survives_the_process_that_took_it(
    tmp_path: Path, reader: EmbeddedConnection, *, clickhouse_too: bool
) -> None:
    """Harm prevented: finished files of a dead driver are useless, its parts being gone."""
    directory = tmp_path / "data"
    with EmbeddedConnection(directory, create=True) as connection:
        clickhouse = Clickhouse(connection)
        name = clickhouse.filled()
        clickhouse.insert(name, 100)
        expected = clickhouse.rows(f"SELECT p, k, s FROM {name.sql} ORDER BY p, k")

    snapshot = freeze_and_die(directory, name, clickhouse_too=clickhouse_too)

    with EmbeddedConnection(directory) as connection:
        clickhouse = Clickhouse(connection)
        clickhouse.command(f"OPTIMIZE TABLE {name.sql} FINAL")
        clickhouse.command(f"ALTER TABLE {name.sql} DELETE WHERE k = 4 SETTINGS mutations_sync = 2")
        clickhouse.command(f"ALTER TABLE {name.sql} DROP PARTITION ID '1'")

        found = find(clickhouse, name, recorded(snapshot))

        assert found == snapshot
        assert sorted(as_files(reader, found, tmp_path / "links", "p, k, s")) == list(expected)
        clickhouse.source.release(found)
        assert clickhouse.staging_tables() == ()


@pytest.mark.parametrize(
    "happens",
    [
        "INSERT INTO {source} (p, k) SELECT 0, number FROM numbers(7)",
        "OPTIMIZE TABLE {source} FINAL",
        "ALTER TABLE {source} UPDATE s = 'new' WHERE 1 SETTINGS mutations_sync = 2",
        "ALTER TABLE {source} UPDATE s = toString(throwIf(1)) WHERE 1 SETTINGS mutations_sync = 0",
        "DELETE FROM {source} WHERE k < 10",
        "ALTER TABLE {source} DETACH PARTITION ID '0'",
        "TRUNCATE TABLE {source}",
    ],
)
def test_what_happens_to_the_source_meanwhile_does_not_matter(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path, happens: str
) -> None:
    """The files that are finished hold the old rows; the rest must come from the same rows."""
    name = clickhouse.filled()
    clickhouse.insert(name, 100)
    expected = clickhouse.rows(f"SELECT p, k, s FROM {name.sql} ORDER BY p, k")
    snapshot = clickhouse.snapshot(name, probes=PROBES)
    clickhouse.command(happens.format(source=name.sql))

    found = find(clickhouse, name, recorded(snapshot))

    assert found == snapshot
    assert sorted(as_files(reader, found, tmp_path, "p, k, s")) == list(expected)


@pytest.mark.parametrize(
    "clauses",
    [
        "ReplacingMergeTree(k) PARTITION BY p PRIMARY KEY k ORDER BY (k, s)",
        "VersionedCollapsingMergeTree(sign, k) PARTITION BY p ORDER BY intHash32(k)",
        f"MergeTree {KEYS} TTL Time + toIntervalYear(100) SETTINGS {SETTINGS}",
    ],
)
def test_tables_of_any_engine_and_settings_find_their_snapshots(
    clickhouse: Clickhouse, clauses: str
) -> None:
    """The staging table is a plain one: it differs from its source, but in known ways only."""
    name = clickhouse.table(f"ENGINE = {clauses}", COLUMNS)
    clickhouse.insert(name)
    snapshot = clickhouse.snapshot(name, probes=PROBES)

    assert find(clickhouse, name, recorded(snapshot)) == snapshot


def test_a_table_that_was_renamed_finds_its_snapshot(clickhouse: Clickhouse) -> None:
    """It is still the same table, and its files go to the same place."""
    name = clickhouse.filled()
    snapshot = clickhouse.snapshot(name, probes=PROBES)
    other = TableName("db", f"{name.name}_renamed")
    clickhouse.command(f"RENAME TABLE {name.sql} TO {other.sql}")

    assert find(clickhouse, other, recorded(snapshot)).partitions == snapshot.partitions


@pytest.mark.parametrize(
    ("happens", "still_found"),
    [
        ((OPEN, "ALTER TABLE {staging} DROP PART '{part}'", CLOSE), "1"),
        ((OPEN, "ALTER TABLE {staging} DROP PARTITION ID '0'", CLOSE), "1"),
        ((OPEN, "INSERT INTO {staging} (p, k) VALUES (0, 1)", CLOSE), "1"),
        ((OPEN, "ALTER TABLE {staging} REPLACE PARTITION ID '0' FROM {other}", CLOSE), "1"),
        ((OPEN, START, "DELETE FROM {staging} WHERE k = 4", CLOSE), "1"),
        ((OPEN, START, "OPTIMIZE TABLE {staging} FINAL", CLOSE), ""),
        ((OPEN, "ALTER TABLE {staging} ADD COLUMN late UInt8", CLOSE), ""),
        ((OPEN, "ALTER TABLE {staging} MODIFY COLUMN s DEFAULT 'x'", CLOSE), ""),
        ((OPEN, "ALTER TABLE {staging} RESET SETTING max_bytes_to_merge_at_max_space_in_pool",
          CLOSE), ""),
        ((OPEN, "ALTER TABLE {staging} MODIFY SETTING enable_block_number_column = 1", CLOSE), ""),
        ((OPEN,), ""),
        ((OPEN, "ALTER TABLE {staging} MODIFY COMMENT ''", CLOSE), ""),
        (("DROP TABLE {staging} SYNC",), ""),
        (("DROP TABLE {staging} SYNC", "CREATE TABLE {staging} AS {other}"), ""),
        (("DROP TABLE {staging} SYNC", "CREATE TABLE {staging} (k UInt8) ENGINE = Memory"), ""),
        (("DROP TABLE {staging} SYNC", "CREATE VIEW {staging} AS SELECT * FROM {other}"), ""),
    ],
)  # fmt: skip
def test_what_somebody_changed_in_the_staging_table_is_not_found(
    clickhouse: Clickhouse, happens: tuple[str, ...], still_found: str
) -> None:
    """Harm prevented: files of other rows, or of fewer, next to the finished ones."""
    name = several_parts(clickhouse)
    snapshot = clickhouse.snapshot(name, probes=PROBES)
    staging = staging_table(clickhouse.connection, snapshot.handle[0]).sql
    part = frozen(snapshot)[0].parts[1].part.name
    other = clickhouse.filled(f"ENGINE = MergeTree {KEYS}").sql
    for statement in happens:
        clickhouse.command(statement.format(staging=staging, part=part, other=other))

    assert found_ids(find(clickhouse, name, recorded(snapshot))) == still_found


@pytest.mark.parametrize(
    "alter",
    [
        "ADD COLUMN late UInt8",
        "MODIFY COLUMN early String DEFAULT 'x'",
        "ADD COLUMN late UInt8, MODIFY ORDER BY (k, late)",
    ],
)
def test_a_table_of_another_definition_by_now_finds_nothing(
    clickhouse: Clickhouse, alter: str
) -> None:
    """The plan is for the new columns, which the frozen parts do not have."""
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} ADD COLUMN early String DEFAULT 'a'")
    snapshot = clickhouse.snapshot(name)
    clickhouse.command(f"ALTER TABLE {name.sql} {alter}")

    assert found_ids(find(clickhouse, name, recorded(snapshot))) == ""


def test_an_expression_that_no_part_needs_may_be_another_one_by_now(clickhouse: Clickhouse) -> None:
    """Harm prevented: finished files are written again because a DEFAULT was changed."""
    name = clickhouse.filled()
    snapshot = clickhouse.snapshot(name)
    clickhouse.command(f"ALTER TABLE {name.sql} MODIFY COLUMN s String DEFAULT 'x'")

    assert found_ids(find(clickhouse, name, recorded(snapshot))) == "01"


def test_the_snapshot_of_another_table_is_not_taken_even_with_equal_parts(
    clickhouse: Clickhouse,
) -> None:
    """Names of staging tables come back; the ledger row may speak of one that is no more."""
    name = clickhouse.filled()
    mine = clickhouse.snapshot(name)
    others = clickhouse.snapshot(clickhouse.copy(name))
    assert [[f.part.content for f in partition.parts] for partition in mine.partitions] == [
        [f.part.content for f in partition.parts] for partition in others.partitions
    ]

    assert found_ids(find(clickhouse, name, recorded(mine))) == "01"
    assert found_ids(find(clickhouse, name, recorded(others))) == ""


def test_a_clone_that_was_interrupted_is_never_used(clickhouse: Clickhouse) -> None:
    """Nobody compared its parts with the source's, and the source has moved on since."""
    name = clickhouse.filled()
    held = clickhouse.source.parts(name, ids("0")[0])

    class Dying(Through):
        def command(self, sql: str) -> None:
            if "table_readonly" in sql:
                raise Dies
            super().command(sql)

    source = ClickHouseSource(lambda _: Dying(clickhouse.connection))
    with pytest.raises(Dies):
        source.snapshot(source.describe(name), ids("0", "1"), job="cut", probes=())
    assert "cut_1" in clickhouse.staging_tables()

    parts = tuple(LeftPart(p.name, p.hash_of_all_files, p.rows) for p in held)
    assert found_ids(find(clickhouse, name, {ids("0")[0]: LeftSnapshot(("cut_1",), parts)})) == ""


def test_where_tables_cannot_be_closed_nothing_is_found(clickhouse: Clickhouse) -> None:
    """A filling that was interrupted looks like one that ended there."""
    name = clickhouse.filled()

    class Old(Through):
        def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
            return tuple(row for row in super().rows(sql) if row != ("table_readonly",))

    source = ClickHouseSource(lambda _: Old(clickhouse.connection))
    table = source.describe(name)
    snapshot = source.snapshot(table, ids("0", "1"), job="job", probes=())

    assert snapshot.refused == ()
    assert found_ids(source.find_snapshot(table, recorded(snapshot))) == ""


def test_a_part_that_was_damaged_meanwhile_is_not_found(clickhouse: Clickhouse) -> None:
    """A disk may lose a bit between the death of a job and the next one."""
    name = several_parts(clickhouse)
    snapshot = clickhouse.snapshot(name)
    damaged = Path(frozen(snapshot)[0].parts[0].part.path) / "data.bin"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)

    assert found_ids(find(clickhouse, name, recorded(snapshot))) == "1"


def test_rows_that_are_hidden_now_are_missed(clickhouse: Clickhouse) -> None:
    """A filter in the settings of the next user would silently shorten the export."""
    name = clickhouse.filled()
    snapshot = clickhouse.snapshot(name, job="shown")
    filters = f"{{'mergeberg_staging.{snapshot.handle[0]}': 'k != 4'}}"
    clickhouse.command(f"SET additional_table_filters = {filters}")

    found = find(clickhouse, name, recorded(snapshot))
    clickhouse.command("SET additional_table_filters = {}")

    assert found_ids(found) == "1"


def test_records_that_name_other_parts_find_nothing(clickhouse: Clickhouse) -> None:
    name = several_parts(clickhouse)
    snapshot = clickhouse.snapshot(name)
    (zero, left), _ = recorded(snapshot).items()
    first, second = left.parts
    more_rows = LeftPart(first.source_name, first.hash_of_all_files, first.rows + 1)

    for parts in ((), (first,), (first, second, second), (first, first), (more_rows, second)):
        assert found_ids(find(clickhouse, name, {zero: LeftSnapshot(left.staging, parts)})) == ""
    assert found_ids(find(clickhouse, name, {zero: LeftSnapshot((), left.parts)})) == ""
    assert found_ids(find(clickhouse, name, {})) == ""


def test_one_of_two_partitions_in_a_staging_table_is_found(clickhouse: Clickhouse) -> None:
    """The other one may have landed before the job died."""
    name = several_parts(clickhouse)
    snapshot = clickhouse.snapshot(name, probes=PROBES)
    _, (one, left) = recorded(snapshot).items()

    found = find(clickhouse, name, {one: left})

    assert found.partitions == snapshot.partitions[1:]
    assert found.handle == snapshot.handle


def test_only_the_staging_tables_that_hold_something_are_named(clickhouse: Clickhouse) -> None:
    """A partition that could not be cloned lets each of the others have a table of its own."""
    name = clickhouse.filled()
    snapshot = clickhouse.snapshot(name, "0", "9", "1", job="alone")
    first, second = snapshot.handle
    wanted = recorded(snapshot)

    assert find(clickhouse, name, wanted).handle == (first, second)
    clickhouse.command(f"DROP TABLE {staging_table(clickhouse.connection, first).sql} SYNC")
    found = find(clickhouse, name, wanted)

    assert (found_ids(found), found.handle) == ("1", (second,))


def test_two_equal_parts_are_found_under_their_names(clickhouse: Clickhouse) -> None:
    name = clickhouse.table(f"ENGINE = MergeTree {KEYS}")
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    clickhouse.insert(name)
    snapshot = clickhouse.snapshot(name, probes=PROBES)

    assert find(clickhouse, name, recorded(snapshot)) == snapshot


def test_values_and_digests_are_measured_again(clickhouse: Clickhouse) -> None:
    """A later release may ask for other values than the dead job did."""
    name = clickhouse.filled()
    clickhouse.command(f"DELETE FROM {name.sql} WHERE k = 98")
    table = clickhouse.source.describe(name)
    digest = source_columns(table.stored_columns, {})
    wanted = recorded(clickhouse.snapshot(name))
    fresh = clickhouse.source.snapshot(
        table, ids("0", "1"), job="new", probes=PROBES, digest=digest
    )

    found = clickhouse.source.find_snapshot(table, wanted, probes=PROBES, digest=digest)

    assert [(p.probed, p.digest) for p in found.partitions] == [
        (p.probed, p.digest) for p in fresh.partitions
    ]
    assert [p.visible_rows for p in found.partitions] == [49, 50]
    assert found.partitions[0].digest is not None


def test_copies_of_encrypted_parts_are_found_again_when_their_source_is_gone(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path
) -> None:
    """Harm prevented: hours of copying and writing are done once more, or other rows are read."""
    settings = f"{SETTINGS.replace('tiered', 'secret')}, min_bytes_for_wide_part = 0"
    more = "PROJECTION q (SELECT s, k ORDER BY s), INDEX i s TYPE set(9)"
    columns = f"p UInt8, k UInt64, s String, {more}"
    name = clickhouse.table(f"ENGINE = MergeTree {KEYS} SETTINGS {settings}", columns)
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    clickhouse.insert(name, 100)
    expected = clickhouse.rows(f"SELECT p, k, s FROM {name.sql} ORDER BY p, k")
    snapshot = clickhouse.snapshot(name, probes=PROBES)
    described = clickhouse.source.describe(name)
    clickhouse.command(f"SYSTEM START MERGES {name.sql}")
    clickhouse.command(f"OPTIMIZE TABLE {name.sql} FINAL")
    clickhouse.command(f"TRUNCATE TABLE {name.sql}")

    found = clickhouse.source.find_snapshot(described, recorded(snapshot), probes=PROBES)

    assert found.partitions == snapshot.partitions
    assert sorted(as_files(reader, found, tmp_path, "p, k, s")) == sorted(expected)
