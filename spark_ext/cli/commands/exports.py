"""The commands `mergeberg exports …`, which read the ledger, change a row of it, or rebuild it.

| command | does |
|---|---|
| `exports list`, `exports show` | list the exports in the ledger, or show one |
| `exports forget` | ends the manifest TTL of a completed export |
| `exports log`, `exports events` | show the history and the counters of the ledger |
| `exports watermark` | reports up to which partition everything is in the lake |
| `exports unarchive` | lets exports replace the rows of an archived partition again |
| `exports cancel` | cancels running or interrupted exports |
| `exports rebuild` | creates a new ledger for a table that lost its own |
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from catalog.hive import OpenedTree
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_known_ledger, open_ledger
from catalog.network import TimeOuts
from catalog.sources import SourcePlace, open_source
from spark_ext.actions import exports as listing_exports
from spark_ext.actions.cancel import (
    Cancelled,
    cancel_each,
    forget_exports,
    rows_to_cancel,
    rows_under_way,
    unarchivable,
    unarchive_each,
)
from spark_ext.actions.exports import (
    LOOKING,
    KnownDestinations,
    ListedExport,
    NamedTable,
    existing_table,
    exports_of,
    failed_parts,
    logged_events,
    named_table,
    named_to_list,
    open_existing,
    parts_with_files,
    processed,
)
from spark_ext.cli.destination import (
    destination_name,
    open_destination,
    open_iceberg,
    open_ledger_of,
    parse_destination,
)
from spark_ext.cli.exports_screen import (
    COLUMNS,
    WHY,
    Records,
    follow,
    page,
    short_record,
    total_line,
)
from spark_ext.cli.next_command import exit_code_of
from spark_ext.cli.option_values import is_asked, refuse_unless_confirmed, shown_time
from spark_ext.cli.output import Output, error_printer, output_for
from tableformat.effects import Direct
from tableformat.errors import TableFormatError, UsageError
from tableformat.export.commit import Ports
from tableformat.export.outcome import worst
from tableformat.export.rebuild import rebuild
from tableformat.export.watermark import Watermark, find_watermark
from tableformat.history import MEANINGS, Event
from tableformat.ledger import ExportedPart, Ledger, Row, Standing
from tableformat.ledger_text import manifest
from tableformat.names import LakeName, PartitionId, TableName, written_name
from tableformat.quantities import counted, human_bytes, parse_duration

__all__ = [
    "Cancellations",
    "cancel_export",
    "forget_export",
    "list_exports",
    "rebuild_exports",
    "show_events",
    "show_export",
    "show_log",
    "show_watermark",
    "unarchive_export",
]


def forget_export(
    partition_id: str,
    source_table: str,
    to: str | None,
    warehouse: Path,
    ledger: str | None,
    *,
    as_json: bool,
) -> int:
    """Run `mergeberg exports forget`; return the exit code."""
    destination = destination_name(to) if to is not None else None
    table = TableName.parse(source_table)
    output = output_for(as_json=as_json)
    what = f"forget the export of partition {partition_id} of {source_table}"
    ledger_of = open_ledger_of(destination, ledger, what, warehouse=warehouse)
    with contextlib.closing(ledger_of) as opened:
        into = named_table(destination, _looking(warehouse)) if destination is not None else None
        for _, report in forget_exports(opened, partition_id, table, into):
            output.say(report)
    return 0


_LOG_COLUMNS: Final = (
    "event_time", "event_type", "table", "destination_table", "partition", "part_name", "status",
    "rows", "bytes_read", "bytes_written", "duration_ms", "transaction_id", "error",
)  # fmt: skip
_LINES: Final = 50


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
    """Run `mergeberg exports log`; return the exit code."""
    named = None if source_table is None else written_name(source_table)
    start = milliseconds() - parse_duration("--since", since) if since is not None else None
    what = "show the log of exports"
    with contextlib.closing(open_known_ledger(ledger, what, local_warehouse=warehouse)) as opened:
        wanted = logged_events(opened, named, start, failed=failed)
    shown, output = wanted[:limit] if limit else wanted, output_for(as_json=as_json)
    output.table(_LOG_COLUMNS, [_shown(event, whole=as_json) for event in reversed(shown)])
    if len(wanted) > len(shown):
        left = counted(len(wanted) - len(shown), "earlier line")
        output.note(f"{left} not shown: --limit 0 shows all")
    return 0


def show_events(warehouse: Path, ledger: str | None, *, as_json: bool) -> int:
    """Run `mergeberg exports events`; return the exit code."""
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


def unarchive_export(  # noqa: PLR0913  one parameter per option
    partition_id: str,
    source_table: str,
    to: str,
    warehouse: Path,
    ledger: str | None,
    time_outs: TimeOuts,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run `mergeberg exports unarchive`; return the exit code."""
    output, name = output_for(as_json=as_json), destination_name(to)
    opened = partial(open_destination, warehouse=warehouse, time_outs=time_outs, looks_only=True)
    what = f"unarchive partition {partition_id} of {source_table}"
    with contextlib.closing(open_ledger_of(name, ledger, what, warehouse=warehouse)) as known:
        found = unarchivable(known, partition_id, TableName.parse(source_table), name, opened)
        effect = "; ".join(one.text for one in found)
        if not dry_run and is_asked(yes=yes, as_json=as_json):
            refuse_unless_confirmed(what, effect)
        elif not dry_run and not yes:
            message = (
                f"Cannot {what}: there is no terminal for a confirmation. {effect}. Confirm it "
                "with --yes."
            )
            raise UsageError(message)
        if not dry_run:
            unarchive_each(known, found)
        for one in found:
            if as_json:
                output.record(
                    {
                        "partition_id": partition_id,
                        "status": "archived" if dry_run else "unarchived",
                        "rows": one.rows,
                        "data_files": one.files,
                    }
                )
            else:
                output.say(f"{'would be unarchived' if dry_run else 'unarchived'}: {one.text}")
    return 0


def show_watermark(
    source_table: str, to: str, source: SourcePlace, warehouse: Path,
    ledger: str | None, time_outs: TimeOuts, *, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg exports watermark`; return the exit code."""
    table = TableName.parse(source_table)
    name = parse_destination(to, table, source)
    what = f"read the watermark of {table} in {name}"
    catalog = open_iceberg(name, what, warehouse=warehouse, time_outs=time_outs)
    lake, known = open_existing(catalog, name, what, ledger=ledger)
    with contextlib.closing(known), open_source(source) as opened:
        found = find_watermark(opened.describe(table), opened, lake, known, now=milliseconds())
    output = output_for(as_json=as_json)
    if as_json:
        output.record(_watermark_record(table, name, found))
    else:
        output.say(_sentence(table, name, found))
    return 0


def _watermark_record(table: TableName, to: LakeName, found: Watermark) -> dict[str, object]:
    return {
        "source_table": str(table),
        "destination_table": str(to),
        "watermark": str(found.partition_id) if found.partition_id is not None else None,
        "reached": found.reached,
        "partitions": found.partitions,
        "stopped_by": str(found.stopped_by) if found.stopped_by is not None else None,
        "message": found.why,
    }


def _sentence(table: TableName, to: LakeName, found: Watermark) -> str:
    if found.partition_id is None:
        text = f"{table} has no watermark in {to}"
    else:
        text = (
            f"{table} is in {to} up to partition {found.partition_id} ({found.reached:,} of "
            f"{found.partitions:,})"
        )
    if found.stopped_by is not None:
        return f"{text}; partition {found.stopped_by} stops it: {found.why}"
    return text


T = TypeVar("T")

_COLUMNS: Final = (
    "source_table", "destination_table", "partition_id", "status", "rows", "data_files", "bytes",
    "snapshot_id", "parts_total", "parts_processed", "parts_failed", "create_time", "update_time",
    "last_error", "changed_by", "statement", "rows_in_main", "expired",
)  # fmt: skip
_SHOWN: Final = 100


def list_exports(  # noqa: PLR0913  one parameter per option
    status: str | None, source_table: str | None, to: str | None, limit: int | None,
    watch: float | None, warehouse: Path, ledger: str | None, *, wide: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg exports list`; return the exit code."""
    output = output_for(as_json=as_json)
    name = destination_name(to) if to is not None else None
    opened = open_known_ledger(ledger, "list exports", local_warehouse=warehouse)
    with contextlib.closing(opened):
        most = None if as_json else _SHOWN
        shown = _Shown(_destinations(warehouse), output.note, most)
        of = None if source_table is None else written_name(source_table)
        into = named_to_list(name, _looking(warehouse), output.note) if name is not None else None
        wanted = _Wanted(status, of, into)
        listed = _Listed(opened, wanted, shown, is_full=wide or as_json)
        if watch is None:
            _show_list(output, [*listed.look().values()], limit, listed)
        else:
            _watch(output, listed, watch, as_json=as_json)
    return 0


def _watch(output: Output, listed: _Listed, seconds: float, *, as_json: bool) -> None:
    """Show the running exports until none is running, then the results of all shown exports."""
    seen: set[str] = set()

    def show(now: Records, changed: Records) -> None:
        seen.update(key for key, one in now.items() if one["status"] == Standing.IN_PROGRESS)
        output.redraw()
        shown = changed if as_json else _running_first(now, seen, listed)
        _show_list(output, [*shown.values()], None, listed)

    # Ctrl-C is the regular way to stop watching.
    with output.screen() as is_apart, contextlib.suppress(KeyboardInterrupt):
        follow(
            listed.look,
            is_running=lambda: listed.is_running,
            show=show,
            pause=partial(time.sleep, seconds),
        )
    if is_apart:
        found = _running_first(listed.look(), seen, listed)
        _show_list(output, [*found.values()], None, listed)


def _running_first(now: Records, seen: Collection[str], listed: _Listed) -> Records:
    """Return running exports, then those that were shown and have ended; all if none was shown."""
    if not seen or listed.wanted.status is not None:
        return now
    found = {key: one for key, one in now.items() if key in seen}
    running = {k: one for k, one in found.items() if one["status"] == Standing.IN_PROGRESS}
    return {**running, **found}


def _show_list(
    output: Output, records: Sequence[Mapping[str, Any]], limit: int | None, listed: _Listed
) -> None:
    """Print a list of exports, and in text output its total."""
    left_out = max(len(records) - limit, 0) if limit is not None else 0
    kept = records[:limit]
    if listed.is_full:
        output.table(_COLUMNS, kept)
    elif kept:
        output.table(COLUMNS, kept, below=WHY)
        output.say(total_line(kept, left_out))
    else:
        output.say(f"No exports{listed.wanted} in the ledger {listed.ledger.uri}.")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A filter of exports by status, source table and lake table; None for all."""

    status: str | None
    source_table: str | None
    to: NamedTable | None

    def has(self, one: ListedExport) -> bool:
        """Whether the filter selects an export."""
        return (
            self.status in (None, one.status.value)
            and self.source_table in (None, one.row.source_table)
            and (self.to is None or self.to.has(one.row))
        )

    def named(self, one: ListedExport) -> ListedExport:
        """Return a selected export with the present name of its lake table."""
        return one if self.to is None else replace(one, row=self.to.named(one.row))

    def __str__(self) -> str:
        """Return the filter as text after the word "exports"."""
        into = self.to.name if self.to is not None else None
        named = (("of", self.source_table), ("into", into), ("with the status", self.status))
        return "".join(f" {word} {what}" for word, what in named if what is not None)


@dataclass(slots=True)
class _Listed:
    """The selected exports of a ledger.

    With `is_full`, records have all columns. `is_running` is whether any export of the ledger was
    running at the last look.
    """

    ledger: Ledger
    wanted: _Wanted
    shown: _Shown
    is_full: bool
    is_running: bool = False

    def look(self) -> dict[str, dict[str, Any]]:
        """Return the current records of the selected exports by key."""
        self.shown.lake.look_again()
        every = tuple(listing_exports.list_exports(self.ledger))
        self.is_running = any(one.status is Standing.IN_PROGRESS for one in every)
        make = self.shown.record if self.is_full else self.shown.short_record
        wanted = (self.wanted.named(one) for one in every if self.wanted.has(one))
        return {one.row.key.hash: make(one) for one in wanted}


def show_export(
    partition_id: str, source_table: str | None, warehouse: Path, ledger: str | None, *,
    as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg exports show`; return the exit code."""
    named = None if source_table is None else written_name(source_table)
    what = f"show the export of partition {partition_id}"
    opened = open_known_ledger(ledger, what, local_warehouse=warehouse)
    with contextlib.closing(opened):
        found = exports_of(opened, partition_id, named, None, what)
    output = output_for(as_json=as_json)
    shown = _Shown(_destinations(warehouse), output.note)
    for one in found:
        parts = shown.parts(one)
        if as_json:
            output.document(manifest(one.row, parts))
            continue
        if one is not found[0]:
            output.say("")
        output.page(page(one, parts))
    return 0


def _destinations(warehouse: Path) -> KnownDestinations:
    return KnownDestinations(_looking(warehouse))


def _looking(warehouse: Path) -> Callable[[LakeName], OpenedCatalog | OpenedTree]:
    """Return what opens a destination to look at it."""
    return partial(open_destination, warehouse=warehouse, time_outs=LOOKING, looks_only=True)


@dataclass(frozen=True, slots=True)
class _Shown:
    """Makes records of exports; if the lake cannot be read, fields stay empty and a note says why.

    `most` is the maximum length of an error; None for no limit.
    """

    lake: KnownDestinations
    note: Callable[[str], None]
    most: int | None = _SHOWN
    noted: set[str] = field(default_factory=set)

    def record(self, one: ListedExport) -> dict[str, Any]:
        """Return the record of an export with all columns."""
        record = _record(one, self.processed(one))
        return {**record, "last_error": self._shown_error(one)}

    def short_record(self, one: ListedExport) -> dict[str, Any]:
        """Return the short record of an export; it reads the lake only for a running one."""
        names = self.processed(one) if one.status is Standing.IN_PROGRESS else None
        return short_record(one, None if names is None else len(names))

    def _shown_error(self, one: ListedExport) -> str:
        """Return the last error; with a limit, the beginning of its first line."""
        if self.most is None:
            return one.last_error
        return one.last_error.partition("\n")[0][: self.most]

    def processed(self, one: ListedExport) -> frozenset[str] | None:
        """Return the parts in finished files; None if the lake cannot be read."""
        return self._read(one, processed)

    def parts(self, one: ListedExport) -> tuple[ExportedPart, ...] | None:
        """Return the parts with their finished files; None if the lake cannot be read."""
        return self._read(one, parts_with_files)

    def _read(
        self, one: ListedExport, read: Callable[[ListedExport, KnownDestinations], T]
    ) -> T | None:
        try:
            return read(one, self.lake)
        except TableFormatError as error:
            to = one.row.destination_table
            self._note_once(f"the progress of exports to {to} is unknown: {error}")
            return None

    def _note_once(self, text: str) -> None:
        """Print a note once, although it applies to many exports and at every look."""
        if text not in self.noted:
            self.noted.add(text)
            self.note(text)


def _record(one: ListedExport, names: frozenset[str] | None) -> dict[str, Any]:
    row, of = one.row, one.export
    return {
        "source_table": row.source_table,
        "destination_table": row.destination_table,
        "partition_id": row.key.partition_id,
        "increment": row.key.increment,
        "status": one.status.value,
        "rows": of.rows,
        "data_files": of.data_files,
        "bytes": of.bytes,
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


_CODES: Final = {"committed": 3, "unknown": 5, "in_progress": 6}
"""The exit code by status; any other is 0."""


def cancel_export(  # noqa: PLR0913  one parameter per option
    partition_ids: tuple[str, ...], source_table: str | None, to: str | None, wait: float,
    warehouse: Path, ledger: str | None, time_outs: TimeOuts, *, everything: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg exports cancel`; return the exit code."""
    output = output_for(as_json=as_json)
    table = TableName.parse(source_table) if source_table is not None else None
    name = destination_name(to) if to is not None else None
    if everything == bool(partition_ids) or (partition_ids and table is None):
        message = "Cannot cancel exports: give partition ids and --table, or --all."
        raise UsageError(message)
    ids = tuple(PartitionId(one) for one in partition_ids)
    with contextlib.closing(
        open_ledger_of(name, ledger, "cancel exports", warehouse=warehouse)
    ) as known:
        found = Cancellations()
        opened = partial(open_destination, warehouse=warehouse, time_outs=time_outs)
        into = named_table(name, opened) if name is not None else None
        if table is not None and ids:
            for one in ids:
                with found.failing():
                    found.rows.extend(rows_to_cancel(known, one, table, into))
        else:
            found.rows.extend(rows_under_way(known, table, into))
        if not found.rows and not found.errors:
            output.say("nothing to cancel: no export is under way")
        for row, result in cancel_each(found.rows, opened, known, wait=wait, note=output.note):
            found.report(output, row, result, as_json=as_json)
    return found.ended(output)


@dataclass(slots=True)
class Cancellations:
    """The exports to cancel, with their exit codes and errors."""

    rows: list[Row] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    errors: list[TableFormatError] = field(default_factory=list)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Keep an error, so that it does not stop the other cancellations."""
        try:
            yield
        except TableFormatError as error:
            self.errors.append(error)

    def report(
        self, output: Output, row: Row, result: Cancelled | TableFormatError, *, as_json: bool
    ) -> None:
        """Print the result of a cancellation, or keep its error."""
        if isinstance(result, TableFormatError):
            self.errors.append(result)
            return
        _print(output, row, result, as_json=as_json)
        self.codes.append(_CODES.get(result.status, 0))

    def ended(self, output: Output) -> int:
        """Return the exit code of all, that of the worst; print the errors that do not end it.

        Raises:
            TableFormatError: the worst error, if no other result is worse.
        """
        if not self.errors:
            return worst(self.codes)
        last = max(self.errors, key=exit_code_of)
        code = worst((*self.codes, exit_code_of(last)))
        # A usage error has no rank among the results.
        is_raised = code in (0, exit_code_of(last))
        for one in self.errors:
            if not (is_raised and one is last):
                error_printer(output)(one)
        if is_raised:
            raise last
        return code


def _print(output: Output, row: Row, cancelled: Cancelled, *, as_json: bool) -> None:
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


def rebuild_exports(
    to: str,
    warehouse: Path,
    ledger: str | None,
    time_outs: TimeOuts,
    *,
    as_json: bool,
) -> int:
    """Run `mergeberg exports rebuild`; return the exit code."""
    name = destination_name(to)
    what = f"rebuild the ledger of {name}"
    catalog = open_destination(name, warehouse=warehouse, time_outs=time_outs, looks_only=False)
    table = existing_table(catalog, name, what)
    known = open_ledger(ledger, local_warehouse=catalog.ledger_directory)
    output = output_for(as_json=as_json)
    with contextlib.closing(known):
        ports = Ports(Direct(), table, known, milliseconds, lambda n: time.sleep(0.1 * n))
        found = rebuild(ports, table.storages, str(name))
    columns = ("source_table", "partition_id", "status", "rows", "data_files", "last_error")
    records = [
        {
            "source_table": one.row.source_table,
            "partition_id": one.row.key.partition_id,
            "status": _rebuilt_status(one.row.done is not None, proved=one.proved),
            "rows": one.row.last.rows,
            "data_files": one.row.last.data_files,
            "last_error": one.row.last_error,
        }
        for one in found
    ]
    output.table(columns, records)
    return 0 if all(one.proved for one in found) else 3


def _rebuilt_status(exported: bool, *, proved: bool) -> str:  # noqa: FBT001  two facts, one word
    if not proved:
        return "NOT PROVED"
    return "COMPLETED" if exported else "NOT EXPORTED"
