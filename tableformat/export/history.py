"""Notes every outcome of an export job in the ledger's history (RQ…Logging, RQ…Metrics).

An outcome that exported rows, or failed, gets one event for each source part and one for the
partition. Every other outcome gets one event for the partition only: the history is bounded, and a
schedule that runs every hour must not displace the events of exports.

The parts and their files come from the ledger row of the key. The history decides nothing: if the
ledger cannot store an event, the outcome of the export stays the same (tableformat/history.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tableformat.effects import Step
from tableformat.errors import LedgerError
from tableformat.export.archived import exports_of_partition
from tableformat.export.destination import Destination
from tableformat.export.outcome import Cause, Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.file_names import is_of_transaction
from tableformat.history import Counter, Event, EventKind
from tableformat.ledger import ExportedPart, Record, Row
from tableformat.messages import plain
from tableformat.names import PartitionId

__all__ = ["events_of", "note_outcomes"]

_COUNTED: Final = {
    Status.COMMITTED: Counter.EXPORTS,
    Status.REPLACED: Counter.EXPORTS,
    Status.DIFFERS: Counter.EXPORTS,
    Status.UNVERIFIED: Counter.EXPORTS,
    Status.ALREADY_EXPORTED: Counter.DUPLICATED,
    Status.UNCHANGED: Counter.DUPLICATED,
    Status.IN_PROGRESS: Counter.DUPLICATED,
    Status.REFUSED: Counter.DUPLICATED,
    Status.FAILED: Counter.FAILURES,
    Status.KILLED: Counter.FAILURES,
    Status.UNKNOWN: Counter.FAILURES,
}
"""The counter that an outcome increases; other outcomes are noted and increase none."""
_NO_ERRORS: Final = (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED, Status.EMPTY)
"""Outcomes whose message is not an error."""


def note_outcomes(ports: JobPorts, to: Destination, outcomes: Sequence[Outcome]) -> None:
    """Note outcomes of a job that are known together; if this fails, it is only reported."""
    keys = tuple(to.key(PartitionId(one.partition_id)) for one in outcomes)
    hashes = tuple(key.hash for key in keys)
    name, now = str(to.table.name), ports.clock()
    try:
        rows = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read_all, hashes))
        events: list[Event] = []
        for outcome, key, row in zip(outcomes, keys, rows, strict=True):
            exports = exports_of_partition(ports.ledger.read, key, row)
            of_outcome = exports.row_of(outcome.transaction_id)
            events += events_of(outcome, of_outcome, name, now, query_id=ports.query_id)
        ports.effects(Step.NOTE_HISTORY, partial(ports.ledger.note, tuple(events)))
    except LedgerError as error:
        for one in outcomes:
            ports.observer.note(f"partition {one.partition_id}: it is not in the log: {error}")


def events_of(
    outcome: Outcome, row: Row | None, table: str, now: int, *, query_id: str = ""
) -> tuple[Event, ...]:
    """Return the events of an outcome: one for each part if it exported or failed, then one more.

    Args:
        outcome: the outcome of the partition.
        row: its ledger row afterwards, None if it has none.
        table: the source table's name.
        now: milliseconds since 1970.
        query_id: the name of the statement.
    """
    counter = _counter(outcome)
    parts, written = _exported(outcome, row)
    whole = Event(
        time=now,
        kind=EventKind.EXPORT_PARTITION,
        table=table,
        destination=outcome.table,
        partition_id=outcome.partition_id,
        part_name="",
        status=outcome.status.value,
        transaction_id=outcome.transaction_id or "",
        rows=sum(p.rows for p in parts),
        duration=round(outcome.seconds * 1000),
        error="" if outcome.status in _NO_ERRORS else plain(outcome.message),
        counter=counter,
        # An export that failed before its parts were known counts as one part.
        parts=0 if counter is None else len(parts) or outcome.parts or 1,
        query_id=query_id,
    )
    if counter not in (Counter.EXPORTS, Counter.FAILURES):
        return (whole,)
    read = sum(p.bytes_on_disk for p in parts) if counter is Counter.EXPORTS else 0
    whole = replace(whole, bytes_read=read, bytes_written=written)
    shares = _shares(written, tuple(p.rows for p in parts))
    of_parts = tuple(
        replace(
            whole,
            part_name=part.name,
            rows=part.rows,
            bytes_read=part.bytes_on_disk if read else 0,
            bytes_written=share,
            counter=None,
            parts=0,
        )
        for part, share in zip(parts, shares, strict=True)
    )
    return (*of_parts, whole)


def _counter(outcome: Outcome) -> Counter | None:
    # A refusal with an error is a failure, except for rows of other writers: a duplicate.
    if outcome.status is Status.REFUSED and outcome.cause is Cause.ERROR:
        return Counter.FAILURES
    return _COUNTED.get(outcome.status)


def _exported(outcome: Outcome, row: Row | None) -> tuple[tuple[ExportedPart, ...], int]:
    """Return the parts that the outcome's transaction wrote, and the bytes of its files in main."""
    if row is None:
        return (), 0
    if outcome.status is Status.IN_PROGRESS:
        return row.claim.parts, 0
    if outcome.transaction_id is None:
        return (), 0
    if row.done is not None and row.done.landed.transaction_id == outcome.transaction_id:
        return _written(row, row.done)
    claim = row.claim_of(outcome.transaction_id)
    return (claim.parts, 0) if claim is not None else ((), 0)


def _written(row: Row, done: Record) -> tuple[tuple[ExportedPart, ...], int]:
    """Return the parts that the last export wrote, and the bytes of its own files."""
    landed = done.landed
    if not landed.stays:
        return done.parts, done.bytes
    # OPTIMIZE left the older parts without paths: a part without one of this export is not new.
    of_export = partial(is_of_transaction, key=row.key.hash, transaction_id=landed.transaction_id)
    own = tuple(part for part in done.parts if any(map(of_export, part.remote_paths)))
    is_known = row.claim.transaction_id == landed.transaction_id
    return own, row.claim.bytes if is_known else 0


def _shares(total: int, rows: tuple[int, ...]) -> Iterator[int]:
    """Divide the bytes of files among parts by their rows; the shares add up to the total."""
    before, counted, of_all = 0, 0, sum(rows)
    for own in rows:
        counted += own
        until = total * counted // of_all if of_all else 0
        yield until - before
        before = until
