"""Slices of one partition are read at several servers that have the same parts.

Two of the newest servers, each with the same parts of a table with one UUID, are replicas here; the
pair of the oldest servers are replicas by ZooKeeper.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from catalog.clickhouse.server import client
from catalog.clickhouse.server.source import ServerSource
from catalog.sources import SourcePlace, open_source, server_of
from spark_ext.cli.main import invoke
from spark_ext.engine.runner import write_all
from tableformat.export.outcome import Outcome
from tableformat.export.slices import FileFormat, SliceTask, WritePlan
from tableformat.names import PartitionId, TableName
from tests.services.clickhouse_front import ClickHouseFront, clickhouse_front
from tests.services.clickhouse_http.faults import Fault, error, short
from tests.services.old_clickhouse import OldPair
from tests.support.child_writer import ChildWriter
from tests.support.real_export import RealExport, of_server

NAME = TableName("db", "spread")
# Each part has one row.
A_FILE_FOR_EACH_PART = FileFormat(target_file_bytes=1)
ROWS = sorted((n % 2, n, str(n)) for n in range(8))
READING = "FORMAT ArrowStream"


@dataclass
class Two:
    """Two servers with the same parts, and exports that name both."""

    first: ClickHouseFront
    second: ClickHouseFront
    root: Path
    notes: list[str] = field(default_factory=list)

    @property
    def fronts(self) -> tuple[ClickHouseFront, ClickHouseFront]:
        return self.first, self.second

    @property
    def address(self) -> str:
        return f"{self.first.url},127.0.0.1:{self.second.port}"

    def made(self, columns: str = "p UInt8, k UInt64, s String") -> None:
        """Make the table on both, with four parts of one row in each of two partitions."""
        for front in self.fronts:
            front.commands(
                "CREATE DATABASE IF NOT EXISTS db",
                f"CREATE TABLE {NAME.sql} UUID '5c1e9ed0-0000-4000-8000-000000000001' ({columns})"
                " ENGINE = MergeTree PARTITION BY p ORDER BY k",
                f"SYSTEM STOP MERGES {NAME.sql}",
            )
            for part in range(4):
                front.command(
                    f"INSERT INTO {NAME.sql} (p, k, s) SELECT number % 2, number, toString(number)"
                    f" FROM numbers({part * 2}, 2)"
                )

    def exports(self, query: str = "/?replicas=2") -> RealExport:
        return of_server(f"{self.address}{query}", self.root)

    def run(self, exports: RealExport | None = None) -> list[Outcome]:
        exports = exports or self.exports()
        return exports.run(NAME, file_format=A_FILE_FOR_EACH_PART, note=self.notes.append)

    def read_at(self, number: int) -> int:
        """Return how many slices were asked of a server."""
        return len(self.fronts[number].requests(READING))

    def staged(self) -> list[object]:
        asked = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
        return [row[0] for front in self.fronts for row in front.rows(asked)]

    def assert_exported_once(self, outcomes: list[Outcome], rows: object = None) -> None:
        assert {o.status.value for o in outcomes} == {"committed"}, outcomes
        assert self.exports().in_lake(NAME) == (ROWS if rows is None else rows)
        assert self.staged() == []


@pytest.fixture(scope="module")
def second_server() -> Iterator[ClickHouseFront]:
    with clickhouse_front() as front:
        yield front


@pytest.fixture
def two(
    newest_server: ClickHouseFront,
    second_server: ClickHouseFront,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Two]:
    monkeypatch.setattr(client, "_PAUSES", (0.0, 0.0, 0.0))
    made = Two(newest_server, second_server, tmp_path)
    made.made()
    yield made
    for front in made.fronts:
        front.mend()
        front.drop_databases()


@pytest.mark.representative
def test_two_replicas_read_the_slices_of_one_partition(two: Two) -> None:
    outcomes = two.run()

    two.assert_exported_once(outcomes)
    assert (two.read_at(0), two.read_at(1)) == (4, 4)
    places = f"127.0.0.1:{two.first.port}, 127.0.0.1:{two.second.port}"
    assert f"slices are read at 2 replicas: {places}" in two.notes


def test_without_the_option_one_replica_reads_everything(two: Two) -> None:
    two.assert_exported_once(two.run(two.exports("")))

    assert (two.read_at(0), two.read_at(1)) == (8, 0)
    assert two.second.requests("CREATE TABLE `mergeberg_staging`") == ()


def test_ranges_of_one_part_are_read_at_both(two: Two) -> None:
    """The rows of equal parts have the same places."""
    many = "SELECT 7, number, toString(number) FROM numbers(200000)"
    for front in two.fronts:
        front.command(f"INSERT INTO {NAME.sql} (p, k, s) {many}")
    rows = sorted([*ROWS, *((7, n, str(n)) for n in range(200000))])
    exports = two.exports()
    size = FileFormat(target_file_bytes=300_000)

    outcomes = exports.run(NAME, file_format=size, note=two.notes.append)

    two.assert_exported_once(outcomes, rows)
    asked = [one for front in two.fronts for one in front.requests("_part_offset >=")]
    assert len(asked) > 2
    assert all(front.requests("_part_offset >=") for front in two.fronts)


@pytest.mark.parametrize(
    "change",
    [
        "OPTIMIZE TABLE db.spread PARTITION ID '1' FINAL",
        "ALTER TABLE db.spread DROP PART '1_2_2_0'",
        "INSERT INTO db.spread (p, k, s) VALUES (1, 1000, 'only here')",
    ],
)
def test_a_partition_with_other_parts_there_is_read_at_the_first_alone(
    two: Two, change: str
) -> None:
    two.second.command("SYSTEM START MERGES db.spread")
    two.second.command(change)

    outcomes = two.run()

    two.assert_exported_once(outcomes)
    assert two.read_at(1) > 0
    asked = two.second.requests(READING)
    staged = two.second.requests("REPLACE PARTITION")
    assert staged
    assert all("'0_" in one.sql and "'1_" not in one.sql for one in asked)
    assert f"127.0.0.1:{two.second.port} (1 of 2 partitions)" in two.notes[-1]


def test_where_nothing_is_the_same_the_first_reads_and_the_copy_is_dropped(two: Two) -> None:
    two.second.command("SYSTEM START MERGES db.spread")
    two.second.command("OPTIMIZE TABLE db.spread FINAL")

    outcomes = two.run()

    two.assert_exported_once(outcomes)
    assert (two.read_at(0), two.read_at(1)) == (8, 0)
    second = f"127.0.0.1:{two.second.port}"
    assert f"{second} reads no slices: it has other parts of partition 0, 1" in two.notes


def test_another_table_of_the_name_is_not_read(two: Two) -> None:
    """Harm prevented: rows of another table under the same parts' names."""
    two.second.command(f"DROP TABLE {NAME.sql} SYNC")
    two.second.command(
        f"CREATE TABLE {NAME.sql} (p UInt8, k UInt64, s String) ENGINE = MergeTree PARTITION BY p"
        " ORDER BY k"
    )
    two.second.command(f"INSERT INTO {NAME.sql} SELECT 0, 7, 'another'")

    outcomes = two.run()

    two.assert_exported_once(outcomes)
    assert two.read_at(1) == 0
    assert two.second.requests("REPLACE PARTITION") == ()


def test_parts_that_lack_a_column_are_read_at_the_first_alone(two: Two) -> None:
    """Each server computes the default, which may be of the server."""
    for front in two.fronts:
        front.command(f"ALTER TABLE {NAME.sql} ADD COLUMN port UInt16 DEFAULT tcpPort()")

    outcomes = two.run()

    two.assert_exported_once(outcomes)
    assert (two.read_at(0), two.read_at(1)) == (8, 0)


@pytest.mark.parametrize(
    "fault",
    [
        short(200),
        error(241, "MEMORY_LIMIT_EXCEEDED", "Memory limit (total) exceeded"),
        error(60, "UNKNOWN_TABLE", "Table mergeberg_staging.gone does not exist"),
    ],
    ids=["a short answer", "a limit", "a dropped staging table"],
)
def test_what_a_copy_does_not_give_whole_the_first_replica_gives(two: Two, fault: Fault) -> None:
    two.second.fail_next(fault, times=1000, containing=READING)

    outcomes = two.run()

    two.assert_exported_once(outcomes)
    assert two.read_at(0) == 8
    assert two.read_at(1) >= 4


def test_a_replica_that_dies_while_it_reads_costs_no_retry(two: Two) -> None:
    """And its copies are dropped by the next export when it is back."""
    exports = two.exports()

    def kill(_: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        assert any(one.copy for task in tasks for one in task.slices)
        two.second.kill()

    exports.before = kill
    outcomes = two.run(exports)
    two.second.start()

    assert len(two.staged()) == 1
    assert not any("write again" in note or "is gone" in note for note in two.notes), two.notes
    with open_source(SourcePlace(two.exports().place.uri, allow_insecure=True)) as source:  # type: ignore[union-attr]
        source.sweep_leftovers(lambda _: False)
    two.assert_exported_once(outcomes)


def test_a_replica_that_cannot_make_a_copy_costs_a_note(two: Two) -> None:
    """Nothing of the export is lost."""
    two.second.kill()

    outcomes = two.run()
    two.second.start()

    two.assert_exported_once(outcomes)
    (note,) = (one for one in two.notes if "reads no slices" in one)
    assert note.startswith(f"127.0.0.1:{two.second.port} reads no slices: Cannot reach ClickHouse")
    assert two.notes[-1] == f"slices are read at 1 replica: 127.0.0.1:{two.first.port}"


def test_an_interrupted_export_is_resumed_at_both(two: Two) -> None:
    """Files from either replica are kept, wherever the others come from."""
    exports = two.exports()

    def finish_half(plan: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        every = sorted((one for task in tasks for one in task.slices), key=lambda s: s.number)
        at_second = [one for one in every if one.copy is not None]
        at_first = [one for one in every if one.copy is None]
        half = (SliceTask((*at_first[:2], *at_second[:2])),)
        assert exports.place is not None
        writer = ChildWriter(lambda *_: None, server_of(exports.place))
        write_all(writer.write(plan, half, on_rows=lambda _: None, should_stop=lambda: False))
        raise KeyboardInterrupt

    exports.before = finish_half
    with pytest.raises(KeyboardInterrupt):
        two.run(exports)
    before = exports.files_on_disk(NAME)
    for front in two.fronts:
        front.mend()

    outcomes = two.run()

    two.assert_exported_once(outcomes)
    assert len(before) == 4
    assert before < exports.files_on_disk(NAME)
    assert (two.read_at(0), two.read_at(1)) == (2, 2)


def test_a_dry_run_says_which_replicas_would_read(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.second.command("SYSTEM START MERGES db.spread")
    two.second.command("OPTIMIZE TABLE db.spread PARTITION ID '1' FINAL")
    monkeypatch.setenv("PYICEBERG_HOME", str(two.root))
    out, err = io.StringIO(), io.StringIO()
    words = ["export", str(NAME), "--all", "--to", "lake.n.spread", "--dry-run"]
    words += ["--source", f"{two.address}/?replicas=2", "--warehouse", str(two.root / "warehouse")]

    assert invoke(words, out, err) == 0, err.getvalue()

    expected = (
        f"slices are read at 2 replicas: 127.0.0.1:{two.first.port},"
        f" 127.0.0.1:{two.second.port} (1 of 2 partitions)"
    )
    assert expected in err.getvalue()
    assert two.second.requests("CREATE TABLE `mergeberg_staging`") == ()


def test_a_missing_right_at_the_other_replica_is_reported(two: Two) -> None:
    two.second.commands("CREATE USER exporter", "GRANT SELECT ON db.spread TO exporter")
    two.first.commands("CREATE USER exporter", "GRANT ALL ON *.* TO exporter")
    uri = f"http://exporter@127.0.0.1:{two.first.port},127.0.0.1:{two.second.port}/?replicas=2"
    exports = of_server(uri, two.root)

    outcomes = two.run(exports)

    assert {o.status.value for o in outcomes} == {"committed"}
    (note,) = (one for one in two.notes if "reads no slices" in one)
    assert "GRANT" in note
    assert two.second.requests("REPLACE PARTITION") == ()


@pytest.fixture
def pair(old_servers: OldPair, monkeypatch: pytest.MonkeyPatch) -> Iterator[OldPair]:
    monkeypatch.setattr(client, "_PAUSES", (0.0, 0.0, 0.0))
    for number in (1, 2):
        old_servers.make_room(number, NAME.name)
        old_servers.query(
            number,
            f"CREATE TABLE {NAME.sql} (p UInt8, k UInt64, s String) ENGINE ="
            f" ReplicatedMergeTree('/tables/spread', 'r{number}') PARTITION BY p ORDER BY k",
        )
        old_servers.query(number, f"SYSTEM STOP MERGES {NAME.sql}")
    for part in range(4):
        rows = f"SELECT number % 2, number, toString(number) FROM numbers({part * 2}, 2)"
        old_servers.query(1, f"INSERT INTO {NAME.sql} {rows}")
    old_servers.query(2, f"SYSTEM SYNC REPLICA {NAME.sql}")
    yield old_servers
    old_servers.mend()
    for number in (1, 2):
        old_servers.query(number, f"DROP TABLE IF EXISTS {NAME.sql}")


def staged(pair: OldPair) -> list[str]:
    asked = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
    return [line for number in (1, 2) for line in pair.query(number, asked).split()]


def of_pair(pair: OldPair, root: Path) -> RealExport:
    others = pair.url(2).removeprefix("http://")
    return of_server(f"{pair.url(1)},{others}/?replicas=2", root)


def tasks_of(exports: RealExport) -> Callable[[], list[SliceTask]]:
    seen: list[SliceTask] = []
    exports.before = lambda _, tasks: seen.extend(tasks)
    return lambda: seen


def test_both_of_the_oldest_replicas_read_slices(pair: OldPair, tmp_path: Path) -> None:
    exports = of_pair(pair, tmp_path)
    seen = tasks_of(exports)

    outcomes = exports.run(NAME, file_format=A_FILE_FOR_EACH_PART)

    assert {o.status.value for o in outcomes} == {"committed"}
    assert exports.in_lake(NAME) == ROWS
    hosts = [one.copy.host if one.copy else "" for task in seen() for one in task.slices]
    assert sorted(hosts) == ["", "", "", "", *[pair.url(2)] * 4]
    assert staged(pair) == []


def test_a_replica_that_lacks_a_part_reads_only_the_other_partitions(
    pair: OldPair, tmp_path: Path
) -> None:
    pair.query(2, f"SYSTEM STOP FETCHES {NAME.sql}")
    pair.query(1, f"INSERT INTO {NAME.sql} VALUES (1, 1000, 'only at the first')")
    exports = of_pair(pair, tmp_path)
    seen = tasks_of(exports)

    outcomes = exports.run(NAME, file_format=A_FILE_FOR_EACH_PART)

    assert {o.status.value for o in outcomes} == {"committed"}
    assert exports.in_lake(NAME) == sorted([*ROWS, (1, 1000, "only at the first")])
    read = {one.partition_id for task in seen() for one in task.slices if one.copy}
    assert read == {"0"}
    assert staged(pair) == []


def test_copies_end_with_the_snapshot(pair: OldPair) -> None:
    others = pair.url(2).removeprefix("http://")
    place = SourcePlace(f"{pair.url(1)},{others}/?replicas=2", allow_insecure=True)
    with open_source(place, is_exporting=True) as source:
        assert isinstance(source, ServerSource)
        snapshot = source.snapshot(source.describe(NAME), (PartitionId("0"),), job="job")
        assert len(staged(pair)) == 2
        assert [at for at, _ in snapshot.elsewhere] == [pair.url(2)]
        source.close()

        source.release(snapshot)

    assert staged(pair) == []
