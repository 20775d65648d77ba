"""Defines a statement on a lake table: its target, its plan, and the check of the plan at commit.

* `OnePartition`, `AllPartitions` and `OnePart` are the targets.
* `Statement.plan` computes a `Plan` from one state of the table and performs nothing. A plan
  lists a `KeyChange` per key.
* `AsPlanned` compares the plan with each metadata object M (step 6 of
  docs/spec/commit-protocol.md). A statement lands as planned or is planned again; it never
  applies to another state of the table.
* `forecast` and `nothing_done` make the outcomes of a dry run and of a statement without changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import ClassVar, Final, Protocol

from tableformat.clickhouse_codes import BAD_DATA_PART_NAME, NO_SUCH_DATA_PART
from tableformat.committer import (
    DETACHED_BRANCH,
    BranchFile,
    CommitOutcome,
    Figures,
    LakeTableState,
    Leaving,
    NotSent,
    counted_files,
)
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.commit import Ports
from tableformat.export.outcome import Outcome, Status
from tableformat.iceberg.copied_files import refuse_other_form
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.iceberg.snapshot import refuse_lost_columns, refuse_tag, table_of
from tableformat.ledger import Held, Key, Owner, Record, Rewritten, Row, StatementKind
from tableformat.names import LakeName, PartitionId, PartName, TransactionId
from tableformat.operations.partition_files import FilesOfKey, PartitionFiles, Partitions
from tableformat.quantities import counted
from tableformat.receipt import Receipt

__all__ = [
    "EVERY_PARTITION",
    "NOTHING_DETACHED",
    "NOT_IN_TABLE",
    "Ahead",
    "AllPartitions",
    "Alone",
    "AsPlanned",
    "Claimed",
    "Copies",
    "DetachedUse",
    "FetchedCopies",
    "FileCopier",
    "FileCopies",
    "FileRewriter",
    "FileRewrites",
    "IncomingFiles",
    "KeyChange",
    "NoUndo",
    "OnePart",
    "OnePartition",
    "OperationPorts",
    "Plan",
    "PlannedForAnotherError",
    "ReturnedFiles",
    "Rewrite",
    "Rewrites",
    "Statement",
    "Which",
    "files_of",
    "forecast",
    "is_for_another",
    "nothing_done",
    "planned",
    "planned_on",
    "shown_partition",
]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files of main that new files of the same key replace.

    `changed` counts the rows that change or are removed. `made` has the number of rows of each new
    file; it is empty if no row remains. `place` is the location below which the new files are
    written, '' for the disk of the first replaced file.
    """

    files: tuple[BranchFile, ...]
    changed: int
    made: tuple[int, ...]
    place: str = ""

    @property
    def rows(self) -> int:
        """The number of remaining rows."""
        return sum(self.made)


@dataclass(frozen=True, slots=True)
class ReturnedFiles:
    """Files of the branch `detached` that return to main."""

    files: tuple[BranchFile, ...]


@dataclass(frozen=True, slots=True)
class FileCopies:
    """Files of another lake table, or of a view, of which copies come to main.

    `like` is the record of the export that the copies are, None if they are none. `source` is the
    key's row in the other table.
    """

    files: tuple[BranchFile, ...]
    like: Record | None = None
    source: Row | None = None


@dataclass(frozen=True, slots=True)
class FetchedCopies:
    """Files of which copies come to the branch `detached`; main has what it had before.

    `source` is as in `FileCopies`.
    """

    files: tuple[BranchFile, ...]
    source: Row | None = None


@dataclass(frozen=True, slots=True)
class FileRewrites:
    """Rewrites of the files that leave main.

    `like` is the record of the export that all of them are again, None if they are none.
    """

    rewrites: tuple[Rewrite, ...]
    like: Record | None = None


IncomingFiles = ReturnedFiles | FileCopies | FetchedCopies | FileRewrites
"""The files that come to main or to the branch `detached`."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The files of one key that leave main, those that come, and what main has of it afterwards.

    `holds` is as in `ledger.Landed`, but without the files that come, which have no transaction
    yet. `rewritten` is the proof for the key's rewritten export, as `planned` finds it.
    """

    key: Key
    leaves: tuple[BranchFile, ...] = ()
    comes: IncomingFiles | None = None
    holds: tuple[Held, ...] | None = ()
    rewritten: Rewritten | None = None

    @property
    def returns(self) -> tuple[BranchFile, ...]:
        """The files that return to main."""
        return self.comes.files if isinstance(self.comes, ReturnedFiles) else ()

    @property
    def copies(self) -> tuple[BranchFile, ...]:
        """The files of which copies come, to main or to the branch `detached`."""
        return self.comes.files if isinstance(self.comes, FileCopies | FetchedCopies) else ()

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The rewrites of files that leave main."""
        return self.comes.rewrites if isinstance(self.comes, FileRewrites) else ()

    @property
    def fetches(self) -> bool:
        """Whether files come to the branch `detached`."""
        return isinstance(self.comes, FetchedCopies)

    @property
    def like(self) -> Record | None:
        """The record of the export that the files that come are, None if they are none."""
        return self.comes.like if isinstance(self.comes, FileCopies | FileRewrites) else None

    @property
    def source(self) -> Row | None:
        """The key's row in the table of which files are copied."""
        return self.comes.source if isinstance(self.comes, FileCopies | FetchedCopies) else None


@dataclass(frozen=True, slots=True)
class NoUndo:
    """Why no single statement undoes another one, and another way to the rows that left, if any.

    Without a `way`, the snapshot of main before the statement has them.
    """

    why: str
    way: str = ""

    def text(self, before: int | None) -> str:
        """Return the sentence for the user; `before` is that snapshot, None before the commit."""
        kept = f"snapshot {before} has the rows as they were" if before is not None else ""
        found = "; ".join(part for part in (self.why, self.way or kept) if part)
        return f"no single statement undoes it: {found}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of a statement, in one commit; without changes there is nothing to do.

    `here` counts rows to copy that main has already, `kept` rows that were examined and do not
    change. `moved` are the files that change their location, if other files are copied with them.
    `unmoved` is the message of a plan without changes. `no_undo` is None if the undo of statements
    of its kind undoes this one, too.
    """

    changes: tuple[KeyChange, ...]
    here: int = 0
    kept: int = field(default=0, compare=False)
    moved: tuple[BranchFile, ...] = field(default=(), compare=False)
    unmoved: str = field(default="", compare=False)
    no_undo: NoUndo | None = field(default=None, compare=False)

    @property
    def reported_files(self) -> tuple[BranchFile, ...]:
        """The files that move or come to main; if there are none, the files that leave it."""
        come = tuple(f for c in self.changes for f in (*c.returns, *c.copies))
        return self.moved or come or tuple(f for c in self.changes for f in c.leaves)

    @property
    def leaves_main(self) -> Figures:
        """The files that leave main, rewritten files included."""
        return counted_files(f for c in self.changes for f in c.leaves)

    @property
    def comes_to_main(self) -> Figures:
        """The files that come to main; the size of rewritten files is not known yet."""
        come = (c.comes for c in self.changes)
        there = (
            f for one in come if isinstance(one, ReturnedFiles | FileCopies) for f in one.files
        )
        made = tuple(rows for r in self.rewrites for rows in r.made)
        return counted_files(there) + Figures(len(made), sum(made), None if made else 0)

    @property
    def fetches(self) -> bool:
        """Whether files come to the branch `detached`."""
        return any(c.fetches for c in self.changes)

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The rewrites of all keys."""
        return tuple(r for c in self.changes for r in c.rewrites)

    @property
    def rows(self) -> int:
        """The rows to report: those of the reported files, or those that rewrites change."""
        return sum(r.changed for r in self.rewrites) or sum(f.rows for f in self.reported_files)

    @property
    def files(self) -> int:
        """The number of reported files."""
        return len(self.reported_files)

    @property
    def bytes(self) -> int:
        """The size of the reported files; 0 for rewrites, whose size is known only afterwards."""
        return 0 if self.rewrites else sum(f.bytes for f in self.reported_files)


NOT_IN_TABLE: Final = "nothing to do: it is not in the table"
"""The message of a statement on main that finds no file."""
NOTHING_DETACHED: Final = "nothing to do: it is not detached"
"""The message of a statement on detached files that finds none."""
EVERY_PARTITION: Final = "*"
"""Stands for all partitions in the partition id of an outcome."""


@dataclass(frozen=True, slots=True)
class OnePartition:
    """A whole partition as the target."""

    partition_id: PartitionId

    def __str__(self) -> str:
        """Return the target as a statement writes it."""
        return f"PARTITION ID '{self.partition_id}'"

    def of(
        self,
        keys: tuple[FilesOfKey, ...],
        *,
        detached: bool = False,  # noqa: ARG002  only OnePart needs it
    ) -> tuple[FilesOfKey, ...]:
        """Return the files that the statement is about: all."""
        return keys


@dataclass(frozen=True, slots=True)
class AllPartitions:
    """All partitions as the target; with `each`, foreign files are listed by partition."""

    partition_id: None = None
    each: bool = False

    def __str__(self) -> str:
        """Return the target as a statement writes it."""
        return "PARTITION ALL"

    def of(
        self,
        keys: tuple[FilesOfKey, ...],
        *,
        detached: bool = False,  # noqa: ARG002  only OnePart needs it
    ) -> tuple[FilesOfKey, ...]:
        """Return the files that the statement is about: all."""
        return keys


@dataclass(frozen=True, slots=True)
class OnePart:
    """A part as the target: a data file by its name, or the files of a part of the source."""

    part: PartName

    @property
    def partition_id(self) -> PartitionId:
        """The partition to which it belongs."""
        return self.part.partition_id

    def __str__(self) -> str:
        """Return the target as a statement writes it."""
        return f"PART '{self.part}'"

    def of(self, keys: tuple[FilesOfKey, ...], *, detached: bool = False) -> tuple[FilesOfKey, ...]:
        """Return the files that the statement is about; `detached`: `keys` are detached files.

        Raises:
            NotFoundError: no file has that name (code 232, on the branch 233).
            RefusedError: the part of the source shares files with other parts, or several exports
                have a part of that name.
        """
        found = []
        for one in keys:
            if files := tuple(f for f in one.files if self._is(f)):
                return (one.only(files),)
            if files := self._exported(one):
                found.append(one.only(files))
        if len(found) > 1:
            message = (
                f"Cannot change part {self.part}: {len(found)} exports of partition "
                f"{self.partition_id} have a part of that name, of several source tables or of "
                "rows that arrived later. Name the file as a part (the system tables parts and "
                "detached_parts list them)."
            )
            raise RefusedError(message)
        if found:
            return tuple(found)
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
        """Return the files with the rows of this part of the source, and no other rows."""
        held = _remote_paths(of.row)
        own = held.get(str(self.part), frozenset())
        for name, paths in held.items():
            if name != str(self.part) and own & paths:
                message = (
                    f"Cannot change part {self.part} alone: {min(own & paths)} holds rows of part "
                    f"{name}, too. Name the file as a part (the system tables parts and "
                    "detached_parts list them), or change the partition. Exports write separate "
                    "files for each part if the table property mergeberg.parts-apart allows it."
                )
                raise RefusedError(message)
        return tuple(f for f in of.files if f.path in own)


Which = OnePartition | OnePart | AllPartitions


def shown_partition(which: Which) -> str:
    """Return the partition id for outcomes, `*` for all partitions."""
    return str(which.partition_id) if which.partition_id else EVERY_PARTITION


def _remote_paths(row: Row | None) -> dict[str, frozenset[str]]:
    """Return the files with rows of each part of the source, by part, from the last export."""
    parts = row.done.parts if row is not None and row.done is not None else ()
    return {part.name: frozenset(part.remote_paths) for part in parts}


Rewrites = Callable[
    [Row, tuple[Rewrite, ...], LakeTableState, Callable[[], None]], tuple[Receipt, ...]
]
"""Rewrites files of a state for the claim of a row; returns receipts of the files with rows.

It calls its last argument before each file; that raises an error if the rewrite must stop.
"""

Claimed = tuple[Row, tuple[Rewrite, ...]]
"""A row with its claim, and the rewrites for it."""

Ahead = Callable[[tuple[Claimed, ...], LakeTableState, Callable[[str], None]], None]
"""Writes files in advance of `Rewrites`, which does not write these files again.

It calls its last argument repeatedly with keys; that raises an error if the rewrite must stop.
"""

Copies = Callable[[Row, tuple[BranchFile, ...]], tuple[Receipt, ...]]
"""Copies files for the claim of a row, and returns the receipts of the copies."""


@dataclass(frozen=True, slots=True)
class FileCopier:
    """Writes the files that come as copies of others."""

    copy: Copies


@dataclass(frozen=True, slots=True)
class FileRewriter:
    """Rewrites files; `ahead` is called once before `rewrite`, None if nothing can be begun."""

    rewrite: Rewrites
    ahead: Ahead | None = None


class DetachedUse(Enum):
    """How a statement uses the branch `detached`."""

    NONE = auto()
    LISTED = auto()
    """The statement is planned from the files of the branch (ATTACH, FETCH)."""
    FILLED = auto()
    """The files that leave main are on the branch afterwards (DETACH)."""


class Statement(Protocol):
    """A statement that claims keys; the ledger keeps its kind and, for people, its text."""

    detached_use: ClassVar[DetachedUse]

    @property
    def which(self) -> Which:
        """The target."""
        ...

    @property
    def kind(self) -> StatementKind:
        """The kind of the statement."""
        ...

    @property
    def did(self) -> Status:
        """The status of the target after the commit."""
        ...

    def plan(self, there: PartitionFiles) -> Plan:
        """Return the changes of the files that are there.

        Raises:
            RefusedError: the statement is not possible on these files.
        """
        ...


@dataclass(frozen=True, slots=True)
class OperationPorts:
    """The ports of a statement, except those that find the files of its partition.

    `intact` refuses files whose bytes have changed since they were written. `writer` writes the
    files that come, None if the statement writes none. `asked` is the whole statement with its
    values if running it twice differs from running it once, '' otherwise.
    """

    commit: Ports
    owner: Owner
    is_alive: Callable[[Owner], bool]
    new_transaction: Callable[[int], TransactionId]
    note: Callable[[str], None]
    intact: Callable[[tuple[BranchFile, ...]], None]
    writer: FileCopier | FileRewriter | None = None
    asked: str = ""


class Alone(Protocol):
    """A statement that changes no key, and runs itself."""

    def run(
        self, ports: OperationPorts, partitions: Partitions, *, dry_run: bool = False
    ) -> Outcome:
        """Run the statement, or forecast it (`dry_run`); return the outcome of its target.

        Raises:
            TableFormatError: it is not possible, or the table or the ledger failed.
        """
        ...


def forecast(which: Which, did: Status, plan: Plan, name: LakeName) -> Outcome:
    """Return the outcome that a plan would have (`--dry-run`)."""
    files = counted(plan.files, "file")
    text = f"would be {did.value} ({counted(plan.rows, 'row')}, {files})"
    if plan.no_undo is not None:
        text = f"{text}; {plan.no_undo.text(None)}"
    outcome = Outcome(shown_partition(which), did, str(name), text)
    outcome = replace(outcome, rows=plan.rows, data_files=plan.files, bytes=plan.bytes)
    return outcome.of_main(plan.leaves_main, plan.comes_to_main)


def nothing_done(statement: Statement, plan: Plan, name: LakeName) -> Outcome:
    """Return the outcome of a plan without changes."""
    outcome = Outcome(shown_partition(statement.which), Status.EMPTY, str(name))
    if plan.here:
        are = "is" if plan.here == 1 else "are"
        text = f"{counted(plan.here, 'row')} {are} in main already"
        return replace(outcome, status=Status.UNCHANGED, message=text)
    if plan.kept:
        text = plan.unmoved or f"nothing to do: no row of {plan.kept:,} changes"
        return replace(outcome, status=Status.UNCHANGED, message=text)
    is_listed = statement.detached_use is DetachedUse.LISTED
    text = NOTHING_DETACHED if is_listed else NOT_IN_TABLE
    return replace(outcome, message=text)


class PlannedForAnotherError(RefusedError):
    """Main differs from the state that the statement was planned on."""


@dataclass(slots=True)
class AsPlanned:
    """Step 6 of the statement's commit: the plan must be the same on every M."""

    statement: Statement
    partitions: Partitions
    plan: Plan
    seen: str = ""

    def leaving(self, state: LakeTableState, key: str) -> Leaving:
        """Return the files of a key that leave main.

        Raises:
            RefusedError: the plan for this M differs.
            TableFormatError: main or the ledger cannot be read.
        """
        if state.metadata_location != self.seen:
            if self._now(state) != self.plan:
                message = (
                    f"Cannot run {self.statement} as planned: the partition changed meanwhile. Run "
                    "it again."
                )
                raise PlannedForAnotherError(message)
            self.seen = state.metadata_location
        change = next(c for c in self.plan.changes if c.key.hash == key)
        figures = counted_files(change.leaves)
        paths = tuple(f.path for f in change.leaves)
        back = self.plan.no_undo is None
        return Leaving(paths, figures.rows, bytes=figures.bytes or 0, copied_back=back)

    def _now(self, state: LakeTableState) -> Plan | None:
        """Return the plan for M, None if the statement is refused; the next turn reports why."""
        try:
            return planned(self.statement, self.partitions, state)
        except (NotFoundError, RefusedError):
            return None


def planned(statement: Statement, partitions: Partitions, state: LakeTableState) -> Plan:
    """Return the plan of a statement on one state of the table.

    Raises:
        RefusedError: the statement is not possible on this state.
        TableFormatError: the table or the ledger cannot be read.
    """
    return planned_on(statement, files_of(statement, partitions, state), state)


def files_of(statement: Statement, partitions: Partitions, state: LakeTableState) -> PartitionFiles:
    """Return the files of the partition of a statement, from which it is planned.

    Raises:
        RefusedError: a file has rows of other partitions, too.
        TableFormatError: the table or the ledger cannot be read.
    """
    which = statement.which
    return partitions.files(
        state,
        which.partition_id,
        detached=statement.detached_use is DetachedUse.LISTED,
        each=isinstance(which, AllPartitions) and which.each,
        by_name=isinstance(which, OnePart),
    )


def planned_on(statement: Statement, there: PartitionFiles, state: LakeTableState) -> Plan:
    """Return the plan of a statement on the files of its partition in a state of the table.

    Raises:
        RefusedError: the statement is not possible on this state.
        TableFormatError: the table or the ledger cannot be read.
    """
    plan = statement.plan(there)
    _refuse_late(statement, plan, there)
    proved = tuple(replace(one, rewritten=there.proof_of(one.key)) for one in plan.changes)
    plan = replace(plan, changes=proved)
    fills = statement.detached_use is DetachedUse.FILLED
    if plan.changes and (fills or plan.fetches):
        refuse_tag(table_of(state), DETACHED_BRANCH)
    moved = (file for one in plan.changes for file in (*one.leaves, *one.returns))
    refuse_lost_columns(table_of(state), (file.spec_id for file in moved))
    # The copier refuses them, too; here the dry run does, and a run before it claims anything.
    for file in (file for one in plan.changes for file in one.copies):
        refuse_other_form(file.path, file.other_form)
    return plan


def _refuse_late(statement: Statement, plan: Plan, there: PartitionFiles) -> None:
    """Refuse to bring late rows to a table in which an export may have them for the partition.

    Raises:
        RefusedError: the rows before them are not archived there, nor when they come with them.
    """
    comes = {
        one.key: one.source
        for one in plan.changes
        if one.comes is not None and not isinstance(one.comes, FileRewrites)
    }
    for key in comes:
        for number in range(key.increment):
            before = replace(key, increment=number)
            source, at = comes.get(before), there.in_main.get(before.hash)
            at = at or there.elsewhere(before.hash)
            marks = (source and source.archived, at and at.row.archived)
            if not any(mark and not mark.is_ending for mark in marks):
                message = (
                    f"Cannot run {statement}: these rows arrived in partition {key.partition_id} "
                    "after it was archived, and an export of the partition into this table could "
                    "bring them again, because it does not have the archived rows before them. "
                    "Nothing was changed. Bring the whole partition into a table without exports "
                    "of it."
                )
                raise RefusedError(message)


def is_for_another(ended: CommitOutcome) -> bool:
    """Whether a commit ended because main differs from the state of the plan."""
    return isinstance(ended, NotSent) and isinstance(ended.error, PlannedForAnotherError)
