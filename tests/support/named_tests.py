"""After a whole run: every test that a requirement names has run and passed.

A plugin of pytest, loaded by pyproject.toml. A test that is there and did not run proves nothing.
Of `make test`, which leaves tests to `make test-all`, those are asked for that it did not leave. No
case of a named test may be left to `make soak`, which nobody runs before a change lands. A run of a
part (paths, -k, -m) is asked about nothing, because it says itself that it is one.
"""

from __future__ import annotations

import pytest

from conformance.requirements import load_requirements
from tests.support.tiers import Selection


class NamedTests:
    """Collects what passed, and fails the run when a named test is not among it."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.missing: list[str] = []
        self.soaking: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one test; of a parametrised one every case counts."""
        name = report.nodeid.partition("[")[0]
        if report.when == "call" and report.outcome == "passed":
            self.passed.add(name)
        elif report.outcome != "passed":
            self.failed.add(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare, once every test has reported."""
        named = load_requirements().named_tests()
        left = self._selection.left.keys() - self.failed
        self.missing = sorted(named - (self.passed - self.failed) - left)
        self.soaking = sorted(named & self._selection.soaking)
        if (self.missing or self.soaking) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which requirements are not proved."""
        if self.missing or self.soaking:
            terminalreporter.section("requirements that are not proved", red=True)
        for name in self.missing:
            terminalreporter.line(f"named in conformance/requirements.toml, not passed: {name}")
        for name in self.soaking:
            terminalreporter.line(f"named in conformance/requirements.toml, marked soak: {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Watch whole runs only, where all reports of a run come together."""
    option = config.option
    part = option.keyword or option.markexpr or option.deselect or option.collectonly
    if (
        not part
        and not hasattr(config, "workerinput")
        and not config.getoption("lf", default=False)
        and config.getoption("tier", default=None) in (None, "test", "all")
        and config.args_source is not pytest.Config.ArgsSource.ARGS
    ):
        selection = config.pluginmanager.get_plugin("tiers")
        assert isinstance(selection, Selection)
        config.pluginmanager.register(NamedTests(selection), "named-tests")
