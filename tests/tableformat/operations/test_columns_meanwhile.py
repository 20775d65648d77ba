"""Another engine adds a column while a statement runs: it is done, or refused, and never half."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.export.outcome import Status
from tableformat.ledger import State
from tests.support.dying import Dies, KilledAt
from tests.support.history_acts import Seat, done, seen
from tests.support.scenarios import AtStep, Partitions, ledger_rows, rows_in_main
from tests.support.two_lake_tables import prepared

BEFORE = {
    "attach": ("detach",),
    "attach from": ("export there", "drop"),
    "fetch": ("export there",),
}
DONE = {
    "drop": Status.DROPPED,
    "detach": Status.DETACHED,
    "attach": Status.ATTACHED,
    "attach from": Status.ATTACHED,
    "fetch": Status.FETCHED,
    "move": Status.MOVED,
}
REWRITES = ("update", "delete", "optimize", "clear index")
STEPS = (Step.READ_LEDGER, Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND)
IN_MAKE_TEST = {
    ("drop", Step.CLAIM),
    ("detach", Step.SEND),
    ("attach", Step.STAGE),
    ("attach from", Step.WRITE_FILES),
    ("move", Step.SEND),
    ("update", Step.SEND),
    ("optimize", Step.CLAIM),
}


def cases(*statements: str) -> pytest.MarkDecorator:
    """Return every statement at every step; of them make test has some."""
    return pytest.mark.parametrize(
        ("statement", "step"),
        [
            pytest.param(one, at, marks=() if (one, at) in IN_MAKE_TEST else pytest.mark.soak)
            for one in statements
            for at in STEPS
        ],
    )


def at_once(directory: Path, statement: str, step: Step) -> Status:
    """Add a column when a statement is at a step; return its outcome."""
    source = prepared(directory)
    for name in BEFORE.get(statement, ()):
        done(name, directory, source)
    visit = AtStep(step, lambda: done("others add a column", directory, source, Seat()))
    return done(statement, directory, source, Seat(visit))


@cases(*DONE)
def test_what_does_not_hang_on_the_columns_is_done(
    tmp_path: Path, statement: str, step: Step
) -> None:
    """Harm prevented: `in_progress` or `unknown`, where nobody else works on it."""
    assert at_once(tmp_path / "at-once", statement, step) is DONE[statement]

    # As if one had come after the other.
    alone = tmp_path / "alone"
    source = prepared(alone)
    for name in (*BEFORE.get(statement, ()), statement, "others add a column"):
        done(name, alone, source)
    assert seen(tmp_path / "at-once") == seen(alone)


@cases(*REWRITES)
def test_a_statement_that_rewrites_rows_is_refused_and_leaves_no_claim(
    tmp_path: Path, statement: str, step: Step
) -> None:
    """Harm prevented: a statement that is done for, and stands in the ledger as under way."""
    assert at_once(tmp_path, statement, step) is Status.REFUSED

    assert State.RUNNING not in {row.state for row in ledger_rows(tmp_path)}
    again = done(statement, tmp_path, Partitions())
    assert again in (Status.CHANGED, Status.OPTIMIZED)


def test_a_table_that_was_recreated_meanwhile_is_another_one(tmp_path: Path) -> None:
    """Harm prevented: a partition is dropped of a table that its user has never seen."""
    source = prepared(tmp_path)
    recreated = AtStep(
        Step.CLAIM, lambda: done("others make the table anew", tmp_path, source, Seat())
    )

    assert done("drop", tmp_path, source, Seat(recreated)) is Status.REFUSED

    assert rows_in_main(tmp_path) == 15
    assert done("drop", tmp_path, source) is Status.DROPPED


def test_what_a_dead_run_has_sent_is_not_taken_for_dead_with_the_claim(tmp_path: Path) -> None:
    """Harm prevented: its files are removed, and its request lands afterwards."""
    source = prepared(tmp_path)
    done("the source grows", tmp_path, source)
    with pytest.raises(Dies):
        done("export", tmp_path, source, Seat(KilledAt(Step.SEND)))
    column = AtStep(Step.CLAIM, lambda: done("others add a column", tmp_path, source, Seat()))

    assert done("update", tmp_path, source, Seat(column)) is Status.REFUSED

    row = next(row for row in ledger_rows(tmp_path) if row.old)
    assert (row.state, row.old[0].given_up) == (State.RUNNING, False)
    assert row.last_error
