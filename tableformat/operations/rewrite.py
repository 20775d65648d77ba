"""Plans the statements that rewrite data files: UPDATE, DELETE, CLEAR, OPTIMIZE, MOVE TO DISK.

* `ChangeRows` (UPDATE, DELETE, CLEAR COLUMN [IN PARTITION …]) is copy on write: a file without a
  changed row stays, and open readers are not affected. ClickHouse decides which rows change, and
  their new values (P-64, P-65, P-67, P-68, P-36). Without IN PARTITION it is one snapshot, too.
* `ClearIndex` (CLEAR INDEX [IN PARTITION …]) rewrites files without the bloom filters of an index.
  A skip index of ClickHouse is, in a data file, the bloom filters of its columns (P-51). Rows,
  order and the other filters stay.
* `Optimize` (OPTIMIZE TABLE … [PARTITION …] [FINAL] [DEDUPLICATE …]) replaces the files of a key in
  one lake partition by as many sorted files as the target size needs, each with a range of the
  source's sorting order. It does nothing if that gives no fewer files and changes no row.
* `MoveToDisk` (MOVE PARTITION|PART … TO DISK|VOLUME …) copies files to another location, in one
  snapshot. The old files stay for older snapshots. If main has a whole export, it lands as that
  export again: all files of the key get new names, also those that stay in their location.

ClearIndex, MoveToDisk, and Optimize without row merges keep the export in main as it is;
DEDUPLICATE, and FINAL of an engine that merges rows, change it (decision 0013).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.committer import BranchFile
from tableformat.disks import DiskOrVolume, Disks
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.export.outcome import Status
from tableformat.ledger import StatementKind
from tableformat.operations.partition_files import (
    FilesOfKey,
    PartitionFiles,
    held_of,
    refuse_other_columns,
)
from tableformat.operations.statement import (
    AllPartitions,
    DetachedUse,
    FileRewrites,
    KeyChange,
    OnePart,
    OnePartition,
    Plan,
    Rewrite,
)
from tableformat.quantities import counted

__all__ = [
    "ChangeRows",
    "ChangingKind",
    "ClearIndex",
    "Left",
    "MoveToDisk",
    "Optimize",
    "RowsLeft",
    "RowsOfFiles",
    "rewritten",
]

ChangingKind = Literal[StatementKind.UPDATE, StatementKind.DELETE, StatementKind.CLEAR_COLUMN]
"""The statements that change single rows."""
RowsOfFiles = Callable[[tuple[BranchFile, ...]], tuple[Rewrite | None, ...]]
"""Returns the rewrite of each file, None if no row changes; every call returns the same."""
PartitionOf = Callable[[BranchFile], tuple[str | None, ...]]
"""Returns the partition of the current spec to which all rows of a file belong; refuses several."""


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """UPDATE, DELETE or CLEAR COLUMN; `text` is the statement as the ledger keeps it.

    `rows` computes the rewrite of each file. Files are read with the schema `schema_id`. `verb`
    names the effect on rows, for the outcome. A file of an earlier partition spec is rewritten for
    the partition that `partition_of` returns; if that is None, such a file is refused.
    """

    which: OnePartition | AllPartitions
    kind: ChangingKind
    text: str
    rows: RowsOfFiles
    schema_id: int
    verb: str = "changed"
    partition_of: PartitionOf | None = None
    did: ClassVar[Status] = Status.CHANGED
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return self.text

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan the rewrite of the files with rows that change.

        Raises:
            RefusedError: the table's columns have changed.
            UnsupportedError: a file cannot be rewritten as it is.
            TableFormatError: ClickHouse refuses the statement, or a file cannot be read.
        """
        refuse_other_columns(self, there, self.schema_id)
        files = tuple(f for one in there.keys for f in one.files)
        for file in files:
            refuse_deletes(self, file)
        changes = {f: r for f, r in zip(files, self.rows(files), strict=True) if r is not None}
        for file in changes:
            check_spec(self, file, there, self.partition_of)
        every = (self._of_key(one, there, changes) for one in there.keys)
        found = tuple(change for change in every if change is not None)
        rows = sum(f.rows for f in files)
        return Plan(found, kept=rows - sum(r.changed for c in found for r in c.rewrites))

    @staticmethod
    def _of_key(
        one: FilesOfKey, there: PartitionFiles, changes: Mapping[BranchFile, Rewrite]
    ) -> KeyChange | None:
        found = tuple(changes[f] for f in one.files if f in changes)
        if not found:
            return None
        leaves = tuple(f for r in found for f in r.files)
        left = tuple(f for f in one.files if f not in leaves)
        holds = held_of(left, one.row) if there.knows(one.key) else None
        return KeyChange(one.key, leaves, FileRewrites(found), holds)


def rewritten(
    one: FilesOfKey, there: PartitionFiles, every: tuple[Rewrite, ...], worth: tuple[Rewrite, ...]
) -> KeyChange | None:
    """Return the change of a key, None if no rewrite is worthwhile.

    The files of an export have one transaction. If main has the whole export and no row changes,
    all of its files are rewritten, and it lands as that export again. Otherwise only the worthwhile
    rewrites are done, and they land as a statement.

    Args:
        one: the key's files.
        there: the partition.
        every: the rewrites of all files of the key.
        worth: the worthwhile ones among them.
    """
    if not worth:
        return None
    at = there.in_main.get(one.key.hash)
    like = at.record if at is not None else None
    if like is not None and not any(r.changed for r in worth):
        return KeyChange(one.key, one.files, FileRewrites(every, like))
    leaves = tuple(f for r in worth for f in r.files)
    stays = tuple(f for f in one.files if f not in leaves)
    holds = held_of(stays, one.row) if there.knows(one.key) else None
    return KeyChange(one.key, leaves, FileRewrites(worth), holds)


_UNMOVED: Final = "no file has a bloom filter of the index"


@dataclass(frozen=True, slots=True)
class ClearIndex:
    """CLEAR INDEX; `text` is the statement as the ledger keeps it.

    `has_filters` tells whether a file has bloom filters of the index. Files are read with the
    schema `schema_id`. `unmoved` is the message if no file has such filters. `partition_of` is as
    for `ChangeRows`.
    """

    which: OnePartition | AllPartitions
    text: str
    has_filters: Callable[[BranchFile], bool]
    schema_id: int
    unmoved: str = ""
    partition_of: PartitionOf | None = None
    kind: ClassVar[StatementKind] = StatementKind.CLEAR_INDEX
    did: ClassVar[Status] = Status.CHANGED
    verb: ClassVar[str] = "index cleared"
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return self.text

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan the rewrite of the files with bloom filters of the index.

        Raises:
            RefusedError: the table's columns have changed.
            UnsupportedError: a file cannot be rewritten as it is.
            DestinationError: a file cannot be read.
        """
        refuse_other_columns(self, there, self.schema_id)
        found = tuple(c for one in there.keys if (c := self._of_key(one, there)) is not None)
        kept = sum(f.rows for one in there.keys for f in one.files)
        return Plan(found, kept=kept, unmoved=self.unmoved or _UNMOVED)

    def _of_key(self, one: FilesOfKey, there: PartitionFiles) -> KeyChange | None:
        every = {f: Rewrite((f,), 0, (f.rows,) if f.rows else ()) for f in one.files}
        worth = tuple(r for f, r in every.items() if self.has_filters(f))
        found = rewritten(one, there, tuple(every.values()), worth)
        for file in found.leaves if found is not None else ():
            refuse_deletes(self, file)
            check_spec(self, file, there, self.partition_of)
        return found


_MOST_FILES: Final = 256
"""The number of files that one merge may have open."""


@dataclass(frozen=True, slots=True)
class Left:
    """The number of rows after a merge of files, and how many of these are unchanged."""

    rows: int
    as_before: int


RowsLeft = Callable[[tuple[BranchFile, ...]], Left]
"""Computes the rows after a merge of files; every call returns the same."""


@dataclass(frozen=True, slots=True)
class Optimize:
    """OPTIMIZE TABLE; `text` is the statement as the ledger keeps it.

    Files are read with the schema `schema_id`. `target_bytes` is the size of new files. `left`
    computes the rows after a merge, None if no rows are merged. `partition_of` is as for
    `ChangeRows`.
    """

    which: OnePartition | AllPartitions
    text: str
    schema_id: int
    target_bytes: int
    left: RowsLeft | None = None
    partition_of: PartitionOf | None = None
    kind: ClassVar[StatementKind] = StatementKind.OPTIMIZE
    did: ClassVar[Status] = Status.OPTIMIZED
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return self.text

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan the rewrite of files where it gives fewer files or merges rows.

        Raises:
            RefusedError: the table's columns have changed, or rows cannot be merged: of several
                keys, of several lake partitions, or of more files than can be open.
            UnsupportedError: a file cannot be rewritten as it is.
            TableFormatError: a file cannot be read.
        """
        refuse_other_columns(self, there, self.schema_id)
        if self.left is not None:
            self._refuse_several(there)
        found = tuple(c for one in there.keys if (c := self._of_key(one, there)) is not None)
        files = [f for one in there.keys for f in one.files]
        rows = sum(f.rows for f in files)
        number = counted(len(files), "file")
        merges = "" if self.left is None else ", and no rows to merge"
        return Plan(
            found,
            kept=rows - sum(r.changed for c in found for r in c.rewrites),
            unmoved=f"already as few files as its size needs ({number}){merges}",
        )

    def _of_key(self, one: FilesOfKey, there: PartitionFiles) -> KeyChange | None:
        for file in one.files:
            refuse_deletes(self, file)
            check_spec(self, file, there, self.partition_of)
        places = _by_place(one.files, self._partitions_of(one.files, there))
        if self.left is not None and len(places) > 1:
            why = "is in several partitions of the lake, whose rows cannot be merged"
            raise self._refused(one.key.partition_id, why)
        if self.left is not None and len(one.files) > _MOST_FILES:
            why = f"has {len(one.files):,} files, and {_MOST_FILES} are merged at a time"
            raise self._refused(one.key.partition_id, why)
        groups = tuple(g for files in places for g in _at_a_time(files))
        every = tuple(self._rewrite(files) for files in groups)
        worth = tuple(r for r in every if r.changed or len(r.made) < len(r.files))
        return rewritten(one, there, every, worth)

    def _partitions_of(
        self, files: tuple[BranchFile, ...], there: PartitionFiles
    ) -> Callable[[BranchFile], tuple[object, ...]]:
        """Return a function that returns the partition of a file in the current spec."""
        if self.partition_of is None or all(f.spec_id == there.spec_id for f in files):
            return lambda file: file.partition
        return self.partition_of

    def _rewrite(self, files: tuple[BranchFile, ...]) -> Rewrite:
        rows, size = sum(f.rows for f in files), sum(f.bytes for f in files)
        left = Left(rows, rows) if self.left is None else self.left(files)
        wanted = -(-size * left.rows // max(rows, 1) // self.target_bytes)
        shares = _shares(left.rows, min(max(1, wanted), len(files)))
        return Rewrite(files, rows - left.as_before, shares)

    def _refuse_several(self, there: PartitionFiles) -> None:
        """Refuse to merge rows of one partition if they come from several exports.

        Each source table has its own export of the partition. A partition can also have several
        exports of one table with another partition key.

        Raises:
            RefusedError: there are several, or may be.
        """
        of = there.partition_id
        keys = tuple(one for one in there.keys if one.files)
        counts = Counter(str(of) if of else one.key.partition_id for one in keys)
        for partition_id, count in counts.items():
            if count > 1:
                what = "sources" if all(one.is_own for one in keys) else "exports"
                why = f"has rows of {count} {what}, which must not be merged with each other"
                raise self._refused(partition_id, why)
        odd = next((one.key.partition_id for one in keys if not one.is_own), None)
        if odd is not None and of is None:
            why = "is one of a table with another partition key, and may be a piece of one here"
            raise self._refused(odd, why)

    def _refused(self, partition_id: str, why: str) -> RefusedError:
        message = (
            f"Cannot run {self}: partition {partition_id} {why}. Run OPTIMIZE TABLE without FINAL "
            "and DEDUPLICATE, which merges files and leaves all rows."
        )
        return RefusedError(message)


def _by_place(
    files: Iterable[BranchFile], partition_of: Callable[[BranchFile], tuple[object, ...]]
) -> tuple[tuple[BranchFile, ...], ...]:
    """Group files by their partition in the lake table; each group has a stable order."""
    found: defaultdict[tuple[object, ...], list[BranchFile]] = defaultdict(list)
    for file in sorted(files, key=lambda f: (f.sequence_number, f.path)):
        found[partition_of(file)].append(file)
    return tuple(tuple(one) for one in found.values())


def _at_a_time(files: tuple[BranchFile, ...]) -> tuple[tuple[BranchFile, ...], ...]:
    return tuple(files[i : i + _MOST_FILES] for i in range(0, len(files), _MOST_FILES))


def _shares(rows: int, files: int) -> tuple[int, ...]:
    """Return the rows of each of some new files; files without rows are left out."""
    each, more = divmod(rows, files)
    return tuple(n for n in (each + (i < more) for i in range(files)) if n)


@dataclass(frozen=True, slots=True)
class MoveToDisk:
    """MOVE PARTITION|PART TO DISK|VOLUME; `disks` are the disks of the table.

    `partition_of` is as for `ChangeRows`.
    """

    which: OnePartition | OnePart
    to: DiskOrVolume
    disks: Disks
    partition_of: PartitionOf | None = None
    kind: ClassVar[StatementKind] = StatementKind.MOVE_TO_DISK
    did: ClassVar[Status] = Status.MOVED
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"MOVE {self.which} TO {self.to}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan a copy of each file that is not on the disk or volume.

        Raises:
            NotFoundError: there is no such part (code 232).
            RefusedError: the part shares files with other parts.
            UnsupportedError: a file cannot be copied as it is.
        """
        chosen = tuple(f for one in self.which.of(there.keys) for f in one.files)
        moved = tuple(f for f in chosen if self.disks.place_of(f.path) not in self.to.places)
        found = tuple(c for one in there.keys if (c := self._of_key(one, there, moved)) is not None)
        return Plan(
            found,
            kept=sum(f.rows for f in chosen),
            moved=moved,
            unmoved=f"all of it is on {self.to}",
        )

    def _of_key(
        self, one: FilesOfKey, there: PartitionFiles, moved: tuple[BranchFile, ...]
    ) -> KeyChange | None:
        every = {
            f: Rewrite((f,), 0, (f.rows,), self.to.places[0] if f in moved else "")
            for f in one.files
        }
        worth = tuple(r for f, r in every.items() if f in moved)
        found = rewritten(one, there, tuple(every.values()), worth)
        for file in found.leaves if found is not None else ():
            refuse_deletes(self, file)
            check_spec(self, file, there, self.partition_of)
        return found


def refuse_deletes(what: object, file: BranchFile) -> None:
    """Refuse a file to which delete files may apply.

    Raises:
        UnsupportedError: they may.
    """
    if file.deletes:
        why = f"rows of {file.path} may be deleted by delete files (merge on read)"
        raise _unfit(what, why)


def refuse_other_spec(what: object, file: BranchFile, there: PartitionFiles) -> None:
    """Refuse a file of another partition spec than the table's current one.

    Raises:
        UnsupportedError: its spec is another one.
    """
    if file.spec_id != there.spec_id:
        why = (
            f"{file.path} was written for partition spec {file.spec_id}, and the table's is "
            f"{there.spec_id} now"
        )
        raise _unfit(what, why)


def check_spec(
    what: object, file: BranchFile, there: PartitionFiles, partition_of: PartitionOf | None
) -> None:
    """Refuse a file of an earlier partition spec that fits no partition of the current one.

    Raises:
        RefusedError: its rows belong to several partitions of the current spec.
        UnsupportedError: `partition_of` is None.
        DestinationError: the file cannot be read.
    """
    if partition_of is None:
        refuse_other_spec(what, file, there)
    elif file.spec_id != there.spec_id:
        partition_of(file)


def _unfit(what: object, why: str) -> UnsupportedError:
    message = (
        f"Cannot run {what}: {why}. Let Iceberg rewrite these files first: CALL "
        "<catalog>.system.rewrite_data_files(table => '…', options => map('rewrite-all', 'true')), "
        "and run it again."
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)
