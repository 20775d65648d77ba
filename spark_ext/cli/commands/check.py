"""`mergeberg check`: would an export work, and what would it be."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from catalog.bounded_rest import TimeOuts
from catalog.iceberg import open_catalog
from catalog.ledgers.uris import open_ledger
from catalog.sources import SourcePlace, open_source
from spark_ext.checking import Check, CheckRequest, check_export
from spark_ext.cli.destination import parse_destination
from spark_ext.cli.options import (
    catalog_options,
    conversions,
    ledger_options,
    mapping_options,
    output_for,
    output_options,
    source_options,
)
from spark_ext.cli.output import Output, human_bytes
from spark_ext.cli.space import Space, measured_space, show_space
from spark_ext.exporting import slots
from spark_ext.session import TASK_MEMORY
from tableformat.names import TableName

__all__ = ["check"]

_REFUSED: Final = 3
_COLUMNS: Final = ("column", "clickhouse", "iceberg", "kind", "note")


@click.command()
@click.argument("table")
@click.option("--to", help="The destination: catalog.namespace.table.")
@mapping_options
@source_options()
@ledger_options
@catalog_options
@output_options
def check(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, to: str | None, partition_spec: str | None, convert: tuple[str, ...],
    source: SourcePlace, warehouse: Path, ledger: str | None,
    connect_timeout: float, read_timeout: float, *, evolve_schema: bool, strict: bool, as_json: bool
) -> int:  # fmt: skip
    """Say whether TABLE (database.table) can be exported, and how each column would be mapped.

    Starts nothing and changes nothing. Ends with 3, and all reasons, when it cannot be exported.

    \b
    Examples:
      mergeberg check db.events --source chdb:./clickhouse
      mergeberg check db.events --to lake.analytics.events --partition-spec "day(ts)"
    """  # noqa: D301  \b is Click's mark for lines to keep
    output = output_for(as_json=as_json)
    name = TableName.parse(table)
    destination = parse_destination(to, name, source) if to is not None else None
    request = CheckRequest(
        name, destination, conversions(convert), strict, partition_spec, evolve_schema
    )
    time_outs = TimeOuts(connect_timeout, read_timeout)
    lake = (
        open_catalog(destination.catalog, warehouse=warehouse, time_outs=time_outs)
        if destination
        else None
    )
    known = open_ledger(ledger, local_warehouse=lake.local_warehouse) if lake else None
    opened = open_source(source)
    try:
        found = check_export(request, opened, lake, known)
    finally:
        opened.close()
        if known:
            known.close()
    spaces = measured_space(
        found.disks,
        destination=sum(found.disks.values()) if destination else 0,
        location=found.location,
        warehouse=lake.local_warehouse if lake else warehouse.absolute(),
    )
    found.reasons.extend(
        f"Cannot export {name}: not enough space: {s}. Free some, or export fewer partitions."
        for s in spaces
        if s.side == "destination" and not s.enough
    )
    if as_json:
        output.record(_record(found, spaces))
    else:
        _show(output, found, spaces, str(name))
    return _REFUSED if found.reasons else 0


def _record(found: Check, spaces: tuple[Space, ...]) -> dict[str, object]:
    """Return everything as one object."""
    partitions = [{**asdict(p), "partition_id": p.partition_id.value} for p in found.partitions]
    return {
        "works": not found.reasons,
        "reasons": found.reasons,
        "warnings": found.warnings,
        "columns": [asdict(c) for c in found.columns],
        "partition_key": found.partition_key,
        "partition_spec": found.spec,
        "sorting_key": found.sorting_key,
        "sort_order": found.sort_order,
        "destination": found.destination,
        "partitions": partitions,
        "space": [asdict(s) for s in spaces],
        "versions": found.versions,
        "task_memory": TASK_MEMORY,
    }


def _show(output: Output, found: Check, spaces: tuple[Space, ...], name: str) -> None:
    rows = sum(p.rows for p in found.partitions)
    size = sum(p.bytes_on_disk for p in found.partitions)
    output.say(f"{name}: {len(found.partitions)} partition(s), {rows:,} rows, {human_bytes(size)}")
    output.table(_COLUMNS, [asdict(c) for c in found.columns])
    output.say(f"partition key  {found.partition_key} -> {found.spec or 'not known'}")
    output.say(f"sorting key    {found.sorting_key} -> {found.sort_order or 'not known'}")
    if found.destination:
        output.say(f"destination    {found.destination}")
    output.say("versions       " + ", ".join(f"{k} {v}" for k, v in found.versions.items()))
    number = slots("local[*]")
    output.say(
        f"memory         {human_bytes(TASK_MEMORY)} for each task slot outside the JVM, "
        f"{human_bytes(TASK_MEMORY * number)} for the {number} of local[*]; on a cluster raise "
        f"spark.executor.memoryOverhead to {TASK_MEMORY // 1024**2}m for each core"
    )
    show_space(output, spaces, as_json=False)
    for warning in found.warnings:
        output.say(f"note: {warning}")
    if not found.reasons:
        output.say("It would work.")
        return
    output.say(f"It would not work, {len(found.reasons)} reason(s):")
    for reason in found.reasons:
        output.say(f"  - {reason}")
