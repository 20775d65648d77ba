"""The source over ClickHouse 18.16: missing features are replaced, or reported in one line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.clickhouse.capabilities import Offer, probe_capabilities
from tableformat.errors import NotFoundError, UnsupportedError
from tableformat.ledger import ExportedPart
from tableformat.mergetree.digest_sql import source_columns
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.wire_types import qualified
from tableformat.names import PartitionId, TableName
from tableformat.source import LeftPart, LeftSnapshot, Probe, ProbedValue
from tests.services.old_clickhouse import OldPair
from tests.services.server_process import wait_until
from tests.support.old_source import OldSource

JANUARY, FEBRUARY = PartitionId("202401"), PartitionId("202402")


@pytest.fixture
def old(old_servers: OldPair) -> Iterator[OldSource]:
    """Yield a source over replica 1, on which no staging table is left afterwards."""
    source = OldSource(old_servers)
    yield source
    with source.source:
        source.source.sweep_leftovers(lambda _: False)


def test_a_replicated_table_is_described_and_listed(old: OldSource) -> None:
    """Columns, keys, partitions and parts are those that the server shows."""
    name = old.replicated()
    old.insert(name)
    table = old.source.describe(name)
    assert [c.name for c in table.columns] == ["d", "k", "s", "n", "e", "arr", "m"]
    assert table.engine.partition_by == "toYYYYMM(d)"
    assert table.engine.order_by == "(k, s)"
    assert table.identity == f"keeper:/tables/01/{name.name}"
    assert [(p.partition_id, p.rows) for p in old.source.partitions(name)] == [
        (JANUARY, 527),
        (FEBRUARY, 473),
    ]
    (part,) = old.source.parts(name, JANUARY)
    assert (part.name, part.rows, part.part_type) == ("202401_0_0_0", 527, "Wide")
    assert part.hash_of_all_files.startswith("name:202401_0_0_0:sizes:")
    assert old.source.find_partition(table, "202402") == FEBRUARY
    assert old.source.row_policies(name) is None


def test_the_oldest_version_offers_nothing_and_is_read_all_the_same(old: OldSource) -> None:
    """All that depends on the version is tried in its absence by the tests of this file."""
    found = probe_capabilities(old.connection())
    assert found.offers == {Offer.DATA_PATH}
    assert found.permissions == ()
    assert not found.makes_wire_values


def test_both_replicas_say_the_same_of_a_table(old: OldSource) -> None:
    """The key and the content of an export do not depend on the replica that serves it."""
    name = old.replicated()
    old.insert(name)
    old.pair.query(2, f"SYSTEM SYNC REPLICA {name.sql}")
    with old.through(2) as other:
        assert other.describe(name).identity == old.source.describe(name).identity
        contents = [{p.content for p in s.all_parts(name)} for s in (old.source, other)]
    assert contents[0] == contents[1]


def test_a_snapshot_holds_every_row_whatever_happens_to_the_source(old: OldSource) -> None:
    """A frozen partition keeps its rows when the source merges, mutates and drops them."""
    name = old.replicated()
    for first in (0, 1000, 2000):
        old.insert(name, first)
    before = old.query(f"SELECT sum(cityHash64(d, k, s, n, m, e, arr)) FROM {name.sql}")
    snapshot = old.snapshot(name)
    assert snapshot.refused == ()
    assert sum(p.visible_rows for p in snapshot.partitions) == 3000
    names = {part.source_name for p in snapshot.partitions for part in p.parts}
    assert names == {f"{month}_{n}_{n}_0" for month in (JANUARY, FEBRUARY) for n in range(3)}
    wait_until(lambda: _is_merged(old, name), "January was merged", seconds=200)
    old.query(f"ALTER TABLE {name.sql} DROP PARTITION 202402")
    (staging,) = snapshot.handle
    assert (
        old.query(f"SELECT sum(cityHash64(d, k, s, n, m, e, arr)) FROM mergeberg_staging.{staging}")
        == before
    )
    old.source.release(snapshot)
    assert old.staging_tables() == []


def _is_merged(old: OldSource, name: TableName) -> bool:
    """Ask for a merge of January, and whether it is one part now.

    A statement that waits for its merge was seen to wait for more than three minutes in vain.
    """
    optimize = f"OPTIMIZE TABLE {name.sql} PARTITION 202401 FINAL"
    old.pair.replica(old.number).query(optimize, replication_alter_partitions_sync="0")
    there = f"FROM system.parts WHERE active AND table = '{name.name}' AND partition = '202401'"
    return old.query(f"SELECT count() {there}") == "1"


def test_a_frozen_part_is_known_by_the_name_of_its_source(old: OldSource) -> None:
    """A mutation that keeps every size still makes other content of a partition."""
    name = old.replicated()
    old.insert(name)
    snapshot = old.snapshot(name)
    frozen = [part for p in snapshot.partitions for part in p.parts]
    before = {p.content for p in old.source.all_parts(name)}
    assert {part.part.content for part in frozen} == before
    old.query(f"ALTER TABLE {name.sql} UPDATE n = n + 1 WHERE k < 10")
    waits = f"SELECT min(is_done) FROM system.mutations WHERE table = '{name.name}'"
    wait_until(lambda: old.query(waits) == "1", "the mutation was done")
    after = {p.content for p in old.source.all_parts(name)}
    assert not before & after


def test_the_clone_survives_a_restart_of_the_server_unmerged(old: OldSource) -> None:
    """SYSTEM STOP MERGES is lost by a restart, the settings of the staging table are not."""
    name = old.replicated()
    for first in range(0, 1500, 100):
        old.insert(name, first, 100)
    snapshot = old.snapshot(name, job="restarted")
    (staging,) = snapshot.handle
    old.source.close()
    old.pair.kill(1)
    old.pair.mend()
    counted = (
        "SELECT count() FROM system.parts WHERE active AND database = 'mergeberg_staging'"
        f" AND table = '{staging}'"
    )
    assert old.query(counted) == str(sum(len(p.parts) for p in snapshot.partitions))


def test_what_a_dead_job_froze_is_not_used_again_but_swept(old: OldSource) -> None:
    """A staging table has no owner, so the next run freezes again and drops it."""
    name = old.replicated()
    old.insert(name)
    snapshot = old.snapshot(name, job="dead")
    parts = tuple(
        LeftPart(p.source_name, p.part.hash_of_all_files, p.part.rows)
        for p in snapshot.partitions[0].parts
    )
    left = {JANUARY: LeftSnapshot(snapshot.handle, parts)}
    assert old.source.find_snapshot(old.source.describe(name), left).partitions == ()
    (leftover,) = old.source.leftovers()
    assert (leftover.name, leftover.job, leftover.table) == ("dead_1", "dead", None)
    assert old.source.sweep_leftovers(lambda _: False) == ("dead_1",)


def test_an_unfinished_mutation_refuses_every_partition(old: OldSource) -> None:
    """The server does not say which parts it has still to change."""
    name = old.replicated()
    old.insert(name)
    old.query(f"SYSTEM STOP MERGES {name.sql}")
    old.query(f"ALTER TABLE {name.sql} UPDATE n = 1 WHERE d = '2024-01-05'")
    try:
        refused = old.snapshot(name).refused
    finally:
        old.query(f"SYSTEM START MERGES {name.sql}")
    assert [one for one, _ in refused] == [JANUARY, FEBRUARY]
    assert all("is not finished" in str(error) for _, error in refused)


def test_damage_is_found_by_reading_where_there_is_no_check_table(old: OldSource) -> None:
    """A flipped byte refuses its partition and no other."""
    name = old.table()
    old.insert(name)
    directory = old.pair.replica(1).directory / "data" / "data" / "db" / name.name
    (part,) = directory.glob("202401_*")
    content = bytearray((part / "k.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (part / "k.bin").write_bytes(content)
    snapshot = old.snapshot(name)
    assert [p.partition_id for p in snapshot.partitions] == [FEBRUARY]
    ((one, error),) = snapshot.refused
    assert one == JANUARY
    assert "reading every value fails" in str(error)


def test_a_lost_row_count_is_found(old: OldSource) -> None:
    """A part whose count.txt says fewer rows than it has would lose the others without a word."""
    name = old.table()
    old.insert(name)
    directory = old.pair.replica(1).directory / "data" / "data" / "db" / name.name
    (part,) = directory.glob("202401_*")
    (part / "count.txt").write_text("526")
    ((one, error),) = old.snapshot(name).refused
    assert one == JANUARY
    assert "damage" in str(error) or "files are damaged" in str(error)


def test_archiving_is_refused_where_detached_parts_are_not_shown(old: OldSource) -> None:
    """A row that came a moment ago would go with the partition, and nobody could see it."""
    name = old.replicated()
    old.insert(name)
    known = tuple(
        ExportedPart(p.name, p.hash_of_all_files, p.rows, p.min_block, p.max_block, p.data_version)
        for p in old.source.parts(name, JANUARY)
    )
    with pytest.raises(UnsupportedError, match="does not show detached parts"):
        old.source.take_out(name, JANUARY, known)
    assert old.query(f"SELECT count() FROM {name.sql}") == "1000"


def test_tables_of_the_old_syntax_are_frozen_by_the_same_syntax(old: OldSource) -> None:
    """A table of `MergeTree(date, key, granularity)` is partitioned by month, and exported."""
    name = old.table(
        "ENGINE = SummingMergeTree(d, intHash32(k), (k, intHash32(k)), 8192, (v))",
        "d Date, k UInt64, v UInt64",
    )
    old.query(
        f"INSERT INTO {name.sql} SELECT toDate('2024-01-01') + number % 60, number, 1"
        " FROM numbers(100)"
    )
    table = old.source.describe(name)
    assert (table.engine.partition_by, table.engine.order_by) == (
        "toYYYYMM(d)",
        "(k, intHash32(k))",
    )
    snapshot = old.snapshot(name)
    assert snapshot.refused == ()
    assert [p.visible_rows for p in snapshot.partitions] == [62, 38]
    (staging,) = snapshot.handle
    shown = old.query(f"SELECT engine_full FROM system.tables WHERE name = '{staging}'")
    assert parse_engine(shown).old_arguments == "d, intHash32(k), (k, intHash32(k)), 8192"
    old.source.release(snapshot)


def test_a_partition_that_is_not_there_is_not_found(old: OldSource) -> None:
    """The server replaces a partition from nothing without a word."""
    name = old.replicated()
    old.insert(name)
    ((one, error),) = old.snapshot(name, "203001").refused
    assert one == PartitionId("203001")
    assert isinstance(error, NotFoundError)
    assert "it has no active parts" in str(error)


def test_transforms_and_digests_are_computed_of_rows_of_an_old_server(old: OldSource) -> None:
    """What proves a partition, and what verifies it, is the newest engine's SQL."""
    name = old.replicated()
    old.insert(name)
    table = old.source.describe(name)
    digest = source_columns(table.stored_columns, {})
    day, key = qualified("d"), qualified("k")
    months = f"(toInt32(toYear({day})) - 1970) * 12 + toMonth({day}) - 1"
    probes = (
        Probe(months, "toString(v)"),
        Probe(f"icebergBucket(4, {key})", "toString(v)"),
        Probe(f"toDateTime64({day}, 6, 'UTC')", "toString(v)"),
    )
    snapshot = old.source.snapshot(
        table, (JANUARY, FEBRUARY), job="job", probes=probes, digest=digest
    )
    assert snapshot.refused == ()
    january, february = snapshot.partitions
    assert january.probed[0] == ProbedValue("648", "648", 0)
    assert february.probed[0] == ProbedValue("649", "649", 0)
    assert january.probed[1] == ProbedValue("0", "3", 0)
    assert january.probed[2].least == "2024-01-01 00:00:00.000000"
    assert january.digest is not None
    assert january.digest.rows == 527
    nulls = old.query(f"SELECT countIf(isNull(n)) FROM {name.sql} WHERE toYYYYMM(d) = 202401")
    assert [str(c.nulls) for c in january.digest.columns if c.name == "n"] == [nulls]
    assert old.source.probe(name, JANUARY, probes) == january.probed
