"""Refuses to export a table whose rows the lake table may already hold under another identity.

A table that was restored, copied to another server or created again has a new identity, so its
partitions have new keys. No other check would prevent duplicate rows.

* `SameNameExports.refusal`: the first export of a partition is refused while main may hold rows of
  the same partition of a table with the same name. The user decides: the same table (`--same-as`,
  see `known_as`), or one with other rows. Shards of one cluster may share a name.
* It also refuses a table with another name that has a part which was exported from the first
  table: the table was renamed, attached or copied, or the part was. A table that only its name
  identifies (the engine Ordinary, an old server) gets a new identity when it is renamed, and
  merges replace its exported parts. It is refused while no table of the exported name exists in
  the source, or while its parts are merged from the exported parts.
* And a table with another name, if the exported one does not have the partition any more: its rows
  may have been moved, and merged since.
* `SameTable`: a replicated table is known by its Keeper path. Two ensembles can have the same
  path, and a new table can have the path of a dropped one. So the Keeper node below the path is
  compared: another node refuses the export, and the user decides. The node is a guard, not an
  identity: a restored ensemble has new nodes for the same table. Any other table is known by its
  UUID, which CREATE … ON CLUSTER gives to the tables of all shards. So its server is compared in
  the same way.

Source: docs/spec/ledger.md, "Nodes of Keeper", "Tables of one name", "Tables of other names".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tableformat.committer import LakeTableState
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError, Unable, UsageError
from tableformat.export.content import Content, is_merged
from tableformat.export.decision import Skip
from tableformat.export.main_state import Holding
from tableformat.export.outcome import Status
from tableformat.export.ports import JobPorts
from tableformat.export.request import ExportOptions
from tableformat.ledger import Claim, Key, Row, Stale, State
from tableformat.mergetree.table import KeeperNode, KeeperUnavailable, MergeTreeTable, known_by_name
from tableformat.messages import Command, Option
from tableformat.names import PartitionId, TableName
from tableformat.source import Source

__all__ = [
    "SameNameExports",
    "SameTable",
    "SourceTables",
    "check_same_as",
    "known_as",
    "known_node",
    "may_be_refused",
    "other_table",
    "same_name_exports",
    "unconfirmed_table",
]

_SHOWN: Final = 10


class SourceTables:
    """Asks a source about the tables of other exports; each question is asked once."""

    def __init__(self, effects: Effects, source: Source) -> None:
        """Store the arguments; nothing is read."""
        self._effects = effects
        self._source = source
        self._gone: dict[TableName, bool] = {}
        self._left: dict[Key, bool] = {}

    def is_gone(self, name: TableName) -> bool:
        """Whether the source no longer has a table of a name.

        Raises:
            SourceError: the source cannot be read.
        """
        if name not in self._gone:
            engine = self._effects(Step.DESCRIBE_SOURCE, lambda: self._source.engine_of(name))
            self._gone[name] = engine is None
        return self._gone[name]

    def has_lost(self, row: Row, server: str) -> bool:
        """Whether a table of the source has no part any more of a partition that was exported.

        A table of the same name with another identity is another one. One that does not exist was
        in the source if it was on the same server.

        Args:
            row: of the partition.
            server: the UUID of the source's server, '' if it is unknown.

        Raises:
            SourceError: the source cannot be read.
        """
        name = TableName.parse(row.source_table)
        if self.is_gone(name):
            return bool(server) and row.server == server
        if row.key not in self._left:
            self._left[row.key] = self._effects(
                Step.DESCRIBE_SOURCE, partial(self._is_empty, row, name)
            )
        return self._left[row.key]

    def _is_empty(self, row: Row, name: TableName) -> bool:
        try:
            identity = self._source.describe(name).identity
        except RefusedError:
            # It is no table of MergeTree now.
            return False
        one = PartitionId(row.key.partition_id)
        return identity == row.key.source and not self._source.parts(name, one)


@dataclass(frozen=True, slots=True)
class SameNameExports:
    """The ledger rows of other source tables that are exported to one lake table, by partition id.

    `rows` are of tables with the same name as `table`, `others` of tables with other names.
    """

    table: MergeTreeTable
    rows: Mapping[str, tuple[Row, ...]]
    others: Mapping[str, tuple[Row, ...]]

    def has_any(self, partition_id: str) -> bool:
        """Whether a partition of any other table was exported, or is being exported."""
        return partition_id in self.rows or partition_id in self.others

    def refusal(
        self,
        row: Row | None,
        partition_id: str,
        options: ExportOptions,
        held: Callable[[Row], Holding],
        *,
        content: Content | None = None,
        tables: SourceTables | None = None,
        after: Claim | None = None,
    ) -> str:
        """Return why a partition is not exported because of another table's rows, '' for no reason.

        Args:
            row: the ledger's row of the partition, None when it was never exported.
            partition_id: its id.
            options: of the export.
            held: returns the state in main of another row's key.
            content: the content of the partition, None if it has none.
            tables: the tables of the source, None if they are not asked.
            after: a claim; running exports that began later do not count.

        Raises:
            DestinationError: main cannot be read.
        """
        if not may_be_refused(row, options):
            return ""
        of_it = _begun_before(self.rows.get(partition_id, ()), after)
        found = {one.key.source: text for one in of_it if (text := _may_hold(one, held(one)))}
        if len(found) < options.shards:
            # Another shard has other parts. A restored one has those of before.
            others = (*of_it, *_begun_before(self.others.get(partition_id, ()), after))
            return self._alike(others, options, held, content, tables)
        held_of = "; ".join(f"of {source} ({text})" for source, text in found.items())
        there = (
            f"rows of another table {self.table.name} may be there already: {held_of}. This one is "
            f"{self.table.identity}."
        )
        if options.attaches:
            return (
                f"{there} If it is the same table, created again, use REPLACE PARTITION; if its "
                "rows are others, add them with SETTINGS "
                "export_merge_tree_part_overwrite_file_if_exists = 1."
            )
        return (
            f"{there} If it is the same table, restored, moved or created again, use "
            f"{Option.SAME_AS} {next(iter(found))}; if its rows are others, add them with "
            f"{Option.OVERWRITE_FILE_IF_EXISTS}."
        )

    def _alike(
        self,
        others: Iterable[Row],
        options: ExportOptions,
        held: Callable[[Row], Holding],
        content: Content | None,
        tables: SourceTables | None,
    ) -> str:
        """Return the refusal if the partition may be that of another table."""
        # Tables of a name are on each shard: one of them does not show what became of another.
        asked = tables if options.shards == 1 else None
        for one in others:
            why = "" if content is None else _why_same(one, self.table, content, asked)
            if not why or not (text := _may_hold(one, held(one))):
                continue
            there = f"{why} ({text}). This one is {self.table.identity}."
            if options.attaches:
                return (
                    f"{there} If it is the same table, use REPLACE PARTITION; if the rows are to "
                    "be there twice, add them with SETTINGS "
                    "export_merge_tree_part_overwrite_file_if_exists = 1."
                )
            return (
                f"{there} If it is the same table, renamed, attached or copied, use "
                f"{Option.SAME_AS} {one.key.source}; if its rows are others, or are to be there "
                f"twice, add them with {Option.OVERWRITE_FILE_IF_EXISTS}."
            )
        return ""


def same_name_exports(
    table: MergeTreeTable, destination: str, rows: Callable[[], Iterable[Row]]
) -> SameNameExports:
    """Return the ledger rows of other source tables that are exported to one lake table.

    Args:
        table: the source table.
        destination: the lake table's uuid.
        rows: returns all rows of the ledger, or those of other sources.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    of_name: dict[str, list[Row]] = {}
    others: dict[str, list[Row]] = {}
    for row in rows():
        if row.key.destination != destination or row.key.source == table.key_source:
            continue
        if row.source_table == str(table.name):
            of_name.setdefault(row.key.partition_id, []).append(row)
        elif row.key.is_of_export:
            others.setdefault(row.key.partition_id, []).append(row)
    return SameNameExports(
        table,
        {one: tuple(found) for one, found in of_name.items()},
        {one: tuple(found) for one, found in others.items()},
    )


def may_be_refused(row: Row | None, options: ExportOptions) -> bool:
    """Whether rows of another table refuse an export: only the first one, without an override."""
    # Late rows are added to a partition that was exported: this was decided then.
    is_first = row is None or (row.done is None and not row.key.increment)
    if options.is_of_statement:
        # REPLACE removes all rows of the partition, of whichever table.
        return is_first and options.attaches and not options.overwrite_file_if_exists
    return is_first and not (
        options.overwrite_file_if_exists or (options.force and options.replace_partition)
    )


def check_same_as(same_as: str, tables: int) -> None:
    """Check that the identity that the user states is of one table only.

    Args:
        same_as: the identity; '' if the user states none.
        tables: the number of tables that a command is about, the shards of a cluster.

    Raises:
        UsageError: there are several shards, each of which has its own identity.
    """
    if tables > 1 and same_as:
        message = (
            f"Cannot use {Option.SAME_AS} for {tables} shards: each has an identity of its own. "
            "Name the server of the shard that was restored or moved, and no cluster."
        )
        raise UsageError(message)


def known_as(
    table: MergeTreeTable,
    same_as: str,
    state: LakeTableState | None,
    rows: Callable[[], Iterable[Row]],
) -> MergeTreeTable:
    """Return the table with the identity that the user states.

    Args:
        table: from `describe`.
        same_as: the identity of its earlier exports; '' if the user states none.
        state: the lake table's, None when there is none.
        rows: returns all rows of the ledger.

    Raises:
        RefusedError: no export with that identity is known: a typing mistake would create a new
            identity.
        LedgerError: the ledger cannot be read.
    """
    if not same_as:
        return table
    destination = state.layout.table_uuid if state is not None else ""
    known = {
        row.key.source
        for row in rows()
        if row.key.destination == destination and row.key.is_of_export
    }
    if same_as not in known:
        why = (
            "no export of a table of that identity is known there. Known: "
            f"{', '.join(sorted(known)[:_SHOWN]) or 'none'}"
        )
        raise RefusedError(Unable.of(f"{table.name} as {same_as}", why))
    return replace(table, known_as=same_as)


def _begun_before(rows: Iterable[Row], after: Claim | None) -> list[Row]:
    """Return the rows, without running exports that began after a claim."""
    return [
        one
        for one in rows
        if after is None or one.state is not State.RUNNING or _is_older(one.claim, after)
    ]


def _why_same(
    row: Row, table: MergeTreeTable, content: Content, tables: SourceTables | None
) -> str:
    """Return why a partition may be the exported one of another table, '' if it may not."""
    done = row.done.parts if row.done is not None else ()
    exported = (*done, *(row.claim.parts if row.state is State.RUNNING else ()))
    known = {(p.hash_of_all_files, p.rows) for p in exported}
    equal = [p.name for p in content.parts if (p.hash_of_all_files, p.rows) in known]
    if equal:
        more = f" and {len(equal) - 1} more" if len(equal) > 1 else ""
        return f"its part {equal[0]}{more} was exported from {row.source_table} already"
    if row.source_table == str(table.name):
        return ""
    then, now = known_by_name(row.key.source), known_by_name(table.key_source)
    if then is None or now is None or then[0] != now[0]:
        return _why_moved(row, table, content, tables)
    if row.done is not None and is_merged(row.done, content):
        return f"its parts are those that were exported from {row.source_table}, merged"
    if tables is not None and tables.is_gone(then[1]):
        return (
            f"this table is identified only by its name, and {then[1]}, from which the partition "
            "was exported, no longer exists"
        )
    return _why_moved(row, table, content, tables)


def _why_moved(
    row: Row, table: MergeTreeTable, content: Content, tables: SourceTables | None
) -> str:
    """Return why rows of an exported table may be in this one now, '' if they are not.

    ALTER TABLE … MOVE PARTITION … TO TABLE moves parts, and merges give them other hashes.
    """
    if tables is None or row.done is None or row.archived is not None:
        return ""
    if content.rows < row.done.landed.rows or not tables.has_lost(row, table.server):
        return ""
    return (
        f"{row.source_table}, from which the partition was exported, does not have it any more, "
        "and this table has at least as many rows of it: they may have been moved here"
    )


def _is_older(one: Claim, other: Claim) -> bool:
    """Whether one claim was begun before another; no two have the same transaction id."""
    return int(one.transaction_id) < int(other.transaction_id)


def _may_hold(row: Row, held: Holding) -> str:
    """Return why main may hold rows of a table of the same name, '' if it cannot."""
    if held.files or not held.is_certain:
        return held.text.rstrip(".")
    if row.state is State.RUNNING:
        return "an export of it was begun, and not cancelled"
    return ""


def known_node(table: MergeTreeTable) -> KeeperNode | None:
    """Return the Keeper node that a claim stores of a source table."""
    node = table.keeper_node
    return node if isinstance(node, KeeperNode) else None


def other_table(row: Row | None, table: MergeTreeTable) -> str:
    """Return why a table may not be the exported table of a key, '' for no reason.

    Args:
        row: the key's, None when it was never exported.
        table: from `describe`.
    """
    if row is None or table.known_as or not _relies(row):
        return ""
    if _is_elsewhere(row, table):
        return (
            f"a table of the same identity ({row.key.source}) was exported from another server: "
            "CREATE TABLE … ON CLUSTER gives the tables of all shards one UUID. Export it into "
            "another lake table. If it is the same table, whose data is on this server now, give "
            f"{Option.SAME_TABLE} to {Command.EXPORT} from this server alone."
        )
    if row.keeper_node is None:
        return ""
    then, now = row.keeper_node, table.keeper_node
    path = row.key.source.removeprefix("keeper:")
    if isinstance(now, KeeperUnavailable):
        return (
            f"Keeper does not show whether {path} is still the table that was exported "
            f"({now.reason.rstrip('. ')}). Run again when it responds."
        )
    if now is None or now == then:
        return ""
    return (
        f"another table was exported from the Keeper path {path}: its node there was created "
        f"{then}, this one's {now}, so this is another Keeper, or the table was created again. "
        "Export it into another lake table. If it is the same table and its Keeper was restored, "
        f"give {Option.SAME_TABLE} to {Command.EXPORT}."
    )


def unconfirmed_table(row: Row | None, table: MergeTreeTable, options: ExportOptions) -> str:
    """Return `other_table`, '' if the user states that it is the same table.

    That cannot be stated of several shards with one UUID: one is not the other.
    """
    other = other_table(row, table)
    is_shard = row is not None and options.shards > 1 and _is_elsewhere(row, table)
    return "" if options.same_table and not is_shard else other


def _is_elsewhere(row: Row, table: MergeTreeTable) -> bool:
    """Whether a table is on another server than the exported one of its identity."""
    return bool(row.server and table.server) and row.server != table.server


def _relies(row: Row) -> bool:
    """Whether the decision on a key depends on an earlier export or claim of it."""
    return row.state is State.RUNNING or row.done is not None or bool(row.landed)


@dataclass(frozen=True, slots=True)
class SameTable:
    """Checks, under the lease of a key, that its source table is the exported one."""

    ports: JobPorts
    table: MergeTreeTable
    options: ExportOptions

    def confirmed(self, row: Row) -> Row | Skip:
        """Return the row to continue with, or the refusal.

        If the user states that it is the same table, the row stores its node or server from then
        on.

        Raises:
            LedgerError: it cannot be written.
        """
        if other := unconfirmed_table(row, self.table, self.options):
            return Skip(Status.REFUSED, other)
        if not other_table(row, self.table):
            return row
        node, server = known_node(self.table), self.table.server
        if node is None and not server:
            return row
        after = replace(
            row,
            keeper_node=node or row.keeper_node,
            server=server or row.server,
            updated=self.ports.clock(),
        )
        written = self.ports.effects(Step.CLAIM, partial(self.ports.ledger.write, after))
        if isinstance(written, Stale):
            text = "another process changed the ledger row of this partition at the same moment"
            return Skip(Status.IN_PROGRESS, text)
        return written
