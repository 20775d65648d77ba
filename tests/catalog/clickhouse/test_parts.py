"""Frozen parts are opened exactly as planned, or not at all."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catalog.clickhouse.part_directories import PartsDirectory, parts_directory, sweep
from tableformat.errors import SourceError
from tableformat.export.slices import Slice, WritePlan
from tableformat.source import PartsLayout
from tests.support.frozen_parts import LAYOUT, PLAN, Source, insert, make_source
from tests.support.in_child import in_child

# A file system that refuses hard links.
WITHOUT_LINKS = """
import errno, os
def refuse(*args, **kwargs):
    raise OSError(errno.EXDEV, "Invalid cross-device link")
os.link = refuse
"""
# Reads slices one after the other in one process: ids in order, or the error's text.
READ = """
from catalog.clickhouse.parts import open_slice
from tableformat.errors import SourceError
found = []
for plan, slice_ in values:
    try:
        with open_slice(plan, slice_) as opened:
            ids = [v for b in opened.batches() for v in b.column(0).to_pylist()]
            assert opened.row("count()") == (len(ids),)
            found.append(ids)
    except SourceError as error:
        found.append(str(error))
answer(found)
"""


# Opens slices together in one process: of each the table and the ids in order, or the error's text.
READ_TOGETHER = """
from catalog.clickhouse.parts import open_slices, running
from tableformat.errors import SourceError
plan, slices = values
found = []
with running(), open_slices(plan, slices) as open_slice:
    for slice_ in slices:
        try:
            with open_slice(slice_) as opened:
                ids = [v for b in opened.batches() for v in b.column(0).to_pylist()]
                assert opened.row("count()") == (len(ids),)
                found.append((opened.table, ids))
        except SourceError as error:
            found.append(("", str(error)))
answer(found)
"""


# Reads slices of one task: two streams by turns, one that is left, and the first again. The answer
# is the ids of each, and how many connections were opened until the first two had ended.
READ_BY_TURNS = """
import adbc_driver_chdb
from itertools import zip_longest
opened, connect = [], adbc_driver_chdb.connect
adbc_driver_chdb.connect = lambda *of: opened.append(of) or connect(*of)
from catalog.clickhouse.parts import open_slice, open_slices, reading
plan, slices = values
ids = lambda batches: [v for b in batches if b is not None for v in b.column(0).to_pylist()]
with reading(plan) as open_together, open_together(slices) as open_slice:
    with open_slice(slices[0]) as first, open_slice(slices[1]) as second:
        before = len(opened)
        by_turns = list(zip_longest(first.batches(), second.batches()))
        needed = len(opened) - before
        left = first.batches()
        next(left)
        left.close()
        again = [ids(first.batches()) for _ in range(9)]
        assert first.row("count()") == (len(again[0]),)
        more = len(opened) - before - needed
answer([ids(b for b, _ in by_turns), ids(b for _, b in by_turns), *again, needed, more])
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Three parts with interleaved ids; rows of the second are deleted lightly."""
    return make_source(
        tmp_path_factory.mktemp("source") / "disk",
        insert(0, 1000, 3),
        insert(1, 1000, 3),
        insert(2, 100, 3),
        "DELETE FROM d.t WHERE id % 3 = 1 AND id < 301 SETTINGS lightweight_deletes_sync = 2",
    )


def read(*wanted: tuple[WritePlan, Slice]) -> list[Any]:
    found: list[Any] = in_child(READ, *wanted)
    return found


def visible_ids() -> list[int]:
    first = range(0, 3000, 3)
    second = [n for n in range(1, 3000, 3) if n >= 301]
    return sorted([*first, *second, *range(2, 300, 3)])


def files_below(path: Path) -> list[tuple[str, int, int]]:
    found = sorted(p for p in path.rglob("*") if p.is_file())
    return [(str(p), p.stat().st_mtime_ns, p.stat().st_nlink) for p in found]


def test_a_bin_of_parts_is_read_in_key_order_without_its_deleted_rows(source: Source) -> None:
    before = files_below(source.disk)
    (slice_,) = source.slices()

    (ids,) = read((PLAN, slice_))

    assert ids == visible_ids()
    assert slice_.rows == len(ids)
    assert files_below(source.disk) == before, "nothing on the source's disk may be changed or left"


def test_ranges_of_a_part_are_disjoint_and_complete(source: Source) -> None:
    part = source.partition.parts[0].part
    ranges = source.slices(part=0, target=part.bytes_on_disk // 7)
    assert len(ranges) > 5

    found = read(*((PLAN, slice_) for slice_ in ranges))

    assert [v for ids in found for v in ids] == list(range(0, 3000, 3))
    assert [len(ids) for ids in found] == [slice_.rows for slice_ in ranges]


def test_ranges_of_a_part_with_deleted_rows_show_only_the_living(source: Source) -> None:
    with_deletes = next(
        i for i, p in enumerate(source.partition.parts) if p.visible_rows != p.part.rows
    )
    size = source.partition.parts[with_deletes].part.bytes_on_disk
    ranges = source.slices(part=with_deletes, target=size // 3)

    found = read(*((PLAN, slice_) for slice_ in ranges))

    assert [v for ids in found for v in ids] == [n for n in range(1, 3000, 3) if n >= 301]


def test_clauses_that_are_not_the_tables_are_an_error_and_not_an_empty_table(
    source: Source,
) -> None:
    """ClickHouse opens such a directory with no rows and no word; so would we export nothing."""
    (slice_,) = source.slices(part=0)
    layout = dataclasses.replace(LAYOUT, partition_by="id % 10")
    name = slice_.ranges[0].name

    wrong, right = read((dataclasses.replace(PLAN, layout=layout), slice_), (PLAN, slice_))

    assert wrong.startswith(f"Cannot read part {name} of d.t: ClickHouse did not load it")
    assert right == list(range(0, 3000, 3))


def test_a_part_that_was_changed_since_the_plan_is_refused(source: Source) -> None:
    (slice_,) = source.slices(part=0)
    span = dataclasses.replace(slice_.ranges[0], hash_of_all_files="0" * 32)

    (message,) = read((PLAN, dataclasses.replace(slice_, ranges=(span,))))

    assert f"Cannot read part {span.name} of d.t: it holds 1000 rows with hash" in message


@pytest.mark.parametrize("name", ["checksums.txt", "columns.txt"])
def test_a_part_that_does_not_load_is_named(source: Source, tmp_path: Path, name: str) -> None:
    damaged = copy_of(source, tmp_path)
    slice_ = damaged.slices()[0]
    broken = slice_.ranges[1]
    (Path(broken.path) / name).write_bytes(b"not what it was")

    (message,) = read((PLAN, slice_))

    assert message.startswith(f"Cannot read part {broken.name} of d.t: ClickHouse did not load it")


def test_a_damaged_column_ends_its_stream_and_the_next_slice_is_right(
    source: Source, tmp_path: Path
) -> None:
    """A short stream would be lost rows; a leftover of a failed query would be foreign ones."""
    damaged = copy_of(source, tmp_path)
    first, second = damaged.slices(part=0)[0], damaged.slices(part=1)[0]
    file = Path(first.ranges[0].path) / "name.bin"
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(bytes(data))

    message, right = read((PLAN, first), (PLAN, second))

    assert message.startswith(f"Cannot read part {first.ranges[0].name} of d.t: ")
    assert "hecksum" in message
    assert "Check the table with CHECK TABLE" in message
    assert len(right) == second.rows


def of_each_part() -> list[list[int]]:
    return [
        list(range(0, 3000, 3)),
        [n for n in range(1, 3000, 3) if n >= 301],
        list(range(2, 300, 3)),
    ]


def test_slices_that_are_opened_together_have_each_their_own_rows(source: Source) -> None:
    """Harm prevented: rows of one partition in the file of another."""
    size = source.partition.parts[0].part.bytes_on_disk
    ranges = source.slices(part=0, target=size // 3)
    pieces = (*ranges, *source.slices(part=1), *source.slices(part=2))
    before = files_below(source.disk)

    found = in_child(READ_TOGETHER, PLAN, pieces)

    first, second, third = of_each_part()
    assert [v for _, ids in found[: len(ranges)] for v in ids] == first
    assert [ids for _, ids in found[len(ranges) :]] == [second, third]
    assert len({table for table, _ in found}) == 1
    assert files_below(source.disk) == before


@pytest.mark.parametrize("name", ["checksums.txt", "columns.txt"])
def test_a_damaged_slice_among_others_fails_alone_and_with_its_own_reason(
    source: Source, tmp_path: Path, name: str
) -> None:
    """Harm prevented: one bad partition takes all the others of its task with it."""
    damaged = copy_of(source, tmp_path)
    pieces = tuple(s for i in range(3) for s in damaged.slices(part=i))
    broken = pieces[1].ranges[0]
    (Path(broken.path) / name).write_bytes(b"not what it was")

    found = in_child(READ_TOGETHER, PLAN, pieces)

    first, _, third = of_each_part()
    assert [found[0][1], found[2][1]] == [first, third]
    assert found[1][1].startswith(f"Cannot read part {broken.name} of d.t: ClickHouse did not")


def test_the_streams_of_a_task_share_connections_and_never_one_at_a_time(source: Source) -> None:
    """Harm prevented: a stream ends another one early, or each small file opens a connection."""
    pieces = tuple(s for i in (0, 2) for s in source.slices(part=i))

    *found, needed, more = in_child(READ_BY_TURNS, PLAN, pieces)

    first, _, last = of_each_part()
    assert found == [first, last, *[first] * 9]
    assert (needed, more) == (2, 0)


def test_a_missing_slice_does_not_stop_the_others(source: Source) -> None:
    """Harm prevented: one partition that was dropped under the task ends its neighbours."""
    gone, *others = (s for i in range(3) for s in source.slices(part=i))
    span = dataclasses.replace(gone.ranges[0], path="/nowhere/1_1_1_0/")

    found = in_child(READ_TOGETHER, PLAN, (dataclasses.replace(gone, ranges=(span,)), *others))

    assert [ids for _, ids in found[1:]] == of_each_part()[1:]
    assert found[0][1].startswith("Cannot link the parts of partition all below")


def test_together_without_hard_links_each_slice_has_its_own_rows(source: Source) -> None:
    """Harm prevented: the parts next to them in the original directory are exported with them."""
    pieces = tuple(s for i in (0, 2) for s in source.slices(part=i))

    found = in_child(WITHOUT_LINKS + READ_TOGETHER, PLAN, pieces)

    first, _, third = of_each_part()
    assert [ids for _, ids in found] == [first, third]


def copy_of(source: Source, folder: Path) -> Source:
    """Return the same parts as files of their own, so that they can be damaged."""
    disk = folder / "disk"
    shutil.copytree(source.disk, disk)
    parts = tuple(
        dataclasses.replace(
            p,
            part=dataclasses.replace(
                p.part, path=p.part.path.replace(str(source.disk), str(disk), 1)
            ),
        )
        for p in source.partition.parts
    )
    return Source(disk, dataclasses.replace(source.partition, parts=parts))


def test_without_hard_links_the_parts_are_read_where_they_are(source: Source) -> None:
    """The other parts of that directory must stay out."""
    (slice_,) = source.slices(part=0)
    before = files_below(source.disk)

    (ids,) = in_child(WITHOUT_LINKS + READ, (PLAN, slice_))

    assert ids == list(range(0, 3000, 3))
    assert files_below(source.disk) == before


def test_parts_without_a_place_are_read_in_their_own_directory(source: Source) -> None:
    """No file is ever written next to frozen parts; and hard links would count in their files."""
    (slice_,) = source.slices(part=0)
    before = files_below(source.disk)
    without_place = dataclasses.replace(slice_, place="")

    (ids,) = in_child(READ, (PLAN, without_place))
    with parts_directory("job1", (without_place,)) as directory:
        assert directory == PartsDirectory(Path(slice_.ranges[0].path).parent, private=False)
        assert files_below(source.disk) == before

    assert ids == list(range(0, 3000, 3))
    assert files_below(source.disk) == before


def test_the_private_directory_goes_also_when_reading_fails(source: Source) -> None:
    (slice_,) = source.slices(part=0)

    seen: list[PartsDirectory] = []

    def use() -> None:
        with parts_directory("job1", (slice_,)) as directory:
            seen.append(directory)
            assert [p.name for p in directory.path.iterdir()] == [slice_.ranges[0].name]
            message = "stop"
            raise ValueError(message)

    with pytest.raises(ValueError, match="stop"):
        use()

    assert seen[0].private
    assert seen[0].path.name.startswith(f"mergeberg-job1-{os.getpid()}-")
    assert not seen[0].path.exists()


def test_a_part_that_is_not_there_is_a_source_error(source: Source) -> None:
    (slice_,) = source.slices(part=0)
    span = dataclasses.replace(slice_.ranges[0], path="/nowhere/1_1_1_0/")

    with (
        pytest.raises(SourceError, match=r"Cannot link the parts of partition all .*No such file"),
        parts_directory("job1", (dataclasses.replace(slice_, ranges=(span,)),)),
    ):
        pass


def test_leftovers_are_swept_only_when_job_and_process_are_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    dead, alive = child.pid, os.getpid()
    names = [
        f"mergeberg-old-{dead}-1",
        f"mergeberg-old-{alive}-1",
        f"mergeberg-a-b-{dead}-2",
        f"mergeberg-now-{dead}-1",
        "mergeberg-notes",
        "store",
    ]
    for name in names:
        (tmp_path / name / "part").mkdir(parents=True)

    removed = sweep(tmp_path, lambda job: job == "now")

    assert sorted(path.name for path in removed) == sorted([names[0], names[2]])
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted({*names} - {names[0], names[2]})


def test_a_part_of_which_a_file_is_not_read_is_refused(tmp_path: Path) -> None:
    """ClickHouse opens it, and shows empty arrays."""
    columns = "`id` UInt32, `n.a` Array(UInt8), `n.b` Array(String)"
    made = make_source(
        tmp_path / "disk",
        "DROP TABLE d.t SYNC",
        f"CREATE TABLE d.t ({columns}) ENGINE = MergeTree ORDER BY id"
        " SETTINGS share_nested_offsets = 0, min_bytes_for_wide_part = 0",
        "INSERT INTO d.t SELECT number, [1], ['x'] FROM numbers(10)",
    )
    right = (("share_nested_offsets", "0"),)
    plans = [
        dataclasses.replace(
            PLAN, layout=PartsLayout(columns, "", "id", "", settings), select="length(__src.`n.a`)"
        )
        for settings in (right, ())
    ]
    (slice_,) = made.slices()

    lengths, refused = read(*((plan, slice_) for plan in plans))

    assert lengths == [1] * 10
    assert "no column of the table is read from its files n%2Ea.size0, n%2Eb.size0" in refused
