"""A source whose every row is a number of its own, and a writer of real files with these numbers.

Whatever file a row is in, also one that another engine wrote, it is seen to be there once or twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tableformat.export.slices import Slice
from tableformat.mergetree.table import Part
from tableformat.names import PartitionId
from tests.support.fakes import FakeWriter
from tests.support.scenarios import Partitions

__all__ = ["OF_PARTITION", "NumberWriter", "Numbers"]

OF_PARTITION: Final = 10_000
"""Numbers that a partition has for its rows, at most; `p1` has those from 0."""


@dataclass
class Numbers(Partitions):
    """A source in which every row is a number; `ids` has those of a part by its hash."""

    by_id: dict[str, list[Part]] = field(default_factory=dict)
    ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    blocks: Counter[str] = field(default_factory=Counter)

    def grow(self, partition: str, rows: int) -> None:
        """Insert rows that were never there."""
        self.blocks[partition] += 1
        block = self.blocks[partition]
        # The first rows of the first partition are 0, 1, ..., of which operators delete one.
        first = OF_PARTITION * (int(partition[1:]) - 1) + (200 + 50 * block if block > 1 else 0)
        self._add(partition, block, block, 0, tuple(range(first, first + rows)))

    def merge(self, partition: str) -> None:
        """Merge all parts into one."""
        parts = self.by_id.pop(partition)
        ids = tuple(i for p in parts for i in self.ids[p.hash_of_all_files])
        level = max(p.level for p in parts) + 1
        self._add(partition, parts[0].min_block, parts[-1].max_block, level, ids)

    def shrink(self, partition: str) -> None:
        """Drop the last part, unless it is the only one."""
        if len(self.by_id[partition]) > 1:
            self.by_id[partition].pop()

    def numbers(self, partition: str) -> set[int]:
        """Return the rows of a partition."""
        return {i for p in self.by_id[partition] for i in self.ids[p.hash_of_all_files]}

    def _add(self, partition: str, low: int, high: int, level: int, ids: tuple[int, ...]) -> None:
        name, rows = f"{partition}_{low}_{high}_{level}", len(ids)
        content = f"hash of {name} {ids}"
        self.ids[content] = ids
        self.by_id.setdefault(partition, []).append(
            Part(
                name, PartitionId(partition), rows, rows * 10, rows * 40, content, "/parts",
                f"/parts/{name}", "Compact", low, high, level, low, has_lightweight_delete=False,
            )
        )  # fmt: skip


class NumberWriter(FakeWriter):
    """Writes the numbers of the source into real files."""

    def __init__(self, ids: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self._ids = ids

    def content(self, piece: Slice) -> bytes:
        found = [i for r in piece.ranges for i in self._ids[r.hash_of_all_files][r.start : r.stop]]
        column = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"}, nullable=False)
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table([pa.array(found)], pa.schema([column])), sink)
        return bytes(sink.getvalue())
