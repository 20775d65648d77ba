"""REPLACE, DROP and DETACH stop our own UPDATE, DELETE, CLEAR and OPTIMIZE of their partition."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH
from tableformat.effects import Effects, Step
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import State
from tableformat.operations.statement import AllPartitions, Statement
from tests.support.dying import BeforeFile, Dies, DiesAt, KilledAt
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    attach,
    detach,
    drop,
    export_at,
    in_files,
    on,
    partition,
    running,
)
from tests.support.row_changes import change, numbers_in
from tests.support.row_merges import optimize
from tests.support.scenarios import AtStep, Partitions, parts_of, ports_of, row_of, run
from tests.support.tiers import share_of
from tests.support.two_lake_tables import P1, copy, prepared, to_other

Rewriting = Callable[[Path, Effects | None], Outcome]
Stopper = Callable[[Path], Outcome]


def _update(at: Path, by: Effects | None) -> Outcome:
    return change(at, P1, effects=by, alive=True)


def _delete(at: Path, by: Effects | None) -> Outcome:
    return change(at, P1, deletes=True, effects=by, alive=True)


def _optimize(at: Path, by: Effects | None) -> Outcome:
    return optimize(at, P1, effects=by, alive=True)


def _drop(at: Path, effects: Effects | None = None) -> Outcome:
    return running(at, effects=effects, alive=True).run(drop("p1"))


def _detach(at: Path) -> Outcome:
    return running(at, alive=True).run(detach("p1"))


def _replace(at: Path) -> Outcome:
    return copy(at, P1, replaces=True, alive=True)


def rows_of(at: Path, name: str, branch: str = MAIN_BRANCH) -> list[int]:
    """Return the rows of a partition."""
    key = row_of(at, name).key.hash
    return sorted(n for path in on(at, branch) if key in path for n in numbers_in(path))


TWELVE = sorted((*range(7), *range(5)))


def with_twenty_there(at: Path) -> None:
    """Make both tables, with other rows of p1 in the other one."""
    prepared(at)
    there = Partitions(by_id={"p1": parts_of("p1", 20)})
    to_other(at, there)


@pytest.mark.parametrize(
    ("stopper", "did", "word"),
    [
        (_drop, Status.DROPPED, "DROP PARTITION ID 'p1'"),
        (_detach, Status.DETACHED, "DETACH PARTITION ID 'p1'"),
        (_replace, Status.REPLACED, "REPLACE PARTITION ID 'p1' FROM lake.n.other"),
    ],
    ids=["drop", "detach", "replace"],
)
@pytest.mark.parametrize(
    ("rewriting", "files"),
    [(_update, 2), (_delete, 2), (_optimize, 1)],
    ids=["update", "delete", "optimize"],
)
def test_a_statement_that_rewrites_files_stops_before_the_next_one(
    tmp_path: Path, stopper: Stopper, did: Status, word: str, rewriting: Rewriting, files: int
) -> None:
    """Harm prevented: who wants to drop a partition waits for hours until it is merged."""
    with_twenty_there(tmp_path)
    outcomes: list[Outcome] = []

    ended = rewriting(tmp_path, BeforeFile(lambda: outcomes.append(stopper(tmp_path)), files))

    assert [one.status for one in outcomes] == [did]
    assert ended.status is Status.KILLED
    assert f"it was stopped by {word} of process" in ended.message
    assert len(rows_of(tmp_path, "p1")) == (20 if did is Status.REPLACED else 0)
    assert rows_of(tmp_path, "p1", DETACHED_BRANCH) == (TWELVE if did is Status.DETACHED else [])
    assert rows_of(tmp_path, "p2") == [0, 1, 2]


def in_another_thread(
    at: Path, rewriting: Rewriting, statement: Statement, *, stops: bool = True
) -> tuple[Outcome, Outcome, list[str]]:
    """Run a statement while another one is before its second file, in a thread of its own.

    The other one goes on when it is waited for first, or, unless it `stops`, not before the end.
    Returns what became of both, the stopped one first, and the notes of that time.
    """
    begun, go, ended, notes = threading.Event(), threading.Event(), list[Outcome](), list[str]()

    def pause() -> None:
        begun.set()
        assert go.wait(60)

    def other() -> None:
        ended.append(rewriting(at, BeforeFile(pause, 2)))

    thread = threading.Thread(target=other)
    thread.start()

    def until_stopped(_attempt: int) -> None:
        if stops:
            go.set()
            thread.join(60)

    assert begun.wait(60)
    ready = running(at, alive=True, notes=notes)
    commit = replace(ready.ports.commit, pause=until_stopped)
    stopping = replace(ready, ports=replace(ready.ports, commit=commit)).run(statement)
    go.set()
    thread.join(60)
    return ended[0], stopping, notes


def files_below(at: Path) -> set[str]:
    """Return the names of all data files that are there, referenced or not."""
    return {path.name for path in (at / "warehouse").rglob("*.parquet")}


@pytest.mark.parametrize("rewriting", [_update, _delete], ids=["update", "delete"])
def test_it_is_waited_for_and_its_files_are_removed(tmp_path: Path, rewriting: Rewriting) -> None:
    """Harm prevented: files that nobody needs stay for ever, or go while they are written."""
    in_files(tmp_path)
    before = files_below(tmp_path)

    ended, dropped, notes = in_another_thread(tmp_path, rewriting, drop("p1"))

    assert (ended.status, dropped.status) == (Status.KILLED, Status.DROPPED)
    assert [note.partition(" ")[0] for note in notes] == ["stopping"]
    assert before
    assert files_below(tmp_path) == before


def test_a_statement_that_does_not_stop_is_passed_over_and_reported(tmp_path: Path) -> None:
    """Harm prevented: a process that hangs keeps everybody from a partition."""
    in_files(tmp_path)

    ended, dropped, notes = in_another_thread(tmp_path, _update, drop("p1"), stops=False)

    assert (ended.status, dropped.status) == (Status.KILLED, Status.DROPPED)
    assert "has not stopped, so this statement runs" in notes[1]
    assert rows_of(tmp_path, "p1") == []


def test_asked_too_late_it_has_landed_and_what_it_left_is_detached(tmp_path: Path) -> None:
    """Harm prevented: rows of before an UPDATE that was reported as successful come back."""
    in_files(tmp_path)
    outcomes: list[Outcome] = []

    ended = _update(tmp_path, AtStep(Step.SETTLE, lambda: outcomes.append(_detach(tmp_path))))

    assert [one.status for one in outcomes] == [Status.DETACHED]
    assert ended.status is Status.CHANGED
    assert ended.rows == 6
    assert rows_of(tmp_path, "p1") == []
    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    changed = sorted(n + 1000 if n < 3 else n for n in TWELVE)
    assert rows_of(tmp_path, "p1") == changed


@pytest.mark.parametrize("step", [Step.NOTE_WRITTEN, Step.STAGE, Step.SEND])
def test_it_is_stopped_before_its_commit_too(tmp_path: Path, step: Step) -> None:
    """Harm prevented: a partition that was dropped is there again, merged."""
    in_files(tmp_path)

    ended = _optimize(tmp_path, AtStep(step, lambda: _drop(tmp_path)))

    assert ended.status is Status.KILLED
    assert rows_of(tmp_path, "p1") == []


def test_of_all_partitions_it_is_stopped_whole(tmp_path: Path) -> None:
    """Harm prevented: an UPDATE of the table that is done in some partitions and in others not."""
    in_files(tmp_path)
    outcomes: list[Outcome] = []
    by = BeforeFile(lambda: outcomes.append(_drop(tmp_path)), 1)

    ended = change(tmp_path, AllPartitions(each=True), effects=by, alive=True)

    assert [one.status for one in outcomes] == [Status.DROPPED]
    assert ended.status is Status.KILLED
    assert (rows_of(tmp_path, "p1"), rows_of(tmp_path, "p2")) == ([], [0, 1, 2])
    again = change(tmp_path, AllPartitions(each=True))
    assert again.status is Status.CHANGED
    assert rows_of(tmp_path, "p2") == [1000, 1001, 1002]


@pytest.mark.parametrize("stopper", [_drop, _detach, _replace], ids=["drop", "detach", "replace"])
def test_what_changes_another_partition_goes_on(tmp_path: Path, stopper: Stopper) -> None:
    """Harm prevented: a partition cannot be dropped because another one is merged."""
    with_twenty_there(tmp_path)
    outcomes: list[Outcome] = []
    by = BeforeFile(lambda: outcomes.append(stopper(tmp_path)), 1)

    ended = change(tmp_path, partition("p2"), effects=by, alive=True)

    assert outcomes[0].status in (Status.DROPPED, Status.DETACHED, Status.REPLACED)
    assert ended.status is Status.CHANGED
    assert rows_of(tmp_path, "p2") == [1000, 1001, 1002]


def test_an_export_is_not_stopped(tmp_path: Path) -> None:
    """Harm prevented: hours of an export are lost because somebody tidies up."""
    source, outcomes = in_files(tmp_path), list[Outcome]()
    source.by_id["p1"] = parts_of("p1", 20)
    by = AtStep(Step.WRITE_FILES, lambda: outcomes.append(_drop(tmp_path)))
    ports = ports_of(tmp_path, source, effects=by, clock=LATER.__next__)

    ended = {o.partition_id: o.status for o in run(tmp_path, source, request=IN_FILES, ports=ports)}

    assert [one.status for one in outcomes] == [Status.IN_PROGRESS]
    assert ended["p1"] is Status.REPLACED
    assert len(rows_of(tmp_path, "p1")) == 20


def test_an_attach_is_not_stopped(tmp_path: Path) -> None:
    """Harm prevented: what was detached is on no branch any more."""
    in_files(tmp_path)
    _detach(tmp_path)
    outcomes: list[Outcome] = []
    by = AtStep(Step.STAGE, lambda: outcomes.append(_drop(tmp_path)))

    ended = running(tmp_path, effects=by, alive=True).run(attach("p1"))

    # Main has nothing of the partition yet: it was dropped before.
    assert [one.status for one in outcomes] == [Status.EMPTY]
    assert ended.status is Status.ATTACHED
    assert rows_of(tmp_path, "p1") == TWELVE


def test_update_and_optimize_do_not_stop_one_another(tmp_path: Path) -> None:
    """Harm prevented: of two changes of rows the first is lost without a word."""
    in_files(tmp_path)
    outcomes: list[Outcome] = []
    by = BeforeFile(lambda: outcomes.append(_optimize(tmp_path, None)), 2)

    ended = _update(tmp_path, by)

    assert [one.status for one in outcomes] == [Status.IN_PROGRESS]
    assert ended.status is Status.CHANGED


def test_a_process_that_dies_after_its_request_has_changed_nothing(tmp_path: Path) -> None:
    """Harm prevented: a partition that nobody can drop, export or change any more."""
    source = in_files(tmp_path)

    def dies() -> None:
        with pytest.raises(Dies):
            _drop(tmp_path, KilledAt(Step.STAGE))

    ended = _update(tmp_path, BeforeFile(dies, 2))

    assert ended.status is Status.KILLED
    assert rows_of(tmp_path, "p1") == TWELVE
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.UNCHANGED
    assert running(tmp_path).run(drop("p1")).status is Status.DROPPED
    assert row_of(tmp_path, "p1").state is State.COMPLETED


def test_of_two_that_stop_the_same_one_does_it_after_the_other(tmp_path: Path) -> None:
    """Harm prevented: two operators wait for each other."""
    in_files(tmp_path)
    outcomes: list[Outcome] = []

    def both() -> None:
        by = AtStep(Step.READ_LEDGER, lambda: outcomes.append(_detach(tmp_path)), nth=6)
        outcomes.append(_drop(tmp_path, by))

    ended = _update(tmp_path, BeforeFile(both, 2))

    assert ended.status is Status.KILLED
    assert [one.status for one in outcomes] == [Status.DETACHED, Status.EMPTY]
    assert rows_of(tmp_path, "p1") == []
    assert rows_of(tmp_path, "p1", DETACHED_BRANCH) == TWELVE


@pytest.mark.soak
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_that_stops_another_may_die_at_any_effect(tmp_path: Path, *, after: bool) -> None:
    """Harm prevented: half an UPDATE, or one that says it was killed and comes later."""
    changed = sorted(n + 1000 if n < 3 else n for n in TWELVE)

    def updated(at: Path, by: DiesAt) -> Status:
        def dies() -> None:
            with contextlib.suppress(Dies):
                _drop(at, by)

        return _update(at, BeforeFile(dies, 2)).status

    in_files(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    assert updated(tmp_path / "count", counting) is Status.KILLED
    for number, step in share_of(enumerate(counting.steps)):
        at = tmp_path / str(number)
        in_files(at)

        ended = updated(at, DiesAt(number, after=after))

        rows = rows_of(at, "p1")
        assert (ended, rows) in (
            (Status.CHANGED, changed),
            (Status.KILLED, TWELVE),
            (Status.KILLED, []),
        ), step
        dropped = running(at).run(drop("p1")).status
        assert dropped is (Status.DROPPED if rows else Status.EMPTY), step
        assert rows_of(at, "p1") == []
