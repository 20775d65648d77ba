"""Compaction by another engine keeps the rows of an export, and what mergeberg says of it.

A snapshot of the operation `replace` has the rows that were there before. What such a snapshot
says of its files is compared; what does not fit is *changed by others*, as before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation

from tableformat.effects import Effects, Step
from tableformat.export.request import ExportOptions
from tests.faults.test_operator_actions import append
from tests.support.dying import KilledAt
from tests.support.other_engines import delete_first_row, rewrite
from tests.support.scenarios import pyiceberg, rows_in_main
from tests.support.scene import TTL, TWO_FILES, Scene, move

T = TypeVar("T")
FORCED = ExportOptions(force=True, manifest_ttl=TTL)
WHOLE_PARTITION = ExportOptions(force=True, replace_partition=True, manifest_ttl=TTL)
compact = partial(rewrite, operation=Operation.REPLACE)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a scene in which the partition was exported into two files of 12 rows."""
    made = Scene(tmp_path, request=TWO_FILES)
    assert made.run() == ("committed", "")
    return made


def files(directory: Path) -> list[DataFile]:
    return sorted(
        (task.file for task in pyiceberg(directory).scan().plan_files()),
        key=lambda file: file.record_count,
    )


def first_file(directory: Path) -> Callable[[str], bool]:
    """Return which path is that of the smallest file."""
    path = files(directory)[0].file_path
    return lambda one: one == path


def test_after_a_compaction_the_partition_is_exported_and_unchanged(scene: Scene) -> None:
    """Harm prevented: every exported partition is refused once a platform compacts the table."""
    text = "12 rows in the lake, snapshot S2; their files were rewritten by snapshot S3 (replace)."
    compact(scene.directory)

    assert scene.run() == ("already_exported", text)
    scene.after_ttl()
    assert scene.run() == ("unchanged", text)
    assert rows_in_main(scene.directory) == 12


def test_a_compaction_of_some_files_counts_with_those_that_are_left(scene: Scene) -> None:
    compact(scene.directory, first_file(scene.directory))
    assert scene.run()[0] == "already_exported"
    compact(scene.directory)
    assert scene.run()[0] == "already_exported"


def test_rows_of_others_may_come_into_the_same_files(scene: Scene) -> None:
    append(scene.directory)
    compact(scene.directory)

    assert scene.run()[0] == "already_exported"


@pytest.mark.parametrize("options", [None, FORCED])
def test_other_content_replaces_the_rewritten_files(
    scene: Scene, options: ExportOptions | None
) -> None:
    """Harm prevented: the new rows next to the old ones, which no name in main shows."""
    compact(scene.directory)
    scene.source.change("more")
    scene.after_ttl()

    assert scene.run(options) == ("replaced", "")

    assert rows_in_main(scene.directory) == 15
    assert scene.run()[0] == "already_exported"


EFFECTS = 30
"""The effects of a replacement while nobody else works on the table."""


def before_effect(steps: list[Step], number: int, act: Callable[[], object]) -> Effects:
    """Return effects that note their steps, and do something before the one of a number."""

    def noted(step: Step, effect: Callable[[], T], /) -> T:
        if len(steps) == number:
            act()
        steps.append(step)
        return effect()

    return noted


def test_a_replacement_has_so_many_effects(scene: Scene) -> None:
    """So the next test has a case for each of them, and none for nothing."""
    scene.source.change("more")
    scene.after_ttl()
    steps = list[Step]()

    assert scene.run(effects=before_effect(steps, -1, lambda: None)) == ("replaced", "")

    assert len(steps) == EFFECTS


@pytest.mark.parametrize("act", [compact, rewrite], ids=["replace", "overwrite"])
@pytest.mark.parametrize("number", range(EFFECTS))
def test_others_rewrite_the_old_files_between_plan_and_commit(
    scene: Scene, act: Callable[[Path], None], number: int
) -> None:
    """Harm prevented: the plan's files are gone, and old and new rows are in main."""
    scene.source.change("more")
    scene.after_ttl()

    effects = before_effect([], number, lambda: act(scene.directory))
    status, _ = scene.run(effects=effects, meddled=True)

    assert rows_in_main(scene.directory) == (15 if status == "replaced" else 12)
    if act is compact:
        assert scene.run()[0] in {"replaced", "already_exported"}
        assert rows_in_main(scene.directory) == 15


def test_fewer_rows_replace_the_rewritten_files_only_by_force(scene: Scene) -> None:
    compact(scene.directory)
    scene.source.change("fewer")
    scene.after_ttl()

    status, message = scene.run()

    assert (status, rows_in_main(scene.directory)) == ("refused", 12)
    assert message.startswith("main holds 12 rows of it, the source 7 now")
    assert scene.run(FORCED) == ("replaced", "")
    assert rows_in_main(scene.directory) == 7


def test_files_with_rows_of_others_are_replaced_only_as_a_whole_partition(scene: Scene) -> None:
    """Harm prevented: rows of another writer leave with those of the export."""
    append(scene.directory)
    compact(scene.directory)
    before = rows_in_main(scene.directory)
    scene.source.change("more")
    scene.after_ttl()

    for options in (None, FORCED):
        status, message = scene.run(options)
        assert status == "refused"
        assert message.endswith(
            "(replace). Use --force --replace-partition to replace all rows of the lake "
            "partition, also those of other writers."
        )
    assert rows_in_main(scene.directory) == before
    assert scene.run(WHOLE_PARTITION)[0] == "replaced"
    assert rows_in_main(scene.directory) == 15


def test_a_source_that_is_gone_stays_exported(scene: Scene) -> None:
    compact(scene.directory)
    scene.source.change("gone")

    status, message = scene.run()

    assert status == "already_exported"
    assert message.startswith("the source partition no longer exists; 12 rows in the lake")


def drop_rows(directory: Path) -> None:
    compact(directory, copies=lambda number: number)


def double_rows(directory: Path) -> None:
    compact(directory, copies=lambda number: number + 1)


def overwrite(directory: Path) -> None:
    rewrite(directory)


def delete_a_row_afterwards(directory: Path) -> None:
    compact(directory)
    delete_first_row(pyiceberg(directory), files(directory)[0])


def remove_a_file_afterwards(directory: Path) -> None:
    compact(directory)
    table = pyiceberg(directory)
    with table.transaction() as change, change.update_snapshot().overwrite() as update:
        update.delete_data_file(files(directory)[0])


def overwrite_afterwards(directory: Path) -> None:
    compact(directory)
    rewrite(directory)


def put_an_old_file_back(directory: Path) -> None:
    old = files(directory)[0]
    compact(directory)
    table = pyiceberg(directory)
    with table.transaction() as change, change.update_snapshot().fast_append() as update:
        update.append_data_file(old)


@pytest.mark.parametrize(
    "act",
    [
        drop_rows,
        double_rows,
        overwrite,
        delete_a_row_afterwards,
        remove_a_file_afterwards,
        overwrite_afterwards,
        put_an_old_file_back,
    ],
)
def test_what_may_have_changed_rows_is_changed_by_others(
    scene: Scene, act: Callable[[Path], None]
) -> None:
    """Harm prevented: rows that somebody lost or doubled are called exported and unchanged."""
    act(scene.directory)
    before = rows_in_main(scene.directory)
    scene.after_ttl()

    for options in (None, FORCED):
        status, message = scene.run(options)
        assert status == "refused"
        assert "its files were changed since by snapshot" in message
    assert rows_in_main(scene.directory) == before


def expire(directory: Path) -> None:
    """Let all snapshots expire but the current one."""
    table = pyiceberg(directory)
    main = table.metadata.current_snapshot_id
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != main]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def test_the_proof_outlives_the_snapshots(scene: Scene) -> None:
    """Harm prevented: the guarantees end when a platform expires snapshots after five days."""
    compact(scene.directory)
    scene.after_ttl()
    scene.run()
    assert scene.row.rewritten
    expire(scene.directory)
    assert len(pyiceberg(scene.directory).metadata.snapshots) == 1

    status, message = scene.run()
    assert status == "unchanged"
    assert message.startswith("12 rows in the lake, snapshot ")
    assert message.endswith("(replace).")
    for _ in range(2):
        compact(scene.directory)
        assert scene.run()[0] == "unchanged"
        expire(scene.directory)
    assert scene.run()[0] == "unchanged"
    assert rows_in_main(scene.directory) == 12
    remove_a_file(scene.directory)
    assert scene.run()[0] == "refused"


def test_without_a_run_before_the_snapshots_expire_it_is_changed_by_others(scene: Scene) -> None:
    compact(scene.directory)
    expire(scene.directory)
    scene.after_ttl()

    status, message = scene.run()

    assert status == "refused"
    assert "the snapshots that would show where its rows are have expired" in message


def test_another_export_forgets_the_proof(scene: Scene) -> None:
    compact(scene.directory)
    scene.run()
    scene.source.change("more")
    scene.after_ttl()

    assert scene.run() == ("replaced", "")
    assert scene.row.rewritten is None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_dies_while_it_notes_the_proof_changes_nothing(
    scene: Scene, *, after: bool
) -> None:
    compact(scene.directory)
    scene.after_ttl()
    scene.dies(KilledAt(Step.NOTE_REWRITTEN, after=after))

    assert scene.run()[0] == "unchanged"
    assert rows_in_main(scene.directory) == 12


def test_a_rollback_to_before_the_compaction_brings_the_own_files_back(scene: Scene) -> None:
    compact(scene.directory)
    move(scene.directory, 2)
    scene.after_ttl()

    assert scene.run() == ("unchanged", "12 rows in the lake, snapshot S2.")


def compact_one(directory: Path) -> None:
    if files(directory):
        compact(directory, first_file(directory))


def delete_a_row(directory: Path) -> None:
    if found := files(directory):
        delete_first_row(pyiceberg(directory), found[0])


def remove_a_file(directory: Path) -> None:
    if found := files(directory):
        table = pyiceberg(directory)
        with table.transaction() as change, change.update_snapshot().overwrite() as update:
            update.delete_data_file(found[0])


def move_back(directory: Path) -> None:
    table = pyiceberg(directory)
    now = table.current_snapshot()
    if now is not None and now.parent_snapshot_id is not None:
        table.manage_snapshots().set_current_snapshot(snapshot_id=now.parent_snapshot_id).commit()


ACTS = (
    append, compact, compact_one, rewrite, drop_rows, double_rows, delete_a_row, remove_a_file,
    move_back,
)  # fmt: skip


def exported_rows(directory: Path) -> list[int]:
    """Return the numbers of rows of the export in main; those of other writers begin at 100."""
    rows = pyiceberg(directory).scan().to_arrow().column(0).to_pylist()
    return sorted(number for number in rows if number < 100)


@settings(max_examples=12, deadline=None)
@example(acts=[append, compact, compact_one])
@example(acts=[compact_one, double_rows])
@example(acts=[compact, delete_a_row, compact])
@given(acts=st.lists(st.sampled_from(ACTS), min_size=1, max_size=4))
def test_whatever_others_did_an_export_in_force_has_its_rows_once(
    acts: list[Callable[[Path], None]],
) -> None:
    """Harm prevented: a lost or doubled row in a partition that counts as exported."""
    with TemporaryDirectory() as name:
        scene = Scene(Path(name), request=TWO_FILES)
        scene.run()
        exported = exported_rows(scene.directory)
        for act in acts:
            act(scene.directory)
        scene.after_ttl()

        status, _ = scene.run()

        if status != "refused":
            assert exported_rows(scene.directory) == exported, status
