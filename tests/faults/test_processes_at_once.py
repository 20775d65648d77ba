"""Real processes on one ClickHouse directory: several at once, and one that is killed ten times.

The real command, real parts and real files; only Spark is replaced, by one child process that runs
the same task code (tests/support/child_writer.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.ledger import State
from tests.big.kills import finished_files
from tests.repository.source_files import ROOT

ROWS: Final = 1_500_000
PARTITIONS: Final = 5
KILLS: Final = 10
MOST_FILES: Final = 6
"""Files after which a kill comes at the latest, so that there is something left for the next."""
_COMMAND: Final = """
from spark_ext.actions import export_ports
from spark_ext.cli.main import run
from tests.support.child_writer import ChildWriter

for name in ("check", "begin", "result"):
    setattr(export_ports.SparkWhenNeeded, name, lambda _: None)
export_ports.SparkWhenNeeded.done = lambda _: True
export_ports.SparkWriter = lambda _, server, __: ChildWriter(lambda *_: None, server)
run()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a ClickHouse that has a table of five partitions."""
    with EmbeddedConnection(tmp_path / "clickhouse", create=True) as connection:
        connection.command("CREATE DATABASE db")
        connection.command(
            "CREATE TABLE db.t (p UInt8, id UInt32, a String) ENGINE = MergeTree PARTITION BY p"
            " ORDER BY id"
        )
        connection.command(
            f"INSERT INTO db.t SELECT number % {PARTITIONS}, number, hex(cityHash64(number))"
            f" FROM numbers({ROWS})"
        )
    return tmp_path


@contextlib.contextmanager
def exporting(directory: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command in a group of its own, and leave nothing of it."""
    words = ["export", "db.t", "--all", "--to", "lake.n.t", "--target-file-size", "1", *more]
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *words, "--master", "local[2]", "--source-wait", "120"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYICEBERG_HOME": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process with its writer; its ClickHouse ends when it hears nothing more."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for(process: subprocess.Popen[str], directory: Path, files: int) -> None:
    """Wait until a process has begun and finished so many more files, or has ended."""
    assert process.stderr is not None
    wanted = len(finished(directory)) + files
    # Before the first note it only starts.
    process.stderr.readline()
    while process.poll() is None and len(finished(directory)) < wanted:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)


def outcomes(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait for a process; return what it says of each partition."""
    out, err = process.communicate(timeout=240)
    assert process.returncode in (0, 6), err
    found = [json.loads(line) for line in out.splitlines()]
    return [one for one in found if "summary" not in one]


def files_in_main(directory: Path) -> dict[str, int]:
    """Return the rows of each file of main, by the file's name."""
    lake = open_catalog("lake", warehouse=directory / "warehouse").catalog
    tasks = lake.load_table("n.t").scan().plan_files()
    return {t.file.file_path.rsplit("/", 1)[-1]: t.file.record_count for t in tasks}


def finished(directory: Path) -> set[str]:
    """Return the names of the files that are finished."""
    return finished_files(directory / "warehouse")


def assert_exported_once(directory: Path) -> None:
    """Check the promise in what readers see, and that ledger, lease and source say the same."""
    lake = open_catalog("lake", warehouse=directory / "warehouse").catalog
    read = lake.load_table("n.t").scan().to_arrow()
    ids = read["id"].to_pylist()
    assert sorted(ids) == list(range(ROWS))
    assert read["p"].to_pylist() == [n % PARTITIONS for n in ids]
    ledger = SqliteLedger(directory / "warehouse" / LEDGER_FILE)
    with contextlib.closing(ledger):
        rows = list(ledger.rows())
        assert [(r.state, len(r.landed)) for r in rows] == [(State.COMPLETED, 1)] * PARTITIONS
        assert [ledger.holder(r.key.hash) for r in rows] == [None] * PARTITIONS


def staging(directory: Path) -> tuple[object, ...]:
    """Return the names of what is frozen in the source."""
    with EmbeddedConnection(directory / "clickhouse") as connection:
        return connection.rows(
            "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
        )


def test_three_commands_at_once_export_every_partition_once(directory: Path) -> None:
    """Harm prevented: rows twice, or a failure, because two schedules met."""
    with (
        exporting(directory, "--json") as one,
        exporting(directory, "--json") as other,
        exporting(directory, "--json") as third,
    ):
        reports = [o for process in (one, other, third) for o in outcomes(process)]

    assert_exported_once(directory)
    found = Counter((str(o["partition_id"]), str(o["status"])) for o in reports)
    assert {s for _, s in found} <= {"committed", "already_exported", "in_progress"}
    assert {p: found[p, "committed"] for p, _ in found} == {str(p): 1 for p in range(PARTITIONS)}
    assert staging(directory) == ()


def test_ten_kills_and_one_run_that_is_left_alone(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Harm prevented: a machine that dies again and again never gets done, or doubles rows."""
    chance = random.Random(20)  # noqa: S311  moments, not secrets
    killed = 0
    for _ in range(KILLS):
        with exporting(directory) as process:
            wait_for(process, directory, chance.randint(0, MOST_FILES))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=chance.uniform(0, 0.5))
            killed += process.poll() is None
    before = finished(directory)
    with exporting(directory, "--json") as process:
        assert len(outcomes(process)) == PARTITIONS

    assert_exported_once(directory)
    main = files_in_main(directory)
    assert killed > 0
    assert finished(directory) == set(main), "a finished file was written again"
    with capsys.disabled():
        share = len(before & set(main)) / len(main)
        text = (
            f"{killed} kills: {len(before & set(main))} of {len(main)} files reused ({share:.0%})"
        )
        sys.stdout.write(f"\n{text}\n")
    if staging(directory):
        # Of a dead run whose row was moved on only after this run had swept.
        with exporting(directory, "--json") as process:
            outcomes(process)
    assert staging(directory) == ()
