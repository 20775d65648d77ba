"""The one port through which the job acts on the outside: every effect has a name and passes here.

A crash can fall before or after each effect; `tests/faults` enumerates them by replacing `Direct`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TypeVar

__all__ = ["Direct", "Effects", "Step"]

T = TypeVar("T")


class Step(StrEnum):
    """What the job does to the outside, in the order in which a first export does it."""

    DESCRIBE_SOURCE = "describe source"
    SWEEP_SOURCE = "sweep source"
    OPEN_TABLE = "open table"
    CREATE_TABLE = "create table"
    EVOLVE_SCHEMA = "evolve schema"
    FIRST_SNAPSHOT = "first snapshot"
    TAKE_LEASE = "take lease"
    FIND_FILES = "find files"
    FIND_SNAPSHOT = "find snapshot"
    SNAPSHOT_SOURCE = "snapshot source"
    CHECK_FINISHED = "check finished files"
    CLAIM = "claim"
    WRITE_FILES = "write files"
    NOTE_WRITTEN = "note written"
    CHECK_FILES = "check files"
    KEEP_DIGEST = "keep digest"
    NOTE_GROUP = "note group"
    NOTE_ERROR = "note error"
    LOAD_METADATA = "load metadata"
    READ_LEDGER = "read ledger"
    NOTE_LANDED = "note landed"
    STAGE = "stage"
    SEND = "send"
    SETTLE = "settle"
    CLEAN_ATTEMPT = "clean attempt"
    GIVE_UP = "give up"
    FIND_EXPIRED = "find expired exports"
    FIND_DEAD_FILES = "find dead files"
    CLEAN_FILE = "clean file"
    CLEAN_RECEIPT = "clean receipt"
    CLEAN_CLAIM = "clean claim"
    VERIFY = "verify"
    NOTE_HISTORY = "note history"
    RELEASE_SOURCE = "release source"
    RELEASE_LEASE = "release lease"


class Effects(Protocol):
    """Performs an effect, exactly once, and returns what it returned."""

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Perform `act`, which is the effect named `step`."""
        ...


class Direct:
    """The effects of ordinary life: nothing is injected."""

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:  # noqa: ARG002  the name is for those who inject
        """Perform `act`."""
        return act()
