"""`mergeberg exports log` and `exports events`: what the ledger keeps of the past, and counts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import click

from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_known_ledger
from spark_ext.cli.options import ledger_options, output_for, output_options
from spark_ext.cli.times import parse_duration, shown_time
from tableformat.export.outcome import Status
from tableformat.history import MEANINGS, MOST_EVENTS, Event
from tableformat.names import written_name
from tableformat.quantities import counted

__all__ = ["show_events", "show_log"]

_COLUMNS: Final = (
    "event_time", "event_type", "table", "destination_table", "partition", "part_name", "status",
    "rows", "bytes_read", "bytes_written", "duration_ms", "transaction_id", "error",
)  # fmt: skip
_LINES: Final = 50
_FAILED: Final = frozenset(
    one.value for one in Status if one.exit_code and one is not Status.IN_PROGRESS
)


@click.command("log")
@click.option("--table", "source_table", help="Only this source table (database.table).")
@click.option("--since", help="Only what is not older than this, for example 30s, 15m, 1h or 7d.")
@click.option(
    "--failed",
    is_flag=True,
    help="Only what did not end well: failed, stopped, killed, refused, unknown, differs or "
    "unverified.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=_LINES,
    show_default=True,
    help="Show at most so many, the latest; 0 shows all.",
)
@ledger_options
@output_options
def show_log(
    source_table: str | None,
    since: str | None,
    limit: int,
    warehouse: Path,
    ledger: str | None,
    *,
    failed: bool,
    as_json: bool,
) -> int:
    """Show the latest outcomes of exports, oldest first.

    One line for each partition; one for each source part of what was exported or failed.
    The ledger keeps the latest 10,000.

    \b
    Examples:
      mergeberg exports log --failed --since 1d
      mergeberg exports log --table db.events --since 1h
      mergeberg exports log --json
    """  # noqa: D301  \b is Click's mark for lines to keep
    named = None if source_table is None else written_name(source_table)
    start = milliseconds() - parse_duration("--since", since) if since is not None else None
    what = "show the log of exports"
    with contextlib.closing(open_known_ledger(ledger, what, local_warehouse=warehouse)) as opened:
        events = opened.events(start, MOST_EVENTS)
    wanted = [
        event
        for event in events
        if named in (None, event.table) and (not failed or event.status in _FAILED)
    ]
    shown, output = wanted[:limit] if limit else wanted, output_for(as_json=as_json)
    output.table(_COLUMNS, [_shown(event, whole=as_json) for event in reversed(shown)])
    if len(wanted) > len(shown):
        left = counted(len(wanted) - len(shown), "earlier line")
        output.note(f"{left} not shown: --limit 0 shows all")
    return 0


@click.command("events")
@ledger_options
@output_options
def show_events(warehouse: Path, ledger: str | None, *, as_json: bool) -> int:
    """Show what was counted since the ledger was made, in source parts, and what runs now.

    \b
    Example:
      mergeberg exports events --json
    """  # noqa: D301  \b is Click's mark for lines to keep
    what = "show what was counted"
    with contextlib.closing(open_known_ledger(ledger, what, local_warehouse=warehouse)) as opened:
        counters = opened.counters()
    records = [
        {"event": name, "value": value, "description": MEANINGS[name]}
        for name, value in counters.items()
    ]
    output_for(as_json=as_json).table(("event", "value", "description"), records)
    return 0


def _shown(event: Event, *, whole: bool) -> dict[str, Any]:
    first = event.error.splitlines()[0][:100] if event.error else ""
    return {
        "event_time": shown_time(event.time),
        "event_type": event.kind.value,
        "table": event.table,
        "destination_table": event.destination,
        "partition": event.partition_id,
        "part_name": event.part_name,
        "status": event.status,
        "rows": event.rows,
        "bytes_read": event.bytes_read,
        "bytes_written": event.bytes_written,
        "duration_ms": event.duration,
        "transaction_id": event.transaction_id,
        "error": event.error if whole else first,
    }
