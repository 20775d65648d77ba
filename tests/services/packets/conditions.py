"""What becomes of packets on one way of a link, by chance: pure, a seed tells it again.

    way = Way(seed)
    way.conditions = Conditions(loss=0.05, delay=0.02)
    way.send(packet, now)
    ...
    for packet in way.arrived(later): ...

`way.counted` says how often each event happened, so that a test can see that it did.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.services.packets.ipv4 import corrupted, forged, is_ipv4

__all__ = ["CLEAN", "CUT", "Conditions", "Happened", "Way"]

_HELD_BACK_SECONDS: Final = 0.02
"""How much later a packet arrives that others are to overtake."""
_LONGEST_QUEUE_SECONDS: Final = 1.0
"""How long a packet waits at most where the rate is limited; what comes then is dropped."""


class Happened(StrEnum):
    """What may have become of a packet."""

    SENT = "sent"
    ARRIVED = "arrived"
    CUT_OFF = "cut off"
    LOST = "lost"
    OVERFLOWED = "overflowed"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    """Arrived behind one that was sent later."""
    CORRUPTED = "corrupted"
    """A bit was flipped: the checksum is wrong."""
    FORGED = "forged"
    """A bit of what it carries was flipped, and the checksum made right."""
    DELAYED = "delayed"
    QUEUED = "queued"
    """Waited for its turn, because the rate is limited."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a way is like. Chances are from 0 to 1, each for one packet.

    `delay` is in seconds, `rate` in bytes a second. Nothing at all arrives on a way that `is_cut`,
    without a notice.
    """

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    corruption: float = 0.0
    forgery: float = 0.0
    delay: float = 0.0
    rate: float = math.inf
    is_cut: bool = False


CLEAN: Final = Conditions()
CUT: Final = Conditions(is_cut=True)


class Way:
    """Packets go in, and come out later, changed, twice, behind others, or never."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311  chance, no secret
        self.conditions = CLEAN
        self.counted: Counter[Happened] = Counter()
        self._under_way: list[tuple[float, int, bytes]] = []
        self._number = self._highest = 0
        self._free_at = -math.inf

    @property
    def next_at(self) -> float:
        """When the next packet arrives; infinity when none is under way."""
        return self._under_way[0][0] if self._under_way else math.inf

    def send(self, packet: bytes, now: float) -> None:
        """Let a packet go on its way, at a time in seconds that never goes back."""
        if not is_ipv4(packet):
            return
        like = self.conditions
        self._count(Happened.SENT)
        if like.is_cut:
            self._count(Happened.CUT_OFF)
        elif self._meets(like.loss):
            self._count(Happened.LOST)
        elif (sent := self._turn(len(packet), like.rate, now)) is None:
            self._count(Happened.OVERFLOWED)
        else:
            self._number += 1
            self._put(self._changed(packet, like), sent + like.delay, like)
            if like.delay:
                self._count(Happened.DELAYED)

    def arrived(self, now: float) -> list[bytes]:
        """Return what has arrived by now, in that order."""
        if self.conditions.is_cut:
            self.counted[Happened.CUT_OFF] += len(self._under_way)
            self._under_way.clear()
        found = []
        while self.next_at <= now:
            _, number, packet = heapq.heappop(self._under_way)
            if number < self._highest:
                self._count(Happened.REORDERED)
            self._highest = max(self._highest, number)
            self._count(Happened.ARRIVED)
            found.append(packet)
        return found

    def _turn(self, size: int, rate: float, now: float) -> float | None:
        """Return when a packet of a size is through; None when too many wait before it."""
        begins = max(now, self._free_at)
        if begins - now > _LONGEST_QUEUE_SECONDS:
            return None
        if begins > now:
            self._count(Happened.QUEUED)
        self._free_at = begins + size / rate
        return self._free_at

    def _changed(self, packet: bytes, like: Conditions) -> bytes:
        if self._meets(like.corruption):
            self._count(Happened.CORRUPTED)
            return corrupted(packet, self._chance)
        if self._meets(like.forgery) and (other := forged(packet, self._chance)) is not None:
            self._count(Happened.FORGED)
            return other
        return packet

    def _put(self, packet: bytes, at: float, like: Conditions) -> None:
        held_back = _HELD_BACK_SECONDS if self._meets(like.reordering) else 0.0
        heapq.heappush(self._under_way, (at + held_back, self._number, packet))
        if self._meets(like.duplication):
            self._count(Happened.DUPLICATED)
            heapq.heappush(self._under_way, (at, self._number, packet))

    def _meets(self, chance: float) -> bool:
        return self._chance.random() < chance

    def _count(self, what: Happened) -> None:
        self.counted[what] += 1
