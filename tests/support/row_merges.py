"""OPTIMIZE in the small world, where a row is a number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from catalog.clickhouse.rows.files import FILE_NUMBER, ROW_NUMBER
from catalog.rewriting.file_partitions import OwnPartitions
from catalog.rewriting.merged_files import MergedFiles, RowOrder
from tableformat.committer import BranchFile
from tableformat.effects import Effects
from tableformat.export.outcome import Outcome
from tableformat.names import LakeName
from tableformat.operations.rewrite import Left, Optimize
from tableformat.operations.statement import AllPartitions, FileRewriter, OnePartition
from tableformat.parquet.writer import FileFormat
from tests.places.found import place_at
from tests.support.lake_statements import ForeignPartitions, running
from tests.support.row_changes import numbers_in
from tests.support.scenarios import TO

__all__ = ["LARGE", "optimize"]

LARGE = 1 << 20
"""A target size that all files of a partition stay below."""


@dataclass(frozen=True)
class _Sorted:
    """Sorts rows by their number; of equal ones only the first is left, if asked for."""

    deduplicates: bool
    sets: tuple[str, ...] = ()

    def __call__(self, files: tuple[BranchFile, ...]) -> Left:
        rows = len(self._found(files))
        return Left(rows, rows)

    @contextmanager
    def ordered(self, files: tuple[BranchFile, ...]) -> Iterator[pa.Table]:
        found = self._found(files)
        columns = {FILE_NUMBER: [f for f, _ in found], ROW_NUMBER: [r for _, r in found]}
        yield pa.table(columns, pa.schema([(name, pa.uint64()) for name in columns]))

    def _found(self, files: tuple[BranchFile, ...]) -> list[tuple[int, int]]:
        every = sorted(
            (number, at, row)
            for at, file in enumerate(files)
            for row, number in enumerate(numbers_in(file.path))
        )
        seen = {number: (at, row) for number, at, row in reversed(every)}
        kept = seen.values() if self.deduplicates else [(at, row) for _, at, row in every]
        return list(reversed(kept)) if self.deduplicates else list(kept)


def optimize(
    directory: Path,
    which: OnePartition | AllPartitions,
    *,
    deduplicates: bool = False,
    target_bytes: int = LARGE,
    effects: Effects | None = None,
    rows: ForeignPartitions | None = None,
    name: LakeName = TO,
    alive: bool = False,
) -> Outcome:
    """Merge the files of a partition, as a new process."""
    found = place_at(directory).lake().table(name)
    assert found is not None
    ready = running(directory, effects=effects, rows=rows, table=found, name=name, alive=alive)
    order = _Sorted(deduplicates)
    state, partitions = found.load(), OwnPartitions(found.storages)
    files = MergedFiles(found.storages, order, FileFormat(), RowOrder(), partitions=partitions)
    ready = replace(ready, ports=replace(ready.ports, writer=FileRewriter(files)))
    text = f"OPTIMIZE TABLE {which}{' DEDUPLICATE' if deduplicates else ''}"
    left = order if deduplicates else None
    of = partial(partitions, state=state)
    return ready.run(Optimize(which, text, state.layout.schema_id, target_bytes, left, of))
