"""The data files that a table has, without the word of the writer or of its catalog."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

__all__ = ["committed_files", "rows_of"]


def committed_files(directory: Path) -> list[Path] | None:
    """Return the files of the newest snapshot of the one local table below a directory.

    None if there is no table.
    """
    metadata = [*directory.rglob("*.metadata.json")]
    if not metadata:
        return None
    newest = max(metadata, key=_order)
    tasks = StaticTable.from_metadata(str(newest)).scan().plan_files()
    return [Path(unquote(urlparse(task.file.file_path).path)) for task in tasks]


def rows_of(files: Sequence[Path]) -> int:
    """Return the rows that the footers of the files say."""
    return sum(pq.read_metadata(path).num_rows for path in files)


def _order(metadata: Path) -> tuple[int, int]:
    found = json.loads(metadata.read_text(encoding="utf-8"))
    return found["last-sequence-number"], found["last-updated-ms"]
