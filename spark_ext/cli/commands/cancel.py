"""`mergeberg exports cancel`: an export that runs elsewhere, or did not end, is given up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, assert_never

import click

from catalog.bounded_rest import TimeOuts
from catalog.iceberg import IcebergTable, OpenedCatalog, open_catalog
from catalog.ledgers.uris import open_ledger
from catalog.processes import may_be_alive, this_process
from catalog.storage import open_storage
from spark_ext.cli.options import catalog_options, ledger_options, output_for, output_options
from spark_ext.cli.output import Output, counted, human_bytes
from spark_ext.wiring import commit_ports
from tableformat.committer import Superseded, Unknown
from tableformat.errors import NotFoundError, RefusedError, TableFormatError, UsageError
from tableformat.export.cleaning import Cleaning
from tableformat.export.giving_up import GivenUp, KillOutcome, NotUnderWay, TooLate, kill
from tableformat.export.leases import Leases
from tableformat.export.settling import Ports
from tableformat.ledger import Ledger, Row, State
from tableformat.names import LakeName, PartitionId, TableName

__all__ = ["cancel_export"]

_REFUSED: Final = 3
_UNKNOWN: Final = 5
_IN_PROGRESS: Final = 6
_ATTEMPTS: Final = 5
"""Fences of one try; between tries it is told what is waited for."""


@click.command("cancel")
@click.argument("partition_id")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@click.option("--to", help="The destination, where there are several: catalog.namespace.table.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds to wait until it is proved that nothing of it can land.",
)
@ledger_options
@catalog_options
@output_options
def cancel_export(  # noqa: PLR0913  one parameter per option
    partition_id: str, source_table: str, to: str | None, wait: float, warehouse: Path,
    ledger: str | None, connect_timeout: float, read_timeout: float, *, as_json: bool
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
    name = LakeName.parse(to) if to is not None else None
    time_outs = TimeOuts(connect_timeout, read_timeout)
    with contextlib.closing(open_ledger(ledger, local_warehouse=warehouse)) as known:
        row = _row(known, *wanted, name)
        name = LakeName.parse(row.destination_table)
        catalog = open_catalog(name.catalog, warehouse=warehouse, time_outs=time_outs)
        table = _table(catalog, name, row)
        ports = replace(commit_ports(table, known), most_attempts=_ATTEMPTS)
        leases = Leases(known, this_process(), effects=ports.effects, is_alive=may_be_alive)
        with leases:
            if row.state is State.RUNNING:
                leases.take_over(row.key.hash)
            outcome = _killed(ports, row.key.hash, output, time.monotonic() + wait)
            cleaned = _cleaned(ports, outcome, output)
    return _tell(output, row, outcome, cleaned, as_json=as_json)


def _row(ledger: Ledger, partition_id: PartitionId, table: TableName, to: LakeName | None) -> Row:
    """Return the row that is meant; with several, the one that is under way."""
    found = [
        row
        for row in ledger.rows()
        if (row.key.partition_id, row.source_table) == (partition_id.value, str(table))
        and to in (None, LakeName.parse(row.destination_table))
    ]
    what = f"Cannot cancel the export of partition {partition_id} of {table}"
    if not found:
        message = (
            f"{what}: the ledger {ledger.uri} has none. List what it has with `mergeberg exports "
            "list`."
        )
        raise NotFoundError(message)
    running = [row for row in found if row.state is State.RUNNING]
    if len(running) > 1:
        names = ", ".join(sorted(row.destination_table for row in running))
        message = f"{what}: it is exported to {names}. Name one of them with --to."
        raise UsageError(message)
    return (running or found)[0]


def _table(catalog: OpenedCatalog, name: LakeName, row: Row) -> IcebergTable:
    table = catalog.table(name)
    if table is None or table.load().layout.table_uuid != row.key.destination:
        message = (
            f"Cannot cancel the export of partition {row.key.partition_id} of {row.source_table}: "
            f"{name} is not the table that it goes to any more. Nothing of it is visible there."
        )
        raise RefusedError(message)
    return table


def _killed(ports: Ports, key: str, output: Output, until: float) -> KillOutcome:
    """Give it up; while that is not known, say what is waited for, and go on."""
    while True:
        outcome = kill(ports, key, state=State.KILLED, on_claim=_taken_over(output))
        if not isinstance(outcome, Unknown) or time.monotonic() >= until:
            return outcome
        output.note(f"waiting until nothing of it can land any more: {outcome.evidence}")
        ports.pause(_ATTEMPTS)


def _taken_over(output: Output) -> Callable[[Row], None]:
    def say(row: Row) -> None:
        output.note(f"partition {row.key.partition_id}: taken over, its run stops within seconds")

    return say


def _cleaned(ports: Ports, outcome: KillOutcome, output: Output) -> str:
    """Remove the files of an export that was given up; say what was removed, '' for nothing."""
    if not isinstance(outcome, GivenUp):
        return ""
    try:
        location = ports.table.load().location
        cleaning = Cleaning(ports, open_storage(location), location)
        cleaned = cleaning.clean(outcome.row.key.hash)
    except TableFormatError as error:
        output.note(f"its files stay: {error} `mergeberg gc` removes them")
        return ""
    if not cleaned.files:
        return ""
    return f"; {counted(cleaned.files, 'file')} removed, {human_bytes(cleaned.bytes)}"


def _tell(output: Output, row: Row, outcome: KillOutcome, cleaned: str, *, as_json: bool) -> int:
    status, text, code = _said(outcome, cleaned)
    if as_json:
        record: dict[str, Any] = {
            "partition_id": row.key.partition_id,
            "table": row.destination_table,
            "status": status,
            "message": text,
        }
        output.record(record)
    else:
        output.say(f"partition {row.key.partition_id}: {text}")
    return code


def _said(outcome: KillOutcome, cleaned: str) -> tuple[str, str, int]:
    """Return the status word, the sentence and the exit code."""
    match outcome:
        case GivenUp():
            return "killed", f"KILLED{cleaned}", 0
        case TooLate(_, snapshot_id, in_main):
            since = "" if in_main else ", and main was moved away from it since"
            return "committed", f"too late: it landed in snapshot {snapshot_id}{since}", _REFUSED
        case NotUnderWay(row) if row is not None and row.state is not State.COMPLETED:
            return row.state.value.lower(), f"{row.state} already", 0
        case NotUnderWay(row):
            landed = row.done.landed.snapshot_id if row is not None and row.done else None
            return "committed", f"nothing to cancel: it is in snapshot {landed}", _REFUSED
        case Superseded(by):
            return "in_progress", f"not cancelled: {by}", _IN_PROGRESS
        case Unknown(evidence):
            text = f"not known yet: something of it may still land: {evidence}"
            return "unknown", text, _UNKNOWN
        case _ as never:
            assert_never(never)
