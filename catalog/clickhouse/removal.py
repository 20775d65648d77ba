"""Takes exactly the parts of an archived partition out of the source; drops them once detached.

    the parts are those that were exported -> they are detached -> are exactly those detached?
    -> if not, every one is attached again and the partition is refused

    the detached parts are those that were noted -> DROP DETACHED PART

A table without replicas is left by DETACH PARTITION, all parts in one moment. That takes what is
active then, also a part that was inserted a moment ago. So nothing is dropped before the detached
parts are compared, by name, with what was seen: while a server runs, a part's name belongs to one
content. After a restart a table without replicas may give the name again. So detached parts are
dropped later only where their size and time are those that were noted, too.

Of a replicated table nobody sees that much: DETACH PARTITION takes from every replica what it has,
also a part that was inserted there and has reached no other. So each part is detached by its own
name, which takes nothing else, whatever is on the way (docs/operating/archive.md).
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
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, SUPPORT_IS_DISABLED
from tableformat.errors import RefusedError, SourceError, UnsupportedError
from tableformat.ledger import DetachedPart, ExportedPart
from tableformat.names import PartitionId, TableName, quote_string

__all__ = ["drop_detached", "take_out"]

# A detached part whose name was taken already has a number behind it.
_AGAIN: Final = re.compile(r"_try\d+\Z")
# A statement must not be longer than max_query_size.
_IN_ONE_STATEMENT: Final = 500
# What the own replica has done is then done when the statement ends; the others follow from the
# log, also one that is down now.
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
    """Detach a partition that holds exactly the exported parts; return what is detached then.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: that has the partition.
        one: the partition.
        exported: what was exported and verified, by hash and rows.
        has_replicas: whether parts may come that are not seen here, so that each is detached by
            its name.

    Raises:
        UnsupportedError: this ClickHouse does not show what was detached (code 48).
        RefusedError: the partition is not what was exported; it stays as it is.
        SourceError: ClickHouse failed. The rows are in the table or among its detached parts.
    """
    if not capabilities.has(Offer.DETACHED_PARTS):
        raise _unseen(table, one)
    refused = refused_by_source(connection, capabilities, table, (one,)).get(one)
    if refused is not None:
        raise refused
    held = list_parts(connection, capabilities, table, (one,))
    if Counter((p.hash_of_all_files, p.rows) for p in held) != Counter(
        (p.hash_of_all_files, p.rows) for p in exported
    ):
        raise _changed(table, one)
    leaving = _Leaving(connection, table, one, frozenset(p.name for p in held))
    taken = leaving.detach_each(capabilities) if has_replicas else leaving.detach_whole()
    listed = _listed(connection, capabilities, table, one)
    return tuple(listed.get(name, DetachedPart(name)) for name in sorted(taken))


def drop_detached(
    connection: Connection,
    capabilities: Capabilities,
    table: TableName,
    one: PartitionId,
    parts: tuple[DetachedPart, ...],
    *,
    fresh: bool,
) -> int:
    """Drop detached parts for good, here and on no other replica; return the bytes that are freed.

    Parts that are not there any more are gone already.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: that has them.
        one: their partition.
        parts: as `take_out` returned them.
        fresh: it returned them a moment ago, so that their names tell what they are.

    Raises:
        RefusedError: one is not the part that was noted, or nobody can tell; nothing is dropped.
        SourceError: one could not be dropped; it is still among the detached ones.
    """
    listed = _listed(connection, capabilities, table, one)
    there = [part for part in parts if part.name in listed]
    others = [p.name for p in there if p != listed[p.name] or not (p.modified or fresh)]
    if others:
        raise _other_parts(table, one, others)
    freed = 0
    for part in there:
        try:
            connection.command(
                f"ALTER TABLE {table.sql} DROP DETACHED PART {quote_string(part.name)}"
                " SETTINGS allow_drop_detached = 1"
            )
        except SourceError as error:
            message = (
                f"Cannot drop the parts of partition {one} of {table}, which are archived and "
                f"detached: {_reason(error)}.{_way(error)} Run the command again, or free the disk "
                f"with ALTER TABLE {table.sql} DROP DETACHED PART {quote_string(part.name)} "
                "SETTINGS allow_drop_detached = 1, and so on."
            )
            raise SourceError(message, code=error.code) from error
        freed += part.bytes
    return freed


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A partition on its way out; `names` are its parts with rows, which were exported."""

    connection: Connection
    table: TableName
    one: PartitionId
    names: frozenset[str]

    def detach_whole(self) -> frozenset[str]:
        """Detach what is in the partition in one moment; return the names in the directory."""
        rows = self._active()
        # What came since the parts were compared has rows, and is not among them.
        if {name for name, count in rows.items() if count} != self.names:
            raise _changed(self.table, self.one)
        before = self._detached()
        self._send(f"DETACH PARTITION ID {quote_string(str(self.one))}")
        taken = self._detached() - before
        if not self.names <= _names(taken) <= rows.keys():
            self._put_back(taken)
            raise _changed(self.table, self.one)
        return taken

    def detach_each(self, capabilities: Capabilities) -> frozenset[str]:
        """Detach the parts by their names; return the names in the directory."""
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
            self._put_back(self._taken(before))
            message = (
                f"Cannot archive partition {self.one} of {self.table}: ClickHouse did not detach "
                f"all of its parts: {error.reason}. The source is as it was."
                f"{_way(error) or ' Run the command again.'}"
            )
            raise RefusedError(message, code=error.code) from error
        taken = self._taken(before)
        patches = self._patches()
        if _names(taken) != self.names or patches or any(self._active().values()):
            self._put_back(taken)
            raise self._patched() if patches else _changed(self.table, self.one)
        return taken

    def _send(self, what: str) -> None:
        """Send a statement that detaches.

        Raises:
            ClickHouseError: ClickHouse refused it.
            SourceError: there is no answer; it may have been performed.
        """
        try:
            self._alter(what)
        except ClickHouseError:
            raise
        except SourceError as error:
            message = (
                f"Cannot archive partition {self.one} of {self.table}: {_reason(error)}. Whether "
                "it was detached is not known: its rows are in the table or among the detached "
                f"parts. Look into system.detached_parts; ALTER TABLE {self.table.sql} ATTACH "
                f"PARTITION ID {quote_string(str(self.one))} brings them back. Then run the "
                "command again."
            )
            raise SourceError(message, code=error.code) from error

    def _put_back(self, taken: Iterable[str]) -> None:
        """Attach again what was detached; what cannot be attached is named.

        Raises:
            SourceError: a part stays detached.
        """
        left, ways = [], set[str]()
        for name in sorted(taken):
            try:
                self._alter(f"ATTACH PART {quote_string(name)}")
            except SourceError as error:
                left.append(f"{name} ({_reason(error)})")
                ways.add(_way(error))
        if left:
            message = (
                f"Cannot archive partition {self.one} of {self.table}: it changed while it was "
                f"detached, and {', '.join(left)} could not be attached again."
                f"{''.join(sorted(ways))} The rows are among the table's detached parts: "
                f"ALTER TABLE {self.table.sql} ATTACH PARTITION ID {quote_string(str(self.one))}."
            )
            raise SourceError(message)

    def _alter(self, what: str) -> None:
        self.connection.command(f"ALTER TABLE {self.table.sql} {what}")

    def _active(self) -> dict[str, int]:
        """Return the rows of each active part of the partition, by its name."""
        found = self.connection.rows(
            f"SELECT name, toInt64(rows) FROM system.parts WHERE {of_table(self.table)} AND active"
            f" AND partition_id = {quote_string(str(self.one))}"
        )
        return {text(row[0]): whole(row[1]) for row in found}

    def _detached(self) -> frozenset[str]:
        """Return what a statement detached; what ClickHouse set aside by itself has a reason."""
        found = texts(
            self.connection,
            f"SELECT name FROM system.detached_parts WHERE {of_table(self.table)}"
            f" AND partition_id = {quote_string(str(self.one))} AND ifNull(reason, '') = ''",
        )
        return frozenset(found)

    def _taken(self, before: frozenset[str]) -> frozenset[str]:
        """Return which of the parts were detached since."""
        return frozenset(n for n in self._detached() - before if _AGAIN.sub("", n) in self.names)

    def _patches(self) -> tuple[str, ...]:
        """Return the parts that hold lightweight updates of the partition."""
        return texts(
            self.connection,
            f"SELECT name FROM system.parts WHERE {of_table(self.table)} AND active AND"
            " startsWith(partition_id, 'patch-')"
            f" AND endsWith(partition_id, {quote_string(f'-{self.one}')})",
        )

    def _patched(self) -> RefusedError:
        message = (
            f"Cannot archive partition {self.one} of {self.table}: it has lightweight updates in "
            "patch parts, which stay behind when its parts are detached. The source is as it was. "
            f"Run ALTER TABLE {self.table.sql} APPLY PATCHES IN PARTITION ID "
            f"{quote_string(str(self.one))}, and the command again when system.parts shows none of "
            "them any more."
        )
        return RefusedError(message, code=SUPPORT_IS_DISABLED)


def _listed(
    connection: Connection, capabilities: Capabilities, table: TableName, one: PartitionId
) -> dict[str, DetachedPart]:
    """Return the detached parts of a partition by name, as the source lists them."""
    known = capabilities.has(Offer.DETACHED_TIMES)
    figures = "toInt64(bytes_on_disk), toInt64(toUnixTimestamp(modification_time))"
    found = connection.rows(
        f"SELECT name, {figures if known else 'toInt64(0), toInt64(0)'}"
        f" FROM system.detached_parts WHERE {of_table(table)}"
        f" AND partition_id = {quote_string(str(one))}"
    )
    parts = (DetachedPart(text(name), whole(size), whole(time)) for name, size, time in found)
    return {part.name: part for part in parts}


def _other_parts(table: TableName, one: PartitionId, names: list[str]) -> RefusedError:
    return RefusedError(
        f"Cannot drop the detached parts of partition {one} of {table}: {', '.join(names)} cannot "
        "be told to be what was archived, by its size and time. Nothing was dropped. Look at the "
        f"part, and free the disk yourself: ALTER TABLE {table.sql} DROP DETACHED PART "
        f"{quote_string(names[0])} SETTINGS allow_drop_detached = 1, and so on."
    )


def _names(taken: Iterable[str]) -> set[str]:
    return {_AGAIN.sub("", name) for name in taken}


def _reason(error: SourceError) -> str:
    return error.reason if isinstance(error, ClickHouseError) else error.message.rstrip(".")


def _way(error: SourceError) -> str:
    """Return what to do about what ClickHouse says, as a next sentence; '' when that is unknown."""
    found = advice(error.code, error.reason) if isinstance(error, ClickHouseError) else None
    return f" {found}" if found else ""


def _changed(table: TableName, one: PartitionId) -> RefusedError:
    return RefusedError(
        f"Cannot archive partition {one} of {table}: its parts are not those that were exported "
        "and compared any more. The source is as it was; run the command again."
    )


def _unseen(table: TableName, one: PartitionId) -> UnsupportedError:
    message = (
        f"Cannot archive partition {one} of {table}: this version of ClickHouse does not show "
        "detached parts, so nobody can see whether a row that came a moment ago went with them. "
        "Stop the inserts into the partition, export it once more, and detach it yourself: "
        f"ALTER TABLE {table.sql} DETACH PARTITION ID {quote_string(str(one))}."
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)
