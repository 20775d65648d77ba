"""Statements that change rows in the small world, where a row is a number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalog.clickhouse.rows.files import ROW_NUMBER
from catalog.rewriting.changed_rows import ChangedFiles
from catalog.rewriting.file_partitions import OwnPartitions
from tableformat.committer import BranchFile
from tableformat.effects import Effects
from tableformat.export.outcome import Outcome
from tableformat.ledger import StatementKind
from tableformat.names import LakeName
from tableformat.operations.rewrite import ChangeRows, ChangingKind
from tableformat.operations.statement import AllPartitions, FileRewriter, OnePartition, Rewrite
from tableformat.parquet.writer import FileFormat
from tests.places.found import place_at
from tests.support.lake_statements import ForeignPartitions, running
from tests.support.scenarios import TO

__all__ = ["change", "clear_numbers", "numbers_in"]

_SPAN = 1_000


@dataclass(frozen=True)
class _Rows:
    """Deletes the numbers within bounds, or adds a thousand to those that are still there.

    Or `clears` them: they are zero then, which is the column's default.
    """

    below: int
    deletes: bool
    above: int
    clears: bool = False

    @property
    def sets(self) -> tuple[str, ...]:
        return () if self.deletes else ("n",)

    def __call__(self, files: tuple[BranchFile, ...]) -> tuple[Rewrite | None, ...]:
        return tuple(self._of(file) for file in files)

    def _of(self, file: BranchFile) -> Rewrite | None:
        numbers = self._numbers(file.path)
        hit = pc.sum(self._hits(numbers)).as_py() or 0
        left = len(numbers) - hit if self.deletes else len(numbers)
        return Rewrite((file,), hit, (left,) if left else ()) if hit else None

    @contextmanager
    def left(self, path: str) -> Iterator[pa.Table]:
        numbers = self._numbers(path)
        hit = self._hits(numbers)
        rows = pa.array(range(len(numbers)), pa.uint64())
        if self.deletes:
            yield pa.table({ROW_NUMBER: rows.filter(pc.invert(hit).combine_chunks())})
            return
        moved = pc.if_else(hit, 0 if self.clears else pc.add(numbers, _SPAN), numbers)
        fields = [pa.field(ROW_NUMBER, pa.uint64()), pa.field("n", pa.int64(), nullable=False)]
        yield pa.table([rows, moved], pa.schema(fields))

    def _hits(self, numbers: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.and_(pc.less(numbers, self.below), pc.greater(numbers, self.above))

    @staticmethod
    def _numbers(path: str) -> pa.ChunkedArray:
        return pq.read_table(path.removeprefix("file://")).column(0)


def numbers_in(path: str) -> list[int]:
    """Return the rows of a file."""
    found: list[int] = pq.read_table(path.removeprefix("file://")).column(0).to_pylist()
    return found


def change(
    directory: Path,
    which: OnePartition | AllPartitions,
    *,
    between: tuple[int, int] = (-1, 3),
    deletes: bool = False,
    effects: Effects | None = None,
    rows: ForeignPartitions | None = None,
    name: LakeName = TO,
    alive: bool = False,
) -> Outcome:
    """Change the numbers between two bounds, which stay themselves, as a new process."""
    above, below = between
    verb = "DELETE" if deletes else "UPDATE n = n + 1000"
    text = f"{verb} IN {which} WHERE n > {above} AND n < {below}"
    kind: ChangingKind = StatementKind.DELETE if deletes else StatementKind.UPDATE
    changes = _Rows(below, deletes, above)
    return _run(directory, which, (kind, text), changes, effects, rows, name, alive=alive)


def clear_numbers(
    directory: Path,
    which: OnePartition,
    *,
    effects: Effects | None = None,
    rows: ForeignPartitions | None = None,
    alive: bool = False,
) -> Outcome:
    """Give every number the column's default, zero, as a new process."""
    changes = _Rows(10_000, deletes=False, above=0, clears=True)
    text = f"CLEAR COLUMN n IN {which}"
    kind: ChangingKind = StatementKind.CLEAR_COLUMN
    return _run(directory, which, (kind, text), changes, effects, rows, TO, alive=alive)


def _run(
    directory: Path,
    which: OnePartition | AllPartitions,
    statement: tuple[ChangingKind, str],
    changes: _Rows,
    effects: Effects | None,
    rows: ForeignPartitions | None,
    name: LakeName,
    *,
    alive: bool,
) -> Outcome:
    kind, text = statement
    found = place_at(directory).lake().table(name)
    assert found is not None
    ready = running(directory, effects=effects, rows=rows, table=found, name=name, alive=alive)
    state, partitions = found.load(), OwnPartitions(found.storages)
    files = ChangedFiles(found.storages, changes, FileFormat(), partitions=partitions)
    asked = "" if changes.deletes or changes.clears else text
    ready = replace(ready, ports=replace(ready.ports, writer=FileRewriter(files), asked=asked))
    of = partial(partitions, state=state)
    schema_id = state.layout.schema_id
    return ready.run(ChangeRows(which, kind, text, changes, schema_id, partition_of=of))
