"""Cuts a frozen partition into slices, and slices into tasks (DESIGN 5.2). Pure: it opens nothing.

A slice becomes one file: whole small parts in a bin, or a `_part_offset` range of a large part. A
bin stays in one place, because its parts are linked into one directory or read by one query, and
has a bounded number of parts, because merging them in key order holds blocks of every column of
every part.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tableformat.export.slices import FileFormat, Slice, SliceTask
from tableformat.receipt import PartRange
from tableformat.source import FrozenPart, FrozenPartition

__all__ = ["SliceTarget", "deal", "most_parts", "opened_together", "slices", "tasks"]

T = TypeVar("T")

# Reading memory of one part in a merge, measured with 20 columns (notes/performance.md, Added).
_PART_MEMORY: Final = 2_300_000
_PART_MEMORY_COLUMNS: Final = 20
_MERGE_MEMORY: Final = 64 * _PART_MEMORY
# A file smaller than this is not worth a second core.
_LEAST_SPLIT_BYTES: Final = 64 * 1024 * 1024
# What opening and finishing one more file costs, as bytes of output (9 ms; section 6 of the notes).
_SLICE_COST_BYTES: Final = 1024 * 1024
_TASKS_PER_SLOT: Final = 3
_TASK_BYTES: Final = 1024 * 1024 * 1024
# Opening costs as much as reading so many bytes; the parts of larger slices stay in few hands.
_SMALL_BYTES: Final = 16 * 1024 * 1024
_PARTS_OPENED: Final = 200


@dataclass(frozen=True, slots=True)
class SliceTarget:
    """What the files of one partition are written for: what its slices share."""

    key: str
    epoch: int
    transaction_id: str
    directory: str
    partition: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A range or a whole part, with the bytes it is expected to become."""

    range: PartRange
    rows: int | None
    place: str
    bytes: int


def most_parts(columns: int) -> int:
    """Return how many parts may be merged into one file, by the memory that this takes."""
    return max(1, _MERGE_MEMORY * _PART_MEMORY_COLUMNS // (_PART_MEMORY * max(1, columns)))


def slices(
    partition: FrozenPartition,
    target: SliceTarget,
    *,
    fmt: FileFormat,
    bytes_ratio: float,
    columns: int,
    first_number: int = 0,
    slots: int = 1,
    ranges: bool = True,
) -> tuple[Slice, ...]:
    """Return slices that together hold every visible row of the partition exactly once.

    Parts without a visible row are left out; a partition of only such parts has no slice.

    Args:
        partition: complete and checked.
        target: what the files are for.
        fmt: its `target_file_bytes` bounds the expected bytes of a slice; `parts_apart` says up to
            how many parts each has slices of its own.
        bytes_ratio: expected file bytes per byte on the source's disk; above 0.
        columns: of the table; bounds how many parts are merged.
        first_number: of the first slice; the others follow.
        slots: cut a partition that is smaller than a file for each slot into as many files, though
            never into files below 64 MB; 1 leaves the number of files to the bytes alone.
        ranges: whether a part may be read in ranges; else a large part is one file, however large.
    """
    expected = sum(_expected_bytes(part, bytes_ratio) for part in partition.parts)
    share = max(_LEAST_SPLIT_BYTES, -(-expected // max(1, slots)))
    most = max(1, min(fmt.target_file_bytes, share) if slots > 1 else fmt.target_file_bytes)
    apart = sum(part.visible_rows > 0 for part in partition.parts) <= fmt.parts_apart
    bins: list[list[_Cut]] = []
    open_bins: dict[str, list[_Cut]] = {}
    for part in partition.parts:
        if part.visible_rows == 0:
            continue
        place = part.place
        size = _expected_bytes(part, bytes_ratio)
        if size > most and ranges:
            bins.extend([cut] for cut in _ranges(part, size, most))
            continue
        held = None if apart else open_bins.get(place)
        full = held is not None and (
            len(held) == most_parts(columns) or sum(cut.bytes for cut in held) + size > most
        )
        if held is None or full:
            held = open_bins[place] = []
            bins.append(held)
        held.append(_Cut(_range(part), part.visible_rows, place, size))
    return tuple(
        _slice(number, cuts, str(partition.partition_id), target)
        for number, cuts in enumerate(bins, first_number)
    )


def tasks(all_slices: Iterable[Slice], slots: int) -> tuple[SliceTask, ...]:
    """Deal slices to tasks of about equal work: three for each slot, more when too large.

    The largest come first, so that the end of a job is not one long task.
    """
    work = sorted(all_slices, key=lambda s: (-s.estimated_bytes, s.number))
    if not work:
        return ()
    total = sum(_cost(slice_) for slice_ in work)
    number = max(_TASKS_PER_SLOT * max(1, slots), -(-total // _TASK_BYTES))
    return tuple(SliceTask(hand) for hand in deal(work, number, _cost))


def deal(work: Sequence[T], number: int, cost: Callable[[T], int]) -> tuple[tuple[T, ...], ...]:
    """Deal what is to be done to hands of about equal cost, in its order: each time the cheapest.

    Args:
        work: the dearest first.
        number: of the hands, of which none is empty.
        cost: of each.
    """
    dealt: list[list[T]] = [[] for _ in range(min(len(work), number))]
    loads = [(0, index) for index in range(len(dealt))]
    for one in work:
        load, index = heapq.heappop(loads)
        dealt[index].append(one)
        heapq.heappush(loads, (load + cost(one), index))
    return tuple(tuple(hand) for hand in dealt)


def opened_together(task: SliceTask) -> tuple[tuple[Slice, ...], ...]:
    """Return the slices of a task as they are opened: small ones of a place together, others alone.

    The order stays as it is but for places; a part that two partitions call the same is not opened
    with the other.
    """
    opened: list[list[Slice]] = []
    filling: dict[str, tuple[list[Slice], dict[str, str]]] = {}
    for one in task.slices:
        if one.estimated_bytes > _SMALL_BYTES:
            opened.append([one])
            continue
        paths = {r.name: r.path for r in one.ranges}
        held, parts = filling.get(one.place, ([], {}))
        too_many = len(parts.keys() | paths.keys()) > _PARTS_OPENED
        if not held or too_many or any(parts.get(n, p) != p for n, p in paths.items()):
            held, parts = filling[one.place] = ([], {})
            opened.append(held)
        held.append(one)
        parts |= paths
    return tuple(tuple(together) for together in opened)


def _cost(slice_: Slice) -> int:
    return slice_.estimated_bytes + _SLICE_COST_BYTES


def _expected_bytes(part: FrozenPart, ratio: float) -> int:
    if part.visible_rows == 0:
        return 0
    return max(1, int(part.part.bytes_on_disk * ratio * part.visible_rows / part.part.rows))


def _ranges(part: FrozenPart, size: int, most: int) -> list[_Cut]:
    """Cut a large part into ranges of about equal rows, none expected to be larger than `most`."""
    rows = part.part.rows
    step = max(1, rows * most // size)
    number = -(-rows // step)
    # Lightweight deletes keep their offsets, and nothing says in which range they are.
    whole = part.visible_rows == rows
    cuts = []
    for index in range(number):
        start, stop = rows * index // number, rows * (index + 1) // number
        expected = max(1, size * (stop - start) // rows)
        span = _range(part, start, stop)
        cuts.append(_Cut(span, stop - start if whole else None, part.place, expected))
    return cuts


def _range(part: FrozenPart, start: int | None = None, stop: int | None = None) -> PartRange:
    frozen = part.part
    return PartRange(
        name=frozen.name,
        source_name=part.source_name,
        path=frozen.path,
        rows=frozen.rows,
        hash_of_all_files=frozen.hash_of_all_files,
        start=start,
        stop=stop,
    )


def _slice(number: int, cuts: Sequence[_Cut], partition_id: str, target: SliceTarget) -> Slice:
    known = [cut.rows for cut in cuts if cut.rows is not None]
    return Slice(
        number=number,
        key=target.key,
        partition_id=partition_id,
        epoch=target.epoch,
        transaction_id=target.transaction_id,
        place=cuts[0].place,
        ranges=tuple(cut.range for cut in cuts),
        rows=sum(known) if len(known) == len(cuts) else None,
        estimated_bytes=sum(cut.bytes for cut in cuts),
        directory=target.directory,
        partition=target.partition,
    )
