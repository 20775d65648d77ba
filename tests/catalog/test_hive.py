"""A tree of Hive directories as others leave it: what the next export does, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.hive import HiveTable, open_tree, tree_name
from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.sqlite import SqliteLedger
from tableformat.committer import Commit
from tableformat.errors import (
    DestinationError,
    NotFoundError,
    RefusedError,
    TableFormatError,
    UsageError,
)
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.ledger import Row, State
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import Simple
from tableformat.messages import plain
from tableformat.names import HiveName
from tableformat.table_properties import LEDGER_PROPERTY
from tests.enumeration.trees import TreeWorld, commits, rows_of
from tests.support.dying import Dies
from tests.support.scenarios import ALL, Partitions, parts_of


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


def data_files(world: TreeWorld) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in root(world).rglob("*.parquet")}


def changed_row(world: TreeWorld, partition_id: str, change: Callable[[Row], Row]) -> None:
    """Change a row through the ledger's own interface."""
    ledger = SqliteLedger(world.directory / "ledger.db", clock=world.clock)
    (row,) = (r for r in ledger.rows() if r.key.partition_id == partition_id)
    assert isinstance(ledger.write(change(row)), Row)
    ledger.close()


def refused(world: TreeWorld) -> TableFormatError:
    error = world.run(request_of(world)).error
    assert error is not None
    return error


def test_completed_set_back_without_a_commit_file_gets_no_new_file(
    world: TreeWorld,
) -> None:
    """N-21: the commit file is written again, from files that are compared."""
    world.run(request_of(world))
    path, files = commit_file(world, "p1"), data_files(world)
    before = path.read_bytes()
    path.unlink()
    changed_row(world, "p1", lambda row: replace(row, state=State.RUNNING, done=None, landed=()))

    ran = world.run(request_of(world))

    assert {o.status for o in ran.outcomes} == {Status.ALREADY_EXPORTED}
    assert path.read_bytes() == before
    assert data_files(world) == files
    assert {r.state for r in rows_of(world).values()} == {State.COMPLETED}


def test_a_commit_file_that_is_gone_is_not_written_for_other_data_files(world: TreeWorld) -> None:
    """Harm prevented: a commit file that vouches for bytes that nobody wrote."""
    world.run(request_of(world))
    path = commit_file(world, "p1")
    (name,) = (f.path for f in commits(world)["p1"][0].files)
    path.unlink()
    (root(world) / name).write_bytes(b"x" * 12)
    (root(world) / name).write_bytes(b"y" * 12)

    error = refused(world)

    assert isinstance(error, DestinationError)
    assert name in error.message
    assert "is not what was written" in error.message
    assert list(commits(world)) == ["p2"]


def test_a_commit_file_that_was_edited_or_copied_from_elsewhere_is_refused(
    world: TreeWorld, tmp_path: Path
) -> None:
    world.run(request_of(world))
    path = commit_file(world, "p1")
    path.write_bytes(path.read_bytes().replace(b'"rows": 12', b'"rows": 13'))

    with pytest.raises(DestinationError, match="checksum"):
        commits(world)

    (tmp_path / "other").mkdir()
    other = TreeWorld(tmp_path / "other", Partitions())
    other.run(request_of(other))
    path.write_bytes(commit_file(other, "p1").read_bytes())
    with pytest.raises(DestinationError, match="It was copied here"):
        commits(world)


def test_a_file_whose_response_was_lost_is_not_committed_and_is_removed(world: TreeWorld) -> None:
    """N-25: it lies there twice, and is exported once."""
    with pytest.raises(Dies):
        world.run(request_of(world), most_files=1)
    ((name, content),) = data_files(world).items()
    twice = root(world) / f"{name.removesuffix('.parquet')}b.parquet"
    twice.write_bytes(content)

    world.run(request_of(world))

    assert {f.path for found in commits(world).values() for f in found[0].files} == {
        *data_files(world)
    }
    assert sum(found[0].rows for found in commits(world).values()) == 15
    assert not twice.exists()


def test_files_of_others_in_the_directory_are_refused_by_name_and_stay(
    world: TreeWorld,
) -> None:
    """A first export continues alongside them only on request."""
    root(world).mkdir()
    theirs = root(world) / "theirs.parquet"
    theirs.write_bytes(b"rows")

    ran = world.run(request_of(world))

    assert {o.status for o in ran.outcomes} == {Status.REFUSED}
    assert "theirs.parquet" in plain(ran.outcomes[0].message)
    assert "--overwrite-file-if-exists" in plain(ran.outcomes[0].message)
    assert commits(world) == {}
    added = world.run(
        replace(request_of(world), options=ExportOptions(overwrite_file_if_exists=True))
    )
    assert {o.status for o in added.outcomes} == {Status.COMMITTED}
    assert theirs.read_bytes() == b"rows"


def test_other_content_after_the_ttl_is_refused_and_changes_nothing(world: TreeWorld) -> None:
    """Nobody who lists directories could go from the old files to the new ones at once."""
    world.run(request_of(world))
    before = data_files(world)
    world.now += 180_000
    world.source.by_id["p1"] = parts_of("p1", 7, 5, 2)

    ran = world.run(request_of(world))

    assert {o.partition_id: o.status for o in ran.outcomes} == {
        "p1": Status.REFUSED,
        "p2": Status.UNCHANGED,
    }
    assert "readers that list its directories would see old and new" in plain(
        ran.outcomes[0].message
    )
    assert "--force --replace-partition" in plain(ran.outcomes[0].message)
    assert data_files(world) == before


def test_another_schema_ledger_or_tree_in_its_place_is_refused(
    world: TreeWorld,
) -> None:
    world.run(request_of(world))
    loaded = open_tree(world.to).table(world.to)
    table = world.source.table
    world.source.table = replace(
        table, columns=(*table.columns, Column("later", Simple("Int64"), "Int64"))
    )
    grown = world.run(replace(request_of(world), evolve_schema=True)).error
    other_columns = refused(world)
    world.source.table = table
    (world.directory / "ledger.db").rename(world.directory / "elsewhere.db")
    other_ledger = refused(world)
    root(world).rename(world.directory / "old")
    world.run(request_of(world))

    assert "later" in other_columns.message
    assert grown is not None
    assert (grown.code, "never change" in grown.message) == (48, True)
    assert isinstance(other_ledger, RefusedError)
    assert "another ledger" in other_ledger.message
    assert loaded is not None
    with pytest.raises(NotFoundError, match="created again"):
        loaded.load()


def test_a_lost_entry_of_the_log_stops_every_export(world: TreeWorld) -> None:
    """Harm prevented: the partition of the entry is exported a second time."""
    world.run(request_of(world))
    world.source.by_id["p3"] = parts_of("p3", 1)
    world.run(request_of(world))
    first, *_ = sorted(root(world).glob("_mergeberg/log/*/*.json"))
    first.unlink()

    assert "Cannot read the log" in refused(world).message
    assert sorted(commits(world)) == ["p1", "p2", "p3"]


def test_of_many_commits_at_once_one_is_made_and_none_after_it(world: TreeWorld) -> None:
    """Harm prevented: two commits on one state, or one that was sent long ago and comes now."""
    world.run(request_of(world))
    tables = [open_tree(world.to).table(world.to) for _ in range(8)]

    def send(table: HiveTable | None) -> Callable[[], bool]:
        assert table is not None
        state = table.load()
        commit = Commit((), state.layout, "ledger")
        staged = table.stage(state, commit)
        return lambda: table.send(state, staged, commit, ()).applied

    sends = [send(table) for table in tables]
    late, *at_once = sends
    with ThreadPoolExecutor(len(at_once)) as threads:
        applied = list(threads.map(lambda one: one(), at_once))

    assert sum(applied) == 1
    assert not late()


def test_a_commit_for_a_recreated_tree_is_not_in_the_new_one(
    world: TreeWorld,
) -> None:
    world.run(request_of(world))
    stale = open_tree(world.to).table(world.to)
    assert stale is not None
    state = stale.load()
    root(world).rename(world.directory / "old")
    (world.directory / "ledger.db").rename(world.directory / "elsewhere.db")
    world.run(request_of(world))
    commit = Commit((), state.layout, "ledger")

    stale.send(state, stale.stage(state, commit), commit, ())

    now = world.tree.table(world.to)
    assert now is not None
    assert now.load().properties[LEDGER_PROPERTY] != "ledger"
    assert len(commits(world)) == 2


def test_a_read_only_command_writes_nothing(world: TreeWorld) -> None:
    world.run(request_of(world))
    path = commit_file(world, "p1")
    path.unlink()
    before = world.outside()

    table = world.tree.table(world.to)
    assert table is not None
    state = table.load()

    assert world.outside() == before
    assert not path.exists()
    assert len(state.marks) == 2


def test_a_path_is_the_same_tree_from_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    one = HiveName.at(f"file://{tmp_path}/a/tree")
    for spelled in (
        "a/tree/",
        "./a/../a/tree",
        "a//tree",
        f"{tmp_path}/a/tree",
        f"/{tmp_path}/a/tree",
        f"file:{tmp_path}/a/tree",
        f"file://{tmp_path}/b//../a/tree",
        f"file:///{tmp_path}/a/tree",
    ):
        assert tree_name(HiveName.at(spelled)) == one
    assert tree_name(one) == one
    assert tree_name(HiveName.at("./a:b/tree")) == HiveName.at(f"file://{tmp_path}/a:b/tree")
    assert tree_name(HiveName.at("s3://b/tree")) == HiveName.at("s3://b/tree")
    assert str(HiveName.at("s3://b/tree")) == "hive:s3://b/tree"


@pytest.mark.parametrize(
    "uri", ["s3://", "s3:bucket/x", "file:///", "file:x", "gs:bucket/x", "C:", "/..", "file:///.."]
)
def test_what_is_no_location_is_no_directory_of_such_a_name(uri: str) -> None:
    """Harm prevented: an export to a bucket that goes to `s3:` in the directory where one is."""
    with pytest.raises(UsageError, match="Cannot use hive:"):
        tree_name(HiveName.at(uri))


def test_hive_is_a_catalog_like_any_other() -> None:
    with pytest.raises(NotFoundError, match="Cannot find the catalog 'hive': it is not configured"):
        open_catalog("hive", warehouse=Path("unused"))


def test_a_truncated_commit_file_is_to_be_removed_and_is_rewritten(
    world: TreeWorld,
) -> None:
    world.run(request_of(world))
    path = commit_file(world, "p1")
    before = path.read_bytes()
    path.write_bytes(b"{")
    with pytest.raises(DestinationError, match="remove it: the next export writes it again"):
        commits(world)

    path.unlink()
    world.run(request_of(world))

    assert path.read_bytes() == before


def test_a_missing_data_file_is_reported_as_missing(world: TreeWorld) -> None:
    """Harm prevented: `Check space and permissions there`, of a file that somebody removed."""
    world.run(request_of(world))
    (commit,) = commits(world)["p1"]
    (file,) = commit.files
    (root(world) / file.path).unlink()

    for use in (
        lambda: world.tree.files.content(commit, file),
        lambda: world.tree.files.check(commit, file, content=False),
    ):
        with pytest.raises(DestinationError, match=rf"{commit.name}: it is gone\. Put it back"):
            use()


def test_a_scheme_that_is_not_served_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="oss"):
        open_tree(HiveName.at("oss://b/tree"))
