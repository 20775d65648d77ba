"""Streams a server's rows: Arrow up to its end mark, other formats through pipes.

Arrow's reader takes the end of the bytes for the end of the stream, so a stream that was cut
between two batches looks complete. The reader here requires the end mark, and nothing after it. A
response in another format is written into a named pipe in a private directory, and a ClickHouse of
the task reads the pipe as a file.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from catalog.clickhouse.server.client import ServerStream
from catalog.processes import ScratchDirectory
from tableformat.errors import SourceError

__all__ = ["DECODING_SETTINGS", "Feeding", "OpenStream", "arrow_batches", "named_pipe"]

# A continuation mark and a length of 0 (Arrow columnar format, IPC streaming format).
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_BUFFER: Final = 1024 * 1024


def arrow_batches(
    open_stream: Callable[[], AbstractContextManager[ServerStream]],
) -> Iterator[pa.RecordBatch]:
    """Stream record batches.

    Args:
        open_stream: queries the server, in the format ArrowStream.

    Raises:
        SourceError: the response is not one complete stream.
    """
    with open_stream() as stream:
        source = _Source(stream.chunks())
        buffered = io.BufferedReader(source, _BUFFER)
        try:
            with pa.ipc.open_stream(buffered) as reader:
                yield from reader
                # Arrow stops at an end mark, and reads nothing after it.
                behind = len(buffered.read(1))
        except (pa.ArrowException, OSError) as error:
            # The server's own error at the end of its response is the better reason.
            source.drain()
            broken = _broken(f"it is not a whole Arrow stream ({error})")
            raise stream.error_at_end or broken from error
        behind += source.drain()
        if source.tail != _END or behind:
            what = "bytes after its end" if behind else "no end, so that rows are missing"
            raise stream.error_at_end or _broken(f"its Arrow stream has {what}")


def _broken(why: str) -> SourceError:
    message = f"Cannot read a response of ClickHouse: {why}. Run it again."
    return SourceError(message, why=why)


class _Source(io.RawIOBase):
    """The bytes of a response; `tail` are the last of them."""

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
        """Read to the end of the response, where errors are; return the number of bytes."""
        left = len(self._held)
        self._held = memoryview(b"")
        for chunk in self._chunks:
            self.tail = (self.tail + chunk[-len(_END) :])[-len(_END) :]
            left += len(chunk)
        return left


DECODING_SETTINGS: Final = (
    "input_format_parallel_parsing = 0, input_format_skip_unknown_fields = 0, "
    "input_format_null_as_default = 0, input_format_native_allow_types_conversion = 0"
)
"""Settings of a query that reads the pipe.

By default ClickHouse would skip a column with another name, and fill the expected one with
defaults.
"""

_READ_ON: Final = 1_048_576
OpenStream = Callable[[], AbstractContextManager[ServerStream]]


class Feeding:
    """Writes a response into a pipe, in its own thread."""

    def __init__(self, open_stream: OpenStream, pipe: Path) -> None:
        self._open_stream, self._pipe = open_stream, pipe
        self._failed: Exception | None = None
        self._error_at_end: SourceError | None = None
        self._thread = threading.Thread(target=self._run, name="native-answer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def end(self, *, well: bool) -> None:
        """Wait until the whole response was read.

        Args:
            well: whether ClickHouse could read it; otherwise its end may have the reason.

        Raises:
            SourceError: it was incomplete.
            Exception: any other failure of the reader.
        """
        self._release()
        failed = self._failed or (None if well else self._error_at_end)
        if failed is not None:
            raise failed

    def _release(self) -> None:
        """End the thread, even if no process ever opened the pipe."""
        while self._thread.is_alive():
            with contextlib.suppress(OSError):
                os.close(os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK))
            self._thread.join(0.05)

    def _run(self) -> None:
        try:
            with self._pipe.open("wb", buffering=0) as sink, self._open_stream() as stream:
                chunks = stream.chunks()
                try:
                    for chunk in chunks:
                        _write_all(sink.fileno(), chunk)
                except BrokenPipeError:
                    # The reader stopped first, perhaps at an error's text, which is the end.
                    _read_on(chunks)
                if stream.is_complete:
                    self._error_at_end = stream.error_at_end
        except Exception as error:  # noqa: BLE001  raised by `end`: the reader saw only an end
            self._failed = error


def _read_on(chunks: Iterator[bytes]) -> None:
    """Read the rest of a response, unless it is large."""
    left = _READ_ON
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            return


def _write_all(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextlib.contextmanager
def named_pipe() -> Iterator[Path]:
    """Create a pipe that only this user can open; remove it afterwards."""
    with ScratchDirectory("pipe") as made:
        pipe = made.path / "rows.native"
        os.mkfifo(pipe, 0o600)
        yield pipe
