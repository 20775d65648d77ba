"""Reads `--to`, and says it in ClickHouse's own words when a ClickHouse table is named there.

Owns the two refusals of srs-016, Restrictions: the source table itself, and another table of the
same source. A destination has at least three parts, so only a name of two is looked up there.
"""

from __future__ import annotations

import contextlib
from typing import Final

from catalog.sources import SourcePlace, open_source
from spark_ext.clickhouse_destination import refuse_clickhouse_table
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import RefusedError, UsageError
from tableformat.names import LakeName, TableName, split_identifiers

__all__ = ["parse_destination"]

_DATABASE_AND_TABLE: Final = 2


def parse_destination(text: str, table: TableName, source: SourcePlace) -> LakeName:
    """Read a destination.

    Args:
        text: as given after --to.
        table: the table to export.
        source: where it is.

    Raises:
        RefusedError: it is the table itself (code 36), or another ClickHouse table (code 48).
        UsageError: it is no name of an Iceberg table.
    """
    try:
        return LakeName.parse(text)
    except UsageError as error:
        if len(split_identifiers(text)) == _DATABASE_AND_TABLE:
            _refuse_clickhouse_table(TableName.parse(text), table, source)
        raise error from None


def _refuse_clickhouse_table(named: TableName, table: TableName, source: SourcePlace) -> None:
    what = f"Cannot export {table} to {named}"
    where = "Name an Iceberg table: --to catalog.namespace.table."
    with contextlib.closing(open_source(source)) as opened:
        if named == table and opened.engine_of(named):
            message = f"{what}: Exporting to the same table is not allowed. {where}"
            raise RefusedError(message, code=BAD_ARGUMENTS)
        refuse_clickhouse_table(opened, named, what, where)
