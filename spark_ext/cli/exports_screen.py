"""Formats exports for a terminal: the list, its total, and the page of one export.

The list shows for each partition the rows in the lake, since when, and the reason if something is
wrong. JSON output and `--wide` have all columns instead.

`follow` refreshes the list until no export is running.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from spark_ext.actions.exports import ListedExport
from spark_ext.cli.option_values import shown_time
from tableformat.ledger import ExportedPart, Standing
from tableformat.quantities import counted, duration_text, human_bytes

__all__ = ["COLUMNS", "WHY", "Records", "follow", "page", "short_record", "total_line"]

COLUMNS: Final = ("table", "partition", "status", "rows in the lake", "since (UTC)")
"""The columns of the list."""
WHY: Final = "why"
"""The field of a record that is shown below its line."""
_MINUTES: Final = len("2026-11-25 10:31")
_UNENDED: Final = (Standing.INTERRUPTED, Standing.FAILED, Standing.KILLED)


def short_record(one: ListedExport, processed: int | None) -> dict[str, Any]:
    """Return the columns of the list for an export, and the reason if it is not simply complete.

    Args:
        one: the export.
        processed: the number of its parts in finished files; None if it is unknown.
    """
    rows = one.rows_in_main
    return {
        "table": one.row.destination_table,
        "partition": one.row.key.partition_id,
        "status": one.status.value,
        "rows in the lake": "unknown" if rows is None else rows,
        "since (UTC)": shown_time(_since(one))[:_MINUTES],
        WHY: _why(one, processed),
    }


def _since(one: ListedExport) -> int:
    """Return when the export got its status, in milliseconds since 1970."""
    record = one.export.record
    if one.status is Standing.IN_PROGRESS:
        return one.export.begun
    return record.completed if record is not None else one.row.updated


def _why(one: ListedExport, processed: int | None) -> str:
    reasons = []
    if number := one.row.key.increment:
        reasons.append(f"late rows {number}: they arrived after the partition was archived")
    match one.status:
        case Standing.IN_PROGRESS if processed is not None:
            reasons.append(
                f"{processed} of {counted(len(one.parts), 'source part')} in finished files"
            )
        case Standing.INTERRUPTED:
            reasons.append("interrupted; run the export again to finish it")
        case Standing.FAILED | Standing.KILLED:
            reasons.append(one.last_error.partition("\n")[0])
        case Standing.ARCHIVED:
            reasons.append("archived: the partition has left the source")
        case _:
            pass
    if one.status in (*_UNENDED, Standing.IN_PROGRESS):
        reasons.append(_of_before(one))
    if one.statement:
        reasons.append(f"claimed by {one.statement}")
    if one.changed_by:
        reasons.append(f"changed by {one.changed_by}")
    return "; ".join(text for text in reasons if text)


def _of_before(one: ListedExport) -> str:
    """Return a phrase on the rows in main of an earlier export; '' if there are none."""
    rows, landed = one.rows_in_main, one.row.settled
    if landed is None or rows == 0:
        return ""
    number = "rows" if rows is None else counted(rows, "row")
    return f"the lake still has {number} of snapshot {landed.snapshot_id}"


def total_line(records: Collection[Mapping[str, Any]], left_out: int = 0) -> str:
    """Return the sum of a list, e.g. `3 exports: 2 COMPLETED, 1 FAILED · 600,000 rows in the lake`.

    Args:
        records: the results of `short_record`.
        left_out: the number of exports that the limit leaves out.
    """
    statuses = [str(one["status"]) for one in records]
    numbers = ", ".join(f"{statuses.count(s):,} {s}" for s in sorted(set(statuses)))
    rows = [one["rows in the lake"] for one in records]
    known = sum(number for number in rows if isinstance(number, int))
    unknown = len([number for number in rows if not isinstance(number, int)])
    text = f"{counted(len(records), 'export')}: {numbers} · {counted(known, 'row')} in the lake"
    if unknown:
        text += f" (of {unknown:,} unknown)"
    return f"{text} · {left_out:,} more not shown" if left_out else text


def page(
    one: ListedExport, parts: Collection[ExportedPart] | None
) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    """Yield the fields of the page of an export: a name, and a text or several lines.

    Args:
        one: the export.
        parts: the source parts with their finished files; None if these are unknown.
    """
    row, of = one.row, one.export
    record, landed = of.record, one.row.settled
    yield "export of", f"partition {row.key.partition_id} of {row.source_table}"
    yield "into", row.destination_table
    if row.key.increment:
        yield "late rows", f"{row.key.increment}, arrived after the partition was archived"
    yield "status", one.status.value
    if one.last_error:
        yield "why", row.last_error
    yield "in the lake", _in_lake(one)
    if landed is not None:
        yield "snapshot", str(landed.snapshot_id)
    if one.changed_by:
        yield "changed by", one.changed_by
    if one.statement:
        yield "claimed by", one.statement
    size = f", {human_bytes(of.bytes)}" if of.bytes else ""
    yield "exported", f"{counted(of.rows, 'row')}, {counted(of.data_files, 'file')}{size}"
    yield "began", f"{shown_time(of.begun)} UTC"
    if record is not None:
        seconds = max(record.completed - of.begun, 0) / 1000
        yield "completed", f"{shown_time(record.completed)} UTC, after {duration_text(seconds)}"
    yield "last change", f"{shown_time(row.updated)} UTC"
    yield "resumable", "yes" if one.resumable else "no"
    if record is not None:
        yield "exported again", _again(one)
    yield "transaction", of.transaction_id
    if of.query_id:
        yield "query id", of.query_id
    yield "source parts", tuple(_part_lines(one, parts))


def _in_lake(one: ListedExport) -> str:
    rows = one.rows_in_main
    return "unknown to the ledger" if rows is None else counted(rows, "row")


def _again(one: ListedExport) -> str:
    record = one.export.record
    if one.status is Standing.ARCHIVED:
        return "no: it is archived"
    if record is None or one.expired:
        return "yes, when the source has changed"
    if record.ttl == 0:
        return "only with --force: it was exported with --manifest-ttl 0"
    until = shown_time(record.completed + record.ttl * 1000)
    return f"only with --force, until {until} UTC"


def _part_lines(one: ListedExport, parts: Collection[ExportedPart] | None) -> Iterator[str]:
    for part in parts or one.parts:
        text = f"{part.name}  {counted(part.rows, 'row')}, {human_bytes(part.bytes_on_disk)}"
        if parts is None:
            yield text
        elif not part.remote_paths:
            yield f"{text}, not in a finished file"
        else:
            yield f"{text}, in {counted(len(part.remote_paths), 'file')}:"
            for path in part.remote_paths:
                yield f"  {path}"


Records = Mapping[str, Mapping[str, Any]]
"""Records by a stable key, in the order of the output."""


def follow(
    look: Callable[[], Records],
    *,
    is_running: Callable[[], bool],
    show: Callable[[Records, Records], None],
    pause: Callable[[], None],
) -> None:
    """Show records now and after each change, until none is running.

    Args:
        look: returns the current records.
        is_running: whether the last records include one that may still change.
        show: receives all records, and those that changed since its last call.
        pause: waits until the next look.
    """
    shown: Records | None = None
    while True:
        now = look()
        if shown is None or now != shown:
            before = shown or {}
            show(now, {name: one for name, one in now.items() if before.get(name) != one})
            shown = now
        if not is_running():
            return
        pause()
