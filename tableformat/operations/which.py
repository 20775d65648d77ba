"""What of a lake table a statement is about: a partition, a part, or every partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tableformat.branches import BranchFile
from tableformat.clickhouse_codes import BAD_DATA_PART_NAME, NO_SUCH_DATA_PART
from tableformat.errors import NotFoundError, RefusedError
from tableformat.iceberg.live_files import lake_part_name
from tableformat.ledger import Row
from tableformat.names import PartitionId, PartName
from tableformat.operations.partition_files import FilesOfKey

__all__ = [
    "EVERY_PARTITION",
    "NOTHING_DETACHED",
    "NOT_IN_TABLE",
    "AllPartitions",
    "OnePart",
    "OnePartition",
    "Which",
    "shown_partition",
]

NOT_IN_TABLE: Final = "nothing to do: it is not in the table"
"""What is said of a statement on main that finds no file."""
NOTHING_DETACHED: Final = "nothing to do: it is not detached"
"""What is said of a statement on what is detached that finds no file."""
EVERY_PARTITION: Final = "*"
"""What outcomes have in the place of a partition's id for all of them."""


@dataclass(frozen=True, slots=True)
class OnePartition:
    """A partition, whole."""

    partition_id: PartitionId

    def __str__(self) -> str:
        """Return it as a statement has it."""
        return f"PARTITION ID '{self.partition_id}'"

    def of(
        self,
        keys: tuple[FilesOfKey, ...],
        *,
        detached: bool = False,  # noqa: ARG002  tells parts apart only
    ) -> tuple[FilesOfKey, ...]:
        """Return which of these files it is about: all."""
        return keys


@dataclass(frozen=True, slots=True)
class AllPartitions:
    """Every partition; `each`: what others wrote is of the partition that its rows lie in."""

    partition_id: None = None
    each: bool = False

    def __str__(self) -> str:
        """Return it as a statement has it."""
        return "PARTITION ALL"

    def of(
        self,
        keys: tuple[FilesOfKey, ...],
        *,
        detached: bool = False,  # noqa: ARG002  tells parts apart only
    ) -> tuple[FilesOfKey, ...]:
        """Return which of these files it is about: all."""
        return keys


@dataclass(frozen=True, slots=True)
class OnePart:
    """A part: a data file by its name in the lake, or what was exported of a part of the source."""

    part: PartName

    @property
    def partition_id(self) -> PartitionId:
        """The partition that it lies in."""
        return self.part.partition_id

    def __str__(self) -> str:
        """Return it as a statement has it."""
        return f"PART '{self.part}'"

    def of(self, keys: tuple[FilesOfKey, ...], *, detached: bool = False) -> tuple[FilesOfKey, ...]:
        """Return which of these files it is about; `detached`: they are those of that branch.

        Raises:
            NotFoundError: none has that name (code 232, of what is detached 233).
            RefusedError: it is a part of the source whose files hold rows of other parts, too.
        """
        for one in keys:
            found = tuple(f for f in one.files if self._is(f)) or self._exported(one)
            if found:
                return (one.only(found),)
        where = "what is detached of " if detached else ""
        message = (
            f"Cannot find part {self.part}: {where}partition {self.partition_id} has no file of "
            "that name, nor one that holds this part of the source. The system tables parts and "
            "detached_parts list them."
        )
        code = BAD_DATA_PART_NAME if detached else NO_SUCH_DATA_PART
        raise NotFoundError(message, code=code)

    def _is(self, file: BranchFile) -> bool:
        return lake_part_name(self.partition_id, file.path) == self.part

    def _exported(self, of: FilesOfKey) -> tuple[BranchFile, ...]:
        """Return the files that hold this part of the source, and nothing else."""
        held = _remote_paths(of.row)
        own = held.get(str(self.part), frozenset())
        for name, paths in held.items():
            if name != str(self.part) and own & paths:
                message = (
                    f"Cannot change part {self.part} alone: {min(own & paths)} holds rows of part "
                    f"{name}, too. Name the file as a part (the system tables parts and "
                    "detached_parts list them), or change the partition. Exports keep parts in "
                    "files of their own where the table property mergeberg.parts-apart allows it."
                )
                raise RefusedError(message)
        return tuple(f for f in of.files if f.path in own)


Which = OnePartition | OnePart | AllPartitions


def shown_partition(which: Which) -> str:
    """Return the partition as outcomes have it, `*` for all of them."""
    return str(which.partition_id) if which.partition_id else EVERY_PARTITION


def _remote_paths(row: Row | None) -> dict[str, frozenset[str]]:
    """Return the files that hold rows of each part of the source, of the last export."""
    parts = row.done.parts if row is not None and row.done is not None else ()
    return {part.name: frozenset(part.remote_paths) for part in parts}
