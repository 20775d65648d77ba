"""`make big`: twenty million rows through the ordinary command, every value compared.

python -m tests.big [--rows N] [--directory DIR [--keep]] [--target-file-size MIB] [--master M]
                    [--kills N [--seed S]] [--columns N]

With `--kills 10` the export is killed ten times at random moments before it is left alone. With
`--columns 2000` the table has its columns a hundred times, each time under other names.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.big.check import report
from tests.big.export import Big
from tests.big.table import COLUMNS, columns_of, partitions


def main() -> int:
    """Run, print the table, and return the exit code."""
    arguments = argparse.ArgumentParser(prog="python -m tests.big")
    arguments.add_argument("--rows", type=int, default=20_000_000)
    arguments.add_argument("--target-file-size", type=int, default=64, metavar="MIB")
    arguments.add_argument("--master", default=f"local[{min(2, os.cpu_count() or 1)}]")
    arguments.add_argument("--directory", type=Path, help="where everything is made")
    arguments.add_argument("--keep", action="store_true", help="do not remove it afterwards")
    arguments.add_argument("--kills", type=int, default=0, metavar="N", help="kill it so often")
    arguments.add_argument("--columns", type=int, default=len(COLUMNS), help="at least as many")
    arguments.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    given = arguments.parse_args()
    with _directory(given.directory, keep=given.keep) as directory:
        big = Big(
            directory, partitions(given.rows), given.target_file_size, given.master, given.kills,
            given.seed, columns_of(max(given.columns, len(COLUMNS))),
        )  # fmt: skip
        checks, notes = big.run(lambda text: _say(f"· {text}"))
    table, failed = report(checks, notes)
    _say(table)
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _directory(chosen: Path | None, *, keep: bool) -> Iterator[Path]:
    """Make a directory of our own, inside the chosen one; what else is there is left alone."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="mergeberg-big-", dir=chosen)).absolute()
    try:
        yield made
    finally:
        if keep:
            _say(f"kept: {made}")
        else:
            shutil.rmtree(made)


if __name__ == "__main__":
    sys.exit(main())
