"""Plans ATTACH, REPLACE and FETCH PARTITION … FROM a lake table, a view or a ClickHouse table.

All of them follow decision 0013.

* `CopyFrom` (ATTACH or REPLACE FROM a lake table): the copies get the keys that an export of the
  same partition of the same ClickHouse table would have here. With REPLACE, all other files of the
  partition leave in the same snapshot. The other table is read once and never changed.
* `CopyFromView` (FROM a view): a view has no files and no exports, so nothing shows whether main
  already has its rows. ATTACH needs a partition without rows in main; REPLACE removes all of them.
* `divided_here` (FROM a table with another partition key): all rows of a partition there must
  belong to one partition here. The rows decide that, never the keys. The copies belong to the
  partition here, under keys that name their original partition: each is copied once, alongside the
  others.
* `Fetch` (FETCH PARTITION|PART … FROM): the copies go to the branch `detached`. Main and the source
  do not change; ATTACH PARTITION makes the rows visible. As in ClickHouse it is an error if the
  source has no such partition or part, or if files of the partition are already detached here.
* `Replacing` (REPLACE FROM a ClickHouse table): exports bring the rows, and all other files leave,
  of any key and writer. `tableformat/operations/replace_from_clickhouse.py` commits both in one
  snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from tableformat.clickhouse_codes import (
    BAD_ARGUMENTS,
    PARTITION_ALREADY_EXISTS,
    PARTITION_DOESNT_EXIST,
)
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.archived import unarchive_command
from tableformat.export.main_state import Kind
from tableformat.export.outcome import Status
from tableformat.ledger import Key, Record, Row, StatementKind
from tableformat.messages import Option
from tableformat.names import LakeName, PartitionId
from tableformat.operations.attach import files_of, has_files_of_others, rows_of_others
from tableformat.operations.partition_files import (
    FilesOfKey,
    KeyInMain,
    PartitionFiles,
    Partitions,
    held_of,
    refuse_other_columns,
)
from tableformat.operations.statement import (
    AllPartitions,
    DetachedUse,
    FetchedCopies,
    FileCopies,
    KeyChange,
    OnePart,
    OnePartition,
    Plan,
    Which,
)
from tableformat.operations.take_out import undecided

__all__ = [
    "CopyFrom",
    "CopyFromView",
    "Fetch",
    "OtherKey",
    "OtherTable",
    "Replacing",
    "Staying",
    "divided_here",
    "files_in",
    "other_table",
    "plan_of_itself",
]


@dataclass(frozen=True, slots=True)
class OtherKey:
    """The files of a key in another lake table.

    `record` is the record of the export that wrote them, None unless they are exactly the files of
    one export. `row` is the key's ledger row, None for foreign files. `is_own` is as in
    `FilesOfKey`.
    """

    key: Key
    files: tuple[BranchFile, ...]
    record: Record | None = None
    row: Row | None = None
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class OtherTable:
    """The files to copy from another lake table, as of one snapshot.

    `unsure` are keys whose rows may be in foreign files: another engine rewrote or removed their
    files. `mixed` are archived keys whose rows are in files with other rows. `is_itself`: it is
    main of the same table under any name, and nothing of it was read.
    """

    name: LakeName | str
    table_uuid: str
    snapshot_id: int | None
    keys: tuple[OtherKey, ...]
    unsure: tuple[Key, ...] = ()
    mixed: tuple[Key, ...] = ()
    is_itself: bool = False


def other_table(
    state: LakeTableState,
    partitions: Partitions,
    which: Which,
    check: Callable[[BranchFile], object] | None = None,
) -> OtherTable:
    """Return the files of a partition, of a part or of all partitions of another lake table.

    Args:
        state: the state of that table.
        partitions: finds its partitions.
        which: the target of the statement.
        check: refuses a file of an earlier partition spec that fits no partition of the
            destination; None if all files are checked elsewhere.

    Raises:
        NotFoundError: the table has no such part (code 232).
        RefusedError: delete files apply to a file, `check` refuses it, or it is a foreign file with
            rows of another partition, too; or the part shares files with other parts.
        DestinationError: the table cannot be read.
        LedgerError: the ledger cannot be read.
    """
    name, part = partitions.name, isinstance(which, OnePart)
    there = partitions.files(state, which.partition_id, by_name=part)
    wanted = which.of(there.keys)
    for file in (f for one in wanted for f in one.files):
        if file.deletes:
            message = (
                f"Cannot copy {file.path} of {name}: delete files delete some of its rows. Rewrite "
                "the table's data files with the engine that wrote them (Spark: "
                "rewrite_data_files), and run it again."
            )
            raise RefusedError(message)
        if check is not None and file.spec_id != there.spec_id:
            check(file)
    whole = not isinstance(which, OnePart)
    exports = tuple(
        OtherKey(one.key, one.files, _record(there, one) if whole else None, one.row, one.is_own)
        for one in wanted
        if one.key.stays
    )
    # Here they have one key for each partition, whatever keys they have there.
    others = tuple(f for one in wanted if not one.key.stays for f in one.files if f.rows)
    keys = (*exports, *_of_others(others, state, partitions))
    unsure = tuple(
        at.row.key
        for at in there.in_main.values()
        if _may_be_others(at, there, is_own=partitions.membership.is_own(at.row))
    )
    mixed = tuple(
        at.row.key
        for at in there.in_main.values()
        if at.row.archived is not None and at.held.kind is Kind.MIXED
    )
    return OtherTable(name, state.layout.table_uuid, state.main, keys, unsure, mixed)


def _of_others(
    files: tuple[BranchFile, ...], state: LakeTableState, partitions: Partitions
) -> list[OtherKey]:
    """Group foreign files by their partitions.

    Raises:
        RefusedError: one has rows of several partitions.
        DestinationError: one cannot be read.
    """
    found: defaultdict[Key, list[BranchFile]] = defaultdict(list)
    for file in files:
        found[partitions.membership.key_of_others(file, state)].append(file)
    return [OtherKey(key, tuple(own)) for key, own in sorted(found.items())]


def _record(there: PartitionFiles, one: FilesOfKey) -> Record | None:
    """Return the record of the export of which main has all files and no others, None otherwise."""
    at = there.in_main.get(one.key.hash)
    return at.record if at is not None else None


def _may_be_others(at: KeyInMain, there: PartitionFiles, *, is_own: bool) -> bool:
    """Whether foreign files may have rows of a key, for example because they were made of its own.

    `is_own` is as in `FilesOfKey`.
    """
    if at.held.files or not at.held.is_known or not at.row.key.stays:
        return not at.held.is_known
    others = rows_of_others(there, at.row.key.partition_id if is_own else None)
    return others.may_have(at.row)


def _is_here(one: OtherKey, at: KeyInMain | None) -> bool:
    """Whether main already has the export to copy, or another export of the same content."""
    if one.record is None or at is None or at.row.done is None:
        return False
    done = at.row.done.landed
    return at.held.holds(done) and done.fingerprint == one.record.landed.fingerprint


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """ATTACH PARTITION … FROM a lake table or, with `replaces`, REPLACE PARTITION … FROM.

    `allow_empty`: an empty partition there replaces the rows here, too. `moves`: the rows leave the
    other table. `named` is the partition
    there, if the other table has another partition key.
    """

    which: OnePartition | AllPartitions
    other: OtherTable
    replaces: bool
    allow_empty: bool = False
    named: OnePartition | AllPartitions | None = None
    moves: bool = False
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    @property
    def did(self) -> Status:
        """The status of the partition after the commit."""
        return Status.REPLACED if self.replaces else Status.ATTACHED

    @property
    def kind(self) -> StatementKind:
        """The kind of the statement."""
        return StatementKind.REPLACE_FROM if self.replaces else StatementKind.ATTACH_FROM

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        which = self.named or self.which
        return f"{'REPLACE' if self.replaces else 'ATTACH'} {which} FROM {self.other.name}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan that copies come and, with REPLACE, that all other files leave.

        Raises:
            RefusedError: main may have rows of a key that comes, or the other table has nothing
                that could replace the rows here (code 36).
        """
        is_empty = not (there.keys if self.other.is_itself else self.other.keys)
        if self.replaces and is_empty and not self.allow_empty:
            message = (
                f"Cannot run {self}: {self.other.name} has no files of it, so its rows here would "
                f"be dropped silently. Use {Option.ALLOW_EMPTY}, or DROP PARTITION."
            )
            raise RefusedError(message, code=BAD_ARGUMENTS)
        if self.other.is_itself:
            return plan_of_itself(there, self.other.name)
        comes = {one.key.at(there.table_uuid): one for one in self.other.keys}
        leaves = {one.key: one.files for one in there.keys} if self.replaces else {}
        if not self.replaces and any(not one.key.is_of_export for one in self.other.keys):
            for key in self.other.unsure:
                self._refuse_twice(key.at(there.table_uuid), there)
        if self.moves:
            self._refuse_unprotected(comes, there)
        are_here = {k for k, one in comes.items() if _is_here(one, there.in_main.get(k.hash))}
        changes, here = [], 0
        for key in (*comes, *(k for k in leaves if k not in comes)):
            one = comes.get(key)
            if one is not None and key in are_here:
                here += sum(f.rows for f in one.files)
                continue
            if one is not None and not self.replaces:
                self._refuse_twice(key, there, is_own=one.is_own)
                self._refuse_unknown(key, there, are_here)
            changes.append(
                KeyChange(
                    key,
                    leaves=leaves.get(key, ()),
                    comes=FileCopies(one.files, one.record, one.row) if one is not None else None,
                )
            )
        if self.replaces and all(key.is_of_export for key in comes):
            # Other rows that come may be those of an export that others rewrote.
            changes += undecided(there, (*comes, *leaves))
        return Plan(tuple(changes), here)

    def _refuse_unprotected(self, comes: Mapping[Key, OtherKey], there: PartitionFiles) -> None:
        """Refuse to move archived rows if an export into this table could replace them.

        Raises:
            RefusedError: this table has an export of them that is not archived, or they are in
                files with other rows, which no key marks.
        """
        what = f"Cannot move the archived rows of {self.which} from {self.other.name}"
        if self.other.mixed:
            message = (
                f"{what}: files of other writers have them together with other rows, so an export "
                "into the other table could replace them. Nothing was changed."
            )
            raise RefusedError(message)
        for key, one in comes.items():
            at = there.in_main.get(key.hash)
            if one.row is None or one.row.archived is None or at is None or at.row.archived:
                continue
            if _is_here(one, at):
                message = (
                    f"{what}: the other table has an export of them, which a later export may "
                    "replace. Nothing was changed. DROP PARTITION there, and run it again."
                )
                raise RefusedError(message)

    def _refuse_twice(self, key: Key, there: PartitionFiles, *, is_own: bool = True) -> None:
        """Refuse to add rows that main may have already, under their key or a related one.

        Raises:
            RefusedError: main has, or may have, some of them.
        """
        for one in dict.fromkeys((key, key.origin, key.within(key.partition_id))):
            self._refuse_key_twice(one, there)
            self._refuse_hidden(one, key.partition_id if is_own else None, there)

    def _refuse_key_twice(self, key: Key, there: PartitionFiles) -> None:
        at = there.elsewhere(key.hash)
        has_files = any(one.key == key for one in there.keys) or has_files_of_others(there, key)
        if not has_files and (at is None or (at.held.is_known and not at.held.files)):
            return
        detail = f" {at.held.text}" if at is not None else ""
        message = (
            f"Cannot run {self}: main has rows of partition {key.partition_id} already, and they "
            f"could be there twice.{detail} Use REPLACE PARTITION, or DROP PARTITION first."
        )
        raise RefusedError(message)

    def _refuse_hidden(self, key: Key, partition_id: str | None, there: PartitionFiles) -> None:
        """Refuse to add rows that files of other writers in main may have.

        Raises:
            RefusedError: they may.
        """
        at, others = there.elsewhere(key.hash), rows_of_others(there, partition_id)
        if key.stays and others.may_have(at.row if at is not None else None):
            detail = f" {at.held.text}" if at is not None else ""
            why = "that no export wrote, and rows that would come may be among them"
            raise self._unknown(key.partition_id, f"{why}: they could be there twice.{detail}")

    def _refuse_unknown(self, key: Key, there: PartitionFiles, are_here: Collection[Key]) -> None:
        """Refuse to add rows that no export wrote to a partition that has rows.

        They may be copies of these rows, which came to the other table under a key that is not
        known here, or another form of them. Of exports that both tables have whole, they are not.

        Raises:
            RefusedError: main has such rows.
        """
        if key.stays:
            return
        found = (one for one in files_of(there, key.partition_id) if one.key not in are_here)
        if any(file.rows for one in found for file in one.files):
            why = f"already, and no export wrote those of {self.other.name} that would come"
            raise self._unknown(key.partition_id, f"{why}: they could be there twice.")

    def _unknown(self, partition_id: str, why: str) -> RefusedError:
        return RefusedError(
            f"Cannot run {self}: main has rows of partition {partition_id} {why} Compare the two. "
            "If they are other rows, INSERT SELECT of another engine adds them. If they are the "
            "same, REPLACE PARTITION keeps those that would come. Nothing was changed."
        )


def plan_of_itself(there: PartitionFiles, name: LakeName | str) -> Plan:
    """Plan what REPLACE and MOVE do if both tables are one: nothing, as in ClickHouse.

    Args:
        there: the files of the partition.
        name: the other name of the table.
    """
    rows = sum(file.rows for one in there.keys for file in one.files)
    return Plan((), kept=rows, unmoved=f"{name} is this table itself")


def files_in(there: PartitionFiles) -> frozenset[BranchFile]:
    """Return the files of a partition in main."""
    return frozenset(f for one in there.keys for f in one.files)


@dataclass(frozen=True, slots=True)
class CopyFromView:
    """ATTACH PARTITION … FROM a view or, with `replaces`, REPLACE PARTITION … FROM.

    `allow_empty`: a view without rows replaces the rows here, too. `keys` has the files that were
    written with the view's rows, and is empty if the view has none. `schema_id` is the schema that
    those files were written for. `before` are main's files of the partition before the view was
    evaluated.
    """

    which: OnePartition
    view: str
    replaces: bool
    allow_empty: bool
    keys: tuple[OtherKey, ...]
    schema_id: int
    before: frozenset[BranchFile]
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    @property
    def did(self) -> Status:
        """The status of the partition after the commit."""
        return Status.REPLACED if self.replaces else Status.ATTACHED

    @property
    def kind(self) -> StatementKind:
        """The kind of the statement."""
        return StatementKind.REPLACE_FROM if self.replaces else StatementKind.ATTACH_FROM

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"{'REPLACE' if self.replaces else 'ATTACH'} {self.which} FROM {self.view}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan that the rows come and, with REPLACE, that all other files leave.

        Raises:
            RefusedError: main has rows of the partition and they would stay, the view has none to
                replace them with (code 36), or the table's columns or the files that would leave
                have changed.
        """
        refuse_other_columns(self, there, self.schema_id)
        if self.replaces and files_in(there) != self.before:
            # A view of this table may have read the files before and after the change.
            message = (
                f"Cannot run {self}: main got or lost rows of the partition while the view was "
                "evaluated, which may have read them. Run it again."
            )
            raise RefusedError(message)
        if self.replaces and not self.keys and not self.allow_empty:
            message = (
                f"Cannot run {self}: the view has no rows of it, so its rows here would be dropped "
                f"silently. Use {Option.ALLOW_EMPTY}, or DROP PARTITION."
            )
            raise RefusedError(message, code=BAD_ARGUMENTS)
        rows = sum(f.rows for one in there.keys for f in one.files)
        if not self.replaces and self.keys and rows:
            message = (
                f"Cannot run {self}: main has {rows:,} rows of the partition already, and it is "
                "unknown whether those of a view are the same: they could be there twice. Use "
                "REPLACE PARTITION, or DROP PARTITION first."
            )
            raise RefusedError(message)
        other = OtherTable(self.view, "", None, self.keys)
        return CopyFrom(self.which, other, self.replaces, self.allow_empty).plan(there)


def divided_here(
    what: str,
    which: OnePartition | AllPartitions,
    other: OtherTable,
    ids: Callable[[BranchFile], frozenset[PartitionId]],
) -> tuple[OnePartition | AllPartitions, OtherTable]:
    """Map partitions and files of another table to the partitions of this table.

    Args:
        what: the beginning of errors: the statement that cannot run, and how the partition keys
            differ.
        which: the partitions in the other table.
        other: its files.
        ids: returns the partitions here to which the rows of a file belong.

    Raises:
        RefusedError: the rows of one partition there belong to several here (code 36).
        DestinationError: a file cannot be read.
    """
    found: defaultdict[str, set[PartitionId]] = defaultdict(set)
    for one in other.keys:
        for file in one.files:
            found[one.key.partition_id] |= ids(file)
    here = {there: _only(what, there, lie) for there, lie in found.items()}
    # The copies are no export of the ClickHouse table of this table, which has no such partition.
    keys = tuple(
        replace(one, key=one.key.within(here[one.key.partition_id].value), record=None, row=None)
        for one in other.keys
    )
    # The partition here is known only for partitions with files.
    unsure = tuple(
        key.within(here[key.partition_id].value) for key in other.unsure if key.partition_id in here
    )
    if isinstance(which, OnePartition) and found:
        # Keys of exports from a table with a third partition key have that table's partition ids.
        which = OnePartition(_only(what, str(which.partition_id), set().union(*found.values())))
    return which, replace(other, keys=keys, unsure=unsure)


def _only(what: str, there: str, lie: set[PartitionId]) -> PartitionId:
    """Return the one partition to which rows belong.

    Raises:
        RefusedError: they belong to several.
    """
    first, *more = sorted(lie)
    if not more:
        return first
    shown = f"{first} and {more[0]}" + (f" and {len(more) - 1:,} more" if len(more) > 1 else "")
    message = (
        f"{what}, and the rows of partition {there} would belong to partitions {shown} here. "
        "INSERT SELECT copies them, or an export of its ClickHouse table."
    )
    raise RefusedError(message, code=BAD_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class Fetch:
    """FETCH PARTITION|PART … FROM: copies of `keys` go to the branch `detached`.

    `origin` is the name of a lake table, or the quoted text of a place outside the lake; `kind`
    tells which. `schema_id` is the schema that the files were checked against, None if they are
    copied as they are.
    """

    which: OnePartition | OnePart
    origin: str
    kind: Literal[StatementKind.FETCH, StatementKind.FETCH_FROM_OUTSIDE]
    keys: tuple[OtherKey, ...]
    schema_id: int | None = None
    did: ClassVar[Status] = Status.FETCHED
    detached_use: ClassVar[DetachedUse] = DetachedUse.LISTED

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"FETCH {self.which} FROM {self.origin}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan that the copies go to the branch `detached`.

        Raises:
            NotFoundError: the source has no file of the partition or part (code 257).
            RefusedError: files of the partition are detached here already (code 256), or the
                table's columns have changed.
        """
        if not self.keys:
            message = f"Cannot run {self}: {self.origin} has no files of it."
            raise NotFoundError(message, code=PARTITION_DOESNT_EXIST)
        if there.detached:
            of = OnePartition(self.which.partition_id)
            message = (
                f"Cannot run {self}: files of the partition are detached here already. ATTACH {of} "
                f"moves them to main, DROP DETACHED {of} removes them."
            )
            raise RefusedError(message, code=PARTITION_ALREADY_EXISTS)
        if self.schema_id is not None:
            refuse_other_columns(self, there, self.schema_id)
        main = {one.key: one.files for one in there.keys}
        changes = []
        for one in self.keys:
            key = one.key.at(there.table_uuid)
            # Main does not change.
            holds = held_of(main.get(key, ()), there.row_of(key)) if there.knows(key) else None
            changes.append(KeyChange(key, comes=FetchedCopies(one.files, one.row), holds=holds))
        return Plan(tuple(changes))


@dataclass(frozen=True, slots=True)
class Staying:
    """An export in main that equals the source, and stays; `fingerprint` is that of its content."""

    key: Key
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Replacing:
    """REPLACE PARTITION … FROM a ClickHouse table: exports come or stay, all other files leave.

    `table` is the name behind FROM. `brings` are the keys of exports that come.
    """

    which: OnePartition
    table: str
    brings: tuple[Key, ...] = ()
    stays: tuple[Staying, ...] = ()
    kind: ClassVar[StatementKind] = StatementKind.REPLACE_FROM
    did: ClassVar[Status] = Status.REPLACED
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"REPLACE {self.which} FROM {self.table}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan that all files leave except those of `stays`; every key of `brings` has a change.

        Raises:
            RefusedError: main no longer has an export of `stays`, or an archived partition would
                lose rows.
        """
        for one in self.stays:
            at = there.in_main.get(one.key.hash)
            record = at.record if at is not None else None
            if record is None or record.landed.fingerprint != one.fingerprint:
                message = (
                    f"Cannot run {self}: its rows in main were changed meanwhile. Run it again."
                )
                raise RefusedError(message)
        staying = {one.key for one in self.stays}
        files = {one.key: one.files for one in there.keys if one.key not in staying}
        ended = undecided(there, (*self.brings, *staying, *files))
        for key in (*self.brings, *files, *(one.key for one in ended)):
            self._refuse_archived(key, there)
        keys = (*self.brings, *(key for key in files if key not in self.brings))
        changes = (KeyChange(key, leaves=files.get(key, ())) for key in keys)
        here = sum(f.rows for one in there.keys if one.key in staying for f in one.files)
        return Plan((*changes, *ended), here)

    def _refuse_archived(self, key: Key, there: PartitionFiles) -> None:
        """Refuse to remove rows that the source of an archived partition may no longer have.

        Raises:
            RefusedError: the partition of this key is archived.
        """
        at = there.in_main.get(key.hash)
        if at is None or at.row.archived is None:
            return
        row = at.row
        message = (
            f"Cannot run {self}: partition {row.key.partition_id} of {row.source_table} is "
            "archived, so no export may remove its rows from the lake, and this statement is an "
            f"export. Nothing was changed. {Option.LATE_ROWS} of an export adds rows; "
            f"`{unarchive_command(row)}` ends the archived state."
        )
        raise RefusedError(message)
