"""Cancels exports, runs KILL QUERY, and forgets completed exports, for all interfaces.

The protocol is in `tableformat.export.give_up`. This module finds the export by name, waits for
the proof that nothing of it can land, and removes its files.

`cancel` gives up an export that runs in another process or was interrupted.

`KILL QUERY WHERE query_id = '...'` gives up every partition that a statement is exporting.
The statement may run anywhere: the ledger has its claims, with its query id
(RQ…QueryCancellation). Partitions that it has exported stay in the lake, and it starts no
other partition (`tableformat/export/job.py`).

`forget_exports` lets partitions be exported again before the TTL of their export is over.
The page for users is docs/operating/stopping.md.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from catalog.hive import HiveTable, OpenedTree
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import milliseconds
from catalog.processes import may_be_alive, this_process
from catalog.storages.schemes import Storages
from spark_ext.actions.export_ports import commit_ports
from spark_ext.actions.exports import rows_of_name
from spark_ext.actions.logs import LoggedEffects
from spark_ext.sql.catalogs import open_destination_in
from spark_ext.sql.statements import KillMode
from spark_ext.system_tables.exports import known_ledger
from tableformat.committer import Superseded, Unknown
from tableformat.effects import Direct
from tableformat.errors import NotFoundError, RefusedError, TableFormatError, UsageError
from tableformat.export.cleanup import Cleaned, Cleaning
from tableformat.export.commit import Ports
from tableformat.export.give_up import (
    GivenUp,
    KillOutcome,
    NotUnderWay,
    TooLate,
    forget,
    kill,
)
from tableformat.export.job import mark_killed
from tableformat.export.leases import Leases
from tableformat.export.options import PROOF_SECONDS
from tableformat.ledger import Ledger, Row, State, Stop
from tableformat.names import LakeName, PartitionId, TableName

__all__ = [
    "Cancelled",
    "KillStatus",
    "KilledPartition",
    "by_destination",
    "cancel",
    "cancel_each",
    "forget_exports",
    "kill_in_session",
    "kill_queries",
    "rows_to_cancel",
    "rows_under_way",
]

_ATTEMPTS: Final = 5
"""Fences of one try; between tries it is told what is waited for."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of it, and which of its files were removed."""

    outcome: KillOutcome
    cleaned: Cleaned

    @property
    def status(self) -> str:
        """One word: killed, failed, committed, in_progress or unknown."""
        match self.outcome:
            case GivenUp():
                return "killed"
            case TooLate():
                return "committed"
            case NotUnderWay(row) if row is not None and row.state is not State.COMPLETED:
                return row.state.value.lower()
            case NotUnderWay():
                return "committed"
            case Superseded():
                return "in_progress"
            case Unknown():
                return "unknown"
            case _ as never:
                assert_never(never)

    @property
    def text(self) -> str:
        """A sentence without its end; what was removed is not in it."""
        match self.outcome:
            case GivenUp():
                return "KILLED"
            case TooLate(_, snapshot_id, in_main):
                since = "" if in_main else ", and main was moved away from it since"
                return f"too late: it landed in snapshot {snapshot_id}{since}"
            case NotUnderWay(row) if row is not None and row.state is not State.COMPLETED:
                return f"{row.state} already"
            case NotUnderWay(row):
                landed = row.done.landed.snapshot_id if row is not None and row.done else None
                return f"nothing to cancel: it is in snapshot {landed}"
            case Superseded(by):
                return f"not cancelled: {by}"
            case Unknown(evidence):
                return f"not known yet: something of it may still land: {evidence}"
            case _ as never:
                assert_never(never)


def rows_to_cancel(
    ledger: Ledger, partition_id: PartitionId, table: TableName, to: LakeName | None
) -> tuple[Row, ...]:
    """Return the rows that are meant, all into one destination: those that are under way, else one.

    Shards export partitions of one id into one table, each by a row of its own.

    Args:
        ledger: what was exported.
        partition_id: as the source has it.
        table: the source table.
        to: the destination, None for the only one.

    Raises:
        NotFoundError: there is none.
        UsageError: they are under way to several destinations, and none was named.
        LedgerError: the ledger cannot be read.
    """
    found = rows_of_name(ledger, partition_id.value, table, to)
    what = f"Cannot cancel the export of partition {partition_id} of {table}"
    if not found:
        message = (
            f"{what}: the ledger {ledger.uri} has none. List what it has with `mergeberg exports "
            "list`."
        )
        raise NotFoundError(message)
    running = tuple(row for row in found if row.state is State.RUNNING)
    names = sorted({row.destination_table for row in running})
    if len(names) > 1:
        message = f"{what}: it is exported to {', '.join(names)}. Name one of them with --to."
        raise UsageError(message)
    return running or found[:1]


def rows_under_way(ledger: Ledger, table: TableName | None, to: LakeName | None) -> tuple[Row, ...]:
    """Return the rows of all exports that are under way, or did not end.

    Args:
        ledger: what was exported.
        table: the source table, None for every one.
        to: the destination, None for every one.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = (row for row in ledger.rows() if row.key.is_of_export)
    return tuple(
        row
        for row in found
        if row.state is State.RUNNING
        and not row.claim.by_statement
        and (table is None or row.source_table == str(table))
        and to in (None, LakeName.parse(row.destination_table))
    )


def by_destination(rows: Iterable[Row]) -> Iterator[tuple[LakeName, tuple[Row, ...]]]:
    """Yield each destination with its rows, in the order in which they are given."""
    every = tuple(rows)
    for name in dict.fromkeys(row.destination_table for row in every):
        yield LakeName.parse(name), tuple(r for r in every if r.destination_table == name)


def cancel_each(
    rows: Iterable[Row],
    opened: Callable[[LakeName], OpenedCatalog | OpenedTree],
    ledger: Ledger,
    *,
    wait: float,
    note: Callable[[str], None],
) -> Iterator[tuple[Row, Cancelled | TableFormatError]]:
    """Give up exports as `cancel` does; one that cannot be keeps none of the others back.

    Args:
        rows: as they were read.
        opened: opens the catalog of a destination; where it cannot, that stands for all its rows.
        ledger: where the rows are.
        wait: seconds until it has to be proved of all that nothing of them can land.
        note: hears what is waited for, and what could not be removed.

    Yields:
        Each row, and what became of it, or why nothing did.
    """
    until = time.monotonic() + wait
    for to, there in by_destination(rows):
        try:
            catalog = opened(to)
        except TableFormatError as error:
            yield there[0], error
            continue
        for row in there:
            left = max(0.0, until - time.monotonic())
            try:
                became: Cancelled | TableFormatError = cancel(
                    row, catalog, ledger, wait=left, note=note
                )
            except TableFormatError as error:
                became = error
            yield row, became


def cancel(
    row: Row,
    catalog: OpenedCatalog | OpenedTree,
    ledger: Ledger,
    *,
    wait: float,
    note: Callable[[str], None],
    why: Stop = Stop.CANCELLED,
) -> Cancelled:
    """Give up the export of a row, and remove its files.

    Args:
        row: as it was read.
        catalog: that its destination is in.
        ledger: where the row is.
        wait: seconds until it has to be proved that nothing of it can land.
        note: hears what is waited for, and what could not be removed.
        why: what its row says while it is given up.

    Raises:
        RefusedError: the table that it goes to is not there any more.
        TableFormatError: the table or the ledger cannot be read or written.
    """
    until = time.monotonic() + wait
    table = _table(catalog, LakeName.parse(row.destination_table), row)
    ports = replace(commit_ports(table, ledger), most_attempts=_ATTEMPTS)
    with Leases(ledger, this_process(), effects=ports.effects, is_alive=may_be_alive) as leases:
        if row.state is State.RUNNING:
            leases.take_over(row.key.hash)
        outcome = _killed(ports, row.key.hash, note, until, why)
        return Cancelled(outcome, _cleaned(ports, table.storages, outcome, note))


def _table(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, row: Row
) -> IcebergTable | HiveTable:
    table = catalog.table(name)
    if table is None or table.load().layout.table_uuid != row.key.destination:
        message = (
            f"Cannot cancel the export of partition {row.key.partition_id} of {row.source_table}: "
            f"{name} is not the table that it goes to any more. Nothing of it is visible there."
        )
        raise RefusedError(message)
    return table


def _killed(
    ports: Ports, key: str, note: Callable[[str], None], until: float, why: Stop
) -> KillOutcome:
    """Give it up; while that is not known, say what is waited for, and go on."""
    while True:
        outcome = kill(ports, key, state=State.KILLED, why=why, on_claim=_taken_over(note))
        if not isinstance(outcome, Unknown) or time.monotonic() >= until:
            return outcome
        note(f"waiting until nothing of it can land any more: {outcome.evidence}")
        ports.pause(_ATTEMPTS)


def _taken_over(note: Callable[[str], None]) -> Callable[[Row], None]:
    def say(row: Row) -> None:
        note(f"partition {row.key.partition_id}: taken over, its run stops within seconds")

    return say


def _cleaned(
    ports: Ports, storages: Storages, outcome: KillOutcome, note: Callable[[str], None]
) -> Cleaned:
    """Remove the files of an export that was given up; what does not go is left to `gc`."""
    if not isinstance(outcome, GivenUp):
        return Cleaned()
    try:
        location = ports.table.load().location
        cleaning = Cleaning(ports, storages, location)
        return cleaning.clean(outcome.row.key.hash)
    except TableFormatError as error:
        note(f"its files stay: {error} `mergeberg gc` removes them")
        return Cleaned()


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
        ended = cancel(row, lake, ledger, wait=left, note=note, why=Stop.QUERY_KILLED)
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


def forget_exports(
    ledger: Ledger, partition_id: str, table: TableName, to: LakeName | None
) -> Iterator[tuple[Row, str]]:
    """End the refusal of the exports of a partition; yield each row, and what was done with it.

    Args:
        ledger: what was exported.
        partition_id: as the source has it.
        table: the source table; one that was made anew has several rows.
        to: the destination, None for the only one.

    Raises:
        NotFoundError: there is none.
        UsageError: they are of several destinations, and none was named.
        RefusedError: an export of it runs, or none has completed.
        LedgerError: the ledger cannot be read or written.
    """
    for row in _rows(ledger, partition_id, table, to):
        said = forget(ledger, row, owner=this_process(), is_alive=may_be_alive, now=milliseconds())
        yield row, said


def _rows(
    ledger: Ledger, partition_id: str, table: TableName, to: LakeName | None
) -> tuple[Row, ...]:
    found = rows_of_name(ledger, partition_id, table, to)
    what = f"Cannot forget the export of partition {partition_id} of {table}"
    if not found:
        where = f" in {to}" if to is not None else ""
        message = (
            f"{what}{where}: the ledger {ledger.uri} has none. List what it has with `mergeberg "
            "exports list`."
        )
        raise NotFoundError(message)
    destinations = sorted({row.destination_table for row in found})
    if len(destinations) > 1:
        message = (
            f"{what}: it was exported to {', '.join(destinations)}. Name one of them with --to."
        )
        raise UsageError(message)
    return found
