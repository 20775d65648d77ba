"""The lake's storage goes away during an export and comes back: exactly once, and nothing partial.

The errors are a real file system's: where the table's directory was there is a file for a while.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pytest

from tableformat.effects import Effects, Step
from tableformat.errors import TableFormatError
from tableformat.export.request import ExportOptions
from tableformat.export.slices import Slice
from tableformat.history import Counter
from tableformat.ledger import State
from tests.support.scenarios import AtStep, RealFiles, ports_of, pyiceberg, rows_in_main, run
from tests.support.scene import TTL, TWO_FILES, Scene


class Storage:
    """The directory of the table, which may be away."""

    def __init__(self, directory: Path) -> None:
        self._place = directory / "warehouse" / "n" / "t"
        self._aside = directory / "warehouse" / "n" / "t is away"

    def leave(self) -> None:
        self._place.rename(self._aside)
        self._place.touch()

    def come_back(self) -> None:
        self._place.unlink()
        self._aside.rename(self._place)


class WritesOne(RealFiles):
    """A writer whose storage goes away when it has finished one file."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    def content(self, piece: Slice) -> bytes:
        if self.written == 2:
            self._storage.leave()
        return super().content(piece)


def interrupted(
    scene: Scene, writer: RealFiles, storage: Storage, effects: Effects | None
) -> list[str]:
    """Run the command, which meets a storage that is away; return the status words it says."""
    scene.writers.append(writer)
    ports = ports_of(scene.directory, scene.source, effects=effects, clock=lambda: scene.now)
    found: list[str] = []
    with contextlib.closing(ports.ledger), contextlib.suppress(TableFormatError):
        outcomes = run(
            scene.directory,
            scene.source,
            ports=replace(ports, writer=lambda: writer),
            request=replace(scene.request, options=ExportOptions(manifest_ttl=TTL)),
            meddled=True,
        )
        found = [o.status.value for o in outcomes]
    storage.come_back()
    return found


def assert_whole(scene: Scene) -> None:
    """Check that readers see each row once, and that every file that is there was finished."""
    (row, table) = scene.row, pyiceberg(scene.directory)
    assert table.scan().to_arrow().num_rows == 12
    assert (row.state, len(row.landed)) == (State.COMPLETED, 1)
    data = Path(urlparse(table.location()).path) / "data"
    there = {p.name for p in data.rglob("*") if p.is_file()}
    assert there == {t.file.file_path.rsplit("/", 1)[-1] for t in table.scan().plan_files()}


@pytest.mark.parametrize(
    "step",
    [
        Step.CLAIM,
        Step.WRITE_FILES,
        Step.CHECK_FILES,
        Step.NOTE_WRITTEN,
        Step.NOTE_GROUP,
        Step.STAGE,
        Step.SEND,
        Step.SETTLE,
    ],
)
def test_whatever_meets_it_the_same_command_completes_the_export(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: rows twice or lost, or files written again, after an outage."""
    scene, storage = Scene(tmp_path, request=TWO_FILES), Storage(tmp_path)
    # The table's own first, empty snapshot is staged, too.
    effects = AtStep(step, storage.leave, nth=2 if step is Step.STAGE else 1)

    statuses = interrupted(scene, RealFiles(), storage, effects)

    landed = step is Step.SETTLE
    assert statuses == (
        ["committed"] if landed else ["unknown"] if step is Step.SEND else ["failed"]
    )
    assert rows_in_main(tmp_path) == (12 if landed else 0)
    assert scene.run()[0] == ("already_exported" if landed else "committed")
    assert scene.writers[-1].written == (2 if step in {Step.CLAIM, Step.WRITE_FILES} else 0)
    assert_whole(scene)


def test_the_file_that_was_finished_before_it_is_kept(tmp_path: Path) -> None:
    """Harm prevented: an outage at the end of a long export restarts it."""
    scene, storage = Scene(tmp_path, request=TWO_FILES), Storage(tmp_path)

    statuses = interrupted(scene, WritesOne(storage), storage, None)

    assert statuses == ["failed"]
    assert rows_in_main(tmp_path) == 0
    with scene.ledger() as ledger:
        assert dict(ledger.counters())[Counter.FAILURES] == 2
        assert ledger.holder(scene.row.key.hash) is None
    assert "Not a directory" in scene.row.last_error
    assert scene.run() == ("committed", "")
    assert scene.writers[-1].written == 1
    assert_whole(scene)
