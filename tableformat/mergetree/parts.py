"""Parts and partitions as system.parts shows them, and the content identity made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tableformat.names import PartitionId

__all__ = ["NoTimes", "Part", "PartitionSummary", "Times", "fingerprint"]


@dataclass(frozen=True, slots=True)
class Part:
    """One active part.

    `rows` counts lightweight-deleted rows too, as system.parts does; `path` is the part's own
    directory, `disk` the root directory of the disk that it is on; `part_type` is Wide or Compact;
    sizes in bytes. `lacks` are the stored columns of its table of which it has no values, in
    declared order: ClickHouse computes them (`lacked_columns.py`).
    """

    name: str
    partition_id: PartitionId
    rows: int
    bytes_on_disk: int
    uncompressed_bytes: int
    hash_of_all_files: str
    disk: str
    path: str
    part_type: str
    min_block: int
    max_block: int
    level: int
    data_version: int
    has_lightweight_delete: bool
    lacks: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[str, str, int]:
        """What stays equal when a clone renumbers the part (source.md section 1)."""
        return (str(self.partition_id), self.hash_of_all_files, self.rows)


@dataclass(frozen=True, slots=True)
class Times:
    """The least and greatest value of a partition's time column, as ClickHouse writes its type.

    Both are '' when the column holds nothing but NULL there.
    """

    least: str
    greatest: str


@dataclass(frozen=True, slots=True)
class NoTimes:
    """Why the times of a partition are not known."""

    why: str


_NOT_READ: Final = NoTimes("they were not read")


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition of a table; `times` are read on request only (`Source.with_times`)."""

    partition_id: PartitionId
    partition: str
    parts: int
    rows: int
    bytes_on_disk: int
    times: Times | NoTimes = _NOT_READ

    @property
    def min_time(self) -> str:
        """The least time, '' where there is none or it is not known."""
        return self.times.least if isinstance(self.times, Times) else ""

    @property
    def max_time(self) -> str:
        """The greatest time, '' where there is none or it is not known."""
        return self.times.greatest if isinstance(self.times, Times) else ""


def fingerprint(parts: Iterable[Part], computed: Mapping[tuple[str, ...], str]) -> str:
    """Return the content identity of a partition: a digest over its parts' hashes and rows.

    A merge changes it although the rows are equal; the ledger explains that. Of a part that lacks
    columns it covers what decides their values, too: without any it is as if there were none.

    Args:
        parts: of the partition.
        computed: what decides the values of the columns that a part lacks, by these; '' for NULL.
    """
    digest = hashlib.sha256()
    found = ((*p.content, text) if (text := computed[p.lacks]) else p.content for p in parts)
    for content in sorted(found):
        digest.update(repr(content).encode())
    return digest.hexdigest()
