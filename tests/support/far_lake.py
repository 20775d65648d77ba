"""A lake in a store that is asked over a network, and exports into it as a user runs them."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import OpenedCatalog
from tableformat.names import LakeName
from tests.repository.source_files import ROOT
from tests.support.store_places import Place
from tests.support.watched_export import WatchedExport

__all__ = ["ROWS", "SECONDS", "SMALL", "FarLake"]

ROWS: Final = 3_000
SECONDS: Final = 240.0
SMALL: Final = "['a b', 'ü:=%2F'][number % 2 + 1], number, toString(number)"
_RUN: Final = "from spark_ext.cli.main import run; run()"
_READ: Final = """
import json
from pyiceberg.catalog import load_catalog
table = load_catalog("far").load_table("n.t")
rows = table.scan(selected_fields=("p", "k")).to_arrow().to_pylist()
print(json.dumps(rows, default=str))
"""


@dataclass(slots=True)
class FarLake:
    """A table to export, and where it goes: table `n.t` of a catalog `far`, or a tree.

    The warehouse and the tree are below `root`; `properties` say how the catalog reaches it. `of`
    are the columns of the table, a text, a number and a text.
    """

    directory: Path
    place: Place
    of: str = SMALL
    to: str = "far.n.t"
    root: str = field(init=False)
    properties: dict[str, str] = field(init=False)
    secrets: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.root, self.secrets = self.place.root, self.place.secrets
        self.properties = self.place.properties
        with EmbeddedConnection(self.directory / "clickhouse", create=True) as connection:
            connection.command("CREATE DATABASE db")
            connection.command(
                "CREATE TABLE db.t (p LowCardinality(String), k UInt64, s String)"
                " ENGINE = MergeTree PARTITION BY p ORDER BY k"
            )
            connection.command(f"INSERT INTO db.t SELECT {self.of} FROM numbers({ROWS})")

    @property
    def ledger(self) -> str:
        """The address of the ledger."""
        return f"sqlite:{self.directory}/ledger.db"

    @property
    def environment(self) -> dict[str, str]:
        """How a tree is reached, or how the catalog is configured for PyIceberg."""
        if self.to.startswith("hive:"):
            return {**self.place.variables, "SSL_CERT_FILE": str(self.place.server.ca_file)}
        return {
            f"PYICEBERG_CATALOG__FAR__{name.upper().replace('.', '__').replace('-', '_')}": value
            for name, value in self._catalog.items()
        }

    @property
    def _catalog(self) -> dict[str, str]:
        """All properties of the catalog."""
        made = {"uri": f"sqlite:///{self.directory}/catalog.db", "warehouse": f"{self.root}/wh"}
        return made | self.properties

    def words(self, *more: str) -> tuple[str, ...]:
        """Return the words of a command that names the table."""
        source = f"chdb:{self.directory}/clickhouse"
        words = ("db.t", "--all", "--source", source, "--to", self.to, "--ledger", self.ledger)
        return (*words, *more)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command in a group of processes of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", _RUN, *words],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def ended(self, *words: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and its output."""
        command = self.begin(*words)
        output, _ = command.communicate(timeout=SECONDS)
        return command.returncode, output

    def exported(self, name: str, *words: str) -> WatchedExport:
        """Run an export that is looked at while it runs."""
        root = self.directory / name
        root.mkdir()
        # Where nothing is secret, something is looked for that is nowhere.
        run = WatchedExport(root, (*self.secrets, secrets.token_hex())[0].encode())
        run.run(*self.words(*words), environment=self.environment)
        return run

    def shown(self, run: WatchedExport) -> list[str]:
        """Return the names of what of a run shows a secret."""
        hidden = [one.encode() for one in self.secrets]
        return [name for name, found in run.everything() if any(one in found for one in hidden)]

    def objects(self) -> list[str]:
        """Return the names of all objects of the store that are below `root`."""
        return self.place.stored()

    def files(self) -> list[str]:
        """Return the names of the data files that are in the store."""
        return [one for one in self.objects() if one.endswith(".parquet")]

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of the table, by PyIceberg."""
        if self.place.read_by_pyarrow:
            return self._rows_by_pyarrow()
        table = OpenedCatalog("far", None, self._catalog).table(LakeName("far", ("n",), "t"))
        assert table is not None
        return list(table.loaded.scan().to_arrow().to_pylist())

    def _rows_by_pyarrow(self) -> list[dict[str, object]]:
        """Return the rows by PyIceberg's own storage, which learns once whom to trust."""
        trusted = {"SSL_CERT_FILE": str(self.place.server.ca_file)}
        read = subprocess.run(
            [sys.executable, "-c", _READ],
            env={**os.environ, **self.environment, **trusted},
            capture_output=True,
            text=True,
            check=False,
        )
        assert read.returncode == 0, read.stderr
        return list(json.loads(read.stdout))

    def check_rows(self) -> set[object]:
        """Check that every row is in the table once; return the partitions."""
        found = self.rows()
        assert sorted(int(str(row["k"])) for row in found) == list(range(ROWS))
        return {row["p"] for row in found}
