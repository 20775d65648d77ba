"""MOVE PARTITION|PART TO DISK|VOLUME: where the files are then, and what exports say of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from catalog.iceberg.table import IcebergTable
from catalog.rewriting.copies import MovedFiles
from catalog.rewriting.integrity import checks
from catalog.storages.local import LocalStorage
from tableformat.committer import MAIN_BRANCH
from tableformat.disks import Disks
from tableformat.effects import Effects, Step
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import State
from tableformat.names import LakeName
from tableformat.operations.rewrite import MoveToDisk
from tableformat.operations.statement import FileRewriter, OnePart, OnePartition
from tableformat.operations.take_out import Leave
from tests.support.cleaning_up import left_behind
from tests.support.dying import BeforeFile, Dies, DiesAt, SentLate
from tests.support.lake import Meddling
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    attach,
    detach,
    export_at,
    in_files,
    on,
    part_in,
    partition,
    running,
)
from tests.support.other_engines import delete_first_row, rewrite
from tests.support.row_changes import change, numbers_in
from tests.support.row_merges import optimize
from tests.support.scenarios import (
    CLOCK,
    AtStep,
    Partitions,
    lake,
    parts_of,
    pyiceberg,
    row_of,
    rows_in_main,
    state,
)
from tests.support.tiers import share_of

P1 = partition("p1")


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table that is in the lake, p1 in two files, with the disks `cold` and `tape`."""
    return prepared(tmp_path)


def prepared(directory: Path) -> Partitions:
    made = in_files(directory)
    with pyiceberg(directory).transaction() as transaction:
        transaction.set_properties(
            {
                "mergeberg.disk.cold": f"file://{directory}/cold/",
                "mergeberg.disk.tape": f"file://{directory}/tape",
                "mergeberg.volume.slow": "tape, cold",
            }
        )
    return made


def move(
    directory: Path,
    which: OnePartition | OnePart = P1,
    *,
    disk: str = "cold",
    volume: str = "",
    effects: Effects | None = None,
    table: object = None,
    rows: ForeignPartitions | None = None,
    fast: bool = False,
) -> Outcome:
    """Move to a disk or volume, as a new process."""
    found = lake(directory)
    disks = Disks.of(found.load())
    to = disks.volume(volume, "Cannot") if volume else disks.disk(disk, "Cannot")
    one = running(directory, effects=effects, table=cast("IcebergTable | None", table), rows=rows)
    files = MovedFiles(found.storages, one.ports.note, checks(fast=fast))
    ports = replace(one.ports, writer=FileRewriter(files))
    return replace(one, ports=ports, most_plans=2).run(MoveToDisk(which, to, disks))


def places(directory: Path, name: str = "p1") -> list[str]:
    """Return the disks on which the files of a partition of main are."""
    key, disks = row_of(directory, name).key.hash, Disks.of(state(directory))
    return sorted(str(disks.disk_of(p)) for p in on(directory, MAIN_BRANCH) if key in p)


def numbers(directory: Path) -> list[int]:
    """Return all rows of main."""
    return sorted(n for path in on(directory, MAIN_BRANCH) for n in numbers_in(path))


def test_the_partition_s_files_are_there_and_all_else_is_as_it_was(
    tmp_path: Path, source: Partitions
) -> None:
    before, entries, old = numbers(tmp_path), entries_of(tmp_path), on(tmp_path, MAIN_BRANCH)

    done = move(tmp_path)

    assert (done.status, done.rows, done.data_files) == (Status.MOVED, 12, 2)
    assert (places(tmp_path), places(tmp_path, "p2")) == (["cold", "cold"], ["default"])
    assert (numbers(tmp_path), entries_of(tmp_path)) == (before, entries)
    uuid = state(tmp_path).layout.table_uuid
    assert len(list((tmp_path / "cold" / uuid).rglob("*.parquet"))) == 2
    assert all(Path(path.removeprefix("file://")).exists() for path in old)
    soon = export_at(tmp_path, source, CLOCK, IN_FILES)["p1"]
    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (soon.status, later.status) == (Status.ALREADY_EXPORTED, Status.UNCHANGED)
    assert left_behind(tmp_path) == []
    assert places(tmp_path) == ["cold", "cold"]


def entries_of(directory: Path) -> list[tuple[object, ...]]:
    """Return what manifests say of the files of main, but for where they are."""
    table = pyiceberg(directory)
    return sorted(
        (
            str(f.partition), f.record_count, f.file_size_in_bytes, str(f.lower_bounds),
            str(f.upper_bounds), str(f.column_sizes), str(f.split_offsets), str(f.sort_order_id),
        )
        for f in (task.file for task in table.scan().plan_files())
    )  # fmt: skip


def test_a_source_that_changed_is_exported_in_its_place(tmp_path: Path, source: Partitions) -> None:
    move(tmp_path)
    source.by_id["p1"] = parts_of("p1", 7, 5, 4)

    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REPLACED

    assert rows_in_main(tmp_path) == 19
    assert set(places(tmp_path)) == {"default"}


@pytest.mark.usefixtures("source")
def test_what_is_there_already_makes_no_snapshot(tmp_path: Path) -> None:
    assert move(tmp_path, disk="default").status is Status.UNCHANGED
    move(tmp_path)
    before = state(tmp_path).metadata_location

    again, by_volume = move(tmp_path), move(tmp_path, volume="slow")
    empty = move(tmp_path, partition("p9"))

    assert (again.status, again.message) == (Status.UNCHANGED, "all of it is on DISK 'cold'")
    assert (by_volume.status, empty.status) == (Status.UNCHANGED, Status.EMPTY)
    assert state(tmp_path).metadata_location == before


@pytest.mark.usefixtures("source")
def test_there_and_back_and_to_the_first_disk_of_a_volume(tmp_path: Path) -> None:
    before = numbers(tmp_path)
    for disk, volume, there in [
        ("cold", "", "cold"),
        ("default", "", "default"),
        ("", "slow", "tape"),
    ]:
        assert move(tmp_path, disk=disk, volume=volume).status is Status.MOVED

        assert (places(tmp_path), numbers(tmp_path)) == ([there, there], before)
    assert move(tmp_path, volume="default").status is Status.MOVED
    assert places(tmp_path) == ["default", "default"]


def test_a_part_is_moved_alone_and_counts_with_its_partition(
    tmp_path: Path, source: Partitions
) -> None:
    part = part_in(tmp_path, "p1")

    done = move(tmp_path, part)

    assert (done.status, done.data_files) == (Status.MOVED, 1)
    assert places(tmp_path) == ["cold", "default"]
    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (later.status, rows_in_main(tmp_path)) == (Status.UNCHANGED, 15)
    with pytest.raises(NotFoundError) as gone:
        move(tmp_path, part)
    assert gone.value.code == 232


@pytest.mark.usefixtures("source")
def test_statements_change_moved_rows_and_write_to_the_same_place(tmp_path: Path) -> None:
    """Harm prevented: rows that were put on cheap storage come back from it, or are lost."""
    move(tmp_path)
    running(tmp_path).run(detach("p1"))
    assert rows_in_main(tmp_path) == 3
    running(tmp_path).run(attach("p1"))
    assert places(tmp_path) == ["cold", "cold"]

    assert change(tmp_path, P1).status is Status.CHANGED
    assert places(tmp_path) == ["cold", "cold"]
    assert optimize(tmp_path, P1).status is Status.OPTIMIZED

    assert (places(tmp_path), rows_in_main(tmp_path)) == (["cold"], 15)
    assert left_behind(tmp_path) == []


def test_what_a_statement_changed_stays_changed(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: a partition that was changed counts as exported as it is in the source."""
    change(tmp_path, P1, between=(3, 1_000))
    before = numbers(tmp_path)

    assert move(tmp_path, part_in(tmp_path, "p1")).status is Status.MOVED
    assert move(tmp_path).status is Status.MOVED

    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (later.status, "TO DISK" in later.message) == (Status.UNCHANGED, True), later.message
    assert (places(tmp_path), numbers(tmp_path)) == (["cold", "cold"], before)


@pytest.mark.usefixtures("source")
def test_rows_that_went_to_another_table_are_not_taken_for_moved_to_a_disk(tmp_path: Path) -> None:
    """Harm prevented: an export reports that its rows are here while another table has them."""
    disks = Disks.of(state(tmp_path))
    for to in (disks.disk("cold", "Cannot"), disks.volume("slow", "Cannot")):
        for which in (P1, part_in(tmp_path, "p1")):
            assert MoveToDisk(which, to, disks).kind.rewrites_rows
    assert not Leave(P1, LakeName("lake", ("n",), "to disk")).kind.rewrites_rows


@pytest.mark.usefixtures("source")
def test_files_of_others_are_moved_too(tmp_path: Path) -> None:
    made = add_foreign(tmp_path)

    done = move(tmp_path, rows=ForeignPartitions(of={made: frozenset({"p1"})}))

    assert (done.status, done.rows, done.data_files) == (Status.MOVED, 16, 3)
    assert sum("/cold/" in path for path in on(tmp_path, MAIN_BRANCH)) == 3
    assert rows_in_main(tmp_path) == 19


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("harm", ["gone", "cut", "changed"])
def test_a_file_that_is_not_as_it_was_written_stays_where_it_is(tmp_path: Path, harm: str) -> None:
    """Harm prevented: the damage is moved to where nobody looks, and the good copy expires."""
    first = Path(min(p for p in on(tmp_path, MAIN_BRANCH)).removeprefix("file://"))
    key = next(n for n in ("p1", "p2") if row_of(tmp_path, n).key.hash in first.name)
    content = first.read_bytes()
    before = on(tmp_path, MAIN_BRANCH)
    first.unlink()
    if harm != "gone":
        first.write_bytes(content[:-1] if harm == "cut" else b"P" + bytes(9) + content[10:])

    done = move(tmp_path, partition(key))

    assert (done.status, str(first) in done.message) == (Status.FAILED, True)
    assert on(tmp_path, MAIN_BRANCH) == before


@pytest.mark.usefixtures("source")
def test_the_fast_form_opens_no_file_and_hides_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: after it damage has a receipt that calls it right."""
    key = row_of(tmp_path, "p1").key.hash
    first = Path(min(p for p in on(tmp_path, MAIN_BRANCH) if key in p).removeprefix("file://"))
    first.write_bytes(b"P" + bytes(9) + first.read_bytes()[10:])
    with monkeypatch.context() as closed:
        closed.setattr(LocalStorage, "fetch", None)
        closed.setattr(LocalStorage, "sha256", None)
        assert move(tmp_path, fast=True).status is Status.MOVED
    assert places(tmp_path) == ["cold", "cold"]

    back = move(tmp_path, disk="default")

    assert (back.status, "its bytes are not those" in back.message) == (Status.FAILED, True)
    assert places(tmp_path) == ["cold", "cold"]


@pytest.mark.usefixtures("source")
def test_rows_that_delete_files_delete_are_not_brought_back(tmp_path: Path) -> None:
    table, key = pyiceberg(tmp_path), row_of(tmp_path, "p1").key.hash
    files = (task.file for task in table.scan().plan_files())
    delete_first_row(table, next(file for file in files if key in file.file_path))
    before = state(tmp_path).metadata_location

    with pytest.raises(UnsupportedError, match="merge on read"):
        move(tmp_path)

    assert state(tmp_path).metadata_location == before


@pytest.mark.usefixtures("source")
def test_what_others_rewrite_meanwhile_is_planned_again_once_then_refused(
    tmp_path: Path,
) -> None:
    """Harm prevented: a partition is copied for ever, or the work of others is undone."""
    p2, before = row_of(tmp_path, "p2").key.hash, numbers(tmp_path)
    foreign = ForeignPartitions(rest="p1")

    def others(number: int, *, until: int) -> None:
        if number <= until:
            rewrite(tmp_path, lambda path: p2 not in path)

    once = Meddling(lake(tmp_path), before=partial(others, until=1))
    assert move(tmp_path, table=once, rows=foreign).status is Status.MOVED
    assert sum("/cold/" in path for path in on(tmp_path, MAIN_BRANCH)) == 2
    assert numbers(tmp_path) == before

    always = Meddling(lake(tmp_path), before=partial(others, until=10))
    with pytest.raises(RefusedError, match="other processes changed the partition 2 times"):
        move(tmp_path, disk="tape", table=always, rows=foreign)

    assert (always.sends, numbers(tmp_path)) == (2, before)
    assert not any("/tape/" in path for path in on(tmp_path, MAIN_BRANCH))


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES])
def test_what_a_dead_run_moved_elsewhere_meanwhile_is_moved_from_there(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: "moved", and the files are on another disk: both land as the same export."""
    before, dead = numbers(tmp_path), SentLate()
    with pytest.raises(Dies):
        move(tmp_path, disk="cold", effects=dead)

    done = move(tmp_path, disk="tape", effects=AtStep(step, dead.arrive, after=True))

    assert (done.status, places(tmp_path)) == (Status.MOVED, ["tape", "tape"])
    assert numbers(tmp_path) == before
    assert row_of(tmp_path, "p1").state is State.COMPLETED
    assert left_behind(tmp_path) == []


@pytest.mark.enumeration
@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_death_at_any_effect_and_the_same_statement_again(tmp_path: Path, *, after: bool) -> None:
    """Harm prevented: a file in both places, or in none; copies that nobody ever removes."""
    counting = DiesAt(10_000, after=False)
    move(tmp_path, effects=counting)
    assert {Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE} <= set(counting.steps)
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        prepared(directory)
        with pytest.raises(Dies):
            move(directory, effects=DiesAt(number, after=after))
        assert rows_in_main(directory) == 15, step

        assert move(directory).status in (Status.MOVED, Status.UNCHANGED), step

        assert places(directory) == ["cold", "cold"], step
        assert rows_in_main(directory) == 15, step
        assert row_of(directory, "p1").state is State.COMPLETED, step
        assert left_behind(directory) == [], step
        main = {p for p in on(directory, MAIN_BRANCH) if "/cold/" in p}
        there = {f"file://{path}" for path in (directory / "cold").rglob("*.parquet")}
        assert there == main, step


def test_a_copy_that_was_begun_on_another_disk_goes_with_what_else_is_left(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: once its claim is forgotten nobody can say of it that it may go."""

    def dies() -> None:
        raise Dies

    with pytest.raises(Dies):
        move(tmp_path, effects=BeforeFile(dies, 2))
    assert len(list((tmp_path / "cold").rglob("*.parquet"))) == 1

    source.by_id["p1"] = parts_of("p1", 7, 5, 4)
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REPLACED

    assert list((tmp_path / "cold").rglob("*.parquet")) == []
    assert left_behind(tmp_path) == []
