"""Slices hold every row of a partition once, inside every bound."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tableformat.export.slices import (
    FileFormat,
    Slice,
    SliceTarget,
    SliceTask,
    at_copy,
    most_parts,
    opened_together,
    slices,
    spread,
    tasks,
)
from tableformat.mergetree.table import Part
from tableformat.names import PartitionId
from tableformat.source import FrozenPart, FrozenPartition, PartitionCopy

TARGET = SliceTarget("k" * 26, 3, "123", "p=1", ("1",))
DISKS = ("/disks/a", "/disks/b")


def part(
    number: int, rows: int, size: int, disk: str = DISKS[0], visible: int | None = None
) -> FrozenPart:
    name = f"1_{number}_{number}_0"
    frozen = Part(
        name=name,
        partition_id=PartitionId("1"),
        rows=rows,
        bytes_on_disk=size,
        uncompressed_bytes=size * 3,
        hash_of_all_files=f"{number:032x}",
        disk=disk,
        path=f"{disk}/store/{name}/",
        part_type="Wide",
        min_block=number,
        max_block=number,
        level=0,
        data_version=number,
        has_lightweight_delete=visible is not None and visible != rows,
    )
    return FrozenPart(frozen, name, rows if visible is None else visible, frozen.disk)


def partition(*parts: FrozenPart) -> FrozenPartition:
    return FrozenPartition(PartitionId("1"), parts, ())


def cut(
    frozen: FrozenPartition, size: int, columns: int = 20, ratio: float = 1.0, slots: int = 1
) -> tuple[Slice, ...]:
    fmt = FileFormat(target_file_bytes=size)
    return slices(
        frozen,
        TARGET,
        fmt=fmt,
        bytes_ratio=ratio,
        columns=columns,
        slots=slots,
    )


@st.composite
def partitions(draw: st.DrawFn) -> FrozenPartition:
    parts = []
    for number in range(draw(st.integers(0, 30))):
        rows = draw(st.integers(1, 10_000))
        visible = draw(st.one_of(st.just(rows), st.integers(0, rows)))
        size = draw(st.integers(1, 100_000))
        parts.append(part(number, rows, size, draw(st.sampled_from(DISKS)), visible))
    return partition(*parts)


@settings(deadline=None)
@given(
    frozen=partitions(),
    size=st.integers(1, 200_000),
    columns=st.integers(1, 3000),
    ratio=st.floats(0.01, 10),
)
def test_every_row_of_every_part_is_in_exactly_one_slice_within_all_bounds(
    frozen: FrozenPartition, size: int, columns: int, ratio: float
) -> None:
    found = cut(frozen, size, columns, ratio)

    spans: dict[str, list[tuple[int, int]]] = {}
    for slice_ in found:
        for span in slice_.ranges:
            stop = span.rows if span.stop is None else span.stop
            spans.setdefault(span.name, []).append((span.start or 0, stop))
    visible = [p for p in frozen.parts if p.visible_rows]
    assert set(spans) == {p.part.name for p in visible}
    for p in visible:
        edges = sorted(spans[p.part.name])
        assert edges[0][0] == 0
        assert edges[-1][1] == p.part.rows
        assert all(a[1] == b[0] for a, b in pairwise(edges))
        assert all(start < stop for start, stop in edges)

    disks = {p.part.name: p.place for p in frozen.parts}
    for slice_ in found:
        assert len(slice_.ranges) <= most_parts(columns)
        assert {disks[span.name] for span in slice_.ranges} == {slice_.place}
        one_row = all(s.start is not None and s.stop == s.start + 1 for s in slice_.ranges)
        assert slice_.estimated_bytes <= size or one_row

    if all(slice_.rows is not None for slice_ in found):
        assert sum(slice_.rows or 0 for slice_ in found) == frozen.visible_rows
    assert [slice_.number for slice_ in found] == list(range(len(found)))


def test_small_parts_share_a_file() -> None:
    frozen = partition(*(part(n, 100, 1000) for n in range(300)))

    found = cut(frozen, 512 << 20)

    assert [len(slice_.ranges) for slice_ in found] == [64, 64, 64, 64, 44]
    assert sum(slice_.rows or 0 for slice_ in found) == 30_000


def test_wider_tables_merge_fewer_parts() -> None:
    assert (most_parts(20), most_parts(200), most_parts(100_000)) == (64, 6, 1)


def test_a_large_part_is_cut_into_equal_ranges() -> None:
    found = cut(partition(part(1, 1000, 1000)), 400)

    assert [(s.ranges[0].start, s.ranges[0].stop) for s in found] == [
        (0, 333),
        (333, 666),
        (666, 1000),
    ]
    assert [s.rows for s in found] == [333, 333, 334]


def test_rows_of_a_range_are_unknown_when_rows_of_the_part_are_deleted() -> None:
    """A mask does not say where the deleted rows are; the part as a whole is still exact."""
    found = cut(partition(part(1, 1000, 1000, visible=990)), 400)
    assert [s.rows for s in found] == [None] * 3

    whole = cut(partition(part(1, 1000, 1000, visible=990)), 4000)
    assert [s.rows for s in whole] == [990]


def test_parts_without_visible_rows_have_no_slice() -> None:
    assert cut(partition(part(1, 1000, 1000, visible=0)), 400) == ()


@st.composite
def many_slices(draw: st.DrawFn) -> tuple[Slice, ...]:
    """Return slices as one task may have them: of several disks, sizes and snapshots."""
    found: list[Slice] = []
    for number in range(draw(st.integers(0, 12))):
        held = [
            part(10 * number + i, 100, draw(st.sampled_from([10, 20_000_000])), disk)
            for i in range(draw(st.integers(1, 3)))
            for disk in [draw(st.sampled_from(DISKS))]
        ]
        found += cut(partition(*held), 1 << 30)
    of_another_snapshot: bool = draw(st.booleans())
    if found and of_another_snapshot:
        one = found[0].ranges[0]
        again = dataclasses.replace(one, path=f"/other{one.path}")
        found.append(dataclasses.replace(found[0], ranges=(again,)))
    return tuple(dataclasses.replace(s, number=i) for i, s in enumerate(found))


@given(many=many_slices())
def test_small_slices_are_opened_together_and_large_ones_alone(many: tuple[Slice, ...]) -> None:
    """Harm prevented: a slice that is left out, or parts in a directory in which they clash."""
    found = opened_together(SliceTask(many))

    assert sorted(s.number for together in found for s in together) == list(range(len(many)))
    for together in found:
        assert len({s.place for s in together}) == 1
        places = {(r.name, r.path) for s in together for r in s.ranges}
        assert len({name for name, _ in places}) == len(places)
        small = all(s.estimated_bytes <= 16 * 1024 * 1024 for s in together)
        assert small or len(together) == 1


def test_a_table_is_never_opened_over_more_parts_than_it_may_have() -> None:
    many = tuple(
        dataclasses.replace(cut(partition(part(n, 10, 10)), 100)[0], number=n) for n in range(450)
    )

    found = opened_together(SliceTask(many))

    assert [len(together) for together in found] == [200, 200, 50]


def test_short_work_has_one_task_for_each_slot_and_long_work_three() -> None:
    """Harm prevented: a table and a ClickHouse for a dozen small files, which cost as much."""
    (small,) = cut(partition(part(1, 10, 60_000)), 1 << 30)
    (large,) = cut(partition(part(1, 10, 300_000_000)), 1 << 30)
    some = [dataclasses.replace(small, number=n) for n in range(100)]

    assert [len(task.slices) for task in tasks(some, 2)] == [50, 50]
    assert len(tasks([dataclasses.replace(large, number=n) for n in range(6)], 2)) == 6
    assert len(tasks(some[:1], 2)) == 1


def test_idle_slots_may_be_used_for_one_partition() -> None:
    size = 256 << 20
    frozen = partition(part(1, 1_000_000, size))

    assert len(cut(frozen, 512 << 20)) == 1
    assert len(cut(frozen, 512 << 20, slots=2)) == 2
    assert len(cut(frozen, 512 << 20, slots=100)) == 4


@settings(deadline=None)
@given(frozen=partitions(), most=st.integers(0, 40))
def test_up_to_so_many_parts_are_kept_apart(frozen: FrozenPartition, most: int) -> None:
    """Harm prevented: rows of two parts in one file, where each is to be found again."""
    fmt = FileFormat(target_file_bytes=50_000, parts_apart=most)
    found = slices(frozen, TARGET, fmt=fmt, bytes_ratio=1.0, columns=20)

    parts = sum(one.visible_rows > 0 for one in frozen.parts)
    apart = all(len({r.name for r in one.ranges}) == 1 for one in found)
    assert apart or parts > most
    assert parts <= most or found == slices(
        frozen, TARGET, fmt=dataclasses.replace(fmt, parts_apart=0), bytes_ratio=1.0, columns=20
    )


def copies_of(frozen: FrozenPartition, hosts: int) -> tuple[PartitionCopy, ...]:
    """Return copies in which every part has another name."""
    return tuple(
        PartitionCopy(
            f"http://host{host}",
            f"staging.of{host}",
            tuple((held.part.name, f"{held.part.name}_at{host}") for held in frozen.parts),
        )
        for host in range(hosts)
    )


@given(partitions(), st.integers(1, 400), st.integers(0, 3))
def test_slices_that_are_spread_are_the_same_slices(
    frozen: FrozenPartition, size: int, hosts: int
) -> None:
    """Plans, receipts and the files that are kept do not depend on who reads."""
    made = cut(frozen, size)

    found = spread(made, {"1": copies_of(frozen, hosts)})

    assert tuple(dataclasses.replace(one, copy=None) for one in found) == made


@given(partitions(), st.integers(1, 400), st.integers(1, 3))
def test_every_server_reads_about_as_much(frozen: FrozenPartition, size: int, hosts: int) -> None:
    made = cut(frozen, size)

    found = spread(made, {"1": copies_of(frozen, hosts)})

    loads = dict.fromkeys(("", *(f"http://host{host}" for host in range(hosts))), 0)
    for one in found:
        loads[one.copy.host if one.copy else ""] += one.estimated_bytes
    largest = max((one.estimated_bytes for one in found), default=0)
    assert max(loads.values()) - min(loads.values()) <= largest


@given(partitions(), st.integers(1, 400))
def test_a_copy_of_a_slice_has_the_same_ranges_of_the_parts_there(
    frozen: FrozenPartition, size: int
) -> None:
    for one in spread(cut(frozen, size), {"1": copies_of(frozen, 2)}):
        if one.copy is not None:
            there = at_copy(one, one.copy)
            host = one.copy.host.removeprefix("http://host")
            assert there.place == f"staging.of{host}"
            assert there.copy is None
            assert [(r.name, r.start, r.stop, r.source_name) for r in there.ranges] == [
                (f"{r.name}_at{host}", r.start, r.stop, r.source_name) for r in one.ranges
            ]


def test_a_partition_without_a_copy_stays_where_it_is() -> None:
    """And the others make up for it."""
    alone = cut(partition(*(part(n, 10, 100) for n in range(4))), 100)
    others = tuple(
        dataclasses.replace(one, number=one.number + len(alone), partition_id="2") for one in alone
    )
    copy = PartitionCopy("http://b", "staging.b", tuple((f"1_{n}_{n}_0", str(n)) for n in range(4)))

    found = spread((*alone, *others), {"2": (copy,)})

    assert [one.copy is None for one in found if one.partition_id == "1"] == [True] * 4
    assert [one.copy is None for one in found if one.partition_id == "2"].count(True) <= 1
