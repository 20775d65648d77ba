"""Step 6 of the commit protocol: what must leave main for a key, computed from M in every turn.

Of an export these are the files of any export of its key, or all of its lake partition; of a
statement on the lake table what was planned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Self

from tableformat.committer import KeyCommit, LakeTableState
from tableformat.errors import InternalError, RefusedError
from tableformat.export.answering import there_twice
from tableformat.export.archived import refuse_archived
from tableformat.export.claim import shrinks
from tableformat.export.foreign import OwnKeys, goes_on, refuse_foreign
from tableformat.export.in_main import Holding, holding
from tableformat.export.settling import Ports
from tableformat.export.whole_partition import WholePartitions, leaving_of, no_lake_partition
from tableformat.ledger import Row
from tableformat.main_change import Leaving

__all__ = ["LeavingMain", "Planned", "held_in_main"]


def held_in_main(ports: Ports, row: Row | None, state: LakeTableState, key: str) -> Holding:
    """Say what main holds of a key (step 6)."""
    return holding(row, state, key, partial(ports.table.files_of, state, key))


class Planned(Protocol):
    """Step 6 of a statement on the lake table: what leaves main was planned before it was claimed.

    Its keys land together, or none of them does (decision 0013).
    """

    def leaving(self, state: LakeTableState, key: str) -> Leaving:
        """Return what leaves main for a key.

        Raises:
            RefusedError: M is not what the plan was made for.
            DestinationError: main cannot be read.
            LedgerError: the ledger cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class LeavingMain:
    """Says for the keys of one commit what leaves main."""

    ports: Ports
    own: OwnKeys
    whole: WholePartitions | None
    planned: Planned | None

    @classmethod
    def of(cls, ports: Ports, table_uuid: str, planned: Planned | None) -> Self:
        """Return it for a table; `planned` of a statement."""
        own = OwnKeys(ports.ledger, table_uuid)
        if ports.storage is None:
            return cls(ports, own, None, planned)
        whole = WholePartitions(ports.effects, ports.table, ports.ledger, own, ports.storage)
        return cls(ports, own, whole, planned)

    def __call__(self, row: Row, state: LakeTableState, key: KeyCommit) -> Leaving:
        """Return what must leave main for a key, and what main is before it.

        Raises:
            RefusedError: as `_leaving`.
        """
        return replace(self._leaving(row, state, key), before=state.main)

    def _leaving(self, row: Row, state: LakeTableState, key: KeyCommit) -> Leaving:
        """Return what must leave main for a key.

        Raises:
            RefusedError: the key is archived, where its rows are cannot be told, more would leave
                than come, main has files of others where its first ones go, a whole partition
                cannot be replaced, or M is not what was planned for.
        """
        if self.planned is not None:
            return self.planned.leaving(state, key.key)
        if row.archived is not None:
            message = f"Cannot commit: {refuse_archived(row, row.archived, 0, 0)}."
            raise RefusedError(message)
        held = held_in_main(self.ports, row, state, key.key)
        if key.whole:
            return self._all(state, key, held)
        if not held.is_certain and not (held.as_left and key.may_shrink):
            message = f"Cannot commit: {held.text} Rows could be there twice. Nothing was changed."
            raise RefusedError(message)
        if key.attaches:
            if held.files:
                message = f"Cannot attach: {there_twice(held)} Nothing was changed."
                raise RefusedError(message)
            return Leaving()
        rows = sum(r.rows for r in key.receipts)
        if rows < held.rows and not key.may_shrink:
            message = f"Cannot commit: {shrinks(held.rows, rows)} Nothing was changed."
            raise RefusedError(message)
        if key.receipts and not goes_on(held, beside=key.beside, force=key.may_shrink):
            first = key.receipts[0]
            # Of another spec the values mean something else; such a table is not committed to.
            if first.spec_id == state.layout.spec_id:
                refuse_foreign(self.ports.table, state, first.partition, self.own, held)
        return leaving_of(held)

    def _all(self, state: LakeTableState, key: KeyCommit, held: Holding) -> Leaving:
        """Return everything in the key's lake partition; its rows may be fewer than leave."""
        if self.whole is None:
            message = "A whole lake partition is to be replaced, and nothing can read its receipts."
            raise InternalError(f"{message} This is a bug, please report it.")
        if not key.receipts:
            raise no_lake_partition()
        first = key.receipts[0]
        if first.spec_id != state.layout.spec_id:
            # Its values mean something else in such a table, which is not committed to.
            return leaving_of(held)
        return self.whole.leaving(state, key.key, first.partition, held)
