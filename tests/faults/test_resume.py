"""An abandoned run is resumed: finished files are kept, each row is exported exactly once.

A file is finished when its receipt is stored; a partition here has two files, of 7 and 5 rows,
unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlparse

import pytest

from catalog.storages.local import LocalStorage
from tableformat.effects import Step
from tableformat.errors import DeniedError, SourceError
from tableformat.export.request import AllPartitions, ById
from tableformat.export.slices import FileFormat
from tableformat.ledger import State
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import Simple
from tableformat.names import PartitionId
from tests.support.dying import KilledAt
from tests.support.fakes import TABLE
from tests.support.scenarios import (
    AtStep,
    parts_of,
    pyiceberg,
    row_of,
    rows_by_key,
    rows_in_main,
    state,
)
from tests.support.scene import TWO_FILES, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a scene in which a partition becomes two files."""
    return Scene(tmp_path, request=TWO_FILES)


def files_in_main(directory: Path) -> set[str]:
    """Return the names of the data files of main."""
    tasks = pyiceberg(directory).scan().plan_files()
    return {task.file.file_path.rsplit("/", 1)[-1] for task in tasks}


def stored(directory: Path, suffix: str) -> list[Path]:
    """Return the data files, or the receipts, below the table; the larger of two files first."""
    root = Path(urlparse(state(directory).location).path)
    found = root / ("data" if suffix == "parquet" else "metadata/mergeberg")
    return sorted(found.rglob(f"*.{suffix}"), key=lambda p: (-p.stat().st_size, p.name))


def assert_whole(scene: Scene, rows: int = 12, files: int = 2) -> None:
    """Check that main holds the partition once, and that nothing is left in the source."""
    row = scene.row
    assert (rows_in_main(scene.directory), len(files_in_main(scene.directory))) == (rows, files)
    assert (row.state, row.last.rows, len(row.landed)) == (State.COMPLETED, rows, 1)
    assert scene.source.left == {}


_WRITTEN = [
    (Step.WRITE_FILES, True),
    (Step.NOTE_WRITTEN, False),
    (Step.NOTE_WRITTEN, True),
    (Step.STAGE, False),
    (Step.STAGE, True),
    (Step.SEND, False),
]


@pytest.mark.parametrize(("step", "after"), _WRITTEN)
def test_files_that_were_written_are_committed_by_the_next_run(
    scene: Scene, step: Step, *, after: bool
) -> None:
    """Harm prevented: hours of writing are done again because the driver died at the end."""
    # The table's own first, empty snapshot is staged, too.
    scene.dies(KilledAt(step, after=after, nth=2 if step is Step.STAGE else 1))
    begun, written = scene.row.claim, {p.name for p in stored(scene.directory, "parquet")}

    assert scene.run() == ("committed", "")

    assert scene.files == 2
    assert files_in_main(scene.directory) == written
    assert scene.row.last.transaction_id == begun.transaction_id
    assert scene.row.last.epoch > begun.epoch
    assert_whole(scene)


def test_an_export_that_landed_is_not_resumed(scene: Scene) -> None:
    """Harm prevented: the files of a landed export are committed a second time."""
    scene.dies(KilledAt(Step.SEND, after=True))

    assert scene.run() == ("already_exported", "12 rows in the lake, snapshot S2.")
    assert scene.files == 2
    assert rows_in_main(scene.directory) == 12


@pytest.mark.parametrize("content", ["same", "more", "fewer", "none", "merged", "gone"])
@pytest.mark.parametrize("most", [1, 2])
def test_only_what_is_missing_is_written_whatever_becomes_of_the_source(
    scene: Scene, most: int, content: str
) -> None:
    """Harm prevented: finished files are thrown away, or joined by files of another content."""
    scene.dies(KilledAt(Step.WRITE_FILES, after=True), most=most if most == 1 else None)
    (begun, *_) = stored(scene.directory, "parquet")
    scene.source.change(content)

    status, says = scene.run()

    assert status == "committed"
    is_reported = "the snapshot of an interrupted run, with 12 rows" in says
    assert is_reported == (content not in ("same", "merged"))
    assert [w.written for w in scene.writers] == [most, 2 - most]
    assert begun.name in files_in_main(scene.directory)
    assert scene.row.old == ()
    assert_whole(scene)


def test_several_deaths_in_the_middle_of_writing_write_each_file_once(scene: Scene) -> None:
    """Harm prevented: a job that is preempted again and again never ends."""
    scene.source.by_id["p1"] = parts_of("p1", 7, 6, 5, 4)
    for _ in range(3):
        scene.dies(most=1)

    assert scene.run() == ("committed", "")

    assert [w.written for w in scene.writers] == [1, 1, 1, 1]
    assert_whole(scene, 22, 4)


def test_another_number_of_cores_changes_nothing_that_was_begun(tmp_path: Path) -> None:
    """Harm prevented: files that were finished on a large cluster are of no use on a small one."""
    (large,) = parts_of("p1", 12)
    scene = Scene(tmp_path, slots=4)
    scene.source.by_id["p1"] = [replace(large, bytes_on_disk=200 * 1024 * 1024)]
    scene.dies(most=2)
    begun = scene.row.claim
    scene.slots = 1

    assert scene.run() == ("committed", "")

    assert [w.written for w in scene.writers] == [2, 2]
    assert (scene.row.last.transaction_id, scene.row.claim.slots) == (begun.transaction_id, 4)
    assert_whole(scene, files=4)


class Left:
    """Looks, before an export is sent, for the claims and a file that were left behind.

    They stay until it has landed: a request for them may still be on its way.
    """

    def __init__(self, scene: Scene, file: Path) -> None:
        self._scene, self._file = scene, file
        self.seen: list[tuple[str, bool]] = []

    def __call__(self) -> None:
        there = self._file.exists()
        self.seen += [(claim.transaction_id, there) for claim in self._scene.row.old]


def other_size(scene: Scene) -> None:
    """Ask for another size of files."""
    scene.request = replace(scene.request, format=FileFormat(target_file_bytes=1000))


def other_schema(scene: Scene) -> None:
    """Add a column to the source, which the destination is to get."""
    column = Column("more", Simple("Int64"), "Int64")
    scene.source.table = replace(TABLE, columns=(*TABLE.columns, column))
    scene.request = replace(scene.request, evolve_schema=True)


@pytest.mark.parametrize(("change", "files"), [(other_size, 1), (other_schema, 2)])
def test_files_of_another_recipe_are_not_taken_over(
    scene: Scene, change: Callable[[Scene], None], files: int
) -> None:
    """Harm prevented: files without a column, or of two sizes, in one export."""
    scene.dies(most=1)
    begun, (first,) = scene.row.claim, stored(scene.directory, "parquet")
    change(scene)
    left = Left(scene, first)

    assert scene.run(effects=AtStep(Step.SEND, left)) == ("committed", "")

    assert scene.writers[-1].written == files
    assert first.name not in files_in_main(scene.directory)
    assert scene.row.last.transaction_id != begun.transaction_id
    assert left.seen == [(begun.transaction_id, True)]
    assert_whole(scene, files=files)


def test_old_content_in_files_of_another_recipe_is_reported_as_old(scene: Scene) -> None:
    """Harm prevented: the frozen parts are exported again, and nobody learns that they are old."""
    scene.dies(most=1)
    other_size(scene)
    scene.source.change("more")

    status, says = scene.run()

    assert status == "committed"
    assert "the snapshot of an interrupted run, with 12 rows" in says
    assert "the source has 15 now" in says
    assert_whole(scene, files=1)


def file_is_gone(directory: Path) -> None:
    """Remove a file, and leave its receipt."""
    stored(directory, "parquet")[0].unlink()


def file_is_longer(directory: Path) -> None:
    """Lengthen a file."""
    with stored(directory, "parquet")[0].open("ab") as file:
        file.write(b"x")


def byte_is_changed(directory: Path) -> None:
    """Change one byte of a file, which keeps its size."""
    path = stored(directory, "parquet")[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def receipt_is_cut(directory: Path) -> None:
    """Cut a receipt in the middle."""
    path = stored(directory, "json")[0]
    path.write_text(path.read_text()[:100])


def receipt_is_no_text(directory: Path) -> None:
    """Put bytes that are no text where a receipt was."""
    stored(directory, "json")[0].write_bytes(b"\xff\xfe")


def receipt_is_empty(directory: Path) -> None:
    """Leave nothing of a receipt."""
    stored(directory, "json")[0].write_text("")


def receipt_is_gone(directory: Path) -> None:
    """Remove a receipt, and leave its file."""
    stored(directory, "json")[0].unlink()


@pytest.mark.parametrize(
    "damage",
    [
        file_is_gone, file_is_longer, byte_is_changed, receipt_is_cut, receipt_is_no_text,
        receipt_is_empty, receipt_is_gone,
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_its_receipt_says_is_written_again(
    scene: Scene, damage: Callable[[Path], None]
) -> None:
    """Harm prevented: rows that are missing or wrong become visible."""
    scene.dies(KilledAt(Step.NOTE_WRITTEN))
    damage(scene.directory)

    assert scene.run() == ("committed", "")

    assert [w.written for w in scene.writers] == [2, 1]
    assert pyiceberg(scene.directory).scan().to_arrow().num_rows == 12
    assert_whole(scene)


@pytest.fixture
def no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the storage deny every list, as S3 without s3:ListBucket does."""

    def denied(_: LocalStorage, prefix: str) -> NoReturn:
        message = f"Cannot list {prefix}: AccessDenied."
        raise DeniedError(message)

    monkeypatch.setattr(LocalStorage, "list", denied)


@pytest.mark.usefixtures("no_list")
@pytest.mark.parametrize("content", ["same", "more", "gone"])
def test_where_no_list_is_allowed_the_snapshot_is_written_again(scene: Scene, content: str) -> None:
    """Harm prevented: an export is refused for ever, or rows that only the snapshot has are lost.

    Nobody knows which files were finished. These stay, as files that no snapshot refers to.
    """
    scene.dies(most=1)
    begun, (first,) = scene.row.claim.transaction_id, stored(scene.directory, "parquet")
    scene.source.change(content)

    assert scene.run()[0] == "committed"

    assert [w.written for w in scene.writers] == [1, 2]
    assert scene.row.last.transaction_id == begun
    assert first.name not in files_in_main(scene.directory)
    assert_whole(scene)


@pytest.mark.usefixtures("no_list")
def test_where_no_list_is_allowed_no_run_drops_the_snapshot_of_another(scene: Scene) -> None:
    """Harm prevented: files may be finished, and the only copy of the rows is dropped."""
    scene.source.by_id["p2"] = parts_of("p2", 3)
    scene.request = replace(TWO_FILES, selection=AllPartitions())
    scene.dies(most=1)
    (kept,) = scene.source.left
    scene.request = replace(TWO_FILES, selection=ById(PartitionId("p2")))

    assert scene.run() == ("committed", "")
    assert kept in scene.source.left


def test_of_two_receipts_for_one_slice_exactly_one_is_used(scene: Scene) -> None:
    """Harm prevented: two attempts at one slice both become visible."""
    scene.dies(KilledAt(Step.WRITE_FILES, after=True))
    hidden = [(path, path.read_text()) for path in stored(scene.directory, "json")]
    for path, _ in hidden:
        path.unlink()
    # No receipt at all would be an export that has finished nothing.
    hidden[0][0].write_text(hidden[0][1])
    scene.dies(KilledAt(Step.WRITE_FILES, after=True))
    for path, text in hidden:
        path.write_text(text)

    assert scene.run() == ("committed", "")

    assert [w.written for w in scene.writers] == [2, 1, 0]
    assert len(stored(scene.directory, "parquet")) == 3
    assert_whole(scene)


def test_a_clone_that_is_gone_costs_nothing_while_the_parts_are_the_same(scene: Scene) -> None:
    """Harm prevented: finished files are written again because somebody cleaned up the source."""
    scene.dies(most=1)
    begun = scene.row.claim.transaction_id
    scene.source.left.clear()

    assert scene.run() == ("committed", "")

    assert [w.written for w in scene.writers] == [1, 1]
    assert scene.row.last.transaction_id == begun
    assert_whole(scene)


@pytest.mark.parametrize(
    ("content", "rows", "files"), [("more", 15, 2), ("fewer", 7, 1), ("merged", 12, 2)]
)
def test_a_clone_that_is_gone_and_other_parts_are_a_new_export(
    scene: Scene, content: str, rows: int, files: int
) -> None:
    """Harm prevented: files of two contents become visible together."""
    scene.dies(most=1)
    begun, (first,) = scene.row.claim.transaction_id, stored(scene.directory, "parquet")
    scene.source.left.clear()
    scene.source.change(content)
    left = Left(scene, first)

    assert scene.run(effects=AtStep(Step.SEND, left)) == ("committed", "")

    assert scene.row.last.transaction_id != begun
    assert left.seen == [(begun, True)]
    assert first.name not in files_in_main(scene.directory)
    assert_whole(scene, rows, files)


def test_a_partition_that_is_gone_with_its_clone_is_reported_as_lost(scene: Scene) -> None:
    """Harm prevented: exit 0, or a partition with some of its files, where rows are gone."""
    scene.dies(most=1)
    scene.source.left.clear()
    scene.source.change("gone")

    with pytest.raises(SourceError, match="nor the snapshot of the interrupted run"):
        scene.run()

    assert rows_in_main(scene.directory) == 0
    assert scene.row.state is State.RUNNING


def test_a_partition_gone_before_its_first_file_is_reported_as_lost(
    scene: Scene,
) -> None:
    """Harm prevented: "its parts hold no rows", exit 0, of a partition whose rows are lost."""
    scene.dies(KilledAt(Step.WRITE_FILES))
    scene.source.change("gone")

    assert scene.run() == (
        "refused",
        "the source partition no longer exists, and the export that was begun finished nothing",
    )


def test_when_nothing_is_finished_the_content_of_now_is_exported(scene: Scene) -> None:
    """Harm prevented: an old content is exported although it saves no work."""
    scene.dies(KilledAt(Step.WRITE_FILES))
    assert scene.source.left
    scene.source.change("more")

    assert scene.run() == ("committed", "")
    assert_whole(scene, 15)


def test_frozen_parts_stay_until_all_that_were_begun_from_them_are_exported(scene: Scene) -> None:
    """Harm prevented: the end of one partition takes the frozen parts of another one away."""
    scene.source.by_id["p2"] = parts_of("p2", 7, 5)
    one, scene.request = scene.request, replace(scene.request, selection=AllPartitions())
    scene.dies(most=3)
    scene.source.by_id["p2"] = parts_of("p2", 1)
    scene.request = one

    assert scene.run() == ("committed", "")
    kept = len(scene.source.left)
    scene.request = replace(one, selection=AllPartitions())
    scene.run()

    assert kept == 1
    assert scene.source.left == {}
    assert [w.written for w in scene.writers] == [3, 0, 1]
    keys = [row_of(scene.directory, p).key.hash for p in ("p1", "p2")]
    assert [rows_by_key(scene.directory)[k] for k in keys] == [12, 12]


def test_frozen_parts_of_which_nothing_is_finished_are_given_back(scene: Scene) -> None:
    """Harm prevented: the source's disk fills with parts that no export needs."""
    scene.source.by_id["p2"] = parts_of("p2", 1)
    one, scene.request = scene.request, replace(scene.request, selection=AllPartitions())
    scene.dies(most=2)
    scene.request = one

    assert scene.run() == ("committed", "")
    assert scene.source.left == {}


def test_a_partition_that_is_lost_does_not_stop_the_others(scene: Scene) -> None:
    """Harm prevented: one that was dropped after it was listed keeps ninety-nine from the lake."""
    scene.dies(most=1)
    scene.source.left.clear()
    scene.request = replace(scene.request, selection=AllPartitions())

    status, says = scene.run(effects=AtStep(Step.SWEEP_SOURCE, lambda: scene.source.change("gone")))

    assert (status, rows_in_main(scene.directory)) == ("failed", 3)
    assert "nor the snapshot of the interrupted run" in says
