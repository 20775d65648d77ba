"""Cancels exports, runs KILL QUERY, forgets completed exports, and unarchives partitions.

The protocol is in `tableformat.export.give_up`. This module finds the export by name, waits for
the proof that nothing of it can land, and removes its files.

`cancel` gives up an export that runs in another process or was interrupted.

`KILL QUERY WHERE query_id = '...'` gives up every partition that a statement is exporting.
The statement may run on any machine: its claims in the ledger carry its query id
(RQ…QueryCancellation). Partitions that it has exported stay in the lake, and it starts no
other partition: their rows are marked, and the running statement reads the marks
(`tableformat/export/give_up.py`).

`forget_exports` lets partitions be exported again before the TTL of their export is over.
`unarchivable` and `unarchive_each` let exports replace the rows of archived partitions again.
The page for users is docs/operating/stopping.md.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Final, assert_never

from catalog.hive import HiveTable, OpenedTree
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import milliseconds
from catalog.processes import may_be_alive, new_owner
from catalog.storages.schemes import Storages
from spark_ext.actions.export_ports import commit_ports
from spark_ext.actions.exports import NamedTable, none_of_name, present_names, rows_of_name
from spark_ext.actions.logs import LoggedEffects, log_note
from spark_ext.sql.catalogs import open_destination_in
from spark_ext.sql.statements import KillMode
from spark_ext.system_tables import known_ledger
from tableformat.committer import DETACHED_BRANCH, LakeTableState, Superseded, Unknown
from tableformat.effects import Direct
from tableformat.errors import (
    InternalError,
    NotFoundError,
    RefusedError,
    TableFormatError,
    UsageError,
)
from tableformat.export.archived import archived_location, archived_text, unarchive
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
from tableformat.export.main_state import holding
from tableformat.export.options import PROOF_SECONDS
from tableformat.file_names import key_in
from tableformat.ledger import Ledger, Row, State, Stop
from tableformat.messages import Command, Option
from tableformat.names import LakeName, PartitionId, TableName
from tableformat.quantities import counted

__all__ = [
    "Cancelled",
    "KillStatus",
    "KilledPartition",
    "Unarchivable",
    "by_destination",
    "cancel",
    "cancel_each",
    "forget_exports",
    "kill_in_session",
    "kill_queries",
    "rows_to_cancel",
    "rows_under_way",
    "unarchivable",
    "unarchive_each",
]

_ATTEMPTS: Final = 5
"""Fences in one attempt; between two attempts the user is notified of the reason for waiting."""
_MOST_MARKS: Final = 100
"""Settled rows that KILL QUERY marks: one is enough for a run, unless others claim it meanwhile."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The outcome of a cancellation, and the files that it removed."""

    outcome: KillOutcome
    cleaned: Cleaned

    @property
    def status(self) -> str:
        """The state of the export afterwards: killed, failed, committed, in_progress or unknown."""
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
        """The outcome in words, without a full stop and without the files that were removed."""
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
                return f"unknown yet: a request of it may still land: {evidence}"
            case _ as never:
                assert_never(never)


def rows_to_cancel(
    ledger: Ledger, partition_id: PartitionId, table: TableName, to: NamedTable | None
) -> tuple[Row, ...]:
    """Return the running exports of a partition into one destination, or else its first row.

    There can be several: each shard exports a partition with this id, and has its own row.

    Args:
        ledger: the ledger of the exports.
        partition_id: the partition's id in the source.
        table: the source table.
        to: the destination; None if there is only one.

    Raises:
        NotFoundError: the ledger has no export of the partition.
        UsageError: exports to several destinations are running, and `to` is None.
        LedgerError: the ledger cannot be read.
    """
    found = rows_of_name(ledger, partition_id.value, table, to)
    what = f"Cannot cancel the export of partition {partition_id} of {table}"
    if not found:
        message = f"{what}: {none_of_name(ledger, partition_id.value, table, to)}"
        raise NotFoundError(message)
    running = tuple(row for row in found if row.state is State.RUNNING)
    names = sorted({row.destination_table for row in running})
    if len(names) > 1:
        message = (
            f"{what}: it is exported to {', '.join(names)}. Name one of them with {Option.TO}."
        )
        raise UsageError(message)
    return running or found[:1]


def rows_under_way(
    ledger: Ledger, table: TableName | None, to: NamedTable | None
) -> tuple[Row, ...]:
    """Return the rows of all exports that are running or were interrupted.

    Args:
        ledger: the ledger of the exports.
        table: the source table; None for all.
        to: the destination; None for all.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = (row for row in present_names(ledger.rows()) if row.key.is_of_export)
    return tuple(
        row if to is None else to.named(row)
        for row in found
        if row.state is State.RUNNING
        and not row.claim.by_statement
        and (table is None or row.source_table == str(table))
        and (to is None or to.has(row))
    )


def by_destination(rows: Iterable[Row]) -> Iterator[tuple[LakeName, tuple[Row, ...]]]:
    """Yield each destination with its rows, in the order of the rows."""
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
    """Cancel several exports; an error in one does not stop the others.

    Args:
        rows: rows of the ledger.
        opened: opens the catalog of a destination; its error counts for all rows there.
        ledger: the ledger that has the rows.
        wait: seconds in total for the proof that none of the exports can land any more.
        note: receives the reason for waiting, and the files that could not be removed.

    Yields:
        Each row with its result, or with the error.
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
    """Cancel the export of a row, and remove its files.

    Args:
        row: the row of the ledger.
        catalog: the catalog of its destination, or its Hive tree.
        ledger: the ledger that has the row.
        wait: seconds for the proof that the export cannot land any more.
        note: receives the reason for waiting, and the files that could not be removed.
        why: the reason that the row shows while the export is being cancelled.

    Raises:
        RefusedError: the table that the export writes to does not exist any more.
        TableFormatError: the table or the ledger cannot be read or written.
    """
    until = time.monotonic() + wait
    table = _table(catalog, LakeName.parse(row.destination_table), row)
    ports = replace(commit_ports(table, ledger), most_attempts=_ATTEMPTS)
    with Leases(ledger, new_owner(), effects=ports.effects, is_alive=may_be_alive) as leases:
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
            f"{name} is no longer the table that it writes to. Nothing of it is visible there. If "
            f"the table was renamed, give its present name with {Option.TO}."
        )
        raise RefusedError(message)
    return table


def _killed(
    ports: Ports, key: str, note: Callable[[str], None], until: float, why: Stop
) -> KillOutcome:
    """Cancel the export of a key; repeat until the outcome is known or the time is over."""
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
    """Remove the files of a cancelled export; leave those that cannot be removed to `gc`."""
    if not isinstance(outcome, GivenUp):
        return Cleaned()
    try:
        location = ports.table.load().location
        cleaning = Cleaning(ports, storages, location)
        return cleaning.clean(outcome.row.key.hash)
    except TableFormatError as error:
        note(f"its files stay: {error} {Command.GC} removes them")
        return Cleaned()


class KillStatus(StrEnum):
    """The status of a partition in the result of KILL QUERY, in ClickHouse's words."""

    FINISHED = "finished"
    WAITING = "waiting"
    CANT_CANCEL = "cant_cancel"


_STATUSES: Final[Mapping[str, KillStatus]] = {
    "killed": KillStatus.FINISHED,
    "failed": KillStatus.FINISHED,
    "committed": KillStatus.CANT_CANCEL,
}
"""The KILL QUERY status by `Cancelled.status`; every other status means `waiting`."""


@dataclass(frozen=True, slots=True)
class KilledPartition:
    """A partition that a killed statement was exporting, and its status after the kill.

    If `is_whole`, it is the statement itself: no partition of it was being exported, and `row` is
    the last one that it exported.
    """

    row: Row
    status: KillStatus
    message: str
    is_whole: bool = False

    @property
    def query_id(self) -> str:
        """The id of the statement."""
        return self.row.claim.query_id

    @property
    def partition_id(self) -> str:
        """The partition's id; '' for the statement itself."""
        return "" if self.is_whole else self.row.key.partition_id


def kill_queries(
    query_ids: Collection[str],
    ledger: Ledger,
    open_destination: Callable[[LakeName], OpenedCatalog | OpenedTree],
    *,
    mode: KillMode,
    note: Callable[[str], None],
) -> tuple[KilledPartition, ...]:
    """Stop the named statements, and cancel every partition that they export; return the results.

    A statement with a row in the ledger exports nothing else afterwards, also if none of its
    partitions is being exported at this moment.

    Args:
        query_ids: ids of the statements. An id without a row is ignored, as in ClickHouse.
        ledger: the ledger that has the statements' claims.
        open_destination: opens the catalog of a destination, or its Hive tree.
        mode: TEST changes nothing. SYNC waits for the proof that nothing can land any more.
        note: receives the reason for waiting.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    named = frozenset(query_ids) - {""}
    if mode is KillMode.TEST:
        found, waiting = _of_queries(named, ledger), KillStatus.WAITING
        text = "it would be given up"
        running = (KilledPartition(row, waiting, text) for row in found if _is_running(row))
        return (*running, *_whole(found, waiting, "it would export no further partition"))
    until = time.monotonic() + (PROOF_SECONDS if mode is KillMode.SYNC else 0.0)
    opened = functools.cache(open_destination)
    found = _marked(named, ledger)
    killed = (_kill(row, ledger, opened, until, note) for row in found if _is_running(row))
    return (*killed, *_whole(found, KillStatus.FINISHED, "it exports no further partition"))


def _is_running(row: Row) -> bool:
    return row.state is State.RUNNING


def _of_queries(named: Collection[str], ledger: Ledger) -> tuple[Row, ...]:
    return tuple(row for row in present_names(ledger.rows()) if row.claim.query_id in named)


def _whole(found: Iterable[Row], status: KillStatus, message: str) -> Iterator[KilledPartition]:
    """Yield a result for each statement none of whose partitions is being exported."""
    rows = tuple(found)
    running = {row.claim.query_id for row in rows if _is_running(row)}
    last = {row.claim.query_id: row for row in reversed(rows)}
    for query_id, row in last.items():
        if query_id not in running:
            yield KilledPartition(row, status, message, is_whole=True)


def _marked(named: Collection[str], ledger: Ledger) -> tuple[Row, ...]:
    """Mark rows of statements until their runs cannot miss it; return all rows of the statements.

    The rows are read again after every mark, because a run may have claimed partitions before it.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    while True:
        found = _of_queries(named, ledger)
        left = [row for row in found if _is_running(row) and row.stop is not Stop.QUERY_KILLED]
        for query_id in named:
            ended = [r for r in found if r.claim.query_id == query_id and not _is_running(r)]
            if all(row.stop is not Stop.QUERY_KILLED for row in ended):
                left += ended[:_MOST_MARKS]
        if not left:
            return found
        mark_killed(LoggedEffects(Direct()), ledger, left, milliseconds())


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
        # An error in one partition must not stop the cancellation of the others.
        return KilledPartition(row, KillStatus.CANT_CANCEL, error.message)
    status = _STATUSES.get(ended.status, KillStatus.WAITING)
    return KilledPartition(row, status, ended.text)


def kill_in_session(
    query_ids: Collection[str], conf: Mapping[str, str], mode: KillMode
) -> tuple[KilledPartition, ...]:
    """Run KILL QUERY with the ledger and catalogs of a session; return the results.

    Args:
        query_ids: ids of the statements.
        conf: the settings of the session, which name the ledger and the catalogs.
        mode: as for `kill_queries`.

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
            note=log_note,
        )


def forget_exports(
    ledger: Ledger, partition_id: str, table: TableName, to: NamedTable | None
) -> Iterator[tuple[Row, str]]:
    """End the manifest TTL of a partition's exports, so that it can be exported again at once.

    Args:
        ledger: the ledger of the exports.
        partition_id: the partition's id in the source.
        table: the source table. If it was dropped and created again, it has several rows.
        to: the destination; None if there is only one.

    Yields:
        Each row with a report of the change.

    Raises:
        NotFoundError: the ledger has no export of the partition.
        UsageError: the partition was exported to several destinations, and `to` is None.
        RefusedError: an export of the partition is running, or none has completed.
        LedgerError: the ledger cannot be read or written.
    """
    for row in _rows(ledger, partition_id, table, to):
        report = forget(ledger, row, owner=new_owner(), is_alive=may_be_alive, now=milliseconds())
        yield row, report


def _rows(
    ledger: Ledger, partition_id: str, table: TableName, to: NamedTable | None
) -> tuple[Row, ...]:
    found = rows_of_name(ledger, partition_id, table, to)
    what = f"Cannot forget the export of partition {partition_id} of {table}"
    if not found:
        where = f" in {to.name}" if to is not None else ""
        message = f"{what}{where}: {none_of_name(ledger, partition_id, table, to)}"
        raise NotFoundError(message)
    destinations = sorted({row.destination_table for row in found})
    if len(destinations) > 1:
        message = (
            f"{what}: it was exported to {', '.join(destinations)}. Name one of them with "
            f"{Option.TO}."
        )
        raise UsageError(message)
    # Of a partition with late rows, the archived exports are never made again.
    return tuple(row for row in found if row.archived is None) or found


@dataclass(frozen=True, slots=True)
class Unarchivable:
    """An archived export that can be unarchived, and its number of rows and files in main.

    `later` is the row of the increment after it, None if there is none. `lake` is the lake table.
    """

    row: Row
    rows: int
    files: int
    later: Row | None
    lake: IcebergTable | HiveTable

    @property
    def text(self) -> str:
        """A sentence on the rows that the next export may replace after unarchiving."""
        row = self.row
        late = f", late rows {row.key.increment}" if row.key.increment else ""
        return (
            f"partition {row.key.partition_id} of {row.source_table}{late}: "
            f"{counted(self.rows, 'row')} "
            f"in {counted(self.files, 'file')} of {row.destination_table} may be replaced by the "
            "next export of it. The source may no longer have them"
        )


def unarchivable(
    ledger: Ledger,
    partition_id: str,
    table: TableName,
    to: LakeName,
    open_lake: Callable[[LakeName], OpenedCatalog | OpenedTree],
) -> tuple[Unarchivable, ...]:
    """Return the archived ledger rows of a partition.

    There are several when the source table was dropped and created again.

    Args:
        ledger: the ledger of the exports.
        partition_id: the partition's id in the source.
        table: the source table.
        to: the present name of the destination.
        open_lake: opens the catalog of the destination, or its Hive tree.

    Raises:
        NotFoundError: the ledger has no export of the partition.
        RefusedError: the partition is not archived, or there is no such lake table.
        TableFormatError: the ledger or the lake cannot be read.
    """
    what = f"Cannot unarchive partition {partition_id} of {table} in {to}"
    lake = open_lake(to).table(to)
    state = lake.load() if lake is not None else None
    named = NamedTable(to, state.layout.table_uuid if state is not None else None)
    known = rows_of_name(ledger, partition_id, table, named)
    if not known:
        message = f"{what}: {none_of_name(ledger, partition_id, table, named)}"
        raise NotFoundError(message)
    archived = tuple(row for row in known if row.archived is not None)
    if not archived:
        message = f"{what}: it is not archived, so its exports are not restricted."
        raise RefusedError(message)
    if lake is None or state is None:
        message = (
            f"{what}: there is no such lake table, so that nobody can say how many rows the next "
            "export may replace. If the table was renamed, name it by its present name. If it was "
            "dropped, exports of the partition to another table are not restricted."
        )
        raise RefusedError(message)
    by_tables = sorted(known, key=lambda row: (row.key.source, row.key))
    each = groupby(by_tables, key=lambda row: row.key.source)
    last = (_last_with_rows(tuple(exports), lake, state) for _, exports in each)
    found = tuple(one for one in last if one.row.archived is not None)
    if not found:
        message = (
            f"{what}: the rows that arrived in it after it was archived are not archived, so "
            "exports of them are not restricted. The rows before them stay archived."
        )
        raise RefusedError(message)
    return found


def _last_with_rows(
    exports: tuple[Row, ...], lake: IcebergTable | HiveTable, state: LakeTableState
) -> Unarchivable:
    """Return the last of a partition's exports with rows in main, else the first.

    The source does not have the rows of those before it any more.
    """
    aside = lake.files_on(state, DETACHED_BRANCH) if isinstance(lake, IcebergTable) else ()
    detached = {key_in(file.path) for file in aside}
    last = None
    for row, later in zip(exports, (*exports[1:], None), strict=True):
        held = holding(row, state, row.key.hash, lake)
        one = Unarchivable(row, held.rows, len(held.files), later, lake)
        # Files of other writers may have its rows, and an ATTACH may bring them back.
        may_have = held.files or held.proof is not None or not held.is_certain
        if last is None or may_have or row.key.hash in detached or row.detached:
            last = one
    if last is None:
        message = "A partition has no export. This is a bug, please report it."
        raise InternalError(message)
    return last


def unarchive_each(ledger: Ledger, found: tuple[Unarchivable, ...]) -> None:
    """Allow exports to replace these partitions again.

    Raises:
        RefusedError: an export of a partition is running, or its row has changed since it was read.
        LedgerError: the ledger cannot be read or written.
        DestinationError: the object beside the table, from which a ledger can be made anew, cannot
            be written. The partition is not archived any more.
    """
    for one in found:
        location = archived_location(one.lake.load().location, one.row.key.hash)
        note = functools.partial(one.lake.storages(location).put, location, archived_text(None))
        owner, now = new_owner(), milliseconds()
        unarchive(
            ledger, one.row, one.later, owner=owner, is_alive=may_be_alive, now=now, note=note
        )
