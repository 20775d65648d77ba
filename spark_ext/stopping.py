"""SIGTERM is a shutdown, not a cancel (coverage.md reading 13): what runs may still finish.

The first one lets the files that are being written and a commit end, and begins no other; after
the grace the command is interrupted as by Ctrl-C. A second one ends the process at once. Whatever
happens, what is finished stays and the same command goes on.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

from tableformat.errors import StoppedError
from tableformat.export.exit_codes import FAILED

__all__ = ["Stopping"]


class Stopping:
    """Hears SIGTERM while it is entered; does nothing outside of the main thread.

    An interruption that comes from it leaves as StoppedError.
    """

    def __init__(self, grace: float, say: Callable[[str], None]) -> None:
        """Begin to listen when entered.

        Args:
            grace: seconds for what runs to be finished.
            say: tells the user that it was heard.
        """
        self._grace = grace
        self._say = say
        self._told = False
        self._before: tuple[object, object] | None = None

    def is_told(self) -> bool:
        """Whether the process was told to stop."""
        return self._told

    def __enter__(self) -> Self:
        """Begin to listen."""
        if threading.current_thread() is threading.main_thread():
            self._before = (
                signal.signal(signal.SIGTERM, self._heard),
                signal.getsignal(signal.SIGALRM),
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Listen no more.

        Raises:
            StoppedError: the grace was over before what ran was finished.
        """
        if self._before is not None:
            before, alarm = self._before
            if self._told:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, alarm)  # type: ignore[arg-type]
            signal.signal(signal.SIGTERM, before)  # type: ignore[arg-type]
        if self._told and isinstance(error, KeyboardInterrupt):
            message = (
                f"Cannot finish: it was told to stop, and {self._grace:g} s were not enough for "
                "what ran. What is exported stays, and so do finished files. Run the same command "
                "again: it goes on with what is left."
            )
            raise StoppedError(message) from error

    def _heard(self, _signal: int, _frame: FrameType | None) -> None:
        if self._told:
            # Not by way of exceptions: whatever holds the process up now would hold that up too.
            os._exit(FAILED)
        self._told = True
        text = (
            f"SIGTERM: finishing files in progress (up to {self._grace:g} s); send it again to "
            "stop now"
        )
        # The thread that was interrupted to be told may be in the middle of saying something.
        threading.Thread(target=self._say, args=(text,), daemon=True).start()
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, max(self._grace, 0.001))


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
