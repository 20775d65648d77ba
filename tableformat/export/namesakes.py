"""Other tables of the source table's name whose rows the lake partition may hold: refused.

A table that was restored, copied to another server or made anew has another identity than before,
and its partitions are other keys: nothing else would keep its rows from being added to those that
were exported under its name (DESIGN 5.1). So the first export of a partition is refused while main
may hold rows of the same partition of a namesake. Only the user can tell whether it is the same
table, which goes on under the identity that it had, or one of other rows. Shards of one cluster are
namesakes on purpose, as many as there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tableformat.committer import LakeTableState
from tableformat.errors import RefusedError
from tableformat.export.claim import Wish
from tableformat.export.in_main import Holding
from tableformat.ledger import Claim, Row, State
from tableformat.mergetree.table import MergeTreeTable

__all__ = ["Namesakes", "is_kept_back", "known_as", "namesakes"]


@dataclass(frozen=True, slots=True)
class Namesakes:
    """What a ledger knows of other tables of a name in one lake table, by partition id."""

    table: MergeTreeTable
    rows: Mapping[str, tuple[Row, ...]]

    def refusal(
        self,
        row: Row | None,
        partition_id: str,
        wish: Wish,
        held: Callable[[Row], Holding],
        *,
        after: Claim | None = None,
    ) -> str:
        """Say why a partition is not exported, '' when no other table's rows keep it back.

        Args:
            row: the ledger's row of the partition, None when it was never exported.
            partition_id: its id.
            wish: how the user asked.
            held: what main holds of the key of another row.
            after: a claim; exports that are under way and were begun later do not count.

        Raises:
            DestinationError: main cannot be read.
        """
        if not is_kept_back(row, wish):
            return ""
        of_it = [
            one
            for one in self.rows.get(partition_id, ())
            if after is None or one.state is not State.RUNNING or _is_older(one.claim, after)
        ]
        found = {one.key.source: text for one in of_it if (text := _may_hold(one, held(one)))}
        if len(found) < wish.shards:
            return ""
        held_of = "; ".join(f"of {source} ({text})" for source, text in found.items())
        there = (
            f"rows of another table {self.table.name} may be there already: {held_of}. This one is "
            f"{self.table.identity}."
        )
        if wish.attaches:
            return (
                f"{there} If it is the same table, made anew, use REPLACE PARTITION; if its rows "
                "are others, add them with SETTINGS "
                "export_merge_tree_part_overwrite_file_if_exists = 1."
            )
        return (
            f"{there} If it is the same table, restored, moved or made anew, go on "
            f"with --same-as {next(iter(found))}; if its rows are others, add them with "
            "--overwrite-file-if-exists."
        )


def namesakes(
    table: MergeTreeTable, destination: str, rows: Callable[[], Iterable[Row]]
) -> Namesakes:
    """Return what a ledger knows of other tables of a table's name.

    Args:
        table: the source table.
        destination: the lake table's uuid.
        rows: returns all rows of the ledger.

    Raises:
        LedgerError: the ledger cannot be read.
    """

    def others() -> Iterator[Row]:
        for row in rows():
            named = row.key.destination == destination and row.source_table == str(table.name)
            if named and row.key.source != table.key_source:
                yield row

    by_partition: dict[str, list[Row]] = {}
    for row in others():
        by_partition.setdefault(row.key.partition_id, []).append(row)
    return Namesakes(table, {one: tuple(found) for one, found in by_partition.items()})


def is_kept_back(row: Row | None, wish: Wish) -> bool:
    """Whether rows of namesakes keep a partition back, if there are any: on its first export."""
    is_first = row is None or row.done is None
    if wish.is_of_statement:
        # Of REPLACE they leave with everything else.
        return is_first and wish.attaches and not wish.beside
    return is_first and not (wish.beside or (wish.force and wish.whole))


def known_as(
    table: MergeTreeTable,
    wish: Wish,
    state: LakeTableState | None,
    rows: Callable[[], Iterable[Row]],
) -> MergeTreeTable:
    """Return the table under the identity that the user says it had.

    Args:
        table: as it is described now.
        wish: how the user asked.
        state: the lake table's, None when there is none.
        rows: returns all rows of the ledger.

    Raises:
        RefusedError: no export under that identity is known: a mistake in it would be a new table.
        LedgerError: the ledger cannot be read.
    """
    if not wish.same_as:
        return table
    destination = state.layout.table_uuid if state is not None else ""
    known = {
        row.key.source
        for row in rows()
        if row.key.destination == destination and row.source_table == str(table.name)
    }
    if wish.same_as not in known:
        message = (
            f"Cannot export {table.name} as {wish.same_as}: no export of a table of that name and "
            f"identity is known there. Known: {', '.join(sorted(known)) or 'none'}."
        )
        raise RefusedError(message)
    return replace(table, known_as=wish.same_as)


def _is_older(one: Claim, other: Claim) -> bool:
    """Whether one claim was begun before another; of equals none is ever made."""
    return int(one.transaction_id) < int(other.transaction_id)


def _may_hold(row: Row, held: Holding) -> str:
    """Say that rows of a namesake may be in main, '' when none can be."""
    if held.files or not held.is_certain:
        return held.text.rstrip(".")
    if row.state is State.RUNNING:
        return "an export of it was begun, and not cancelled"
    return ""
