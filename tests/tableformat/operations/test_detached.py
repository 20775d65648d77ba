"""DETACH, ATTACH and DROP DETACHED on a lake table: what readers and later exports see."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import pytest
from pyiceberg.table import StaticTable, Table

from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.outcome import Status
from tableformat.file_names import RECEIPTS
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.names import PartitionId, PartName
from tableformat.operations.attach import Attach
from tableformat.operations.statement import AllPartitions, OnePart, Which
from tableformat.operations.take_out import Detach, Drop
from tests.support.cleaning_up import left_behind
from tests.support.lake import move_main
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    attach,
    detach,
    drop,
    export_at,
    in_files,
    on,
    part_in,
    running,
    whereabouts,
)
from tests.support.other_engines import delete_first_row, rewrite
from tests.support.scenarios import (
    Partitions,
    lake,
    parts_of,
    pyiceberg,
    row_of,
    rows_in_main,
    run,
    state,
)


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table whose two partitions are in the lake, the first in two files."""
    return in_files(tmp_path)


def test_what_is_detached_is_on_its_branch_alone_and_comes_back_as_it_was(
    tmp_path: Path, source: Partitions
) -> None:
    before = on(tmp_path, MAIN_BRANCH)

    gone = running(tmp_path).run(detach("p1"))

    assert (gone.status, gone.rows, gone.data_files) == (Status.DETACHED, 12, 2)
    main, detached = whereabouts(tmp_path)
    assert (main + detached, detached.total()) == (before, 2)
    assert rows_in_main(tmp_path) == source.rows["p2"]

    back = running(tmp_path).run(attach("p1"))

    assert (back.status, back.rows, back.data_files) == (Status.ATTACHED, 12, 2)
    assert whereabouts(tmp_path) == (before, Counter())
    assert left_behind(tmp_path) == []


def test_any_engine_reads_what_is_detached(tmp_path: Path, source: Partitions) -> None:
    running(tmp_path).run(detach("p1"))

    table = pyiceberg(tmp_path)
    head = table.snapshot_by_name(DETACHED_BRANCH)

    assert head is not None
    assert table.scan(snapshot_id=head.snapshot_id).to_arrow().num_rows == source.rows["p1"]
    assert table.scan().to_arrow().num_rows == source.rows["p2"]


def test_a_file_is_at_every_moment_on_one_of_the_two(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: a copy of the table in between has rows nowhere, or twice."""
    before = on(tmp_path, MAIN_BRANCH)
    versions = len(pyiceberg(tmp_path).metadata.metadata_log)

    running(tmp_path).run(detach("p1"))
    running(tmp_path).run(attach("p1"))

    assert source.rows
    log = [one.metadata_file for one in pyiceberg(tmp_path).metadata.metadata_log]
    since = [*log[versions:], pyiceberg(tmp_path).metadata_location]
    # That of before, and one for each statement.
    assert len(since) == 3
    found = [StaticTable.from_metadata(one) for one in since]
    detached = [files_at(one, DETACHED_BRANCH) for one in found]
    assert [files_at(one, MAIN_BRANCH) + at for one, at in zip(found, detached, strict=True)] == (
        [before] * 3
    )
    assert [at.total() for at in detached] == [0, 2, 0]


def files_at(table: Table, branch: str) -> Counter[str]:
    """Return the files of a branch of one version of the metadata; none without the branch."""
    head = table.snapshot_by_name(branch)
    tasks = table.scan(snapshot_id=head.snapshot_id).plan_files() if head is not None else ()
    return Counter(task.file.file_path for task in tasks)


@pytest.mark.parametrize("statement", [detach("p9"), attach("p9"), attach("p1")], ids=str)
def test_what_is_not_there_is_no_error(
    tmp_path: Path, source: Partitions, statement: Attach
) -> None:
    """As in ClickHouse; nothing is committed."""
    assert source.rows
    before = state(tmp_path).metadata_location

    done = running(tmp_path).run(statement)

    assert (done.status, state(tmp_path).metadata_location) == (Status.EMPTY, before)


def test_what_is_detached_counts_as_not_there_for_exports(
    tmp_path: Path, source: Partitions
) -> None:
    running(tmp_path).run(detach("p1"))

    outcomes = {o.partition_id: o for o in run(tmp_path, source, request=IN_FILES)}

    assert outcomes["p1"].status is Status.REFUSED
    assert "DETACH PARTITION ID 'p1'" in outcomes["p1"].message


def test_what_came_back_is_the_export_again(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: it is exported a second time, or refused for ever."""
    running(tmp_path).run(detach("p1"))
    running(tmp_path).run(attach("p1"))

    assert {o.status for o in export_at(tmp_path, source, LATER, IN_FILES).values()} == {
        Status.UNCHANGED
    }
    source.by_id["p1"] = parts_of("p1", 20, 30)
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REPLACED
    assert rows_in_main(tmp_path) == 53


def test_a_later_export_refuses_the_attach(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: the rows of the partition are there twice."""
    running(tmp_path).run(detach("p1"))
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.COMMITTED
    before = whereabouts(tmp_path)

    with pytest.raises(RefusedError, match=r"exported again since .* would be there twice"):
        running(tmp_path).run(attach("p1"))

    assert whereabouts(tmp_path) == before
    running(tmp_path).run(drop("p1"))
    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_an_export_that_others_rewrote_refuses_the_attach(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: no file of main names the key any more, and its rows are doubled."""
    running(tmp_path).run(detach("p1"))
    export_at(tmp_path, source, LATER, IN_FILES)
    rewrite(tmp_path)

    with pytest.raises(
        RefusedError, match=r"it is unknown which rows.*, and some could be there twice"
    ):
        running(tmp_path, rows=ForeignPartitions(rest="p1")).run(attach("p1"))

    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_a_part_is_refused_alongside_files_that_others_rewrote(
    tmp_path: Path, source: Partitions
) -> None:
    """The files may hold rows of it: nobody can tell what others put together."""
    assert source.rows
    part = part_in(tmp_path, "p1")
    running(tmp_path).run(Detach(part))
    rewrite(tmp_path)

    with pytest.raises(RefusedError, match="it is unknown which rows"):
        running(tmp_path, rows=ForeignPartitions(rest="p1")).run(Attach(part))


def test_files_of_others_are_refused_when_the_partition_was_exported_since(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: others had rewritten its rows, which the export has as well."""
    path = add_foreign(tmp_path, 4)
    foreign = ForeignPartitions({path: frozenset({"p1"})})
    part = OnePart(lake_part_name(PartitionId("p1"), path))
    running(tmp_path, rows=foreign).run(Detach(part))
    running(tmp_path, rows=foreign).run(Attach(part))
    running(tmp_path, rows=foreign).run(detach("p1"))
    export_at(tmp_path, source, LATER, IN_FILES)

    for statement in (Attach(part), attach("p1"), Attach(AllPartitions())):
        with pytest.raises(RefusedError, match="exported again since"):
            running(tmp_path, rows=foreign).run(statement)

    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_a_part_is_a_file(tmp_path: Path, source: Partitions) -> None:
    part = part_in(tmp_path, "p1")
    before = on(tmp_path, MAIN_BRANCH)

    gone = running(tmp_path).run(Detach(part))

    assert (gone.status, gone.data_files) == (Status.DETACHED, 1)
    main, detached = whereabouts(tmp_path)
    assert (main + detached, detached.total()) == (before, 1)
    # The source has rows that main has not: they are not taken for exported.
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REFUSED

    assert running(tmp_path).run(Attach(part)).status is Status.ATTACHED
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.UNCHANGED


def test_a_part_of_the_source_whose_files_hold_other_parts_is_refused(tmp_path: Path) -> None:
    """Harm prevented: rows of a part that nobody named go with it."""
    source = Partitions()
    run(tmp_path, source)
    names = [part.name for part in source.by_id["p1"]]
    (path,) = {p for p in on(tmp_path, MAIN_BRANCH) if row_of(tmp_path, "p1").key.hash in p}

    with pytest.raises(RefusedError, match=f"{path} holds rows of part {names[1]}, too"):
        running(tmp_path).run(Detach(OnePart(PartName.parse(names[0]))))

    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_parts_come_back_one_by_one_or_together(tmp_path: Path, source: Partitions) -> None:
    first, second = (part_in(tmp_path, "p1", n) for n in (0, 1))
    for one in (first, second):
        running(tmp_path).run(Detach(one))

    running(tmp_path).run(Attach(second))
    running(tmp_path).run(attach("p1"))

    assert rows_in_main(tmp_path) == sum(source.rows.values())
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.UNCHANGED


@pytest.mark.parametrize(
    ("statement", "code"),
    [(Drop, 232), (Detach, 232), (Attach, 233)],
    ids=["DROP", "DETACH", "ATTACH"],
)
def test_a_part_that_is_not_there_is_an_error(
    tmp_path: Path, source: Partitions, statement: Callable[[Which], Drop], code: int
) -> None:
    """As in ClickHouse."""
    assert source.rows

    with pytest.raises(NotFoundError, match="Cannot find part p1_1_1_7") as refused:
        running(tmp_path).run(statement(OnePart(PartName.parse("p1_1_1_7"))))

    assert refused.value.code == code


def test_all_partitions_go_and_come_back_in_one_commit(tmp_path: Path, source: Partitions) -> None:
    versions = len(pyiceberg(tmp_path).metadata.metadata_log)

    gone = running(tmp_path).run(Detach(AllPartitions()))
    assert (gone.status, gone.rows, rows_in_main(tmp_path)) == (Status.DETACHED, 15, 0)

    running(tmp_path).run(Attach(AllPartitions()))
    assert rows_in_main(tmp_path) == sum(source.rows.values())
    assert len(pyiceberg(tmp_path).metadata.metadata_log) == versions + 2
    running(tmp_path).run(Drop(AllPartitions()))
    assert whereabouts(tmp_path) == (Counter(), Counter())


def test_main_that_was_moved_back_has_it_once(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: one file twice in main, or twice on the branch."""
    before = state(tmp_path).main
    running(tmp_path).run(detach("p1"))
    move_main(lake(tmp_path), before)

    with pytest.raises(RefusedError, match="is in main already"):
        running(tmp_path).run(attach("p1"))
    assert running(tmp_path).run(detach("p1")).status is Status.DETACHED

    main, detached = whereabouts(tmp_path)
    assert (max(detached.values()), detached.total(), main.total()) == (1, 2, 1)
    running(tmp_path).run(attach("p1"))
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_a_file_whose_rows_were_deleted_is_refused(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: the deletes stay behind, and deleted rows come back with ATTACH."""
    (task, *_) = pyiceberg(tmp_path).scan().plan_files()
    delete_first_row(pyiceberg(tmp_path), task.file)
    before = whereabouts(tmp_path)

    with pytest.raises(RefusedError, match=r"deleted by delete files.*rewrite_data_files"):
        running(tmp_path).run(Detach(AllPartitions()))

    assert (source.rows, whereabouts(tmp_path)) == (source.rows, before)


def damaged(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "cut off":
        path.write_bytes(data[:-3])
    elif how == "no Parquet":
        path.write_bytes(b"x" * len(data))
    else:
        path.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])


@pytest.mark.parametrize("how", ["gone", "cut off", "no Parquet", "one bit"])
def test_what_was_damaged_meanwhile_is_refused_whole_and_named(
    tmp_path: Path, source: Partitions, how: str
) -> None:
    """Harm prevented: readers of main fail, or read other rows than were exported."""
    running(tmp_path).run(detach("p1"))
    before = whereabouts(tmp_path)
    path = Path(urlparse(min(before[1])).path)
    damaged(path, how)

    with pytest.raises(RefusedError, match=f"Cannot use .*{path.name}"):
        running(tmp_path).run(attach("p1"))

    assert source.rows
    assert whereabouts(tmp_path) == before
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("how", ["cut off", "no Parquet"])
def test_without_receipts_the_files_themselves_are_compared(
    tmp_path: Path, source: Partitions, how: str
) -> None:
    """Receipts are no part of Iceberg: the removal of orphans takes them away."""
    running(tmp_path).run(detach("p1"))
    receipts = Path(urlparse(state(tmp_path).location).path) / RECEIPTS
    shutil.rmtree(receipts)
    path = Path(urlparse(min(on(tmp_path, DETACHED_BRANCH))).path)
    whole = path.read_bytes()
    damaged(path, how)
    with pytest.raises(RefusedError, match=f"Cannot use .*{path.name}"):
        running(tmp_path).run(attach("p1"))

    path.write_bytes(whole)
    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_what_is_detached_outlives_expiry_and_the_removal_of_orphans(
    tmp_path: Path, source: Partitions
) -> None:
    running(tmp_path).run(detach("p1"))
    old = [s.snapshot_id for s in pyiceberg(tmp_path).metadata.snapshots]
    heads = {r.snapshot_id for r in pyiceberg(tmp_path).metadata.refs.values()}
    expiry = pyiceberg(tmp_path).maintenance.expire_snapshots()
    expiry.by_ids([one for one in old if one not in heads]).commit()
    assert left_behind(tmp_path) == []

    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED
    assert rows_in_main(tmp_path) == sum(source.rows.values())


def test_rows_of_others_go_and_come_back(tmp_path: Path, source: Partitions) -> None:
    foreign = ForeignPartitions({add_foreign(tmp_path, 4): frozenset({"p1"})})

    gone = running(tmp_path, rows=foreign).run(detach("p1"))
    back = running(tmp_path, rows=foreign).run(attach("p1"))

    assert (gone.rows, back.rows) == (16, 16)
    assert rows_in_main(tmp_path) == sum(source.rows.values()) + 4
