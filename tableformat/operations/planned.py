"""What a statement changes in main, planned over one state of the table; nothing is done by it."""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.branches import BranchFile
from tableformat.ledger import Held, Key

__all__ = ["KeyChange", "Plan"]


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What leaves main of one key, what returns to it, and what main has of it afterwards.

    `leaves` are files of main, `returns` files of the branch `detached`. `holds` is as in
    `ledger.Landed`.
    """

    key: Key
    leaves: tuple[BranchFile, ...] = ()
    returns: tuple[BranchFile, ...] = ()
    holds: tuple[Held, ...] | None = ()

    @property
    def files(self) -> tuple[BranchFile, ...]:
        """The files that leave or return."""
        return (*self.leaves, *self.returns)


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of files, in one commit; without changes there is nothing to do."""

    changes: tuple[KeyChange, ...]

    @property
    def rows(self) -> int:
        """Rows of the files that leave or return."""
        return sum(f.rows for c in self.changes for f in c.files)

    @property
    def files(self) -> int:
        """How many files leave or return."""
        return sum(len(c.files) for c in self.changes)
