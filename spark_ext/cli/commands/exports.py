"""`mergeberg exports`: what the ledger says."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from catalog.ledgers.uris import open_ledger
from spark_ext import listing_exports
from spark_ext.cli.commands.exports_cancel import cancel_export
from spark_ext.cli.commands.exports_forget import forget_export
from spark_ext.cli.commands.exports_log import show_events, show_log
from spark_ext.cli.commands.exports_rebuild import rebuild_exports
from spark_ext.cli.commands.exports_unarchive import unarchive_export
from spark_ext.cli.commands.exports_watermark import show_watermark
from spark_ext.cli.destination import open_destination
from spark_ext.cli.options import ledger_options, output_for, output_options
from spark_ext.cli.times import shown_time
from spark_ext.cli.watching import Records, follow
from spark_ext.json_text import json_text
from spark_ext.known_destinations import LOOKING, KnownDestinations
from spark_ext.listing_exports import ListedExport
from spark_ext.part_progress import failed_parts, parts_with_files, processed
from tableformat.errors import NotFoundError, TableFormatError
from tableformat.export.standing import Standing
from tableformat.ledger import ExportedPart, Ledger
from tableformat.ledger_text import render_row
from tableformat.manifest import manifest
from tableformat.names import written_name

__all__ = ["exports"]

T = TypeVar("T")

_COLUMNS: Final = (
    "source_table", "destination_table", "partition_id", "status", "rows", "data_files",
    "snapshot_id", "parts_total", "parts_processed", "parts_failed", "create_time", "update_time",
    "last_error", "changed_by", "statement", "rows_in_main", "expired",
)  # fmt: skip


@click.group()
def exports() -> None:
    """Show what was exported, what runs, what failed."""


exports.add_command(cancel_export)
exports.add_command(forget_export)
exports.add_command(rebuild_exports)
exports.add_command(show_events)
exports.add_command(show_log)
exports.add_command(show_watermark)
exports.add_command(unarchive_export)


@exports.command("list")
@click.option(
    "--status",
    type=click.Choice([one.value for one in Standing], case_sensitive=False),
    help="Only rows with this status.",
)
@click.option(
    "--watch",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Look again every so often, 2 seconds by default, and show what changed, until nothing "
    "is in progress or Ctrl-C; with --json one line for each change.",
)
@ledger_options
@output_options
def list_exports(
    status: str | None, watch: float | None, warehouse: Path, ledger: str | None, *, as_json: bool
) -> int:
    """List all exports that the ledger knows, latest first.

    Of those that did not end, the lake says which source parts are in finished files.

    \b
    Example:
      mergeberg exports list --status COMPLETED --warehouse ./warehouse
      mergeberg exports list --watch 5
    """  # noqa: D301  \b is Click's mark for lines to keep
    output = output_for(as_json=as_json)
    opened = open_ledger(ledger, local_warehouse=warehouse)
    with contextlib.closing(opened):
        shown = _Shown(_destinations(warehouse), output.note)
        listed = _Listed(opened, status, shown)
        if watch is None:
            output.table(_COLUMNS, [*listed.look().values()])
            return 0

        def show(now: Records, changed: Records) -> None:
            output.redraw()
            output.table(_COLUMNS, [*(changed if as_json else now).values()])

        # Ctrl-C is how a person ends it.
        with contextlib.suppress(KeyboardInterrupt):
            follow(
                listed.look,
                is_running=lambda: listed.is_running,
                show=show,
                pause=partial(time.sleep, watch),
            )
    return 0


@dataclass(slots=True)
class _Listed:
    """The exports of a ledger with a status, None for all; `is_running` is of all of them."""

    ledger: Ledger
    status: str | None
    shown: _Shown
    is_running: bool = False

    def look(self) -> dict[str, dict[str, Any]]:
        """Return them by key as they are now."""
        self.shown.lake.look_again()
        found = {
            one.row.key.hash: self.shown.record(one)
            for one in listing_exports.list_exports(self.ledger)
        }
        self.is_running = any(r["status"] == Standing.IN_PROGRESS for r in found.values())
        return {k: r for k, r in found.items() if self.status in (None, r["status"])}


@exports.command("show")
@click.argument("partition_id")
@click.option("--table", "source_table", help="Only exports of this source table (database.table).")
@ledger_options
@output_options
def show_export(
    partition_id: str, source_table: str | None, warehouse: Path, ledger: str | None, *,
    as_json: bool
) -> int:  # fmt: skip
    """Show everything that the ledger knows of the exports of PARTITION_ID.

    With --json the manifest of the last one, over several lines.

    \b
    Example:
      mergeberg exports show 202401 --table db.events
    """  # noqa: D301  \b is Click's mark for lines to keep
    named = None if source_table is None else written_name(source_table)
    opened = open_ledger(ledger, local_warehouse=warehouse)
    with contextlib.closing(opened):
        found = [
            one
            for one in listing_exports.list_exports(opened)
            if one.row.key.partition_id == partition_id and named in (None, one.row.source_table)
        ]
    if not found:
        message = (
            f"Cannot show the export of partition {partition_id}: the ledger {opened.uri} has "
            "none. List what it has with `mergeberg exports list`."
        )
        raise NotFoundError(message)
    output = output_for(as_json=as_json)
    shown = _Shown(_destinations(warehouse), output.note)
    for one in found:
        parts = shown.parts(one)
        if as_json:
            output.document(manifest(one.row, parts))
            continue
        names = None if parts is None else frozenset(p.name for p in parts if p.remote_paths)
        record = {
            **_record(one, names),
            "resumable": one.resumable,
            "transaction_id": one.export.transaction_id,
            "parts": [
                {**asdict(p), "processed": None if parts is None else bool(p.remote_paths)}
                for p in parts or one.parts
            ],
            **json.loads(render_row(one.row)),
            "version": one.row.version,
        }
        output.record(
            {k: json_text(v) if isinstance(v, list | dict) else v for k, v in record.items()}
        )
    return 0


def _destinations(warehouse: Path) -> KnownDestinations:
    return KnownDestinations(
        partial(open_destination, warehouse=warehouse, time_outs=LOOKING, looks_only=True)
    )


@dataclass(frozen=True, slots=True)
class _Shown:
    """How exports are shown: what the lake does not say is left empty, and why is a note."""

    lake: KnownDestinations
    note: Callable[[str], None]
    noted: set[str] = field(default_factory=set)

    def record(self, one: ListedExport) -> dict[str, Any]:
        """Return what is listed of one."""
        return _record(one, self.processed(one))

    def processed(self, one: ListedExport) -> frozenset[str] | None:
        """Return the parts that are in finished files, None when the lake does not say."""
        return self._asked(one, processed)

    def parts(self, one: ListedExport) -> tuple[ExportedPart, ...] | None:
        """Return the parts with their finished files, None when the lake does not say."""
        return self._asked(one, parts_with_files)

    def _asked(
        self, one: ListedExport, ask: Callable[[ListedExport, KnownDestinations], T]
    ) -> T | None:
        try:
            return ask(one, self.lake)
        except TableFormatError as error:
            to = one.row.destination_table
            self._note_once(f"how far exports to {to} are, is not known: {error}")
            return None

    def _note_once(self, text: str) -> None:
        """Say what is so for many exports, and at every look, one time."""
        if text not in self.noted:
            self.noted.add(text)
            self.note(text)


def _record(one: ListedExport, names: frozenset[str] | None) -> dict[str, Any]:
    row, of = one.row, one.export
    return {
        "source_table": row.source_table,
        "destination_table": row.destination_table,
        "partition_id": row.key.partition_id,
        "status": one.status.value,
        "rows": of.rows,
        "data_files": of.data_files,
        "snapshot_id": None if one.snapshot_id is None else str(one.snapshot_id),
        "parts_total": len(one.parts),
        "parts_processed": None if names is None else len(names),
        "parts_failed": None if names is None else failed_parts(one, len(names)),
        "create_time": shown_time(of.begun),
        "update_time": shown_time(row.updated),
        "last_error": one.last_error,
        "changed_by": one.changed_by,
        "statement": one.statement,
        "rows_in_main": one.rows_in_main,
        "expired": one.expired,
    }
