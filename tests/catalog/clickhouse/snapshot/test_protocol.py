"""A frozen partition is what the source showed, can be opened as files, and never changes again."""

from __future__ import annotations

from pathlib import Path

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.names import SOURCE_ALIAS
from tableformat.source import Probe, ProbedValue
from tests.support.clickhouse_source import (
    KEYS,
    Clickhouse,
    assert_same_rows,
    frozen,
    rows_as_files,
)


def test_lightly_deleted_rows_are_counted_out(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path
) -> None:
    """system.parts counts them; a job that expected them would fail, or bring them back."""
    name = clickhouse.filled()
    clickhouse.command(f"DELETE FROM {name.sql} WHERE k < 10 OR p = 1")

    snapshot = assert_same_rows(clickhouse, reader, name, tmp_path, "count(), sum(k)")

    zero, one = frozen(snapshot)
    assert [(f.part.rows, f.visible_rows, f.part.has_lightweight_delete) for f in zero.parts] == [
        (50, 45, True)
    ]
    assert one.visible_rows == 0


def test_a_partition_whose_last_part_is_empty_is_frozen_as_empty(clickhouse: Clickhouse) -> None:
    """A mutation that deletes every row leaves an active part without rows."""
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} DELETE WHERE p = 0 SETTINGS mutations_sync = 2")

    zero, one = frozen(clickhouse.snapshot(name))

    assert (zero.parts, zero.visible_rows, one.visible_rows) == ((), 0, 50)


def test_nothing_that_happens_to_the_source_later_changes_the_snapshot(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path
) -> None:
    """The promise of a snapshot: files are written from it for hours."""
    name = clickhouse.filled()
    clickhouse.insert(name, 100)
    expected = clickhouse.rows(f"SELECT p, k, s FROM {name.sql} ORDER BY p, k")
    snapshot = clickhouse.snapshot(name)

    clickhouse.insert(name, 200)
    clickhouse.command(f"OPTIMIZE TABLE {name.sql} FINAL")
    clickhouse.command(
        f"ALTER TABLE {name.sql} UPDATE s = 'changed' WHERE 1 SETTINGS mutations_sync = 2"
    )
    clickhouse.command(f"DELETE FROM {name.sql} WHERE k < 50")
    clickhouse.command(f"ALTER TABLE {name.sql} RENAME COLUMN s TO s2")
    clickhouse.command(f"ALTER TABLE {name.sql} DROP PARTITION ID '0'")
    clickhouse.command(f"DROP TABLE {name.sql} SYNC")

    found = rows_as_files(reader, snapshot.layout, frozen(snapshot), tmp_path, "p, k, s")
    assert sorted(found) == sorted(expected)
    (staging,) = snapshot.handle
    active = clickhouse.rows(f"SELECT name FROM system.parts WHERE active AND table = '{staging}'")
    names = {part.part.name for partition in frozen(snapshot) for part in partition.parts}
    assert {row[0] for row in active} == names


def test_a_snapshot_does_not_merge_after_the_directory_was_opened_again(tmp_path: Path) -> None:
    """SYSTEM STOP MERGES is lost then; twelve parts once became one within seconds."""
    with EmbeddedConnection(tmp_path / "data", create=True) as connection:
        clickhouse = Clickhouse(connection)
        name = clickhouse.table(f"ENGINE = MergeTree {KEYS}")
        clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
        for first in range(0, 600, 100):
            clickhouse.insert(name, first)
        snapshot = clickhouse.snapshot(name)
    with EmbeddedConnection(tmp_path / "data") as connection:
        (staging,) = snapshot.handle
        # The source's own parts are merged meanwhile: the time was long enough for a merge.
        active = "SELECT count(), sleep(0.05) FROM system.parts WHERE active AND table = "
        while connection.rows(f"{active}'{name.name}'")[0][0] == 12:
            pass

        assert connection.rows(f"{active}'{staging}'")[0][0] == 12


def test_parts_are_known_by_both_names(clickhouse: Clickhouse) -> None:
    """ClickHouse gives the parts of a copy new numbers; the ledger has the source's."""
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} UPDATE s = 'x' WHERE 1 SETTINGS mutations_sync = 2")
    (source_part,) = clickhouse.source.parts(
        name, clickhouse.source.partitions(name)[1].partition_id
    )

    (_, one) = frozen(clickhouse.snapshot(name))

    (part,) = one.parts
    assert part.source_name == source_part.name != part.part.name
    assert part.part.content == source_part.content
    assert Path(part.part.path).is_relative_to(part.part.disk)
    assert Path(part.part.path).name == part.part.name


def test_two_equal_parts_are_both_frozen(clickhouse: Clickhouse) -> None:
    """The same rows inserted twice give two parts with one hash."""
    name = clickhouse.table(f"ENGINE = MergeTree {KEYS}")
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    clickhouse.insert(name)

    (zero, _) = frozen(clickhouse.snapshot(name))

    assert len({part.part.hash_of_all_files for part in zero.parts}) == 1
    assert [part.source_name for part in zero.parts] == ["0_1_1_0", "0_3_3_0"]


def test_probes_are_measured_for_each_partition(clickhouse: Clickhouse) -> None:
    """They prove that an Iceberg partition value is the same in every row."""
    name = clickhouse.table(
        f"ENGINE = MergeTree {KEYS}", "p UInt8, k UInt64, s String, n Nullable(UInt8), v UInt8"
    )
    clickhouse.insert(name)
    clickhouse.command(f"INSERT INTO {name.sql} (p, k, n) VALUES (0, 9, 7), (0, 200, 5)")
    clickhouse.command(f"DELETE FROM {name.sql} WHERE k = 200")
    probes = (
        Probe(f"{SOURCE_ALIAS}.`p` + 1", "toString(v)"),
        Probe(f"{SOURCE_ALIAS}.`k`", "hex(v)"),
        Probe(f"{SOURCE_ALIAS}.`n`", "toString(v)"),
    )

    zero, one = frozen(clickhouse.snapshot(name, probes=probes))

    assert zero.probed == (
        ProbedValue("1", "1", 0), ProbedValue("00", "62", 0), ProbedValue("7", "7", 50),
    )  # fmt: skip
    assert one.probed == (
        ProbedValue("2", "2", 0), ProbedValue("01", "63", 0), ProbedValue(None, None, 50),
    )  # fmt: skip


def test_a_snapshot_says_in_which_time_zone_its_server_computes(clickhouse: Clickhouse) -> None:
    """Who opens the parts elsewhere must compute keys and defaults as the server does."""
    snapshot = clickhouse.snapshot(clickhouse.filled())

    assert ((snapshot.layout.zone,),) == clickhouse.rows("SELECT timezone()")


def test_a_partition_without_visible_rows_has_no_values(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"DELETE FROM {name.sql} WHERE p = 0")

    zero, _ = frozen(clickhouse.snapshot(name, probes=(Probe(f"{SOURCE_ALIAS}.k", "toString(v)"),)))

    assert zero.probed == (ProbedValue(None, None, 0),)


def test_more_partitions_than_fit_into_one_staging_table(clickhouse: Clickhouse) -> None:
    name = clickhouse.table(f"ENGINE = MergeTree {KEYS}")
    clickhouse.command(
        f"INSERT INTO {name.sql} (p, k) SELECT number, number FROM numbers(101)"
        " SETTINGS max_partitions_per_insert_block = 0"
    )
    every = [str(p.partition_id) for p in clickhouse.source.partitions(name)]

    snapshot = clickhouse.snapshot(name, *every, job="many")

    assert [str(p.partition_id) for p in frozen(snapshot)] == every
    assert snapshot.handle == ("many_1", "many_2")
