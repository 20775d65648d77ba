"""ATTACH alongside rows that were changed or copied since: what comes back is never there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.names import PartitionId
from tableformat.operations.attach import Attach
from tableformat.operations.statement import AllPartitions, OnePart
from tableformat.operations.take_out import Detach
from tests.support.lake import move_main
from tests.support.lake_statements import (
    ForeignPartitions,
    add_foreign,
    attach,
    detach,
    drop,
    drop_detached,
    in_files,
    on,
    part_in,
    partition,
    running,
    whereabouts,
)
from tests.support.other_engines import rewrite
from tests.support.row_changes import change
from tests.support.scenarios import Partitions, lake, pyiceberg, row_of, rows_in_main, state
from tests.support.two_lake_tables import OTHER, copy, prepared, to_other

P1 = partition("p1")
ALL_ROWS = 15
TOGETHER = r"were never in main at the same time.* DROP PARTITION first.* DROP DETACHED PARTITION"
OF_OTHERS = ForeignPartitions(rest="p1")


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table whose two partitions are in the lake, p1 with 7 and 5 rows in two files."""
    return in_files(tmp_path)


def refused(
    directory: Path, statement: Attach, match: str, rows: ForeignPartitions | None = None
) -> None:
    """Check that it is refused, and that nothing changed."""
    before = whereabouts(directory)
    with pytest.raises(RefusedError, match=match):
        running(directory, rows=rows).run(statement)
    assert whereabouts(directory) == before


def moved_to(directory: Path, snapshot_id: int | None) -> None:
    move_main(lake(directory), snapshot_id)


def detached_and_moved_back(directory: Path) -> None:
    """Detach p1, and set main back to where it was there."""
    before = state(directory).main
    running(directory).run(detach("p1"))
    moved_to(directory, before)


def expire_all_but_heads(directory: Path) -> None:
    """Let every snapshot go that is not what a branch has now."""
    table = pyiceberg(directory)
    heads = {r.snapshot_id for r in table.metadata.refs.values()}
    gone = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id not in heads]
    table.maintenance.expire_snapshots().by_ids(gone).commit()


def changed_in_one_file(directory: Path) -> tuple[OnePart, OnePart]:
    """Change rows of the first file of p1 alone; return it as a part, and the other one."""
    stays = set(on(directory, "main"))
    done = change(directory, P1, between=(4, 7))
    assert (done.status, done.rows, done.data_files) == (Status.CHANGED, 2, 1)
    parts = [part_in(directory, "p1", n) for n in (0, 1)]
    old = {lake_part_name(PartitionId("p1"), path) for path in stays}
    parts.sort(key=lambda one: one.part in old)
    return parts[0], parts[1]


@pytest.mark.parametrize("deletes", [False, True], ids=["update", "delete"])
def test_changed_rows_do_not_come_back_alongside_their_originals(
    tmp_path: Path, source: Partitions, *, deletes: bool
) -> None:
    """Changed, detached, and main set back to before the change."""
    before = state(tmp_path).main
    change(tmp_path, P1, deletes=deletes)
    running(tmp_path).run(detach("p1"))
    moved_to(tmp_path, before)

    refused(tmp_path, attach("p1"), TOGETHER)

    running(tmp_path).run(drop("p1"))
    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values()) - (6 if deletes else 0)


@pytest.mark.parametrize("deletes", [False, True], ids=["update", "delete"])
def test_original_rows_do_not_come_back_alongside_changed_ones(
    tmp_path: Path, source: Partitions, *, deletes: bool
) -> None:
    """Detached, main set back to where it was there, and changed."""
    detached_and_moved_back(tmp_path)
    change(tmp_path, P1, deletes=deletes)

    refused(tmp_path, attach("p1"), TOGETHER)

    drop_detached(tmp_path, P1)
    assert running(tmp_path).run(attach("p1")).status is Status.EMPTY
    assert rows_in_main(tmp_path) == sum(source.rows.values()) - (6 if deletes else 0)


def test_attach_is_refused_alongside_a_changed_copy_from_another_table(tmp_path: Path) -> None:
    source = prepared(tmp_path)
    to_other(tmp_path, source)
    assert change(tmp_path, P1, name=OTHER).status is Status.CHANGED
    running(tmp_path).run(detach("p1"))
    assert copy(tmp_path, P1).status is Status.ATTACHED

    refused(tmp_path, attach("p1"), TOGETHER)

    assert rows_in_main(tmp_path) == ALL_ROWS


def test_attach_is_refused_alongside_a_copy_of_itself(tmp_path: Path) -> None:
    """What was changed here was copied to another table, and came from there."""
    source = in_files(tmp_path)
    to_other(tmp_path, source)
    change(tmp_path, P1, name=OTHER)
    copy(tmp_path, P1, replaces=True)
    running(tmp_path).run(detach("p1"))
    copy(tmp_path, P1)

    refused(tmp_path, attach("p1"), TOGETHER)

    assert rows_in_main(tmp_path) == ALL_ROWS


def test_the_refusal_names_what_main_has(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    detached_and_moved_back(tmp_path)
    changed = change(tmp_path, P1)

    refused(tmp_path, attach("p1"), rf"12 rows in 2 file.*UPDATE .* {changed.snapshot_id}")


def test_both_forms_of_the_same_rows_do_not_come_back_together(
    tmp_path: Path, source: Partitions
) -> None:
    """Both are detached, and main has nothing of the partition."""
    detached_and_moved_back(tmp_path)
    change(tmp_path, P1)
    part = part_in(tmp_path, "p1")
    running(tmp_path).run(detach("p1"))

    refused(tmp_path, attach("p1"), "were never in main at the same time.* DROP DETACHED PART")

    assert running(tmp_path).run(Attach(part)).status is Status.ATTACHED
    assert rows_in_main(tmp_path) < sum(source.rows.values())


def test_two_exports_that_were_detached_do_not_come_back_together(
    tmp_path: Path, source: Partitions
) -> None:
    detached_and_moved_back(tmp_path)
    to_other(tmp_path, source)
    copy(tmp_path, P1, replaces=True)
    change(tmp_path, P1, between=(4, 7))
    running(tmp_path).run(detach("p1"))

    refused(tmp_path, attach("p1"), "were never in main at the same time")

    assert rows_in_main(tmp_path) == source.rows["p2"]


@pytest.mark.parametrize("first", [0, 1], ids=["the changed first", "the other first"])
def test_parts_of_a_partition_changed_in_part_go_and_come_back_one_by_one(
    tmp_path: Path, source: Partitions, first: int
) -> None:
    parts = changed_in_one_file(tmp_path)
    before = on(tmp_path, "main")
    one, two = parts[first], parts[1 - first]

    for done in (one, two):
        assert running(tmp_path).run(Detach(done)).status is Status.DETACHED
    for back in (one, two):
        assert running(tmp_path).run(Attach(back)).status is Status.ATTACHED

    assert source.rows
    assert on(tmp_path, "main") == before


def test_a_part_comes_back_to_the_others_that_were_never_taken_out(
    tmp_path: Path, source: Partitions
) -> None:
    for part in changed_in_one_file(tmp_path):
        running(tmp_path).run(Detach(part))
        assert running(tmp_path).run(Attach(part)).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_parts_that_were_detached_one_by_one_come_back_together(
    tmp_path: Path, source: Partitions
) -> None:
    for part in changed_in_one_file(tmp_path):
        running(tmp_path).run(Detach(part))

    assert running(tmp_path).run(attach("p1")).data_files == 2
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_a_part_does_not_come_back_alongside_rows_changed_since(
    tmp_path: Path, source: Partitions
) -> None:
    """Of what was changed while it was away nobody notes of which files it was made."""
    part = part_in(tmp_path, "p1")
    running(tmp_path).run(Detach(part))
    change(tmp_path, P1)

    assert source.rows
    refused(tmp_path, Attach(part), "were never in main at the same time")


def test_a_partition_that_was_changed_in_part_comes_back_after_expiry(
    tmp_path: Path, source: Partitions
) -> None:
    changed_in_one_file(tmp_path)
    running(tmp_path).run(detach("p1"))
    expire_all_but_heads(tmp_path)

    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_a_part_of_it_does_not_come_back_without_its_snapshot(
    tmp_path: Path, source: Partitions
) -> None:
    changed, _ = changed_in_one_file(tmp_path)
    running(tmp_path).run(Detach(changed))
    expire_all_but_heads(tmp_path)

    assert source.rows
    refused(tmp_path, Attach(changed), "as far as its snapshots show")


def test_changed_foreign_rows_do_not_come_back_alongside_their_originals(
    tmp_path: Path, source: Partitions
) -> None:
    add_foreign(tmp_path, 8)
    before = state(tmp_path).main
    change(tmp_path, P1, between=(4, 9), rows=OF_OTHERS)
    running(tmp_path, rows=OF_OTHERS).run(detach("p1"))
    moved_to(tmp_path, before)
    running(tmp_path, rows=ForeignPartitions(rest="p9")).run(drop("p1"))

    refused(tmp_path, attach("p1"), TOGETHER, OF_OTHERS)

    assert rows_in_main(tmp_path) == source.rows["p2"] + 8


def test_foreign_rows_do_not_come_back_alongside_their_changed_form(
    tmp_path: Path, source: Partitions
) -> None:
    path = add_foreign(tmp_path, 8)
    part = OnePart(lake_part_name(PartitionId("p1"), path))
    before = state(tmp_path).main
    running(tmp_path, rows=OF_OTHERS).run(Detach(part))
    moved_to(tmp_path, before)
    change(tmp_path, P1, rows=OF_OTHERS)

    refused(tmp_path, Attach(part), "were never in main at the same time", OF_OTHERS)

    assert rows_in_main(tmp_path) == sum(source.rows.values()) + 8


@pytest.mark.parametrize("goes", ["changed", "as others wrote it"])
def test_a_part_of_foreign_rows_comes_back_to_the_rest(
    tmp_path: Path, source: Partitions, goes: str
) -> None:
    """Some of their files were changed, others not."""
    paths = [add_foreign(tmp_path, rows) for rows in (8, 4)]
    had = set(on(tmp_path, "main"))
    change(tmp_path, P1, between=(6, 9), rows=OF_OTHERS)
    (made,) = set(on(tmp_path, "main")) - had
    part = OnePart(lake_part_name(PartitionId("p1"), made if goes == "changed" else paths[1]))

    running(tmp_path, rows=OF_OTHERS).run(Detach(part))
    back = running(tmp_path, rows=OF_OTHERS).run(Attach(part))

    assert back.status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values()) + 12


def rewritten(directory: Path) -> None:
    """Let another engine rewrite the export of p1."""
    key = row_of(directory, "p1").key.hash
    rewrite(directory, lambda path: key in path)


def test_rows_that_others_rewrote_do_not_come_back_with_their_originals(
    tmp_path: Path, source: Partitions
) -> None:
    """Rewritten, detached, and main set back to before it was rewritten."""
    before = state(tmp_path).main
    rewritten(tmp_path)
    running(tmp_path, rows=OF_OTHERS).run(detach("p1"))
    moved_to(tmp_path, before)

    refused(tmp_path, attach("p1"), TOGETHER, OF_OTHERS)

    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_foreign_rows_do_not_come_back_alongside_their_rewritten_form(
    tmp_path: Path, source: Partitions
) -> None:
    """Detached, main set back to where it was there, and rewritten by others."""
    path = add_foreign(tmp_path, 8)
    before = state(tmp_path).main
    part = OnePart(lake_part_name(PartitionId("p1"), path))
    running(tmp_path, rows=OF_OTHERS).run(Detach(part))
    moved_to(tmp_path, before)
    rewrite(tmp_path, lambda found: found == path)

    refused(tmp_path, Attach(part), "were never in main at the same time", OF_OTHERS)

    assert rows_in_main(tmp_path) == sum(source.rows.values()) + 8


def test_what_others_rewrote_comes_back_where_it_was_taken_out(
    tmp_path: Path, source: Partitions
) -> None:
    rewritten(tmp_path)
    running(tmp_path, rows=OF_OTHERS).run(detach("p1"))
    assert rows_in_main(tmp_path) == source.rows["p2"]

    assert running(tmp_path, rows=OF_OTHERS).run(attach("p1")).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_rows_that_others_append_meanwhile_do_not_hinder_it(
    tmp_path: Path, source: Partitions
) -> None:
    part = OnePart(lake_part_name(PartitionId("p1"), add_foreign(tmp_path, 8)))
    running(tmp_path, rows=OF_OTHERS).run(Detach(part))
    add_foreign(tmp_path, 4)

    assert running(tmp_path, rows=OF_OTHERS).run(Attach(part)).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values()) + 12


def test_foreign_rows_that_left_with_all_partitions_return_by_one(tmp_path: Path) -> None:
    """Harm prevented: ATTACH is refused for ever because ALL was written for one partition."""
    in_files(tmp_path)
    add_foreign(tmp_path)
    running(tmp_path, rows=ForeignPartitions(rest="p3")).run(Detach(AllPartitions()))
    add_foreign(tmp_path, 2)

    done = running(tmp_path, rows=ForeignPartitions(rest="p3")).run(attach("p3"))

    assert (done.status, done.rows, rows_in_main(tmp_path)) == (Status.ATTACHED, 4, 6)
