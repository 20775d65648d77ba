"""Parses `--to`, and opens the destination.

A name of two parts can be a ClickHouse table, because an Iceberg table has at least three. A
ClickHouse table over Hive directories means the Hive tree that it reads. The source table itself
and every other ClickHouse table are refused with ClickHouse's messages (srs-016, Restrictions).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from catalog.hive import OpenedTree, open_tree, tree_name
from catalog.iceberg.catalogs import OpenedCatalog, open_catalog
from catalog.ledgers.uris import open_known_ledger
from catalog.network import TimeOuts
from catalog.sources import SourcePlace, open_source
from spark_ext.actions.exports import clickhouse_destination
from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED
from tableformat.errors import Action, RefusedError, UnsupportedError, UsageError
from tableformat.ledger import Ledger
from tableformat.names import HIVE, HiveName, LakeName, TableName, split_identifiers

__all__ = [
    "destination_name",
    "open_destination",
    "open_iceberg",
    "open_ledger_of",
    "parse_destination",
]

_DATABASE_AND_TABLE: Final = 2
_TREE: Final = f"{HIVE}:"


def destination_name(text: str) -> LakeName:
    """Parse the name of an existing destination; the location of a Hive tree becomes absolute.

    Raises:
        UsageError: the text is neither the name of an Iceberg table nor that of a Hive tree.
    """
    name = LakeName.parse(text)
    return tree_name(name) if isinstance(name, HiveName) else name


def parse_destination(
    text: str,
    table: TableName,
    source: SourcePlace,
    directories: Mapping[str, str] = MappingProxyType({}),
    action: Action = Action.EXPORT,
) -> LakeName:
    """Parse a destination; a ClickHouse table over Hive directories means its Hive tree.

    Args:
        text: the value of --to.
        table: the table to export.
        source: the address of the source.
        directories: as in `ExportRequest`.
        action: what the command does with the table, for messages.

    Raises:
        RefusedError: the destination is the table itself (code 36), or does not fit it.
        UnsupportedError: it is another ClickHouse table (code 48).
        UsageError: the text is neither the name of an Iceberg table nor that of a Hive tree.
    """
    try:
        return destination_name(text)
    except UsageError as error:
        if not text.startswith(_TREE) and len(split_identifiers(text)) == _DATABASE_AND_TABLE:
            found = _tree_of(TableName.parse(text), table, source, directories, action)
            if found is not None:
                return found
        raise error from None


def open_destination(
    name: LakeName, *, warehouse: Path, time_outs: TimeOuts, looks_only: bool = False
) -> OpenedCatalog | OpenedTree:
    """Open the catalog of a destination, or its Hive tree.

    Args:
        name: the destination.
        warehouse: the directory of the built-in local catalog.
        time_outs: time limits for remote catalogs.
        looks_only: whether the command only reads.

    Raises:
        NotFoundError: no catalog of that name is configured.
        UsageError: the scheme of the tree is not supported, or its storage is not configured.
        DestinationError: the configuration cannot be read.
    """
    if isinstance(name, HiveName):
        return open_tree(name, warehouse=warehouse, time_outs=time_outs, completes=not looks_only)
    return open_catalog(name.catalog, warehouse=warehouse, time_outs=time_outs)


def open_iceberg(
    name: LakeName, what: str, *, warehouse: Path, time_outs: TimeOuts
) -> OpenedCatalog:
    """Open the catalog of a destination, for a command that does not support Hive trees.

    Args:
        name: the destination.
        what: the action, for the error message, e.g. "check db.t for hive:/lake".
        warehouse: the directory of the built-in local catalog.
        time_outs: time limits for remote catalogs.

    Raises:
        UnsupportedError: the destination is a Hive tree (code 48).
        NotFoundError: no catalog of that name is configured.
        DestinationError: the configuration cannot be read.
    """
    if isinstance(name, HiveName):
        message = (
            f"Cannot {what}: only export, archive, verify, read, gc, exports list, cancel, forget "
            "and rebuild work on trees of Hive directories. Name an Iceberg table: "
            "catalog.namespace.table."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    return open_catalog(name.catalog, warehouse=warehouse, time_outs=time_outs)


def open_ledger_of(name: LakeName | None, uri: str | None, what: str, *, warehouse: Path) -> Ledger:
    """Open the existing ledger of exports into a destination; the caller closes it.

    Args:
        name: the destination; None if the user names none.
        uri: the address of the ledger; None for that of the destination.
        what: the action, for the error message, e.g. "cancel exports".
        warehouse: the directory of the built-in local catalog.

    Raises:
        NotFoundError: the destination's catalog is not configured, or there is no ledger.
        TableFormatError: as for `open_ledger`.
    """
    directory: Path | None = warehouse
    if uri is None and name is not None and not isinstance(name, HiveName):
        directory = open_catalog(name.catalog, warehouse=warehouse).ledger_directory
    return open_known_ledger(uri, what, local_warehouse=directory)


def _tree_of(
    named: TableName,
    table: TableName,
    source: SourcePlace,
    directories: Mapping[str, str],
    action: Action,
) -> HiveName | None:
    """Return the Hive tree that a table of the source reads; None if there is no such table.

    Raises:
        RefusedError: it is the exported table itself (code 36), or does not fit it.
        UnsupportedError: it reads no Hive tree (code 48).
    """
    what = f"Cannot {action} {table} {'in' if action is Action.VERIFY else 'to'} {named}"
    where = "Name an Iceberg table: --to catalog.namespace.table, or a tree: --to hive:URI."
    with contextlib.closing(open_source(source)) as opened:
        if named == table and opened.engine_of(named):
            message = f"{what}: Exporting to the same table is not allowed. {where}"
            raise RefusedError(message, code=BAD_ARGUMENTS)
        found = clickhouse_destination(
            opened, named, lambda: opened.describe(table), directories, what, where
        )
    return None if found is None else tree_name(found)
