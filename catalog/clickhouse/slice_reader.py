"""Defines the reader of a slice's rows, for parts on this host and for parts on a server.

`parts.py` reads files of this host; `server/rows.py` queries the server that has the parts. This
module does not import chdb, so the process that forks Spark's workers may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from tableformat.export.slices import Slice
from tableformat.names import SOURCE_ALIAS, quote_string
from tableformat.receipt import PartRange

__all__ = ["OpenSlice", "OpenTogether", "SliceReader", "condition_of"]


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
