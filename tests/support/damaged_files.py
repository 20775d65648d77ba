"""Data files that are damaged after they were committed, under the same name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest

from catalog.iceberg.table import IcebergTable
from tableformat.committer import Commit, LakeTableState, Sent, Staged

__all__ = ["damage_when_committed", "lose_a_row", "lose_the_end"]


def lose_a_row(path: Path) -> None:
    """Rewrite a file without its last row."""
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(0, table.num_rows - 1), path)


def lose_the_end(path: Path) -> None:
    """Cut the end of a file off."""
    path.write_bytes(path.read_bytes()[:-50])


def damage_when_committed(patch: pytest.MonkeyPatch, damage: Callable[[Path], None]) -> None:
    """Damage every data file of a commit in the moment in which it is sent."""
    send = IcebergTable.send

    def damaging(
        table: IcebergTable,
        state: LakeTableState,
        staged: Staged,
        commit: Commit,
        remove_marks: tuple[str, ...],
    ) -> Sent:
        for receipt in (r for key in commit.keys for r in key.receipts):
            damage(Path(urlparse(receipt.file_path).path))
        return send(table, state, staged, commit, remove_marks)

    patch.setattr(IcebergTable, "send", damaging)
