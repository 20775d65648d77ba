"""Defines the reader of a slice's rows, for parts on this host and for parts on a server.

`parts.py` reads files of this host; `server/rows.py` queries the server that has the parts. This
module does not import chdb, so the process that forks Spark's workers may import it.

`read_first` reads all rows of a query to disk before the first row is passed on, so that the query,
its connection and its reader end before the rows are used. The rows are compressed, in a directory
that only this user can open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from catalog.processes import ScratchDirectory
from tableformat.errors import DestinationError
from tableformat.export.slices import Slice
from tableformat.messages import Option
from tableformat.names import SOURCE_ALIAS, quote_string
from tableformat.receipt import PartRange

__all__ = ["OpenSlice", "OpenTogether", "SliceReader", "condition_of", "read_first"]

_WRITING: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READING: Final = pa.ipc.IpcReadOptions(use_threads=False)


def condition_of(slice_: Slice) -> str:
    """Return the condition that selects the rows of a slice in a table with its parts."""
    return " OR ".join(_condition(part) for part in slice_.ranges)


def _condition(part: PartRange) -> str:
    name = f"{SOURCE_ALIAS}._part = {quote_string(part.name)}"
    if part.start is None or part.stop is None:
        return f"({name})"
    return (
        f"({name} AND {SOURCE_ALIAS}._part_offset >= {part.start}"
        f" AND {SOURCE_ALIAS}._part_offset < {part.stop})"
    )


class SliceReader(Protocol):
    """The rows of one slice, open for reading until the `with` of `OpenSlice` ends."""

    @property
    def slice(self) -> Slice:
        """The slice."""
        ...

    @property
    def rows(self) -> int | None:
        """The number of rows that it must return; None if it is not known before they are read."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the plan's SELECT list in the order of the plan's key.

        Raises:
            SourceError: a part cannot be read; the stream never ends early without an error.
        """
        ...

    def row(self, select: str) -> tuple[Any, ...]:
        """Return the one row of an aggregating SELECT list over the slice.

        Raises:
            SourceError: a part cannot be read.
        """
        ...


OpenSlice = Callable[[Slice], AbstractContextManager[SliceReader]]
"""Opens exactly the parts of a slice, and checks that before any row is read.

Raises a SourceError if the parts cannot be read, or differ from the plan.
"""

OpenTogether = Callable[[tuple[Slice, ...]], AbstractContextManager[OpenSlice]]
"""Prepares slices of one place together; a slice that cannot be opened fails alone."""


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
            "another directory in TMPDIR of the host, or leave out "
            f"{Option.NO_PARALLEL_FORMATTING} (output_format_parallel_formatting = 0)."
        )
        raise DestinationError(message) from error
