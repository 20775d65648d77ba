"""Every seam once for real: a killed process, a real ClickHouse, Spark, SQLite; then again.

`python -m tests.enumeration.real` takes a quarter of an hour; `--seams 5` tries every fifth. Deaths
before and after an effect take turns. What faults do, and not only death, the memory world tries.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg import open_catalog
from catalog.ledgers.embedded import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.cli.main import invoke
from tableformat.ledger import State
from tests.enumeration.real_process import NEVER, TO
from tests.repository.source_files import ROOT

__all__ = ["prepare", "strike", "undisturbed"]

_ROWS: Final = {"1": 7_000, "2": 5_000, "3": 11}


def prepare(directory: Path) -> None:
    """Make a source of three partitions, the first with parts of several levels."""
    with EmbeddedConnection(directory / "clickhouse", create=True) as connection:
        connection.command("CREATE DATABASE db")
        connection.command(
            "CREATE TABLE db.seams (p UInt8, n UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY n"
        )
        for partition, rows in _ROWS.items():
            for part in range(2):
                connection.command(
                    f"INSERT INTO db.seams SELECT {partition}, {partition}000000 + number"
                    f" FROM numbers({rows}) WHERE number % 2 = {part}"
                )


def run(directory: Path, number: int, when: str) -> tuple[int, list[str]]:
    """Run the export in a process; return its exit code and the effects that it came to."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.enumeration.real_process", directory, str(number), when],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


def undisturbed(prepared: Path) -> list[str]:
    """Return the effects of a run to which nothing happens, checked as all others are."""
    with _World(prepared) as world:
        code, steps = run(world, NEVER, "after")
        assert code == 0
        _check(world)
    return steps


def strike(prepared: Path, number: int, step: str) -> None:
    """Kill an export at one seam, export again, and check everything.

    Raises:
        AssertionError: something is not as without the death.
    """
    when = "after" if number % 2 else "before"
    with _World(prepared) as world:
        code, steps = run(world, number, when)
        assert (code, steps[-1]) == (-signal.SIGKILL, step), (code, steps[-1:])
        assert run(world, NEVER, "after")[0] == 0
        _check(world)


class _World:
    """A copy of what was prepared, removed afterwards."""

    def __init__(self, prepared: Path) -> None:
        self._prepared, self._directory = prepared, Path(tempfile.mkdtemp())

    def __enter__(self) -> Path:
        return shutil.copytree(self._prepared, self._directory / "world", symlinks=True)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._directory)


def _check(directory: Path) -> None:
    """Every row once, one export a partition, and after gc no file that nobody needs."""
    warehouse = directory / "warehouse"
    table = open_catalog("lake", warehouse=warehouse).catalog.load_table(TO.identifier)
    found = Counter(table.scan().to_arrow()["n"].to_pylist())
    assert found == Counter(
        int(p) * 1_000_000 + n for p, rows in _ROWS.items() for n in range(rows)
    )
    ledger = SqliteLedger(warehouse / LEDGER_FILE)
    rows = tuple(ledger.rows())
    leases = [r.key.partition_id for r in rows if ledger.holder(r.key.hash) is not None]
    ledger.close()
    assert {(r.key.partition_id, r.state, len(r.landed)) for r in rows} == {
        (p, State.COMPLETED, 1) for p in _ROWS
    }
    assert leases == []
    where = ["--to", str(TO), "--warehouse", str(warehouse)]
    source = ["--source", f"chdb:{directory / 'clickhouse'}"]
    said = io.StringIO()
    assert invoke(["gc", "--yes", *where, *source], said, said) == 0, said.getvalue()
    named = {t.file.file_path.removeprefix("file://") for t in table.scan().plan_files()}
    stored = {str(p) for p in warehouse.rglob("*.parquet")}
    assert stored == named, f"files that no snapshot needs: {stored - named}"


def main() -> int:
    """Try the seams; return 1 when any ended wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tests.enumeration.real")
    parser.add_argument("--seams", type=int, default=1, metavar="N", help="every N-th only")
    every = parser.parse_args().seams
    wrong = tried = 0
    with tempfile.TemporaryDirectory() as made:
        prepared = Path(made) / "prepared"
        prepared.mkdir()
        prepare(prepared)
        for number, step in list(enumerate(undisturbed(prepared)))[::every]:
            began, tried = time.monotonic(), tried + 1
            try:
                strike(prepared, number, step)
                word = "pass"
            except AssertionError as error:
                word, wrong = f"FAIL {error}", wrong + 1
            seconds = time.monotonic() - began
            sys.stdout.write(f"seam {number:>3} {step:24} {seconds:5.1f} s  {word}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{tried} seams, {wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
