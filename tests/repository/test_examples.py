"""A commit's gate tries the same examples in every run; all other runs look for new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.source_files import ROOT

TESTS = """
from hypothesis import given, settings, strategies as st

@given(st.integers(), st.binary())
@settings(max_examples=20)
def test_of_examples(number, data): print("tried", number, data)
"""


def tried(directory: Path, *options: str) -> list[str]:
    """Run the test above; return the examples that it tried."""
    (directory / "test_a.py").write_text(TESTS)
    (directory / "pytest.ini").write_text("[pytest]\n")
    plugins = ["-p", "tests.support.tiers", "-p", "tests.support.examples", "-p", "no:randomly"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-s", *options, str(directory)],
        check=True,
        capture_output=True,
        cwd=ROOT,
        env=os.environ | {"CI": "true"},  # Hypothesis takes a profile of its own in a CI
        text=True,
    )
    return [line for line in ended.stdout.splitlines() if "tried" in line]


@pytest.mark.parametrize("tier", ["check", "test"])
def test_a_gate_tries_the_same_examples_in_every_run(tmp_path: Path, tier: str) -> None:
    """Harm prevented: a commit that is green for its author and red for the next one."""
    first = tried(tmp_path, "--tier", tier)

    assert first
    assert tried(tmp_path, "--tier", tier) == first


@pytest.mark.parametrize(
    "options", [("--tier", "all"), (), ("--tier", "test", "--hypothesis-seed", "7")]
)
def test_other_runs_look_for_new_examples(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Harm prevented: a fault that no example of the gate shows is never found."""
    assert tried(tmp_path, *options) != tried(tmp_path, "--tier", "test")
