"""Every seam once for real: a killed process, a real ClickHouse, Spark, SQLite; then again.

`python -m tests.enumeration.real` takes a quarter of an hour; `--seams 5` tries every fifth. Deaths
before and after an effect take turns. What faults do, and not only death, the memory world tries.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.cli.main import invoke
from tableformat.ledger import State
from tests.enumeration.real_process import NEVER, TO
from tests.repository.source_files import ROOT

__all__ = ["WHOLE", "Left", "prepare", "strike", "undisturbed"]

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


def run(directory: Path, at: int | str, when: str) -> tuple[int, list[str]]:
    """Run the export in a process; return its exit code and the effects that it came to."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.enumeration.real_process", directory, str(at), when],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


@dataclass(frozen=True, slots=True)
class Left:
    """What exports have left, after `gc`: equal to `WHOLE` when nothing was lost or doubled.

    `rows` has how often each number of a partition is in main, as (once, more often);
    `landed` how often each partition landed, `leases` those that somebody still has, `unneeded` the
    data files that main does not name, `missing` those that it names in vain.
    """

    rows: tuple[tuple[str, int, int], ...]
    landed: tuple[tuple[str, State, int], ...]
    leases: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


WHOLE: Final = Left(
    tuple((p, rows, 0) for p, rows in _ROWS.items()),
    tuple((p, State.COMPLETED, 1) for p in _ROWS),
)


def undisturbed(prepared: Path) -> tuple[list[str], Left]:
    """Return the effects of a run to which nothing happens, and what it leaves."""
    with _world(prepared) as world:
        code, steps = run(world, NEVER, "after")
        assert code == 0
        return steps, _left(world)


def strike(prepared: Path, at: int | str, step: str, when: str) -> Left:
    """Kill an export at one seam, export again, and return what is left.

    Args:
        prepared: the world as it begins.
        at: the number of an effect, or the name of a step, of which it is the first.
        step: the name of the effect.
        when: before or after it.

    Raises:
        AssertionError: it did not die there, or the second run failed.
    """
    with _world(prepared) as world:
        code, steps = run(world, at, when)
        assert (code, steps[-1]) == (-signal.SIGKILL, step), (code, steps[-1:])
        assert run(world, NEVER, "after")[0] == 0
        return _left(world)


@contextlib.contextmanager
def _world(prepared: Path) -> Iterator[Path]:
    """Make a copy of what was prepared; ClickHouse's links stay within it."""
    with tempfile.TemporaryDirectory() as made:
        yield shutil.copytree(prepared, Path(made) / "world", symlinks=True)


def _left(directory: Path) -> Left:
    """Look at main, the ledger and the disk, when `gc` has removed what it can."""
    warehouse = directory / "warehouse"
    table = open_catalog("lake", warehouse=warehouse).catalog.load_table(TO.identifier)
    ledger = SqliteLedger(warehouse / LEDGER_FILE)
    with contextlib.closing(ledger):
        rows = sorted(ledger.rows(), key=lambda r: r.key.partition_id)
        held = tuple(r.key.partition_id for r in rows if ledger.holder(r.key.hash) is not None)
    where = ["--to", str(TO), "--warehouse", str(warehouse)]
    source = ["--source", f"chdb:{directory / 'clickhouse'}"]
    output = io.StringIO()
    assert invoke(["gc", "--yes", *where, *source], output, output) == 0, output.getvalue()
    named = {t.file.file_path.removeprefix("file://") for t in table.scan().plan_files()}
    stored = {str(p) for p in warehouse.rglob("*.parquet")}
    return Left(
        tuple(_counted(Counter(table.scan().to_arrow()["n"].to_pylist()))),
        tuple((r.key.partition_id, r.state, len(r.landed)) for r in rows),
        held,
        tuple(sorted(stored - named)),
        tuple(sorted(named - stored)),
    )


def _counted(found: Counter[int]) -> Iterator[tuple[str, int, int]]:
    """Count the numbers of each partition; one that nobody wrote is a partition of its own."""
    known = {_number(p, n): p for p, rows in _ROWS.items() for n in range(rows)}
    times = Counter((known.get(n, f"stranger {n}"), count == 1) for n, count in found.items())
    for partition in sorted({p for p, _ in times}):
        yield partition, times[partition, True], times[partition, False]


def _number(partition: str, row: int) -> int:
    return int(partition) * 1_000_000 + row


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
        steps, left = undisturbed(prepared)
        assert left == WHOLE, left
        for number, step in list(enumerate(steps))[::every]:
            began, tried = time.monotonic(), tried + 1
            try:
                left = strike(prepared, number, step, "after" if number % 2 else "before")
                word = "pass" if left == WHOLE else f"FAIL {left}"
            except AssertionError as error:
                word = f"FAIL {error}"
            wrong += word != "pass"
            seconds = time.monotonic() - began
            sys.stdout.write(f"seam {number:>3} {step:24} {seconds:5.1f} s  {word}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{tried} seams, {wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
