"""Two tables of one Keeper path at real servers: ClickHouse 18.16 with ZooKeeper."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest

from catalog.clickhouse.rows.digests import FileDigests
from spark_ext.actions import export_ports
from spark_ext.cli.main import invoke
from tableformat.mergetree.table import KeeperNode, KeeperUnavailable
from tableformat.names import TableName
from tests.services.old_clickhouse import OldPair
from tests.services.server_process import wait_until
from tests.support.child_writer import ChildWriter
from tests.support.old_source import OldSource
from tests.support.real_export import Exports

NUMBERS = itertools.count(1)


class Twice:
    """A table of replica 1 that is made more than once under its path, and the command line.

    Exports need no Spark.
    """

    def __init__(self, pair: OldPair, root: Path) -> None:
        self._pair, self._root = pair, root
        self.name = TableName("db", f"twice{next(NUMBERS)}")

    def make(self, first: int) -> None:
        """Recreate the table, with 100 rows from a number on, in two partitions."""
        self._pair.make_room(1, self.name.name)
        self._pair.query(
            1,
            f"CREATE TABLE {self.name.sql} (p UInt8, k UInt64, s String) ENGINE ="
            f" ReplicatedMergeTree('/tables/{self.name.name}', 'r1') PARTITION BY p ORDER BY k",
        )
        rows = f"SELECT number % 2, number, toString(number) FROM numbers({first}, 100)"
        self._pair.query(1, f"INSERT INTO {self.name.sql} {rows}")

    def run(self, command: str, *options: str) -> tuple[int, str]:
        """Run a command on all of its partitions; return the exit code and the output."""
        out, err = io.StringIO(), io.StringIO()
        source = ["--source", self._pair.url(1), "--allow-insecure"]
        lake = ["--to", f"lake.n.{self.name.name}", "--warehouse", str(self._root / "warehouse")]
        code = invoke([command, str(self.name), "--all", *source, *lake, *options], out, err)
        return code, out.getvalue() + err.getvalue()


@pytest.fixture
def twice(old_servers: OldPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Twice:
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "check", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(
        export_ports, "SparkWriter", lambda _, server, __: ChildWriter(lambda *_: None, server)
    )
    return Twice(old_servers, tmp_path)


def test_both_replicas_say_the_same_node_whatever_happens_to_the_table(
    old_servers: OldPair,
) -> None:
    """Inserts, merges, mutations, another column, a replica that goes and comes back."""
    old = OldSource(old_servers)
    name = old.replicated()

    def nodes() -> set[object]:
        return {old.through(number).describe(name).keeper_node for number in (1, 2)}

    (before,) = nodes()
    assert isinstance(before, KeeperNode)
    old.insert(name)
    old.insert(name, first=1000)
    old.query(f"OPTIMIZE TABLE {name.sql} FINAL")
    old.query(f"ALTER TABLE {name.sql} ADD COLUMN more UInt8")
    old.query(f"ALTER TABLE {name.sql} DELETE WHERE k = 7")
    old.query(f"DETACH TABLE {name.sql}")
    old.query(f"ATTACH TABLE {name.sql}")
    assert nodes() == {before}
    made = old_servers.query(2, f"SHOW CREATE TABLE {name.sql} FORMAT TabSeparatedRaw")
    old_servers.query(2, f"DROP TABLE {name.sql}")
    old_servers.query(2, made)
    assert nodes() == {before}


def test_a_table_that_is_not_replicated_has_no_node(old_servers: OldPair) -> None:
    old = OldSource(old_servers)

    assert old.source.describe(old.table()).keeper_node is None


def test_a_keeper_that_is_away_differs_from_none(old_servers: OldPair) -> None:
    old = OldSource(old_servers)
    name = old.replicated()
    old_servers.zookeeper.kill()
    until = f"SELECT is_readonly FROM system.replicas WHERE table = '{name.name}'"
    wait_until(lambda: old.query(until) == "1", "the replica lost its Keeper")

    assert isinstance(old.source.describe(name).keeper_node, KeeperUnavailable)


def test_a_table_that_was_dropped_and_recreated_is_refused_unchanged(
    twice: Twice, old_servers: OldPair, exports_from: Exports
) -> None:
    """Harm prevented: "already exported" of rows that nobody exported, or theirs for the others."""
    twice.make(0)
    exports = exports_from(old_servers.url(1))
    first = exports.in_source(twice.name)
    assert twice.run("export")[0] == 0
    before = (exports.lake(twice.name).metadata, exports.ledger_rows(twice.name))
    twice.make(1000)

    for options in ((), ("--force",), ("--dry-run",)):
        code, output = twice.run("export", *options)
        assert code == 3, output
        assert (
            f"another table was exported from the Keeper path /tables/{twice.name.name}:" in output
        )
    code, output = twice.run("archive", "--allow-alter", "--drop")
    assert (code, output.count("kept in the source: another table was exported")) == (3, 2)
    with FileDigests() as digests:
        found = exports.verify(twice.name, digests)
    assert {one.verdict.value for one in found} == {"not_comparable"}

    assert (exports.lake(twice.name).metadata, exports.ledger_rows(twice.name)) == before
    assert exports.in_lake(twice.name) == first
    assert len(exports.in_source(twice.name)) == 100
    assert exports.clickhouse.staging_tables() == ()


def test_when_it_is_the_same_table_the_user_says_so_once(
    twice: Twice, old_servers: OldPair, exports_from: Exports
) -> None:
    """As after SYSTEM RESTORE REPLICA: the same rows under another node."""
    twice.make(0)
    exports = exports_from(old_servers.url(1))
    assert twice.run("export")[0] == 0
    twice.make(0)
    assert twice.run("export")[0] == 3

    code, output = twice.run("export", "--same-table")
    assert (code, output.count(": already exported")) == (0, 2)
    code, output = twice.run("export")
    assert (code, output.count(": already exported")) == (0, 2)
    assert exports.in_lake(twice.name) == exports.in_source(twice.name)
    twice.make(500)
    assert twice.run("export", "--same-table", "--force")[0] == 0
    assert exports.in_lake(twice.name) == exports.in_source(twice.name)
