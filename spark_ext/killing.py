"""`KILL QUERY WHERE query_id = '...'`: gives up every partition that a statement is exporting.

The statement may run anywhere: it is reached through the ledger, where its claims have its name
(RQ…QueryCancellation, reading 11). What it has exported stays; its run begins nothing else
(`tableformat/export/killed_query.py`).
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from catalog.hive import OpenedTree
from catalog.iceberg import OpenedCatalog
from catalog.ledgers.memory import milliseconds
from spark_ext.cancelling import PROOF_SECONDS, cancel
from spark_ext.logs import LoggedEffects
from spark_ext.sql.catalogs import open_destination_in
from spark_ext.sql.statements import KillMode
from spark_ext.system_tables.known_ledger import known_ledger
from tableformat.effects import Direct
from tableformat.errors import TableFormatError
from tableformat.export.giving_up import QUERY_KILLED
from tableformat.export.killed_query import mark_killed
from tableformat.ledger import Ledger, Row, State
from tableformat.names import LakeName

__all__ = ["KillStatus", "KilledPartition", "kill_in_session", "kill_queries"]

_LOGGER: Final = logging.getLogger("mergeberg")


class KillStatus(StrEnum):
    """What became of a partition, in ClickHouse's words."""

    FINISHED = "finished"
    WAITING = "waiting"
    CANT_CANCEL = "cant_cancel"


_STATUSES: Final[Mapping[str, KillStatus]] = {
    "killed": KillStatus.FINISHED,
    "failed": KillStatus.FINISHED,
    "committed": KillStatus.CANT_CANCEL,
}
"""By the status of a `Cancelled`; any other is not decided yet."""


@dataclass(frozen=True, slots=True)
class KilledPartition:
    """A partition that a killed statement had under way, and what became of it."""

    row: Row
    status: KillStatus
    message: str


def kill_queries(
    query_ids: Collection[str],
    ledger: Ledger,
    open_destination: Callable[[LakeName], OpenedCatalog | OpenedTree],
    *,
    mode: KillMode,
    note: Callable[[str], None],
) -> tuple[KilledPartition, ...]:
    """Give up what statements are exporting; return what became of each partition.

    Args:
        query_ids: their names; one that has nothing under way is passed over, as in ClickHouse.
        ledger: through which they are reached.
        open_destination: opens the catalog that has a destination, or its tree.
        mode: with TEST nothing is done; SYNC waits until it is proved that nothing can land.
        note: hears what is waited for.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    found = _under_way(query_ids, ledger)
    if mode is KillMode.TEST:
        waiting = KillStatus.WAITING
        return tuple(KilledPartition(row, waiting, "it would be given up") for row in found)
    until = time.monotonic() + (PROOF_SECONDS if mode is KillMode.SYNC else 0.0)
    opened = functools.cache(open_destination)
    rows = mark_killed(LoggedEffects(Direct()), ledger, found, milliseconds())
    return tuple(_kill(row, ledger, opened, until, note) for row in rows)


def _kill(
    row: Row,
    ledger: Ledger,
    open_destination: Callable[[LakeName], OpenedCatalog | OpenedTree],
    until: float,
    note: Callable[[str], None],
) -> KilledPartition:
    left = max(0.0, until - time.monotonic())
    try:
        lake = open_destination(LakeName.parse(row.destination_table))
        ended = cancel(row, lake, ledger, wait=left, note=note, why=QUERY_KILLED)
    except TableFormatError as error:
        # The others are given up all the same.
        return KilledPartition(row, KillStatus.CANT_CANCEL, error.message)
    status = _STATUSES.get(ended.status, KillStatus.WAITING)
    return KilledPartition(row, status, ended.text)


def _under_way(query_ids: Collection[str], ledger: Ledger) -> tuple[Row, ...]:
    named = frozenset(query_ids) - {""}
    return tuple(
        row for row in ledger.rows() if row.state is State.RUNNING and row.claim.query_id in named
    )


def kill_in_session(
    query_ids: Collection[str], conf: Mapping[str, str], mode: KillMode
) -> tuple[KilledPartition, ...]:
    """Do what KILL QUERY asks for in a session; return what became of each partition.

    Args:
        query_ids: the statements.
        conf: the settings of the session, which name the ledger and the catalogs.
        mode: as above.

    Raises:
        TableFormatError: the ledger cannot be read or written.
    """
    with known_ledger(conf) as ledger:
        if ledger is None:
            return ()
        return kill_queries(
            query_ids,
            ledger,
            lambda name: open_destination_in(conf, name),
            mode=mode,
            note=_LOGGER.info,
        )
