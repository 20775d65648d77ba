"""What goes wrong while a response is handed to ClickHouse is never taken for its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from catalog.clickhouse.server.client import ServerStream
from catalog.clickhouse.server.streams import Feeding, named_pipe
from tableformat.errors import InternalError, SourceError


class Broken(ServerStream):
    """A stream that ends after its first piece with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.is_complete = False

    def chunks(self) -> Iterator[bytes]:
        yield b"rows"
        raise self._error


@pytest.mark.parametrize(
    "error", [SourceError("Cannot read."), InternalError("A bug."), MemoryError("no memory")]
)
def test_an_error_of_any_kind_reaches_the_reader_of_the_rows(error: Exception) -> None:
    """The reader saw an end, and would take the rows before it for all of them."""

    @contextlib.contextmanager
    def broken() -> Iterator[ServerStream]:
        yield Broken(error)

    with named_pipe() as pipe, Feeding(broken, pipe) as feeding:
        assert pipe.read_bytes() == b"rows"
        with pytest.raises(type(error), match=str(error)):
            feeding.end(well=True)
