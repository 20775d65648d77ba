"""A series of pairs: the two sides take turns, and the best of each is compared.

Minima and processor seconds are what a busy machine disturbs least.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.figures import Figures

__all__ = ["Side", "Taken", "process_side", "spark_side", "take_pairs", "transfer_side"]

_ROOT: Final = Path(__file__).parents[2]

Side = Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Taken:
    """The figures of both sides, in the order in which they were taken."""

    ours: tuple[Figures, ...]
    theirs: tuple[Figures, ...]

    def ratio(self, figure: Callable[[Figures], float]) -> float:
        """Return our least figure divided by theirs."""
        return min(map(figure, self.ours)) / min(map(figure, self.theirs))


def take_pairs(pairs: int, ours: Side, theirs: Side, rows: int) -> Taken:
    """Measure both sides in turns, the first of a pair last in the next.

    Raises:
        AssertionError: a side did not write all rows.
    """
    found: dict[Side, list[Figures]] = {ours: [], theirs: []}
    for number in range(pairs):
        for side in (ours, theirs) if number % 2 == 0 else (theirs, ours):
            figures = side()
            if figures.rows != rows:
                message = f"a side wrote {figures.rows} rows of {rows}"
                raise AssertionError(message)
            found[side].append(figures)
    return Taken(tuple(found[ours]), tuple(found[theirs]))


def transfer_side(name: str, prepared: Path, scratch: Path) -> Side:
    """Return a side that is a fresh process for every measurement."""

    def once() -> Figures:
        with _directory(scratch) as directory:
            done = subprocess.run(
                [sys.executable, "-m", "tests.bench.transfer", name, str(prepared), str(directory)],
                cwd=_ROOT,
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return Figures.from_json(done.stdout.splitlines()[-1])

    return once


def spark_side(prepared: Path, scratch: Path) -> contextlib.AbstractContextManager[Side]:
    """Open a side that is one warm Spark application for all measurements."""
    return process_side("tests.bench.spark_job", str(prepared), str(scratch), scratch=scratch)


@contextlib.contextmanager
def process_side(module: str, *arguments: str, scratch: Path, warm: bool = True) -> Iterator[Side]:
    """Open a side that is one process, which measures once for every line of its input.

    Args:
        module: what is run.
        arguments: of it.
        scratch: a directory that is made for it and removed.
        warm: let it measure once in vain.
    """
    with _directory(scratch):
        child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=_ROOT,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        to_child, from_child = child.stdin, child.stdout

        def once() -> Figures:
            to_child.write("\n")
            to_child.flush()
            return Figures.from_json(from_child.readline())

        try:
            if warm:
                # The first job starts the Python workers; no later one does.
                once()
            yield once
        finally:
            to_child.close()
            child.wait()
            from_child.close()


@contextlib.contextmanager
def _directory(scratch: Path) -> Iterator[Path]:
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


def _environment() -> dict[str, str]:
    path = os.pathsep.join(p for p in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if p)
    return os.environ | {"PYTHONPATH": path}
