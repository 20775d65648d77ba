"""What a statement changes in main, planned over one state of the table; nothing is done by it."""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.ledger import Held, Key

__all__ = ["KeyChange", "Plan"]


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What leaves main of one key, and what main has of it afterwards.

    `leaves` are paths, `rows` the rows of these files. `holds` is as in `ledger.Landed`.
    """

    key: Key
    leaves: tuple[str, ...]
    rows: int
    holds: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a partition, in one snapshot; without changes there is nothing to do."""

    changes: tuple[KeyChange, ...]

    @property
    def rows(self) -> int:
        """Rows of the files that leave main."""
        return sum(c.rows for c in self.changes)

    @property
    def files(self) -> int:
        """How many files leave main."""
        return sum(len(c.leaves) for c in self.changes)
