"""Standard streams that may be closed or full: no command ends with them.

What a command does decides how it ends. What cannot be printed is dropped, and why is said once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, Final, TextIO, cast

__all__ = ["Stream", "open_closed_streams", "text_of"]

_STANDARD: Final = (0, 1, 2)


class Stream:
    """A stream that drops what follows its first failure; `failure` is what that was."""

    def __init__(self, stream: TextIO | None) -> None:
        """Write to a stream, None for one that was closed when the process began."""
        self._stream = _Closed() if stream is None else stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        """Be in everything else what the stream is."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop."""
        if self.failure is None:
            with self._failing():
                return self._stream.write(text)
        return len(text)

    def isatty(self) -> bool:
        """Whether it is a terminal; one that is closed is none."""
        return not self._stream.closed and self._stream.isatty()

    def flush(self) -> None:
        """Bring what is written to its place."""
        if self.failure is None:
            with self._failing():
                self._stream.flush()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
        except ValueError as error:
            if not self._stream.closed:
                raise
            self.failure = OSError(errno.EBADF, str(error))


class _Closed(io.StringIO):
    """A stream that was closed when the process began."""

    def write(self, _text: str) -> int:
        """Write nothing.

        Raises:
            OSError: always.
        """
        raise OSError(errno.EBADF, "it is closed")


def text_of(stream: Stream) -> TextIO:
    """Return a stream as what is printed to."""
    return cast("TextIO", stream)


def open_closed_streams() -> None:
    """Let no file get the number of a standard stream that was closed when the process began."""
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            # It takes the lowest number that is free.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = io.StringIO()
