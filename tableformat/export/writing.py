"""Lets the files of claimed partitions be written, and hands the partitions over to be committed.

A partition is complete when each of its slices has a receipt. While others are still being written,
complete ones are handed over every so often, so that hours of work do not become visible only at
their end; which those are, the stored receipts say, as they do for a run that goes on with another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tableformat.effects import Step
from tableformat.errors import DestinationError, SourceError, TableFormatError
from tableformat.export.cancelled import Cancelled
from tableformat.export.claiming import Claiming
from tableformat.export.destination import Destination
from tableformat.export.freezing import Frozen
from tableformat.export.ports import JobPorts, SliceWriter, Writing, Written
from tableformat.export.resuming import just_written, stored_receipts
from tableformat.export.slicing import tasks
from tableformat.export.work import Claimed
from tableformat.receipt import Receipt

__all__ = ["FileWriting", "Files"]

Files = tuple[Claimed, tuple[Receipt, ...] | TableFormatError]
"""A partition with the receipts of all its files, or with the error for which it has not all."""


@dataclass(frozen=True, slots=True)
class FileWriting:
    """Writes for one run; complete partitions are handed over every `commit_after` milliseconds."""

    ports: JobPorts
    to: Destination
    claiming: Claiming
    cancelled: Cancelled
    commit_after: int

    def run(
        self, claimed: tuple[Claimed, ...], frozen: Frozen, writer: SliceWriter
    ) -> Generator[tuple[Files, ...], None, None]:
        """Yield every partition once, in the batches in which they are to be committed.

        Args:
            claimed: what is to be written; files that are finished already are kept.
            frozen: that they are read from.
            writer: that writes.
        """
        left = {c.row.key.hash: c for c in claimed}
        with contextlib.closing(self._writing(left, frozen, writer)) as writing:
            try:
                while (written := self._write_on(writing)) is None:
                    complete = self._complete(left.values())
                    for one, _ in complete:
                        del left[one.row.key.hash]
                    if complete:
                        yield complete
            except TableFormatError as error:
                yield tuple((one, error) for one in left.values())
                return
        todo = tuple(s for c in claimed for s in c.unfinished)
        self.claiming.ratio.measured(todo, written.receipts)
        yield tuple((_with_finished(one, written), _files(one, written)) for one in left.values())

    def _writing(self, left: Mapping[str, Claimed], frozen: Frozen, writer: SliceWriter) -> Writing:
        """Begin to write the files that are not finished yet."""
        plan = self.to.write_plan(frozen.snapshot, self.ports.job, writer.versions())
        claimed = tuple(left.values())
        kept = sum(r.rows for c in claimed for r in c.finished.values())
        self.ports.observer.begin(
            len(claimed),
            sum(c.frozen.visible_rows for c in claimed) - kept,
            sum(p.part.bytes_on_disk for c in claimed for p in c.frozen.parts),
        )
        self.cancelled.watch(claimed)
        return (
            yield from writer.write(
                plan,
                tasks((s for c in claimed for s in c.unfinished), writer.slots),
                on_rows=self.cancelled.while_any_is_ours(left.values(), self.ports.observer.rows),
                should_stop=self.ports.should_stop,
            )
        )

    def _write_on(self, writing: Writing) -> Written | None:
        """Let files be written until all are, or, which is None, until it is time to commit."""
        until = self.ports.clock() + self.commit_after

        def write_on() -> Written | None:
            while True:
                try:
                    next(writing)
                except StopIteration as end:
                    written: Written = end.value
                    return written
                if self.ports.clock() >= until:
                    return None

        return self.ports.effects(Step.WRITE_FILES, write_on)

    def _complete(self, left: Collection[Claimed]) -> tuple[Files, ...]:
        """Return the partitions that are complete while others are being written."""
        found: list[Files] = []
        for one in left:
            below = self.to.receipts_of(one.row)
            look = partial(stored_receipts, self.ports.storage(below), below)
            try:
                receipts = just_written(one.unfinished, self.ports.effects(Step.FIND_FILES, look))
            except DestinationError as error:
                # Nothing is lost: the writer itself says at the end what it has written.
                self.ports.observer.note(f"nothing is committed while files are written: {error}")
                break
            if len(receipts) == len(one.unfinished):
                found.append((one, _files(one, Written(receipts, ()))))
        return tuple(found)


def _with_finished(one: Claimed, written: Written) -> Claimed:
    """Return a partition that also knows the files which were finished now."""
    todo = {s.number for s in one.unfinished}
    made = {r.slice_number: r for r in written.receipts if r.slice_number in todo}
    return replace(one, finished={**one.finished, **made})


def _files(one: Claimed, written: Written) -> tuple[Receipt, ...] | TableFormatError:
    try:
        return _receipts_of(one, written)
    except TableFormatError as error:
        return error


def _receipts_of(one: Claimed, written: Written) -> tuple[Receipt, ...]:
    """Return the receipts of a partition: one for each slice, and together all its rows.

    Raises:
        TableFormatError: a slice has no file; the error of its task.
        SourceError: the files do not hold what the partition shows.
    """
    todo = {s.number for s in one.unfinished}
    for failure in written.failures:
        if failure.slice_number in todo:
            raise failure.error
    receipts = (*one.finished.values(), *(r for r in written.receipts if r.slice_number in todo))
    receipts = tuple(sorted(receipts, key=lambda r: r.slice_number))
    if [r.slice_number for r in receipts] != [s.number for s in one.slices]:
        message = (
            f"Cannot commit partition {one.row.key.partition_id}: {len(one.slices)} files were "
            f"planned, {len(receipts)} came back. Run the command again."
        )
        raise SourceError(message)
    rows = sum(r.rows for r in receipts)
    if rows != one.frozen.visible_rows:
        message = (
            f"Cannot commit partition {one.row.key.partition_id}: it shows "
            f"{one.frozen.visible_rows:,} rows, its files hold {rows:,}. Nothing became visible; "
            "please report it with the table's definition."
        )
        raise SourceError(message)
    return receipts
