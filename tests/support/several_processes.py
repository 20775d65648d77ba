"""What `make test` needs because it runs the tests in several processes at once (pytest-xdist).

A plugin of pytest, loaded by pyproject.toml. A file's tests stay in one process, where they share
what they start. What processes could take from each other is of one of them alone (directories,
ports) or is made before the first test (Makefile): no test waits for another process.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

__all__ = ["ports_of_process"]


def ports_of_process(ports: range) -> range:
    """Return those ports of a range that are this process's alone.

    A server that a test ended has its port again when it starts: another process may not have taken
    it meanwhile.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # One that takes the place of a process that died has a number above; that run has failed.
    return ports[number % count :: count]


class LostProcesses:
    """Fails the run when a process died, also one that died between two tests or after the last."""

    def __init__(self) -> None:
        self.lost: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Note a process that ended, unless it got a request and did so in good order."""
        if error:
            self.lost.append(f"{node.gateway.id}: {error}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let nobody take what is left of such a run for all of it."""
        if self.lost and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which process, and how it ended."""
        if self.lost:
            terminalreporter.section("processes of the tests that died", red=True)
            for one in self.lost:
                terminalreporter.line(one)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the processes of a run that has some."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LostProcesses(), "lost-processes")
