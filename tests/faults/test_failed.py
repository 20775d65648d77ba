"""FAILED: the everyday failure keeps everything for the next run, the final one leaves nothing.

The final one is written after a certain conflict only: the table is not any more what the files
were written for, and nothing that was sent can land (docs/spec/commit-protocol.md, step 9).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tableformat.effects import Step
from tableformat.errors import DestinationError
from tableformat.ledger import State
from tests.faults.test_operator_actions import add_column
from tests.support.dying import DiesAt
from tests.support.scenarios import AtStep, rows_in_main
from tests.support.scene import TWO_FILES, Scene

T = TypeVar("T")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a scene whose partition becomes two files."""
    return Scene(tmp_path, request=TWO_FILES)


def data_files(scene: Scene) -> list[str]:
    """Return the data files and receipts that lie there, of whatever export."""
    root = scene.directory / "warehouse"
    found = [*root.rglob("*.parquet"), *(p for p in root.rglob("*.json") if "mergeberg" in p.parts)]
    return sorted(p.name for p in found if "groups" not in p.parts)


def conflict(scene: Scene) -> AtStep:
    """Return effects in which the table gets another schema before the request is staged."""
    return AtStep(Step.NOTE_GROUP, lambda: add_column(scene.directory))


def test_a_certain_conflict_is_final_and_its_files_go(scene: Scene) -> None:
    """Harm prevented: files that can never be used stay, and their row says that it runs."""
    status, says = scene.run(None, conflict(scene))

    assert status == "failed"
    assert "not committed: the table changed between plan and commit: schema id" in says
    assert says.endswith("(2 files of it removed)")
    row = scene.row
    assert row.state is State.FAILED
    assert "schema id" in row.last_error
    assert "given up: nothing sent before snapshot" in row.last_error
    assert data_files(scene) == []
    assert scene.source.left == {}
    with scene.ledger() as ledger:
        assert ledger.holder(row.key.hash) is None


def test_after_a_final_failure_the_same_command_exports_again(scene: Scene) -> None:
    """Harm prevented: a failure that can never be left again."""
    scene.run(None, conflict(scene))
    failed = scene.row.claim.transaction_id

    assert scene.run() == ("committed", "")

    assert rows_in_main(scene.directory) == 12
    row = scene.row
    assert row.state is State.COMPLETED
    assert row.claim.transaction_id != failed
    assert len(data_files(scene)) == 4


def test_a_death_while_it_is_given_up_leaves_it_to_the_next_run(tmp_path: Path) -> None:
    """Harm prevented: half given up, files are missing that a resumed export commits."""
    recorded = Scene(tmp_path / "recorded", request=TWO_FILES)
    effects = _Conflicting(recorded, 10_000)
    recorded.run(None, effects)
    # The second claim is that of giving up; to die after one effect is to die before the next.
    first, begun = (n for n, step in enumerate(effects.dying.steps) if step is Step.CLAIM)
    assert first < effects.dying.steps.index(Step.NOTE_GROUP) < begun
    for number in range(begun, len(effects.dying.steps)):
        scene = Scene(tmp_path / str(number), request=TWO_FILES)
        scene.dies(_Conflicting(scene, number))
        assert rows_in_main(scene.directory) == 0

        assert scene.run() == ("committed", "")
        assert rows_in_main(scene.directory) == 12


class _Conflicting:
    """The conflict, and a death at the effect of a number."""

    def __init__(self, scene: Scene, number: int) -> None:
        self.dying, self._conflict = DiesAt(number, after=False), conflict(scene)

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        return self.dying(step, lambda: self._conflict(step, act))


@pytest.mark.parametrize("step", [Step.WRITE_FILES, Step.CHECK_FILES, Step.NOTE_GROUP, Step.STAGE])
def test_any_other_failure_keeps_files_epoch_and_error_and_is_resumed(
    scene: Scene, step: Step
) -> None:
    """Harm prevented: an error of the store costs the files that are finished."""

    def fail() -> None:
        message = "Cannot write: the disk is full. Make room."
        raise DestinationError(message)

    status, says = scene.run(
        None, AtStep(step, fail, after=step is Step.WRITE_FILES, nth=2 if step is Step.STAGE else 1)
    )

    assert (status, says) == ("failed", "Cannot write: the disk is full. Make room.")
    row = scene.row
    assert (row.state, row.last_error) == (State.RUNNING, says)
    assert len(data_files(scene)) == 4
    with scene.ledger() as ledger:
        assert ledger.holder(row.key.hash) is None
    assert scene.run() == ("committed", "")
    assert scene.files == 2
    assert scene.row.claim.transaction_id == row.claim.transaction_id
