"""Parts and partitions as system.parts shows them, and the content identity made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from tableformat.names import PartitionId

__all__ = ["Part", "PartitionSummary", "fingerprint"]


@dataclass(frozen=True, slots=True)
class Part:
    """One active part.

    `rows` counts lightweight-deleted rows too, as system.parts does; `path` is the part's own
    directory, `disk` the root directory of the disk that it is on; `part_type` is Wide or Compact;
    sizes in bytes.
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

    @property
    def content(self) -> tuple[str, str, int]:
        """What stays equal when a clone renumbers the part (source.md section 1)."""
        return (str(self.partition_id), self.hash_of_all_files, self.rows)


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition of a table; times are ISO text of system.parts.min_time/max_time or ''."""

    partition_id: PartitionId
    partition: str
    parts: int
    rows: int
    bytes_on_disk: int
    min_time: str
    max_time: str


def fingerprint(parts: Iterable[Part]) -> str:
    """Return the content identity of a partition: a digest over its parts' hashes and rows.

    A merge changes it although the rows are equal; the ledger explains that (DESIGN 5.1).
    """
    digest = hashlib.sha256()
    for content in sorted(part.content for part in parts):
        digest.update(repr(content).encode())
    return digest.hexdigest()
