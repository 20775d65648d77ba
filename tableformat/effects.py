"""Defines the port for all outside effects of a job, each of which has a name.

A process can crash before or after each effect. `tests/faults` replaces `Direct` to try every case.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TypeVar

__all__ = ["Direct", "Effects", "Step"]

T = TypeVar("T")


class Step(StrEnum):
    """The outside effects of a job, in about the order of a first export."""

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
    NOTE_REWRITTEN = "note rewritten"
    STAGE = "stage"
    SEND = "send"
    SETTLE = "settle"
    CLEAN_ATTEMPT = "clean attempt"
    GIVE_UP = "give up"
    FIND_EXPIRED = "find expired exports"
    FIND_GARBAGE = "find garbage"
    CLEAN_FILE = "clean file"
    CLEAN_RECEIPT = "clean receipt"
    CLEAN_CLAIM = "clean claim"
    VERIFY = "verify"
    NOTE_HISTORY = "note history"
    RELEASE_SOURCE = "release source"
    RELEASE_LEASE = "release lease"


class Effects(Protocol):
    """Runs an effect exactly once, and returns its result."""

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Run `act`, which is the effect named `step`."""
        ...


class Direct:
    """Runs effects directly, without fault injection."""

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:  # noqa: ARG002  the name is for fault injection
        """Run `act`."""
        return act()
