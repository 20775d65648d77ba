"""What the exports of an application take of its limits: together never more than there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.engine.runner import write_all
from tableformat.errors import NotBegunError, StoppedError, UsageError
from tableformat.export.ports import SliceFailure, Writing, Written
from tableformat.export.request import Allotment, Limits
from tableformat.export.slices import Share, Slice, SliceTask, WritePlan
from tableformat.export.writers import Limited, with_limits
from tableformat.messages import plain
from tableformat.source import ServedLayout
from tests.support.frozen_parts import PLAN
from tests.support.scenarios import Partitions, ports_of

HOST = "http://127.0.0.1:1"
SERVED = replace(
    PLAN, layout=ServedLayout(HOST, (), "", "UTC", (("a", "1"),), typed=True, ranges=True)
)
LIMITS = st.builds(Limits, bandwidth=st.integers(0, 50), slices=st.integers(1, 9))


def task(number: int) -> SliceTask:
    return SliceTask((Slice(number, "k", "p", 1, "t", "", (), 1, 1, "", ()),))


TASKS = tuple(task(number) for number in range(12))


class Holding:
    """A writer that remembers the plans, and ends when it is released."""

    slots = 4

    def __init__(self) -> None:
        self.plans: list[WritePlan] = []
        self.is_free = False

    def versions(self) -> tuple[tuple[str, str], ...]:
        return (("python", "3"),)

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        del on_rows, should_stop
        self.plans.append(plan)
        while not self.is_free:
            yield
        error = StoppedError("Cannot. Not. Do.")
        return Written((), tuple(SliceFailure(s.number, error) for t in tasks for s in t.slices))


class Application:
    """Exports that share an allotment, each with a writer of its own."""

    def __init__(self, directory: Path) -> None:
        self.notes: list[str] = []
        self.ports = ports_of(directory, Partitions())
        self.ports.observer.note = self.notes.append  # type: ignore[assignment]
        self.stopped = False

    def begin(
        self, limits: Limits, plan: WritePlan = PLAN, tasks: tuple[SliceTask, ...] = TASKS
    ) -> tuple[Holding, Writing]:
        holding = Holding()
        limited = with_limits(replace(self.ports, writer=lambda: holding), limits).writer()
        assert isinstance(limited, Limited)
        writing = limited.write(
            plan, tasks, on_rows=lambda _: None, should_stop=lambda: self.stopped
        )
        next(writing)
        return holding, writing


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return Application(tmp_path)


def ended(writing: Writing) -> Written:
    return write_all(writing)


@given(limits=LIMITS, wanted=st.lists(st.integers(1, 12), min_size=1, max_size=20))
def test_together_no_more_is_taken_than_there_is_and_all_of_it_comes_back(
    limits: Limits, wanted: list[int]
) -> None:
    allotment = Allotment()
    shares = [share for one in wanted if (share := allotment.take(limits, one)) is not None]

    assert sum(share.slices for share in shares) == allotment.slices <= limits.slices
    assert all(share.slices >= 1 for share in shares)
    if limits.bandwidth:
        assert sum(share.slices * (share.bytes_per_second or 0) for share in shares) <= (
            limits.bandwidth
        )
        assert all(share.bytes_per_second for share in shares)
    assert shares

    for share in shares:
        allotment.give_back(share)
    again = allotment.take(limits, wanted[0])
    assert again == shares[0]


def test_what_does_not_divide_evenly_is_taken_too() -> None:
    """Harm prevented: the next export has a byte per second, and its whole group never ends."""
    allotment, limits = Allotment(), Limits(bandwidth=100_000_000)

    first = allotment.take(limits, 3)

    assert first is not None
    assert first.bytes_per_second == 33_333_333
    assert allotment.take(limits, 8) is None
    allotment.give_back(first)
    assert allotment.take(limits, 8) == Share(8, 100_000_000, limit=100_000_000)


def test_an_export_alone_has_as_many_slices_as_the_pool_and_no_pace(
    application: Application,
) -> None:
    holding, writing = application.begin(Limits())

    assert [plan.share for plan in holding.plans] == [Share(8)]
    writing.close()
    assert application.ports.allotment.slices == 0


@pytest.mark.parametrize("slices", [3, 4])
def test_a_note_reports_an_idle_cluster(application: Application, slices: int) -> None:
    """Harm prevented: a large cluster that exports no faster than a small one, and nobody why."""
    _, writing = application.begin(Limits(slices=slices))
    writing.close()

    note = "writing 3 files at a time, and Spark has 4 slots: --max-slices sets how many"
    assert [*map(plain, application.notes)] == ([note] if slices == 3 else [])


@pytest.mark.parametrize(
    ("limits", "share"),
    [
        (Limits(slices=3), Share(3)),
        (Limits(slices=100), Share(12)),
        (Limits(in_turn=True), Share(1, in_turn=True)),
        (Limits(bandwidth=1000), Share(4, 1000, limit=1000)),
        (Limits(bandwidth=1000, slices=3), Share(3, 1000, limit=1000)),
        (Limits(bandwidth=1000, in_turn=True), Share(1, 1000, in_turn=True, limit=1000)),
        (Limits(bandwidth=2), Share(2, 2, limit=2)),
    ],
)
def test_the_rate_is_divided_by_the_slices_that_are_written_at_a_time(
    application: Application, limits: Limits, share: Share
) -> None:
    """Of 12 tasks, where Spark has 4 slots."""
    holding, writing = application.begin(limits)

    assert [plan.share for plan in holding.plans] == [share]
    writing.close()


def test_another_export_waits_until_a_slice_is_free_and_then_goes_on(
    application: Application,
) -> None:
    """Harm prevented: two exports of one session write twice as much as the limit allows."""
    first, writing = application.begin(Limits(bandwidth=1000, slices=4))
    second, waiting = application.begin(Limits(bandwidth=1000, slices=4))

    assert (len(first.plans), len(second.plans)) == (1, 0)
    next(waiting)
    assert application.notes == ["waiting for other exports of this application to end"]

    first.is_free = second.is_free = True
    assert len(ended(writing).failures) == 12
    assert len(ended(waiting).failures) == 12
    assert [plan.share for plan in second.plans] == [Share(4, 1000, limit=1000)]
    assert application.ports.allotment.slices == 0


def test_two_exports_share_the_pool(application: Application) -> None:
    first, one = application.begin(Limits(slices=8), tasks=TASKS[:5])
    second, two = application.begin(Limits(slices=8), tasks=TASKS[:5])

    assert [p.share for h in (first, second) for p in h.plans] == [Share(5), Share(3)]
    one.close()
    two.close()


def test_an_export_that_waits_ends_on_a_stop(application: Application) -> None:
    _, writing = application.begin(Limits(slices=1))
    second, waiting = application.begin(Limits(slices=1))
    application.stopped = True

    found = ended(waiting)

    assert (len(second.plans), len(found.failures)) == (0, 12)
    assert {type(f.error) for f in found.failures} == {NotBegunError}
    writing.close()


def test_an_export_that_waits_notices_that_nobody_wants_it_any_more(
    application: Application,
) -> None:
    """Harm prevented: what was cancelled waits for an hour, and then writes."""

    def cancelled(_rows: int) -> None:
        raise StoppedError("Cannot go on. It was cancelled. Do.")

    _, writing = application.begin(Limits(slices=1))
    limited = Limited(Holding(), application.ports, Limits(slices=1))
    waiting = limited.write(PLAN, TASKS, on_rows=cancelled, should_stop=lambda: False)

    with pytest.raises(StoppedError, match="It was cancelled"):
        next(waiting)

    assert application.ports.allotment.slices == 1
    writing.close()


def test_what_fails_gives_its_share_back(application: Application) -> None:
    """Harm prevented: after a failure the application never writes again."""
    _, writing = application.begin(Limits(slices=2))

    with pytest.raises(StoppedError):
        writing.throw(StoppedError("Cannot. It was cancelled. Do."))

    assert application.ports.allotment.slices == 0


@pytest.mark.parametrize(("bandwidth", "most"), [(1, 65536), (40_000, 100_000), (10**9, 64 << 20)])
def test_row_groups_from_a_slow_server_are_so_small_that_it_does_not_give_up(
    application: Application, bandwidth: int, most: int
) -> None:
    """While a row group is written nobody reads what the server sends."""
    holding, writing = application.begin(Limits(bandwidth), SERVED)
    writing.close()
    (plan,) = holding.plans
    from_files, writing = application.begin(Limits(bandwidth))
    writing.close()

    assert plan.format.row_group_bytes == most
    assert from_files.plans[0].format == PLAN.format


def test_an_export_without_tasks_needs_no_share(application: Application) -> None:
    _, writing = application.begin(Limits(slices=1))
    holding = Holding()
    holding.is_free = True
    limited = Limited(holding, application.ports, Limits(slices=1))

    assert (limited.slots, limited.versions()) == (1, (("python", "3"),))
    nothing = limited.write(PLAN, (), on_rows=lambda _: None, should_stop=lambda: False)
    assert ended(nothing) == Written((), ())
    writing.close()


@pytest.mark.parametrize(
    ("bandwidth", "slices", "message"),
    [(0, 0, "Cannot write 0 files at a time"), (0, -1, "-1 files"), (-5, 1, "-5 bytes per second")],
)
def test_limits_under_which_nothing_is_written_are_refused(
    bandwidth: int, slices: int, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Limits(bandwidth, slices)
