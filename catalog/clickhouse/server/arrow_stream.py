"""Reads an Arrow stream of a server to its very end.

Arrow's reader takes the end of the bytes for the end of the stream, so that one which was cut
between two batches looks whole: the mark of the end must have been there, and nothing behind it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import pyarrow as pa

from catalog.clickhouse.server.client import ServerStream
from tableformat.errors import SourceError

__all__ = ["arrow_batches"]

# A continuation mark, and a length of nothing (Arrow columnar format, IPC streaming format).
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_BUFFER: Final = 1024 * 1024


def arrow_batches(
    open_stream: Callable[[], AbstractContextManager[ServerStream]],
) -> Iterator[pa.RecordBatch]:
    """Stream record batches.

    Args:
        open_stream: asks the server; the answer is in the format ArrowStream.

    Raises:
        SourceError: the answer is not one whole stream.
    """
    with open_stream() as stream:
        source = _Source(stream.chunks())
        buffered = io.BufferedReader(source, _BUFFER)
        try:
            with pa.ipc.open_stream(buffered) as reader:
                yield from reader
                # Arrow stops at a mark of the end, and reads nothing behind it.
                behind = len(buffered.read(1))
        except (pa.ArrowException, OSError) as error:
            # What the server itself says at the end of its answer is the better reason.
            source.drain()
            message = (
                f"Cannot read an answer of ClickHouse: it is not a whole Arrow stream ({error}). "
                "Run the same command again."
            )
            raise stream.said_at_end or SourceError(message) from error
        behind += source.drain()
        if source.tail != _END or behind:
            what = "bytes behind its end" if behind else "no end, so that rows are missing"
            message = (
                f"Cannot read an answer of ClickHouse: its Arrow stream has {what}. Run the same "
                "command again."
            )
            raise stream.said_at_end or SourceError(message)


class _Source(io.RawIOBase):
    """The bytes of an answer; `tail` are the last of them."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._held = memoryview(b"")
        self.tail = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self.tail = (self.tail + chunk[-len(_END) :])[-len(_END) :]
            self._held = memoryview(chunk)
        wanted = memoryview(buffer).cast("B")
        given = min(len(wanted), len(self._held))
        wanted[:given] = self._held[:given]
        self._held = self._held[given:]
        return given

    def drain(self) -> int:
        """Read to the end of the answer, where its errors stand; return how much was left."""
        left = len(self._held)
        self._held = memoryview(b"")
        for chunk in self._chunks:
            self.tail = (self.tail + chunk[-len(_END) :])[-len(_END) :]
            left += len(chunk)
        return left
