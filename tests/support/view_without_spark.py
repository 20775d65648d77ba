"""Temporary views without Spark: what one has is given, and written as tasks of Spark write it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from catalog.rewriting.foreign_files import WrittenRows, write_rows
from catalog.storages.schemes import Storages

__all__ = ["GivenView"]


@dataclass
class GivenView:
    """A view with the rows of `tables`, one for each task; `evaluated` counts how often it was."""

    tables: tuple[pa.Table, ...]
    below: Path
    evaluated: int = 0

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self.tables[0].schema

    @contextmanager
    def written(self, _location: str, _storages: Storages) -> Iterator[tuple[WrittenRows, ...]]:
        """Write its rows, and yield the files."""
        self.evaluated += 1
        made = [write_rows(table.to_batches(), str(self.below), None) for table in self.tables]
        yield tuple(one for one in made if one is not None)
