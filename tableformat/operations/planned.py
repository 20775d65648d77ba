"""What a statement changes in main, planned over one state of the table; nothing is done by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tableformat.branches import BranchFile
from tableformat.ledger import Held, Key, Record, Row
from tableformat.main_change import Figures, counted_files

__all__ = ["KeyChange", "Plan", "Rewrite"]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files of main in whose place others of the same key come, with the rows that are left.

    `changed` are the rows of them that get other values, or go; `made` those of each file that
    comes: none where no row is left. `place` is the location below which it is written, '' for
    beside the first of them.
    """

    files: tuple[BranchFile, ...]
    changed: int
    made: tuple[int, ...]
    place: str = ""

    @property
    def rows(self) -> int:
        """The rows that are left."""
        return sum(self.made)


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What leaves main of one key, what returns to it, and what main has of it afterwards.

    `leaves` are files of main, `returns` files of the branch `detached`, `copies` files of another
    lake table of which copies come, `rewrites` of those that leave what is written anew. `holds` is
    as in `ledger.Landed`, but for what comes, which has no transaction yet. `like` is the record of
    the export that copies, or all files that are written anew, are, None when they are none, and
    `source` the key's row in the other table. `aside`: the copies come to the branch `detached`,
    and main has what it had before.
    """

    key: Key
    leaves: tuple[BranchFile, ...] = ()
    returns: tuple[BranchFile, ...] = ()
    holds: tuple[Held, ...] | None = ()
    copies: tuple[BranchFile, ...] = ()
    like: Record | None = None
    source: Row | None = None
    aside: bool = False
    rewrites: tuple[Rewrite, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of files, in one commit; without changes there is nothing to do.

    `here` are the rows that were to come and are in main already; `kept` those that were looked at
    and stay as they are. `moved` are the files that go to another place, where some that come do
    not; `unmoved` is what is said of a plan without changes.
    """

    changes: tuple[KeyChange, ...]
    here: int = 0
    kept: int = field(default=0, compare=False)
    moved: tuple[BranchFile, ...] = field(default=(), compare=False)
    unmoved: str = field(default="", compare=False)

    @property
    def told(self) -> tuple[BranchFile, ...]:
        """The files that are moved, or come to main; where none does, those that leave it."""
        come = tuple(f for c in self.changes for f in (*c.returns, *c.copies))
        return self.moved or come or tuple(f for c in self.changes for f in c.leaves)

    @property
    def leaves_main(self) -> Figures:
        """What leaves main, files that are written anew included."""
        return counted_files(f for c in self.changes for f in c.leaves)

    @property
    def comes_to_main(self) -> Figures:
        """What comes to main; the size of files that are written anew is not known before."""
        there = (f for c in self.changes if not c.aside for f in (*c.returns, *c.copies))
        made = tuple(rows for r in self.rewrites for rows in r.made)
        return counted_files(there) + Figures(len(made), sum(made), None if made else 0)

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The files that are written anew."""
        return tuple(r for c in self.changes for r in c.rewrites)

    @property
    def rows(self) -> int:
        """Rows of the files that are told of; of those that are written anew, what changes."""
        return sum(r.changed for r in self.rewrites) or sum(f.rows for f in self.told)

    @property
    def files(self) -> int:
        """How many files are told of."""
        return len(self.told)

    @property
    def bytes(self) -> int:
        """Their size; 0 where they are written anew, which is known only afterwards."""
        return 0 if self.rewrites else sum(f.bytes for f in self.told)
