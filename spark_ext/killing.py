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

from catalog.iceberg import OpenedCatalog
from catalog.ledgers.memory import milliseconds
from spark_ext.cancelling import PROOF_SECONDS, cancel
from spark_ext.logs import LoggedEffects
from spark_ext.procedures.declared import Column, Rows
from spark_ext.sql.catalogs import open_named
from spark_ext.sql.statements import KillMode
from spark_ext.system_tables.known_ledger import known_ledger
from tableformat.effects import Direct
from tableformat.errors import TableFormatError
from tableformat.export.giving_up import QUERY_KILLED
from tableformat.export.killed_query import mark_killed
from tableformat.ledger import Ledger, Row, State
from tableformat.names import LakeName

__all__ = ["KILLED", "KillStatus", "KilledPartition", "kill_in_session", "kill_queries"]

_LOGGER: Final = logging.getLogger("mergeberg")
KILLED: Final = (
    Column("kill_status", "STRING", "finished, waiting or cant_cancel"),
    Column("query_id", "STRING", "the statement"),
    Column("source_table", "STRING", "the ClickHouse table"),
    Column("destination_table", "STRING", "the lake table"),
    Column("partition_id", "STRING", "the partition"),
    Column("message", "STRING", "what became of it"),
)
"""The columns of the answer: a row for each partition that the statement had under way."""


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
    open_catalog: Callable[[str], OpenedCatalog],
    *,
    wait: float,
    note: Callable[[str], None],
) -> tuple[KilledPartition, ...]:
    """Give up what statements are exporting; return what became of each partition.

    Args:
        query_ids: their names; one that has nothing under way is passed over, as in ClickHouse.
        ledger: through which they are reached.
        open_catalog: opens the catalog of a destination.
        wait: seconds until it has to be proved that nothing can land.
        note: hears what is waited for.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    until = time.monotonic() + wait
    opened = functools.cache(open_catalog)
    found = _under_way(query_ids, ledger)
    rows = mark_killed(LoggedEffects(Direct()), ledger, found, milliseconds())
    return tuple(_kill(row, ledger, opened, until, note) for row in rows)


def _kill(
    row: Row,
    ledger: Ledger,
    open_catalog: Callable[[str], OpenedCatalog],
    until: float,
    note: Callable[[str], None],
) -> KilledPartition:
    left = max(0.0, until - time.monotonic())
    try:
        catalog = open_catalog(LakeName.parse(row.destination_table).catalog)
        ended = cancel(row, catalog, ledger, wait=left, note=note, why=QUERY_KILLED)
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


def kill_in_session(query_ids: Collection[str], conf: Mapping[str, str], mode: KillMode) -> Rows:
    """Do what KILL QUERY asks for; return the rows of its answer, as `KILLED` names them.

    Args:
        query_ids: the statements.
        conf: the settings of the session, which name the ledger and the catalogs.
        mode: with TEST nothing is done; SYNC waits until it is proved that nothing can land.

    Raises:
        TableFormatError: the ledger cannot be read or written.
    """
    with known_ledger(conf) as ledger:
        if ledger is None:
            return ()
        if mode is KillMode.TEST:
            found = tuple(
                KilledPartition(row, KillStatus.WAITING, "it would be given up")
                for row in _under_way(query_ids, ledger)
            )
        else:
            found = kill_queries(
                query_ids,
                ledger,
                lambda name: open_named(name, conf),
                wait=PROOF_SECONDS if mode is KillMode.SYNC else 0.0,
                note=_LOGGER.info,
            )
    return tuple(_row(one) for one in found)


def _row(one: KilledPartition) -> tuple[str, ...]:
    row = one.row
    return (
        one.status.value,
        row.claim.query_id,
        row.source_table,
        row.destination_table,
        row.key.partition_id,
        one.message,
    )
