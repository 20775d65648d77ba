"""The command `mergeberg gc`: lists and removes garbage of abandoned exports, with the proof."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalog.hive import OpenedTree
from catalog.ledgers.uris import open_known_ledger
from catalog.network import TimeOuts
from catalog.shards import hosts_to_look_at
from catalog.sources import SourcePlace
from spark_ext.actions.exports import open_existing
from spark_ext.actions.gc import sweep, sweep_sources
from spark_ext.cli.destination import destination_name, open_destination
from spark_ext.cli.option_values import pairs
from spark_ext.cli.output import Output, output_for
from tableformat.errors import UsageError
from tableformat.export.gc import Garbage
from tableformat.names import HiveName, TableName
from tableformat.quantities import counted, human_bytes, parse_duration

__all__ = ["gc"]


def gc(  # noqa: PLR0913, PLR0917  one parameter per option
    to: str | None, source: SourcePlace | None, cluster: str | None, table: str | None,
    cluster_host: tuple[str, ...], older_than: str, expire_dropped: str | None,
    keep_replaced: str, warehouse: Path,
    ledger: str | None, time_outs: TimeOuts,
    *, yes: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg gc`; return the exit code."""
    age = parse_duration("--older-than", older_than)
    dropped = None if expire_dropped is None else parse_duration("--expire-dropped", expire_dropped)
    kept = parse_duration("--keep-replaced", keep_replaced)
    name = None if to is None else destination_name(to)
    if dropped is not None and (name is None or isinstance(name, HiveName)):
        message = (
            f"Cannot expire snapshots of {to or 'a source'}: only Iceberg tables have any. Name "
            "one by --to, or leave --expire-dropped out."
        )
        raise UsageError(message)
    if name is None and source is None:
        message = "Cannot clean up: name the lake table by --to, or a source by --source, or both."
        raise UsageError(message)
    places = _places(source, cluster, table, pairs("--cluster-host", cluster_host))
    if name is None:
        what = "clean up the source"
        with contextlib.closing(
            open_known_ledger(ledger, what, local_warehouse=warehouse)
        ) as known:
            swept = sweep_sources(known, places, older_than=age, removes=yes)
    else:
        catalog = open_destination(name, warehouse=warehouse, time_outs=time_outs, looks_only=True)
        if isinstance(catalog, OpenedTree):
            catalog = replace(catalog, grace=kept)
        lake, known = open_existing(catalog, name, f"clean up {name}", ledger=ledger)
        with contextlib.closing(known):
            swept = sweep(lake, known, places, older_than=age, removes=yes, dropped=dropped)
    _show(output_for(as_json=as_json), swept.garbage, yes=yes, as_json=as_json)
    swept.check_every_host()
    return 0


def _places(
    source: SourcePlace | None, cluster: str | None, table: str | None, hosts: Mapping[str, str]
) -> tuple[SourcePlace, ...]:
    """Return the hosts to search for staging tables.

    Raises:
        TableFormatError: the options are incomplete, or the cluster or table does not exist.
    """
    if source is None:
        if cluster is not None or table is not None:
            message = (
                f"Cannot look on the hosts of {cluster or table}: no source is named that has it. "
                "Name one by --source."
            )
            raise UsageError(message)
        return ()
    name = None if table is None else TableName.parse(table)
    return hosts_to_look_at(source, cluster=cluster, table=name, cluster_hosts=hosts)


def _show(output: Output, found: tuple[Garbage, ...], *, yes: bool, as_json: bool) -> None:
    gone = [one for one in found if one.may_go]
    action = "removed" if yes else "remove"
    columns = ("action", "kind", "partition_id", "bytes", "location", "why")
    records = [_record(one, action) for one in found]
    if records:
        output.table(columns, records)
    if as_json:
        return
    size = human_bytes(sum(one.bytes for one in gone))
    kept = len(found) - len(gone)
    what = counted(len(gone), "leftover")
    if not gone:
        output.say(f"nothing to remove, {kept} kept")
    elif yes:
        output.say(f"removed {what}, {size}; {kept} kept")
    else:
        output.say(f"{what} ({size}) can be deleted; {kept} kept. Run again with --yes.")


def _record(one: Garbage, action: str) -> dict[str, Any]:
    return {
        "action": action if one.may_go else "keep",
        "kind": one.kind.value,
        "partition_id": one.partition_id,
        "bytes": one.bytes,
        "location": one.location,
        "why": one.why,
    }
