"""Two and three jobs on the same partitions at once, in every order: rows once, true outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import IntegrityError

from tableformat.committer import Sent
from tableformat.effects import Step
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ById
from tableformat.names import PartitionId
from tests.support.dying import Dies, KilledAt
from tests.support.scenarios import (
    ALL,
    FORCED,
    AtStep,
    Partitions,
    assert_exported_once,
    parts_of,
    ports_of,
    row_of,
    rows_by_key,
    run,
    statuses,
)

T = TypeVar("T")
_HONEST = {"committed", "already_exported", "in_progress"}
_NOT_IN_A_FIRST_EXPORT = {
    Step.EVOLVE_SCHEMA,
    Step.NOTE_ERROR,
    Step.NOTE_LANDED,
    Step.CLEAN_ATTEMPT,
    Step.GIVE_UP,
    Step.FIND_GARBAGE,
    Step.CLEAN_FILE,
    Step.CLEAN_RECEIPT,
    Step.CLEAN_CLAIM,
}
_STEPS = [s for s in Step if s not in _NOT_IN_A_FIRST_EXPORT]


class LosesResponses:
    """Effects that perform every request and lose the response of every second one."""

    def __init__(self, inner: AtStep) -> None:
        self._inner, self._sent = inner, 0

    def __call__(self, step: Step, act: Callable[[], Any], /) -> Any:
        result = self._inner(step, act)
        self._sent += step is Step.SEND
        lost = step is Step.SEND and self._sent % 2
        return Sent(applied=False, error="the answer was lost") if lost else result


@pytest.mark.parametrize("step", _STEPS)
def test_an_owner_that_is_paused_while_another_run_does_all_its_work(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: rows twice, or "main was moved away" of rows that have just landed."""
    source, other = Partitions(), list[Outcome]()
    paused = AtStep(step, lambda: other.extend(run(tmp_path, source)))

    woken = run(tmp_path, source, effects=paused)

    assert_exported_once(tmp_path, source)
    assert {*statuses(woken), *statuses(other)} <= _HONEST


def test_an_owner_whose_files_went_after_another_run_had_landed_other_rows(tmp_path: Path) -> None:
    """Harm prevented: it has to put files back that nobody needs any more."""
    source, other = Partitions(), list[Outcome]()

    def others_land() -> None:
        source.left.clear()
        source.by_id["p1"] = parts_of("p1", 7, 5, 2)
        source.by_id["p2"] = parts_of("p2", 3, 4)
        other.extend(run(tmp_path, source))

    woken = run(tmp_path, source, effects=AtStep(Step.CHECK_FILES, others_land))

    assert_exported_once(tmp_path, source)
    assert statuses(other) == ["committed"] * 2
    assert statuses(woken) == ["in_progress"] * 2
    assert {o.message for o in woken} == {"another run claimed it while its files were written"}


class DiesWhileSending:
    """Effects of a process that dies when its request is on its way; `arrive` lets it arrive."""

    def __init__(self) -> None:
        self.arrive: Callable[[], object] | None = None

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        if step is Step.SEND and self.arrive is None:
            self.arrive = act
        if self.arrive is not None:
            raise Dies
        return act()


def test_a_late_response_to_a_commit_while_a_third_run_claims_other_rows(
    tmp_path: Path,
) -> None:
    """Harm prevented: rows that another run is still writing are reported as in main."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    first, done = DiesWhileSending(), list[Step]()

    def a_third_run_claims() -> None:
        source.left.clear()
        source.by_id["p1"] = parts_of("p1", 7, 5, 2)
        with pytest.raises(Dies):
            run(tmp_path, source, request=FORCED, effects=KilledAt(Step.STAGE))

    def meanwhile(step: Step, act: Callable[[], T], /) -> T:
        if step is Step.STAGE and step not in done:
            assert first.arrive is not None
            first.arrive()
        result = act()
        if step is Step.SETTLE and step not in done:
            a_third_run_claims()
        done.append(step)
        return result

    with pytest.raises(Dies):
        run(tmp_path, source, effects=first)
    (outcome,) = run(tmp_path, source, effects=meanwhile)

    row = row_of(tmp_path, "p1")
    (landed,) = row.landed
    assert (row.claim.rows, row.claim.epoch > landed.epoch + 1) == (14, True)
    assert (outcome.status, outcome.rows, outcome.data_files) == (
        Status.COMMITTED,
        12,
        landed.data_files,
    )
    assert (outcome.snapshot_id, outcome.transaction_id) == (
        landed.snapshot_id,
        landed.transaction_id,
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Step.TAKE_LEASE, Step.SEND),
        (Step.CLAIM, Step.NOTE_WRITTEN),
        (Step.NOTE_WRITTEN, Step.SETTLE),
        (Step.READ_LEDGER, Step.SEND),
        (Step.SEND, Step.SEND),
        (Step.SEND, Step.SETTLE),
        (Step.SETTLE, Step.CLAIM),
        (Step.FIRST_SNAPSHOT, Step.CREATE_TABLE),
    ],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_three_nested_runs_with_lost_responses(
    tmp_path: Path, first: Step, second: Step, *, after: bool
) -> None:
    """Harm prevented: what two owners may do to each other, a third one does to both."""
    source, others = Partitions(), list[Outcome]()

    def third() -> None:
        others.extend(run(tmp_path, source))

    def middle() -> None:
        effects = AtStep(second, third, after=after)
        others.extend(run(tmp_path, source, effects=effects))

    woken = run(tmp_path, source, effects=LosesResponses(AtStep(first, middle, after=after)))
    last = run(tmp_path, source)

    assert_exported_once(tmp_path, source)
    assert {*statuses(woken), *statuses(others)} <= _HONEST
    assert statuses(last) == ["already_exported"] * 2


@pytest.mark.parametrize("step", [Step.TAKE_LEASE, Step.SNAPSHOT_SOURCE, Step.CLAIM, Step.SEND])
def test_a_paused_owner_never_mixes_its_content_with_newer_content(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: old and new rows of one partition side by side."""
    source = Partitions()

    def changed() -> None:
        source.by_id["p2"] = parts_of("p2", 3, 4)
        run(tmp_path, source)

    run(tmp_path, source, effects=AtStep(step, changed))

    row = row_of(tmp_path, "p2")
    assert rows_by_key(tmp_path)[row.key.hash] == row.last.rows
    # Finished files are used again: then it is the content of that time.
    assert row.last.rows == (3 if step is Step.SEND else 7)


def test_a_living_owner_is_left_to_its_work(tmp_path: Path) -> None:
    """Harm prevented: the same work is done twice, or the second run fails."""
    source, other = Partitions(), list[Outcome]()

    def second() -> None:
        other.extend(run(tmp_path, source, ports=ports_of(tmp_path, source, alive=True)))

    first = run(tmp_path, source, effects=AtStep(Step.WRITE_FILES, second))

    assert_exported_once(tmp_path, source)
    assert statuses(first) == ["committed"] * 2
    assert statuses(other) == ["in_progress"] * 2


@pytest.mark.parametrize(
    "step", [Step.SNAPSHOT_SOURCE, Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE]
)
def test_another_partition_is_exported_while_one_is(tmp_path: Path, step: Step) -> None:
    """Harm prevented: partitions that have nothing to do with each other wait, or are refused."""
    source, other = Partitions(), list[Outcome]()
    one, two = (replace(ALL, selection=ById(PartitionId(name))) for name in ("p1", "p2"))

    def second() -> None:
        ports = ports_of(tmp_path, source, alive=True)
        other.extend(run(tmp_path, source, ports=ports, request=two))

    first = run(tmp_path, source, effects=AtStep(step, second), request=one)

    assert_exported_once(tmp_path, source)
    assert (statuses(first), statuses(other)) == (["committed"], ["committed"])


@pytest.mark.parametrize("jump", [61_000, -86_400_000], ids=["lease expired", "clock set back"])
@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE])
def test_a_clock_that_jumps_costs_work_and_no_rows(tmp_path: Path, step: Step, jump: int) -> None:
    """Harm prevented: exactly once that depends on clocks."""
    source, other, now = Partitions(), list[Outcome](), [1_700_000_000_000]

    def second() -> None:
        now[0] += jump
        ports = ports_of(tmp_path, source, clock=lambda: now[0], alive=True)
        other.extend(run(tmp_path, source, ports=ports))

    effects = AtStep(step, second)
    first = run(
        tmp_path, source, ports=ports_of(tmp_path, source, effects=effects, clock=lambda: now[0])
    )

    assert_exported_once(tmp_path, source)
    assert {*statuses(first), *statuses(other)} <= _HONEST


def test_two_first_exports_that_make_the_namespace_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: one of two first runs fails with the words of a database."""
    make = SqlCatalog.create_namespace

    def at_the_same_moment(catalog: SqlCatalog, namespace: tuple[str, ...]) -> None:
        make(catalog, namespace)
        raise IntegrityError("INSERT", {}, ValueError("UNIQUE constraint failed"))

    monkeypatch.setattr(SqlCatalog, "create_namespace", at_the_same_moment)
    source = Partitions()

    run(tmp_path, source)

    assert_exported_once(tmp_path, source)
