"""ATTACH next to files of other writers, which may have the rows that come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation

from tableformat.errors import RefusedError
from tableformat.export.job import export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import ById, ExportOptions
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.ledger import StatementKind
from tableformat.names import LakeName, PartitionId
from tableformat.operations.attach import Attach
from tableformat.operations.statement import AllPartitions, OnePart, OnePartition
from tableformat.operations.take_out import Detach
from tests.support.fakes import TABLE
from tests.support.lake import move_main
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    attach,
    detach,
    drop,
    on,
    part_in,
    running,
)
from tests.support.other_engines import rewrite, rewrite_in_two
from tests.support.scenarios import TO, Partitions, lake, parts_of, ports_of, pyiceberg, state
from tests.support.two_lake_tables import OTHER, P1, between, fetch, move, moving, piece

ALL = AllPartitions()
IN_P1 = ForeignPartitions(rest="p1")
ATTACH = ExportOptions(of_statement=StatementKind.ATTACH_FROM)
HERE, THERE = TO, OTHER
TWICE = "could be there twice"


def source_of(number: int = 0) -> Partitions:
    """Return a table with p1 alone: 12 rows in two files, or another one with 5 rows."""
    made = Partitions(by_id={"p1": parts_of("p1", 7, 5) if number == 0 else parts_of("p1", 5)})
    made.table = replace(TABLE, identity=f"source {number}")
    return made


def exported(
    directory: Path, number: int = 0, to: LakeName = HERE, options: ExportOptions | None = None
) -> Outcome:
    """Export p1 of one of the tables, after the time to live of every export."""
    options = options or ExportOptions()
    request = replace(IN_FILES, to=to, selection=ById(PartitionId("p1")), options=options)
    ports = ports_of(directory, source_of(number), clock=LATER.__next__)
    with contextlib.closing(ports.ledger):
        (done,) = export(request, ports, slots=1)
    return done


def rows(directory: Path, name: LakeName = HERE) -> int:
    """Return the rows of main of a table."""
    table = lake(directory, name)
    return sum(f.rows for f in table.files_on(table.load(), "main"))


def do(directory: Path, statement: object, name: LakeName = HERE) -> Outcome:
    """Run a statement on one of the tables, where all files of others are in p1."""
    table = lake(directory, name)
    return running(directory, rows=IN_P1, table=table, name=name).run(statement)  # type: ignore[arg-type]


def attached(directory: Path, which: OnePartition | AllPartitions = P1) -> Outcome:
    """Attach from the other table."""
    return between(directory, THERE, HERE, which, rows=IN_P1)


def expire(directory: Path) -> None:
    """Expire all snapshots but those of main and of the branches."""
    table = pyiceberg(directory)
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    gone = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id not in heads]
    table.maintenance.expire_snapshots().by_ids(gone).commit()


def assert_refused(directory: Path, act: Callable[[], Outcome], *tables: LakeName) -> str:
    """Check that an act is refused and changes nothing; return the message."""
    names = tables or (HERE,)
    before = [lake(directory, name).load().main for name in names]
    try:
        done = act()
    except RefusedError as error:
        message = error.message
    else:
        message = done.message
        assert done.status is Status.REFUSED, done
    assert TWICE in message
    assert [lake(directory, name).load().main for name in names] == before
    return message


def two_empty(directory: Path) -> None:
    """Make two tables, each without rows of p1."""
    for number, name in enumerate((HERE, THERE)):
        exported(directory, number, name)
        do(directory, drop("p1"), name)


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    """Make two tables with the same export of p1; others rewrite it here in two snapshots."""
    exported(tmp_path)
    exported(tmp_path, to=THERE)
    rewrite_in_two(tmp_path)
    assert (rows(tmp_path), rows(tmp_path, THERE)) == (12, 12)
    return tmp_path


# All partitions at once.


@pytest.mark.parametrize("which", [P1, ALL])
def test_rows_of_others_do_not_come_from_an_earlier_snapshot_again(
    tmp_path: Path, which: OnePartition | AllPartitions
) -> None:
    """Harm prevented: ALL does what is refused for each partition."""
    exported(tmp_path)
    add_foreign(tmp_path)
    now = state(tmp_path).main

    assert_refused(tmp_path, lambda: between(tmp_path, HERE, HERE, which, at=now, rows=IN_P1))

    between(tmp_path, HERE, HERE, P1, at=now, replaces=True, rows=IN_P1)
    assert rows(tmp_path) == 16


def test_rows_of_others_in_other_partitions_do_not_hinder_all(tmp_path: Path) -> None:
    two_empty(tmp_path)
    here, there = add_foreign(tmp_path, 3), add_foreign(tmp_path, 6, THERE)
    foreign = ForeignPartitions({here: frozenset({"p9", "p8"}), there: frozenset({"p1"})})

    done = between(tmp_path, THERE, HERE, ALL, rows=foreign)

    assert (done.status, rows(tmp_path)) == (Status.ATTACHED, 9)


# Rewritten in two snapshots: files are removed, then others are added.


def test_rewritten_rows_are_not_attached_from_clickhouse_again(twins: Path) -> None:
    """Harm prevented: a rewrite by two snapshots counts as rows that are gone."""
    message = assert_refused(twins, lambda: exported(twins, options=ATTACH))

    assert "export the partition with" in message


@pytest.mark.parametrize("which", [P1, ALL])
def test_rewritten_rows_are_not_attached_from_a_lake_table_again(
    twins: Path, which: OnePartition | AllPartitions
) -> None:
    assert_refused(twins, lambda: attached(twins, which))

    assert between(twins, THERE, HERE, replaces=True, rows=IN_P1).status is Status.REPLACED
    assert rows(twins) == 12


def test_rewritten_rows_are_not_moved_to_themselves(tmp_path: Path) -> None:
    """Harm prevented: this table loses its rows, and the other one has them twice."""
    exported(tmp_path)
    exported(tmp_path, to=THERE)
    rewrite_in_two(tmp_path, of=THERE)

    assert_refused(tmp_path, lambda: move(tmp_path, rows=IN_P1), HERE, THERE)
    with pytest.raises(RefusedError, match=TWICE):
        moving(tmp_path, rows=IN_P1).forecast(P1)


@pytest.mark.parametrize("which", [P1, ALL])
def test_fetched_rows_are_not_attached_to_their_rewritten_form(
    twins: Path, which: OnePartition | AllPartitions
) -> None:
    fetch(twins, P1, rows=IN_P1)

    assert_refused(twins, lambda: do(twins, Attach(which)))


def test_a_rewritten_form_of_fetched_rows_is_not_attached_to_them(tmp_path: Path) -> None:
    two_empty(tmp_path)
    exported(tmp_path, 1, THERE, ExportOptions(force=True))
    fetch(tmp_path, P1, rows=IN_P1)
    do(tmp_path, attach("p1"))
    assert rows(tmp_path) == 5
    rewrite_in_two(tmp_path, of=THERE)
    fetch(tmp_path, P1, rows=IN_P1)

    assert_refused(tmp_path, lambda: do(tmp_path, attach("p1")))


def test_a_piece_that_others_rewrote_does_not_come_again(tmp_path: Path) -> None:
    """Harm prevented: a day of a month is there twice."""
    two_empty(tmp_path)
    exported(tmp_path, 0, THERE, ExportOptions(force=True))
    foreign = ForeignPartitions(rest="p2")
    assert piece(tmp_path, P1, "p2", rows=foreign).rows == 12
    rewrite_in_two(tmp_path)

    assert_refused(tmp_path, lambda: piece(tmp_path, P1, "p2", rows=foreign))


def test_rows_older_than_the_export_do_not_hinder_an_attach(tmp_path: Path) -> None:
    """Of files that were there before the export, none was made of its files."""
    two_empty(tmp_path)
    path = add_foreign(tmp_path)
    exported(tmp_path, options=ExportOptions(force=True, overwrite_file_if_exists=True))
    rewrite(tmp_path, lambda one: one != path, copies=lambda _: 0, operation=Operation.DELETE)
    assert rows(tmp_path) == 4

    assert exported(tmp_path, options=ATTACH).status is Status.COMMITTED
    assert rows(tmp_path) == 16


@pytest.mark.parametrize("takes", [drop, detach])
@pytest.mark.parametrize("way", ["clickhouse", "lake"])
def test_what_others_append_later_does_not_hinder_an_attach(
    tmp_path: Path, takes: Callable[[str], object], way: str
) -> None:
    """A statement took out all rows: what came since has other rows."""
    exported(tmp_path)
    exported(tmp_path, to=THERE)
    do(tmp_path, takes("p1"))
    add_foreign(tmp_path)

    done = attached(tmp_path) if way == "lake" else exported(tmp_path, options=ATTACH)

    assert done.status in (Status.ATTACHED, Status.COMMITTED)
    assert rows(tmp_path) == 16


def test_a_rewritten_partition_can_be_dropped_and_attached(twins: Path) -> None:
    """Also next to rows that others append after the DROP."""
    do(twins, drop("p1"))
    add_foreign(twins)

    assert exported(twins, options=ATTACH).status is Status.COMMITTED
    assert rows(twins) == 16


def test_moved_rows_come_back_next_to_later_rows_of_others(tmp_path: Path) -> None:
    two_empty(tmp_path)
    exported(tmp_path, options=ExportOptions(force=True))
    move(tmp_path, rows=IN_P1)
    add_foreign(tmp_path)

    assert attached(tmp_path).status is Status.ATTACHED
    assert rows(tmp_path) == 16


# Rows of an export that statements bring as rows of others.


def back_by_snapshot(directory: Path) -> None:
    """Drop p1, which others rewrote, and bring it back from the snapshot before."""
    before = state(directory).main
    do(directory, drop("p1"))
    between(directory, HERE, HERE, at=before, rows=IN_P1)


def back_by_attach(directory: Path) -> None:
    """Detach p1, drop it in vain, and attach it."""
    for one in (detach, drop, attach):
        do(directory, one("p1"))


@pytest.mark.parametrize("back", [back_by_snapshot, back_by_attach])
@pytest.mark.parametrize("rewrites", [rewrite, rewrite_in_two])
def test_rows_that_came_back_as_those_of_others_are_not_attached_again(
    tmp_path: Path, back: Callable[[Path], None], rewrites: Callable[[Path], None]
) -> None:
    """Harm prevented: DROP says that no row is left, and this stays so after they came back."""
    exported(tmp_path)
    exported(tmp_path, to=THERE)
    rewrites(tmp_path)
    back(tmp_path)
    assert rows(tmp_path) == 12

    assert_refused(tmp_path, lambda: exported(tmp_path, options=ATTACH))
    assert_refused(tmp_path, lambda: attached(tmp_path))
    fetch(tmp_path, P1, rows=IN_P1)
    assert_refused(tmp_path, lambda: do(tmp_path, attach("p1")))


def test_rows_that_replaced_an_export_are_not_attached_again(tmp_path: Path) -> None:
    """Harm prevented: REPLACE took its rows out, and brought them in the same snapshot."""
    exported(tmp_path)
    exported(tmp_path, to=THERE)
    rewrite_in_two(tmp_path, of=THERE)
    between(tmp_path, THERE, HERE, replaces=True, rows=IN_P1)

    assert_refused(tmp_path, lambda: exported(tmp_path, options=ATTACH))


def test_an_export_does_not_say_that_no_row_is_there(tmp_path: Path) -> None:
    """Harm prevented: the user exports the same rows alongside, because they seem to be gone."""
    exported(tmp_path)
    rewrite(tmp_path)
    back_by_snapshot(tmp_path)

    plain = exported(tmp_path)
    forced = exported(tmp_path, options=ExportOptions(force=True))

    assert {plain.status, forced.status} == {Status.REFUSED}
    assert "No row of it" not in plain.message + forced.message
    assert "They may have its rows: compare them." in forced.message
    assert "run DROP PARTITION first" in forced.message
    do(tmp_path, drop("p1"))
    assert exported(tmp_path, options=ExportOptions(force=True)).status is Status.COMMITTED
    assert rows(tmp_path) == 12


def test_rows_that_came_back_do_not_leave_with_another_export(tmp_path: Path) -> None:
    """Harm prevented: an export of one source takes the only rows of another one out of main."""
    exported(tmp_path)
    first = {*on(tmp_path, "main")}
    exported(tmp_path, 1, options=ExportOptions(overwrite_file_if_exists=True))
    rewrite(tmp_path, lambda path: path not in first)
    back_by_snapshot(tmp_path)
    assert rows(tmp_path) == 17

    done = exported(tmp_path, options=ExportOptions(force=True, replace_partition=True))

    assert (done.status, rows(tmp_path)) == (Status.REFUSED, 17)
    assert "may hold rows of partition p1" in done.message


def test_detached_rows_do_not_come_back_next_to_a_copy_of_them(tmp_path: Path) -> None:
    """The copy is of a table in which others had rewritten them."""
    exported(tmp_path)
    exported(tmp_path, to=THERE)
    rewrite_in_two(tmp_path, of=THERE)
    do(tmp_path, detach("p1"))
    attached(tmp_path)

    message = assert_refused(tmp_path, lambda: do(tmp_path, attach("p1")))

    assert "DROP DETACHED" in message


def test_detached_rows_do_not_come_back_next_to_an_earlier_form(tmp_path: Path) -> None:
    """Harm prevented: one after the other comes back what is refused together."""
    exported(tmp_path)
    rewrite(tmp_path)
    (path, *more) = on(tmp_path, "main")
    do(tmp_path, detach("p1"))
    do(tmp_path, drop("p1"))
    exported(tmp_path, options=ExportOptions(force=True))
    do(tmp_path, detach("p1"))
    for one in (path, *more):
        do(tmp_path, Attach(OnePart(lake_part_name(PartitionId("p1"), one))))
    assert rows(tmp_path) == 12

    assert_refused(tmp_path, lambda: do(tmp_path, attach("p1")))


@pytest.mark.parametrize("together", [False, True])
def test_an_export_comes_back_to_rows_of_others_that_it_was_detached_with(
    tmp_path: Path, *, together: bool
) -> None:
    exported(tmp_path)
    foreign = OnePart(lake_part_name(PartitionId("p1"), add_foreign(tmp_path)))
    if not together:
        do(tmp_path, Detach(foreign))
    do(tmp_path, detach("p1"))

    do(tmp_path, Attach(foreign))
    do(tmp_path, attach("p1"))

    assert rows(tmp_path) == 16


# A statement that main may never have had.


@pytest.mark.parametrize("takes", [drop, detach])
@pytest.mark.parametrize("rewrites", [rewrite, rewrite_in_two])
def test_a_statement_that_main_left_proves_nothing_after_expiry(
    tmp_path: Path, takes: Callable[[str], object], rewrites: Callable[[Path], None]
) -> None:
    """Harm prevented: the rows are in main, and a statement that was undone says they are not."""
    exported(tmp_path)
    exported(tmp_path, to=THERE)
    before = state(tmp_path).main
    do(tmp_path, takes("p1"))
    move_main(lake(tmp_path), before)
    rewrites(tmp_path)
    expire(tmp_path)

    assert_refused(tmp_path, lambda: exported(tmp_path, options=ATTACH))
    assert_refused(tmp_path, lambda: attached(tmp_path))
    if takes is detach:
        assert_refused(tmp_path, lambda: do(tmp_path, attach("p1")))


def test_a_drop_after_main_is_not_believed(tmp_path: Path) -> None:
    """Harm prevented: rows that a platform compacted are attached next to themselves."""
    exported(tmp_path)
    rewrite(tmp_path, operation=Operation.REPLACE)
    compacted = state(tmp_path).main
    exported(tmp_path)
    do(tmp_path, drop("p1"))
    exported(tmp_path, options=ExportOptions(force=True))
    do(tmp_path, drop("p1"))
    move_main(lake(tmp_path), compacted)
    expire(tmp_path)

    assert_refused(tmp_path, lambda: exported(tmp_path, options=ATTACH))

    assert "No" not in exported(tmp_path).message.split(".")[0]


# Rows without an export that go to another table and come back.


def test_rows_of_others_do_not_come_back_to_themselves(tmp_path: Path) -> None:
    """Harm prevented: their copy has another key, so nothing shows that they are the same."""
    two_empty(tmp_path)
    add_foreign(tmp_path)
    between(tmp_path, HERE, THERE, rows=IN_P1)

    assert_refused(tmp_path, lambda: attached(tmp_path))
    assert_refused(tmp_path, lambda: attached(tmp_path, ALL))
    back = moving(tmp_path, rows=IN_P1)
    with pytest.raises(RefusedError, match=TWICE):
        replace(back, here=back.there, there=back.here).run(P1)
    assert (rows(tmp_path), rows(tmp_path, THERE)) == (4, 4)
    fetch(tmp_path, P1, rows=IN_P1)
    with pytest.raises(RefusedError):
        do(tmp_path, attach("p1"))


def test_merged_exports_do_not_come_back_to_themselves(tmp_path: Path) -> None:
    two_empty(tmp_path)
    exported(tmp_path, options=ExportOptions(force=True))
    exported(tmp_path, 1, options=ExportOptions(overwrite_file_if_exists=True))
    rewrite(tmp_path)
    between(tmp_path, HERE, THERE, rows=IN_P1)

    assert_refused(tmp_path, lambda: attached(tmp_path))


def test_a_copy_of_rewritten_rows_does_not_come_next_to_a_later_export(tmp_path: Path) -> None:
    two_empty(tmp_path)
    exported(tmp_path, options=ExportOptions(force=True))
    rewrite(tmp_path)
    between(tmp_path, HERE, THERE, rows=IN_P1)
    do(tmp_path, drop("p1"))
    exported(tmp_path, options=ExportOptions(force=True))

    message = assert_refused(tmp_path, lambda: attached(tmp_path))

    assert "INSERT SELECT" in message
    assert between(tmp_path, THERE, HERE, replaces=True, rows=IN_P1).status is Status.REPLACED


@pytest.mark.parametrize("way", ["clickhouse", "lake"])
def test_an_export_does_not_come_next_to_a_copy_of_its_rewritten_rows(
    tmp_path: Path, way: str
) -> None:
    """The same, the other way round: the copy was first."""
    two_empty(tmp_path)
    exported(tmp_path, 0, THERE)
    rewrite(tmp_path, of=THERE)
    attached(tmp_path)
    do(tmp_path, drop("p1"), THERE)
    exported(tmp_path, 0, THERE, ExportOptions(force=True))

    if way == "lake":
        assert_refused(tmp_path, lambda: attached(tmp_path))
    else:
        assert_refused(tmp_path, lambda: exported(tmp_path, options=ATTACH))


def test_rows_of_others_come_next_to_an_export_that_both_have(tmp_path: Path) -> None:
    """In the other table they are next to the same export, so they are other rows."""
    exported(tmp_path)
    exported(tmp_path, to=THERE)
    add_foreign(tmp_path, 6, THERE)

    done = attached(tmp_path)

    assert (done.status, done.rows, rows(tmp_path)) == (Status.ATTACHED, 6, 18)
    assert_refused(tmp_path, lambda: attached(tmp_path))


def test_rows_of_others_come_to_a_partition_without_rows(tmp_path: Path) -> None:
    """Also next to other partitions of the same table."""
    two_empty(tmp_path)
    here, there = add_foreign(tmp_path, 3), add_foreign(tmp_path, 6, THERE)
    foreign = ForeignPartitions({here: frozenset({"p2"}), there: frozenset({"p1"})})

    assert between(tmp_path, THERE, HERE, rows=foreign).rows == 6
    assert rows(tmp_path) == 9


def test_a_part_of_an_export_still_comes_back_next_to_rows_of_others(tmp_path: Path) -> None:
    exported(tmp_path)
    part = part_in(tmp_path, "p1")
    do(tmp_path, Detach(part))
    add_foreign(tmp_path)

    do(tmp_path, Attach(part))

    assert rows(tmp_path) == 16
