"""The word for where an export stands: what the row says, who works on it, and how it ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.export.give_up import is_resumable, standing
from tableformat.ledger import Archived, Row, Standing, State, StatementKind, Stop
from tests.strategies.ledger import ledger_rows


def by_export(row: Row) -> Row:
    """Return a row that an export has claimed last."""
    return replace(row, claim=replace(row.claim, statement="", kind=None, gives_way=None))


@given(ledger_rows(), st.booleans())
def test_a_final_state_is_shown_despite_a_lease(row: Row, worked_on: bool) -> None:  # noqa: FBT001
    """Harm prevented: a lease that nobody gave back hides that it landed, or never will."""
    for state in (State.COMPLETED, State.KILLED, State.FAILED):
        final = replace(by_export(row), state=state, archived=None)
        assert standing(final, worked_on=worked_on) == Standing(state.value)
        assert not is_resumable(final, worked_on=worked_on)


@given(ledger_rows())
def test_what_somebody_works_on_is_in_progress(row: Row) -> None:
    """Harm prevented: the error of the run before is shown for the one that runs."""
    running = replace(by_export(row), state=State.RUNNING)

    assert standing(running, worked_on=True) is Standing.IN_PROGRESS
    assert not is_resumable(running, worked_on=True)


@pytest.mark.parametrize("why", ["", *Stop])
@given(row=ledger_rows())
def test_what_ended_without_an_error_is_interrupted(row: Row, why: str | Stop) -> None:
    """Harm prevented: a run that was killed is searched for an error that there is none of."""
    running = replace(by_export(row), state=State.RUNNING).noted(why, row.updated)

    assert standing(running, worked_on=False) is Standing.INTERRUPTED
    assert is_resumable(running, worked_on=False)


@given(ledger_rows(), st.text(min_size=30))
def test_an_export_that_an_error_ended_failed_and_is_resumable(row: Row, error: str) -> None:
    """Harm prevented: FAILED is taken for lost work."""
    running = replace(by_export(row), state=State.RUNNING).noted(error, row.updated)

    assert standing(running, worked_on=False) is Standing.FAILED
    assert is_resumable(running, worked_on=False)


@given(ledger_rows(), st.booleans())
def test_what_left_its_source_is_archived(row: Row, worked_on: bool) -> None:  # noqa: FBT001
    """Harm prevented: nobody sees that the lake may have the only copy."""
    archived = replace(by_export(row), state=State.COMPLETED, archived=Archived(1))

    assert standing(archived, worked_on=worked_on) is Standing.ARCHIVED
    assert not is_resumable(archived, worked_on=worked_on)


@given(ledger_rows(), st.sampled_from(State), st.booleans())
def test_a_statement_hides_no_export(row: Row, state: State, worked_on: bool) -> None:  # noqa: FBT001
    """Harm prevented: a finished export is shown as running, because of an UPDATE."""
    dropping = replace(row.claim, statement="DROP PARTITION 1", kind=StatementKind.DROP)
    claimed = replace(row, state=state, archived=None, claim=dropping)
    export = replace(row.claim, statement="", kind=None, gives_way=None)

    if claimed.done is not None:
        assert standing(claimed, worked_on=worked_on) is Standing.COMPLETED
    elif state is not State.COMPLETED:
        interrupted = replace(claimed, old=(export,))
        assert standing(interrupted, worked_on=worked_on) is Standing.FAILED
    assert not is_resumable(replace(claimed, old=(export,)), worked_on=worked_on)
