"""Detaches exactly the parts of an archived partition from the source, and drops them.

    compare the parts with the exported ones -> detach -> compare the detached parts
    -> if they differ, attach all of them again and refuse the partition

    compare the detached parts with the recorded ones -> DROP DETACHED PART

Without replicas, DETACH PARTITION takes all active parts at one moment, also a part that was
inserted just before. So the detached parts are compared by name before any of them is dropped.
While a server runs, each part name has one content, but after a restart a table without replicas
may reuse a name. So parts that were detached earlier are dropped only if their size and time are
the recorded ones, too.

With replicas, DETACH PARTITION takes from every replica the parts that it has, also a part that was
inserted there and has not reached this one. So each part is detached by its own name, which takes
no other part (docs/operating/archive.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.capabilities import Capabilities, Offer
from catalog.clickhouse.connection import ClickHouseError, Connection, advice, text, texts, whole
from catalog.clickhouse.snapshot.preflight import refused_by_source
from catalog.clickhouse.table_description import list_parts, of_table
from tableformat.clickhouse_codes import (
    KEEPER_EXCEPTION,
    NOT_IMPLEMENTED,
    SUPPORT_IS_DISABLED,
    TIMEOUT_EXCEEDED,
    UNFINISHED,
)
from tableformat.errors import RefusedError, SourceError, UnsupportedError
from tableformat.ledger import DetachedPart, ExportedPart
from tableformat.names import PartitionId, TableName, quote_string

__all__ = ["detached_parts", "drop_detached", "take_out"]

# ClickHouse appends a number if a detached part of the name exists.
_AGAIN: Final = re.compile(r"_try\d+\Z")
# A statement must fit into max_query_size.
_IN_ONE_STATEMENT: Final = 500
# The statement waits for its own replica; the others follow from the log, also after an outage.
# After these the statement may be in the log of the replicas.
_MAY_STILL_RUN: Final = (UNFINISHED, KEEPER_EXCEPTION, TIMEOUT_EXCEEDED)
_WAITING: Final = ("alter_sync", "replication_alter_partitions_sync")


def take_out(
    connection: Connection,
    capabilities: Capabilities,
    table: TableName,
    one: PartitionId,
    exported: tuple[ExportedPart, ...],
    *,
    has_replicas: bool,
) -> tuple[DetachedPart, ...]:
    """Detach a partition that has exactly the exported parts; return the detached parts.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: the table of the partition.
        one: the partition.
        exported: the exported and verified parts, with hash and rows.
        has_replicas: whether other replicas may have parts that this one lacks; each part is then
            detached by its name.

    Raises:
        UnsupportedError: this ClickHouse does not show detached parts (code 48).
        RefusedError: the partition differs from what was exported; it stays unchanged.
        SourceError: ClickHouse failed. The rows are in the table or among its detached parts.
    """
    if not capabilities.has(Offer.DETACHED_PARTS):
        raise _unseen(table, one)
    mutations = _mutations(connection, table)
    refused = refused_by_source(connection, capabilities, table, (one,)).get(one)
    if refused is not None:
        raise refused
    held = list_parts(connection, capabilities, table, (one,))
    if Counter((p.hash_of_all_files, p.rows) for p in held) != Counter(
        (p.hash_of_all_files, p.rows) for p in exported
    ):
        raise _changed(table, one)
    leaving = _Leaving(connection, table, one, frozenset(p.name for p in held), mutations)
    detached = leaving.detach_each(capabilities) if has_replicas else leaving.detach_whole()
    listed = _listed(connection, capabilities, table, one)
    return tuple(listed.get(name, DetachedPart(name)) for name in sorted(detached))


def detached_parts(
    connection: Connection, capabilities: Capabilities, table: TableName, one: PartitionId
) -> frozenset[DetachedPart] | None:
    """Return the detached parts of a partition; None if this ClickHouse does not show them.

    Raises:
        SourceError: ClickHouse failed.
    """
    if not capabilities.has(Offer.DETACHED_PARTS):
        return None
    return frozenset(_listed(connection, capabilities, table, one).values())


def drop_detached(
    connection: Connection,
    capabilities: Capabilities,
    table: TableName,
    one: PartitionId,
    parts: tuple[DetachedPart, ...],
    *,
    fresh: bool,
) -> tuple[DetachedPart, ...]:
    """Drop detached parts of this server, not of its replicas; return those that were dropped.

    Parts that are not there are skipped.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: the table of the parts.
        one: their partition.
        parts: as `take_out` returned them.
        fresh: whether it returned them just before, so that their names identify them.

    Raises:
        RefusedError: a part is not, or may not be, the recorded one; nothing is dropped.
        SourceError: a part could not be dropped; it is still detached.
    """
    listed = _listed(connection, capabilities, table, one)
    existing = [part for part in parts if part.name in listed]
    others = [p.name for p in existing if p != listed[p.name] or not (p.modified or fresh)]
    if others:
        raise _other_parts(table, one, others)
    for part in existing:
        try:
            connection.command(
                f"ALTER TABLE {table.sql} DROP DETACHED PART {quote_string(part.name)}"
                " SETTINGS allow_drop_detached = 1"
            )
        except SourceError as error:
            message = (
                f"Cannot drop the parts of partition {one} of {table}, which are archived and "
                f"detached: {_reason(error)}.{_remedy(error)} Run it again, or free the "
                f"disk with ALTER TABLE {table.sql} DROP DETACHED PART {quote_string(part.name)} "
                "SETTINGS allow_drop_detached = 1, and so on."
            )
            raise SourceError(message, code=error.code) from error
    return tuple(existing)


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A partition to detach; `names` are its parts with rows, which were exported.

    `mutations` are those of the table before it was checked. A later one may wait for its turn: the
    parts would leave before it, under the names that they have.
    """

    connection: Connection
    table: TableName
    one: PartitionId
    names: frozenset[str]
    mutations: frozenset[str]

    def detach_whole(self) -> frozenset[str]:
        """Detach the partition in one statement; return the names of the detached parts."""
        rows = self._active()
        # A part that was inserted after the comparison has rows, and is not in `names`.
        if {name for name, count in rows.items() if count} != self.names:
            raise _changed(self.table, self.one)
        before = self._detached()
        try:
            self._send(f"DETACH PARTITION ID {quote_string(str(self.one))}")
        except ClickHouseError as error:
            raise self._refused_detach(error, before) from error
        detached = self._detached() - before
        if not self.names <= _names(detached) <= rows.keys() or self._is_mutated():
            self._put_back(detached)
            raise _changed(self.table, self.one)
        return detached

    def detach_each(self, capabilities: Capabilities) -> frozenset[str]:
        """Detach the parts by name; return the names of the detached parts."""
        if self._patches():
            raise self._patched()
        before = self._detached()
        setting = next((name for name in _WAITING if name in capabilities.query_settings), None)
        settings = f" SETTINGS {setting} = 1" if setting else ""
        names = sorted(self.names)
        try:
            for start in range(0, len(names), _IN_ONE_STATEMENT):
                some = names[start : start + _IN_ONE_STATEMENT]
                each = ", ".join(f"DETACH PART {quote_string(name)}" for name in some)
                self._send(f"{each}{settings}")
        except ClickHouseError as error:
            raise self._refused_detach(error, before) from error
        detached = self._newly_detached(before)
        patches = self._patches()
        changed = _names(detached) != self.names or any(self._active().values())
        if changed or patches or self._is_mutated():
            self._put_back(detached)
            raise self._patched() if patches else _changed(self.table, self.one)
        return detached

    def _refused_detach(self, error: ClickHouseError, before: frozenset[str]) -> RefusedError:
        """Attach what a refused statement has detached; return the refusal.

        Raises:
            SourceError: a part stays detached.
        """
        copies = self._put_back(self._newly_detached(before))
        dropped = ", ".join(f"DROP DETACHED PART {quote_string(name)}" for name in copies)
        left = (
            f" It left copies of active parts. Do not attach them: ALTER TABLE {self.table.sql} "
            f"{dropped} SETTINGS allow_drop_detached = 1 removes them."
        )
        message = (
            f"Cannot archive partition {self.one} of {self.table}: ClickHouse did not detach "
            f"all of its parts: {error.reason}. The source is "
            f"unchanged.{left if copies else ''}{_remedy(error) or ' Run it again.'}"
        )
        return RefusedError(message, code=error.code)

    def _send(self, what: str) -> None:
        """Send a statement that detaches parts.

        Raises:
            ClickHouseError: ClickHouse refused it.
            SourceError: no response arrived, or ClickHouse stopped waiting for its replicas or
                Keeper; it may have been executed, or be executed later.
        """
        try:
            self._alter(what)
        except SourceError as error:
            if isinstance(error, ClickHouseError) and error.code not in _MAY_STILL_RUN:
                raise
            message = (
                f"Cannot archive partition {self.one} of {self.table}: {_reason(error)}. It is "
                "unknown whether it was detached: its rows are in the table or in the detached "
                "parts. If the table has no row of the partition, ALTER TABLE "
                f"{self.table.sql} ATTACH PARTITION ID {quote_string(str(self.one))} attaches "
                "them again. Then run it again."
            )
            raise SourceError(message, code=error.code) from error

    def _put_back(self, detached: Iterable[str]) -> tuple[str, ...]:
        """Attach detached parts again; return those that are copies of rows that are active.

        DETACH PARTITION first copies all parts to the detached ones, and then takes them out. If it
        fails between these steps, an ATTACH of the copies would double their rows.

        Raises:
            SourceError: a part cannot be attached; the error names it.
        """
        active = self._blocks("system.parts", "active AND rows > 0")
        blocks = self._blocks("system.detached_parts", "ifNull(reason, '') = ''")
        failed, remedies, copies = [], set[str](), []
        for name in sorted(detached):
            of = blocks.get(name)
            if of and any(of[0] <= last and first <= of[1] for first, last in active.values()):
                copies.append(name)
                continue
            try:
                self._alter(f"ATTACH PART {quote_string(name)}")
            except SourceError as error:
                failed.append(f"{name} ({_reason(error)})")
                remedies.add(_remedy(error))
        if failed:
            message = (
                f"Cannot archive partition {self.one} of {self.table}: it changed while it was "
                f"detached, and {', '.join(failed)} could not be attached again."
                f"{''.join(sorted(remedies))} The rows are among the table's detached parts: "
                f"ALTER TABLE {self.table.sql} ATTACH PARTITION ID {quote_string(str(self.one))}."
            )
            raise SourceError(message)
        return tuple(copies)

    def _alter(self, what: str) -> None:
        self.connection.command(f"ALTER TABLE {self.table.sql} {what}")

    def _active(self) -> dict[str, int]:
        """Return the rows of each active part of the partition, by name."""
        found = self.connection.rows(
            f"SELECT name, toInt64(rows) FROM system.parts WHERE {of_table(self.table)} AND active"
            f" AND partition_id = {quote_string(str(self.one))}"
        )
        return {text(row[0]): whole(row[1]) for row in found}

    def _blocks(self, parts: str, condition: str) -> dict[str, tuple[int, int]]:
        """Return the first and the last block of parts of the partition, by name, if known."""
        found = self.connection.rows(
            "SELECT name, toInt64(assumeNotNull(min_block_number)), "
            f"toInt64(assumeNotNull(max_block_number)) FROM {parts} WHERE {of_table(self.table)} "
            f"AND partition_id = {quote_string(str(self.one))} AND min_block_number IS NOT NULL "
            f"AND {condition}"
        )
        return {text(row[0]): (whole(row[1]), whole(row[2])) for row in found}

    def _detached(self) -> frozenset[str]:
        """Return the detached parts without a reason: ClickHouse sets one for those it detaches."""
        found = texts(
            self.connection,
            f"SELECT name FROM system.detached_parts WHERE {of_table(self.table)}"
            f" AND partition_id = {quote_string(str(self.one))} AND ifNull(reason, '') = ''",
        )
        return frozenset(found)

    def _newly_detached(self, before: frozenset[str]) -> frozenset[str]:
        """Return the parts of the partition that were detached since."""
        return frozenset(n for n in self._detached() - before if _AGAIN.sub("", n) in self.names)

    def _is_mutated(self) -> bool:
        """Whether the table got a mutation since it was checked."""
        return bool(_mutations(self.connection, self.table) - self.mutations)

    def _patches(self) -> tuple[str, ...]:
        """Return the patch parts with lightweight updates of the partition."""
        return texts(
            self.connection,
            f"SELECT name FROM system.parts WHERE {of_table(self.table)} AND active AND"
            " startsWith(partition_id, 'patch-')"
            f" AND endsWith(partition_id, {quote_string(f'-{self.one}')})",
        )

    def _patched(self) -> RefusedError:
        message = (
            f"Cannot archive partition {self.one} of {self.table}: it has lightweight updates in "
            "patch parts, which DETACH does not move with its parts. The source is unchanged. Run "
            f"ALTER TABLE {self.table.sql} APPLY PATCHES IN PARTITION ID "
            f"{quote_string(str(self.one))}, and run the command again when system.parts no longer "
            "lists them."
        )
        return RefusedError(message, code=SUPPORT_IS_DISABLED)


def _mutations(connection: Connection, table: TableName) -> frozenset[str]:
    """Return the ids of the mutations of a table that ClickHouse remembers."""
    return frozenset(
        texts(connection, f"SELECT mutation_id FROM system.mutations WHERE {of_table(table)}")
    )


def _listed(
    connection: Connection, capabilities: Capabilities, table: TableName, one: PartitionId
) -> dict[str, DetachedPart]:
    """Return the detached parts of a partition by name, as the source lists them."""
    has_times = capabilities.has(Offer.DETACHED_TIMES)
    figures = "toInt64(bytes_on_disk), toInt64(toUnixTimestamp(modification_time))"
    found = connection.rows(
        f"SELECT name, {figures if has_times else 'toInt64(0), toInt64(0)'}"
        f" FROM system.detached_parts WHERE {of_table(table)}"
        f" AND partition_id = {quote_string(str(one))}"
    )
    parts = (DetachedPart(text(name), whole(size), whole(time)) for name, size, time in found)
    return {part.name: part for part in parts}


def _other_parts(table: TableName, one: PartitionId, names: list[str]) -> RefusedError:
    return RefusedError(
        f"Cannot drop the detached parts of partition {one} of {table}: {', '.join(names)} cannot "
        "be identified as archived by its size and time. Nothing was dropped. Look at the "
        f"part, and free the disk yourself: ALTER TABLE {table.sql} DROP DETACHED PART "
        f"{quote_string(names[0])} SETTINGS allow_drop_detached = 1, and so on."
    )


def _names(detached: Iterable[str]) -> set[str]:
    return {_AGAIN.sub("", name) for name in detached}


def _reason(error: SourceError) -> str:
    return error.reason if isinstance(error, ClickHouseError) else error.message.rstrip(".")


def _remedy(error: SourceError) -> str:
    """Return the remedy of an error as a further sentence, '' if it is unknown."""
    found = advice(error.code, error.reason) if isinstance(error, ClickHouseError) else None
    return f" {found}" if found else ""


def _changed(table: TableName, one: PartitionId) -> RefusedError:
    return RefusedError(
        f"Cannot archive partition {one} of {table}: its parts are no longer those that were "
        "exported and compared. The source is unchanged; run it again."
    )


def _unseen(table: TableName, one: PartitionId) -> UnsupportedError:
    message = (
        f"Cannot archive partition {one} of {table}: this version of ClickHouse does not show "
        "detached parts, so it is unknown whether they include rows that were just inserted. Stop "
        "the inserts into the partition, export it again, and detach it yourself: ALTER TABLE "
        f"{table.sql} DETACH PARTITION ID {quote_string(str(one))}."
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)
