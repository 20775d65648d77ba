"""Whole exports from real servers: the newest and the oldest, replicas, shards."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.rows.digests import FileDigests
from catalog.sources import SourcePlace, server_of
from spark_ext.actions import check as space
from spark_ext.cli.main import invoke
from spark_ext.engine.runner import write_all
from tableformat.errors import RefusedError, UsageError
from tableformat.export.request import Limits
from tableformat.export.slices import FileFormat, SliceTask, WritePlan
from tableformat.names import TableName
from tests.services.clickhouse_front import ClickHouseFront, clickhouse_front
from tests.services.old_clickhouse import OldPair
from tests.services.server_process import wait_until
from tests.support.child_writer import ChildWriter
from tests.support.clickhouse_source import config_text
from tests.support.real_export import Exports
from tests.support.shards import Shards


def replicated(pair: OldPair, name: str, inserts: int = 1) -> TableName:
    """Make a table with replicas on both servers; each insert adds 50 rows to two partitions."""
    for number in (1, 2):
        pair.make_room(number, name)
        pair.query(
            number,
            f"CREATE TABLE db.{name} (p UInt8, k UInt64, s String) ENGINE ="
            f" ReplicatedMergeTree('/tables/{name}', 'r{number}') PARTITION BY p ORDER BY k",
        )
        pair.query(number, f"SYSTEM STOP MERGES db.{name}")
    for number in range(inserts):
        rows = f"SELECT number % 2, number, toString(number) FROM numbers({number}00, 100)"
        pair.query(1, f"INSERT INTO db.{name} {rows}")
    pair.query(2, f"SYSTEM SYNC REPLICA db.{name}")
    return TableName("db", name)


@pytest.fixture(scope="module")
def disks_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseFront]:
    """Run a server with disks of every kind."""
    disks = tmp_path_factory.mktemp("disks")
    for disk in ("hot", "cold"):
        (disks / disk).mkdir()
    config = config_text(disks).removeprefix("<clickhouse>").removesuffix("</clickhouse>")
    with clickhouse_front(config=config) as front:
        yield front


def test_rows_come_from_the_newest_server_as_they_are(
    newest_server: ClickHouseFront, exports_from: Exports
) -> None:
    exports = exports_from(newest_server.url)
    name = exports.clickhouse.filled()
    exports.clickhouse.command(f"DELETE FROM {name.sql} WHERE k % 10 = 3")

    found = exports.statuses(name)

    assert {one: status for one, (status, _) in found.items()} == {
        "0": "committed",
        "1": "committed",
    }
    assert exports.in_lake(name) == exports.in_source(name)
    with FileDigests() as digests:
        assert {c.verdict for c in exports.verify(name, digests)} == {"equal"}
    assert exports.clickhouse.staging_tables() == ()


def test_check_shows_the_free_space_of_the_server_and_not_of_this_host(
    newest_server: ClickHouseFront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest_server.commands(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (p UInt8, k UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY k",
        "INSERT INTO db.t SELECT 0, number FROM numbers(1000)",
    )
    ((free,),) = newest_server.rows("SELECT toUInt64(free_space) FROM system.disks")
    words = ["check", "db.t", "--source", newest_server.url, "--allow-insecure", "--json"]
    words += ["--to", "lake.n.t"]
    monkeypatch.setattr(space, "_free", lambda _: 2**50)
    out, err = io.StringIO(), io.StringIO()

    assert invoke([*words, "--warehouse", str(tmp_path / "warehouse")], out, err) == 0

    free_space = {one["side"]: one["free"] for one in json.loads(out.getvalue())["space"]}
    assert free_space["destination"] == 2**50
    assert isinstance(free, int)
    assert abs(free_space["source"] - free) < 2**33


def test_settings_of_the_user_go_with_the_queries_that_read_rows(
    newest_server: ClickHouseFront, exports_from: Exports
) -> None:
    """A busy server is read as fast as its owner allows."""
    exports = exports_from(newest_server.url)
    assert exports.place is not None
    exports.place = replace(exports.place, reading=(("max_network_bandwidth", "100000000"),))
    name = exports.clickhouse.filled()

    assert {status for status, _ in exports.statuses(name).values()} == {"committed"}

    for request in newest_server.requests("FORMAT ArrowStream"):
        assert request.parameters["max_network_bandwidth"] == "100000000"
        assert request.parameters["max_threads"] == "1"
    assert len(newest_server.requests("FORMAT ArrowStream")) == 2


@pytest.mark.parametrize(
    ("given", "asked"),
    [(None, "40000000"), ("30000000", "30000000"), ("50000000", "40000000"), ("0", "40000000")],
)
def test_a_server_is_asked_for_no_more_than_the_bandwidth(
    newest_server: ClickHouseFront, exports_from: Exports, given: str | None, asked: str
) -> None:
    """Two slices at a time, each with its half; what the user allows a query may be less."""
    exports = exports_from(newest_server.url)
    if given is not None:
        assert exports.place is not None
        exports.place = replace(exports.place, reading=(("max_local_read_bandwidth", given),))
    name = exports.clickhouse.filled()

    outcomes = exports.run(name, limits=Limits(bandwidth=80_000_000))

    assert {outcome.status.value for outcome in outcomes} == {"committed"}
    requests = newest_server.requests("FORMAT ArrowStream")
    assert [r.parameters["max_local_read_bandwidth"] for r in requests] == [asked] * 2
    assert {r.parameters["max_remote_read_network_bandwidth"] for r in requests} == {"40000000"}
    assert exports.in_lake(name) == exports.in_source(name)


def test_the_bandwidth_holds_for_what_a_server_reads(
    newest_server: ClickHouseFront, exports_from: Exports
) -> None:
    """What it reads from its disks goes through its throttle, and nothing does without a limit."""
    exports = exports_from(newest_server.url)
    name = exports.clickhouse.table(
        "ENGINE = MergeTree ORDER BY k", "k UInt64, s FixedString(16) CODEC(NONE)"
    )
    exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT number, 'x' FROM numbers(250000)")

    def throttled() -> int:
        ((found,),) = newest_server.rows(
            "SELECT toUInt64(sum(value)) FROM system.events"
            " WHERE event LIKE '%LocalReadThrottlerBytes'"
        )
        assert isinstance(found, int)
        return found

    before = throttled()
    (outcome,) = exports.run(name, limits=Limits(bandwidth=2_000_000))
    limited = throttled()
    (again,) = exports.run(name, force=True)

    assert (outcome.status.value, again.status.value) == ("committed", "replaced")
    assert limited - before >= 250_000 * 16
    assert throttled() == limited


@pytest.mark.parametrize(
    ("uri", "name", "message"),
    [
        ("http://h", "max_threads", "Cannot set max_threads for the queries of an export"),
        ("chdb:.", "priority", "Cannot use --source-setting: the source is no server"),
    ],
)
def test_a_setting_that_would_change_rows_or_nothing_is_refused(
    uri: str, name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        server_of(SourcePlace(uri, allow_insecure=True, reading=((name, "1"),)))


def test_a_nested_column_arrives_whole_from_a_server_without_our_casts(
    newest_server: ClickHouseFront, exports_from: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for its members, it was missing in the result, and every row of it became empty."""
    monkeypatch.setattr(Capabilities, "makes_wire_values", False)
    exports = exports_from(newest_server.url)
    name = TableName("db", "nested")
    columns = "p UInt8, k UInt64, n Nested(a UInt8, b String)"
    exports.clickhouse.command(
        f"CREATE TABLE {name.sql} ({columns}) ENGINE = MergeTree PARTITION BY p ORDER BY k"
        " SETTINGS flatten_nested = 0"
    )
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} SELECT 0, number, [(number, 'x'), (1, 'y')] FROM numbers(9)"
    )

    assert [status for status, _ in exports.statuses(name).values()] == ["committed"]

    found = exports.in_lake(name, "k, n")
    assert found == [(n, [{"a": n, "b": "x"}, {"a": 1, "b": "y"}]) for n in range(9)]


def test_the_oldest_server_exports_by_one_replica_and_is_known_by_the_other(
    old_servers: OldPair, exports_from: Exports
) -> None:
    name = replicated(old_servers, "known")

    first = exports_from(old_servers.url(1)).statuses(name)
    exports = exports_from(old_servers.url(2))
    again = exports.statuses(name)

    assert {status for status, _ in first.values()} == {"committed"}
    assert {status for status, _ in again.values()} == {"already_exported"}
    assert exports.in_lake(name) == exports.in_source(name)


def test_of_two_exports_through_two_replicas_at_once_one_wins(
    old_servers: OldPair, exports_from: Exports
) -> None:
    name = replicated(old_servers, "contended")
    first, second = (exports_from(old_servers.url(number)) for number in (1, 2))
    meanwhile: list[dict[str, tuple[str, str]]] = []
    first.before = lambda *_: meanwhile.append(second.statuses(name))

    both = (first.statuses(name), meanwhile[0])

    ended = [{status for status, _ in found.values()} for found in both]
    assert sorted(ended, key=sorted) == [{"committed"}, {"in_progress"}]
    assert first.in_lake(name) == first.in_source(name)


def test_the_replica_that_is_behind_is_not_chosen(
    old_servers: OldPair, exports_from: Exports
) -> None:
    """It would export a partition without the rows that only the other one has yet."""
    name = replicated(old_servers, "late")
    old_servers.query(1, f"SYSTEM STOP FETCHES {name.sql}")
    old_servers.query(2, f"INSERT INTO {name.sql} SELECT number % 2, number, 'x' FROM numbers(10)")
    until_behind = f"SELECT count() FROM system.replication_queue WHERE table = '{name.name}'"
    wait_until(lambda: old_servers.query(1, until_behind) != "0", "replica 1 is behind")
    exports = exports_from(f"{old_servers.url(1)},{old_servers.url(2).removeprefix('http://')}")

    assert {status for status, _ in exports.statuses(name).values()} == {"committed"}
    assert len(exports.in_lake(name)) == 110
    old_servers.query(1, f"SYSTEM START FETCHES {name.sql}")


def test_a_partition_that_its_replica_lacks_parts_of_is_refused_in_the_end(
    old_servers: OldPair, exports_from: Exports
) -> None:
    name = replicated(old_servers, "lacking")
    old_servers.query(1, f"SYSTEM STOP FETCHES {name.sql}")
    old_servers.query(2, f"INSERT INTO {name.sql} SELECT 0, number, 'x' FROM numbers(10)")
    until_behind = f"SELECT count() FROM system.replication_queue WHERE table = '{name.name}'"
    wait_until(lambda: old_servers.query(1, until_behind) != "0", "replica 1 is behind")
    exports = exports_from(old_servers.url(1))
    exports.place = replace(exports.place, sync_timeout=0.5) if exports.place else None

    found = exports.statuses(name)

    assert {one: status for one, (status, _) in found.items()} == {"0": "refused", "1": "committed"}
    assert "has still to do GET_PART 0_" in found["0"][1]
    old_servers.query(1, f"SYSTEM START FETCHES {name.sql}")
    old_servers.query(1, f"SYSTEM SYNC REPLICA {name.sql}")
    assert exports.statuses(name)["0"][0] == "committed"
    assert len(exports.in_lake(name)) == 110


def test_a_partition_that_its_replica_has_no_part_of_yet_is_not_left_out(
    old_servers: OldPair, exports_from: Exports
) -> None:
    """Harm prevented: everything is reported as exported, and a partition is not."""
    name = replicated(old_servers, "unheard")
    old_servers.query(1, f"SYSTEM STOP FETCHES {name.sql}")
    old_servers.query(2, f"INSERT INTO {name.sql} SELECT 7, number, 'x' FROM numbers(10)")
    exports = exports_from(old_servers.url(1))
    exports.place = replace(exports.place, sync_timeout=0.5) if exports.place else None

    with pytest.raises(RefusedError, match=r"Cannot list the partitions of db\.unheard: its"):
        exports.statuses(name)

    old_servers.query(1, f"SYSTEM START FETCHES {name.sql}")
    exports.place = replace(exports.place, sync_timeout=60.0) if exports.place else None
    assert {one: status for one, (status, _) in exports.statuses(name).items()} == {
        "0": "committed",
        "1": "committed",
        "7": "committed",
    }
    assert len(exports.in_lake(name)) == 110


@pytest.mark.parametrize("policy", ["jbod", "tiered", "secret", "objects", "cached"])
def test_a_server_reads_parts_on_any_disk(
    disks_server: ClickHouseFront, exports_from: Exports, policy: str
) -> None:
    """As files those on encrypted and object disks cannot be opened."""
    exports = exports_from(disks_server.url)
    keys = f"PARTITION BY p ORDER BY k SETTINGS storage_policy = '{policy}'"
    name = exports.clickhouse.filled(f"ENGINE = MergeTree {keys}")
    if policy == "tiered":
        exports.clickhouse.command(f"ALTER TABLE {name.sql} MOVE PARTITION ID '0' TO VOLUME 'c'")

    assert {status for status, _ in exports.statuses(name).values()} == {"committed"}
    assert exports.in_lake(name) == exports.in_source(name)


def test_a_dead_replica_is_replaced_by_another_and_finished_files_are_kept(
    old_servers: OldPair, exports_from: Exports
) -> None:
    name = replicated(old_servers, "dying", inserts=4)
    both = f"{old_servers.url(1)},{old_servers.url(2).removeprefix('http://')}"
    exports = exports_from(both)
    a_file_for_each_part = FileFormat(target_file_bytes=1)
    ends: list[int] = []

    def kill_in_the_middle(plan: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        """Let half of the files be finished before the server is gone."""
        if ends:
            return
        half = tuple(SliceTask((one,)) for task in tasks for one in task.slices)[::2]
        writer = ChildWriter(lambda *_: None, server_of(SourcePlace(both, allow_insecure=True)))
        written = write_all(
            writer.write(plan, half, on_rows=lambda _: None, should_stop=lambda: False)
        )
        ends.extend(receipt.slice_number for receipt in written.receipts)
        old_servers.kill(1)

    exports.before = kill_in_the_middle
    first = exports.run(name, file_format=a_file_for_each_part)
    before = exports.files_on_disk(name)
    second = exports.run(name, file_format=a_file_for_each_part)

    assert {o.status.value for o in first} == {"failed"}
    assert len(before) == len(ends) == 4
    assert {o.status.value for o in second} == {"committed"}
    assert len(exports.files_on_disk(name)) == 8
    assert before < exports.files_on_disk(name)
    assert exports.in_lake(name) == sorted((n % 2, n, str(n)) for n in range(400))


def test_both_shards_of_a_distributed_table_land_in_the_same_lake_partitions(
    shards: Callable[[str], Shards],
) -> None:
    exported = shards("whole")

    assert exported.export()[0] == 0
    assert exported.in_lake() == sorted((n % 2, n, str(n)) for n in range(200))
    code, output = exported.export()
    assert (code, output.count(": already exported")) == (0, 4)


def test_a_shard_that_is_down_costs_its_own_partitions_and_no_others(
    old_servers: OldPair, shards: Callable[[str], Shards]
) -> None:
    exported = shards("halved")
    old_servers.kill(2)

    code, output = exported.export()

    assert code == 4
    assert "Cannot export from 1 of 2 shards: shard 2: Cannot" in output
    assert exported.in_lake() == sorted((n % 2, n, str(n)) for n in range(100))
    old_servers.start(2)
    assert exported.export()[0] == 0
    assert exported.in_lake() == sorted((n % 2, n, str(n)) for n in range(200))
