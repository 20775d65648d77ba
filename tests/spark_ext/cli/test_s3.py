"""Whole exports into S3: the catalog in a database, its warehouse in a real object store, by TLS.

As a user runs them: a process of its own, the catalog configured once, for PyIceberg; tasks on
Spark get what they need from there.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.local_spark import SPARK_MARKS
from tests.repository.source_files import ROOT
from tests.s3_places import properties_of
from tests.services.minio import WRITER, Account, MinIO
from tests.services.server_process import wait_until
from tests.watched_export import WatchedExport

pytestmark = SPARK_MARKS

ROWS = 3_000
SMALL = "['a b', 'ü=%2F'][number % 2 + 1], number, toString(number)"
# At random, so that a file of them is large, too.
LARGE = "'x', number, randomPrintableASCII(20000)"
RUN = "from spark_ext.cli.main import run; run()"
SECONDS = 240.0
READ = """
import json
from pyiceberg.catalog import load_catalog
table = load_catalog("far").load_table("n.t")
rows = table.scan(selected_fields=("p", "k")).to_arrow().to_pylist()
print(json.dumps(rows, default=str))
"""


class Lake:
    """A catalog with the warehouse in a bucket of its own, and a table to export into it."""

    def __init__(
        self, store: MinIO, directory: Path, account: Account | None = None, *, of: str = SMALL
    ) -> None:
        self.store, self.directory, self.bucket = store, directory, store.make_bucket()
        self.ledger = f"sqlite:{directory}/ledger.db"
        self.properties = {
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"s3://{self.bucket}/wh",
            **properties_of(store, account or store.account(*WRITER, bucket=self.bucket)),
        }
        with EmbeddedConnection(directory / "clickhouse", create=True) as connection:
            connection.command("CREATE DATABASE db")
            connection.command(
                "CREATE TABLE db.t (p LowCardinality(String), k UInt64, s String)"
                " ENGINE = MergeTree PARTITION BY p ORDER BY k"
            )
            connection.command(f"INSERT INTO db.t SELECT {of} FROM numbers({ROWS})")

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

    @property
    def environment(self) -> dict[str, str]:
        """How PyIceberg's catalog `far` is configured."""
        names = {
            name: name.upper().replace(".", "__").replace("-", "_") for name in self.properties
        }
        return {f"PYICEBERG_CATALOG__FAR__{names[n]}": v for n, v in self.properties.items()}

    def words(self, *more: str) -> tuple[str, ...]:
        source = f"chdb:{self.directory}/clickhouse"
        words = ("db.t", "--all", "--source", source, "--to", "far.n.t", "--ledger", self.ledger)
        return (*words, *more)

    def objects(self) -> list[str]:
        pages = self.store.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def uploads(self) -> list[str]:
        found = self.store.client().list_multipart_uploads(Bucket=self.bucket)
        return [one["Key"] for one in found.get("Uploads", ())]

    def rows(self) -> list[dict[str, Any]]:
        """Return what PyIceberg itself reads, with PyArrow, which learns once whom to trust."""
        trusting = {**os.environ, **self.environment, "SSL_CERT_FILE": str(self.store.ca_file)}
        read = subprocess.run(
            [sys.executable, "-c", READ], env=trusting, capture_output=True, text=True, check=False
        )
        assert read.returncode == 0, read.stderr
        return list(json.loads(read.stdout))


def exported(lake: Lake, root: Path, *more: str) -> WatchedExport:
    root.mkdir()
    secret = lake.properties["s3.secret-access-key"].encode()
    run = WatchedExport(root, secret)
    run.run(*lake.words(*more), environment=lake.environment)
    return run


def test_an_export_into_s3_is_there_once_and_shows_no_secret(
    minio_server: MinIO, tmp_path: Path
) -> None:
    """Read back by PyIceberg; the second run finds it there, and compares it with the source."""
    lake = Lake(minio_server, tmp_path)

    first = exported(lake, tmp_path / "first")
    written = lake.objects()
    second = exported(lake, tmp_path / "second")

    assert (first.code, first.out.count(" exported"), first.out.count("verified")) == (0, 2, 2), (
        first.out + first.err
    )
    assert (second.code, second.out.count("already exported")) == (0, 2), second.out + second.err
    found = lake.rows()
    assert sorted(int(row["k"]) for row in found) == list(range(ROWS))
    assert {row["p"] for row in found} == {"a b", "ü=%2F"}
    assert lake.objects() == written
    assert lake.uploads() == []
    assert sum(key.endswith(".parquet") for key in written) == 2
    for run in (first, second):
        assert run.shows() == []
    token = lake.properties["s3.session-token"].encode()
    assert [n for n, content in first.everything() if token in content] == []
    assert first.broadcast_modes == {(0o600, 0o700)}


@pytest.mark.parametrize("wrong", ["secret", "bucket"])
def test_what_will_never_work_fails_at_once_and_says_what_to_do(
    minio_server: MinIO, tmp_path: Path, wrong: str
) -> None:
    """Harm prevented: fifteen minutes of trying a key that is wrong."""
    lake = Lake(minio_server, tmp_path, minio_server.root)
    if wrong == "secret":
        lake.properties["s3.secret-access-key"] = f"s3cret-{secrets.token_hex(12)}"
        said = "SignatureDoesNotMatch"
    else:
        lake.properties["warehouse"] = "s3://no-such-bucket/wh"
        said = "NoSuchBucket"

    run = exported(lake, tmp_path / "run")

    assert run.code == 4, run.out + run.err
    assert said in run.err
    assert "safe to run again" in run.err
    assert run.shows() == []
    assert lake.objects() == []


def begun_upload(lake: Lake, bytes_per_second: int) -> subprocess.Popen[str]:
    """Begin an export, and return it while it sends a file of 50 MB so slowly."""
    slowly = ("--max-bandwidth", str(bytes_per_second))
    command = lake.begin("export", *lake.words("--master", "local[1]", *slowly))
    wait_until(
        lambda: command.poll() is not None or lake.uploads() != [],
        "a file was on its way",
        seconds=SECONDS,
    )
    assert command.poll() is None, command.communicate()
    return command


def test_what_is_killed_in_the_middle_of_a_file_shows_nothing_of_it(
    minio_server: MinIO, tmp_path: Path
) -> None:
    """Harm prevented: half a file under its name; and parts that are paid for, for ever."""
    lake = Lake(minio_server, tmp_path, minio_server.root, of=LARGE)

    command = begun_upload(lake, 1_000_000)
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=SECONDS)

    assert [key for key in lake.objects() if key.endswith(".parquet")] == []
    left = lake.uploads()
    assert left
    code, said = lake.ended("export", *lake.words("--master", "local[1]"))
    assert code == 0, said
    assert sorted(int(row["k"]) for row in lake.rows()) == list(range(ROWS))
    swept = lake.ended("gc", "--to", "far.n.t", "--ledger", lake.ledger, "--yes")
    assert swept[0] == 0, swept[1]
    assert lake.uploads() == []
    assert sum(key.endswith(".parquet") for key in lake.objects()) == 1
    assert lake.ended("verify", *lake.words())[0] == 0


def test_a_store_that_is_away_in_the_middle_of_a_file_delays_the_export(
    minio_server: MinIO, tmp_path: Path
) -> None:
    """Harm prevented: hours of an export are lost for a minute without storage."""
    lake = Lake(minio_server, tmp_path, minio_server.root, of=LARGE)

    command = begun_upload(lake, 4_000_000)
    minio_server.kill()
    minio_server.start()
    said, _ = command.communicate(timeout=SECONDS)

    assert command.returncode == 0, said
    assert sorted(int(row["k"]) for row in lake.rows()) == list(range(ROWS))
    assert sum(key.endswith(".parquet") for key in lake.objects()) == 1
