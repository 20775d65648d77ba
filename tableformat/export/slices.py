"""Cuts frozen partitions into slices (one data file each) and tasks, and reuses finished files.

Part of job step 1 of 3 (plan -> write -> commit). The planning performs no I/O.

* A slice holds the rows of exactly one data file: whole parts, or a `_part_offset` range of one
  large part. A slice belongs to one key and one Iceberg partition. Small slices share a task.
* Small parts of one slice stay in one place, because one directory or one query reads them. Their
  number is bounded: a merge in key order keeps blocks of every column of every part in memory.
* A finished file is reused only if it holds exactly the rows of a slice of the new plan, was
  written with the same recipe, and still exists with the size in its receipt. Other files are
  written again under new names.
* If other servers have copies of the parts, `spread` distributes the slices over all of them. A
  slice keeps the names of its parts in the snapshot: plans and receipts do not depend on the
  server that reads it.
* `processed_parts` reports the progress of an export that runs in another process, from the
  receipts of its finished files. A source part is processed if finished files hold all of its
  rows (RQ…SystemTables.Exports).
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tableformat.errors import Action, LedgerError, MissingError
from tableformat.file_names import RECEIPTS, PathLayout
from tableformat.ledger import ExportedPart, Row
from tableformat.names import members
from tableformat.parquet.writer import FileFormat
from tableformat.receipt import PartRange, Receipt
from tableformat.source import (
    FrozenPart,
    FrozenPartition,
    PartitionCopy,
    PartsLayout,
    ServedLayout,
)
from tableformat.storage import Storage

__all__ = [
    "DataCheck",
    "FileFormat",
    "Share",
    "Slice",
    "SliceCopy",
    "SliceTarget",
    "SliceTask",
    "WritePlan",
    "at_copy",
    "deal",
    "files_of_parts",
    "finished_files",
    "just_written",
    "kept_parts",
    "most_parts",
    "opened_together",
    "processed_parts",
    "receipts_below",
    "recipes_of",
    "slices",
    "spread",
    "stored_receipts",
    "tasks",
    "with_files",
    "without_files",
]


@dataclass(frozen=True, slots=True)
class SliceCopy:
    """The copy of a slice's parts at another server.

    `host` is its address, `place` its staging table; `names` are the parts there, in the order of
    the slice's ranges.
    """

    host: str
    place: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of one data file.

    `rows` is the number of rows that the file must have, None if a range has lightweight deletes.
    `place` is where the parts are, as in `FrozenPart`. `directory` is the file's directory below
    the table's data location, `partition` has the Iceberg values as in `Receipt`, and
    `estimated_bytes` is the expected file size. `copy` is the copy to read
    the slice from, None for the snapshot itself.
    """

    number: int
    key: str
    partition_id: str
    epoch: int
    transaction_id: str
    place: str
    ranges: tuple[PartRange, ...]
    rows: int | None
    estimated_bytes: int
    directory: str
    partition: tuple[str | None, ...]
    copy: SliceCopy | None = None


@dataclass(frozen=True, slots=True)
class SliceTask:
    """The slices that one Spark task writes, one after the other."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """The share of the application's limits that a job may use: `slices` at a time, and a rate.

    `bandwidth` is bytes per second of all slices together, 0 for no limit. With `in_turn` a slice
    is read completely before it is written. `limit` is the bandwidth that the export names, which
    it shares with other processes of its user on a host.
    """

    slices: int
    bandwidth: int = 0
    in_turn: bool = False
    limit: int = 0

    @property
    def bytes_per_second(self) -> int | None:
        """The rate of each slice for reading and for writing, None for no limit."""
        return self.bandwidth // self.slices if self.bandwidth else None


@dataclass(frozen=True, slots=True)
class DataCheck:
    """A condition that the values of a column must fulfil in Iceberg (types.md, class C).

    `bad_sql` is true for an offending row, over columns qualified by `SOURCE_ALIAS`; `sample_sql`
    shows its value. A check with `always` runs before a slice is written; the others only explain a
    validation that failed.
    """

    column: str
    what: str
    bad_sql: str
    sample_sql: str
    way_round: str
    always: bool


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The values that all slices of a job share; plain values, so that Spark can pickle them.

    * `select`: the SELECT list (`expression AS column, ...`). `order_by`: the source's sorting key
      with columns qualified by `SOURCE_ALIAS`, '' for none.
    * `schema_json`: the Iceberg schema of the files. `sort_fields`: the order of their rows as
      (field id, descending, nulls first), empty for none.
    * `receipts_location`: the location below which receipts are stored.
    * `versions`: the versions that every executor must have.
    * `share`: the limits for reading and writing, None for no limit.
    * `tree`: the files are in a Hive tree. Their names begin with the transaction, and their
      columns have the names of the table.
    * `paths`: the directories in the paths of the files.
    * `action`: the command of the user, whose verb the messages of tasks have.
    """

    table: str
    layout: PartsLayout | ServedLayout
    select: str
    order_by: str
    schema_json: str
    spec_id: int
    sort_order_id: int | None
    sort_fields: tuple[tuple[int, bool, bool], ...]
    checks: tuple[DataCheck, ...]
    data_location: str
    receipts_location: str
    format: FileFormat
    job: str
    versions: tuple[tuple[str, str], ...]
    storage: tuple[tuple[str, str], ...] = ()
    tree: bool = False
    paths: PathLayout = PathLayout.PARTITION
    share: Share | None = None
    action: Action = Action.EXPORT


T = TypeVar("T")

# Reading memory of one part in a merge, measured with 20 columns.
_PART_MEMORY: Final = 2_300_000
_PART_MEMORY_COLUMNS: Final = 20
_MERGE_MEMORY: Final = 64 * _PART_MEMORY
# For a smaller file a second core saves no time.
_LEAST_SPLIT_BYTES: Final = 64 * 1024 * 1024
# The cost of opening and finishing one more file, as bytes of output (measured: 9 ms).
_SLICE_COST_BYTES: Final = 1024 * 1024
_TASKS_PER_SLOT: Final = 3
_TASK_BYTES: Final = 1024 * 1024 * 1024
# Each task opens its own ClickHouse and its own tables, which costs as much as ten small files. So
# more tasks than slots would cost more than they gain where a task lasts a second or two.
_SHORT_TASK_BYTES: Final = 128 * 1024 * 1024
# Opening a slice costs as much as reading so many bytes, so larger slices are opened alone.
_SMALL_BYTES: Final = 16 * 1024 * 1024
_PARTS_OPENED: Final = 200


@dataclass(frozen=True, slots=True)
class SliceTarget:
    """The values that all slices of one partition share: key, epoch, transaction and directory."""

    key: str
    epoch: int
    transaction_id: str
    directory: str
    partition: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A range of a part or a whole part, with its expected size in the file."""

    range: PartRange
    rows: int | None
    place: str
    bytes: int


def most_parts(columns: int) -> int:
    """Return how many parts may be merged into one file, within the memory bound of a merge."""
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
    """Cut a partition into slices that together hold every visible row exactly once.

    Parts without a visible row are skipped; a partition with only such parts has no slice.

    Args:
        partition: complete and checked.
        target: the values of all slices.
        fmt: `target_bytes` bounds the expected size of a slice. A partition with at most
            `parts_apart` parts gets separate slices for each part.
        bytes_ratio: expected file bytes per byte on the source's disk; above 0.
        columns: the number of the table's columns; it bounds how many parts are merged.
        first_number: the number of the first slice; the others follow.
        slots: a partition with fewer files than slots is cut into one file for each slot, but never
            into files below 64 MiB; with 1 only `target_bytes` decides.
        ranges: whether a part can be read in ranges; otherwise a large part is one file.
    """
    expected = sum(_expected_bytes(part, bytes_ratio) for part in partition.parts)
    share = max(_LEAST_SPLIT_BYTES, -(-expected // max(1, slots)))
    most = max(1, min(fmt.target_bytes, share) if slots > 1 else fmt.target_bytes)
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


def spread(
    all_slices: Iterable[Slice], copies: Mapping[str, Sequence[PartitionCopy]]
) -> tuple[Slice, ...]:
    """Distribute slices over the servers that have their parts, about equally by bytes.

    Args:
        all_slices: the planned slices.
        copies: the copies of partitions, by partition id.

    Returns:
        The slices in their order, each with the copy to read it from.
    """
    of_snapshot = ""
    loads = defaultdict[str, int](int)
    chosen: dict[int, SliceCopy | None] = {}
    work = sorted(all_slices, key=lambda s: s.number)
    # First the slices that only the server of the snapshot can read.
    for one in sorted(work, key=lambda s: (s.partition_id in copies, -s.estimated_bytes)):
        there = {copy.host: copy for copy in copies.get(one.partition_id, ())}
        host = min((of_snapshot, *there), key=lambda host: loads[host])
        loads[host] += one.estimated_bytes
        chosen[one.number] = _copied(one, there[host]) if host in there else None
    return tuple(replace(one, copy=chosen[one.number]) for one in work)


def _copied(slice_: Slice, copy: PartitionCopy) -> SliceCopy:
    names = dict(copy.names)
    return SliceCopy(copy.host, copy.place, tuple(names[part.name] for part in slice_.ranges))


def at_copy(slice_: Slice, copy: SliceCopy) -> Slice:
    """Return a slice with its place and the names of its parts at another server."""
    ranges = tuple(
        replace(part, name=name) for part, name in zip(slice_.ranges, copy.names, strict=True)
    )
    return replace(slice_, place=copy.place, ranges=ranges, copy=None)


def tasks(all_slices: Iterable[Slice], slots: int) -> tuple[SliceTask, ...]:
    """Divide slices among tasks of about equal cost: three for each slot, more if they are large.

    If all of them are short work, each slot has one task. Large slices are dealt first, so that a
    job does not end with one long task.
    """
    work = sorted(all_slices, key=lambda s: (-s.estimated_bytes, s.number))
    if not work:
        return ()
    total = sum(_cost(slice_) for slice_ in work)
    slots = max(1, slots)
    is_short = total <= slots * _SHORT_TASK_BYTES
    number = slots if is_short else max(_TASKS_PER_SLOT * slots, -(-total // _TASK_BYTES))
    return tuple(SliceTask(hand) for hand in deal(work, number, _cost))


def deal(work: Sequence[T], number: int, cost: Callable[[T], int]) -> tuple[tuple[T, ...], ...]:
    """Divide items into groups of about equal cost: each item goes to the cheapest group so far.

    Args:
        work: the items, the most expensive first.
        number: the most groups; no group is empty.
        cost: returns the cost of an item.
    """
    dealt: list[list[T]] = [[] for _ in range(min(len(work), number))]
    loads = [(0, index) for index in range(len(dealt))]
    for one in work:
        load, index = heapq.heappop(loads)
        dealt[index].append(one)
        heapq.heappush(loads, (load + cost(one), index))
    return tuple(tuple(hand) for hand in dealt)


def opened_together(task: SliceTask) -> tuple[tuple[Slice, ...], ...]:
    """Return the slices of a task in groups: small slices of one place together, others alone.

    Slices keep their order within a place. Two parts of different partitions with the same name are
    not in one group.
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
    # Rows that lightweight deletes hide keep their offsets, and their range is unknown.
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


_SETTLED_LATER = ("layout", "job", "versions", "storage", "tree", "paths", "share", "action")


def recipes_of(plan: WritePlan) -> Callable[[Iterable[Slice]], str]:
    """Return the function that digests all values which determine the content of files.

    Its argument are the slices of a partition. It leaves out the values that differ between runs,
    such as the location of the snapshot, the job and the command, and the names of the files.
    """
    how = {k: v for k, v in members(plan).items() if k not in _SETTLED_LATER}
    # Defaults and keys over a DateTime without a zone are computed in it.
    how["zone"] = plan.layout.zone
    of_plan = json.dumps(how, default=members, sort_keys=True)

    def recipe(slices: Iterable[Slice]) -> str:
        what = [([_rows_of(r) for r in s.ranges], s.rows, s.directory, s.partition) for s in slices]
        return hashlib.sha256(f"[{of_plan}, {json.dumps(what)}]".encode()).hexdigest()

    return recipe


def _rows_of(one: PartRange) -> tuple[str, str, int, int | None, int | None]:
    """Return the identity of a range's rows in the source, without the location of the snapshot."""
    return one.source_name, one.hash_of_all_files, one.rows, one.start, one.stop


def stored_receipts(
    storage: Storage, below: str, known: dict[str, Receipt] | None = None
) -> tuple[Receipt, ...]:
    """Return the receipts below a location; damaged ones are skipped.

    Args:
        storage: the storage of the location.
        below: the location.
        known: a cache of receipts by location, which this call extends. A receipt is written once
            and never changes.

    Raises:
        DestinationError: the receipts cannot be listed or read; a DeniedError if the storage allows
            no list.
    """
    read = {} if known is None else known
    found = []
    for stored in storage.list(below):
        at = stored.location
        if at.rsplit("/", 1)[-1].split("-", 1)[0].isdecimal():
            try:
                receipt = read.get(at) or Receipt.from_json(storage.read(at).decode())
            except (LedgerError, UnicodeDecodeError):
                continue
            read[at] = receipt
            found.append(receipt)
    return tuple(found)


def finished_files(
    slices: tuple[Slice, ...], receipts: Iterable[Receipt], storage: Storage
) -> dict[int, Receipt]:
    """Return the receipts of slices that need not be written again, by the new slice number.

    Args:
        slices: the plan of one partition.
        receipts: the receipts of its transaction.
        storage: the storage of its files.
    """
    by_rows: dict[object, list[Receipt]] = {}
    for receipt in receipts:
        by_rows.setdefault(tuple(_rows_of(r) for r in receipt.ranges), []).append(receipt)
    found: dict[int, Receipt] = {}
    for one in slices:
        held = by_rows.get(tuple(_rows_of(r) for r in one.ranges), ())
        usable = next((r for r in held if _is_there(r, one, storage)), None)
        if usable is not None:
            found[one.number] = replace(usable, slice_number=one.number)
    return found


def just_written(slices: Iterable[Slice], receipts: Iterable[Receipt]) -> tuple[Receipt, ...]:
    """Return the receipts of the slices that this run has finished.

    Args:
        slices: the slices of one partition that this run writes.
        receipts: the receipts of its transaction, also of earlier runs.
    """
    of_slice = {(r.epoch, r.slice_number, r.ranges): r for r in receipts}
    found = (of_slice.get((s.epoch, s.number, s.ranges)) for s in slices)
    return tuple(r for r in found if r is not None)


def _is_there(receipt: Receipt, one: Slice, storage: Storage) -> bool:
    """Whether the file of a receipt exists with the same bytes, and holds the rows of a slice."""
    if receipt.partition != one.partition or one.rows not in (None, receipt.rows):
        return False
    try:
        return (
            storage.size(receipt.file_path) == receipt.file_bytes
            and storage.sha256(receipt.file_path) == receipt.sha256
        )
    except MissingError:
        return False


def receipts_below(location: str, row: Row) -> str:
    """Return the location of the receipts of a row's claim, in the table at a location."""
    return f"{location.rstrip('/')}/{RECEIPTS}/{row.key.hash}/{row.claim.transaction_id}"


def processed_parts(parts: Iterable[ExportedPart], finished: Iterable[PartRange]) -> frozenset[str]:
    """Return the names of the parts all of whose rows are in finished files.

    Args:
        parts: the parts of the claim.
        finished: the ranges in finished files, in any order; files of two attempts may have the
            same range.
    """
    held = defaultdict[str, list[tuple[int, int]]](list)
    for one in finished:
        stop = one.rows if one.stop is None else one.stop
        held[one.source_name].append((one.start or 0, stop))
    return frozenset(
        part.name for part in parts if part.name in held and _reach(held[part.name]) >= part.rows
    )


def kept_parts(row: Row) -> tuple[ExportedPart, ...]:
    """Return the parts whose files stay when the claim of a row lands, which has new parts only."""
    return row.done.parts if row.claim.stays and row.done is not None else ()


def with_files(
    parts: tuple[ExportedPart, ...],
    receipts: Iterable[Receipt],
    row: Row | None = None,
) -> tuple[ExportedPart, ...]:
    """Return parts with the paths of the files that hold their rows, in the order of the slices.

    A part gets its paths only when all its rows are in finished files.

    Args:
        parts: the parts of a claim.
        receipts: the receipts of its finished files, in any order. If two attempts wrote a slice,
            one of them is used.
        row: the row of the claim, to include the files of earlier exports that stay with it.
    """
    of_slice: dict[int, Receipt] = {}
    for receipt in sorted(receipts, key=lambda r: (r.slice_number, r.attempt)):
        of_slice.setdefault(receipt.slice_number, receipt)
    paths = files_of_parts(of_slice.values())
    done = processed_parts(parts, (part for r in of_slice.values() for part in r.ranges))
    kept = kept_parts(row) if row is not None else ()
    found = {p.name: p.remote_paths for p in kept} | {name: paths[name] for name in done}
    return tuple(replace(part, remote_paths=found.get(part.name, ())) for part in parts)


def files_of_parts(receipts: Iterable[Receipt]) -> dict[str, tuple[str, ...]]:
    """Return the files that hold rows of each part, by its name, in the order of the receipts."""
    found = defaultdict[str, list[str]](list)
    for receipt in receipts:
        for part in receipt.ranges:
            found[part.source_name].append(receipt.file_path)
    return {name: tuple(paths) for name, paths in found.items()}


def without_files(parts: Iterable[ExportedPart]) -> tuple[ExportedPart, ...]:
    """Return parts without the paths of their files, which are no longer valid."""
    return tuple(replace(part, remote_paths=()) for part in parts)


def _reach(ranges: list[tuple[int, int]]) -> int:
    """Return the number of rows that ranges cover from the first row of a part without a gap."""
    reached = 0
    for start, stop in sorted(ranges):
        if start > reached:
            break
        reached = max(reached, stop)
    return reached
