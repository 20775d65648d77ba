"""Takes exactly the parts of an archived partition out of the source: detached, or dropped.

    the parts are those that were exported -> DETACH PARTITION -> are exactly those detached?
    -> if not, every one is attached again and the partition is refused -> DROP DETACHED PART

DETACH PARTITION takes what is active in that moment, also a part that was inserted a moment
ago. So nothing is dropped before the detached parts are compared, by name, with what was seen: a
part's name belongs to one content for ever.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, texts
from catalog.clickhouse.describe import list_parts, of_table
from catalog.clickhouse.offers import Offer
from catalog.clickhouse.preflight import refused_by_source
from tableformat.errors import RefusedError, SourceError, UnsupportedError
from tableformat.ledger import ExportedPart
from tableformat.names import PartitionId, TableName, quote_string

__all__ = ["take_out"]

# A detached part whose name was taken already has a number behind it.
_AGAIN: Final = re.compile(r"_try\d+\Z")


def take_out(
    connection: Connection,
    capabilities: Capabilities,
    table: TableName,
    one: PartitionId,
    exported: tuple[ExportedPart, ...],
    *,
    drop: bool,
) -> None:
    """Detach a partition that holds exactly the exported parts; drop them if asked to.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: that has the partition.
        one: the partition.
        exported: what was exported and verified, by hash and rows.
        drop: whether the detached parts go for good.

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
    active = frozenset(_active_names(connection, table, one))
    before = frozenset(_detached_names(connection, table, one))
    connection.command(f"ALTER TABLE {table.sql} DETACH PARTITION ID {quote_string(str(one))}")
    taken = frozenset(_detached_names(connection, table, one)) - before
    if not {p.name for p in held} <= {_AGAIN.sub("", name) for name in taken} <= active:
        _put_back(connection, table, one, taken)
        raise _changed(table, one)
    if drop:
        for name in sorted(taken):
            connection.command(
                f"ALTER TABLE {table.sql} DROP DETACHED PART {quote_string(name)} "
                "SETTINGS allow_drop_detached = 1"
            )


def _put_back(
    connection: Connection, table: TableName, one: PartitionId, taken: frozenset[str]
) -> None:
    """Attach again what was detached; what cannot be attached is named.

    Raises:
        SourceError: a part stays detached.
    """
    left = []
    for name in sorted(taken):
        try:
            connection.command(f"ALTER TABLE {table.sql} ATTACH PART {quote_string(name)}")
        except ClickHouseError as error:
            left.append(f"{name} ({error.reason})")
    if left:
        message = (
            f"Cannot archive partition {one} of {table}: it changed while it was detached, and "
            f"{', '.join(left)} could not be attached again. The rows are among the table's "
            f"detached parts: ALTER TABLE {table.sql} ATTACH PARTITION ID "
            f"{quote_string(str(one))}."
        )
        raise SourceError(message)


def _active_names(connection: Connection, table: TableName, one: PartitionId) -> tuple[str, ...]:
    return texts(
        connection,
        f"SELECT name FROM system.parts WHERE {of_table(table)} AND active"
        f" AND partition_id = {quote_string(str(one))}",
    )


def _detached_names(connection: Connection, table: TableName, one: PartitionId) -> tuple[str, ...]:
    return texts(
        connection,
        f"SELECT name FROM system.detached_parts WHERE {of_table(table)}"
        f" AND partition_id = {quote_string(str(one))}",
    )


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
    return UnsupportedError(message, code=48)
