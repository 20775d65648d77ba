"""`mergeberg archive --dry-run`: says what would leave the source; opens both sides for reading."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from catalog.clickhouse.source import ClickHouseSource
from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.shards import LocalTable
from catalog.sources import open_source
from spark_ext.archiving import earlier_rows
from spark_ext.cli.output import JsonOutput, Output
from spark_ext.wiring import Places
from tableformat.export.dry_run import EXPORT, REPLACE, Forecast, rehearse
from tableformat.export.exit_codes import REFUSED, worst
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Status
from tableformat.export.selection import AllPartitions
from tableformat.ledger import Key, Ledger, Row
from tableformat.names import PartitionId
from tableformat.quantities import counted, human_bytes

__all__ = ["show_archive_rehearsal"]

_IN_MAIN = (Status.UNCHANGED.value, Status.ALREADY_EXPORTED.value)


@dataclass(frozen=True, slots=True)
class _Forecast:
    """What would become of one partition: `source` as of `Archived.status`."""

    partition_id: str
    source: str
    message: str
    rows: int = 0
    bytes: int = 0
    exit_code: int = 0


def show_archive_rehearsal(
    request: ExportRequest,
    places: Places,
    output: Output,
    of: LocalTable,
    slots: int,
    *,
    drop: bool,
) -> int:
    """Print what would leave the source, and what would stay; return the exit code.

    Args:
        request: what to archive.
        places: where source and lake are.
        output: where it is printed.
        of: the table, as one of several.
        slots: how many tasks could run at a time.
        drop: whether parts would be dropped.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    lake = places.lake
    with (
        contextlib.closing(
            open_ledger(places.ledger, local_warehouse=lake.ledger_directory)
        ) as led,
        open_source(places.source, is_exporting=True) as source,
    ):
        found = rehearse(
            request,
            source,
            lake,
            led,
            now=milliseconds(),
            slots=slots,
            note=output.note,
            storage=lake.storages,
            none=output.none_selected,
        )
        told = tuple(_told(request, places, source, led, found.forecasts, drop=drop))
    for one in told:
        if isinstance(output, JsonOutput):
            fields = asdict(one)
            del fields["exit_code"]
            output.record({**of.fields, **fields})
        else:
            output.say(f"partition {one.partition_id}: {one.message}")
    output.note("nothing was done: this was a dry run")
    return worst(one.exit_code for one in told)


def _told(
    request: ExportRequest,
    places: Places,
    source: ClickHouseSource,
    ledger: Ledger,
    forecasts: tuple[Forecast, ...],
    *,
    drop: bool,
) -> Iterator[_Forecast]:
    table, lake = source.describe(request.table), places.lake.table(request.to)
    state = lake.load() if lake is not None else None
    did = "dropped" if drop else "detached"
    for one in forecasts:
        parts = source.parts(request.table, PartitionId(one.partition_id))
        rows, size = sum(p.rows for p in parts), sum(p.bytes_on_disk for p in parts)
        figures = f"{counted(rows, 'row')}, {human_bytes(size)}"
        row = None
        if state is not None:
            key = Key(table.key_source, one.partition_id, state.layout.table_uuid)
            row = ledger.read(key.hash)
        if one.action in (EXPORT, REPLACE) and parts:
            replaced = " (in the place of what main has of it)" if one.action == REPLACE else ""
            text = f"would be exported{replaced}, compared and {did}: {figures}"
            yield _Forecast(one.partition_id, did, text, rows, size)
        elif one.action in _IN_MAIN and parts:
            text = f"is exported, would be compared and {did}: {figures}"
            yield _Forecast(one.partition_id, did, text, rows, size)
        elif one.action in _IN_MAIN and row is not None and row.archived is not None:
            yield _archived_before(row, drop=drop)
        else:
            text = f"would stay in the source: {one.message or one.action}"
            yield _Forecast(one.partition_id, "kept", text, rows, size, REFUSED)
    if drop and state is not None and request.selection == AllPartitions():
        seen = {one.partition_id for one in forecasts}
        for row in earlier_rows(ledger, table.key_source, state.layout.table_uuid, seen):
            yield _archived_before(row, drop=True)


def _archived_before(row: Row, *, drop: bool) -> _Forecast:
    parts = row.archived.detached if row.archived is not None else None
    size = sum(part.bytes for part in parts or ())
    if parts == ():
        return _Forecast(row.key.partition_id, "dropped", "was archived and dropped before")
    if not drop:
        text = "was archived before, its parts are detached: --drop frees them"
        return _Forecast(row.key.partition_id, "detached", text, bytes=size)
    if parts is None:
        text = "would stay detached: the ledger does not say which parts were archived"
        return _Forecast(row.key.partition_id, "kept", text, exit_code=REFUSED)
    text = (
        f"was archived before, {counted(len(parts), 'detached part')} would be dropped: "
        f"{human_bytes(size)}"
    )
    return _Forecast(row.key.partition_id, "dropped", text, bytes=size)
