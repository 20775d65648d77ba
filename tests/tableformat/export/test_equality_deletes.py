"""Deletes by equality concern the exports whose rows they may hit, and only while main has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table

from catalog.storages.schemes import open_storage
from tableformat.errors import UnsupportedError
from tableformat.export.dry_run import REPLACE, rehearse
from tableformat.export.main_state import Holding, Kind, holding
from tableformat.export.request import AllPartitions, ById
from tableformat.names import PartitionId
from tests.support.keyed_source import Keyed
from tests.support.other_engines import delete_by_equality, delete_first_row
from tests.support.scenarios import lake, parts_of, ports_of, pyiceberg, row_of, run, statuses
from tests.support.scene import ONE, Scene

EVERY = replace(ONE, selection=AllPartitions())
_COPIED = ("content", "file_format", "partition", "record_count", "file_size_in_bytes")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a scene with two partitions of 12 and 3 rows, both exported; p1 has deletes."""
    made = Scene(tmp_path, Keyed(), request=EVERY)
    made.run()
    delete_by_equality(pyiceberg(tmp_path), file_of(tmp_path, "p1"), 1, 3)
    return made


def file_of(directory: Path, partition: str) -> DataFile:
    table = pyiceberg(directory)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = (m for m in snapshot.manifests(table.io) if m.content == ManifestContent.DATA)
    entries = (e for m in manifests for e in m.fetch_manifest_entry(table.io))
    return next(e.data_file for e in entries if e.data_file.partition[0] == partition)


def held(directory: Path, partition: str) -> Holding:
    """Return what main has of a partition."""
    row, table = row_of(directory, partition), lake(directory)
    return holding(row, table.load(), row.key.hash, table)


def rewrite_without_deletes(table: Table, file: DataFile) -> None:
    """Rewrite a file, and remove all files of deletes, as the engine that wrote them does."""
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        existing = update._existing_manifests
        update._existing_manifests = lambda: [  # type: ignore[method-assign]
            m for m in existing() if m.content == ManifestContent.DATA
        ]
        copy = table.io.new_output(f"{table.location()}/data/compacted.parquet")
        with table.io.new_input(file.file_path).open() as read, copy.create() as written:
            written.write(read.read())
        made = DataFile.from_args(
            **{name: getattr(file, name) for name in _COPIED}, file_path=copy.location
        )
        made.spec_id = file.spec_id
        update.append_data_file(made)
        update.delete_data_file(file)


def test_a_partition_with_other_values_is_exported_beside_them(scene: Scene) -> None:
    """Harm prevented: one delete stops the exports of all partitions."""
    scene.source.by_id["p2"] = parts_of("p2", 3, 2)
    scene.request = replace(ONE, selection=ById(PartitionId("p2")))
    scene.after_ttl()

    assert scene.run() == ("replaced", "")

    assert held(scene.directory, "p2").rows == 5


def test_of_all_partitions_only_it_is_refused_in_the_dry_run_too(scene: Scene) -> None:
    """Harm prevented: one partition that cannot be read stops the exports of all others."""
    scene.source.by_id["p1"] = parts_of("p1", 12, 2)
    scene.source.by_id["p2"] = parts_of("p2", 3, 2)
    scene.after_ttl()
    ports = ports_of(scene.directory, scene.source, clock=lambda: scene.now)

    found = rehearse(
        EVERY, scene.source, ports.lake, ports.ledger,
        now=scene.now, slots=1, note=lambda _: None, storage=open_storage,
    ).forecasts  # fmt: skip
    outcomes = run(scene.directory, scene.source, request=EVERY, ports=ports)

    assert [one.action for one in found] == ["refused", REPLACE]
    assert statuses(outcomes) == ["refused", "replaced"]
    for message in (found[0].message, *(o.message for o in outcomes if o.partition_id == "p1")):
        assert "deletes rows by equality" in message
    assert held(scene.directory, "p2").rows == 5


def test_the_partition_itself_is_refused_while_main_has_them(scene: Scene) -> None:
    """Harm prevented: nobody can say which rows they hide, and something is replaced."""
    with pytest.raises(UnsupportedError, match=r"-deletes\.parquet deletes rows by equality"):
        held(scene.directory, "p1")


def test_after_a_rewrite_earlier_ones_only_mean_that_rows_changed(scene: Scene) -> None:
    """Harm prevented: after the advised rewrite everything is refused until snapshots expire."""
    directory = scene.directory
    rewrite_without_deletes(pyiceberg(directory), file_of(directory, "p1"))

    assert held(directory, "p1").kind is Kind.CHANGED
    assert held(directory, "p2").kind is Kind.WHOLE


def test_deletes_by_position_beside_them_still_count(scene: Scene) -> None:
    """Harm prevented: an export counts as whole whose rows were deleted by position."""
    directory = scene.directory
    delete_first_row(pyiceberg(directory), file_of(directory, "p2"))

    assert held(directory, "p2").kind is Kind.CHANGED
