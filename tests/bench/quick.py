"""`make bench ARGS=--quick`: is a slice still as fast, and its file as small, as committed?

Times of two machines cannot be compared, ratios of two programs on one machine can. So what is
committed (ratios.toml) is mergeberg's CPU time and file size divided by those of ClickHouse's own
INSERT. The minima of few pairs decide when they are good enough. When they are not, more pairs are
taken before the result is a failure: a busy machine disturbs single runs, never all of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.data import DATASETS, Dataset
from tests.bench.prepare import prepare
from tests.bench.series import Side, Taken, take_pairs, transfer_side

__all__ = ["ROWS", "Checked", "Ratios", "check", "committed_ratios", "measure_quick", "verdict"]

ROWS: Final = 1_000_000
"""Of a slice of a mixed table: the start of a process is a small part of its time."""
_FILE: Final = Path(__file__).with_name("ratios.toml")
_TURN: Final = 2
"""Pairs that are taken at a time: the side that begins changes within."""
_LEAST: Final = 6
_MOST: Final = 16


@dataclass(frozen=True, slots=True)
class Ratios:
    """mergeberg's CPU seconds and bytes divided by ClickHouse's, and by how much they may grow."""

    cpu: float
    size: float
    tolerance: float

    @property
    def most(self) -> Ratios:
        """The ratios above which the check fails."""
        factor = 1 + self.tolerance
        return Ratios(self.cpu * factor, self.size * factor, 0.0)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was measured of a table, next to what is committed."""

    name: str
    measured: Ratios
    committed: Ratios
    pairs: int

    @property
    def failed(self) -> bool:
        """Whether a ratio is above the committed one by more than the tolerance."""
        most = self.committed.most
        return self.measured.cpu > most.cpu or self.measured.size > most.size


def committed_ratios() -> dict[str, Ratios]:
    """Return the committed ratios of each table."""
    found = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    tolerance = found.pop("tolerance")
    return {name: Ratios(of["cpu"], of["size"], tolerance) for name, of in found.items()}


def measure_quick(directory: Path, rows: int = ROWS) -> Iterator[Checked]:
    """Measure a slice of every table on one core, and compare.

    Args:
        directory: empty; everything is made there.
        rows: of a slice of a mixed table.

    Raises:
        AssertionError: a side did not write all rows.
        TableFormatError: a step of the product failed.
    """
    committed = committed_ratios()
    for dataset in DATASETS:
        own = directory / dataset.name
        own.mkdir()
        ours, theirs, written = _sides(own, dataset, rows * dataset.rows)
        pairs = partial(take_pairs, _TURN, ours, theirs, written)
        yield check(dataset.name, committed[dataset.name], pairs)


def _sides(directory: Path, dataset: Dataset, rows: int) -> tuple[Side, Side, int]:
    job = prepare(directory, dataset, rows)
    prepared = directory / "prepared"
    job.save(prepared)
    return (
        transfer_side("mergeberg-1", prepared, directory / "ours"),
        transfer_side("clickhouse-1", prepared, directory / "theirs"),
        job.slices[0].rows or 0,
    )


def check(name: str, committed: Ratios, more: Callable[[], Taken]) -> Checked:
    """Take pairs until the ratios of the minima are good enough, or there are enough of them.

    Args:
        name: of the table.
        committed: its ratios.
        more: takes a few pairs.
    """
    taken = more()
    while True:
        measured = Ratios(taken.ratio(lambda f: f.cpu), taken.ratio(lambda f: f.bytes), 0.0)
        found = Checked(name, measured, committed, len(taken.ours))
        if found.pairs >= _MOST or (found.pairs >= _LEAST and not found.failed):
            return found
        further = more()
        taken = Taken(taken.ours + further.ours, taken.theirs + further.theirs)


def verdict(checked: Checked) -> str:
    """Return one line: the ratios, what they may be, and whether that holds."""
    measured, committed, most = checked.measured, checked.committed, checked.committed.most
    return (
        f"{checked.name}: CPU ratio {measured.cpu:.2f} (committed {committed.cpu:.2f}, at most"
        f" {most.cpu:.2f}), size ratio {measured.size:.2f} (committed {committed.size:.2f}, at most"
        f" {most.size:.2f}), {checked.pairs} pairs: {'FAILED' if checked.failed else 'ok'}"
    )
