"""How Parquet files are written, as a value that pickles (figures: notes/performance.md)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FileFormat"]


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files are written. Sizes in bytes.

    `target_file_bytes` is the planner's, not the writer's. A row group ends at whichever of
    `row_group_bytes` (Arrow memory) and `row_group_rows` comes first. The bloom filters of
    `bloom_columns` are as large as `bloom_values` different values of a row group need. Of a
    partition of at most `parts_apart` parts each is in files of its own, the planner's, too.
    """

    target_file_bytes: int = 512 * 1024 * 1024
    row_group_bytes: int = 64 * 1024 * 1024
    row_group_rows: int = 1_000_000
    page_rows: int = 20_000
    codec: str = "zstd"
    level: int = 3
    bloom_columns: tuple[str, ...] = ()
    bloom_values: int = 1_000_000
    parts_apart: int = 0
