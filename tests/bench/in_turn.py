"""A slice that is read before it is written, against one that is read meanwhile."""

from __future__ import annotations

from pathlib import Path

from tests.bench.data import Dataset
from tests.bench.prepare import prepare
from tests.bench.report import Goals, Section
from tests.bench.series import take_pairs, transfer_side

__all__ = ["measure_in_turn"]


def measure_in_turn(directory: Path, dataset: Dataset, rows: int, pairs: int) -> Section:
    """Measure output_format_parallel_formatting = 0 against 1, of one slice.

    Args:
        directory: empty; everything is made there.
        dataset: the table.
        rows: of the slice.
        pairs: measurements of each side.

    Raises:
        TableFormatError: a step of the product failed.
    """
    job = prepare(directory, dataset, rows)
    prepared = directory / "prepared"
    job.save(prepared)
    taken = take_pairs(
        pairs,
        transfer_side("mergeberg-in-turn", prepared, directory / "in-turn"),
        transfer_side("mergeberg", prepared, directory / "beside"),
        job.slices[0].rows or 0,
    )
    title = f"{dataset.name}, a slice read before it is written"
    return Section(title, taken, Goals.of(gated=False), gated=False, against="meanwhile")
