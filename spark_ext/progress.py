"""Progress finer than a file: tasks send (slice, rows so far) to the application as datagrams.

Nothing depends on them: a lost, late or foreign one changes a progress bar and nothing else.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["ProgressAddress", "ProgressListener", "SliceProgress", "send_rows"]

_FORMAT: Final = struct.Struct("!QQQ")


@dataclass(frozen=True, slots=True)
class ProgressAddress:
    """Where tasks send to; `job` keeps the datagrams of other jobs out."""

    host: str
    port: int
    job: int


@dataclass(slots=True)
class SliceProgress:
    """How far a slice is: a row counts half when it is read, and in full when it is written.

    A row group takes seconds to collect and seconds to write; counted at its end only, a progress
    bar stands still and then jumps.
    """

    tell: Callable[[int], None]
    rows_read: int = 0
    rows_written: int = 0

    def read(self, rows: int) -> None:
        """Note the rows that are read by now."""
        self.rows_read = rows
        self.tell((self.rows_read + self.rows_written) // 2)

    def written(self, rows: int) -> None:
        """Note the rows that are written by now."""
        self.rows_written = rows
        self.tell((self.rows_read + self.rows_written) // 2)


class ProgressListener:
    """Collects the rows of running slices; made by the application, closed when the job is over."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._socket.settimeout(0)
        self._rows: dict[int, int] = {}
        self.address = ProgressAddress(host, self._socket.getsockname()[1], secrets.randbits(64))

    def rows(self) -> int:
        """Return the rows of all slices as far as is known."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self._socket.recv(_FORMAT.size + 1)
                if len(data) == _FORMAT.size:
                    job, number, rows = _FORMAT.unpack(data)
                    if job == self.address.job:
                        self._rows[number] = rows
        return sum(self._rows.values())

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def send_rows(address: ProgressAddress, slice_number: int, rows: int) -> None:
    """Tell how far a slice is. A network that refuses is no reason to stop writing."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(_FORMAT.pack(address.job, slice_number, rows), (address.host, address.port))
