"""A named test that did not pass makes the whole run red."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from conformance.requirements import Proved, Requirement, Requirements
from tests.support import named_tests
from tests.support.named_tests import NamedTests
from tests.support.tiers import Selection, Tier

NAMED = "tests/a.py::test_one"


def finish(
    monkeypatch: pytest.MonkeyPatch,
    *reports: tuple[str, str, str],
    left: tuple[str, ...] = (),
    soaking: tuple[str, ...] = (),
) -> tuple[int, list[str]]:
    """Report tests, end the run, and return its status and what is not proved."""
    selection = Selection(Tier.TEST, "a commit")
    selection.left.update(left)
    selection.soaking.update(soaking)
    share = Requirement("N-01", "title", "reading", (("A", Proved((NAMED,))),))
    monkeypatch.setattr(named_tests, "load_requirements", lambda: Requirements((), (share,)))
    watched = NamedTests(selection)
    for nodeid, when, outcome in reports:
        report = SimpleNamespace(nodeid=nodeid, when=when, outcome=outcome)
        watched.pytest_runtest_logreport(cast("pytest.TestReport", report))
    session = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    watched.pytest_sessionfinish(cast("pytest.Session", session))
    return session.exitstatus, watched.missing + watched.soaking


@pytest.mark.parametrize(
    "reports",
    [
        [(NAMED, "setup", "passed"), (NAMED, "call", "passed")],
        [(f"{NAMED}[a]", "call", "passed"), (f"{NAMED}[b]", "call", "passed")],
    ],
)
def test_a_named_test_that_passed_is_proof(
    monkeypatch: pytest.MonkeyPatch, reports: list[tuple[str, str, str]]
) -> None:
    assert finish(monkeypatch, *reports) == (pytest.ExitCode.OK, [])


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [(NAMED, "setup", "passed")],
        [(NAMED, "setup", "skipped")],
        [(NAMED, "call", "failed")],
        [(NAMED, "call", "passed"), (NAMED, "teardown", "failed")],
        [(f"{NAMED}[a]", "call", "passed"), (f"{NAMED}[b]", "setup", "skipped")],
        [("tests/a.py::test_one_more", "call", "passed")],
    ],
)
def test_a_named_test_that_did_not_pass_is_no_proof(
    monkeypatch: pytest.MonkeyPatch, reports: list[tuple[str, str, str]]
) -> None:
    """A suite that is skipped, or not collected, must not be counted as passed."""
    assert finish(monkeypatch, *reports) == (pytest.ExitCode.TESTS_FAILED, [NAMED])


def test_a_named_test_that_is_left_to_make_test_all_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert finish(monkeypatch, left=(NAMED,)) == (pytest.ExitCode.OK, [])


def test_a_case_that_is_left_to_make_test_all_does_not_hide_one_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports = [(f"{NAMED}[a]", "call", "failed"), (f"{NAMED}[b]", "call", "passed")]

    assert finish(monkeypatch, *reports, left=(NAMED,)) == (pytest.ExitCode.TESTS_FAILED, [NAMED])


def test_a_named_test_of_which_one_case_is_left_to_make_soak_is_no_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: a mark inside `parametrize`, which no look at the source finds."""
    passed = (f"{NAMED}[a]", "call", "passed")

    found = finish(monkeypatch, passed, left=(NAMED,), soaking=(NAMED,))

    assert found == (pytest.ExitCode.TESTS_FAILED, [NAMED])


@pytest.mark.parametrize(
    ("tier", "watched"), [(None, 1), ("test", 1), ("all", 1), ("check", 0), ("soak", 0)]
)
def test_the_runs_that_must_prove_requirements_are_asked(tier: str | None, watched: int) -> None:
    registered = configure(tier)

    assert len(registered) == watched


def test_of_two_processes_none_is_asked_about_the_tests_of_the_other() -> None:
    """The one that gets the reports of both is asked."""
    assert configure(None, workerinput={"workerid": "gw0"}) == []


def configure(tier: str | None, **of_process: object) -> list[str]:
    """Configure a whole run of a tier, and return what watches it."""
    registered: list[str] = []
    config = SimpleNamespace(
        option=SimpleNamespace(keyword="", markexpr="", deselect=None, collectonly=False),
        getoption=lambda name, default: tier if name == "tier" else default,
        args_source=pytest.Config.ArgsSource.TESTPATHS,
        pluginmanager=SimpleNamespace(
            register=lambda _, name: registered.append(name),
            get_plugin=lambda _: Selection(None, "a commit"),
        ),
        **of_process,
    )
    named_tests.pytest_configure(cast("pytest.Config", config))
    return registered
