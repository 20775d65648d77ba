"""Opens a lake table that has to be there, for what never makes one."""

from __future__ import annotations

from typing import overload

from catalog.hive import HiveTable, OpenedTree
from catalog.iceberg import OpenedCatalog
from catalog.iceberg_table import IcebergTable
from catalog.ledgers.uris import open_known_ledger
from tableformat.clickhouse_codes import UNKNOWN_TABLE
from tableformat.errors import NotFoundError
from tableformat.ledger import Ledger
from tableformat.names import LakeName

__all__ = ["existing_table", "open_existing"]


@overload
def existing_table(catalog: OpenedCatalog, name: LakeName, what: str) -> IcebergTable: ...


@overload
def existing_table(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, what: str
) -> IcebergTable | HiveTable: ...


def existing_table(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, what: str
) -> IcebergTable | HiveTable:
    """Return a lake table.

    Args:
        catalog: that it is in, or the tree.
        name: the table.
        what: cannot be done when there is none, e.g. "clean up lake.n.t".

    Raises:
        NotFoundError: there is no such table (code 60).
        TableFormatError: the catalog cannot be opened, or not read.
    """
    table = catalog.table(name)
    if table is None:
        message = (
            f"Cannot {what}: there is no such lake table. Check its name, and where its catalog "
            "is (--warehouse)."
        )
        raise NotFoundError(message, code=UNKNOWN_TABLE)
    return table


@overload
def open_existing(
    catalog: OpenedCatalog, name: LakeName, what: str, *, ledger: str | None
) -> tuple[IcebergTable, Ledger]: ...


@overload
def open_existing(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, what: str, *, ledger: str | None
) -> tuple[IcebergTable | HiveTable, Ledger]: ...


def open_existing(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, what: str, *, ledger: str | None
) -> tuple[IcebergTable | HiveTable, Ledger]:
    """Open a lake table, and the ledger of its exports, which the caller closes.

    Args:
        catalog: that it is in, or the tree.
        name: the table.
        what: cannot be done when there is none, e.g. "clean up lake.n.t".
        ledger: as the user said it, None for the default.

    Raises:
        NotFoundError: there is no such table (code 60), or no ledger.
        TableFormatError: the catalog or the ledger cannot be opened.
    """
    table = existing_table(catalog, name, what)
    return table, open_known_ledger(ledger, what, local_warehouse=catalog.ledger_directory)
