"""A writer around any other that keeps to the limits of the application (`limits`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tableformat.errors import NotBegunError
from tableformat.export.limits import Limits
from tableformat.export.ports import JobPorts, SliceFailure, WriterAround, Writing, Written
from tableformat.export.slices import Share, SliceTask, WritePlan
from tableformat.source import ServedLayout

__all__ = ["Limited", "with_limits"]

_LOOK_SECONDS: Final = 0.1
# While a row group is written nobody reads the server's answer, which gives it up after 30 seconds
# (http_send_timeout).
_GROUP_SECONDS: Final = 10
_LEAST_GROUP_BYTES: Final = 64 * 1024


def with_limits(ports: JobPorts, limits: Limits) -> JobPorts:
    """Return ports whose writer keeps to limits."""
    return replace(ports, writer=lambda: Limited(ports.writer(), ports, limits))


@dataclass(frozen=True, slots=True)
class Limited(WriterAround):
    """Lets another writer write when its share is there; the plan says the share."""

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
            StoppedError: their job was cancelled.
        """
        if not tasks:
            return (
                yield from self.writer.write(plan, (), on_rows=on_rows, should_stop=should_stop)
            )
        allotment, wanted = self.ports.allotment, self._wanted(len(tasks))
        is_told = False
        while (share := allotment.take(self.limits, wanted)) is None:
            if should_stop():
                return Written((), _not_begun(tasks))
            if not is_told:
                self.ports.observer.note("waiting for other exports of this application to end")
                is_told = True
            # Whoever is told also says that nobody wants the files any more.
            on_rows(0)
            allotment.wait(_LOOK_SECONDS)
            yield
        self._tell_of_idle_slots(share, len(tasks))
        try:
            return (
                yield from self.writer.write(
                    _shared(plan, share), tasks, on_rows=on_rows, should_stop=should_stop
                )
            )
        finally:
            allotment.give_back(share)

    def _tell_of_idle_slots(self, share: Share, tasks: int) -> None:
        """Say what would use a cluster that the limit leaves idle."""
        if share.slices == self.limits.slices < min(tasks, self.writer.slots):
            self.ports.observer.note(
                f"writing {share.slices} files at a time, and Spark has {self.writer.slots} slots: "
                "`--max-slices` sets how many"
            )

    def _wanted(self, tasks: int) -> int:
        """Return how many slices to write at a time.

        More than Spark has slots for keep them busy to the end; but a rate that is divided by more
        than run is not used up.
        """
        if self.limits.in_turn or self.limits.bandwidth:
            return min(tasks, self.slots)
        return min(tasks, self.limits.slices)


def _shared(plan: WritePlan, share: Share) -> WritePlan:
    """Return a plan with the share, its row groups written within what a server waits for."""
    rate = share.bytes_per_second
    if rate is None or not isinstance(plan.layout, ServedLayout):
        return replace(plan, share=share)
    most = max(_LEAST_GROUP_BYTES, rate * _GROUP_SECONDS)
    bound = min(plan.format.row_group_bytes, most)
    return replace(plan, share=share, format=replace(plan.format, row_group_bytes=bound))


def _not_begun(tasks: tuple[SliceTask, ...]) -> tuple[SliceFailure, ...]:
    """Return that the slices of some tasks are not to be begun any more."""
    message = (
        "Cannot begin another file: the export was told to stop. Run the same command again: it "
        "goes on with what is left."
    )
    error = NotBegunError(message)
    return tuple(SliceFailure(slice_.number, error) for task in tasks for slice_ in task.slices)
