"""What was dropped is gone from the disk after an age, and nothing that somebody keeps is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import pytest

from catalog.ledgers.memory import milliseconds
from tableformat.effects import Step
from tableformat.export.commit import Ports
from tableformat.export.gc import DroppedSnapshots, Garbage
from tableformat.export.outcome import Status
from tableformat.file_names import key_in
from tableformat.iceberg.snapshot import table_of
from tableformat.operations.freeze import Freeze
from tests.faults.test_operator_actions import append
from tests.support.cleaning_up import clean_up, sweeping
from tests.support.dying import Dies, KilledAt
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    alone,
    detach,
    drop,
    export_at,
    in_files,
    partition,
    running,
)
from tests.support.scenarios import (
    Partitions,
    lake,
    pyiceberg,
    row_of,
    rows_in_main,
    run,
    state,
)

AGE = 600_000


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table whose two partitions are in the lake, each by a snapshot of its own."""
    return in_files(tmp_path)


def expired(
    directory: Path, *, after: int = AGE + 60_000, dry_run: bool = False
) -> tuple[Garbage, ...]:
    """Expire what is before DROPs that are ten minutes old, so long after now, and clean up."""
    ports: Ports = running(directory).ports.commit
    snapshots = DroppedSnapshots(ports, lake(directory), AGE, milliseconds() + after)
    found = snapshots.find() if dry_run else snapshots.expire()
    if not dry_run:
        clean_up(sweeping(directory))
    return found


def bytes_of(directory: Path, name: str) -> int:
    """Return the bytes on the disk of what was exported of a partition."""
    key = row_of(directory, name).key.hash
    files = (directory / "warehouse").rglob("*.parquet")
    return sum(file.stat().st_size for file in files if key_in(str(file)) == key)


def snapshots(directory: Path) -> set[int]:
    return set(state(directory).snapshots)


def test_the_bytes_of_what_was_dropped_are_gone_after_ten_minutes(
    tmp_path: Path, source: Partitions
) -> None:
    running(tmp_path).run(drop("p1"))
    before, left = bytes_of(tmp_path, "p1"), bytes_of(tmp_path, "p2")
    assert before

    assert expired(tmp_path, after=AGE - 60_000) == ()
    garbage = expired(tmp_path, dry_run=True)
    assert garbage
    assert (bytes_of(tmp_path, "p1"), all(one.may_go for one in garbage)) == (before, True)
    assert "which DROP PARTITION ID 'p1' dropped" in garbage[0].why
    assert expired(tmp_path) == garbage

    assert (bytes_of(tmp_path, "p1"), bytes_of(tmp_path, "p2")) == (0, left)
    assert {str(one) for one in snapshots(tmp_path)}.isdisjoint(one.location for one in garbage)
    assert rows_in_main(tmp_path) == source.rows["p2"]
    assert expired(tmp_path) == ()
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.COMMITTED
    assert export_at(tmp_path, source, LATER, IN_FILES)["p2"].status is Status.UNCHANGED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def a_tag(directory: Path) -> None:
    alone(directory, Freeze(partition("p1"), "kept"))
    running(directory).run(drop("p1"))


def a_branch(directory: Path) -> None:
    at = state(directory).main
    assert at is not None
    pyiceberg(directory).manage_snapshots().create_branch(at, "b").commit()
    running(directory).run(drop("p1"))


def another_writer(directory: Path) -> None:
    append(directory)
    running(directory, rows=ForeignPartitions(rest="p9")).run(drop("p1"))


@pytest.mark.parametrize(
    ("keeps", "reason"),
    [
        (a_tag, "kept keeps it"),
        (a_branch, "b keeps it"),
        (another_writer, "another writer made it"),
    ],
)
def test_snapshots_that_others_made_or_name_stay_with_the_files(
    tmp_path: Path, source: Partitions, keeps: Callable[[Path], None], reason: str
) -> None:
    """Harm prevented: what somebody keeps, or has made, goes with what was dropped."""
    assert source.rows
    keeps(tmp_path)
    before, there = bytes_of(tmp_path, "p1"), snapshots(tmp_path)

    garbage = expired(tmp_path)

    assert any(reason in one.why and not one.may_go for one in garbage)
    assert (bytes_of(tmp_path, "p1"), snapshots(tmp_path)) == (before, there)


@pytest.mark.parametrize("back", ["exported again", "attached", "detached"])
def test_what_is_no_drop_or_came_back_stays(tmp_path: Path, source: Partitions, back: str) -> None:
    if back == "detached":
        running(tmp_path).run(detach("p1"))
    else:
        before = state(tmp_path).main
        assert before is not None
        running(tmp_path).run(drop("p1"))
        if back == "exported again":
            export_at(tmp_path, source, LATER, IN_FILES)
        else:
            pyiceberg(tmp_path).manage_snapshots().rollback_to_snapshot(before).commit()
    there = snapshots(tmp_path)

    assert not any(one.may_go for one in expired(tmp_path))

    assert snapshots(tmp_path) == there


def test_nobody_expires_what_main_was_moved_to_meanwhile(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: a rollback to the snapshot before a DROP, which then is not there."""
    assert source.rows
    before = state(tmp_path).main
    assert before is not None
    running(tmp_path).run(drop("p1"))
    table = lake(tmp_path)
    seen = table.load()
    pyiceberg(tmp_path).manage_snapshots().rollback_to_snapshot(before).commit()

    sent = table.expire(seen, frozenset({before}))

    assert not sent.applied
    assert before in snapshots(tmp_path)


@pytest.mark.parametrize("after", [False, True])
def test_a_death_while_it_is_expired_leaves_it_to_the_next(
    tmp_path: Path, source: Partitions, *, after: bool
) -> None:
    assert source.rows
    running(tmp_path).run(drop("p1"))
    dies = running(tmp_path, effects=KilledAt(Step.CLEAN_ATTEMPT, after=after)).ports.commit
    later = milliseconds() + AGE + 60_000
    with pytest.raises(Dies):
        DroppedSnapshots(dies, lake(tmp_path), AGE, later).expire()

    expired(tmp_path)

    assert bytes_of(tmp_path, "p1") == 0
    assert rows_in_main(tmp_path) == source.rows["p2"]


def test_manifests_of_what_is_expired_go_with_it(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    run(tmp_path, source, request=IN_FILES)
    running(tmp_path).run(drop("p1"))
    expired(tmp_path)

    table = table_of(state(tmp_path))
    used = {m.manifest_path for s in table.metadata.snapshots for m in s.manifests(table.io)}
    used |= {s.manifest_list for s in table.metadata.snapshots}
    there = {file.name for file in (tmp_path / "warehouse").rglob("*.avro")}
    assert there == {urlparse(path).path.rsplit("/", 1)[-1] for path in used}
