"""What the node of a row says, and what a row that is to be written will say there."""

from __future__ import annotations

import json
import uuid
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

from catalog.ledgers.keeper.nodes import json_members, member, sealed, unsealed
from catalog.ledgers.keeper.session import Change, Trouble, create, set_data
from catalog.ledgers.keeper_paths import KeeperPaths
from tableformat.ledger import Row
from tableformat.ledger_text import render_row
from tableformat.manifest import stored_manifest

__all__ = ["RowDraft", "RowHead", "row_head"]

_INLINE: Final = 64 * 1024
"""Bytes up to which a body stands in its row's node, as a text that people can read."""
MOST_BYTES: Final = 256 * 1024
"""Bytes of a piece of a larger one, and of a manifest, far below the 1 MB that Keeper takes."""
_ROW_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class RowHead:
    """What the node of a row says. `pieces` is 0 when the body stands behind it.

    `version` is what Keeper counts, `written` what it was to be: an administrator who puts a node
    back moves the one and not the other.
    """

    version: int
    written: int
    write: str
    pieces: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RowDraft:
    """A row that is to be written, and how."""

    row: Row
    body: bytes
    pieces: tuple[bytes, ...]
    write: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, row: Row) -> RowDraft:
        """Return how a row is written, by a write that is new."""
        body = render_row(row).encode()
        if len(body) <= _INLINE:
            return cls(row, body, ())
        small = zlib.compress(body)
        return cls(
            row, b"", tuple(small[at : at + MOST_BYTES] for at in range(0, len(small), MOST_BYTES))
        )

    @property
    def key(self) -> str:
        """The hash of its key."""
        return self.row.key.hash

    @property
    def version(self) -> int:
        """What the row will have."""
        return self.row.version + 1

    @property
    def node(self) -> bytes:
        """What its node says."""
        head = {
            "format_version": _ROW_FORMAT,
            "version": self.version,
            "write": self.write,
            "pieces": len(self.pieces),
        }
        return sealed(json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.body)

    @property
    def landed(self) -> int:
        """The greatest sequence number that it knows."""
        return max((x.sequence_number for x in self.row.landed), default=0)

    def moving(self, paths: KeeperPaths) -> Change:
        """Return the change that makes the row what this is."""
        path = paths.row(self.key)
        if self.row.version == 0:
            return create(path, self.node)
        # Keeper counts from 0. It takes -1 for any version, which no row is written over.
        return set_data(path, self.node, self.row.version - 1)

    def manifesting(self, paths: KeeperPaths, *, anew: bool) -> Change:
        """Return the change that writes the manifest, which no other row of the key has.

        `anew`: the row has none yet, as those of earlier releases.
        """
        path = paths.manifest(self.key, self.row.created)
        text = stored_manifest(self.row, MOST_BYTES).encode()
        return create(path, text) if anew or self.row.version == 0 else set_data(path, text, -1)


def row_head(stored: bytes, description: Any, path: str) -> RowHead:
    """Read the node of a row, with what Keeper says of the node.

    Raises:
        Trouble: it is damaged, or of another release.
    """
    line, _, body = unsealed(stored, path).partition(b"\n")
    head = json_members(line, path)
    if (found := head.get("format_version")) != _ROW_FORMAT:
        raise Trouble(
            f"the node {path} has format {found}, this release reads {_ROW_FORMAT}",
            "Use the release that wrote it",
        )
    written, pieces = (member(head, name, int, path) for name in ("version", "pieces"))
    write = member(head, "write", str, path)
    return RowHead(description.version + 1, written, write, pieces, body)
