"""`mergeberg gc`: what dead exports left behind, told with the proof of each, and removed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from catalog.bounded_rest import TimeOuts
from catalog.ledgers.memory import milliseconds
from catalog.processes import may_be_alive, this_process
from catalog.sources import SourcePlace
from catalog.storage import open_storage
from spark_ext.cli.lake import open_existing
from spark_ext.cli.options import (
    catalog_options,
    ledger_options,
    output_for,
    output_options,
    source_options,
)
from spark_ext.cli.output import Output, counted, human_bytes
from spark_ext.cli.times import parse_duration
from spark_ext.staging import StagingSweep
from spark_ext.wiring import commit_ports
from tableformat.errors import SourceError
from tableformat.export.cleaning import Cleaning
from tableformat.export.leases import Leases
from tableformat.export.sweeping import Sweeping, Thing
from tableformat.ledger import LeaseHeld, Ledger
from tableformat.names import LakeName

__all__ = ["gc"]


@click.command()
@click.option("--to", required=True, help="The lake table: catalog.namespace.table.")
@source_options(default=None, says="Also look for staging tables there, on every host:")
@click.option(
    "--older-than",
    default="0s",
    show_default=True,
    metavar="AGE",
    help="Only what was begun so long ago, e.g. 12h or 1d. It filters and proves nothing, but for "
    "staging tables of runs on other hosts, of which nobody here can see whether they are at work.",
)
@click.option("--yes", is_flag=True, help="Remove it; without this it is only told.")
@ledger_options
@catalog_options
@output_options
def gc(  # noqa: PLR0913  one parameter per option
    to: str, source: SourcePlace | None, older_than: str, warehouse: Path,
    ledger: str | None, connect_timeout: float, read_timeout: float,
    *, yes: bool, as_json: bool
) -> int:  # fmt: skip
    """Tell what dead exports left behind in a lake table, and with --yes remove it.

    Only what is proved to be of no use goes: no request for it can be applied any more, and no
    snapshot refers to it. Whatever else is found is kept, with the reason.

    \b
    Examples:
      mergeberg gc --to lake.analytics.events
      mergeberg gc --to lake.analytics.events --older-than 1d --yes
      mergeberg gc --to lake.analytics.events --source https://ch1.example,ch2.example --yes
    """  # noqa: D301  \b is Click's mark for lines to keep
    age = parse_duration("--older-than", older_than)
    name = LakeName.parse(to)
    time_outs = TimeOuts(connect_timeout, read_timeout)
    table, known = open_existing(
        name, f"clean up {name}", warehouse=warehouse, ledger=ledger, time_outs=time_outs
    )
    output = output_for(as_json=as_json)
    ports = commit_ports(table, known)
    location = table.load().location
    leases = Leases(known, this_process(), effects=ports.effects, is_alive=may_be_alive)
    cleaning = Cleaning(ports, open_storage(location), location)
    with contextlib.closing(known), leases:
        sweeping = Sweeping(cleaning, leases, _holder(known), age, milliseconds())
        found = sweeping.sweep() if yes else sweeping.find()
        staging = StagingSweep(ports, age, sweeping.now, drops=yes)
        staged = staging.everywhere(source) if source is not None else ()
    _show(output, (*found, *(t for host in staged for t in host.things)), yes=yes, as_json=as_json)
    failed = [host.failure for host in staged if host.failure]
    if failed:
        message = (
            f"Cannot clean up staging tables at {len(failed)} of {counted(len(staged), 'host')}: "
            f"{' '.join(failed)}"
        )
        raise SourceError(message)
    return 0


def _holder(ledger: Ledger) -> Callable[[str], LeaseHeld | None]:
    def living(key: str) -> LeaseHeld | None:
        held = ledger.holder(key)
        return held if held is not None and may_be_alive(held.owner) else None

    return living


def _show(output: Output, found: tuple[Thing, ...], *, yes: bool, as_json: bool) -> None:
    gone = [one for one in found if one.may_go]
    action = "removed" if yes else "remove"
    columns = ("action", "kind", "partition_id", "bytes", "location", "why")
    records = [_record(one, action) for one in (*gone, *(o for o in found if not o.may_go))]
    if records:
        output.table(columns, records)
    if as_json:
        return
    size = human_bytes(sum(one.bytes for one in gone))
    kept = len(found) - len(gone)
    what = counted(len(gone), "thing")
    if not gone:
        output.say(f"nothing to remove, {kept} kept")
    elif yes:
        output.say(f"removed {what}, {size}; {kept} kept")
    else:
        output.say(f"would remove {what}, {size}; {kept} kept. Remove them with --yes")


def _record(one: Thing, action: str) -> dict[str, Any]:
    return {
        "action": action if one.may_go else "keep",
        "kind": one.kind.value,
        "partition_id": one.partition_id,
        "bytes": one.bytes,
        "location": one.location,
        "why": one.why,
    }
