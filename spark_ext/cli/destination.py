"""Reads `--to`, and opens what it names.

A ClickHouse table that is named there is the tree that it stands for, or refused in ClickHouse's
own words.

Owns the two refusals of srs-016, Restrictions: the source table itself, and another table of the
same source that stands for no tree. A destination has at least three parts, so only a name of two
is looked up there.
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
from tableformat.errors import RefusedError, UnsupportedError, UsageError
from tableformat.ledger import Ledger
from tableformat.names import HiveName, LakeName, TableName, split_identifiers

__all__ = [
    "destination_name",
    "open_destination",
    "open_iceberg",
    "open_ledger_of",
    "parse_destination",
]

_DATABASE_AND_TABLE: Final = 2


def destination_name(text: str) -> LakeName:
    """Read the name of a destination that exists; that of a tree becomes its whole location.

    Raises:
        UsageError: it is no name of an Iceberg table or a tree of Hive directories.
    """
    name = LakeName.parse(text)
    return tree_name(name) if isinstance(name, HiveName) else name


def parse_destination(
    text: str,
    table: TableName,
    source: SourcePlace,
    directories: Mapping[str, str] = MappingProxyType({}),
) -> LakeName:
    """Read a destination; a table of ClickHouse over Hive directories is its tree.

    Args:
        text: as given after --to.
        table: the table to export.
        source: where it is.
        directories: as in `ExportRequest`.

    Raises:
        RefusedError: it is the table itself (code 36), or another ClickHouse table (code 48).
        UsageError: it is no name of an Iceberg table or a tree of Hive directories.
    """
    try:
        return destination_name(text)
    except UsageError as error:
        if len(split_identifiers(text)) == _DATABASE_AND_TABLE:
            found = _tree_of(TableName.parse(text), table, source, directories)
            if found is not None:
                return found
        raise error from None


def open_destination(
    name: LakeName, *, warehouse: Path, time_outs: TimeOuts, looks_only: bool = False
) -> OpenedCatalog | OpenedTree:
    """Open the catalog that has a destination, or its tree.

    Args:
        name: the destination.
        warehouse: the directory of the built-in local catalog.
        time_outs: for catalogs that are asked over a network.
        looks_only: whether nothing is to be written.

    Raises:
        NotFoundError: no catalog of that name is configured.
        UsageError: the scheme of the tree is not served, or nothing says how to reach it.
        DestinationError: the configuration cannot be read.
    """
    if isinstance(name, HiveName):
        return open_tree(name, warehouse=warehouse, time_outs=time_outs, completes=not looks_only)
    return open_catalog(name.catalog, warehouse=warehouse, time_outs=time_outs)


def open_iceberg(
    name: LakeName, what: str, *, warehouse: Path, time_outs: TimeOuts
) -> OpenedCatalog:
    """Open the catalog of a destination, for a command that knows no trees.

    Args:
        name: the destination.
        what: cannot be done with a tree, e.g. "check db.t for hive:/lake".
        warehouse: the directory of the built-in local catalog.
        time_outs: for catalogs that are asked over a network.

    Raises:
        UnsupportedError: it is a tree of Hive directories (code 48).
        NotFoundError: no catalog of that name is configured.
        DestinationError: the configuration cannot be read.
    """
    if isinstance(name, HiveName):
        message = (
            f"Cannot {what}: of trees of Hive directories only export, archive, verify, read, gc, "
            "exports list, cancel, forget and rebuild know. Name an Iceberg table: "
            "catalog.namespace.table."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    return open_catalog(name.catalog, warehouse=warehouse, time_outs=time_outs)


def open_ledger_of(name: LakeName | None, uri: str | None, what: str, *, warehouse: Path) -> Ledger:
    """Open the ledger of exports into a destination, which has to be there; the caller closes it.

    Args:
        name: the destination, None where the user names none.
        uri: the ledger that the user names, if any.
        what: cannot be done when there is none, e.g. "cancel exports".
        warehouse: the directory of the built-in local catalog.

    Raises:
        NotFoundError: no catalog of the destination's name is configured, or there is no ledger.
        TableFormatError: as `open_ledger` says.
    """
    directory: Path | None = warehouse
    if uri is None and name is not None and not isinstance(name, HiveName):
        directory = open_catalog(name.catalog, warehouse=warehouse).ledger_directory
    return open_known_ledger(uri, what, local_warehouse=directory)


def _tree_of(
    named: TableName, table: TableName, source: SourcePlace, directories: Mapping[str, str]
) -> HiveName | None:
    """Return the tree that a table of the source stands for, None when there is no such table.

    Raises:
        RefusedError: it is the table itself (code 36), or one that stands for no tree that fits.
    """
    what = f"Cannot export {table} to {named}"
    where = "Name an Iceberg table: --to catalog.namespace.table, or a tree: --to hive:URI."
    with contextlib.closing(open_source(source)) as opened:
        if named == table and opened.engine_of(named):
            message = f"{what}: Exporting to the same table is not allowed. {where}"
            raise RefusedError(message, code=BAD_ARGUMENTS)
        found = clickhouse_destination(
            opened, named, lambda: opened.describe(table), directories, what, where
        )
    return None if found is None else tree_name(found)
