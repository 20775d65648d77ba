"""Main that its owner emptied and began anew: nothing that was exported before is in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

from tableformat.export.main_state import Kind, holding
from tableformat.export.request import AllPartitions, ById, ExportOptions
from tableformat.ledger import StatementKind
from tableformat.names import PartitionId
from tests.support.keyed_source import Keyed, append_to
from tests.support.scenarios import lake, pyiceberg, row_of, rows_in_main
from tests.support.scene import ONE, TTL, Scene, move

FORCED = ExportOptions(force=True, manifest_ttl=TTL)
EVERY = replace(ONE, selection=AllPartitions())


def scene_of(directory: Path) -> Scene:
    """Return a scene with two partitions of 12 and 3 rows, both exported."""
    made = Scene(directory, Keyed(), request=EVERY)
    made.run()
    made.request = ONE
    return made


def begin_anew(directory: Path) -> None:
    """Leave main without a snapshot, as CREATE OR REPLACE TABLE does."""
    table = pyiceberg(directory)
    gone = RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"})
    table.catalog.commit_table(table, (), (gone,))


def kind_of(directory: Path, partition: str) -> Kind:
    row, table = row_of(directory, partition), lake(directory)
    return holding(row, table.load(), row.key.hash, table).kind


def test_what_was_exported_before_is_exported_again_if_forced(tmp_path: Path) -> None:
    """Harm prevented: exports are refused for ever, because of snapshots that never expired."""
    scene = scene_of(tmp_path)
    begin_anew(tmp_path)
    scene.after_ttl()

    status, message = scene.run()
    assert (status, "main was emptied and begun anew since" in message) == ("refused", True)
    assert scene.run(FORCED)[0] == "committed"

    # The next one finds the files of the first, and the first snapshot without any.
    scene.request = replace(ONE, selection=ById(PartitionId("p2")))
    assert scene.run(FORCED)[0] == "committed"
    assert rows_in_main(tmp_path) == 12 + 3


@pytest.mark.parametrize("is_known", [True, False], ids=["empty", "with rows of others"])
def test_only_an_empty_beginning_shows_it(tmp_path: Path, *, is_known: bool) -> None:
    """Harm prevented: rows that others carried over from expired snapshots are there twice."""
    scene_of(tmp_path)
    begin_anew(tmp_path)
    append_to(tmp_path, "p9", 4)
    table = pyiceberg(tmp_path)
    if is_known:
        table.delete()
    current = pyiceberg(tmp_path).current_snapshot()
    assert current is not None
    others = [s.snapshot_id for s in pyiceberg(tmp_path).metadata.snapshots if s != current]
    expired = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": others})
    table.catalog.commit_table(pyiceberg(tmp_path), (), (expired,))

    assert kind_of(tmp_path, "p1") is (Kind.MOVED if is_known else Kind.CHANGED)


ALONGSIDE = ExportOptions(manifest_ttl=TTL, overwrite_file_if_exists=True)
OPTIONS = {
    "alongside": ALONGSIDE,
    "attach": ExportOptions(manifest_ttl=TTL, of_statement=StatementKind.ATTACH_FROM),
}


@pytest.mark.parametrize("words", OPTIONS)
def test_rows_that_an_engine_copies_back_are_not_added_again(tmp_path: Path, words: str) -> None:
    """Harm prevented: after a rollback, INSERT … SELECT … VERSION AS OF has the rows in main."""
    scene = scene_of(tmp_path)
    scene.after_ttl()
    move(tmp_path, 1)
    append_to(tmp_path, "p1", 12)
    scene.source.change("more")

    status, message = scene.run(OPTIONS[words])

    assert (status, rows_in_main(tmp_path)) == ("refused", 12)
    assert "may have its rows" in message
    forced = replace(ALONGSIDE, force=True)
    assert (scene.run(forced)[0], rows_in_main(tmp_path)) == ("committed", 12 + 15)


@pytest.mark.parametrize("words", OPTIONS)
def test_older_rows_of_others_do_not_stop_an_export_after_a_rollback(
    tmp_path: Path, words: str
) -> None:
    scene = Scene(tmp_path, Keyed(), request=replace(ONE, selection=ById(PartitionId("p2"))))
    scene.run()
    append_to(tmp_path, "p1", 4)
    scene.request = ONE
    assert scene.run(ALONGSIDE)[0] == "committed"
    scene.after_ttl()
    move(tmp_path, 3)
    scene.source.change("more")

    assert (scene.run(OPTIONS[words])[0], rows_in_main(tmp_path)) == ("committed", 3 + 4 + 15)
