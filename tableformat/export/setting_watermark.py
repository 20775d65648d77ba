"""Puts the watermark of a source table into the commits of one run (N-40, reading 32).

It is a property of the lake table, set in the same request as the rows, and computed in each turn
from the metadata M of that turn: what main holds there, and the keys that the request makes
visible. Of the source it knows what was listed when the run began, and says when that was. A table
property does not go back when main is moved: it names the snapshot for which it holds. Where
another table of the same identity has exports, no partition is the last of both: there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tableformat.committer import FileInMain, KeyCommit, LakeTable, LakeTableState
from tableformat.errors import DestinationError
from tableformat.export.content import Content
from tableformat.export.same_table import known_node, other_table
from tableformat.export.watermark import Listing, why_not
from tableformat.ledger import Key, Ledger
from tableformat.names import PartitionId, hash_of

__all__ = ["SettingWatermark", "StoredWatermark", "property_of"]

_PREFIX: Final = "mergeberg.watermark."
_TEXT: Final = re.compile(r"(\d+):(\d+):([A-Za-z0-9-]+)")


@dataclass(frozen=True, slots=True)
class StoredWatermark:
    """What the property says: in a snapshot all was there up to a partition, as listed at a time.

    `time` is milliseconds since 1970.
    """

    snapshot_id: int
    time: int
    partition_id: PartitionId

    @property
    def text(self) -> str:
        """The property's value."""
        return f"{self.snapshot_id}:{self.time}:{self.partition_id}"

    @classmethod
    def parse(cls, text: str) -> StoredWatermark:
        """Read the property's value.

        Raises:
            DestinationError: it is no such value.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            message = (
                f"Cannot read the watermark {text!r}: it is not SNAPSHOT:TIME:PARTITION. Ask "
                "`mergeberg exports watermark`, which does not need it."
            )
            raise DestinationError(message)
        return cls(int(found[1]), int(found[2]), PartitionId(found[3]))


def property_of(source: str) -> str:
    """Return the name of the property for a source table's identity."""
    return _PREFIX + hash_of(source)


class SettingWatermark:
    """The watermark of one source table, for one commit after the other of a run."""

    def __init__(self, listing: Listing, lake: LakeTable, ledger: Ledger) -> None:
        """Remember what the source held when the run began."""
        self._listing, self._lake, self._ledger = listing, lake, ledger
        self._whole: dict[str, frozenset[FileInMain]] = {}
        self._is_shared: bool | None = None

    def __call__(self, state: LakeTableState, keys: tuple[KeyCommit, ...]) -> tuple[str, str]:
        """Return the property, and its value but for the snapshot's id; '' when nothing is reached.

        Args:
            state: M.
            keys: what becomes visible with it.

        Raises:
            DestinationError: main cannot be read.
            LedgerError: the ledger cannot be read.
        """
        landing = {key.key: key.fingerprint for key in keys}
        last = None
        listed = {} if self._of_two_tables(state) else self._listing.contents
        for one, content in listed.items():
            if content is not None and not self._is_exported(one, content, state, landing):
                break
            last = one
        value = f"{self._listing.time}:{last}" if last is not None else ""
        return property_of(self._listing.source), value

    def _of_two_tables(self, state: LakeTableState) -> bool:
        """Whether another table that has the source's identity has exports; asked once."""
        if self._is_shared is None:
            table, destination = self._listing.table, state.layout.table_uuid
            self._is_shared = known_node(table) is not None and any(
                row.key.source == table.key_source
                and row.key.destination == destination
                and bool(other_table(row, table))
                for row in self._ledger.rows()
            )
        return self._is_shared

    def _is_exported(
        self, one: PartitionId, content: Content, state: LakeTableState, landing: dict[str, str]
    ) -> bool:
        key = Key(self._listing.source, one.value, state.layout.table_uuid)
        if key.hash in landing:
            return landing[key.hash] == content.fingerprint
        files = frozenset(self._lake.files_of(state, key.hash))
        # The ledger need not be asked again of what main holds unchanged.
        if files and self._whole.get(key.hash) == files:
            return True
        row = self._ledger.read(key.hash)
        if why_not(self._listing.table, content, row, key, self._lake, state):
            return False
        self._whole[key.hash] = files
        return True
