"""A named test that did not pass makes the whole run red."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from conformance.requirements import Proved, Requirement, Requirements
from tests import named_tests
from tests.named_tests import NamedTests

NAMED = "tests/a.py::test_one"


def finish(
    monkeypatch: pytest.MonkeyPatch, *reports: tuple[str, str, str]
) -> tuple[int, list[str]]:
    """Report tests, end the run, and return its status and what is missing."""
    share = Requirement("N-01", "title", "reading", (("A", Proved((NAMED,))),))
    monkeypatch.setattr(named_tests, "load_requirements", lambda: Requirements((), (share,)))
    watched = NamedTests()
    for nodeid, when, outcome in reports:
        report = SimpleNamespace(nodeid=nodeid, when=when, outcome=outcome)
        watched.pytest_runtest_logreport(cast("pytest.TestReport", report))
    session = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    watched.pytest_sessionfinish(cast("pytest.Session", session))
    return session.exitstatus, watched.missing


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


def test_of_two_processes_none_is_asked_about_the_tests_of_the_other() -> None:
    """The one that gets the reports of both is asked."""
    registered: list[str] = []
    config = SimpleNamespace(
        option=SimpleNamespace(keyword="", markexpr="", deselect=None, collectonly=False),
        getoption=lambda _, default: default,
        args_source=pytest.Config.ArgsSource.TESTPATHS,
        pluginmanager=SimpleNamespace(register=lambda _, name: registered.append(name)),
    )

    named_tests.pytest_configure(cast("pytest.Config", config))
    config.workerinput = {"workerid": "gw0"}
    named_tests.pytest_configure(cast("pytest.Config", config))

    assert registered == ["named-tests"]
