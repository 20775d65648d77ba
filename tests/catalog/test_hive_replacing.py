"""What is replaced in a tree of Hive directories: who sees it when, and when its files go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.hive import GRACE, TreeFiles, open_tree
from catalog.ledgers.sqlite import SqliteLedger
from spark_ext.actions.gc import sweep
from tableformat.effects import Direct
from tableformat.export.commit import Ports
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Status
from tableformat.export.rebuild import rebuild
from tableformat.export.request import ById, ExportOptions
from tableformat.hive.documents import CommitFile
from tableformat.names import PartitionId
from tests.enumeration.trees import TreeWorld, commits, rows_of
from tests.support.scenarios import ALL, Partitions, parts_of

ONE = ById(PartitionId("p1"))
REPLACING = ExportOptions(force=True, replace_partition=True)


@pytest.fixture
def world(tmp_path: Path) -> TreeWorld:
    """A world with two partitions, and nothing exported."""
    return TreeWorld(
        tmp_path, Partitions(by_id={"p1": parts_of("p1", 7, 5), "p2": parts_of("p2", 3)})
    )


def request_of(world: TreeWorld) -> ExportRequest:
    return replace(ALL, to=world.to)


def root(world: TreeWorld) -> Path:
    return Path(world.to.uri.removeprefix("file://"))


def commit_file(world: TreeWorld, partition_id: str) -> Path:
    (path,) = root(world).glob(f"_mergeberg/commits/commit_{partition_id}_*")
    return path


def data_files(world: TreeWorld) -> set[str]:
    return {p.name for p in root(world).rglob("*.parquet")}


def replaced(world: TreeWorld) -> CommitFile:
    """Export, insert rows into the first partition, replace it, and return its commit file."""
    world.run(request_of(world))
    world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)
    ran = world.run(replace(request_of(world), options=REPLACING, selection=ONE))
    (outcome,) = ran.outcomes
    assert (outcome.status, outcome.rows, outcome.undo) == (Status.REPLACED, 14, "")
    assert outcome.left_rows in (12, 14)
    return commits(world)["p1"][0]


def test_a_replacement_has_a_commit_file_that_names_what_it_replaces(
    world: TreeWorld,
) -> None:
    world.run(request_of(world))
    (first,) = commits(world)["p1"]

    second = replaced(world)
    third = replaced(world)

    assert second.replaces == (first.transaction_id,)
    assert third.replaces == (first.transaction_id, second.transaction_id)
    assert {p: [c.rows for c in found] for p, found in commits(world).items()} == {
        "p1": [14], "p2": [3],
    }  # fmt: skip
    raw = json.loads(commit_file(world, "p1").read_bytes())
    assert (raw["format_version"], raw["replaces"]) == (2, list(third.replaces))
    assert json.loads(commit_file(world, "p2").read_bytes())["format_version"] == 1
    (row,) = (r for p, r in rows_of(world).items() if p == "p1")
    assert [x.rows for x in row.landed] == [12, 14, 14]
    again = world.run(request_of(world)).outcomes
    assert {o.status for o in again} == {Status.ALREADY_EXPORTED}


def test_files_that_were_replaced_go_by_gc_after_their_time_and_not_before(
    world: TreeWorld,
) -> None:
    """Harm prevented: files that a reader has just listed; or files that stay for ever."""
    world.run(request_of(world))
    (old,) = commits(world)["p1"]
    old_names = {f.path.rsplit("/", 1)[-1] for f in old.files}
    new = replaced(world)

    def gone(grace: int) -> set[str]:
        opened = replace(open_tree(world.to, completes=False), grace=grace)
        table = opened.table(world.to)
        assert table is not None
        ledger = SqliteLedger(world.directory / "ledger.db", clock=world.clock)
        before = data_files(world)
        swept = sweep(table, ledger, (), older_than=0, removes=True)
        ledger.close()
        left = before - data_files(world)
        reported = {t.location.rsplit("/", 1)[-1] for t in swept.garbage if t.may_go}
        assert left <= reported
        return left

    assert gone(GRACE) == set()
    commit_file(world, "p1").unlink()
    assert gone(0) == set(), "nobody is told of the new files yet"
    world.run(request_of(world))
    assert gone(0) == old_names
    assert commits(world)["p1"] == [new]
    assert {f.path for c in commits(world).values() for f in c[0].files} == data_files(world)
    assert {o.status for o in world.run(request_of(world)).outcomes} == {Status.ALREADY_EXPORTED}


def test_a_partition_that_is_emptied_has_a_commit_file_without_files(world: TreeWorld) -> None:
    world.run(request_of(world))
    del world.source.by_id["p1"]
    options = ExportOptions(force=True, replace_partition=True, allow_empty=True)

    ran = world.run(replace(request_of(world), options=options, selection=ONE))

    assert ran.error is None
    assert [o.status for o in ran.outcomes] == [Status.REPLACED]
    (commit,) = commits(world)["p1"]
    assert (commit.rows, commit.files) == (0, ())
    world.source.by_id["p1"] = parts_of("p1", 4)
    world.now += 180_000
    world.run(request_of(world))
    assert [c.rows for c in commits(world)["p1"]] == [4]


def test_a_ledger_lost_after_a_replacement_is_rebuilt_from_the_tree(
    world: TreeWorld,
) -> None:
    """Harm prevented: a new ledger that takes what was replaced for what is exported."""
    new = replaced(world)
    (world.directory / "ledger.db").rename(world.directory / "lost.db")
    opened = open_tree(world.to)
    table = opened.table(world.to)
    assert table is not None
    ledger = SqliteLedger(world.directory / "ledger.db", clock=world.clock)
    ports = Ports(Direct(), table, ledger, world.clock, lambda _: None)

    found = rebuild(ports, lambda _: opened.storage, str(world.to))
    ledger.close()

    assert all(one.proved for one in found)
    assert {one.row.key.partition_id: one.row.last.rows for one in found} == {"p1": 14, "p2": 3}
    again = world.run(request_of(world)).outcomes
    assert {o.status for o in again} <= {Status.ALREADY_EXPORTED, Status.UNCHANGED}
    assert commits(world)["p1"] == [new]


def test_a_list_without_both_commit_files_is_read_again(
    world: TreeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a partition without rows, as a directory was read during a switch."""
    world.run(request_of(world))
    read = TreeFiles.listed
    looked: list[set[str]] = []

    def meanwhile(files: TreeFiles) -> set[str]:
        found = read(files)
        if not looked:
            # The new name came behind the place that was read, the old one went before it.
            looked.append(found)
            replaced(world)
            return found & read(files)
        return found

    monkeypatch.setattr(TreeFiles, "listed", meanwhile)

    assert {p: [c.rows for c in found] for p, found in commits(world).items()} == {
        "p1": [14], "p2": [3],
    }  # fmt: skip


def test_a_list_of_commit_files_that_was_replaced_is_read_again(
    world: TreeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a reader that fails, or misses the partition, at the moment of a switch."""
    world.run(request_of(world))
    read = TreeFiles.commit
    looked: list[str] = []

    def meanwhile(files: TreeFiles, name: str, tree: str) -> CommitFile:
        if not looked:
            looked.append(name)
            replaced(world)
        return read(files, name, tree)

    monkeypatch.setattr(TreeFiles, "commit", meanwhile)

    assert {p: [c.rows for c in found] for p, found in commits(world).items()} == {
        "p1": [14], "p2": [3],
    }  # fmt: skip
