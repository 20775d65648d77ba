"""`make bench`: an export of ours against ClickHouse's own Parquet INSERT, in one run.

python -m tests.bench [--rows N] [--pairs N] [--partitions N]
                      [--data hits|metrics|many|served|in_turn|alternatives] [--directory DIR]
python -m tests.bench --quick [--directory DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench.alternatives import measure_alternatives, table
from tests.bench.data import DATASETS, Dataset
from tests.bench.in_turn import measure_in_turn
from tests.bench.many import measure_many
from tests.bench.prepare import prepare
from tests.bench.quick import measure_quick, verdict
from tests.bench.report import Goals, Section, report
from tests.bench.series import spark_side, take_pairs, transfer_side
from tests.bench.served import measure_served

_ALTERNATIVES: Final = "alternatives"
_IN_TURN: Final = "in_turn"
_MANY: Final = "many"
_SERVED: Final = "served"


def main() -> int:
    """Measure, print the table, and return the exit code."""
    names = [*(d.name for d in DATASETS), _MANY, _SERVED, _IN_TURN, _ALTERNATIVES]
    arguments = argparse.ArgumentParser(prog="python -m tests.bench")
    arguments.add_argument("--rows", type=int, default=2_000_000, help="of a partition of hits")
    arguments.add_argument("--pairs", type=int, default=7)
    arguments.add_argument("--partitions", type=int, default=1_000, help="of many")
    arguments.add_argument("--data", choices=names, action="append", help="default: all")
    arguments.add_argument("--quick", action="store_true", help="compare with ratios.toml")
    arguments.add_argument("--directory", type=Path, help="where everything is made for a while")
    given = arguments.parse_args()
    if not sys.platform.startswith("linux"):
        message = "Cannot run the benchmark: it reads processor time from /proc. Run it on Linux."
        raise SystemExit(message)
    if given.directory is not None:
        given.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mergeberg-bench-", dir=given.directory) as made:
        if given.quick:
            return _quick(Path(made).absolute())
        for dataset in DATASETS:
            if dataset.name in (given.data or names):
                directory = Path(made).absolute() / dataset.name
                directory.mkdir()
                _say(report(sections(directory, dataset, given.rows * dataset.rows, given.pairs)))
        if _MANY in (given.data or names):
            _say(f"· exporting {given.partitions:,} partitions")
            directory = Path(made).absolute() / _MANY
            directory.mkdir()
            _say(report([measure_many(directory, given.partitions, given.pairs)]))
        if _SERVED in (given.data or names):
            _say("· exporting from a server")
            directory = Path(made).absolute() / _SERVED
            directory.mkdir()
            _say(report([measure_served(directory, DATASETS[0], given.rows, given.pairs)]))
        if _IN_TURN in (given.data or names):
            _say("· reading first, and reading beside writing")
            directory = Path(made).absolute() / _IN_TURN
            directory.mkdir()
            _say(report([measure_in_turn(directory, DATASETS[0], given.rows, given.pairs)]))
        if _ALTERNATIVES in (given.data or names):
            for dataset in DATASETS:
                _say(f"· {dataset.name} by every way into a lake")
                directory = Path(made).absolute() / f"{_ALTERNATIVES}-{dataset.name}"
                directory.mkdir()
                rows = given.rows * dataset.rows
                _say(table(measure_alternatives(directory, dataset, rows, given.pairs)))
    return 0


def _quick(directory: Path) -> int:
    """Print a line for each table; return 1 if a ratio is above what is committed."""
    _say("· one slice of each table on one core")
    failed = False
    for checked in measure_quick(directory):
        _say(verdict(checked))
        failed |= checked.failed
    return int(failed)


def sections(directory: Path, dataset: Dataset, rows: int, pairs: int) -> list[Section]:
    """Measure one table: a slice on one core, and the whole job on two.

    Args:
        directory: empty; everything is made there.
        dataset: the table.
        rows: of each of its two partitions.
        pairs: measurements of each side.

    Raises:
        TableFormatError: a step of the product failed.
    """
    _say(f"· making {dataset.name}")
    job = prepare(directory, dataset, rows)
    prepared = directory / "prepared"
    job.save(prepared)
    goals = Goals.of(gated=dataset.gated)
    _say("· one slice on one core")
    one = take_pairs(
        pairs,
        transfer_side("mergeberg-1", prepared, directory / "ours"),
        transfer_side("clickhouse-1", prepared, directory / "theirs"),
        job.slices[0].rows or 0,
    )
    _say("· the whole job on two cores")
    with spark_side(prepared, directory / "spark") as ours:
        theirs = transfer_side("clickhouse-2", prepared, directory / "theirs")
        two = take_pairs(pairs, ours, theirs, job.rows)
    return [
        Section(f"{dataset.name}, one slice, one core", one, goals, dataset.gated),
        Section(f"{dataset.name}, Spark local[2], warm", two, goals, dataset.gated),
    ]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
