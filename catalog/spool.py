"""Reads all rows of a query to disk before the first row is passed on.

So the query, its connection and its reader end before the rows are used. The rows are compressed,
in a directory that only this user can open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pyarrow as pa

from catalog.processes import ScratchDirectory
from tableformat.errors import DestinationError

__all__ = ["read_first"]

_WRITING: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READING: Final = pa.ipc.IpcReadOptions(use_threads=False)


def read_first(
    batches: Generator[pa.RecordBatch, None, None],
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a generator, after it has ended.

    Args:
        batches: is read to its end, and closed.

    Raises:
        DestinationError: the disk of this host is full or cannot be written.
        Exception: whatever `batches` raises.
    """
    with ScratchDirectory("rows") as scratch:
        path = scratch.path / "rows.arrow"
        with contextlib.closing(batches):
            first = next(batches, None)
            if first is None:
                return
            _keep(path, first, batches)
        del first
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file, options=_READING) as kept:
            yield from kept


def _keep(path: Path, first: pa.RecordBatch, others: Generator[pa.RecordBatch, None, None]) -> None:
    """Write batches to a file; only errors of the disk become `DestinationError`."""
    with contextlib.ExitStack() as stack:
        with _room(path):
            file = stack.enter_context(pa.OSFile(str(path), "wb"))
            kept = pa.ipc.new_stream(file, first.schema, options=_WRITING)
            kept.write_batch(first)
        for batch in others:
            with _room(path):
                kept.write_batch(batch)
        with _room(path):
            kept.close()


@contextlib.contextmanager
def _room(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        message = (
            f"Cannot keep the rows of a file in {path.parent}: {error}. Make room there, name "
            "another directory in TMPDIR of the host, or leave out --no-parallel-formatting "
            "(output_format_parallel_formatting = 0)."
        )
        raise DestinationError(message) from error
