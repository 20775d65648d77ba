"""The replica that an export reads is gone: the same command continues with another one.

Two replicas of the oldest ClickHouse and their ZooKeeper. Exports name both; the first is asked
through a relay, so that it can end between two bytes of a response.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from spark_ext.actions import gc as staging
from spark_ext.cli.main import invoke
from tests.services.old_clickhouse import OldPair
from tests.services.relay import Relay, relay
from tests.support.server_trouble import Rows, RunResult, Trouble

_STAGED = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
# A statement of each stage of an export before its files are written, and what it is.
STAGES = {
    "describing": "SELECT engine, engine_full",
    "freezing": "REPLACE PARTITION",
    "closing": "DROP TABLE IF EXISTS `mergeberg_staging`",
}


@dataclass
class Replicas:
    """Tables of two partitions on two servers, and exports that name both."""

    pair: OldPair
    trouble: Trouble
    between: Relay

    def made(self, name: str, engine: str, *, parts: int = 1, rows: int = 100) -> Rows:
        """Make a table on both servers, fill it on the first; return its rows there."""
        for number in (1, 2):
            self.pair.make_room(number, name)
            self.pair.query(
                number,
                f"CREATE TABLE db.{name} (p UInt8, k UInt64, s String)"
                f" ENGINE = {engine.format(name=name, number=number)} PARTITION BY p ORDER BY k",
            )
            self.pair.query(number, f"SYSTEM STOP MERGES db.{name}")
        for part in range(parts):
            self.trouble.fill(name, part * 2 * rows, rows)
        return self.trouble.in_source(name)

    def replicated(self, name: str, *, parts: int = 1, rows: int = 100) -> Rows:
        """Make a table whose replicas are equal; return its rows."""
        engine = "ReplicatedMergeTree('/tables/gone/{name}', 'r{number}')"
        made = self.made(name, engine, parts=parts, rows=rows)
        self.pair.query(2, f"SYSTEM SYNC REPLICA db.{name}")
        return made

    @property
    def first(self) -> str:
        """Return where exports ask the first replica."""
        return f"127.0.0.1:{self.between.port}"

    @property
    def second(self) -> str:
        """Return where exports ask the second replica."""
        return self.pair.url(2).removeprefix("http://")

    def export(self, name: str, *options: str, query: str = "") -> RunResult:
        both = f"http://{self.first},{self.second}"
        return self.trouble.export(name, *options, source=both, query=query)

    def staged(self, number: int) -> list[str]:
        """Return the staging tables at a replica."""
        return self.pair.query(number, _STAGED).split()

    def killed_at_a_standstill(self) -> None:
        """End the first replica once the relay before it stands still."""
        self.between.wait_until_stalled()
        self.pair.kill(1)
        self.between.resume()

    def clean_up(self, name: str) -> str:
        """Run gc on both hosts; return what it says."""
        out, err = io.StringIO(), io.StringIO()
        words = ["gc", "--to", f"lake.n.{name}", "--warehouse", f"{self.trouble.root}/warehouse"]
        words += ["--source", f"http://{self.first},{self.second}", "--allow-insecure", "--yes"]
        assert invoke(words, out, err) == 0, out.getvalue() + err.getvalue()
        return out.getvalue()


@pytest.fixture
def replicas(
    old_servers: OldPair, oldest: Trouble, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Replicas]:
    """Return two replicas; what is made on them is dropped in the end."""
    # To gc, too, every run is a process of its own that ended.
    monkeypatch.setattr(staging, "job_may_be_alive", lambda _: False)
    with relay(old_servers.replica(1).http_port) as between:
        yield Replicas(old_servers, oldest, between)
    old_servers.mend()
    for number in (1, 2):
        old_servers.query(number, "DROP DATABASE IF EXISTS db")


def test_a_replica_that_dies_in_the_middle_costs_one_line(replicas: Replicas) -> None:
    """What it finished is kept; what it froze is found by gc, for it came back meanwhile."""
    rows = replicas.replicated("gone", parts=4, rows=8000)
    trouble = replicas.trouble
    finished: list[frozenset[str]] = []
    # Eight files of half a megabyte each.
    trouble.while_writing(lambda: replicas.between.stall_after(2_000_000))
    trouble.while_writing(lambda: finished.append(trouble.files()))
    trouble.while_writing(lambda: replicas.pair.start(1))

    with trouble.meanwhile(replicas.killed_at_a_standstill):
        result = replicas.export("gone", "--max-retries", "1")

    assert result.code == 0, result.everything
    assert [line.partition(" · ")[0] for line in result.partitions] == [
        "partition 0: exported",
        "partition 1: exported",
    ]
    (line,) = (one for one in result.err.splitlines() if " no longer responds (" in one)
    assert line.startswith(f"· {replicas.first} no longer responds (")
    assert line.endswith(f"); continuing with {replicas.second}")
    assert result.errors == ()
    assert trouble.in_lake("gone") == rows
    assert 1 <= len(finished[0]) < 8
    assert finished[0] < trouble.files()
    assert len(trouble.files()) == 8
    assert replicas.staged(2) == []
    assert len(replicas.staged(1)) == 1
    assert "its run has ended" in replicas.clean_up("gone")
    assert replicas.staged(1) == []
    assert len(trouble.files()) == 8
    again = replicas.export("gone")
    assert (again.code, again.out.count(": already exported")) == (0, 2)


@pytest.mark.parametrize("stage", STAGES)
def test_a_replica_that_dies_before_the_first_file(replicas: Replicas, stage: str) -> None:
    rows = replicas.replicated("early")
    replicas.trouble.when(STAGES[stage], lambda: replicas.pair.kill(1))

    result = replicas.export("early")

    assert result.code == 0, result.everything
    assert replicas.trouble.in_lake("early") == rows
    assert replicas.staged(2) == []
    is_over = stage == "closing"
    assert (f"{replicas.first} no longer responds (" in result.err) is not is_over
    assert ("the source keeps the frozen parts" in result.err) is is_over


@pytest.mark.soak
def test_a_replica_that_stands_still(replicas: Replicas) -> None:
    """It is waited for as long as the address says, and the rows are exported once all the same."""
    rows = replicas.replicated("silent", parts=2, rows=8000)
    replicas.trouble.while_writing(lambda: replicas.pair.pause(1))

    result = replicas.export("silent", "--max-retries", "0", query="?read-timeout=1")

    assert result.code == 0, result.everything
    assert (
        f"{replicas.first} no longer responds (it sent nothing for 1 s); continuing with"
        in result.err
    )
    replicas.pair.resume(1)
    assert replicas.trouble.in_lake("silent") == rows


@pytest.mark.soak
def test_when_no_replica_is_left_the_command_fails_as_with_one(replicas: Replicas) -> None:
    """And, given again, it exports everything once."""
    rows = replicas.replicated("both")

    def kill() -> None:
        for number in (1, 2):
            replicas.pair.kill(number)

    replicas.trouble.while_writing(kill)

    result = replicas.export("both", "--max-retries", "0")

    assert result.code == 4, result.everything
    for partition in ("0", "1"):
        replicas.trouble.assert_failed(
            result, 4, partition, "Cannot read", "Finished files are kept"
        )
    assert f"{replicas.second} cannot continue: Cannot reach ClickHouse at" in result.err
    assert "continuing with" not in result.err
    assert replicas.trouble.in_lake("both") == []
    replicas.pair.mend()
    assert replicas.export("both").code == 0
    assert replicas.trouble.in_lake("both") == rows


def test_a_shard_continues_with_its_own_other_replica(replicas: Replicas) -> None:
    """Which replicas a shard has, its cluster says."""
    rows = replicas.replicated("of_a_shard")
    places = []
    for number in (1, 2):
        one = replicas.pair.replica(number)
        places += ["--cluster-host", f"127.0.0.1:{one.tcp_port}=127.0.0.1:{one.http_port}"]
    replicas.trouble.when("REPLACE PARTITION", lambda: replicas.pair.kill(1))

    result = replicas.trouble.export("of_a_shard", "--cluster", "pair", *places)

    assert result.code == 0, result.everything
    assert (
        f"no longer responds (Connection refused); continuing with {replicas.second}" in result.err
    )
    assert replicas.trouble.in_lake("of_a_shard") == rows


@pytest.mark.soak
def test_an_export_never_continues_at_a_table_that_is_no_replica(replicas: Replicas) -> None:
    """Harm prevented: the rows of another table under the same name."""
    rows = replicas.made("alike", "MergeTree")
    replicas.pair.query(2, "INSERT INTO db.alike VALUES (0, 1, 'of another table')")
    replicas.trouble.while_writing(lambda: replicas.pair.kill(1))

    result = replicas.export("alike", "--max-retries", "0")

    assert result.code == 4, result.everything
    assert f"{replicas.second} cannot continue: its db.alike is no replica of the one" in result.err
    assert replicas.trouble.in_lake("alike") == []
    replicas.pair.start(1)
    assert replicas.trouble.export("alike").code == 0
    assert replicas.trouble.in_lake("alike") == rows


@pytest.mark.soak
def test_an_export_does_not_continue_at_a_replica_without_the_partition(replicas: Replicas) -> None:
    """Harm prevented: a partition that only the dead replica has, left out without a word."""
    replicas.replicated("newest")
    replicas.pair.query(2, "SYSTEM STOP FETCHES db.newest")
    replicas.pair.query(1, "INSERT INTO db.newest VALUES (7, 7, 'only here')")
    rows = replicas.trouble.in_source("newest")
    replicas.trouble.while_writing(lambda: replicas.pair.kill(1))

    result = replicas.export("newest", "--max-retries", "0", "--sync-timeout", "1")

    assert result.code == 4, result.everything
    assert (
        f"{replicas.second} cannot continue: Cannot list the partitions of db.newest" in result.err
    )
    assert "its replica has still to do GET_PART 7_" in result.err
    replicas.pair.start(1)
    replicas.pair.query(2, "SYSTEM START FETCHES db.newest")
    replicas.pair.query(2, "SYSTEM SYNC REPLICA db.newest")
    assert replicas.export("newest").code == 0
    assert replicas.trouble.in_lake("newest") == rows
