"""A partition on its way through the job: to be exported (`Work`), then ours (`Claimed`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tableformat.committer import LakeTableState
from tableformat.export.content import Content
from tableformat.export.in_main import Holding
from tableformat.export.slices import Slice
from tableformat.ledger import Claim, Key, Row
from tableformat.receipt import Receipt
from tableformat.source import FrozenPartition

__all__ = ["Begun", "Claimed", "Work"]


@dataclass(frozen=True, slots=True)
class Begun:
    """A claim that did not end and has finished files: what may be gone on with."""

    claim: Claim
    receipts: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A partition that is to be exported: its ledger row, what main holds, what may be resumed.

    `state` is the M that `held` was told from, `content` what the source partition held when the
    run looked at it.
    """

    key: Key
    row: Row | None
    held: Holding
    state: LakeTableState
    resume: Begun | None
    content: Content
    begun: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A partition that is ours: its slices, and the files that are finished, by slice number.

    `note` says what the user should know of what was frozen, '' for nothing.
    """

    row: Row
    frozen: FrozenPartition
    slices: tuple[Slice, ...]
    finished: Mapping[int, Receipt]
    begun: int
    note: str = ""

    @property
    def unfinished(self) -> tuple[Slice, ...]:
        """The slices that have no file yet."""
        return tuple(s for s in self.slices if s.number not in self.finished)
