"""`mergeberg export --dry-run`: opens both sides for reading, and prints what would be done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from catalog.clickhouse.source import ClickHouseSource
from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.sources import open_source
from spark_ext.cli.output import Output
from spark_ext.cli.space import lacking, measured_space, show_space
from spark_ext.wiring import Places
from tableformat.export.dry_run import EXPORT, REPLACE, Rehearsal, rehearse
from tableformat.export.exit_codes import REFUSED, worst
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Status

__all__ = ["forecasts_of", "show_rehearsal"]

_COLUMNS: Final = (
    "partition_id", "action", "files", "rows", "bytes", "left_rows", "left_bytes", "message"
)  # fmt: skip


def show_rehearsal(
    request: ExportRequest,
    places: Places,
    output: Output,
    *,
    slots: int,
    as_json: bool,
    said: Callable[[str], str] = str,
) -> int:
    """Print what an export would do; return the exit code that it would have, as far as is known.

    Args:
        request: what the user asked for.
        places: where everything is.
        output: where it is printed.
        slots: how many tasks could run at a time.
        as_json: whether it is for a program.
        said: a message in the words of who asked.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    lake = places.lake
    with open_source(places.source, is_exporting=True) as source:
        found = forecasts_of(
            request,
            places,
            slots=slots,
            note=lambda text: output.note(said(text)),
            none=lambda text: output.none_selected(said(text)),
            source=source,
        )
        at_server = source.free_bytes()
    shown = [replace(forecast, message=said(forecast.message)) for forecast in found.forecasts]
    output.table(_COLUMNS, [{c: getattr(f, c) for c in _COLUMNS} for f in shown])
    spaces = measured_space(
        found.source_bytes,
        destination=found.destination_bytes,
        location=found.location,
        warehouse=lake.ledger_directory,
        at_server=at_server,
    )
    show_space(output, spaces, as_json=as_json)
    missing = lacking(request.table, spaces)
    for reason in missing:
        output.note(reason)
    output.note("nothing was done: this was a dry run")
    return worst((_exit_code(found), REFUSED if missing else 0))


def forecasts_of(
    request: ExportRequest,
    places: Places,
    *,
    slots: int,
    note: Callable[[str], None],
    none: Callable[[str], None] | None = None,
    source: ClickHouseSource | None = None,
) -> Rehearsal:
    """Return what an export would do.

    Args:
        request: what the user asked for.
        places: where everything is.
        slots: how many tasks could run at a time.
        note: hears what the export would tell its observer.
        none: hears that no partition is selected; `note` when None.
        source: that of `places`, where it is open already.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    lake = places.lake
    with contextlib.ExitStack() as stack:
        ledger = open_ledger(places.ledger, local_warehouse=lake.ledger_directory)
        stack.callback(ledger.close)
        opened = source or stack.enter_context(open_source(places.source, is_exporting=True))
        return rehearse(
            request,
            opened,
            lake,
            ledger,
            now=milliseconds(),
            slots=slots,
            note=note,
            storage=lake.storages,
            none=none,
        )


def _exit_code(found: Rehearsal) -> int:
    return worst(
        Status(f.action).exit_code for f in found.forecasts if f.action not in (EXPORT, REPLACE)
    )
