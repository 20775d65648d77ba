"""Whole exports by Iceberg Java's own REST server into S3, with credentials that the catalog vends.

As a user runs them: processes of their own, and a catalog that is configured once, in PyIceberg's
file, without any key.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.file_names import RECEIPTS
from tests.repository.source_files import ROOT
from tests.services.minio import MinIO
from tests.services.rest_server import RestServer
from tests.services.server_process import wait_until
from tests.services.vending_catalog import LendingCatalog
from tests.support.local_spark import SPARK_MARKS
from tests.support.watched_export import WatchedExport

pytestmark = SPARK_MARKS

ROWS = 1_500
SMALL = "toString(number)"
# At random, so that a file of them is large, too, and takes six seconds when it is sent slowly.
LARGE = "randomPrintableASCII(20000)"
SLOWLY = ("--master", "local[1]", "--max-bandwidth", "2000000")
STANDING = ("--master", "local[1]", "--max-bandwidth", "300000")
RUN = "from spark_ext.cli.main import run; run()"
SECONDS = 240.0
READ = """
import json, sys
from pyiceberg.catalog import load_catalog
table = load_catalog("far").load_table(sys.argv[1])
print(json.dumps(table.scan(selected_fields=("p", "k")).to_arrow().to_pylist(), default=int))
"""
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


class Lake:
    """A catalog `far` that vends, with a table to export into a namespace of its own there."""

    def __init__(self, lender: LendingCatalog, server: RestServer, directory: Path) -> None:
        self.lender, self.server, self.directory = lender, server, directory
        self.name = f"n{secrets.token_hex(4)}.t"
        self.ledger = f"sqlite:{directory}/ledger.db"
        (directory / ".pyiceberg.yaml").write_text(
            "catalog:\n  far:\n" + _yaml(lender.properties, " " * 4)
        )
        self.environment = {"PYICEBERG_HOME": str(directory)}

    def fill(self, column: str) -> None:
        rows = f"SELECT ['a', 'b'][number % 2 + 1], number, {column} FROM numbers({ROWS})"
        with EmbeddedConnection(self.directory / "clickhouse", create=True) as connection:
            connection.command("CREATE DATABASE db")
            connection.command(
                "CREATE TABLE db.t (p LowCardinality(String), k UInt64, s String)"
                " ENGINE = MergeTree PARTITION BY p ORDER BY k"
            )
            connection.command(f"INSERT INTO db.t {rows}")

    def words(self, *more: str) -> tuple[str, ...]:
        source = ("--source", f"chdb:{self.directory}/clickhouse")
        return ("db.t", "--all", *source, "--to", f"far.{self.name}", *self.keeps, *more)

    @property
    def keeps(self) -> tuple[str, ...]:
        return ("--ledger", self.ledger)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", RUN, *words],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ended(self, *words: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and its output."""
        command = self.begin(*words)
        output, _ = command.communicate(timeout=SECONDS)
        return command.returncode, output

    def files(self) -> list[str]:
        """Return the keys of the data files."""
        return [key for key in self.objects() if key.endswith(".parquet")]

    def receipts(self) -> list[str]:
        """Return the keys of what tells of finished files."""
        return [key for key in self.objects() if f"/{RECEIPTS}/" in key]

    def objects(self) -> list[str]:
        below = f"wh/{self.name.replace('.', '/')}/"
        client = self.server.store.client()
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=self.server.bucket, Prefix=below
        )
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def uploads(self) -> list[str]:
        found = self.server.store.client().list_multipart_uploads(Bucket=self.server.bucket)
        return [one["Key"] for one in found.get("Uploads", ())]

    def rows(self) -> list[dict[str, Any]]:
        """Return what PyIceberg itself reads, with vended credentials."""
        trusting = {
            "SSL_CERT_FILE": str(self.server.store.ca_file),
            "REQUESTS_CA_BUNDLE": str(self.server.authority.file),
        }
        read = subprocess.run(
            [sys.executable, "-c", READ, self.name],
            env={**os.environ, **self.environment, **trusting},
            capture_output=True,
            text=True,
            check=False,
        )
        assert read.returncode == 0, read.stderr
        return list(json.loads(read.stdout))


def _yaml(properties: dict[str, Any], indent: str) -> str:
    return "".join(
        f"{indent}{name}:\n{_yaml(value, indent + '  ')}"
        if isinstance(value, dict)
        else f"{indent}{name}: {value}\n"
        for name, value in properties.items()
    )


@pytest.fixture
def lake(
    rest_server_of_session: RestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    """Yield a lake to a test, on a machine that has no credentials of its own."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    with LendingCatalog(rest_server_of_session) as lender:
        yield Lake(lender, rest_server_of_session, tmp_path)


def test_an_export_by_the_server_lands_once_and_shows_no_vended_credentials(
    lake: Lake, minio_server: MinIO, tmp_path: Path
) -> None:
    """Read back by PyIceberg; the second run finds it there, and compares it with the source."""
    lake.fill(SMALL)
    runs = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        run = WatchedExport(tmp_path / name, minio_server.secret_key.encode())
        run.run(*lake.words(), environment=lake.environment)
        runs.append(run)

    first, second = runs
    assert (first.code, first.out.count(": exported"), first.out.count("verified")) == (0, 2, 2), (
        first.out + first.err
    )
    assert (second.code, second.out.count(": already exported")) == (0, 2), second.out + second.err
    found = lake.rows()
    assert sorted(row["k"] for row in found) == list(range(ROWS))
    assert all(row["p"] == "ab"[row["k"] % 2] for row in found)
    assert len(lake.files()) == 2
    vended = {word for one in lake.lender.vended for word in (one.secret_key, one.token or "")}
    assert vended >= {lake.lender.vended[0].secret_key}
    for run in runs:
        assert run.shows() == []
        seen = [(n, word) for n, c in run.everything() for word in vended if word.encode() in c]
        assert seen == []


def begun_and_ended(lake: Lake, *words: str, when: Callable[[], bool]) -> tuple[int, str]:
    """End vended credentials during an export; return its exit code and its output."""
    run = lake.begin("export", *lake.words(*words))
    wait_until(lambda: run.poll() is not None or when(), "it was under way", seconds=SECONDS)
    store = lake.server.store
    assert isinstance(store, MinIO)
    store.end_accounts()
    output, _ = run.communicate(timeout=SECONDS)
    assert "Traceback" not in output
    return run.returncode, output


def test_an_export_goes_on_by_itself_with_the_credentials_of_a_new_load(lake: Lake) -> None:
    """Only the file in progress is written again; this does not count as a try."""
    lake.fill(LARGE)
    finished: list[str] = []

    def one_is_finished() -> bool:
        finished[:] = lake.files() if lake.receipts() else []
        return finished != []

    code, output = begun_and_ended(lake, *SLOWLY, "--max-retries", "0", when=one_is_finished)

    assert code == 0, output
    assert len(finished) == 1, output
    assert output.count("1 file to write with new credentials: InvalidAccessKeyId") == 1
    assert sorted(row["k"] for row in lake.rows()) == list(range(ROWS))
    assert {*finished} < {*lake.files()}
    assert len(lake.files()) == 2


def test_credentials_in_whose_time_nothing_was_finished_are_a_try(lake: Lake) -> None:
    """Without more the run says so in a sentence; gc removes what was cut off."""
    lake.fill(LARGE)
    words = (*STANDING, "--max-retries", "0")

    code, output = begun_and_ended(lake, *words, when=lambda: lake.uploads() != [])

    assert code == 4, output
    assert "The credentials have expired: get new ones" in output
    assert lake.files() == []
    again = lake.ended("export", *lake.words())
    assert again[0] == 0, again[1]
    assert sorted(row["k"] for row in lake.rows()) == list(range(ROWS))
    swept = lake.ended("gc", "--to", f"far.{lake.name}", *lake.keeps, "--yes")
    assert swept[0] == 0, swept[1]
    assert lake.uploads() == []
    assert len(lake.files()) == 2
