"""`mergeberg exports cancel`: an export that runs elsewhere, or did not end, is given up."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import click

from catalog.time_outs import TimeOuts
from spark_ext.cancelling import PROOF_SECONDS, Cancelled, cancel_each, rows_to_cancel
from spark_ext.cli.destination import destination_name, open_destination, open_ledger_of
from spark_ext.cli.options import catalog_options, ledger_options, output_for, output_options
from spark_ext.cli.output import Output
from tableformat.errors import TableFormatError
from tableformat.export.exit_codes import worst
from tableformat.ledger import Row
from tableformat.names import LakeName, PartitionId, TableName
from tableformat.quantities import counted, human_bytes

__all__ = ["cancel_export"]

_CODES: Final = {"committed": 3, "unknown": 5, "in_progress": 6}
"""The exit code by status; any other is 0."""


@click.command("cancel")
@click.argument("partition_id")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@click.option(
    "--to", help="The destination, where there are several: catalog.namespace.table, or hive:URI."
)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=PROOF_SECONDS,
    show_default=True,
    help="Seconds to wait until it is proved that nothing of it can land.",
)
@ledger_options
@catalog_options
@output_options
def cancel_export(
    partition_id: str, source_table: str, to: str | None, wait: float, warehouse: Path,
    ledger: str | None, time_outs: TimeOuts, *, as_json: bool
) -> int:  # fmt: skip
    """Give up the export of PARTITION_ID that is under way: nothing of it becomes visible.

    A run that works on it stops within seconds; its finished files are removed. Says so when the
    export has landed already. Exporting the partition again begins anew.

    \b
    Examples:
      mergeberg exports cancel 202401 --table db.events
      mergeberg exports cancel 202401 --table db.events --to lake.analytics.events --wait 10
    """  # noqa: D301  \b is Click's mark for lines to keep
    output = output_for(as_json=as_json)
    wanted = (PartitionId(partition_id), TableName.parse(source_table))
    name = destination_name(to) if to is not None else None
    with contextlib.closing(open_ledger_of(name, ledger, warehouse=warehouse)) as known:
        rows = rows_to_cancel(known, *wanted, name)
        to_cancel = LakeName.parse(rows[0].destination_table)
        catalog = open_destination(
            to_cancel, warehouse=warehouse, time_outs=time_outs, looks_only=False
        )
        codes, errors = [], list[TableFormatError]()
        for row, became in cancel_each(rows, catalog, known, wait=wait, note=output.note):
            if isinstance(became, TableFormatError):
                errors.append(became)
                continue
            _tell(output, row, became, as_json=as_json)
            codes.append(_CODES.get(became.status, 0))
    if errors:
        for other in errors[1:]:
            output.note(other.message)
        raise errors[0]
    return worst(codes)


def _tell(output: Output, row: Row, cancelled: Cancelled, *, as_json: bool) -> None:
    text, cleaned = cancelled.text, cancelled.cleaned
    if cleaned.files:
        text += f"; {counted(cleaned.files, 'file')} removed, {human_bytes(cleaned.bytes)}"
    if as_json:
        output.record(
            {
                "partition_id": row.key.partition_id,
                "table": row.destination_table,
                "status": cancelled.status,
                "message": text,
            }
        )
    else:
        output.say(f"partition {row.key.partition_id}: {text}")
