"""A writer around a writer whose job may be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from spark_ext.engine.runner import Cancellable, write_all
from tableformat.errors import SourceError, StoppedError, TableFormatError
from tableformat.export.ports import SliceFailure, Writing, Written
from tableformat.export.slices import Slice, SliceTask, WritePlan
from tests.support.frozen_parts import PLAN


def task(number: int) -> SliceTask:
    return SliceTask((Slice(number, "k", "p", 1, "t", "", (), 1, 1, "", ()),))


TASKS = tuple(task(number) for number in range(3))


@dataclass
class Recording:
    """A writer whose slices all fail, and that says of two rows for each task."""

    error: TableFormatError | None = None
    given: list[tuple[int, ...]] = field(default_factory=list)
    slots: int = 4

    def versions(self) -> tuple[tuple[str, str], ...]:
        return (("python", "3"),)

    def write(
        self,
        _plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],  # noqa: ARG002  who stops is who calls
    ) -> Writing:
        numbers = tuple(s.number for t in tasks for s in t.slices)
        self.given.append(numbers)
        on_rows(2)
        yield
        if self.error is not None:
            raise self.error
        return Written((), tuple(SliceFailure(n, SourceError("Cannot. Not. Do.")) for n in numbers))


def written(writer: Cancellable) -> Written:
    return write_all(writer.write(PLAN, TASKS, on_rows=lambda _: None, should_stop=lambda: False))


@pytest.mark.parametrize(
    ("error", "heard"), [(StoppedError("Cannot. It was cancelled. Do."), 1), (SourceError("x"), 0)]
)
def test_the_caller_gets_a_cancelled_job_and_no_other_error(
    error: TableFormatError, heard: int
) -> None:
    cancelled: list[None] = []

    with pytest.raises(type(error)):
        written(Cancellable(Recording(error), lambda: cancelled.append(None)))

    assert len(cancelled) == heard
