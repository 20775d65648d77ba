"""ALTER TABLE … ATTACH and REPLACE PARTITION … FROM another lake table: copies of its files.

The copies become files of the keys that they would be of, had they been exported here: of the same
partition of the same ClickHouse table (decision 0013). REPLACE lets everything else that the
partition has leave in the same snapshot. The other table is read once, and is not changed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from tableformat.branches import BranchFile
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.committer import LakeTableState
from tableformat.errors import RefusedError
from tableformat.export.in_main import Kind
from tableformat.export.outcome import Status
from tableformat.ledger import Key, Record, Row
from tableformat.names import LakeName
from tableformat.operations.partition_files import (
    FilesOfKey,
    KeyInMain,
    PartitionFiles,
    Partitions,
)
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.which import AllPartitions, OnePart, OnePartition, Which

__all__ = ["CopyFrom", "OtherKey", "OtherTable", "other_table"]


@dataclass(frozen=True, slots=True)
class OtherKey:
    """The files that another lake table has of a key.

    `record` is that of the export whose files they are, all of them, None when they are not those
    of one export; `row` the key's in the ledger, None of files that no export wrote.
    """

    key: Key
    files: tuple[BranchFile, ...]
    record: Record | None = None
    row: Row | None = None


@dataclass(frozen=True, slots=True)
class OtherTable:
    """What another lake table has, as of one snapshot.

    `unsure` are keys whose rows files of no key may have: others rewrote files of them, or removed
    them.
    """

    name: LakeName | str
    table_uuid: str
    snapshot_id: int | None
    keys: tuple[OtherKey, ...]
    unsure: tuple[Key, ...] = ()


def other_table(state: LakeTableState, partitions: Partitions, which: Which) -> OtherTable:
    """Return what another lake table has of a partition, a part, or of all.

    Raises:
        NotFoundError: it has no such part (code 232).
        RefusedError: a file carries deletes, or was written for another partition spec, or one of
            others holds rows of another partition, too; or a part has no files of its own.
        DestinationError: the table cannot be read.
        LedgerError: the ledger cannot be read.
    """
    name, part = partitions.name, isinstance(which, OnePart)
    there = partitions.files(state, which.partition_id, by_name=part)
    wanted = which.of(there.keys)
    for file in (f for one in wanted for f in one.files):
        if file.deletes or file.spec_id != there.spec_id:
            message = (
                f"Cannot copy {file.path} of {name}: it has rows that delete files delete, or was "
                "written for another partition spec. Rewrite the table's data files with the "
                "engine that did it (Spark: rewrite_data_files), and run the statement again."
            )
            raise RefusedError(message)
    whole = not isinstance(which, OnePart)
    exports = tuple(
        OtherKey(one.key, one.files, _record(there, one) if whole else None, one.row)
        for one in wanted
        if one.key.stays
    )
    # They are of one key here, whichever keys they have there.
    others = tuple(f for one in wanted if not one.key.stays for f in one.files if f.rows)
    keys = (*exports, *_of_others(others, state, partitions))
    unsure = tuple(at.row.key for at in there.in_main.values() if _may_be_others(at))
    return OtherTable(name, state.layout.table_uuid, state.main, keys, unsure)


def _of_others(
    files: tuple[BranchFile, ...], state: LakeTableState, partitions: Partitions
) -> list[OtherKey]:
    """Return files that no export wrote by their partitions.

    Raises:
        RefusedError: one holds rows of several partitions.
        DestinationError: one cannot be read.
    """
    found: defaultdict[Key, list[BranchFile]] = defaultdict(list)
    for file in files:
        found[partitions.lying.key_of_others(file, state)].append(file)
    return [OtherKey(key, tuple(own)) for key, own in sorted(found.items())]


def _record(there: PartitionFiles, one: FilesOfKey) -> Record | None:
    """Return the record of the export whose files main has of a key, if it is one."""
    at = there.in_main.get(one.key.hash)
    return at.record if at is not None else None


def _may_be_others(at: KeyInMain) -> bool:
    """Whether files of no key may have rows of a key: others rewrote its files, or removed them.

    Who removes files and adds others in a second snapshot has rewritten them, too.
    """
    removed = at.held.kind is Kind.GONE and at.row.changed is None
    return removed or not at.held.is_known


def _is_here(one: OtherKey, at: KeyInMain | None) -> bool:
    """Whether main has the very export whose files would come, or another of the same content."""
    if one.record is None or at is None or at.row.done is None:
        return False
    done = at.row.done.landed
    return at.held.holds(done) and done.fingerprint == one.record.landed.fingerprint


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """The request: which partitions come from which table; `replaces` what is here.

    `allow_empty`: an empty partition there replaces what is here, too. `named` is what they are
    called there, where the other table is divided otherwise.
    """

    which: OnePartition | AllPartitions
    other: OtherTable
    replaces: bool
    allow_empty: bool = False
    named: OnePartition | AllPartitions | None = None
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    @property
    def did(self) -> Status:
        """What became of the partition, once it has landed."""
        return Status.REPLACED if self.replaces else Status.ATTACHED

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        which = self.named or self.which
        return f"{'REPLACE' if self.replaces else 'ATTACH'} {which} FROM {self.other.name}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let copies come, and with REPLACE everything else leave.

        Raises:
            RefusedError: main has rows of a key that comes, or the other table has none (code 36).
        """
        if self.replaces and not self.other.keys and not self.allow_empty:
            message = (
                f"Cannot run {self}: {self.other.name} has no files of it, and what is here would "
                "be dropped without a word. Set allow_replace_partition_from_empty_source = 1, or "
                "use DROP PARTITION."
            )
            raise RefusedError(message, code=BAD_ARGUMENTS)
        comes = {one.key.at(there.table_uuid): one for one in self.other.keys}
        leaves = {one.key: one.files for one in there.keys} if self.replaces else {}
        if not self.replaces and any(not one.key.is_of_export for one in self.other.keys):
            for key in self.other.unsure:
                self._refuse_twice(key.at(there.table_uuid), there)
        changes, here = [], 0
        for key in (*comes, *(k for k in leaves if k not in comes)):
            one = comes.get(key)
            if one is not None and _is_here(one, there.in_main.get(key.hash)):
                here += sum(f.rows for f in one.files)
                continue
            if one is not None and not self.replaces:
                self._refuse_twice(key, there)
            changes.append(
                KeyChange(
                    key,
                    leaves=leaves.get(key, ()),
                    copies=one.files if one is not None else (),
                    like=one.record if one is not None else None,
                    source=one.row if one is not None else None,
                )
            )
        return Plan(tuple(changes), here)

    def _refuse_twice(self, key: Key, there: PartitionFiles) -> None:
        """Refuse rows of which main may have some, under whichever key.

        Raises:
            RefusedError: it may.
        """
        for one in dict.fromkeys((key, key.origin, key.within(key.partition_id))):
            self._refuse_key_twice(one, there)

    def _refuse_key_twice(self, key: Key, there: PartitionFiles) -> None:
        at = there.elsewhere(key.hash)
        has_files = any(one.key == key for one in there.keys)
        if not has_files and (at is None or (at.held.is_known and not at.held.files)):
            return
        told = f" {at.held.text}" if at is not None else ""
        message = (
            f"Cannot run {self}: main has rows of partition {key.partition_id} already, and they "
            f"could be there twice.{told} Use REPLACE PARTITION, or DROP PARTITION first."
        )
        raise RefusedError(message)
