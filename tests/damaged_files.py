"""Data files that are damaged after they were written, under the same name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import pyarrow.parquet as pq

from tableformat.export.ports import Written
from tableformat.export.slices import SliceTask, WritePlan
from tests.child_writer import ChildWriter

__all__ = ["BreakingWriter", "DamagingWriter", "lose_a_row"]


def lose_a_row(path: Path) -> None:
    """Write a file anew without its last row."""
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(0, table.num_rows - 1), path)


class DamagingWriter(ChildWriter):
    """A writer whose disk loses a row of each file."""

    def write(
        self, plan: WritePlan, tasks: tuple[SliceTask, ...], *, on_rows: Callable[[int], None]
    ) -> Written:
        written = super().write(plan, tasks, on_rows=on_rows)
        for receipt in written.receipts:
            self.damage(Path(urlparse(receipt.file_path).path))
        return written

    def damage(self, path: Path) -> None:
        """Damage one file."""
        lose_a_row(path)


class BreakingWriter(DamagingWriter):
    """A writer whose disk loses the end of each file."""

    def damage(self, path: Path) -> None:
        """Damage one file."""
        path.write_bytes(path.read_bytes()[:-50])
