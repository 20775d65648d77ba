"""How exports look to people: the list that fits a terminal, its total, and the page of one export.

The list answers one question of each partition: what of it is in the lake, since when, and if
something is wrong, what. Programs, and `--wide`, get every column instead.

Follows what the ledger says of exports, until nothing runs any more.
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
"""Those of the list."""
WHY: Final = "why"
"""What of a record is shown below its line."""
_MINUTES: Final = len("2026-11-25 10:31")
_UNENDED: Final = (Standing.INTERRUPTED, Standing.FAILED, Standing.KILLED)


def short_record(one: ListedExport, processed: int | None) -> dict[str, Any]:
    """Return what the list says of an export: its columns, and why it is not simply complete.

    Args:
        one: the export.
        processed: how many of its parts are in finished files, None when the lake does not say.
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
    """Return since when it stands so, in milliseconds since 1970."""
    record = one.export.record
    if one.status is Standing.IN_PROGRESS:
        return one.export.begun
    return record.completed if record is not None else one.row.updated


def _why(one: ListedExport, processed: int | None) -> str:
    said = []
    match one.status:
        case Standing.IN_PROGRESS if processed is not None:
            said.append(
                f"{processed} of {counted(len(one.parts), 'source part')} in finished files"
            )
        case Standing.INTERRUPTED:
            said.append("interrupted; run the export again to finish it")
        case Standing.FAILED | Standing.KILLED:
            said.append(one.last_error.partition("\n")[0])
        case Standing.ARCHIVED:
            said.append("archived: the partition has left the source")
        case _:
            pass
    if one.status in (*_UNENDED, Standing.IN_PROGRESS):
        said.append(_of_before(one))
    if one.statement:
        said.append(f"claimed by {one.statement}")
    if one.changed_by:
        said.append(f"changed by {one.changed_by}")
    return "; ".join(text for text in said if text)


def _of_before(one: ListedExport) -> str:
    """Return what main holds of an export before one that did not land, '' for nothing."""
    rows, landed = one.rows_in_main, one.row.settled
    if landed is None or rows == 0:
        return ""
    number = "rows" if rows is None else counted(rows, "row")
    return f"the lake still has {number} of snapshot {landed.snapshot_id}"


def total_line(records: Collection[Mapping[str, Any]], left_out: int = 0) -> str:
    """Return the sum of a list, e.g. `3 exports: 2 COMPLETED, 1 FAILED · 600,000 rows in the lake`.

    Args:
        records: of `short_record`.
        left_out: how many more a limit has left out.
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
    """Yield what there is to say of an export: a name, and a text or the lines of one.

    Args:
        one: the export.
        parts: with their finished files, None when the lake does not say.
    """
    row, of = one.row, one.export
    record, landed = of.record, one.row.settled
    yield "export of", f"partition {row.key.partition_id} of {row.source_table}"
    yield "into", row.destination_table
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
        return "only with --force: its manifest TTL is for ever"
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
"""Records by a name that stays; in the order in which they are shown."""


def follow(
    look: Callable[[], Records],
    *,
    is_running: Callable[[], bool],
    show: Callable[[Records, Records], None],
    pause: Callable[[], None],
) -> None:
    """Show records at first, and whenever one of them has changed; end when nothing runs.

    Args:
        look: returns them as they are now.
        is_running: whether, at the last look, there was something that may still change.
        show: is given all of them, and those that changed since it was called last.
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
