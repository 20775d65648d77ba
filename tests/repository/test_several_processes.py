"""Processes that run the tests take nothing from each other, and none is lost unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.source_files import ROOT
from tests.support.several_processes import ports_of_process

DIES_IN_A_TEST = "import os\n\ndef test_dies(): os._exit(3)\n"
DIES_AFTER_THE_LAST = """
import os, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        os._exit(3)
"""
WELL = "def test_well(): pass\n"


def run(directory: Path, **files: str) -> subprocess.CompletedProcess[str]:
    """Run tests in several processes, as the Makefile does."""
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (options,) = (line for line in makefile.splitlines() if line.startswith("AT_ONCE := "))
    own = ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT")
    inherited = {name: text for name, text in os.environ.items() if name not in own}
    path = os.pathsep.join(one for one in (str(ROOT), os.environ.get("PYTHONPATH")) if one)
    words = [
        "-p",
        "tests.support.several_processes",
        "-p",
        "no:cacheprovider",
        *options.split()[2:],
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        capture_output=True,
        cwd=directory,
        env=inherited | {"PYTHONPATH": path},
        text=True,
    )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"test_b": DIES_IN_A_TEST}, "crashed while running 'test_b.py"),
        ({"conftest": DIES_AFTER_THE_LAST, "test_b": WELL}, "processes of the tests that died"),
    ],
    ids=["in a test", "after the last"],
)
def test_a_process_that_dies_fails_the_run(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    """Harm prevented: the tests that it had left, or their teardown, are taken for done."""
    ended = run(tmp_path, test_a=WELL, **files)

    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert expected in ended.stdout


def test_each_process_has_ports_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Harm prevented: a server that a test ended finds its port taken when it starts again."""
    every = range(100, 200)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    alone = ports_of_process(every)
    found = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
        found.append(set(ports_of_process(every)))

    assert alone == every
    assert found[0] | found[1] == set(every)
    assert not found[0] & found[1]
