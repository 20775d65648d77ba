"""Where a ledger keeps what in Keeper: layout 1 (docs/spec/keeper-ledger.md). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tableformat.names import hash_of

__all__ = ["LAYOUT", "BlockName", "BodyName", "KeeperPaths", "ledger_root"]

LAYOUT: Final = "v1"
"""The node that every other one of this layout is below."""
_ROOT: Final = "mergeberg"


def ledger_root(chroot: str) -> str:
    """Return the node that the layouts of a ledger are below."""
    return f"{chroot}/{_ROOT}"


@dataclass(frozen=True, slots=True)
class KeeperPaths:
    """The nodes of one ledger. Its identity is the name of a node, so that a change can ask for it.

    `chroot` is '' or begins with a slash.
    """

    chroot: str
    identity: str

    @property
    def _top(self) -> str:
        return f"{ledger_root(self.chroot)}/{LAYOUT}"

    @property
    def mark(self) -> str:
        """The node that is there as long as this ledger is this one, and of this layout."""
        return f"{self._top}/identity/{self.identity}"

    @property
    def epoch(self) -> str:
        """The counter of claims."""
        return f"{self._top}/epoch"

    @property
    def counters(self) -> str:
        """What was counted for ever."""
        return f"{self._top}/counters"

    @property
    def rows(self) -> str:
        """The parent of the rows."""
        return f"{self._top}/rows"

    @property
    def destinations(self) -> str:
        """The parent of what is known of destinations."""
        return f"{self._top}/landed"

    @property
    def leases(self) -> str:
        """The parent of the leases."""
        return f"{self._top}/leases"

    @property
    def events(self) -> str:
        """The parent of the blocks of events."""
        return f"{self._top}/events"

    @property
    def folders(self) -> tuple[str, ...]:
        """All that is made with the ledger and has nodes below it, parents first."""
        top = self._top
        names = ("identity", "rows", "bodies", "landed", "leases", "events")
        return (ledger_root(self.chroot), top, *(f"{top}/{name}" for name in names))

    def row(self, key: str) -> str:
        """Return the node of a key hash: what moves by compare-and-set."""
        return f"{self.rows}/{key}"

    def manifest(self, key: str, created: int) -> str:
        """Return the node below a row's that has its manifest, and tells it from one made again."""
        return f"{self.row(key)}/manifest-{created}"

    def lease(self, key: str) -> str:
        """Return the node of a key hash's lease."""
        return f"{self.leases}/{key}"

    def landed(self, destination: str) -> str:
        """Return the node with the greatest sequence number that is known of a destination."""
        return f"{self.destinations}/{hash_of(destination)}"

    def bodies(self, key: str) -> str:
        """Return the parent of the pieces of a row that is too large for one node."""
        return f"{self._top}/bodies/{key}"

    def body(self, key: str, name: BodyName) -> str:
        """Return the node of one piece."""
        return f"{self.bodies(key)}/{name}"

    def block(self, name: BlockName) -> str:
        """Return the node of a block of events, to which Keeper adds a number when it is made."""
        return f"{self.events}/{name}"


@dataclass(frozen=True, slots=True)
class BodyName:
    """Names a piece of a row: of which version of it, written by whom, the how manieth."""

    version: int
    write: str
    piece: int

    def __str__(self) -> str:
        return f"{self.version:010d}-{self.write}-{self.piece:04d}"

    @classmethod
    def parse(cls, text: str) -> BodyName:
        """Read a name.

        Raises:
            ValueError: it is none.
        """
        version, write, piece = text.split("-")
        return cls(int(version), write, int(piece))

    def is_left_over(self, version: int, write: str) -> bool:
        """Whether no row can refer to it any more, once the row has a version of a write.

        What a later version will refer to is written before the row moves.
        """
        return (self.version, self.write) != (version, write) and self.version <= version


@dataclass(frozen=True, slots=True)
class BlockName:
    """Names a block of events: how many it has, written by whom, the how manieth of that write.

    `number` orders the blocks of all; Keeper gives it.
    """

    events: int
    write: str
    block: int
    number: int = -1

    def __str__(self) -> str:
        ordered = f"{self.number:010d}" if self.number >= 0 else ""
        return f"{self.events:06d}-{self.write}-{self.block:04d}-{ordered}"

    @classmethod
    def parse(cls, text: str) -> BlockName:
        """Read a name that Keeper has given a number.

        Raises:
            ValueError: it is none.
        """
        events, write, block, number = text.split("-")
        return cls(int(events), write, int(block), int(number))
