"""A slice whose failure may pass is written again, so many times each, with growing pauses.

A writer around any other. What may pass is what the outside did: a source, a disk or a store that
could not be used, a worker that was lost. A value that has no place in the lake table, or a bug,
stays what it is, and so does what a store refuses for good, and an outage that was waited for.
Spark's own retries do not help: a task answers with its failure, and a local Spark gives up with
the first worker that dies (RQ…RetryMechanism, RQ…Settings.MaxRetries; ClickHouse's
`export_merge_tree_partition_max_retries`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tableformat.effects import Step
from tableformat.errors import (
    DestinationError,
    EndedCredentialsError,
    LastingError,
    SourceError,
    TableFormatError,
    reason_of,
)
from tableformat.export.ports import JobPorts, SliceFailure, WriterAround, Writing, Written
from tableformat.export.resuming import just_written, stored_receipts
from tableformat.export.slices import Slice, SliceTask, WritePlan
from tableformat.export.slicing import tasks as dealt
from tableformat.names import LakeName
from tableformat.receipt import Receipt

__all__ = ["MAX_RETRIES", "Retrying", "with_retries"]

MAX_RETRIES: Final = 3
"""ClickHouse's default."""


def with_retries(ports: JobPorts, to: LakeName, most: int) -> JobPorts:
    """Return ports whose writer, for one destination, writes a slice again up to `most` times."""
    return replace(ports, writer=lambda: Retrying(ports.writer(), ports, to, most))


@dataclass(frozen=True, slots=True)
class Retrying(WriterAround):
    """A `SliceWriter` that lets another one write, and write again."""

    ports: JobPorts
    to: LakeName
    most: int

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every slice; the failure of one is that of its last try.

        Raises:
            SourceError: the tasks could not be run at all, in as many tries.
        """
        left = {s.number: s for task in tasks for s in task.slices}
        done: dict[int, Receipt] = {}
        failed: list[SliceFailure] = []
        tries: Counter[int] = Counter()
        while True:
            so_far = sum(r.rows for r in done.values())
            told = partial(_told, on_rows, so_far)
            try:
                written = yield from self.writer.write(
                    plan, tasks, on_rows=told, should_stop=should_stop
                )
            except SourceError as error:
                tries.update(left.keys())
                if max(tries[n] for n in left) > self.most or should_stop():
                    raise
                why: TableFormatError = error
            else:
                done |= {r.slice_number: r for r in written.receipts}
                tries.update(_counted(written))
                again = () if should_stop() else self._again(written, tries)
                failed += (f for f in written.failures if f not in again)
                if not again:
                    break
                left = {f.slice_number: left[f.slice_number] for f in again}
                why = again[0].error
            self._pause(max(tries[n] for n in left), len(left), why)
            self._load_again()
            done |= {r.slice_number: r for r in self._finished(plan, left.values())}
            left = {n: s for n, s in left.items() if n not in done}
            tasks = dealt(left.values(), self.slots)
        return Written(tuple(done.values()), tuple(failed))

    def _again(self, written: Written, tries: Mapping[int, int]) -> tuple[SliceFailure, ...]:
        """Return the failures of slices that are to be written again."""
        return tuple(
            f
            for f in written.failures
            if isinstance(f.error, (SourceError, DestinationError))
            and not isinstance(f.error, LastingError)
            and tries[f.slice_number] <= self.most
        )

    def _pause(self, tries: int, files: int, why: TableFormatError) -> None:
        """Say what comes, and wait for what may pass; for new credentials nobody has to wait."""
        what, reason = "1 file" if files == 1 else f"{files:,} files", reason_of(why.message)
        if not tries:
            self.ports.observer.note(f"{what} to write with new credentials: {reason}")
            return
        self.ports.observer.note(
            f"{what} to write again, attempt {tries + 1} of {self.most + 1}: {reason}"
        )
        self.ports.pause(tries)

    def _load_again(self) -> None:
        """Load the table: a catalog that lends credentials, which end, lends new ones with it."""
        try:
            self.ports.effects(Step.LOAD_METADATA, lambda: self.ports.lake.table(self.to))
        except DestinationError as error:
            # Most need none; a catalog that is away now may be back for the commit.
            self.ports.observer.note(f"what is written again may lack new credentials: {error}")

    def _finished(self, plan: WritePlan, slices: Collection[Slice]) -> tuple[Receipt, ...]:
        """Return the receipts of slices that were finished though nobody answered."""
        found: list[Receipt] = []
        for key, transaction_id in sorted({(s.key, s.transaction_id) for s in slices}):
            below = f"{plan.receipts_location.rstrip('/')}/{key}/{transaction_id}"
            stored = stored_receipts(self.ports.storage(below), below)
            found += just_written((s for s in slices if s.key == key), stored)
        return tuple(found)


def _counted(written: Written) -> Iterator[int]:
    """Return the slices of which one more try was in vain.

    Credentials that end are no failure of a slice, as long as any file is finished in their time:
    an export may outlive any number of them, and one of which nothing comes ends all the same.
    """
    for failure in written.failures:
        if not (written.receipts and isinstance(failure.error, EndedCredentialsError)):
            yield failure.slice_number


def _told(on_rows: Callable[[int], None], so_far: int, rows: int) -> None:
    on_rows(so_far + rows)
