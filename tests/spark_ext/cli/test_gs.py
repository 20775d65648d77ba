"""Whole exports into gs: an Iceberg table by a catalog in a database, and a tree of directories.

As a user runs them: a process of its own, and tasks on Spark, which get what they need from there.
The store is a local one, over TLS.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg import OpenedCatalog
from catalog.storages.gs.access import ENDPOINT
from tableformat.names import LakeName
from tests.local_spark import SPARK_MARKS
from tests.repository.source_files import ROOT
from tests.services.fake_gcs import FakeGcs
from tests.services.server_process import wait_until
from tests.watched_export import WatchedExport

pytestmark = SPARK_MARKS

ROWS = 3_000
SMALL = "['a b', 'ü=%2F'][number % 2 + 1], number, toString(number)"
# At random, so that a file of them is large, too.
LARGE = "'x', number, randomPrintableASCII(20000)"
RUN = "from spark_ext.cli.main import run; run()"
SECONDS = 240.0


class Lake:
    """A bucket, a catalog with its warehouse there, and a table to export into it."""

    def __init__(self, store: FakeGcs, directory: Path, *, of: str = SMALL) -> None:
        self.store, self.directory, self.bucket = store, directory, store.make_bucket()
        self.ledger = f"sqlite:{directory}/ledger.db"
        self.token = f"s3cret-{secrets.token_hex(12)}"
        self.properties = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"gs://{self.bucket}/wh",
            "gcs.oauth2.token": self.token,
            **store.properties,
        }
        with EmbeddedConnection(directory / "clickhouse", create=True) as connection:
            connection.command("CREATE DATABASE db")
            connection.command(
                "CREATE TABLE db.t (p LowCardinality(String), k UInt64, s String)"
                " ENGINE = MergeTree PARTITION BY p ORDER BY k"
            )
            connection.command(f"INSERT INTO db.t SELECT {of} FROM numbers({ROWS})")

    @property
    def environment(self) -> dict[str, str]:
        """How PyIceberg's catalog `far` is configured, and where a tree without one is."""
        names = {
            name: name.upper().replace(".", "__").replace("-", "_") for name in self.properties
        }
        catalog = {f"PYICEBERG_CATALOG__FAR__{names[n]}": v for n, v in self.properties.items()}
        tree = {"STORAGE_EMULATOR_HOST": self.store.endpoint}
        return {**catalog, **tree, "SSL_CERT_FILE": str(self.store.ca_file)}

    def words(self, *more: str, to: str = "far.n.t") -> tuple[str, ...]:
        source = f"chdb:{self.directory}/clickhouse"
        words = ("db.t", "--all", "--source", source, "--to", to, "--ledger", self.ledger)
        return (*words, *more)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command in a group of processes of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", RUN, *words],
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

    def files(self) -> list[str]:
        """Return the names of the data files that are in the bucket."""
        return [one for one in self.store.objects(self.bucket) if one.endswith(".parquet")]

    def rows(self) -> list[dict[str, object]]:
        """Return what PyIceberg reads from the table, through the same door."""
        found = OpenedCatalog("far", None, self.properties).table(LakeName("far", ("n",), "t"))
        assert found is not None
        return list(found.loaded.scan().to_arrow().to_pylist())


def exported(lake: Lake, root: Path, *words: str) -> WatchedExport:
    root.mkdir()
    run = WatchedExport(root, lake.token.encode())
    run.run(*words, environment=lake.environment)
    return run


def test_an_export_into_gs_is_there_once_and_shows_no_secret(
    gs_server: FakeGcs, tmp_path: Path
) -> None:
    """The second run finds it there, and compares it with the source."""
    lake = Lake(gs_server, tmp_path)

    first = exported(lake, tmp_path / "first", *lake.words())
    written = lake.store.objects(lake.bucket)
    second = exported(lake, tmp_path / "second", *lake.words())

    assert (first.code, first.out.count(" exported"), first.out.count("verified")) == (0, 2, 2), (
        first.out + first.err
    )
    assert (second.code, second.out.count("already exported")) == (0, 2), second.out + second.err
    found = lake.rows()
    assert sorted(int(str(row["k"])) for row in found) == list(range(ROWS))
    assert {row["p"] for row in found} == {"a b", "ü=%2F"}
    assert lake.store.objects(lake.bucket) == written
    assert len(lake.files()) == 2
    for run in (first, second):
        assert run.shows() == []
    assert first.broadcast_modes == {(0o600, 0o700)}


def test_a_tree_in_gs_is_written_once_and_can_be_verified(
    gs_server: FakeGcs, tmp_path: Path
) -> None:
    lake = Lake(gs_server, tmp_path)
    to = f"hive:gs://{lake.bucket}/a tree"

    first = lake.ended("export", *lake.words("--verify", to=to))
    written = lake.store.objects(lake.bucket)
    second = lake.ended("export", *lake.words(to=to))
    verified = lake.ended("verify", *lake.words(to=to))

    assert (first[0], first[1].count("verified")) == (0, 2), first[1]
    assert (second[0], second[1].count("already exported")) == (0, 2), second[1]
    assert verified[0] == 0, verified[1]
    assert lake.store.objects(lake.bucket) == written
    assert sorted(name.split("/")[1] for name in lake.files()) == ["p=a%20b", "p=ü%3D%252F"]


def test_what_is_killed_in_the_middle_of_a_file_shows_nothing_of_it(
    gs_server: FakeGcs, tmp_path: Path
) -> None:
    """Harm prevented: half a file under its name."""
    lake = Lake(gs_server, tmp_path, of=LARGE)

    slowly = ("--master", "local[1]", "--max-bandwidth", "5000000")
    command = lake.begin("export", *lake.words(*slowly))
    wait_until(
        lambda: command.poll() is not None or lake.store.objects(lake.bucket) != [],
        "the table was made",
        seconds=SECONDS,
    )
    assert command.poll() is None, command.communicate()
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=SECONDS)

    assert lake.files() == []
    code, said = lake.ended("export", *lake.words("--master", "local[1]"))
    assert code == 0, said
    assert sorted(int(str(row["k"])) for row in lake.rows()) == list(range(ROWS))
    swept = lake.ended("gc", "--to", "far.n.t", "--ledger", lake.ledger, "--yes")
    assert swept[0] == 0, swept[1]
    assert len(lake.files()) == 1
    assert lake.ended("verify", *lake.words())[0] == 0


def test_a_bucket_that_is_not_there_fails_at_once_and_says_what_to_do(
    gs_server: FakeGcs, tmp_path: Path
) -> None:
    """Harm prevented: fifteen minutes of trying what will never work."""
    lake = Lake(gs_server, tmp_path)
    lake.properties["warehouse"] = "gs://no-such-bucket/wh"

    run = exported(lake, tmp_path / "run", *lake.words())

    assert run.code == 4, run.out + run.err
    assert "Make the bucket" in run.err
    assert "safe to run again" in run.err
    assert run.shows() == []


def test_http_is_refused_before_anything_is_begun(gs_server: FakeGcs, tmp_path: Path) -> None:
    lake = Lake(gs_server, tmp_path)
    lake.properties[ENDPOINT] = gs_server.endpoint.replace("https", "http")

    run = exported(lake, tmp_path / "run", *lake.words())

    assert run.code != 0
    assert "over http everybody on the way reads the rows" in run.err
    assert lake.store.objects(lake.bucket) == []
