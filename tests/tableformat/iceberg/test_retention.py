"""Every commit keeps how long the owner of a table lets branches and tags live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.update import SetSnapshotRefUpdate

from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH
from tableformat.export.commit import fence
from tableformat.export.outcome import Status
from tableformat.iceberg.snapshot import NEVER
from tableformat.operations.freeze import Freeze, Unfreeze
from tableformat.operations.statement import AllPartitions
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    alone,
    attach,
    detach,
    drop,
    drop_detached,
    export_at,
    in_files,
    partition,
    running,
)
from tests.support.scenarios import Partitions, parts_of, pyiceberg

OF_BRANCH = {
    "min-snapshots-to-keep": 100,
    "max-snapshot-age-ms": 2_592_000_000,
    "max-ref-age-ms": 7_776_000_000,
}
OF_TAG = {"max-ref-age-ms": 7_776_000_000}


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    return in_files(tmp_path)


def refs(directory: Path) -> dict[str, SnapshotRef]:
    return pyiceberg(directory).metadata.refs


def retain(directory: Path, name: str, kept: dict[str, int]) -> None:
    """Give a branch or tag a retention, as ALTER TABLE … REPLACE BRANCH … RETAIN does."""
    table = pyiceberg(directory)
    found = table.metadata.refs[name]
    of = {"type": found.snapshot_ref_type, "snapshot-id": found.snapshot_id, "ref-name": name}
    update = SetSnapshotRefUpdate.model_validate({"action": "set-snapshot-ref", **of, **kept})
    table.catalog.commit_table(table, (), (update,))
    assert retained(directory, name) == kept


def retained(directory: Path, name: str) -> dict[str, int]:
    kept = refs(directory)[name].model_dump(by_alias=True, exclude_none=True)
    return {key: value for key, value in kept.items() if key not in ("snapshot-id", "type")}


def _exports(directory: Path, source: Partitions) -> object:
    source.by_id["p1"] = parts_of("p1", 20)
    return export_at(directory, source, LATER, IN_FILES)["p1"]


@pytest.mark.parametrize(
    "change",
    [
        _exports,
        lambda at, _: running(at).run(drop("p1")),
        lambda at, _: running(at).run(detach("p1")),
        lambda at, _: running(at).run(attach("p2")),
        lambda at, _: fence(running(at).ports.commit),
    ],
    ids=["export", "drop", "detach", "attach", "fence"],
)
def test_the_retention_of_main_stays(
    tmp_path: Path, source: Partitions, change: Callable[[Path, Partitions], object]
) -> None:
    """Harm prevented: snapshots that the owner keeps for time travel expire."""
    running(tmp_path).run(detach("p2"))
    retain(tmp_path, MAIN_BRANCH, OF_BRANCH)
    before = refs(tmp_path)[MAIN_BRANCH].snapshot_id

    change(tmp_path, source)

    assert refs(tmp_path)[MAIN_BRANCH].snapshot_id != before
    assert retained(tmp_path, MAIN_BRANCH) == OF_BRANCH


def test_what_stays_detached_never_expires(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: the owner's expiry removes detached rows that nobody has dropped."""
    assert source.rows
    for name in ("p1", "p2"):
        running(tmp_path).run(detach(name))

    assert drop_detached(tmp_path, partition("p1")).status is Status.DROPPED

    assert retained(tmp_path, DETACHED_BRANCH) == {"max-ref-age-ms": NEVER}


def test_a_branch_that_lost_its_age_has_it_again(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    for name in ("p1", "p2"):
        running(tmp_path).run(detach(name))
    retain(tmp_path, DETACHED_BRANCH, {})

    running(tmp_path).run(attach("p1"))

    assert retained(tmp_path, DETACHED_BRANCH) == {"max-ref-age-ms": NEVER}


@pytest.mark.parametrize(
    "change",
    [
        lambda at: running(at).run(detach("p1")),
        lambda at: running(at).run(attach("p2")),
        lambda at: drop_detached(at, partition("p2")),
    ],
    ids=["detach", "attach", "drop detached"],
)
def test_the_retention_of_what_is_detached_stays(
    tmp_path: Path, source: Partitions, change: Callable[[Path], object]
) -> None:
    assert source.rows
    running(tmp_path).run(detach("p2"))
    retain(tmp_path, DETACHED_BRANCH, OF_BRANCH)
    before = refs(tmp_path)[DETACHED_BRANCH].snapshot_id

    change(tmp_path)

    assert refs(tmp_path)[DETACHED_BRANCH].snapshot_id != before
    assert retained(tmp_path, DETACHED_BRANCH) == OF_BRANCH


def test_the_retention_of_a_frozen_copy_stays(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    alone(tmp_path, Freeze(AllPartitions(), "kept"))
    retain(tmp_path, "kept", OF_TAG)

    assert alone(tmp_path, Unfreeze(partition("p1"), "kept")).status is Status.UNFROZEN

    assert retained(tmp_path, "kept") == OF_TAG
