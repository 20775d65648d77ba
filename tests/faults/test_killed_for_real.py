"""SIGKILL at a seam of a real export: a real ClickHouse, Spark, SQLite; all seams: make soak.

The seam is the hardest one: the rows are in the table, and the ledger does not know it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tableformat.effects import Step
from tests.enumeration.real import WHOLE, prepare, strike

pytestmark = pytest.mark.nightly


@pytest.mark.spark
def test_an_export_that_is_killed_while_it_commits_is_finished_by_the_next(tmp_path: Path) -> None:
    """Harm prevented: rows twice, or a partition that stays half done, after a power cut."""
    prepare(tmp_path)

    left = strike(tmp_path, Step.SEND, Step.SEND, "after")

    assert left == WHOLE
