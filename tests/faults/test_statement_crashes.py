"""A fault meets any effect of a statement on a lake table; the same statement again makes it right.

`tests/enumeration` has the statements, the faults and what must be true in the end. Here a few of
them; `make soak` tries all (`python -m tests.enumeration`).
"""

from __future__ import annotations

import pytest

from tableformat.effects import Step
from tests.enumeration.faults import DEATHS, Fault, seams
from tests.enumeration.statement_cases import StatementCases
from tests.enumeration.statements import OLDER, STATEMENTS, StatementScenario
from tests.support.foreign_actions import divide
from tests.support.history_acts import OURS
from tests.support.tiers import share_of

FEW = ("drop", "attach", "fetch", "move", "optimize")
"""Statements of each way to land: files leave, come back, stay aside, change tables, are others."""
EXPORTS = {"export", "export there", "drop there"}
named = pytest.mark.parametrize("scenario", STATEMENTS, ids=[s.name for s in STATEMENTS])


@pytest.mark.parametrize("turn", range(len(FEW)), ids=FEW)
def test_some_faults_and_the_same_statement_again(turn: int) -> None:
    """Harm prevented: rows lost or twice, half a partition seen, a false outcome, leftovers."""
    (scenario,) = (one for one in STATEMENTS if one.name == FEW[turn])
    fault = tuple(Fault)[turn + 1]
    with StatementCases(scenario) as cases:
        cases.check(fault, seams(cases.steps, fault)[-(turn + 3) :][:1])


def test_a_failure_after_the_exports_of_two_shards_is_reported_for_both() -> None:
    """Harm prevented: an end without a word, and nobody knows what became of the partition."""
    (scenario,) = (one for one in STATEMENTS if one.name == "replace from two shards")
    with StatementCases(scenario) as cases:
        # What both bring is put on one list.
        last = max(n for n, step in enumerate(cases.steps) if step is Step.NOTE_GROUP)
        assert cases.steps[last - 1] is Step.READ_LEDGER
        cases.check(Fault.FAILS, (last - 1, last))


@pytest.mark.enumeration
@pytest.mark.parametrize("fault", DEATHS, ids=[f.name.lower() for f in DEATHS])
@pytest.mark.parametrize("scenario", OLDER, ids=[s.name for s in OLDER])
def test_a_crash_on_files_of_an_earlier_spec_that_lack_a_column(
    scenario: StatementScenario, fault: Fault
) -> None:
    """Harm prevented: a statement that is right only where the table never changed."""
    with StatementCases(scenario) as cases:
        cases.check(fault, tuple(share_of(seams(cases.steps, fault))))


@pytest.mark.enumeration
@pytest.mark.parametrize("name", ["update", "optimize", "detach", "attach"])
def test_the_owner_may_divide_the_table_before_any_effect(name: str) -> None:
    """Harm prevented: a file in a partition in which no reader looks for its rows."""
    (scenario,) = (one for one in STATEMENTS if one.name == name)
    with StatementCases(scenario) as cases:
        cases.check_meddled(divide, share_of(range(len(cases.steps))))


@pytest.mark.soak
@named
@pytest.mark.parametrize("fault", Fault, ids=[f.name.lower() for f in Fault])
def test_any_fault_and_the_same_statement_again(scenario: StatementScenario, fault: Fault) -> None:
    """The same, at every effect."""
    with StatementCases(scenario) as cases:
        cases.check(fault, seams(cases.steps, fault))


def test_every_statement_is_tried() -> None:
    """Harm prevented: a new statement that nobody has tried to crash."""
    assert {*OURS} - EXPORTS <= {one.name for one in STATEMENTS}
