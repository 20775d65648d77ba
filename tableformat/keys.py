"""Defines the key of rows: their source table and partition, and their lake table.

Rows that no export wrote have keys of the lake table. Rows of a partition that were copied to a
lake table with another partition spec have keys that also name their original partition.
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
    """The unit of exactly-once export: a partition of a source table, in a destination table.

    `source` and `destination` are identities (MergeTreeTable.identity, the Iceberg table's uuid),
    not names.
    """

    source: str
    partition_id: str
    destination: str

    @property
    def hash(self) -> str:
        """The 26 characters for the key in file names and table properties."""
        return hash_of(self.source, self.partition_id, self.destination)

    @classmethod
    def of_lake(cls, table_uuid: str, partition_id: str, destination: str) -> Key:
        """Return the key of rows in a lake partition that no export wrote (decision 0013)."""
        return cls(f"{_OF_LAKE}{table_uuid}", partition_id, destination)

    def at(self, destination: str) -> Key:
        """Return the key of the same partition of the same source in another table."""
        return replace(self, destination=destination)

    def within(self, partition_id: str) -> Key:
        """Return the key of these rows in another partition of a table with another spec.

        The key keeps their original source and partition, also when they are copied to a third
        table.
        """
        origin = self.origin
        source = f"{_WITHIN}{origin.source}/{origin.partition_id}"
        return replace(self, source=source, partition_id=partition_id)

    @property
    def origin(self) -> Key:
        """The key without the effect of `within`; for most keys it is the key itself.

        Its partition is one of the source, and may not exist in the lake table.
        """
        if not self.source.startswith(_WITHIN):
            return self
        # No partition id has a slash.
        source, _, partition_id = self.source.removeprefix(_WITHIN).rpartition("/")
        return replace(self, source=source, partition_id=partition_id)

    @property
    def is_of_export(self) -> bool:
        """Whether it is the key of an export, not of rows that no export wrote."""
        return not self.source.startswith(_OF_LAKE)

    @property
    def stays(self) -> bool:
        """Whether copies of the rows in other tables keep the source of this key.

        Copies of rows that no export wrote get the lake table they come from as their source.
        """
        return self.is_of_export or self.source.startswith(_WITHIN)
