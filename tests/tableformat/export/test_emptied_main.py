"""Main that its owner emptied and began anew: nothing that was exported before is in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

from tableformat.export.decision import ExportOptions
from tableformat.export.main_state import Kind, holding
from tableformat.export.request import AllPartitions, ById
from tableformat.names import PartitionId
from tests.support.keyed_source import Keyed, append_to
from tests.support.scenarios import lake, pyiceberg, row_of, rows_in_main
from tests.support.scene import ONE, TTL, Scene

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
