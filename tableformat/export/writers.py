"""Wraps a slice writer with the application's limits (`Limited`) and with retries (`Retrying`).

`Limited` keeps the slices and bytes per second within `Limits` (tableformat/export/request.py).

`Retrying` writes a failed slice again, a limited number of times, with growing pauses:

* it retries temporary failures only: a source, disk or store that was not usable, a lost worker;
* it does not retry a value that the lake table cannot hold, a bug, a permanent refusal by the
  store, or an outage for which the writer already waited.

Spark's task retries do not cover this: a task returns its failure as a result, and local Spark
gives up after the first lost worker.

Source: RQ…RetryMechanism, RQ…Settings.MaxRetries, ClickHouse's
`export_merge_tree_partition_max_retries`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tableformat.effects import Step
from tableformat.errors import (
    DeniedError,
    DestinationError,
    EndedCredentialsError,
    LastingError,
    NotBegunError,
    SourceError,
    TableFormatError,
    reason_of,
)
from tableformat.export.ports import JobPorts, SliceFailure, WriterAround, Writing, Written
from tableformat.export.request import Limits
from tableformat.export.slices import (
    Share,
    Slice,
    SliceTask,
    WritePlan,
    just_written,
    stored_receipts,
)
from tableformat.export.slices import tasks as dealt
from tableformat.messages import Option
from tableformat.names import LakeName
from tableformat.receipt import Receipt
from tableformat.source import ServedLayout

__all__ = ["Limited", "Retrying", "with_limits", "with_retries"]

_LOOK_SECONDS: Final = 0.1
# While a task writes a row group it does not read the server's response. The server closes the
# connection after 30 seconds (http_send_timeout).
_GROUP_SECONDS: Final = 10
_LEAST_GROUP_BYTES: Final = 64 * 1024


def with_limits(ports: JobPorts, limits: Limits) -> JobPorts:
    """Return ports whose writer keeps within limits."""
    return replace(ports, writer=lambda: Limited(ports.writer(), ports, limits))


@dataclass(frozen=True, slots=True)
class Limited(WriterAround):
    """Wraps a writer: waits for a share of the limits, and passes it on in the plan."""

    ports: JobPorts
    limits: Limits

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return self.limits.at_once(self.writer.slots)

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every slice; return one receipt or one failure for each.

        Raises:
            SourceError: the tasks could not be run at all.
            StoppedError: the Spark job was cancelled.
        """
        if not tasks:
            return (
                yield from self.writer.write(plan, (), on_rows=on_rows, should_stop=should_stop)
            )
        allotment, wanted = self.ports.allotment, self._wanted(len(tasks))
        is_reported = False
        while (share := allotment.take(self.limits, wanted)) is None:
            if should_stop():
                return Written((), _not_begun(tasks))
            if not is_reported:
                self.ports.observer.note("waiting for other exports of this application to end")
                is_reported = True
            # This call raises once other processes have taken over all partitions of the job.
            on_rows(0)
            allotment.wait(_LOOK_SECONDS)
            yield
        self._note_idle_slots(share, len(tasks))
        try:
            return (
                yield from self.writer.write(
                    _shared(plan, share), tasks, on_rows=on_rows, should_stop=should_stop
                )
            )
        finally:
            allotment.give_back(share)

    def _note_idle_slots(self, share: Share, tasks: int) -> None:
        """Note the option for more files at a time, if the limit leaves slots of Spark idle."""
        if share.slices == self.limits.slices < min(tasks, self.writer.slots):
            self.ports.observer.note(
                f"writing {share.slices} files at a time, and Spark has {self.writer.slots} slots: "
                f"{Option.MAX_SLICES} sets how many"
            )

    def _wanted(self, tasks: int) -> int:
        """Return how many slices to write at a time.

        More slices than slots keep the slots busy to the end. But with a bandwidth, which is
        divided by this number, a part of it would not be used.
        """
        if self.limits.in_turn or self.limits.bandwidth:
            return min(tasks, self.slots)
        return min(tasks, self.limits.slices)


def _shared(plan: WritePlan, share: Share) -> WritePlan:
    """Return a plan with the share, and with row groups that are written before a timeout."""
    rate = share.bytes_per_second
    if rate is None or not isinstance(plan.layout, ServedLayout):
        return replace(plan, share=share)
    most = max(_LEAST_GROUP_BYTES, rate * _GROUP_SECONDS)
    bound = min(plan.format.row_group_bytes, most)
    return replace(plan, share=share, format=replace(plan.format, row_group_bytes=bound))


def _not_begun(tasks: tuple[SliceTask, ...]) -> tuple[SliceFailure, ...]:
    """Return the failures of slices that are not started because the run was stopped."""
    message = (
        "Cannot begin another file: the command was stopped. Run it again: it continues with the "
        "rest."
    )
    error = NotBegunError(message)
    return tuple(SliceFailure(slice_.number, error) for task in tasks for slice_ in task.slices)


def with_retries(ports: JobPorts, to: LakeName, most: int) -> JobPorts:
    """Return ports whose writer retries each slice up to `most` times."""
    return replace(ports, writer=lambda: Retrying(ports.writer(), ports, to, most))


@dataclass(frozen=True, slots=True)
class Retrying(WriterAround):
    """Wraps a writer: writes slices again that failed for a temporary reason."""

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
        """Write every slice; a slice that failed has the error of its last attempt.

        Raises:
            SourceError: the tasks could not be run at all, in any attempt.
        """
        left = {s.number: s for task in tasks for s in task.slices}
        done: dict[int, Receipt] = {}
        failed: list[SliceFailure] = []
        tries: Counter[int] = Counter()
        while True:
            so_far = sum(r.rows for r in done.values())
            report = partial(_report_rows, on_rows, so_far)
            try:
                written = yield from self.writer.write(
                    plan, tasks, on_rows=report, should_stop=should_stop
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
        """Return the failures of slices that are written again."""
        return tuple(
            f
            for f in written.failures
            if isinstance(f.error, (SourceError, DestinationError))
            and not isinstance(f.error, LastingError)
            and tries[f.slice_number] <= self.most
        )

    def _pause(self, tries: int, files: int, why: TableFormatError) -> None:
        """Note the next attempt, and wait before it; new credentials need no pause."""
        what, reason = "1 file" if files == 1 else f"{files:,} files", reason_of(why.message)
        if not tries:
            self.ports.observer.note(f"{what} to write with new credentials: {reason}")
            return
        self.ports.observer.note(
            f"{what} to write again, attempt {tries + 1} of {self.most + 1}: {reason}"
        )
        self.ports.pause(tries)

    def _load_again(self) -> None:
        """Load the table again, which renews expired vended credentials of the catalog."""
        try:
            self.ports.effects(Step.LOAD_METADATA, lambda: self.ports.lake.table(self.to))
        except DestinationError as error:
            # Most tables need no new credentials, and the commit contacts the catalog again.
            self.ports.observer.note(f"new attempts may lack new credentials: {error}")

    def _finished(self, plan: WritePlan, slices: Collection[Slice]) -> tuple[Receipt, ...]:
        """Return the stored receipts of slices that finished although the writer failed.

        If the storage allows no list, none is found, and these slices are written again.
        """
        found: list[Receipt] = []
        for key, transaction_id in sorted({(s.key, s.transaction_id) for s in slices}):
            below = f"{plan.receipts_location.rstrip('/')}/{key}/{transaction_id}"
            with contextlib.suppress(DeniedError):
                stored = stored_receipts(self.ports.storage(below), below)
                found += just_written((s for s in slices if s.key == key), stored)
        return tuple(found)


def _counted(written: Written) -> Iterator[int]:
    """Yield the slices for which the failure counts as an attempt.

    Expired credentials do not count if any file was finished with them: an export may need new
    credentials any number of times. If no file was finished they count, so that retries end.
    """
    for failure in written.failures:
        if not (written.receipts and isinstance(failure.error, EndedCredentialsError)):
            yield failure.slice_number


def _report_rows(on_rows: Callable[[int], None], so_far: int, rows: int) -> None:
    on_rows(so_far + rows)
