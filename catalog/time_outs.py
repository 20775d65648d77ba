"""For how long what is far is waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_TIME_OUTS", "TimeOuts"]


@dataclass(frozen=True, slots=True)
class TimeOuts:
    """How long a request may take to connect and to answer, in seconds.

    `retry_for` is for how long one to an object store is tried again while that is away.
    """

    connect: float = 10.0
    read: float = 60.0
    retry_for: float = 900.0


DEFAULT_TIME_OUTS: Final = TimeOuts()
