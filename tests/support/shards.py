"""A table on two servers of the oldest ClickHouse, and a Distributed one over both."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from catalog.iceberg.catalogs import open_catalog
from spark_ext.cli.main import invoke
from tests.services.old_clickhouse import OldPair
from tests.support.real_export import Rows

__all__ = ["Shards"]

_INTO_A_LAKE = ("archive", "export", "verify")


class Shards:
    """A table with 100 rows on each of two servers, in the same two partitions."""

    def __init__(self, pair: OldPair, root: Path, name: str) -> None:
        self._pair, self._root, self._name = pair, root, name
        for number in (1, 2):
            pair.make_room(number, name)
            pair.query(
                number,
                f"CREATE TABLE db.{name} (p UInt8, k UInt64, s String) ENGINE ="
                f" ReplicatedMergeTree('/shards/{number}/{name}', 'r') PARTITION BY p ORDER BY k",
            )
            rows = f"SELECT number % 2, number, toString(number) FROM numbers({number - 1}00, 100)"
            pair.query(number, f"INSERT INTO db.{name} {rows}")
        pair.make_room(1, f"{name}_everywhere")
        over = f"AS db.{name} ENGINE = Distributed(shards, db, {name})"
        pair.query(1, f"CREATE TABLE db.{name}_everywhere {over}")

    def export(self) -> tuple[int, str]:
        """Export the Distributed table; return the exit code and the output."""
        return self.run("export", "--all", "--manifest-ttl", "0", "--max-retries", "0")

    def run(self, command: str, *words: str) -> tuple[int, str]:
        """Run a command on the Distributed table; return the exit code and the output."""
        out, err = io.StringIO(), io.StringIO()
        given = [command, f"db.{self._name}_everywhere", *words]
        given += ["--source", self._pair.url(1), "--allow-insecure"]
        if command in _INTO_A_LAKE:
            given += ["--to", f"lake.n.{self._name}", "--warehouse", str(self._root / "warehouse")]
        return invoke([*given, *self._hosts()], out, err), out.getvalue() + err.getvalue()

    def clean_up(self, *words: str) -> tuple[int, str]:
        """Run gc on the lake table; return the exit code and the output."""
        out, err = io.StringIO(), io.StringIO()
        given = ["gc", "--to", f"lake.n.{self._name}", "--source", self._pair.url(1), *words]
        given += ["--warehouse", str(self._root / "warehouse"), "--allow-insecure"]
        return invoke([*given, *self._hosts()], out, err), out.getvalue() + err.getvalue()

    def _hosts(self) -> list[str]:
        """Return the options that say where the servers of the cluster speak HTTP."""
        found = []
        for number in (1, 2):
            one = self._pair.replica(number)
            found += ["--cluster-host", f"127.0.0.1:{one.tcp_port}=127.0.0.1:{one.http_port}"]
        return found

    def records(self, command: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """Run a command for programs; return the exit code and every object of a shard."""
        code, output = self.run(command, *words, "--json")
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        return code, [one for one in found if "shard" in one]

    def in_lake(self) -> Rows:
        """Return the rows of the lake table, sorted."""
        catalog = open_catalog("lake", warehouse=self._root / "warehouse").catalog
        found = catalog.load_table(f"n.{self._name}").scan().to_arrow().to_pylist()
        return sorted((row["p"], row["k"], row["s"]) for row in found)
