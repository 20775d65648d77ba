"""ATTACH and REPLACE PARTITION … FROM tables of real servers: replicas, and shards."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from pyiceberg.table import Table

from catalog.iceberg.catalogs import open_catalog
from spark_ext.cli.main import invoke
from tests.services.old_clickhouse import OldPair
from tests.support.real_export import Rows
from tests.support.shards import Shards


class Lake:
    """A lake table that tables of two servers are exported to, and statements on it."""

    def __init__(self, pair: OldPair, root: Path, name: str) -> None:
        self._pair, self._root, self._name = pair, root, name

    def alter(self, what: str, *, server: int = 1) -> tuple[int, str]:
        """Run a statement, with one of the servers as the source; return code and output."""
        words = ["alter", f"ALTER TABLE lake.n.{self._name} {what}"]
        words += ["--source", self._pair.url(server), "--allow-insecure"]
        words += ["--warehouse", str(self._root / "warehouse")]
        for number in (1, 2):
            one = self._pair.replica(number)
            words += ["--cluster-host", f"127.0.0.1:{one.tcp_port}=127.0.0.1:{one.http_port}"]
        out, err = io.StringIO(), io.StringIO()
        return invoke(words, out, err), out.getvalue() + err.getvalue()

    def export(self, table: str, *, server: int = 1) -> None:
        """Export all partitions of a table of a server."""
        words = ["export", table, "--all", "--to", f"lake.n.{self._name}", "--allow-insecure"]
        words += ["--source", self._pair.url(server), "--manifest-ttl", "0"]
        words += ["--warehouse", str(self._root / "warehouse")]
        out, err = io.StringIO(), io.StringIO()
        assert invoke(words, out, err) == 0, out.getvalue() + err.getvalue()

    @property
    def rows(self) -> Rows:
        """The rows, sorted."""
        found = self._table().scan().to_arrow().to_pylist()
        return sorted((row["p"], row["k"], row["s"]) for row in found)

    @property
    def snapshots(self) -> int:
        return len(self._table().metadata.snapshots)

    def _table(self) -> Table:
        catalog = open_catalog("lake", warehouse=self._root / "warehouse").catalog
        found: Table = catalog.load_table(f"n.{self._name}")
        return found


def of(*ranges: range) -> Rows:
    """Return rows as the servers have them."""
    return sorted((n % 2, n, str(n)) for one in ranges for n in one)


def test_a_partition_is_replaced_by_those_of_all_shards_in_one_snapshot(
    old_servers: OldPair, shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    """A shard that is down keeps all of it back; one key for each shard."""
    everywhere = shards("replaced")
    lake = Lake(old_servers, tmp_path, "replaced")
    assert everywhere.export()[0] == 0
    for number in (1, 2):
        rows = f"SELECT number % 2, number, toString(number) FROM numbers({200 + number}0, 10)"
        old_servers.query(number, f"INSERT INTO db.replaced {rows}")
    before = lake.snapshots
    replace = "REPLACE PARTITION 0 FROM ch.db.replaced_everywhere"
    old_servers.kill(2)

    code, output = lake.alter(replace)

    assert (code != 0, lake.rows, lake.snapshots) == (True, of(range(200)), before), output
    old_servers.start(2)
    code, output = lake.alter(replace)
    assert (code, lake.snapshots) == (0, before + 1), output
    added = [row for row in of(range(2010, 2030)) if row[0] == 0]
    assert lake.rows == sorted(of(range(200)) + added)
    assert output.count("partition 0: replaced") == 2, output
    # One of the two has changed, and both stay what they are together.
    old_servers.query(2, "INSERT INTO db.replaced VALUES (0, 3000, '3000')")
    code, output = lake.alter(replace)
    assert (code, lake.snapshots) == (0, before + 2), output
    assert lake.rows == sorted([*of(range(200)), *added, (0, 3000, "3000")])


def test_partitions_are_attached_from_all_shards_and_from_one_of_them(
    old_servers: OldPair, shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    everywhere = shards("attached")
    lake = Lake(old_servers, tmp_path, "attached")
    assert everywhere.export()[0] == 0
    assert lake.alter("DROP PARTITION ALL")[0] == 0

    code, output = lake.alter("ATTACH PARTITION 0 FROM ch.db.attached_everywhere")

    assert (code, output.count("partition 0: attached")) == (0, 2), output
    assert lake.rows == [row for row in of(range(200)) if row[0] == 0]
    of_one = "ATTACH PARTITION 1 FROM ch.db.attached"
    assert lake.alter(of_one, server=1)[0] == 0
    assert lake.alter(of_one, server=2)[0] == 0
    assert lake.rows == of(range(200))


def test_a_partition_is_attached_from_whichever_replica_and_once(
    old_servers: OldPair, shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    """A shard by its own server is another table of one name; an option says it is not restored."""
    shards("beside")
    lake = Lake(old_servers, tmp_path, "beside")
    for number in (1, 2):
        old_servers.make_room(number, "twin")
        old_servers.query(
            number,
            "CREATE TABLE db.twin (p UInt8, k UInt64, s String) ENGINE ="
            f" ReplicatedMergeTree('/tables/twin', 'r{number}') PARTITION BY p ORDER BY k",
        )
    rows = "SELECT number % 2, number, toString(number) FROM numbers(1000, 10)"
    old_servers.query(1, f"INSERT INTO db.twin {rows}")
    old_servers.query(2, "SYSTEM SYNC REPLICA db.twin")
    lake.export("db.beside")
    attach = "ATTACH PARTITION 0 FROM ch.db.twin"

    code, output = lake.alter(attach, server=2)

    assert (code, "partition 0: attached" in output) == (0, True), output
    code, output = lake.alter(attach, server=1)
    assert (code, "partition 0: unchanged" in output) == (0, True), output
    twin = [row for row in of(range(1000, 1010)) if row[0] == 0]
    assert lake.rows == sorted(of(range(100)) + twin)
    other = "ATTACH PARTITION 0 FROM ch.db.beside"
    code, output = lake.alter(other, server=2)
    assert (code, "may be there already" in output) == (3, True), output
    code, output = lake.alter(
        f"{other} SETTINGS export_merge_tree_part_overwrite_file_if_exists = 1", server=2
    )
    assert code == 0, output
    second = [row for row in of(range(100, 200)) if row[0] == 0]
    assert lake.rows == sorted(of(range(100)) + twin + second)


def test_shards_that_are_replicas_of_one_table_bring_its_rows_once(
    old_servers: OldPair, shards: Callable[[str], Shards], tmp_path: Path
) -> None:
    """Harm prevented: one replica is behind, and its rows are added to those of the other."""
    shards("apart")
    lake = Lake(old_servers, tmp_path, "one")
    for number in (1, 2):
        old_servers.make_room(number, "one")
        old_servers.query(
            number,
            "CREATE TABLE db.one (p UInt8, k UInt64, s String) ENGINE ="
            f" ReplicatedMergeTree('/tables/one', 'r{number}') PARTITION BY p ORDER BY k",
        )
    old_servers.make_room(1, "one_everywhere")
    over = "AS db.one ENGINE = Distributed(shards, db, one)"
    old_servers.query(1, f"CREATE TABLE db.one_everywhere {over}")
    old_servers.query(
        1, "INSERT INTO db.one SELECT number % 2, number, toString(number) FROM numbers(6)"
    )
    old_servers.query(2, "SYSTEM SYNC REPLICA db.one")
    lake.export("db.one")
    old_servers.query(2, "SYSTEM STOP FETCHES db.one")
    old_servers.query(1, "INSERT INTO db.one VALUES (0, 100, '100')")

    code, output = lake.alter("REPLACE PARTITION 0 FROM ch.db.one_everywhere")

    old_servers.query(2, "SYSTEM START FETCHES db.one")
    assert (code, output.count("partition 0: ")) == (0, 1), output
    assert lake.rows == sorted([*of(range(6)), (0, 100, "100")])
