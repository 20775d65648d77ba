"""OPTIMIZE TABLE … [PARTITION …] [FINAL] [DEDUPLICATE …]: few sorted files come for many.

All files of a key that lie in one partition of the lake table become as many as the table's target
size asks for, in the source's sorting order, each with a range of it. Where that makes no fewer
files, and no row goes or gets other values, nothing is done. While none does main still has the
export whose files these were; DEDUPLICATE, and FINAL of an engine that merges rows, change it
(decision 0013).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from tableformat.branches import BranchFile
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.operations.partition_files import FilesOfKey, PartitionFiles
from tableformat.operations.planned import KeyChange, Plan, Rewrite
from tableformat.operations.rewriting import rewritten
from tableformat.operations.which import AllPartitions, OnePartition
from tableformat.operations.writing_anew import (
    refuse_deletes,
    refuse_other_columns,
    refuse_other_spec,
)
from tableformat.quantities import counted

__all__ = ["Left", "Optimize", "RowsLeft"]

_MOST_FILES: Final = 256
"""That are open at a time, to be merged into one order."""


@dataclass(frozen=True, slots=True)
class Left:
    """How many rows are left of files when they are merged, and how many of them as they were."""

    rows: int
    as_before: int


RowsLeft = Callable[[tuple[BranchFile, ...]], Left]
"""Says what is left of files when they are merged; the same whenever it is asked."""


@dataclass(frozen=True, slots=True)
class Optimize:
    """The request: `text` as the ledger keeps it; files are read as those of `schema_id`.

    `target_bytes` is the size of the files that come; `left` says what is left of rows, None where
    all stay as they are.
    """

    which: OnePartition | AllPartitions
    text: str
    schema_id: int
    target_bytes: int
    left: RowsLeft | None = None
    did: ClassVar[Status] = Status.OPTIMIZED
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return self.text

    def plan(self, there: PartitionFiles) -> Plan:
        """Write the files of each key anew, where fewer come of it or rows go.

        Raises:
            RefusedError: the table's columns are others by now, or rows of several keys would have
                to be merged.
            UnsupportedError: a file cannot be written anew as it is.
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
        places = _by_place(one.files)
        if self.left is not None and len(places) > 1:
            why = "lies in several partitions of the lake, whose rows cannot be merged"
            raise self._refused(one.key.partition_id, why)
        if self.left is not None and len(one.files) > _MOST_FILES:
            why = f"has {len(one.files):,} files, and {_MOST_FILES} are merged at a time"
            raise self._refused(one.key.partition_id, why)
        groups = tuple(g for files in places for g in _at_a_time(files))
        every = tuple(self._rewrite(files, there) for files in groups)
        worth = tuple(r for r in every if r.changed or len(r.made) < len(r.files))
        return rewritten(one, there, every, worth)

    def _rewrite(self, files: tuple[BranchFile, ...], there: PartitionFiles) -> Rewrite:
        for file in files:
            refuse_deletes(self, file)
            refuse_other_spec(self, file, there)
        rows, size = sum(f.rows for f in files), sum(f.bytes for f in files)
        left = Left(rows, rows) if self.left is None else self.left(files)
        wanted = -(-size * left.rows // max(rows, 1) // self.target_bytes)
        shares = _shares(left.rows, min(max(1, wanted), len(files)))
        return Rewrite(files, rows - left.as_before, shares)

    def _refuse_several(self, there: PartitionFiles) -> None:
        """Refuse rows of one partition that come from several tables: each has its own export.

        Of a table that is divided otherwise one partition here may have several exports.

        Raises:
            RefusedError: there are some, or may be.
        """
        of = there.partition_id
        keys = tuple(one for one in there.keys if one.files)
        counts = Counter(str(of) if of else one.key.partition_id for one in keys)
        for partition_id, count in counts.items():
            if count > 1:
                what = "sources" if all(one.is_own for one in keys) else "exports"
                why = f"has rows of {count} {what}, which would be taken for one another's"
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


def _by_place(files: Iterable[BranchFile]) -> tuple[tuple[BranchFile, ...], ...]:
    """Return files by the partition of the lake table that they lie in, each in a stable order."""
    found: defaultdict[tuple[object, ...], list[BranchFile]] = defaultdict(list)
    for file in sorted(files, key=lambda f: (f.sequence_number, f.path)):
        found[file.spec_id, *file.partition].append(file)
    return tuple(tuple(one) for one in found.values())


def _at_a_time(files: tuple[BranchFile, ...]) -> tuple[tuple[BranchFile, ...], ...]:
    return tuple(files[i : i + _MOST_FILES] for i in range(0, len(files), _MOST_FILES))


def _shares(rows: int, files: int) -> tuple[int, ...]:
    """Return how many rows each of some files gets; one without rows does not come."""
    each, more = divmod(rows, files)
    return tuple(n for n in (each + (i < more) for i in range(files)) if n)
