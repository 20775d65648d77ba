"""Wraps standard streams that may be closed or full, so that printing never ends a command.

Output after the first failure is dropped. The command reports the failure once, at its end.
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
    """A stream that drops all output after its first failure; `failure` is that error."""

    def __init__(self, stream: TextIO | None) -> None:
        """Wrap a stream; None stands for one that was closed when the process began."""
        self._stream = _Closed() if stream is None else stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the wrapped stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it after a failure."""
        if self.failure is None:
            with self._failing():
                return self._stream.write(text)
        return len(text)

    def isatty(self) -> bool:
        """Whether the stream is a terminal; False if it is closed."""
        return not self._stream.closed and self._stream.isatty()

    def flush(self) -> None:
        """Flush the stream, unless it has failed."""
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
        """Fail.

        Raises:
            OSError: always.
        """
        raise OSError(errno.EBADF, "it is closed")


def text_of(stream: Stream) -> TextIO:
    """Return a stream with the type that `print` and `redirect_stdout` expect."""
    return cast("TextIO", stream)


def open_closed_streams() -> None:
    """Open closed standard streams to the null device, so that no file gets their numbers."""
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            # os.open uses the lowest free number.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = io.StringIO()
