"""Each test is of `make test` or of `make soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.source_files import ROOT

TESTS = """
import pytest

def test_of_every_run(): pass

@pytest.mark.soak
def test_of_the_long_run(): pass
"""


@pytest.mark.parametrize(
    ("options", "runs"), [([], "test_of_every_run"), (["--soak"], "test_of_the_long_run")]
)
def test_a_test_is_run_by_one_of_both(tmp_path: Path, options: list[str], runs: str) -> None:
    """Harm prevented: a test that no command runs."""
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    soak: long\n")
    words = ["-p", "tests.soak_alone", "-p", "no:cacheprovider", "-p", "no:randomly", "-v"]

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *options, str(tmp_path)],
        check=False,
        capture_output=True,
        cwd=ROOT,
        text=True,
    )

    passed = [line for line in ended.stdout.splitlines() if "PASSED" in line]
    assert [line.partition("::")[2].split()[0] for line in passed] == [runs], ended.stdout
    assert "1 passed, 1 deselected" in ended.stdout
