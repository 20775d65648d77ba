"""The benchmark of a short export from cold, once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.nightly
def test_one_pair_is_measured_with_the_time_of_java() -> None:
    """Harm prevented: the time of processes that outlive the command is not counted."""
    program = [sys.executable, "-m", "tests.bench.cold_start", "--pairs", "1", "--rows", "10"]

    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)

    wall, cpu = (line.split() for line in done.stdout.splitlines())
    assert (wall[0], cpu[0]) == ("wall", "CPU")
    assert min(float(cpu[1]), float(cpu[4])) > 3
