"""After a whole run: every test that a requirement names has run and passed.

A plugin of pytest, loaded by pyproject.toml. A test that is there and did not run proves nothing. A
run of a part (paths, -k, -m) is asked about nothing, because it says itself that it is one.
"""

from __future__ import annotations

import pytest

from conformance.requirements import load_requirements


class NamedTests:
    """Collects what passed, and fails the run when a named test is not among it."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.missing: list[str] = []

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
        proved = self.passed - self.failed
        self.missing = sorted(load_requirements().named_tests() - proved)
        if self.missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which requirements are not proved."""
        if self.missing:
            terminalreporter.section("requirements that are not proved", red=True)
            for name in self.missing:
                terminalreporter.line(f"named in conformance/requirements.toml, not passed: {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Watch whole runs only, where all reports of a run come together."""
    option = config.option
    part = option.keyword or option.markexpr or option.deselect or option.collectonly
    if (
        not part
        and not hasattr(config, "workerinput")
        and not config.getoption("lf", default=False)
        and config.args_source is not pytest.Config.ArgsSource.ARGS
    ):
        config.pluginmanager.register(NamedTests(), "named-tests")
