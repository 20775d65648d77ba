"""Two and three jobs on the same partitions at once, in every order: rows once, true answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tableformat.effects import Step
from tests.scenarios import Partitions, Script, assert_exported_once, run, statuses

if TYPE_CHECKING:
    from pathlib import Path

_HONEST = {"committed", "already_exported", "unchanged", "in_progress"}


def _steps(directory: Path) -> list[Step]:
    recorder = Script(-1, lambda: None)
    run(directory, Partitions(), effects=recorder)
    return recorder.steps


@pytest.fixture(scope="module")
def number_of_steps(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return how many effects a first export of two partitions has."""
    return len(_steps(tmp_path_factory.mktemp("steps")))


def test_a_paused_owner_that_wakes_after_another_run_finished(
    tmp_path: Path, number_of_steps: int
) -> None:
    """Harm prevented: rows twice, or a false answer, when two runs meet at any step."""
    bad = []
    for number in range(number_of_steps):
        directory = tmp_path / str(number)
        source, inner = Partitions(), []
        script = Script(number, lambda d=directory, s=source, i=inner: i.extend(run(d, s)))
        outer = run(directory, source, effects=script)
        assert_exported_once(directory, source)
        if not {*statuses(outer), *statuses(inner)} <= _HONEST:
            bad.append((number, script.steps[number], outer, inner))
    assert not bad, bad
