"""What each test cost: wall time, and CPU time of its process and of all that it started.

A plugin of pytest, loaded by pyproject.toml. `--tier all` fails where a test costs more than its
tier allows; the bound grows with the slowness of the machine. `--measure FILE` writes the costs of
a run as JSON:

    {"tests": {"tests/test_a.py::test_b[c]": [wall seconds, CPU seconds]},
     "shared": {"tests/test_a.py": [...], "session: zookeeper_of_session": [...]}}

A fixture of a wider scope than one test is no part of the test that happens to need it first: its
cost is listed under its file, or under its name where the whole session shares it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, cast

import psutil
import pytest

from tests.support.durations import Cost, Durations, load_durations, slowness

__all__ = ["MOST", "Costs", "cpu_seconds"]

MOST: Final = pytest.StashKey[float]()
"""CPU seconds that a test may cost before `make test-all` fails; 0 where there is no bound."""
_KEY: Final = "cost"


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, of its descendants, and of those that ended."""
    this = psutil.Process()
    spent = float(sum(this.cpu_times()[:4]))
    for one in this.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            spent += sum(one.cpu_times()[:4])
    return spent


def _now() -> Cost:
    return time.monotonic(), cpu_seconds()


def _plus(one: Cost, other: Cost) -> Cost:
    return one[0] + other[0], one[1] + other[1]


def _minus(one: Cost, other: Cost) -> Cost:
    return one[0] - other[0], one[1] - other[1]


class Meter:
    """Measures the tests of the process that it is in."""

    def __init__(self) -> None:
        self._own: Cost = (0.0, 0.0)
        self._shared: dict[str, Cost] = {}
        # What fixtures cost that were set up within the one that is being set up.
        self._within: list[Cost] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Measure the setup, without what fixtures of a wider scope cost."""
        self._own, self._shared, self._within = (0.0, 0.0), {}, [(0.0, 0.0)]
        begun = _now()
        try:
            return (yield)
        finally:
            self._own = _minus(_minus(_now(), begun), self._within.pop())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Measure a fixture of a wider scope, without those that it needs itself."""
        if fixturedef.scope == "function" or not self._within:
            return (yield)
        begun = _now()
        self._within.append((0.0, 0.0))
        try:
            return (yield)
        finally:
            whole = _minus(_now(), begun)
            name = _listed_as(fixturedef, request)
            spent = _minus(whole, self._within.pop())
            self._shared[name] = _plus(self._shared.get(name, (0.0, 0.0)), spent)
            self._within[-1] = _plus(self._within[-1], whole)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        """Measure the test itself."""
        begun = _now()
        try:
            return (yield)
        finally:
            self._own = _plus(self._own, _minus(_now(), begun))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, None, None]:
        """Measure the teardown, which is the file's after its last test."""
        begun = _now()
        try:
            return (yield)
        finally:
            spent = _minus(_now(), begun)
            if nextitem is None or nextitem.path != item.path:
                name = _file_of(item)
                self._shared[name] = _plus(self._shared.get(name, (0.0, 0.0)), spent)
            else:
                self._own = _plus(self._own, spent)

    # First: the runner's own implementation takes the properties over into the report.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Hand the costs over, to whichever process collects the reports."""
        if call.when == "teardown":
            item.user_properties.append(
                (_KEY, [self._own, self._shared, item.stash.get(MOST, 0.0)])
            )


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _listed_as(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> str:
    if fixturedef.scope in ("session", "package"):
        return f"{fixturedef.scope}: {fixturedef.argname}"
    return str(request.node.nodeid).partition("::")[0]


class Costs:
    """Collects the costs in the process that gets all reports, and writes them."""

    def __init__(self, path: Path | None, known: Durations) -> None:
        self._path, self._known = path, known
        self._tests: dict[str, Cost] = {}
        self._shared: dict[str, Cost] = {}
        self._most: dict[str, float] = {}

    def slower(self) -> list[str]:
        """Return a line for each test that costs more than its tier allows, on this machine."""
        machine = slowness(self._tests, self._known)
        return [
            f"{nodeid}: {self._tests[nodeid][1]:.1f} CPU s, at most {most * machine:.1f}"
            for nodeid, most in self._most.items()
            if self._tests[nodeid][1] > most * machine
        ]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what one test cost, and what was set up or removed for others along with it."""
        if report.when != "teardown":
            return
        for name, cost in report.user_properties:
            if name != _KEY:
                continue
            own, shared, most = cast("tuple[Cost, dict[str, Cost], float]", cost)
            if most:
                self._most[report.nodeid] = most
            self._tests[report.nodeid] = (round(own[0], 3), round(own[1], 3))
            for key, spent in shared.items():
                self._shared[key] = _plus(self._shared.get(key, (0.0, 0.0)), spent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file, and fail the run where tests are slower than their tier."""
        if self.slower() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._path is None:
            return
        shared = {name: [round(part, 3) for part in cost] for name, cost in self._shared.items()}
        found = {"tests": self._tests, "shared": shared}
        text = json.dumps(found, indent=0, sort_keys=True)
        self._path.write_text(text + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests that are slower than their tier."""
        if slower := self.slower():
            terminalreporter.section("tests that cost more than their tier allows", red=True)
            for line in slower:
                terminalreporter.line(line)
            terminalreporter.line("Make them cheaper, or list what they cost: make durations")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--measure", type=Path, help="write what each test cost into this file")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where it is asked for; of several processes the first one collects."""
    path: Path | None = config.getoption("measure")
    if path is None and config.getoption("tier", default=None) != "all":
        return
    config.pluginmanager.register(Meter(), "meter")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs(path, load_durations()), "costs")
