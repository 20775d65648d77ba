"""Which data files have bloom filters of some columns, and their rows as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from catalog.clickhouse.file_rows import ROW_NUMBER
from tableformat.branches import BranchFile
from tableformat.errors import DestinationError
from tableformat.parquet.bloom_filters import filtered_columns

__all__ = ["FilteredFiles"]


@dataclass(frozen=True, slots=True)
class FilteredFiles:
    """Looks at the footers of files; a `catalog.changed_files.LeftOfFiles` that leaves all rows.

    `io` opens files, `columns` are field ids.
    """

    io: FileIO
    columns: frozenset[int]
    sets: ClassVar[tuple[str, ...]] = ()
    _rows: dict[str, int] = field(default_factory=dict)
    _found: dict[str, bool] = field(default_factory=dict)

    def __call__(self, file: BranchFile) -> bool:
        """Return whether a file has bloom filters of any of the columns.

        Raises:
            DestinationError: it cannot be read.
        """
        self._rows[file.path] = file.rows
        if file.path not in self._found:
            try:
                with self.io.new_input(file.path).open() as opened, pq.ParquetFile(opened) as read:
                    self._found[file.path] = bool(filtered_columns(read) & self.columns)
            except (OSError, pa.ArrowException) as error:
                message = f"Cannot read {file.path}: {error}. Run the statement again."
                raise DestinationError(message) from error
        return self._found[file.path]

    @contextmanager
    def left(self, path: str) -> Iterator[pa.Table]:
        """Lend the numbers of all rows of a file that was asked for."""
        yield pa.table({ROW_NUMBER: pa.array(range(self._rows[path]), pa.uint64())})
