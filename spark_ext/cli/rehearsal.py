"""`mergeberg export --dry-run`: opens both sides for reading, and prints what would be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.sources import open_source
from spark_ext.cli.output import Output
from spark_ext.cli.space import measured_space, show_space
from spark_ext.wiring import Places
from tableformat.export.dry_run import EXPORT, REPLACE, Rehearsal, rehearse
from tableformat.export.exit_codes import worst
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Status

__all__ = ["show_rehearsal"]

_COLUMNS: Final = ("partition_id", "action", "files", "rows", "bytes", "message")


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
    ledger = open_ledger(places.ledger, local_warehouse=lake.local_warehouse)
    source = open_source(places.source, is_exporting=True)
    try:
        found = rehearse(
            request,
            source,
            lake,
            ledger,
            now=milliseconds(),
            slots=slots,
            note=lambda text: output.note(said(text)),
            storage=lake.storages,
        )
        at_server = source.free_bytes()
    finally:
        source.close()
        ledger.close()
    shown = [replace(forecast, message=said(forecast.message)) for forecast in found.forecasts]
    output.table(_COLUMNS, [{c: getattr(f, c) for c in _COLUMNS} for f in shown])
    spaces = measured_space(
        found.source_bytes,
        destination=found.destination_bytes,
        location=found.location,
        warehouse=lake.local_warehouse,
        at_server=at_server,
    )
    show_space(output, spaces, as_json=as_json)
    output.note("nothing was done: this was a dry run")
    return _exit_code(found)


def _exit_code(found: Rehearsal) -> int:
    return worst(
        Status(f.action).exit_code for f in found.forecasts if f.action not in (EXPORT, REPLACE)
    )
