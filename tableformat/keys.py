"""The key of rows: of which partition of which source they are, and in which lake table they lie.

What others wrote has keys of its own, and so have rows of a partition that another lake table
divides otherwise: they lie there in another partition, and still say where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tableformat.names import hash_of

__all__ = ["Key"]

_OF_LAKE: Final = "lake:"
_WITHIN: Final = "lake:of:"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What is exported at most once: a partition of a source table, into a destination table.

    `source` and `destination` are identities (MergeTreeTable.identity, the Iceberg table's uuid),
    not names.
    """

    source: str
    partition_id: str
    destination: str

    @property
    def hash(self) -> str:
        """26 characters that stand for the key in paths and table properties."""
        return hash_of(self.source, self.partition_id, self.destination)

    @classmethod
    def of_lake(cls, table_uuid: str, partition_id: str, destination: str) -> Key:
        """Return the key of what no export wrote in a partition of a lake table (decision 0013)."""
        return cls(f"{_OF_LAKE}{table_uuid}", partition_id, destination)

    def at(self, destination: str) -> Key:
        """Return the key of the same partition of the same source in another table."""
        return replace(self, destination=destination)

    def within(self, partition_id: str) -> Key:
        """Return the key of these rows where they are a piece of another partition.

        It says of which partition of which source they are, once and for all: also where such a
        piece is put into a third table.
        """
        origin = self.origin
        source = f"{_WITHIN}{origin.source}/{origin.partition_id}"
        return replace(self, source=source, partition_id=partition_id)

    @property
    def origin(self) -> Key:
        """The key that the rows would have, had they been exported: it is the key itself of most.

        Its partition is one of the source, and need not be one of the lake table.
        """
        if not self.source.startswith(_WITHIN):
            return self
        # No partition id has a slash.
        source, _, partition_id = self.source.removeprefix(_WITHIN).rpartition("/")
        return replace(self, source=source, partition_id=partition_id)

    @property
    def is_of_export(self) -> bool:
        """Whether it is one of exports, and not of what others wrote here or in another table."""
        return not self.source.startswith(_OF_LAKE)

    @property
    def stays(self) -> bool:
        """Whether copies in other tables are of the same source: of what others wrote they are not.

        Those are of the lake table that they were copied from.
        """
        return self.is_of_export or self.source.startswith(_WITHIN)
