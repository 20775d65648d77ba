"""Archives partitions: exports them, compares them, and removes them from the source.

The order of steps for one partition:
1. Export it with verification.
2. Check that its files are whole in main.
3. Compare it with the source, if an earlier run exported it.
4. Set the ledger row to archived.
5. Check that the source holds exactly the exported parts, and detach them.
6. Drop the detached parts, if the caller asked for it.

A partition that fails any check stays in the source, and the outcome gives the reason.
A second run resumes: it exports nothing twice. With drop, it drops parts that an earlier run
detached. The page for users is docs/operating/archive.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from catalog.clickhouse.source import ClickHouseSource
from catalog.hive import HiveTable
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.sources import open_source
from spark_ext.actions.export_ports import Places, export_all
from spark_ext.actions.verify import Verifying, VerifyRequest
from tableformat.clickhouse_codes import UNKNOWN_TABLE
from tableformat.errors import (
    Action,
    InternalError,
    NotFoundError,
    RefusedError,
    TableFormatError,
)
from tableformat.export.archived import (
    Archiving,
    PartitionExports,
    archived_location,
    archived_text,
    archiving,
    exports_of_partition,
)
from tableformat.export.content import Content, content_of, same_parts
from tableformat.export.dry_run import EXPORT, REPLACE, Forecast, Replaced, rehearse
from tableformat.export.job import ExportRequest
from tableformat.export.main_state import holding
from tableformat.export.outcome import REFUSED, Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.request import AllPartitions, ById
from tableformat.export.table_identity import known_as, other_table
from tableformat.export.verification import Comparison, Verdict, with_parts
from tableformat.ledger import DetachedPart, Key, Ledger, Record, Row, Stale
from tableformat.mergetree.table import MergeTreeTable, Part
from tableformat.messages import Option
from tableformat.names import PartitionId, quote_string
from tableformat.quantities import counted, human_bytes

__all__ = [
    "ArchiveForecast",
    "Archived",
    "archive",
    "rehearse_archive",
]

_EXPORTED: Final = (Status.UNCHANGED.value, Status.ALREADY_EXPORTED.value)
"""Actions of a forecast that writes nothing, because main already holds the partition."""
_IN_MAIN: Final = frozenset(
    (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED, Status.ALREADY_EXPORTED)
)


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of archiving one partition.

    `status` is `detached`, `dropped` or `kept`. `message` gives the reason for `kept`, or the
    steps that the user still has to take. `detached_bytes` is the size of the partition's detached
    parts, and `freed_bytes` the size of the parts that this run dropped. `ended` is True if an
    earlier run detached the partition.
    """

    outcome: Outcome
    status: str
    message: str = ""
    detached_bytes: int = 0
    freed_bytes: int = 0
    ended: bool = False

    @property
    def exit_code(self) -> int:
        """0 if the partition left the source, else the exit code of its export, or 3."""
        return 0 if self.status != "kept" else self.outcome.status.exit_code or REFUSED


def archive(
    request: ExportRequest, ports: JobPorts, places: Places, *, slots: int, drop: bool
) -> Iterator[Archived]:
    """Archive the selected partitions, and yield the result of each.

    Args:
        request: selects the partitions to export.
        ports: the ports of the export. They have digests, so that every export is verified after
            its commit.
        places: the addresses of source, lake and ledger.
        slots: how many tasks can run at a time.
        drop: whether to drop the source's parts instead of detaching them.

    Raises:
        TableFormatError: the request was refused as a whole, or failed before any partition.
    """
    outcomes = export_all(request, ports, slots=slots)
    with open_source(places.source) as source:
        taking = _TakingOut(request, ports, source, drop=drop)
        seen = set()
        for outcome in outcomes:
            taken = taking.take_out(outcome)
            # The parts of earlier archives of this partition are dropped below, too.
            if taken.status == "kept" or taken.ended:
                seen.add(outcome.partition_id)
            yield taken
            source.close()
        if drop and request.selection == AllPartitions():
            yield from taking.drop_earlier(seen)


def _is_defined_otherwise(table: MergeTreeTable, held: tuple[Part, ...], done: Record) -> bool:
    """Whether the source shows other content than was exported, although its parts are equal.

    ALTER TABLE can change the values of columns that parts lack, and types, without new parts.
    """
    content = content_of(table, held)
    others = bool(done.columns) and content.columns != done.columns
    changed = others or content.fingerprint != done.landed.fingerprint
    return changed and same_parts(done, content)


class _TakingOut:
    """Detaches or drops partitions of one source table."""

    def __init__(
        self,
        request: ExportRequest,
        ports: JobPorts,
        source: ClickHouseSource,
        *,
        drop: bool,
    ) -> None:
        self._request = request
        self._ports = ports
        self._source = source
        self._drop = drop

    def take_out(self, outcome: Outcome) -> Archived:
        """Detach or drop one partition if it passes every check, else keep it with the reason."""
        if outcome.status not in _IN_MAIN:
            return Archived(outcome, "kept", outcome.message or outcome.status.value)
        try:
            table = self._described()
            exports, row, done = self._exported(outcome, table)
            one = PartitionId(outcome.partition_id)
            held = self._source.parts(self._request.table, one)
            if not held:
                return self._end(outcome, exports, table)
            if not outcome.verified or _is_defined_otherwise(table, held, done):
                row, done = self._compared(outcome, row, done)
            with self._archiving(row) as archived:
                parts = self._source.take_out(self._request.table, one, done.parts)
                archived.note_detached(parts)
                freed = self._dropped(archived, one, parts, fresh=True) if self._drop else 0
        except TableFormatError as error:
            return Archived(outcome, "kept", error.during(Action.ARCHIVE).message)
        compared, size = replace(outcome, verified=True), sum(p.bytes for p in parts)
        if not self._drop:
            return Archived(compared, "detached", detached_bytes=size)
        text = _elsewhere(table, parts) if table.engine.replicated else ""
        return Archived(compared, "dropped", text, freed_bytes=freed)

    def drop_earlier(self, seen: Container[str]) -> Iterator[Archived]:
        """Drop parts that earlier runs detached, of partitions without active parts in the source.

        Args:
            seen: ids of the partitions that this run kept, or whose detached parts it dropped.

        Raises:
            TableFormatError: the source, the lake or the ledger cannot be read.
        """
        table, state = self._described(), self._lake().load()
        uuid, ended = state.layout.table_uuid, set[str]()
        for row in _earlier_rows(self._ports.ledger, table.key_source, uuid, seen):
            if row.done is None or row.key.partition_id in ended:
                continue
            landed = row.done.landed
            ended.add(row.key.partition_id)
            yield self.take_out(
                Outcome(
                    row.key.partition_id,
                    Status.ALREADY_EXPORTED,
                    str(self._request.to),
                    transaction_id=landed.transaction_id,
                    snapshot_id=landed.snapshot_id,
                    rows=landed.rows,
                    data_files=landed.data_files,
                    bytes=row.done.bytes,
                )
            )

    def _end(self, outcome: Outcome, exports: PartitionExports, table: MergeTreeTable) -> Archived:
        """Finish the archiving that earlier runs began; the partition has no active parts.

        Raises:
            RefusedError: the ledger does not record which detached parts were archived.
            TableFormatError: the source or the ledger failed.
        """
        is_left = exports.row is not None and exports.row.done is not None
        if not exports.archived or is_left:
            return Archived(outcome, "kept", "nothing to archive: already detached or dropped")
        one = PartitionId(outcome.partition_id)
        noted = [row.archived.detached for row in exports.archived if row.archived is not None]
        parts = tuple(part for detached in noted for part in detached or ())
        if not parts and None not in noted:
            return Archived(outcome, "dropped", ended=True)
        if not self._drop:
            size = sum(part.bytes for part in parts)
            return Archived(outcome, "detached", detached_bytes=size, ended=True)
        if None in noted:
            message = (
                f"Cannot drop the detached parts of partition {one} of {table.name}: it was "
                "archived, but the ledger does not record which parts were detached. Run ALTER "
                f"TABLE {table.name.sql} ATTACH PARTITION ID {quote_string(str(one))}, and the "
                "command again: it compares them with the lake and drops them. If "
                "system.detached_parts lists none of it, nothing is left to do"
            )
            raise RefusedError(message)
        leaving = [(row, of) for row in exports.archived if row.archived and (of := _detached(row))]
        for row, _ in leaving:
            self._check_whole(row)
            self._check_equal(row)
        freed, left = 0, list[DetachedPart]()
        for row, of_row in leaving:
            with self._archiving(row) as archived:
                archived.note_detached(of_row)
                freed += self._dropped(archived, one, of_row, fresh=False)
                left += _detached(archived.row)
        texts = (_elsewhere(table, parts) if table.engine.replicated else "", _not_there(left))
        text = ". ".join(filter(None, texts))
        status = "detached" if left and not freed else "dropped"
        return Archived(outcome, status, text, freed_bytes=freed, ended=True)

    def _check_whole(self, row: Row) -> None:
        """Check that main has all files of an export whose detached parts are to be dropped.

        Raises:
            RefusedError: it has not; nothing was dropped.
        """
        lake = self._lake()
        held = holding(row, lake.load(), row.key.hash, lake)
        if row.done is None or not held.has_rows_of(row.done.landed):
            message = (
                f"Cannot drop the detached parts of partition {row.key.partition_id} of "
                f"{self._request.table}: {held.text} Nothing was dropped"
            )
            raise RefusedError(message)

    def _check_equal(self, row: Row) -> None:
        """Check that the lake has the rows of an export whose detached parts are to be dropped.

        Raises:
            RefusedError: it has others, or there is no digest to compare them with; nothing was
                dropped.
        """
        found, _ = self._comparison(row)
        if found.verdict is not Verdict.EQUAL:
            of, table = row.key.partition_id, self._request.table
            message = (
                f"Cannot drop the detached parts of partition {of} of {table}: the comparison with "
                f"the lake gave {_shown(found)}. Nothing was dropped. To compare them with the "
                f"lake, run ALTER TABLE {table.sql} ATTACH PARTITION ID {quote_string(of)}, and "
                "the command again"
            )
            raise RefusedError(message)

    def _archiving(self, row: Row) -> AbstractContextManager[Archiving]:
        ports = self._ports
        location = archived_location(self._lake().load().location, row.key.hash)

        def note(since: int | None) -> None:
            ports.storage(location).put(location, archived_text(since))

        return archiving(
            ports.ledger,
            row,
            owner=ports.owner,
            is_alive=ports.is_alive,
            now=ports.clock(),
            note=note,
        )

    def _dropped(
        self, archived: Archiving, one: PartitionId, parts: tuple[DetachedPart, ...], *, fresh: bool
    ) -> int:
        """Drop detached parts, record that in the ledger, and return the bytes that were freed.

        Parts that are not there stay in the record: they may be in the table again.
        """
        dropped = self._source.drop_detached(self._request.table, one, parts, fresh=fresh)
        archived.note_detached(tuple(part for part in parts if part not in dropped))
        return sum(part.bytes for part in dropped)

    def _described(self) -> MergeTreeTable:
        """Return the source table, under the identity of its exports."""
        table, same_as = self._source.describe(self._request.table), self._request.options.same_as
        if not same_as:
            return table
        return known_as(table, same_as, self._lake().load(), self._ports.ledger.rows)

    def _exported(
        self, outcome: Outcome, table: MergeTreeTable
    ) -> tuple[PartitionExports, Row, Record]:
        """Return the exports of a partition, with the row and record of that of an outcome.

        All files of that export are in main.

        Raises:
            RefusedError: some of its files are not in main, or readers of the Hive tree do not
                see them.
        """
        lake = self._lake()
        state = lake.load()
        key = Key(table.key_source, outcome.partition_id, state.layout.table_uuid)
        exports = exports_of_partition(
            self._ports.ledger.read, key, self._ports.ledger.read(key.hash)
        )
        row = exports.row_of(outcome.transaction_id)
        if other := other_table(row, table):
            message = (
                f"Cannot archive partition {outcome.partition_id} of {self._request.table}: {other}"
            )
            raise RefusedError(message)
        held = holding(row, state, (row.key if row is not None else key).hash, lake)
        if row is None or row.done is None or not held.holds(row.done.landed):
            message = (
                f"Cannot archive partition {outcome.partition_id} of {self._request.table}: "
                f"{_where(row, held.text)} The source is unchanged."
            )
            raise RefusedError(message)
        unseen = lake.unseen(row.done.landed.transaction_id) if isinstance(lake, HiveTable) else ""
        if unseen:
            message = (
                f"Cannot archive partition {outcome.partition_id} of {self._request.table}: "
                f"{unseen}. The source is unchanged."
            )
            raise RefusedError(message)
        return exports, row, row.done

    def _compared(self, outcome: Outcome, row: Row, done: Record) -> tuple[Row, Record]:
        """Compare the export of an earlier run with the current rows of the source.

        Return the row and its record with the parts that have these rows now: merges may have
        made others since.

        Raises:
            RefusedError: they differ, or cannot be compared.
        """
        found, content = self._comparison(row)
        what = f"Cannot archive partition {outcome.partition_id} of {self._request.table}"
        if found.verdict is not Verdict.EQUAL or content is None:
            message = (
                f"{what}: the comparison with the lake gave {_shown(found)}. The source is "
                "unchanged."
            )
            raise RefusedError(message)
        if content.fingerprint == done.landed.fingerprint:
            return row, done
        after = with_parts(row, done, content, self._ports.clock())
        written = self._ports.ledger.write(after)
        if isinstance(written, Stale) or written.done is None:
            message = (
                f"{what}: another process changed its ledger row at the same moment. The source is "
                "unchanged. Run it again."
            )
            raise RefusedError(message)
        return written, written.done

    def _comparison(self, row: Row) -> tuple[Comparison, Content | None]:
        """Compare an export with the source, or with its digest if the source has no part of it.

        Return also the content of the source that was compared.
        """
        wanted = VerifyRequest(
            self._request.table,
            self._request.to,
            ById(PartitionId(row.key.partition_id)),
            self._request.conversions,
            same_as=self._request.options.same_as,
            only=row.key,
        )
        digests = self._ports.digests
        if digests is None:
            message = "An archive has no digests; this is a bug, please report it."
            raise InternalError(message)
        with contextlib.closing(digests):
            comparing = Verifying(wanted, self._source, self._lake(), self._ports.ledger, digests)
            (found,) = comparing.run()
        return found, comparing.content

    def _lake(self) -> IcebergTable | HiveTable:
        lake = self._ports.lake.table(self._request.to)
        if not isinstance(lake, IcebergTable | HiveTable):
            message = f"Cannot find {self._request.to} any more. Run it again."
            raise NotFoundError(message, code=UNKNOWN_TABLE)
        return lake


def _shown(found: Comparison) -> str:
    """Return the result of a comparison as messages show it."""
    return f"{found.verdict.value}{f' ({found.message})' if found.message else ''}"


def _detached(row: Row) -> tuple[DetachedPart, ...]:
    """Return the parts of an export that the ledger records as detached."""
    return (row.archived.detached if row.archived is not None else None) or ()


def _not_there(left: list[DetachedPart]) -> str:
    """Return the note on parts that were to be dropped and were not there, '' for none."""
    if not left:
        return ""
    return (
        f"{counted(len(left), 'part')} not there any more, {left[0].name} first: dropped by hand, "
        "attached again, or detached at another replica. The ledger still records them"
    )


def _earlier_rows(
    ledger: Ledger, source: str, destination: str, seen: Container[str]
) -> tuple[Row, ...]:
    """Return the archived partitions whose detached parts the ledger records, in order of their id.

    Args:
        ledger: the ledger of the exports.
        source: the identity of the source table.
        destination: the UUID of the lake table.
        seen: ids of partitions to leave out.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = (
        row
        for row in ledger.rows()
        if (row.key.source, row.key.destination) == (source, destination)
        and row.archived is not None
        and row.archived.detached
        and row.key.partition_id not in seen
    )
    return tuple(sorted(found, key=lambda row: row.key.partition_id))


@dataclass(frozen=True, slots=True)
class ArchiveForecast:
    """The forecast of archiving one partition.

    `source` is `detach`, `drop` or `keep`. It is `detached` or `dropped` if an earlier run did
    that already and nothing is left to do. `export` is the action of the export's own forecast.
    """

    partition_id: str
    source: str
    message: str
    export: str
    rows: int = 0
    bytes: int = 0
    exit_code: int = 0


def rehearse_archive(
    request: ExportRequest,
    places: Places,
    *,
    slots: int,
    drop: bool,
    note: Callable[[str], None],
    none: Callable[[str], None],
) -> tuple[tuple[ArchiveForecast, ...], Replaced]:
    """Return a forecast for each selected partition, and what would be replaced; change nothing.

    Args:
        request: selects the partitions to archive.
        places: the addresses of source, lake and ledger.
        slots: how many tasks could run at a time.
        drop: whether parts would be dropped instead of detached.
        note: receives every notice for the user.
        none: receives the notice that no partition is selected.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    lake = places.lake
    with (
        contextlib.closing(
            open_ledger(places.ledger, local_warehouse=lake.ledger_directory)
        ) as ledger,
        open_source(places.source, is_exporting=True) as source,
    ):
        found = rehearse(
            request,
            source,
            lake,
            ledger,
            now=milliseconds(),
            slots=slots,
            note=note,
            storage=lake.storages,
            none=none,
        )
        archived = _forecast(request, places, source, ledger, found.forecasts, drop=drop)
        return tuple(archived), found.replaced


def _forecast(
    request: ExportRequest,
    places: Places,
    source: ClickHouseSource,
    ledger: Ledger,
    forecasts: tuple[Forecast, ...],
    *,
    drop: bool,
) -> Iterator[ArchiveForecast]:
    described, lake = source.describe(request.table), places.lake.table(request.to)
    state = lake.load() if lake is not None else None
    table = known_as(described, request.options.same_as, state, ledger.rows)
    would, did = ("drop", "dropped") if drop else ("detach", "detached")
    seen = set[str]()
    for one in forecasts:
        of, action = one.partition_id, one.action
        parts = source.parts(request.table, PartitionId(of))
        rows, size = sum(p.rows for p in parts), sum(p.bytes_on_disk for p in parts)
        figures = f"{counted(rows, 'row')}, {human_bytes(size)}"
        archived: tuple[Row, ...] = ()
        if state is not None:
            key = Key(table.key_source, of, state.layout.table_uuid)
            exports = exports_of_partition(ledger.read, key, ledger.read(key.hash))
            archived = () if exports.row is not None and exports.row.done else exports.archived
        if action in (EXPORT, REPLACE) and parts:
            replaced = " (in place of its rows in main)" if action == REPLACE else ""
            text = f"would be exported{replaced}, compared and {did}: {figures}"
            yield ArchiveForecast(of, would, text, action, rows, size)
        elif action in _EXPORTED and parts:
            text = f"is exported, would be compared and {did}: {figures}"
            yield ArchiveForecast(of, would, text, action, rows, size)
        elif action in _EXPORTED and archived:
            seen.add(of)
            yield _archived_before(archived, drop=drop)
        else:
            seen.add(of)
            text = f"would stay in the source: {one.message or action}"
            yield ArchiveForecast(of, "keep", text, action, rows, size, REFUSED)
    if drop and state is not None and request.selection == AllPartitions():
        earlier = _earlier_rows(ledger, table.key_source, state.layout.table_uuid, seen)
        for _, of_it in groupby(earlier, key=lambda row: row.key.partition_id):
            yield _archived_before(tuple(of_it), drop=True)


def _archived_before(rows: tuple[Row, ...], *, drop: bool) -> ArchiveForecast:
    noted = [row.archived.detached for row in rows if row.archived is not None]
    parts = tuple(part for detached in noted for part in detached or ())
    size = sum(part.bytes for part in parts)
    of, done = rows[0].key.partition_id, Status.ALREADY_EXPORTED.value
    if not parts and None not in noted:
        return ArchiveForecast(of, "dropped", "was archived and dropped before", done)
    if not drop:
        text = f"was archived before, its parts are detached: {Option.DROP} frees them"
        return ArchiveForecast(of, "detached", text, done, bytes=size)
    if None in noted:
        text = "would stay detached: the ledger does not record which parts were archived"
        return ArchiveForecast(of, "keep", text, done, exit_code=REFUSED)
    text = (
        f"was archived before, {counted(len(parts), 'detached part')} would be dropped: "
        f"{human_bytes(size)}"
    )
    return ArchiveForecast(of, "drop", text, done, bytes=size)


def _where(row: Row | None, text: str) -> str:
    return text if row is not None else "this ledger does not know its export."


def _elsewhere(table: MergeTreeTable, parts: tuple[DetachedPart, ...]) -> str:
    """Return the notice that the other replicas keep their own copies of the detached parts."""
    return (
        f"{counted(len(parts), 'part')} of it stay detached on its other replicas: on each, run "
        f"ALTER TABLE {table.name.sql} DROP DETACHED PART {quote_string(parts[0].name)} SETTINGS "
        "allow_drop_detached = 1, and so on"
    )
