"""The state table of an export key, one test per cell: what is reported, in main, and written.

What is expected stands in `tests/support/state_table.py`. A cell is a state of the key's ledger
row, what became of its rows in main, and what the source partition holds when the command is run
again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.effects import Effects, Step
from tableformat.export.request import ExportOptions
from tableformat.ledger import Row, State
from tests.faults.test_operator_actions import compact, delete_rows, roll_back
from tests.support.dying import Dies, KilledAt
from tests.support.other_engines import rewrite
from tests.support.scenarios import AtStep, parts_of, pyiceberg, rows_in_main
from tests.support.scene import TTL, Lightly, Scene, move
from tests.support.state_table import CELLS, Cell

FORCED = ExportOptions(force=True)


def _stopped() -> None:
    raise Dies


def _end_row(scene: Scene, how: State) -> None:
    """Write a final state into the row, as the command that kills an export will."""
    with scene.ledger() as ledger:
        assert isinstance(ledger.write(replace(scene.row, state=how)), Row)


def _begun(scene: Scene, main: str, effects: Effects) -> None:
    """Leave an export that did not end: the first one, or a replacement of one that is whole."""
    if main == "whole":
        scene.run()
        scene.source.by_id["p1"] = parts_of("p1", 7, 6)
        scene.dies(effects, FORCED)
    elif main == "unsettled":
        scene.dies(KilledAt(Step.SETTLE))
    else:
        scene.dies(effects)


_MAIN: dict[str, Callable[[Path], None]] = {
    "whole": lambda _: None,
    "rolled back": roll_back,
    "earlier": lambda directory: move(directory, 2),
    "compacted": rewrite,
    "overwritten": compact,
    "rows deleted": delete_rows,
    "gone": lambda directory: pyiceberg(directory).delete(),
}


def prepare(scene: Scene, of_key: str, main: str) -> None:
    """Bring the key's row and main into a state."""
    if of_key == "never":
        return
    if of_key in ("alive", "dead"):
        _begun(scene, main, KilledAt(Step.WRITE_FILES, after=True))
    elif of_key == "interrupted":
        _begun(scene, main, AtStep(Step.WRITE_FILES, _stopped, after=True))
    elif of_key in ("killed", "failed"):
        _begun(scene, main, KilledAt(Step.WRITE_FILES, after=True))
        _end_row(scene, State[of_key.upper()])
    elif main == "unsettled":
        scene.dies(KilledAt(Step.SETTLE))
    else:
        if main == "earlier":
            scene.source.by_id["p1"] = parts_of("p1", 7)
            scene.run()
            scene.source.by_id["p1"] = parts_of("p1", 7, 5)
            scene.run(FORCED)
        else:
            scene.run()
        _MAIN[main](scene.directory)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Scene]:
    """Return scenes by state of the key and of main, made once and copied back for each test."""
    root = tmp_path_factory.mktemp("state")
    made: dict[tuple[str, str], Scene] = {}

    def scene(of_key: str, main: str) -> Scene:
        # Metadata names its files by their absolute paths.
        place, kept = root / f"{of_key}-{main}", root / f"kept {of_key}-{main}"
        if (of_key, main) not in made:
            place.mkdir()
            made[of_key, main] = Scene(place)
            prepare(made[of_key, main], of_key, main)
            shutil.copytree(place, kept)
        shutil.rmtree(place)
        shutil.copytree(kept, place)
        source = made[of_key, main].source
        held = {name: list(parts) for name, parts in source.by_id.items()}
        copy = Lightly(by_id=held, snapshots=source.snapshots, left=dict(source.left))
        return Scene(place, copy, made[of_key, main].now)

    return scene


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: f"{c.of_key}-{c.main}-{c.content}")
def test_a_cell_of_the_table(prepared: Callable[[str, str], Scene], cell: Cell) -> None:
    """Harm prevented: a wrong outcome, rows twice or none, or work that is done again."""
    scene = prepared(cell.prepared, cell.main)
    before = 0 if cell.of_key == "never" else scene.snapshots
    scene.source.change(cell.content)
    if cell.of_key not in ("inside TTL", "alive"):
        scene.after_ttl()
    options = ExportOptions(
        manifest_ttl=TTL,
        force=cell.of_key in ("forced", "emptied", "everything"),
        allow_empty=cell.of_key == "emptied",
        replace_partition=cell.of_key == "everything",
    )

    status, says = scene.run(options, alive=cell.of_key == "alive")

    nothing = cell.of_key == "never" and status == "not found"
    assert cell == replace(
        cell,
        status=status,
        says=says,
        rows=0 if nothing else rows_in_main(scene.directory),
        snapshots=0 if nothing else scene.snapshots - before,
        files=scene.files,
    )
