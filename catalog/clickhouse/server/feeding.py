"""Writes the answer of a server into a named pipe, which a ClickHouse of ours reads as a file."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Self

from catalog.clickhouse.server.client import ServerStream
from tableformat.errors import SourceError

__all__ = ["DECODING_SETTINGS", "Feeding", "OpenStream"]

DECODING_SETTINGS: Final = (
    "input_format_parallel_parsing = 0, input_format_skip_unknown_fields = 0, "
    "input_format_null_as_default = 0, input_format_native_allow_types_conversion = 0"
)
"""What a query sets that reads the pipe: by default a column of the answer by another name would be
passed over, and the one that was expected filled with defaults."""

_READ_ON: Final = 1_048_576
OpenStream = Callable[[], AbstractContextManager[ServerStream]]


class Feeding:
    """Writes an answer into a pipe, in a thread of its own."""

    def __init__(self, open_stream: OpenStream, pipe: Path) -> None:
        self._open_stream, self._pipe = open_stream, pipe
        self._failed: Exception | None = None
        self._said: SourceError | None = None
        self._thread = threading.Thread(target=self._run, name="native-answer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def end(self, *, well: bool) -> None:
        """Wait until all of the answer was read.

        Args:
            well: whether ClickHouse could make values of it; else its end may say why not.

        Raises:
            SourceError: it was not whole.
            Exception: whatever else went wrong while it was read.
        """
        self._let_go()
        failed = self._failed or (None if well else self._said)
        if failed is not None:
            raise failed

    def _let_go(self) -> None:
        """End the thread, also when nobody ever opened the pipe."""
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
                    # The reader stopped first, perhaps at the text of an error, which is the end.
                    _read_on(chunks)
                if stream.is_complete:
                    self._said = stream.said_at_end
        except Exception as error:  # noqa: BLE001  raised by `end`: the reader saw only an end
            self._failed = error


def _read_on(chunks: Iterator[bytes]) -> None:
    """Read what is left of an answer, unless it is much."""
    left = _READ_ON
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            return


def _write_all(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
