"""Whole exports into gs: an Iceberg table by a catalog in a database, and a tree of directories.

As a user runs them: a process of its own, and tasks on Spark, which get what they need from there.
The store is a local one, over TLS.
"""

from __future__ import annotations

import os
import secrets
import signal
from pathlib import Path

import pytest

from catalog.storages.gs.access import ENDPOINT
from tests.far_lake import SECONDS, SMALL, FarLake
from tests.local_spark import SPARK_MARKS
from tests.services.fake_gcs import FakeGcs
from tests.services.server_process import wait_until

pytestmark = SPARK_MARKS

# At random, so that a file of them is large, too.
LARGE = "'x', number, randomPrintableASCII(20000)"


def made(store: FakeGcs, directory: Path, *, of: str = SMALL) -> FarLake:
    """Make a bucket, a catalog with its warehouse there, and a table to export into it."""
    bucket, token = store.make_bucket(), f"s3cret-{secrets.token_hex(12)}"
    return FarLake(
        directory,
        f"gs://{bucket}",
        {"gcs.oauth2.token": token, **store.properties},
        {"STORAGE_EMULATOR_HOST": store.endpoint, "SSL_CERT_FILE": str(store.ca_file)},
        lambda: store.objects(bucket),
        token,
        of,
    )


def test_an_export_into_gs_is_there_once_and_shows_no_secret(
    gs_server: FakeGcs, tmp_path: Path
) -> None:
    """The second run finds it there, and compares it with the source."""
    lake = made(gs_server, tmp_path)

    first = lake.exported("first")
    written = lake.objects()
    second = lake.exported("second")

    assert (first.code, first.out.count(" exported"), first.out.count("verified")) == (0, 2, 2), (
        first.out + first.err
    )
    assert (second.code, second.out.count("already exported")) == (0, 2), second.out + second.err
    lake.is_there_once(written=written)
    assert {row["p"] for row in lake.rows()} == {"a b", "ü=%2F"}
    assert len(lake.files()) == 2
    for run in (first, second):
        assert run.shows() == []
    assert first.broadcast_modes == {(0o600, 0o700)}


@pytest.mark.soak
def test_a_tree_in_gs_is_written_once_and_can_be_verified(
    gs_server: FakeGcs, tmp_path: Path
) -> None:
    lake = made(gs_server, tmp_path)
    to = f"hive:{lake.root}/a tree"

    first = lake.ended("export", *lake.words("--verify", to=to))
    written = lake.objects()
    second = lake.ended("export", *lake.words(to=to))
    verified = lake.ended("verify", *lake.words(to=to))

    assert (first[0], first[1].count("verified")) == (0, 2), first[1]
    assert (second[0], second[1].count("already exported")) == (0, 2), second[1]
    assert verified[0] == 0, verified[1]
    assert lake.objects() == written
    assert sorted(name.split("/")[1] for name in lake.files()) == ["p=a%20b", "p=ü%3D%252F"]


@pytest.mark.soak
def test_what_is_killed_in_the_middle_of_a_file_shows_nothing_of_it(
    gs_server: FakeGcs, tmp_path: Path
) -> None:
    """Harm prevented: half a file under its name."""
    lake = made(gs_server, tmp_path, of=LARGE)

    slowly = ("--master", "local[1]", "--max-bandwidth", "5000000")
    command = lake.begin("export", *lake.words(*slowly))
    wait_until(
        lambda: command.poll() is not None or lake.objects() != [],
        "the table was made",
        seconds=SECONDS,
    )
    assert command.poll() is None, command.communicate()
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate(timeout=SECONDS)

    assert lake.files() == []
    code, said = lake.ended("export", *lake.words("--master", "local[1]"))
    assert code == 0, said
    lake.is_there_once()
    swept = lake.ended("gc", "--to", "far.n.t", "--ledger", lake.ledger, "--yes")
    assert swept[0] == 0, swept[1]
    assert len(lake.files()) == 1
    assert lake.ended("verify", *lake.words())[0] == 0


def test_a_bucket_that_is_not_there_fails_at_once_and_says_what_to_do(
    gs_server: FakeGcs, tmp_path: Path
) -> None:
    """Harm prevented: fifteen minutes of trying what will never work."""
    lake = made(gs_server, tmp_path)
    lake.root = "gs://no-such-bucket"

    run = lake.exported("run")

    assert run.code == 4, run.out + run.err
    assert "Make the bucket" in run.err
    assert "safe to run again" in run.err
    assert run.shows() == []


def test_http_is_refused_before_anything_is_begun(gs_server: FakeGcs, tmp_path: Path) -> None:
    lake = made(gs_server, tmp_path)
    lake.of_store[ENDPOINT] = "http://store.example"

    run = lake.exported("run")

    assert run.code != 0
    assert "over http everybody on the way reads the rows" in run.err
    assert lake.objects() == []
