"""The least and greatest time of each partition, in the type of the table's own time column.

system.parts has them as Date and DateTime only: a DateTime64 of 2299 or of 1969 is another time
there, and a Date32 has none. Where the column is neither a Date nor a DateTime its values are
asked for; ClickHouse takes them from the index of each part that it keeps for partition keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, text, whole
from catalog.clickhouse.describe import active_parts
from catalog.clickhouse.offers import Offer
from tableformat.mergetree.division import time_column
from tableformat.mergetree.parts import NoTimes, PartitionSummary, Times
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.types import DateTime, Simple
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string

__all__ = ["with_times"]


def with_times(
    connection: Connection,
    capabilities: Capabilities,
    table: MergeTreeTable,
    found: tuple[PartitionSummary, ...],
) -> tuple[PartitionSummary, ...]:
    """Return partitions with their times, or with why these are not known.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: whose partitions they are.
        found: the partitions.

    Raises:
        SourceError: the source cannot be read.
    """
    column = time_column(table)
    if isinstance(column, NoTimes):
        return tuple(replace(one, times=column) for one in found)
    if not found:
        return found
    if column.type == Simple("Date") or isinstance(column.type, DateTime):
        known = _of_parts(connection, table, column)
    else:
        known = _of_rows(connection, capabilities, table, column, found)
    gone = NoTimes("it changed while it was looked at. Run the command again")
    empty = Times("", "")
    return tuple(
        replace(one, times=known.get(str(one.partition_id), gone) if one.rows else empty)
        for one in found
    )


def _of_parts(
    connection: Connection, table: MergeTreeTable, column: Column
) -> dict[str, Times | NoTimes]:
    """Return the times of system.parts, which are exact for a Date and a DateTime."""
    if isinstance(column.type, DateTime):
        zone = f", {quote_string(column.type.zone)}" if column.type.zone else ""
        least, greatest = f"toString(min(min_time){zone})", f"toString(max(max_time){zone})"
    else:
        least, greatest = "toString(min(min_date))", "toString(max(max_date))"
    rows = connection.rows(
        f"SELECT partition_id, {least}, {greatest} FROM system.parts"
        f" WHERE {active_parts(table.name)} AND rows > 0 GROUP BY partition_id"
    )
    return {text(row[0]): Times(text(row[1]), text(row[2])) for row in rows}


def _of_rows(
    connection: Connection,
    capabilities: Capabilities,
    table: MergeTreeTable,
    column: Column,
    found: tuple[PartitionSummary, ...],
) -> dict[str, Times | NoTimes]:
    """Return the times that a query finds, of partitions whose rows are all shown to it.

    Rows that are deleted lightly count here, as they count in system.parts.
    """
    value = f"{SOURCE_ALIAS}.{quote_identifier(column.name)}"
    settings = " SETTINGS apply_deleted_mask = 0" if capabilities.has(Offer.DELETED_ROWS) else ""
    try:
        rows = connection.rows(
            f"SELECT {SOURCE_ALIAS}._partition_id, ifNull(toString(min({value})), ''),"
            f" ifNull(toString(max({value})), ''), count() FROM {table.name.sql} AS {SOURCE_ALIAS}"
            f" GROUP BY {SOURCE_ALIAS}._partition_id{settings}"
        )
    except ClickHouseError as error:
        why = NoTimes(f"{column.name} of {table.name} cannot be read: {error.reason}")
        return {str(one.partition_id): why for one in found}
    shown: Mapping[str, int] = {str(one.partition_id): one.rows for one in found}
    return {
        text(row[0]): Times(text(row[1]), text(row[2]))
        if whole(row[3]) >= shown.get(text(row[0]), 0)
        else NoTimes(
            f"{table.name} shows {whole(row[3]):,} of its {shown[text(row[0])]:,} rows. A row "
            "policy or a setting of the user hides rows"
        )
        for row in rows
    }
