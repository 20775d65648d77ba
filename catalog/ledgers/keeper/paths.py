"""Names the nodes of a ledger in Keeper: layout 1 (docs/spec/keeper-ledger.md). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tableformat.names import hash_of

__all__ = ["LAYOUT", "BlockName", "BodyName", "KeeperPaths", "ledger_root"]

LAYOUT: Final = "v1"
"""The parent of all nodes of this layout."""
_ROOT: Final = "mergeberg"


def ledger_root(chroot: str) -> str:
    """Return the parent node of a ledger's layouts."""
    return f"{chroot}/{_ROOT}"


@dataclass(frozen=True, slots=True)
class KeeperPaths:
    """The nodes of one ledger.

    The identity is the name of a node, so that a transaction can check it. `chroot` is '' or begins
    with a slash.
    """

    chroot: str
    identity: str

    @property
    def _top(self) -> str:
        return f"{ledger_root(self.chroot)}/{LAYOUT}"

    @property
    def mark(self) -> str:
        """The node that exists while the ledger has this identity and this layout."""
        return f"{self._top}/identity/{self.identity}"

    @property
    def epoch(self) -> str:
        """The epoch counter."""
        return f"{self._top}/epoch"

    @property
    def counters(self) -> str:
        """The permanent counters."""
        return f"{self._top}/counters"

    @property
    def rows(self) -> str:
        """The parent of the rows."""
        return f"{self._top}/rows"

    @property
    def destinations(self) -> str:
        """The parent of the sequence numbers of destinations."""
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
        """All nodes with children that are created with the ledger, parents first."""
        top = self._top
        names = ("identity", "rows", "bodies", "landed", "leases", "events")
        return (ledger_root(self.chroot), top, *(f"{top}/{name}" for name in names))

    def row(self, key: str) -> str:
        """Return the row's node of a key hash, which changes by compare-and-set."""
        return f"{self.rows}/{key}"

    def manifest(self, key: str, created: int) -> str:
        """Return the manifest's node below a row, which has the row's creation time in its name."""
        return f"{self.row(key)}/manifest-{created}"

    def lease(self, key: str) -> str:
        """Return the lease's node of a key hash."""
        return f"{self.leases}/{key}"

    def landed(self, destination: str) -> str:
        """Return the node with the greatest known sequence number of a destination."""
        return f"{self.destinations}/{hash_of(destination)}"

    def bodies(self, key: str) -> str:
        """Return the parent of the pieces of a row that is too large for one node."""
        return f"{self._top}/bodies/{key}"

    def body(self, key: str, name: BodyName) -> str:
        """Return the node of one piece."""
        return f"{self.bodies(key)}/{name}"

    def block(self, name: BlockName) -> str:
        """Return the node of a block of events; Keeper appends a number when it is created."""
        return f"{self.events}/{name}"


@dataclass(frozen=True, slots=True)
class BodyName:
    """Names a piece of a row: the row's version, the write's id and the piece's index."""

    version: int
    write: str
    piece: int

    def __str__(self) -> str:
        return f"{self.version:010d}-{self.write}-{self.piece:04d}"

    @classmethod
    def parse(cls, text: str) -> BodyName:
        """Parse a name.

        Raises:
            ValueError: it is not the name of a piece.
        """
        version, write, piece = text.split("-")
        return cls(int(version), write, int(piece))

    def is_left_over(self, version: int, write: str) -> bool:
        """Whether no row can refer to the piece, given the row's version and its write.

        Pieces of a later version belong to a write that has yet to change the row.
        """
        return (self.version, self.write) != (version, write) and self.version <= version


@dataclass(frozen=True, slots=True)
class BlockName:
    """Names a block of events: its number of events, the write's id and the block's index in it.

    `number` orders all blocks; Keeper assigns it.
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
        """Parse a name to which Keeper has appended a number.

        Raises:
            ValueError: it is not the name of a block.
        """
        events, write, block, number = text.split("-")
        return cls(int(events), write, int(block), int(number))
