"""A short export from cold: the whole command, with the Spark that it starts, in turn with another.

    python -m tests.bench.cold_start
    python -m tests.bench.cold_start --pairs 9 --against '-XX:TieredStopAtLevel=4'
    python -m tests.bench.cold_start --archive

Each run exports 10,000 rows of an embedded ClickHouse into a new warehouse. The other one gets the
options of `--against` for its Java; without them, it is as before Spark was started with one of
Java's compilers. With `--archive`, ours starts with an archive of classes, and the other without.
Linux only: processes that outlive the command are counted, too.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.engine.java import ARCHIVE_SWITCH

__all__: list[str] = []

_ROWS: Final = 10_000
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_BOTH_COMPILERS: Final = "-XX:TieredStopAtLevel=4"
_OFF: Final = {_JAVA_OPTIONS: "", ARCHIVE_SWITCH: "off"}
_SET_CHILD_SUBREAPER: Final = 36
_ROOT: Final = Path(__file__).parents[2]


def _prepare(directory: Path, rows: int) -> None:
    """Create the source: one partition with that many rows."""
    columns = "(p UInt8, n UInt64, s String)"
    with EmbeddedConnection(directory / "clickhouse", create=True) as connection:
        for sql in (
            "CREATE DATABASE db",
            f"CREATE TABLE db.t {columns} ENGINE = MergeTree PARTITION BY p ORDER BY n",
            f"INSERT INTO db.t SELECT 0, number, toString(number) FROM numbers({rows})",
        ):
            connection.command(sql)


def _archived(directory: Path) -> dict[str, str]:
    """Make an archive of classes; return the variables with which a command uses it."""
    use = {_JAVA_OPTIONS: "", ARCHIVE_SWITCH: "on", "XDG_CACHE_HOME": f"{directory}/cache"}
    _run(directory, use)
    make = [sys.executable, "-P", "-m", "spark_ext.engine.java"]
    environ = {**os.environ, "PYTHONPATH": str(_ROOT), **use}
    subprocess.run(make, env=environ, check=True)
    return use


def _run(directory: Path, variables: Mapping[str, str]) -> tuple[float, float]:
    """Export the partition into a new warehouse; return wall and CPU seconds."""
    shutil.rmtree(directory / "warehouse", ignore_errors=True)
    names = ["export", "db.t", "--partition-id", "0", "--to", "lake.n.t"]
    places = ["--source", f"chdb:{directory}/clickhouse", "--warehouse", f"{directory}/warehouse"]
    program = [sys.executable, "-c", "from spark_ext.cli.main import run; run()"]
    environ = {**os.environ, "PYTHONPATH": str(_ROOT), **variables}
    # The Java ends after the command; it is this process's child then.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, began = _cpu_of_children(), perf_counter()
    subprocess.run([*program, *names, *places], env=environ, stdout=subprocess.PIPE, check=True)
    wall = perf_counter() - began
    while _has_children():
        os.waitpid(-1, 0)
    return wall, _cpu_of_children() - before


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure in turn, and print the minima and their ratio."""
    arguments = argparse.ArgumentParser(prog="python -m tests.bench.cold_start")
    arguments.add_argument("--pairs", type=int, default=7)
    arguments.add_argument("--rows", type=int, default=_ROWS)
    arguments.add_argument("--against", default=_BOTH_COMPILERS, help="options of the other's Java")
    arguments.add_argument("--archive", action="store_true", help="with an archive and without")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="mergeberg-cold-") as name:
        _prepare(Path(name), given.rows)
        our_way = _archived(Path(name)) if given.archive else _OFF
        their_way = _OFF if given.archive else {**_OFF, _JAVA_OPTIONS: given.against}
        ours: list[tuple[float, float]] = []
        theirs: list[tuple[float, float]] = []
        for number in range(given.pairs):
            pair = [(ours, our_way), (theirs, their_way)]
            for taken, variables in pair if number % 2 == 0 else reversed(pair):
                taken.append(_run(Path(name), variables))
    for what, at in (("wall", 0), ("CPU", 1)):
        one, other = (min(taken[at] for taken in side) for side in (ours, theirs))
        sys.stdout.write(f"{what:5} {one:6.2f} s  against {other:6.2f} s  {one / other:5.2f}\n")


if __name__ == "__main__":
    main()
