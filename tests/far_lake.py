"""A lake in a store that is asked over a network, and exports into it as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg import OpenedCatalog
from tableformat.names import LakeName
from tests.repository.source_files import ROOT
from tests.watched_export import WatchedExport

__all__ = ["ROWS", "SECONDS", "SMALL", "FarLake"]

ROWS: Final = 3_000
SECONDS: Final = 240.0
SMALL: Final = "['a b', 'ü=%2F'][number % 2 + 1], number, toString(number)"
_RUN: Final = "from spark_ext.cli.main import run; run()"


@dataclass(slots=True)
class FarLake:
    """A catalog `far` whose warehouse is below `root`, and a table to export into it.

    `of_store` are the properties by which the store is reached, `of_tree` what the environment says
    of it where there is no catalog; `objects` lists what is in it, and `secret` is not to be seen.
    """

    directory: Path
    root: str
    of_store: dict[str, str]
    of_tree: dict[str, str]
    objects: Callable[[], list[str]]
    secret: str
    of: str = SMALL

    def __post_init__(self) -> None:
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
    def properties(self) -> dict[str, str]:
        """PyIceberg's of the catalog."""
        made = {
            "uri": f"sqlite:///{self.directory}/catalog.db",
            "warehouse": f"{self.root}/wh",
        }
        return made | self.of_store

    @property
    def environment(self) -> dict[str, str]:
        """How PyIceberg's catalog `far` is configured, and where a tree without one is."""
        catalog = {
            f"PYICEBERG_CATALOG__FAR__{name.upper().replace('.', '__').replace('-', '_')}": value
            for name, value in self.properties.items()
        }
        return catalog | self.of_tree

    def words(self, *more: str, to: str = "far.n.t") -> tuple[str, ...]:
        """Return the words of a command that names the table."""
        source = f"chdb:{self.directory}/clickhouse"
        words = ("db.t", "--all", "--source", source, "--to", to, "--ledger", self.ledger)
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
        """Run a command to its end; return its exit code and what it said."""
        command = self.begin(*words)
        said, _ = command.communicate(timeout=SECONDS)
        return command.returncode, said

    def exported(self, name: str, *words: str) -> WatchedExport:
        """Run an export that is looked at while it runs."""
        root = self.directory / name
        root.mkdir()
        run = WatchedExport(root, self.secret.encode())
        run.run(*self.words(*words), environment=self.environment)
        return run

    def files(self) -> list[str]:
        """Return the names of the data files that are in the store."""
        return [one for one in self.objects() if one.endswith(".parquet")]

    def rows(self) -> list[dict[str, object]]:
        """Return what PyIceberg reads from the table, through the same door."""
        found = OpenedCatalog("far", None, self.properties).table(LakeName("far", ("n",), "t"))
        assert found is not None
        return list(found.loaded.scan().to_arrow().to_pylist())

    def is_there_once(self, *, written: list[str] | None = None) -> None:
        """Check that every row is there, once, in one file for each partition."""
        found = self.rows()
        assert sorted(int(str(row["k"])) for row in found) == list(range(ROWS))
        assert written is None or self.objects() == written
