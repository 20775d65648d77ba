"""The ledger that a session's system tables tell of: the one that its exports are recorded in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from catalog.iceberg import LOCAL_CATALOG, configured_catalogs
from catalog.ledgers.uris import open_ledger
from spark_ext.sql.session_settings import SessionSettings
from tableformat.ledger import Ledger

__all__ = ["known_ledger"]


@contextlib.contextmanager
def known_ledger(conf: Mapping[str, str]) -> Iterator[Ledger | None]:
    """Open the ledger of a session, and close it; None while there is none.

    It is the one that `spark.mergeberg.ledger` names, else the one beside the warehouse of the
    built-in catalog, where the session has that one.

    Args:
        conf: the settings of the session.

    Raises:
        UsageError: a setting is malformed.
        UnsupportedError: another kind of ledger.
        LedgerError: it cannot be opened.
    """
    settings = SessionSettings.of(conf)
    warehouse = settings.warehouse if _has_local_catalog(conf) else None
    if settings.ledger is None and warehouse is None:
        yield None
        return
    with contextlib.closing(_opened(settings.ledger, warehouse)) as ledger:
        yield ledger if ledger.is_made() else None


def _opened(uri: str | None, warehouse: Path | None) -> Ledger:
    where = None if warehouse is None else warehouse.absolute()
    return open_ledger(uri, local_warehouse=where)


def _has_local_catalog(conf: Mapping[str, str]) -> bool:
    """Whether the name of the built-in catalog is nobody else's."""
    return f"spark.sql.catalog.{LOCAL_CATALOG}" not in conf and (
        LOCAL_CATALOG not in configured_catalogs()
    )
