"""A filled staging table, as it is handed from the snapshot to its proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tableformat.errors import TableFormatError
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName, quote_string
from tableformat.source import FrozenPart

__all__ = ["Clone", "Refused", "within"]

# As many names as certainly fit into a query.
_NAMED: Final = 3000

Refused = Mapping[PartitionId, TableFormatError]


@dataclass(frozen=True, slots=True)
class Clone:
    """A filled staging table: whose it is, and the parts of its partitions, not yet counted."""

    source: TableName
    staging: TableName
    parts: Mapping[PartitionId, tuple[FrozenPart, ...]]

    def within(self, partition_ids: tuple[PartitionId, ...]) -> str:
        """Return the condition that leaves the rows of partitions, of those in the clone."""
        condition = within(partition_ids)
        if len(partition_ids) != 1:
            return condition
        # Old versions read all parts for a partition id, damaged ones of others too.
        names = [quote_string(part.part.name) for part in self.parts[partition_ids[0]]]
        few = 0 < len(names) <= _NAMED
        return f"{condition} AND {SOURCE_ALIAS}._part IN ({', '.join(names)})" if few else condition


def within(partition_ids: tuple[PartitionId, ...]) -> str:
    """Return the condition that leaves the rows of partitions of a table."""
    ids = ", ".join(quote_string(str(one)) for one in partition_ids)
    return f"{SOURCE_ALIAS}._partition_id IN ({ids})"
