"""The ledger that a session's system tables tell of: the one that its exports are recorded in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from spark_ext.sql.catalogs import has_ledger, open_session_ledger
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
    if not has_ledger(conf):
        yield None
        return
    with contextlib.closing(open_session_ledger(conf)) as ledger:
        yield ledger if ledger.is_made() else None
