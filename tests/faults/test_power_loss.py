"""A power cut at any moment takes nothing that is committed; the same command ends the work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ext.engine.tasks import installed_versions
from tests.enumeration.trees import TreeWorld, check_visible, commits
from tests.support.frozen_parts import PLAN, insert, make_source
from tests.support.in_child import in_child
from tests.support.lake_statements import (
    IN_FILES,
    attach,
    detach,
    drop,
    drop_detached,
    partition,
    running,
)
from tests.support.power_loss import Disk, recorded
from tests.support.scenarios import (
    FORCED,
    Partitions,
    assert_exported_once,
    parts_of,
    pyiceberg,
    run,
)

# Writes a slice in another process; the inodes of all that it has brought to the disk.
WRITE = """
import os
from spark_ext.engine.tasks import write_slice
synced, sync = [], os.fsync
def fsync(number):
    sync(number)
    synced.append(os.fstat(number).st_ino)
os.fsync = fsync
write_slice(*values, "0-1", lambda _: None)
answer(synced)
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    root = tmp_path / "lake"
    root.mkdir()
    with recorded(root, monkeypatch) as made:
        yield made


def read(directory: Path) -> int:
    """Read all rows of main by PyIceberg, and the manifests of all snapshots; return the rows."""
    table = pyiceberg(directory)
    for snapshot in table.metadata.snapshots:
        assert snapshot.manifests(table.io) is not None
    return int(table.scan().to_arrow().num_rows)


def test_a_power_cut_at_any_moment_leaves_an_export_that_can_be_run_again(disk: Disk) -> None:
    source = Partitions()
    run(disk.root, source, effects=disk, request=IN_FILES)
    assert read(disk.root) == 15

    disk.cut(disk.moments[-1])
    assert_exported_once(disk.root, source)
    assert read(disk.root) == 15
    for left in disk.moments:
        disk.cut(left)
        run(disk.root, Partitions(), request=IN_FILES)
        assert_exported_once(disk.root, source)
        assert read(disk.root) == 15


def test_a_power_cut_in_a_replacement_leaves_the_old_rows_or_the_new(disk: Disk) -> None:
    run(disk.root, Partitions(), request=IN_FILES)
    changed = {"p1": parts_of("p1", 7, 5, 2), "p2": parts_of("p2", 3)}
    disk.moments.clear()
    run(disk.root, Partitions(by_id=dict(changed)), effects=disk, request=FORCED)

    assert len(disk.moments) > 10
    for left in disk.moments:
        disk.cut(left)
        assert read(disk.root) in (15, 17)
        run(disk.root, Partitions(by_id=dict(changed)), request=FORCED)
        assert read(disk.root) == 17


def test_everything_in_a_warehouse_was_brought_to_the_disk(disk: Disk) -> None:
    run(disk.root, Partitions(), request=IN_FILES)
    for statement in (detach("p1"), attach("p1"), detach("p1"), drop("p2")):
        assert not running(disk.root).run(statement).status.exit_code
    drop_detached(disk.root, partition("p1"))

    left, written = disk.left(), disk.written()
    assert written.items() <= left.items()
    kinds = {path.rsplit(".", 1)[-1] for path in written}
    assert kinds == {"parquet", "avro", "json"}


def test_a_power_cut_at_any_moment_leaves_a_tree_whose_commit_files_are_true(disk: Disk) -> None:
    disk.each = True
    held: dict[str, tuple[int, ...]] = {"p1": (7, 5), "p2": (3, 6)}
    world = TreeWorld(disk.root, source_of(held))
    request = replace(IN_FILES, to=world.to)
    world.run(request, effects=disk)
    assert set(commits(world)) == {"p1", "p2"}

    disk.each = False
    assert len(disk.moments) > 20
    disk.cut(disk.moments[-1])
    assert set(commits(world)) == {"p1", "p2"}
    for left in disk.moments:
        disk.cut(left)
        after = TreeWorld(disk.root, source_of(held), now=world.now)
        check_visible(after, {"p1": {12}, "p2": {9}})
        for _ in range(2):
            after.run(request)
        assert {p: one.rows for p, (one,) in commits(after).items()} == {"p1": 12, "p2": 9}


def source_of(held: dict[str, tuple[int, ...]]) -> Partitions:
    return Partitions(by_id={name: parts_of(name, *rows) for name, rows in held.items()})


def test_a_task_brings_its_file_and_receipt_to_the_disk(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", insert(0, 1000, 3))
    lake = tmp_path / "lake"
    lake.mkdir()
    plan = replace(
        PLAN,
        data_location=f"file://{lake}/data",
        receipts_location=f"file://{lake}/metadata/mergeberg",
        versions=installed_versions(),
    )
    synced = set(in_child(WRITE, plan, source.slices(part=0)[0]))

    paths = [lake, *lake.rglob("*")]
    assert sum(path.is_file() for path in paths) == 2
    assert [p for p in paths if p.stat().st_ino not in synced] == []
