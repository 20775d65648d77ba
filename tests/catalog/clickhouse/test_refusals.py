"""What would give wrong rows is refused by name, and never takes a good partition with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.source import ClickHouseSource
from catalog.source_defaults import STAGING_DATABASE
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    SourceError,
    TableFormatError,
    UnsupportedError,
)
from tableformat.export.content import Content, content_of
from tableformat.names import SOURCE_ALIAS, TableName
from tableformat.source import Probe, SourceSnapshot
from tests.support.clickhouse_source import Clickhouse, Through, ids
from tests.support.far_disks import far_default

# The statement comes back although nothing has been done yet.
LATER = " SETTINGS mutations_sync = 0, alter_sync = 0"


def only_refused(snapshot: SourceSnapshot, partition: str = "0") -> TableFormatError:
    """Return the refusal of one partition; the other one is frozen with all of its rows."""
    ((refused, error),) = snapshot.refused
    assert str(refused) == partition
    (frozen,) = snapshot.partitions
    assert str(frozen.partition_id) != partition
    assert frozen.visible_rows == 50
    return error


def all_refused(snapshot: SourceSnapshot) -> TableFormatError:
    assert snapshot.partitions == ()
    assert snapshot.handle == ()
    return snapshot.refused[0][1]


def raised(error: TableFormatError) -> None:
    raise error


def test_an_unfinished_mutation_is_refused_where_it_has_still_to_work(
    clickhouse: Clickhouse,
) -> None:
    """The clone would hold the old values, and no later run would notice."""
    name = clickhouse.filled()
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.command(f"ALTER TABLE {name.sql} UPDATE s = 'new' WHERE 1{LATER}")
    clickhouse.command(f"INSERT INTO {name.sql} (p, k) SELECT 2, number FROM numbers(50)")

    error = only_refused(clickhouse.snapshot(name, "0", "2"))

    match = (
        r"Cannot export partition 0 of db\.t\d+: the mutation mutation_3\.txt "
        r"\(UPDATE s = 'new' WHERE 1\) is not finished; it has still to change 0_1_1_0\. "
        r".*KILL MUTATION WHERE"
    )
    with pytest.raises(RefusedError, match=match):
        raised(error)


def test_the_reason_why_a_mutation_does_not_finish_is_shown(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} UPDATE s = toString(throwIf(k = 4)) WHERE 1{LATER}")
    failing = f"SELECT latest_fail_reason FROM system.mutations WHERE table = '{name.name}'"
    while clickhouse.rows(failing) == (("",),):
        pass

    with pytest.raises(RefusedError, match=r"It failed last with: .*throwIf"):
        raised(only_refused(clickhouse.snapshot(name)))


@pytest.mark.parametrize(
    "alter",
    [
        ("RENAME COLUMN s TO s2",),
        ("DROP COLUMN s", "ADD COLUMN s String DEFAULT 'new'"),
    ],
)
def test_a_rename_that_was_not_carried_out_is_refused(
    clickhouse: Clickhouse, alter: tuple[str, ...]
) -> None:
    """The clone would read defaults, or values that were dropped, without any error."""
    name = clickhouse.filled()
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    for what in alter:
        clickhouse.command(f"ALTER TABLE {name.sql} {what}{LATER}")

    with pytest.raises(
        RefusedError, match=r"the mutation .* \(.*(RENAME|DROP) COLUMN s.*\) is not"
    ):
        raised(all_refused(clickhouse.snapshot(name)))


def test_parts_with_a_column_that_the_table_does_not_have_are_refused(
    clickhouse: Clickhouse,
) -> None:
    """What remains of a RENAME whose mutation was killed."""
    name = clickhouse.filled()
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.command(f"ALTER TABLE {name.sql} RENAME COLUMN s TO s2{LATER}")
    clickhouse.command(f"KILL MUTATION WHERE database = 'db' AND table = '{name.name}'")
    clickhouse.command(f"INSERT INTO {name.sql} (p, k, s2) SELECT 2, number, 'x' FROM numbers(50)")

    snapshot = clickhouse.snapshot(name, "1", "2")

    with pytest.raises(RefusedError, match="its parts hold s, which the table does not have"):
        raised(only_refused(snapshot, "1"))


@pytest.mark.parametrize("policy", ["default", "secret"])
def test_lightweight_updates_are_refused_with_a_statement_that_applies_them(
    clickhouse: Clickhouse, policy: str
) -> None:
    """A clone without the patch parts would silently lose the updates."""
    name = clickhouse.filled(
        f"ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS storage_policy = '{policy}',"
        " enable_block_number_column = 1, enable_block_offset_column = 1"
    )
    clickhouse.command(f"UPDATE {name.sql} SET s = 'new' WHERE k = 4")
    assert [str(p.partition_id) for p in clickhouse.source.partitions(name)] == ["0", "1"]

    error = only_refused(clickhouse.snapshot(name))

    assert isinstance(error, RefusedError)
    assert error.code == 344
    statement = error.message.partition("Run ")[2].rstrip(".")
    assert statement.startswith(f"ALTER TABLE {name.sql} APPLY PATCHES IN PARTITION ID '0'")
    clickhouse.command(statement)
    snapshot = clickhouse.snapshot(
        name, probes=(Probe(f"{SOURCE_ALIAS}.s = 'new'", "toString(v)"),)
    )
    assert (snapshot.refused, snapshot.partitions[0].probed[0].greatest) == ((), "1")


def test_a_pending_lightweight_update_is_other_content(clickhouse: Clickhouse) -> None:
    """Harm prevented: "unchanged" while a SELECT shows other values than the lake."""
    name = clickhouse.filled(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS"
        " enable_block_number_column = 1, enable_block_offset_column = 1"
    )
    table = clickhouse.source.describe(name)

    def contents() -> list[Content]:
        return [content_of(table, clickhouse.source.parts(name, one)) for one in ids("0", "1")]

    before = contents()
    clickhouse.command(f"UPDATE {name.sql} SET s = 'new' WHERE k = 4")
    pending = contents()
    refused = clickhouse.source.refusals(name, ids("0", "1"))
    clickhouse.insert(name)
    clickhouse.command(
        f"ALTER TABLE {name.sql} APPLY PATCHES IN PARTITION ID '0' SETTINGS mutations_sync = 2"
    )
    applied = clickhouse.source.parts(name, *ids("0", "1"))

    assert pending[0].fingerprint != before[0].fingerprint
    assert not pending[0].merge_explains
    assert pending[1] == before[1]
    assert {str(one): error.code for one, error in refused.items()} == {"0": 344}
    assert [part.patches for part in applied] == [()] * len(applied)
    assert clickhouse.source.refusals(name, ids("0", "1")) == {}


def test_a_partition_that_lost_a_broken_part_is_refused(tmp_path: Path) -> None:
    """ClickHouse sets the part aside when it starts; the table continues with fewer rows."""
    with EmbeddedConnection(tmp_path / "data", create=True) as connection:
        clickhouse = Clickhouse(connection)
        name = clickhouse.filled()
        part = clickhouse.source.parts(name, ids("0")[0])[0]
    (Path(part.path) / "checksums.txt").write_bytes(b"damaged")

    with EmbeddedConnection(tmp_path / "data") as connection:
        clickhouse = Clickhouse(connection)
        clickhouse.insert(name, 100)
        snapshot = clickhouse.snapshot(name)
        match = (
            r"detached broken parts \(broken-on-start_0_1_1_0\), .*DROP DETACHED PART 'broken-on-st"
        )
        with pytest.raises(RefusedError, match=match):
            raised(snapshot.refused[0][1])
        assert [str(p.partition_id) for p in snapshot.partitions] == ["1"]

        clickhouse.command(snapshot.refused[0][1].message.partition("with ")[2].rstrip("."))
        assert clickhouse.snapshot(name).refused == ()


def test_a_part_that_a_user_detached_does_not_matter(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} DETACH PARTITION ID '0'")
    clickhouse.insert(name, 100)

    assert clickhouse.snapshot(name).refused == ()


@pytest.mark.parametrize(
    ("wide", "file"), [(0, "s.bin"), (0, "k.cmrk2"), (1, "data.bin"), (1, "count.txt")]
)
def test_a_damaged_part_is_refused_by_its_name(
    clickhouse: Clickhouse, wide: int, file: str
) -> None:
    """A flipped bit in a .bin attaches without an error, and some flips read without one too."""
    name = clickhouse.filled(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k"
        f" SETTINGS min_bytes_for_wide_part = {wide * 10**9}"
    )
    part = clickhouse.source.parts(name, ids("0")[0])[0]
    damaged = Path(part.path) / file
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)

    match = r"partition 0 of db\.t\d+: .*(0_1_1_0|ClickHouse cannot clone it).* (Check|Repair) the"
    with pytest.raises(SourceError, match=match):
        raised(only_refused(clickhouse.snapshot(name)))


def test_an_unknown_partition_is_refused_and_the_others_are_frozen(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()

    snapshot = clickhouse.snapshot(name, "0", "9")

    with pytest.raises(NotFoundError, match=r"partition 9 of .* has no active parts"):
        raised(only_refused(snapshot, "9"))


@pytest.mark.parametrize(
    ("alter", "what"),
    [
        ("ADD COLUMN late UInt8", "its columns changed"),
        ("RENAME COLUMN s TO s2", "its columns changed"),
        ("MODIFY COLUMN s String DEFAULT 'x'", "its columns changed"),
        ("ADD COLUMN late UInt8, MODIFY ORDER BY (k, late)", "its columns, its sorting key"),
    ],
)
def test_a_table_that_changed_since_it_was_described_is_refused(
    clickhouse: Clickhouse, alter: str, what: str
) -> None:
    """The files would be written by a plan for another table."""
    name = clickhouse.filled()
    described = clickhouse.source.describe(name)
    clickhouse.command(f"ALTER TABLE {name.sql} {alter}")

    snapshot = clickhouse.source.snapshot(described, ids("0", "1"), job="job", probes=())

    with pytest.raises(RefusedError, match=f"{what}.* since the table was described"):
        raised(all_refused(snapshot))


def test_a_table_recreated_under_the_same_name_is_refused(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    described = clickhouse.source.describe(name)
    clickhouse.command(f"CREATE TABLE db.other AS {name.sql}")
    clickhouse.command(f"EXCHANGE TABLES {name.sql} AND db.other")

    snapshot = clickhouse.source.snapshot(described, ids("0"), job="job", probes=())

    with pytest.raises(RefusedError, match="its identity changed"):
        raised(all_refused(snapshot))


class Meddling(Through):
    """A connection that lets something else happen at the source just before each clone."""

    def __init__(self, connection: Connection, *happens: str) -> None:
        super().__init__(connection)
        self.happens = list(happens)
        self.clones = 0

    def command(self, sql: str) -> None:
        if "REPLACE PARTITION" in sql:
            self.clones += 1
            if self.happens:
                self.connection.command(self.happens.pop(0))
        super().command(sql)


def test_a_mutation_that_begins_during_the_clone_makes_it_start_afresh(
    clickhouse: Clickhouse,
) -> None:
    """Some of the cloned parts could be mutated and some not yet."""
    name = clickhouse.filled()
    meddling = Meddling(
        clickhouse.connection,
        f"ALTER TABLE {name.sql} UPDATE s = 'new' WHERE 1 SETTINGS mutations_sync = 2",
    )
    source = ClickHouseSource(lambda _: meddling)

    snapshot = source.snapshot(source.describe(name), ids("0", "1"), job="busy", probes=())

    assert (snapshot.refused, meddling.clones) == ((), 2)
    assert snapshot.handle == ("busy_1",)
    assert [n for n in clickhouse.staging_tables() if str(n).startswith("busy")] == ["busy_1"]


def test_a_table_that_never_rests_is_refused_in_the_end(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    update = f"ALTER TABLE {name.sql} UPDATE s = 'x' WHERE 1 SETTINGS mutations_sync = 2"
    source = ClickHouseSource(lambda _: Meddling(clickhouse.connection, *[update] * 9))

    snapshot = source.snapshot(source.describe(name), ids("0", "1"), job="job", probes=())

    with pytest.raises(SourceError, match=r"in each of 5 attempts .*, mutations were started"):
        raised(all_refused(snapshot))


def test_rows_hidden_from_the_exporter_are_refused(clickhouse: Clickhouse) -> None:
    """A filter in the user's settings would silently shorten the export."""
    name = clickhouse.filled()
    hidden = f"{STAGING_DATABASE}.hidden_1"
    clickhouse.command(f"SET additional_table_filters = {{'{hidden}': 'k != 4'}}")

    snapshot = clickhouse.snapshot(name, job="hidden")
    clickhouse.command("SET additional_table_filters = {}")

    with pytest.raises(SourceError, match="holds 50 rows and shows 49"):
        raised(only_refused(snapshot))


def test_parts_on_a_default_disk_without_plain_files_are_refused(tmp_path: Path) -> None:
    """There is no plain disk to which ClickHouse could copy them."""
    with far_default(tmp_path) as connection:
        clickhouse = Clickhouse(connection)
        name = clickhouse.filled()
        refused = clickhouse.source.refusals(name, ids("0", "1"))
        snapshot = clickhouse.snapshot(name)

        message = r"on the disk 'default' of type ObjectStorage, and ClickHouse cannot copy it"
        with pytest.raises(UnsupportedError, match=message):
            raised(all_refused(snapshot))
        assert {one: str(error) for one, error in refused.items()} == {
            one: str(error) for one, error in snapshot.refused
        }
        assert clickhouse.staging_tables() == ()


class MovingMeanwhile(Through):
    """A connection over which ClickHouse moves a part away when a snapshot has listed it."""

    moved = False

    def command(self, sql: str) -> None:
        if " REPLACE PARTITION " in sql and not self.moved:
            self.moved = True
            name = sql.rpartition(" FROM ")[2]
            self.connection.command(f"ALTER TABLE {name} MOVE PARTITION ID '0' TO DISK 'objects'")
        super().command(sql)


def test_parts_that_are_moved_to_an_object_storage_meanwhile_are_refused(
    clickhouse: Clickhouse,
) -> None:
    """Harm prevented: files that no task can open, found out after the partition is claimed."""
    name = clickhouse.filled(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS storage_policy = 'far'"
    )
    connection = MovingMeanwhile(clickhouse.connection)
    moving = ClickHouseSource(lambda _: connection)

    first = moving.snapshot(moving.describe(name), ids("0", "1"), job="moved", probes=())
    moving.release(first)
    again = moving.snapshot(moving.describe(name), ids("0", "1"), job="moved", probes=())
    moving.release(again)

    with pytest.raises(SourceError, match=r"was moved to the disk 'objects' of type ObjectStorage"):
        raised(only_refused(first))
    assert again.refused == ()


def test_a_probe_that_cannot_be_computed_refuses_its_partition_only(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()

    snapshot = clickhouse.snapshot(
        name, probes=(Probe(f"throwIf({SOURCE_ALIAS}.k = 4)", "toString(v)"),)
    )

    with pytest.raises(SourceError, match=r"reading its snapshot failed: .*throwIf"):
        raised(only_refused(snapshot))


@pytest.mark.parametrize(
    "engine", ["MergeTree(d, k, 8192)", "MergeTree(d, intHash32(k), (k, intHash32(k)), 8192)"]
)
def test_a_table_of_the_old_syntax_is_refused(clickhouse: Clickhouse, engine: str) -> None:
    clickhouse.command("SET allow_deprecated_syntax_for_merge_tree = 1")
    name = clickhouse.table(f"ENGINE = {engine}", "d Date, k UInt64")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES ('2024-01-01', 1)")

    with pytest.raises(UnsupportedError, match="old syntax"):
        raised(all_refused(clickhouse.snapshot(name, "202401")))


def test_capabilities_name_what_is_lacking(clickhouse: Clickhouse) -> None:
    """An old server must not be read by half of the checks."""

    class Old(Meddling):
        def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
            lacking = {("parts_columns.column",), ("mutations.is_done",)}
            return tuple(row for row in self.connection.rows(sql) if row not in lacking)

    match = r"it has no system\.mutations\.is_done, system\.parts_columns\.column"
    with pytest.raises(UnsupportedError, match=match):
        probe_capabilities(Old(clickhouse.connection))


def test_a_name_that_is_no_table_gives_no_snapshot(clickhouse: Clickhouse) -> None:
    with pytest.raises(NotFoundError, match="no such table"):
        clickhouse.snapshot(TableName("db", "nosuch"))
