"""Finds exported partitions that lack values of columns which the source table got later.

A data file that was written before a column was added has no values of it, and readers return NULL.
`--evolve-schema` names the partitions that need another export for this reason, and `--backfill`
exports them. A partition that no longer exists in the source can only be changed in the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tableformat.export.content import columns_of, lacks_values
from tableformat.export.watermark import Listing
from tableformat.ledger import Row
from tableformat.mergetree.missing_columns import is_constant, is_null, shown_definitions
from tableformat.mergetree.table import Column
from tableformat.names import LakeName, PartitionId, quote_identifier, quote_string

__all__ = ["Outdated", "outdated"]

_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Outdated:
    """Exported partitions that lack values which ClickHouse shows, or have other values.

    `here` are in the source, `gone` are not. `added` are the columns that the lake table lacked
    when the command started, and that ClickHouse does not read as NULL from parts without them.
    """

    here: tuple[PartitionId, ...]
    gone: tuple[PartitionId, ...]
    added: tuple[Column, ...]

    def report(
        self, to: LakeName, exported: Collection[PartitionId], note: Callable[[str], None]
    ) -> None:
        """Report the partitions that a command does not export.

        Args:
            to: the lake table.
            exported: the partitions that the command exports.
            note: called with each text.
        """
        if rest := tuple(one for one in self.here if one not in exported):
            note(
                f"partitions of {to} that differ from what ClickHouse shows{self._of()}, and that "
                f"this command does not export: {_names(rest)}. --backfill exports them again"
            )
        if self.gone:
            note(
                f"partitions of {to} with NULL{self._of()} whose source is gone: "
                f"{_names(self.gone)}.{self._way(to)}"
            )

    def _of(self) -> str:
        shown = shown_definitions(self.added, [c.name for c in self.added])
        return f" for {shown}" if shown else ""

    def _way(self, to: LakeName) -> str:
        """Return the advice how to set the values in the lake: UPDATE can set a constant."""
        constant = [c for c in self.added if is_constant(c.default_expression)]
        if not constant:
            return " No constant gives their values: set them there with UPDATE"
        one = constant[0]
        name = quote_identifier(one.name)
        return (
            f" Set it there: ALTER TABLE {to} UPDATE {name} = {one.default_expression} IN PARTITION"
            f" ID {quote_string(str(self.gone[0]))} WHERE {name} IS NULL"
        )


def outdated(rows: Iterable[Row], listing: Listing, had: Collection[str]) -> Outdated:
    """Return the partitions of a source table whose rows in the lake lack values.

    Args:
        rows: the ledger rows of exports of that table to the destination.
        listing: the source table.
        had: the columns that the lake table had when the command started.
    """
    table = listing.table
    added = tuple(c for c in table.stored_columns if c.name not in had and not is_null(c))
    here, gone = [], []
    for row in rows:
        if row.done is None or not row.done.landed.rows:
            continue
        one = PartitionId(row.key.partition_id)
        content = listing.contents.get(one)
        if content is not None and lacks_values(row.done, content):
            here.append(one)
        elif content is None and added and row.done.columns != columns_of(table):
            gone.append(one)
    return Outdated(tuple(sorted(here)), tuple(sorted(gone)), added)


def _names(ids: tuple[PartitionId, ...]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{', '.join(str(one) for one in ids[:_NAMED])}{more}"
