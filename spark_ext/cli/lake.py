"""Opens the lake table that `--to` names, for the commands that never make one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from catalog.bounded_rest import TimeOuts
from catalog.iceberg import IcebergTable, open_catalog
from catalog.ledgers.uris import open_ledger
from tableformat.errors import NotFoundError
from tableformat.ledger import Ledger
from tableformat.names import LakeName

__all__ = ["open_existing"]

_UNKNOWN_TABLE: Final = 60


def open_existing(
    name: LakeName, what: str, *, warehouse: Path, ledger: str | None, time_outs: TimeOuts
) -> tuple[IcebergTable, Ledger]:
    """Open a lake table, and the ledger of its exports, which the caller closes.

    Args:
        name: the table.
        what: the command cannot do when there is none, e.g. "clean up lake.n.t".
        warehouse: of the built-in local catalog.
        ledger: as given after --ledger.
        time_outs: for a catalog that is asked over a network.

    Raises:
        NotFoundError: there is no such table (code 60), or no such catalog.
        TableFormatError: the catalog or the ledger cannot be opened.
    """
    catalog = open_catalog(name.catalog, warehouse=warehouse, time_outs=time_outs)
    table = catalog.table(name)
    if table is None:
        message = f"Cannot {what}: there is no such lake table. Check --to and --warehouse."
        raise NotFoundError(message, code=_UNKNOWN_TABLE)
    return table, open_ledger(ledger, local_warehouse=catalog.local_warehouse)
