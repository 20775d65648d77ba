"""A link between two TUN devices: every packet between them passes through this process.

`conditions.py` decides what becomes of it on its way.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import threading
import time
from collections import Counter
from typing import Final

from tests.services.packets.conditions import Conditions, Happened, Way

__all__ = ["Link"]

_DEVICE: Final = "/dev/net/tun"
_SET_NAME: Final = 0x400454CA
_WHOLE_PACKETS: Final = 0x1001
"""TUNSETIFF, IFF_TUN and IFF_NO_PI of linux/if_tun.h: packets as they are, nothing before them."""
_REQUEST: Final = struct.Struct("16sH22x")
_LARGEST: Final = 65_536
_LONGEST_WAIT: Final = 1.0


class Link:
    """Hands packets on between two devices, of which each may be in a network of its own.

    `here` and `there` are their names. Ends with `close`, and the devices with it.
    """

    def __init__(self, here: str, there: str, seed: int) -> None:
        """Make the devices; the caller gives them addresses, and sets them up.

        Raises:
            OSError: this process may not make any.
        """
        self.here, self.there = here, there
        self._ends = (_tun(here), _tun(there))
        self._ways = (Way(2 * seed), Way(2 * seed + 1))
        self._woken, self._waker = os.pipe()
        self._is_closed = False
        self._thread = threading.Thread(target=self._hand_on, name=f"link {here}", daemon=True)
        self._thread.start()

    def become(self, conditions: Conditions) -> None:
        """Let it be like this, in both directions."""
        for way in self._ways:
            way.conditions = conditions

    @property
    def counted(self) -> Counter[Happened]:
        """What happened until now, in both directions together."""
        first, second = (way.counted.copy() for way in self._ways)
        return first + second

    def close(self) -> None:
        """End it, and the devices."""
        self._is_closed = True
        os.write(self._waker, b"x")
        self._thread.join()
        for descriptor in (*self._ends, self._woken, self._waker):
            os.close(descriptor)

    def _hand_on(self) -> None:
        ways = dict(zip(self._ends, self._ways, strict=True))
        to = dict(zip(self._ends, reversed(self._ends), strict=True))
        while not self._is_closed:
            now = time.monotonic()
            first = min(way.next_at for way in self._ways)
            wait = min(max(first - now, 0.0), _LONGEST_WAIT)
            ready, _, _ = select.select([*self._ends, self._woken], [], [], wait)
            now = time.monotonic()
            for end in ready:
                if end in ways:
                    ways[end].send(os.read(end, _LARGEST), now)
            for end, way in ways.items():
                for packet in way.arrived(now):
                    os.write(to[end], packet)


def _tun(name: str) -> int:
    descriptor = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _SET_NAME, _REQUEST.pack(name.encode(), _WHOLE_PACKETS))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
