"""Whether a source table is the one that a key was exported from: its node in Keeper is compared.

A replicated table is known by its Keeper path, because replicas agree on it. So do tables that have
nothing else in common: those of two data centres with an ensemble each, and one that was dropped
and made anew. Taken for one table, the rows of the one are never exported, or take the place of the
other's. The node below the path tells them apart, but is no identity: an ensemble that was restored
has other nodes for the same table, and its rows would be exported twice. So it is a guard: another
node refuses, and the user decides (docs/spec/ledger.md, nodes of Keeper).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tableformat.effects import Step
from tableformat.export.claim import Answer, Wish
from tableformat.export.outcome import Status
from tableformat.export.ports import JobPorts
from tableformat.ledger import Row, Stale, State
from tableformat.mergetree.keeper_node import KeeperNode, KeeperSilent
from tableformat.mergetree.table import MergeTreeTable

__all__ = ["SameTable", "known_node", "other_table"]


def known_node(table: MergeTreeTable) -> KeeperNode | None:
    """Return what a claim remembers of a source table."""
    node = table.keeper_node
    return node if isinstance(node, KeeperNode) else None


def other_table(row: Row | None, table: MergeTreeTable) -> str:
    """Say why a table may not be the one that a key was exported from, '' when nothing says so.

    Args:
        row: the key's, None when it was never exported.
        table: as it is described now.
    """
    if row is None or row.keeper_node is None or table.known_as or not _relies(row):
        return ""
    then, now = row.keeper_node, table.keeper_node
    path = row.key.source.removeprefix("keeper:")
    if isinstance(now, KeeperSilent):
        return (
            f"Keeper does not say whether {path} is still the table that was exported "
            f"({now.reason.rstrip('. ')}). Run again when it answers."
        )
    if now is None or now == then:
        return ""
    return (
        f"another table was exported from the Keeper path {path}: its node there was made {then}, "
        f"this one's {now}, so this is another Keeper, or the table was made anew. Export it into "
        "another lake table. If it is the same table and its Keeper was restored, give "
        "--same-table to `mergeberg export`."
    )


def _relies(row: Row) -> bool:
    """Whether what is done with a key depends on what was begun or exported of it before."""
    return row.state is State.RUNNING or row.done is not None or bool(row.landed)


@dataclass(frozen=True, slots=True)
class SameTable:
    """Looks, under the lease of a key, whether its source table is the one that was exported."""

    ports: JobPorts
    table: MergeTreeTable
    wish: Wish

    def confirmed(self, row: Row) -> Row | Answer:
        """Return the row to go on with, or the refusal.

        When the user says that it is the same table, the row has its node from then on.

        Raises:
            LedgerError: it cannot be written.
        """
        other = other_table(row, self.table)
        if not other:
            return row
        if not self.wish.same_table:
            return Answer(Status.REFUSED, other)
        node = known_node(self.table)
        if node is None:
            return row
        after = replace(row, keeper_node=node, updated=self.ports.clock())
        written = self.ports.effects(Step.CLAIM, partial(self.ports.ledger.write, after))
        if isinstance(written, Stale):
            text = "another run claimed this partition at the same moment"
            return Answer(Status.IN_PROGRESS, text)
        return written
