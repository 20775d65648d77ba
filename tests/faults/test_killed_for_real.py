"""SIGKILL at a seam of a real export: a real ClickHouse, Spark, SQLite; all seams: make soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableformat.effects import Step
from tests.enumeration.real import WHOLE, prepare, strike, undisturbed


@pytest.mark.spark
def test_an_export_that_is_killed_while_it_commits_is_finished_by_the_next(tmp_path: Path) -> None:
    """Harm prevented: rows twice, or a partition that stays half done, after a power cut."""
    prepare(tmp_path)
    steps, of_one_run = undisturbed(tmp_path)

    of_two = strike(tmp_path, steps.index(Step.SEND), Step.SEND)

    assert of_one_run == of_two == WHOLE
