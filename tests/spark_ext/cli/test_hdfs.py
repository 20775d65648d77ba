"""Whole exports into HDFS: an Iceberg table by a catalog in a database, and a tree of directories.

As a user runs them: a process of its own, and tasks on Spark, which get what they need from there.
The cluster is a local one, over TLS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg import OpenedCatalog
from catalog.storages.hdfs.objects import IN_PROGRESS
from catalog.storages.hdfs.storage import HdfsStorage
from tableformat.names import LakeName
from tests.local_spark import SPARK_MARKS
from tests.repository.source_files import ROOT
from tests.services.hdfs import Hdfs

pytestmark = SPARK_MARKS

ROWS = 3_000
ROWS_OF = "['a b', 'ü:=%2F'][number % 2 + 1], number, toString(number)"
RUN = "from spark_ext.cli.main import run; run()"
SECONDS = 240.0


class Lake:
    """A directory, a catalog with its warehouse there, and a table to export into it."""

    def __init__(self, store: Hdfs, directory: Path) -> None:
        self.store, self.directory, self.root = store, directory, store.make_directory()
        self.ledger = f"sqlite:{directory}/ledger.db"
        self.properties = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"{self.root}/wh",
            **store.properties,
        }
        with EmbeddedConnection(directory / "clickhouse", create=True) as connection:
            connection.command("CREATE DATABASE db")
            connection.command(
                "CREATE TABLE db.t (p LowCardinality(String), k UInt64, s String)"
                " ENGINE = MergeTree PARTITION BY p ORDER BY k"
            )
            connection.command(f"INSERT INTO db.t SELECT {ROWS_OF} FROM numbers({ROWS})")

    @property
    def environment(self) -> dict[str, str]:
        """How PyIceberg's catalog `far` is configured, and where a tree without one is."""
        names = {
            name: name.upper().replace(".", "__").replace("-", "_") for name in self.properties
        }
        catalog = {f"PYICEBERG_CATALOG__FAR__{names[n]}": v for n, v in self.properties.items()}
        tree = {
            "MERGEBERG_HDFS_HTTP_ADDRESS": self.store.endpoint,
            "HADOOP_USER_NAME": self.store.user,
        }
        return {**catalog, **tree, "SSL_CERT_FILE": str(self.store.ca_file)}

    def words(self, *more: str, to: str = "far.n.t") -> tuple[str, ...]:
        source = f"chdb:{self.directory}/clickhouse"
        words = ("db.t", "--all", "--source", source, "--to", to, "--ledger", self.ledger)
        return (*words, *more)

    def ended(self, *words: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and what it said."""
        done = subprocess.run(
            [sys.executable, "-c", RUN, *words],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        return done.returncode, done.stdout

    def files(self) -> list[str]:
        """Return the paths of the data files, begun ones too."""
        return [one for one in self.store.files(self.root) if ".parquet" in one]

    def rows(self) -> list[dict[str, object]]:
        """Return what PyIceberg reads from the table, through the same door."""
        found = OpenedCatalog("far", None, self.properties).table(LakeName("far", ("n",), "t"))
        assert found is not None
        return list(found.loaded.scan().to_arrow().to_pylist())


def test_an_export_into_hdfs_is_there_and_gc_sweeps_what_a_writer_left(
    hdfs_server: Hdfs, tmp_path: Path
) -> None:
    """Harm prevented: what a killed writer left under a hidden name is there for ever."""
    lake = Lake(hdfs_server, tmp_path)

    code, said = lake.ended("export", *lake.words("--verify"))
    assert (code, said.count("verified")) == (0, 2), said
    found = lake.rows()
    assert sorted(int(str(row["k"])) for row in found) == list(range(ROWS))
    assert {row["p"] for row in found} == {"a b", "ü:=%2F"}
    assert len(lake.files()) == 2

    written = lake.store.files(lake.root)
    directory, _, name = lake.files()[0].rpartition("/")
    begun = f"{directory}/.{name}.{'0' * 32}{IN_PROGRESS}"
    HdfsStorage(lake.store.access()).put(f"{lake.store.root}{begun}", b"half")
    code, said = lake.ended("gc", "--to", "far.n.t", "--ledger", lake.ledger, "--yes")
    assert code == 0, said
    assert lake.store.files(lake.root) == written


def test_a_tree_in_hdfs_is_written_and_no_directory_has_a_colon(
    hdfs_server: Hdfs, tmp_path: Path
) -> None:
    """No name in HDFS can have one, but the values of a partition key may."""
    lake = Lake(hdfs_server, tmp_path)

    code, said = lake.ended("export", *lake.words("--verify", to=f"hive:{lake.root}/a tree"))

    assert (code, said.count("verified")) == (0, 2), said
    directories = sorted(path.split("/")[-2] for path in lake.files())
    assert directories == ["p=a%20b", "p=ü%3A%3D%252F"]
