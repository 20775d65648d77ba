"""Finds files of other writers in the target partition, and decides whether an export continues.

A file is ours if its name carries a key that the ledger knows for this very table, of any source.
A copied table carries the keys of another table. Files of other writers that a statement copied
stay foreign, and may hold rows of an export.

* `refuse_foreign`: the first files of a key land alongside foreign files only if the user allows
  it (RQ…Settings.OverwriteFile; ClickHouse's `export_merge_tree_part_overwrite_file_if_exists`).
* `RowsOfOthers`: ATTACH adds files alongside foreign files only if these cannot have the same rows.
  Main may have no file of a key and yet all its rows: an engine can rewrite files in two snapshots,
  the first of which only removes files; and a statement can bring them as rows of another writer,
  of an earlier snapshot, from another table, or from the branch `detached`. They are other rows if
  - the foreign files are older than the last commit of the key in main's history; or
  - that commit is a statement that took all rows of the key out of main, and no statement has
    brought rows of others since. What other engines append later are other rows; or
  - main's history never had the key, and no statement has brought rows of others. After a rollback
    the owner may have copied the rows from the snapshots that main had: then files that are older
    than the first commit of the key have other rows.
* `WholePartitions` (`--force --replace-partition`): everything in the lake partition leaves main,
  including files that other engines compacted and foreign rows. It is allowed only if
  - the spec is one to one with the source's partitions
    (`tableformat/iceberg/partition_proof.py`),
  - no file belongs to another partition as well, and
  - no other key of this ledger has rows there.

Files of another key are found by name; if other engines rewrote them, its receipts show its lake
partition.

The check uses M and the ledger rows read after it, in every turn (docs/spec/commit-protocol.md,
step 6; RQ…ForceExport, RQ…Shards).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, assert_never

from tableformat.committer import (
    Append,
    AppendAlongside,
    Attach,
    ByStatement,
    FilesOfMain,
    LakeTable,
    LakeTableState,
    Leaving,
    MainChange,
    PartitionFile,
    ReplaceOwn,
    ReplacePartition,
)
from tableformat.effects import Effects, Step
from tableformat.errors import DeniedError, RefusedError, Unable
from tableformat.export.main_state import (
    Holding,
    Kind,
    holding,
    last_landed,
    noted_files,
    unsettled_mark,
)
from tableformat.export.slices import stored_receipts
from tableformat.file_names import RECEIPTS, exported_by
from tableformat.ledger import Key, Landed, Ledger, Row, StatementKind
from tableformat.messages import Option, together
from tableformat.quantities import counted
from tableformat.receipt import Receipt
from tableformat.storage import Storage

__all__ = [
    "ANY_PARTITION",
    "Alongside",
    "OwnKeys",
    "RowsOfOthers",
    "RowsOfOthersError",
    "WholePartitions",
    "are_copied_back",
    "foreign_among",
    "leaving_of",
    "may_append",
    "no_lake_partition",
    "paths_with_rows",
    "refuse_foreign",
    "refuse_hidden",
]

_SHOWN: Final = 3
ANY_PARTITION: Final = "*"
"""The partition id in the key of foreign files whose partitions do not matter."""
_COPIES: Final = frozenset({StatementKind.ATTACH_FROM, StatementKind.REPLACE_FROM})
_FETCHES: Final = frozenset({StatementKind.FETCH, StatementKind.FETCH_FROM_OUTSIDE})


class RowsOfOthersError(RefusedError):
    """The lake partition already has rows that no export of this ledger wrote."""


class OwnKeys:
    """Tests whether the ledger has an export row of a key hash for one table; caches found keys."""

    def __init__(self, ledger: Ledger, destination: str) -> None:
        """Start with an empty cache; `destination` is the table's uuid."""
        self._ledger = ledger
        self._destination = destination
        self._known: set[str] = set()

    def __call__(self, key: str) -> bool:
        """Return whether the ledger has an export row of a key hash for the table.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if key not in self._known:
            row = self._ledger.read(key)
            if row is None or row.key.destination != self._destination:
                return False
            if not row.key.is_of_export:
                return False
            self._known.add(key)
        return True


def foreign_among(files: Iterable[PartitionFile], own: OwnKeys) -> tuple[PartitionFile, ...]:
    """Return the files that no export of the ledger wrote.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return tuple(f for f in files if not (f.key and own(f.key)))


def paths_with_rows(each: Iterable[Holding]) -> frozenset[str]:
    """Return the paths of the files of main with rows of some keys, of any writer."""
    found = set[str]()
    for held in each:
        found |= {file.path for file in held.files}
        found |= {*held.proof.files} if held.proof is not None else set()
    return frozenset(found)


def may_append(held: Holding, change: Append | AppendAlongside | ReplaceOwn) -> bool:
    """Whether an export may add files to a partition with files of other writers.

    An export that replaces its own files may. If another writer removed its files, or main was
    moved away from them, the files of other writers may hold the same rows. Then `AppendAlongside`
    is not enough: only `ReplaceOwn` states that they hold other rows.
    """
    if held.files:
        return True
    match change:
        case Append():
            return False
        case AppendAlongside():
            return held.kind not in (Kind.GONE, Kind.MOVED)
        case ReplaceOwn(alongside):
            return alongside
        case _:
            assert_never(change)


def are_copied_back(
    table: LakeTable,
    state: LakeTableState,
    receipts: tuple[Receipt, ...],
    own: OwnKeys,
    leaves: Leaving,
) -> bool:
    """Whether the files before an export can be copied back, so that REPLACE FROM undoes it.

    That copies all files of the partition. It refuses a file to which deletes apply, and one that
    may have rows of other partitions.

    Raises:
        DestinationError: main cannot be read.
        LedgerError: the ledger cannot be read.
    """
    if any(one.spec_id != state.layout.spec_id for one in receipts):
        return False
    partitions = dict.fromkeys(one.partition for one in receipts)
    found = {f.path: f for each in partitions for f in table.files_in(state, each)}
    if not found.keys() >= {*leaves.paths} or foreign_among(found.values(), own):
        return False
    keys = {f.key for f in found.values()}
    deleted = any(f.deletes for key in keys for f in table.files_of(state, key))
    return all(f.whole for f in found.values()) and not deleted


def refuse_foreign(
    table: LakeTable,
    state: LakeTableState,
    partition: tuple[str | None, ...],
    own: OwnKeys,
    held: Holding,
    beside: Collection[str] = (),
    *,
    allows_older: bool,
) -> None:
    """Refuse an export whose key has no file in main, if other writers have files there.

    Args:
        table: the destination.
        state: M.
        partition: the Iceberg values, as in `Receipt`, by the spec of `state`.
        own: tests whether the key in a file's name is of this ledger.
        held: the state of the key in main, without files.
        beside: the paths of files with the archived rows of the partition, of any writer.
        allows_older: whether files that are older than the exports from which main was moved away
            may stay: they have other rows.

    Raises:
        RowsOfOthersError: there are such files; it names the snapshots that added them.
        DestinationError: main cannot be read.
        LedgerError: the ledger cannot be read.
    """
    there = [file for file in table.files_in(state, partition) if file.path not in beside]
    found = foreign_among(there, own)
    newer = tuple(f for f in found if _may_be_copied(f, held, state))
    if newer or (found and not allows_older):
        rows = sum(f.rows for f in found)
        held_rows = f" with {counted(rows, 'row')}" if not state.tree else ""
        gone = bool(newer)
        forced = f"{Option.FORCE} " if gone else ""
        same = ""
        if gone and beside:
            same = (
                " If they are its rows, delete them with the engine that wrote them: DROP "
                "PARTITION would take the archived rows, too."
            )
        elif gone and not state.tree:
            same = " If they are its rows, run DROP PARTITION first."
        why = (
            f"main has {counted(len(found), 'file')}{held_rows} there that no export of this "
            f"ledger wrote, added by {_by(found, state)}. "
            f"{f'{held.text} They may have its rows: compare them. ' if gone else ''}If they are "
            f"other rows, export alongside them with {forced}{Option.OVERWRITE_FILE_IF_EXISTS}; "
            f"they stay.{same}"
        )
        raise RowsOfOthersError(Unable.of("into this lake partition", why))


def _may_be_copied(file: PartitionFile, held: Holding, state: LakeTableState) -> bool:
    """Whether a file of others may have the rows of exports that left main, by its age."""
    if held.kind is not Kind.MOVED:
        return held.kind is Kind.GONE
    seen = state.snapshots.get(file.snapshot_id)
    since = min((one.sequence_number for one in held.landed), default=0)
    return seen is None or seen.sequence_number >= since


def _by(found: tuple[PartitionFile, ...], state: LakeTableState) -> str:
    if state.tree:
        return f"others, for example {found[0].path}"
    ids = list(dict.fromkeys(f.snapshot_id for f in found))
    notes = [
        f"snapshot {i} ({state.snapshots[i].operation if i in state.snapshots else 'expired'})"
        for i in ids[:_SHOWN]
    ]
    return ", ".join(notes) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class RowsOfOthers:
    """The rows in one partition of main that are of no export, nor a piece of a partition.

    `state` is that of the table. `numbers` returns the sequence numbers of their files, 0 for an
    unknown one. `rows` are the ledger rows of their keys, also of those without files in main.
    """

    state: LakeTableState
    numbers: Callable[[], tuple[int, ...]]
    rows: tuple[Row, ...]

    def may_have(self, row: Row | None, *, returning: bool = False) -> bool:
        """Whether they may be rows of a key of which main has no file.

        Args:
            row: the ledger row of the key, None if it has none.
            returning: the rows that come were in main and were detached, so what was detached after
                their export are other rows.
        """
        since = self._certain_until(row, returning=returning)
        return since is not None and any(not 0 < one < since for one in self.numbers())

    def _certain_until(self, row: Row | None, *, returning: bool) -> int | None:
        """Return the sequence number below which files have other rows; None if all files have."""
        landed = [x for x in row.landed if x.kind not in _FETCHES] if row is not None else []
        since, copied = 0, None
        if row is not None and landed:
            last, emptied = last_landed(row, [*self.state.ancestors()]), self._emptied()
            if last is not None:
                since = max(last.sequence_number, emptied)
                if last.left != () and emptied <= last.sequence_number:
                    return last.sequence_number
            elif not self.state.history_is_complete:
                since = emptied
                if emptied <= max(x.sequence_number for x in landed):
                    return 0
            elif emptied <= max(x.sequence_number for x in landed):
                copied = min(x.sequence_number for x in landed)
        exported = max((x.epoch for x in landed if x.kind is None), default=0)
        before = exported if returning else None
        brought = any(self._has_brought(one, since, before) for one in self.rows)
        return 0 if brought else copied

    def _emptied(self) -> int:
        """Return the sequence number of the last snapshot after which no file of others stayed.

        It is 0 if main's known history has none. Files that statements copied have other keys.
        """
        source = Key.of_lake(self.state.layout.table_uuid, "", "").source
        own = (row for row in self.rows if row.key.source == source)
        return max((one for row in own for one in self._without_rows(row)), default=0)

    def _without_rows(self, row: Row) -> Iterator[int]:
        """Yield the sequence numbers of main's known snapshots in which a key lost all its rows."""
        known = {one.snapshot_id for one in self.state.ancestors()}
        for one in row.landed:
            if one.kind is not None and one.left == () and one.snapshot_id in known:
                yield one.sequence_number

    def _has_brought(self, row: Row, since: int, exported: int | None) -> bool:
        """Whether a statement may have brought rows of others since a sequence number.

        `exported` is the epoch of the last export of the key whose detached rows return, None if
        its rows come from elsewhere.
        """
        if unsettled_mark(row, self.state) is not None:
            return True
        kinds = _COPIES
        if exported is None or any(_is_before(one, exported) for one in row.landed):
            kinds |= {StatementKind.ATTACH}
        since = max(since, *self._without_rows(row), 0)
        # REPLACE takes out rows and brings others in one snapshot.
        brought = (x for x in row.landed if x.kind in kinds and x.sequence_number >= since)
        return any(self._may_be_in_line(one) for one in brought)

    def _may_be_in_line(self, landed: Landed) -> bool:
        """Whether a commit is in main's history, as far as it is known."""
        if self.state.is_ancestor(landed.snapshot_id):
            return True
        expired = landed.snapshot_id not in self.state.snapshots
        return expired and not self.state.history_is_complete


def _is_before(one: Landed, epoch: int) -> bool:
    """Whether a commit brought rows to the branch `detached` that may be those of an export.

    Rows that were detached before the export may be earlier forms of its rows.
    """
    return one.kind in _FETCHES or (one.kind is StatementKind.DETACH and one.epoch < epoch)


def _others_among(
    found: Iterable[PartitionFile],
    key: Key,
    rows: Iterable[Row],
    state: LakeTableState,
    lake: FilesOfMain,
) -> RowsOfOthers:
    """Return the rows of others among files of a lake partition, next to which a key may come.

    Args:
        found: files of main.
        key: the key.
        rows: the rows of the ledger.
        state: M.
        lake: the lake table.
    """
    rows = tuple(row for row in rows if row.key.destination == state.layout.table_uuid)
    exports = tuple(row for row in rows if row.key.stays)
    keys = {row.key.hash for row in exports}
    proved = {path for row in exports for path in _proved(row, key, state, lake)}
    left = tuple(f for f in found if f.key not in keys and f.path not in proved)

    def numbers() -> tuple[int, ...]:
        seen = (state.snapshots.get(file.snapshot_id) for file in left)
        return tuple(one.sequence_number if one is not None else 0 for one in seen)

    ids = (key.partition_id, ANY_PARTITION)
    of_others = (row for row in rows if not row.key.stays and row.key.partition_id in ids)
    return RowsOfOthers(state, numbers, tuple(of_others))


def _proved(row: Row, key: Key, state: LakeTableState, lake: FilesOfMain) -> tuple[str, ...]:
    """Return files of other writers that have rows of an export and no others."""
    noted = noted_files(row)
    if row.key.partition_id != key.partition_id:
        return noted
    held = holding(row, state, row.key.hash, lake)
    return (*noted, *(f.path for f in held.files)) if held.kind is Kind.REWRITTEN else noted


def refuse_hidden(
    effects: Effects,
    table: LakeTable,
    ledger: Ledger,
    state: LakeTableState,
    partition: tuple[str | None, ...],
    key: Key,
    held: Holding,
) -> None:
    """Refuse to attach an export if files of other writers in main may have its rows.

    Args:
        effects: what to act through.
        table: the destination.
        ledger: the ledger.
        state: M.
        partition: the Iceberg values, as in `Receipt`, by the spec of `state`.
        key: the key of the export.
        held: its state in main, without files.

    Raises:
        RefusedError: they may.
        DestinationError: main cannot be read.
        LedgerError: the ledger cannot be read.
    """
    own = OwnKeys(ledger, state.layout.table_uuid)
    there = effects(Step.FIND_FILES, partial(table.files_in, state, partition))
    found = foreign_among(there, own)
    if not found:
        return
    rows = effects(Step.READ_LEDGER, lambda: tuple(ledger.rows()))
    row = next((one for one in rows if one.key == key), None)
    if not _others_among(found, key, rows, state, table).may_have(row):
        return
    landed = held.kind is not Kind.NOTHING
    message = (
        f"Cannot attach partition {key.partition_id}: main has {counted(len(found), 'file')} with "
        f"{counted(sum(f.rows for f in found), 'row')} there that no export of this ledger wrote, "
        f"added by {_by(found, state)}, and they may have its rows: these could be there twice. "
        f"{held.text + ' ' if landed else ''}Compare them. If they are other rows, export the "
        f"partition with {f'{Option.FORCE} ' if landed else ''}{Option.OVERWRITE_FILE_IF_EXISTS}; "
        "they stay. If all of them are its rows, REPLACE PARTITION replaces them. Nothing was "
        "changed."
    )
    raise RefusedError(message)


@dataclass(frozen=True, slots=True)
class Alongside:
    """Decides before an export is written whether its files may enter their lake partition.

    The commit decides again. `own` tests the keys in names of files; `effects` is what to act
    through.
    """

    effects: Effects
    table: LakeTable
    ledger: Ledger
    own: OwnKeys

    def refuse(
        self,
        state: LakeTableState,
        partition: tuple[str | None, ...],
        key: Key,
        held: Holding,
        change: MainChange,
        archived: Iterable[Holding],
    ) -> None:
        """Refuse an export if files of other writers there may have its rows.

        Args:
            state: M.
            partition: the Iceberg values, as in `Receipt`, by the spec of `state`.
            key: the key of the export.
            held: its state in main.
            change: how its files enter main.
            archived: the states of the archived exports of its partition.

        Raises:
            RefusedError: they may.
            DestinationError: main cannot be read.
            LedgerError: the ledger cannot be read.
        """
        match change:
            case Append() | AppendAlongside() | ReplaceOwn():
                if not may_append(held, change):
                    beside = paths_with_rows(archived)
                    older = isinstance(change, AppendAlongside)
                    refuse_foreign(
                        self.table, state, partition, self.own, held, beside, allows_older=older
                    )
            case Attach():
                refuse_hidden(self.effects, self.table, self.ledger, state, partition, key, held)
            case ReplacePartition() | ByStatement():
                # `WholePartitions` and the plan of the statement check what leaves.
                pass
            case never:
                assert_never(never)


_WHAT = "Cannot replace the whole lake partition"


def leaving_of(held: Holding) -> Leaving:
    """Return the files of the key in main, all of which leave it."""
    size = sum(f.bytes for f in held.files)
    return Leaving(tuple(f.path for f in held.files), held.rows, bytes=size)


def no_lake_partition() -> RefusedError:
    """Return the refusal of a source partition without rows, which has no partition values."""
    return RefusedError(
        f"{_WHAT}: the source partition has no rows, so its lake partition is unknown. Use "
        f"{together(Option.FORCE, Option.ALLOW_EMPTY)} without {Option.REPLACE_PARTITION}, or "
        "delete the rows in the lake."
    )


@dataclass(frozen=True, slots=True)
class WholePartitions:
    """Computes the files that leave main if whole lake partitions of one table are replaced."""

    effects: Effects
    table: LakeTable
    ledger: Ledger
    own: OwnKeys
    storage: Callable[[str], Storage]
    _seen: dict[tuple[str, str], frozenset[tuple[int, tuple[str | None, ...]]]] = field(
        default_factory=dict
    )

    def leaving(
        self,
        state: LakeTableState,
        key: str,
        partition: tuple[str | None, ...],
        held: Holding,
    ) -> Leaving:
        """Return all files that leave main if the whole partition is replaced.

        Args:
            state: M.
            key: the hash of the key that replaces it.
            partition: its Iceberg values, as in `Receipt`, by the spec of `state`.
            held: the state of the key in main, in any partition.

        Raises:
            RefusedError: rows of another source partition would leave main, too.
            DestinationError: main, or receipts, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        found = self.table.files_in(state, partition)
        others = [f for f in found if f.key != key]
        foreign = foreign_among(others, self.own)
        self._refuse_in_part(found)
        if len(foreign) < len(others):
            raise self._of_other_key([f for f in others if f not in foreign], held)
        if foreign and (hidden := self._hidden(state, key, partition, foreign)):
            raise _may_be_hidden(hidden)
        rows = {f.path: f.rows for f in held.files} | {f.path: f.rows for f in found}
        sizes = {f.path: f.bytes for f in held.files} | {f.path: f.bytes for f in found}
        return Leaving(
            tuple(rows),
            sum(rows.values()),
            len(foreign),
            sum(f.rows for f in foreign),
            sum(sizes.values()),
        )

    def _refuse_in_part(self, found: tuple[PartitionFile, ...]) -> None:
        one = next((f for f in found if not f.whole), None)
        if one is not None:
            message = (
                f"{_WHAT}: {one.path} is of an earlier partition spec and may have rows of other "
                "partitions. Rewrite the table's data files with another engine, and run it again."
            )
            raise RefusedError(message)

    def _of_other_key(self, files: list[PartitionFile], held: Holding) -> RefusedError:
        """Return the refusal of a partition in which another key has files."""
        of_key = files[0].key
        row = self.effects(Step.READ_LEDGER, partial(self.ledger.read, of_key))
        mine = [f for f in files if f.key == of_key]
        way = (
            f"Use {Option.FORCE} without {Option.REPLACE_PARTITION}, which removes files of the "
            "partition's own exports only."
        )
        if not held.is_known:
            # That would be refused, too.
            way = (
                f"{held.text} REPLACE PARTITION FROM the snapshot of this table before the change "
                "returns what main had then of all exports. Afterwards export this one with "
                f"{Option.FORCE}."
            )
        return RefusedError(
            f"{_WHAT}: main has {counted(len(mine), 'file')} with "
            f"{counted(sum(f.rows for f in mine), 'row')} there of {_named(row)}, which this "
            f"ledger exported, too. {way}"
        )

    def _hidden(
        self,
        state: LakeTableState,
        key: str,
        partition: tuple[str | None, ...],
        foreign: tuple[PartitionFile, ...],
    ) -> Row | None:
        """Return the row of another key whose rows may be in files of other writers there, if any.

        Its own files are not all in main, and its receipts do not exclude this partition.
        """
        counts = Counter(exported_by(path) for path in self.table.paths_in_main(state))
        rows = self.effects(Step.READ_LEDGER, lambda: tuple(self.ledger.rows()))
        for row in rows:
            of = row.key.hash
            if of == key or row.key.destination != state.layout.table_uuid:
                continue
            mark = state.mark(of)
            unsettled = mark is not None and mark.epoch > row.done_epoch
            complete = any(_is_all_there(x, of, counts) for x in row.landed)
            if complete and not unsettled:
                continue
            exports = {
                x.transaction_id
                for x in row.landed
                if x.kind is None and (x.rows or not x.data_files)
            }
            if unsettled and mark is not None:
                exports.add(mark.transaction_id)
            may_be_here = any(self._may_belong_to(state, of, t, partition) for t in sorted(exports))
            if not may_be_here:
                continue
            if not self._has_left(state, row):
                return row
            # They may have come back as rows of others.
            if _others_among(foreign, row.key, rows, state, self.table).may_have(row):
                return row
        return None

    def _may_belong_to(
        self,
        state: LakeTableState,
        key: str,
        transaction_id: str,
        partition: tuple[str | None, ...],
    ) -> bool:
        """Whether an export may have rows in a partition: no receipt, or none that excludes it."""
        seen = self._seen.get((key, transaction_id))
        if seen is None:
            below = f"{state.location.rstrip('/')}/{RECEIPTS}/{key}/{transaction_id}"
            try:
                receipts = self.effects(
                    Step.FIND_FILES, lambda: stored_receipts(self.storage(below), below)
                )
            except DeniedError:
                receipts = ()
            seen = frozenset((r.spec_id, r.partition) for r in receipts)
            self._seen[key, transaction_id] = seen
        here = (state.layout.spec_id, partition)
        return not seen or any(one == here or one[0] != here[0] for one in seen)

    def _has_left(self, state: LakeTableState, row: Row) -> bool:
        """Whether main has no rows of a key after a rollback, a MOVE or another statement."""
        kind = holding(row, state, row.key.hash, self.table).kind
        taken = kind is Kind.GONE and row.changed is not None
        return taken or kind in (Kind.MOVED, Kind.ELSEWHERE)


def _is_all_there(landed: Landed, key: str, counts: Counter[tuple[str, str] | None]) -> bool:
    """Whether main has all files that an export left; `counts` are its files by key and export."""
    left = landed.left if landed.data_files else None
    return bool(left) and all(
        counts[key, one.transaction_id] == one.data_files for one in left or ()
    )


def _named(row: Row | None) -> str:
    if row is None:
        return "another partition"
    return f"partition {row.key.partition_id} of {row.source_table} ({row.key.source})"


def _may_be_hidden(row: Row) -> RefusedError:
    if row.archived is not None:
        return RefusedError(
            f"{_WHAT}: files that others wrote there may hold rows of {_named(row)}, which is "
            "archived, so that the lake may have the only copy of them. Nothing was changed."
        )
    return RefusedError(
        f"{_WHAT}: files that others wrote there may hold rows of {_named(row)}, which this ledger "
        "exported, too. Delete the rows of this lake partition with another engine, then export "
        f"both partitions again with {Option.FORCE}."
    )
