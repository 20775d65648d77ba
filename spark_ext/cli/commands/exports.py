"""`mergeberg exports`: what the ledger says."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from catalog.ledgers.uris import open_ledger
from spark_ext import listing_exports
from spark_ext.cli.commands.cancel import cancel_export
from spark_ext.cli.commands.exports_forget import forget_export
from spark_ext.cli.commands.exports_log import show_events, show_log
from spark_ext.cli.commands.exports_rebuild import rebuild_exports
from spark_ext.cli.commands.exports_watermark import show_watermark
from spark_ext.cli.options import ledger_options, output_for, output_options
from spark_ext.cli.times import shown_time
from spark_ext.listing_exports import ListedExport
from tableformat.errors import NotFoundError
from tableformat.ledger_text import render_row
from tableformat.manifest import manifest

__all__ = ["exports"]


@click.group()
def exports() -> None:
    """Show what was exported, what runs, what failed."""


exports.add_command(cancel_export)
exports.add_command(forget_export)
exports.add_command(rebuild_exports)
exports.add_command(show_events)
exports.add_command(show_log)
exports.add_command(show_watermark)


@exports.command("list")
@click.option(
    "--status",
    help="Only rows with this status: IN_PROGRESS, INTERRUPTED, FAILED, KILLED or COMPLETED.",
)
@ledger_options
@output_options
def list_exports(status: str | None, warehouse: Path, ledger: str | None, *, as_json: bool) -> int:
    """List all exports that the ledger knows, latest first.

    \b
    Example:
      mergeberg exports list --status COMPLETED --warehouse ./warehouse
    """  # noqa: D301  \b is Click's mark for lines to keep
    opened = open_ledger(ledger, local_warehouse=warehouse)
    with contextlib.closing(opened):
        rows = [_record(one) for one in listing_exports.list_exports(opened)]
    shown = [r for r in rows if status is None or r["status"] == status.upper()]
    columns = (
        "source_table", "destination_table", "partition_id", "status", "rows", "data_files",
        "snapshot_id", "create_time", "update_time", "last_error",
    )  # fmt: skip
    output_for(as_json=as_json).table(columns, shown)
    return 0


@exports.command("show")
@click.argument("partition_id")
@click.option("--table", "source_table", help="Only exports of this source table (database.table).")
@ledger_options
@output_options
def show_export(
    partition_id: str,
    source_table: str | None,
    warehouse: Path,
    ledger: str | None,
    *,
    as_json: bool,
) -> int:
    """Show everything that the ledger knows of the exports of PARTITION_ID.

    With --json the manifest of the last one, over several lines.

    \b
    Example:
      mergeberg exports show 202401 --table db.events
    """  # noqa: D301  \b is Click's mark for lines to keep
    opened = open_ledger(ledger, local_warehouse=warehouse)
    with contextlib.closing(opened):
        found = [
            one
            for one in listing_exports.list_exports(opened)
            if one.row.key.partition_id == partition_id
            and source_table in (None, one.row.source_table)
        ]
    if not found:
        message = (
            f"Cannot show the export of partition {partition_id}: the ledger {opened.uri} has "
            "none. List what it has with `mergeberg exports list`."
        )
        raise NotFoundError(message)
    output = output_for(as_json=as_json)
    for one in found:
        if as_json:
            output.document(manifest(one.row))
            continue
        record = {
            **_record(one),
            "resumable": one.resumable,
            "transaction_id": one.row.last.transaction_id,
            "parts": [asdict(p) for p in one.parts],
            **json.loads(render_row(one.row)),
            "version": one.row.version,
        }
        output.record(
            {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in record.items()}
        )
    return 0


def _record(one: ListedExport) -> dict[str, Any]:
    row = one.row
    return {
        "source_table": row.source_table,
        "destination_table": row.destination_table,
        "partition_id": row.key.partition_id,
        "status": one.status.value,
        "rows": row.last.rows,
        "data_files": row.last.data_files,
        "snapshot_id": None if one.snapshot_id is None else str(one.snapshot_id),
        "create_time": shown_time(row.created),
        "update_time": shown_time(row.updated),
        "last_error": one.last_error,
    }
