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
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.iceberg.snapshot import refuse_tag, table_of
from tableformat.ledger import Held, Key, Owner, Record, Row, StatementKind
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
    "KeyChange",
    "OnePart",
    "OnePartition",
    "OperationPorts",
    "Plan",
    "PlannedForAnotherError",
    "Rewrite",
    "Rewrites",
    "Statement",
    "Which",
    "forecast",
    "is_for_another",
    "nothing_done",
    "planned",
    "shown_partition",
]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files of main in whose place others of the same key come, with the rows that are left.

    `changed` are the rows of them that get other values, or go; `made` those of each file that
    comes: none where no row is left. `place` is the location below which it is written, '' for
    beside the first of them.
    """

    files: tuple[BranchFile, ...]
    changed: int
    made: tuple[int, ...]
    place: str = ""

    @property
    def rows(self) -> int:
        """The rows that are left."""
        return sum(self.made)


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What leaves main of one key, what returns to it, and what main has of it afterwards.

    `leaves` are files of main, `returns` files of the branch `detached`, `copies` files of another
    lake table of which copies come, `rewrites` of those that leave what is written anew. `holds` is
    as in `ledger.Landed`, but for what comes, which has no transaction yet. `like` is the record of
    the export that copies, or all files that are written anew, are, None when they are none, and
    `source` the key's row in the other table. `aside`: the copies come to the branch `detached`,
    and main has what it had before.
    """

    key: Key
    leaves: tuple[BranchFile, ...] = ()
    returns: tuple[BranchFile, ...] = ()
    holds: tuple[Held, ...] | None = ()
    copies: tuple[BranchFile, ...] = ()
    like: Record | None = None
    source: Row | None = None
    aside: bool = False
    rewrites: tuple[Rewrite, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of files, in one commit; without changes there is nothing to do.

    `here` are the rows that were to come and are in main already; `kept` those that were looked at
    and stay as they are. `moved` are the files that go to another place, where some that come do
    not; `unmoved` is what is said of a plan without changes.
    """

    changes: tuple[KeyChange, ...]
    here: int = 0
    kept: int = field(default=0, compare=False)
    moved: tuple[BranchFile, ...] = field(default=(), compare=False)
    unmoved: str = field(default="", compare=False)

    @property
    def reported_files(self) -> tuple[BranchFile, ...]:
        """The files that move or come to main; if there are none, the files that leave it."""
        come = tuple(f for c in self.changes for f in (*c.returns, *c.copies))
        return self.moved or come or tuple(f for c in self.changes for f in c.leaves)

    @property
    def leaves_main(self) -> Figures:
        """What leaves main, files that are written anew included."""
        return counted_files(f for c in self.changes for f in c.leaves)

    @property
    def comes_to_main(self) -> Figures:
        """What comes to main; the size of files that are written anew is not known before."""
        there = (f for c in self.changes if not c.aside for f in (*c.returns, *c.copies))
        made = tuple(rows for r in self.rewrites for rows in r.made)
        return counted_files(there) + Figures(len(made), sum(made), None if made else 0)

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The files that are written anew."""
        return tuple(r for c in self.changes for r in c.rewrites)

    @property
    def rows(self) -> int:
        """Rows of the files that are told of; of those that are written anew, what changes."""
        return sum(r.changed for r in self.rewrites) or sum(f.rows for f in self.reported_files)

    @property
    def files(self) -> int:
        """How many files are told of."""
        return len(self.reported_files)

    @property
    def bytes(self) -> int:
        """Their size; 0 where they are written anew, which is known only afterwards."""
        return 0 if self.rewrites else sum(f.bytes for f in self.reported_files)


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


Rewrites = Callable[
    [Row, tuple[Rewrite, ...], LakeTableState, Callable[[], None]], tuple[Receipt, ...]
]
"""Writes files of a state anew for the claim of a row; returns receipts of those that have rows.

What it is given last it calls before each file: that raises when it is to stop.
"""

Claimed = tuple[Row, tuple[Rewrite, ...]]
"""A row with its claim, and the files that are written anew for it."""

Ahead = Callable[[tuple[Claimed, ...], LakeTableState, Callable[[str], None]], None]
"""Begins what `Rewrites` of the same claims end: what it wrote, that need not write again.

What it is given last it calls with keys, again and again: that raises when it is to stop.
"""

Copies = Callable[[Row, tuple[BranchFile, ...]], tuple[Receipt, ...]]
"""Makes copies of files for the claim of a row, and returns their receipts."""


class Statement(Protocol):
    """A statement; the ledger keeps its kind and, for people, its text.

    What leaves main for one that `detaches` is on the branch `detached` afterwards.
    """

    looks_at_detached: ClassVar[bool]
    detaches: ClassVar[bool]

    @property
    def which(self) -> Which:
        """What it is about."""
        ...

    @property
    def kind(self) -> StatementKind:
        """Which statement it is."""
        ...

    @property
    def did(self) -> Status:
        """What became of it, once it has landed."""
        ...

    def plan(self, there: PartitionFiles) -> Plan:
        """Return what changes, of what is there.

        Raises:
            RefusedError: it cannot be done to these files.
        """
        ...


@dataclass(frozen=True, slots=True)
class OperationPorts:
    """Everything that a statement acts on, but what tells which files are in its partition.

    `intact` refuses files that are not as they were written. `ahead` comes before `rewrite`.
    `asked` is the whole statement, with its values, where making it twice is not the same as once.
    """

    commit: Ports
    owner: Owner
    is_alive: Callable[[Owner], bool]
    new_transaction: Callable[[int], TransactionId]
    note: Callable[[str], None]
    intact: Callable[[tuple[BranchFile, ...]], None]
    copy: Copies | None = None
    rewrite: Rewrites | None = None
    ahead: Ahead | None = None
    asked: str = ""


class Alone(Protocol):
    """A statement that changes no key: it runs by itself."""

    def run(
        self, ports: OperationPorts, partitions: Partitions, *, dry_run: bool = False
    ) -> Outcome:
        """Run it, or say what it would do; return what became of what it is about.

        Raises:
            TableFormatError: it cannot be done, or the table or the ledger failed.
        """
        ...


def forecast(which: Which, did: Status, plan: Plan, name: LakeName) -> Outcome:
    """Return what a plan would do (`--dry-run`)."""
    files = counted(plan.files, "file")
    text = f"would be {did.value} ({counted(plan.rows, 'row')}, {files})"
    outcome = Outcome(shown_partition(which), did, str(name), text)
    outcome = replace(outcome, rows=plan.rows, data_files=plan.files, bytes=plan.bytes)
    return outcome.of_main(plan.leaves_main, plan.comes_to_main)


def nothing_done(statement: Statement, plan: Plan, name: LakeName) -> Outcome:
    """Return what became of what a plan without changes is about."""
    outcome = Outcome(shown_partition(statement.which), Status.EMPTY, str(name))
    if plan.here:
        are = "is" if plan.here == 1 else "are"
        text = f"{counted(plan.here, 'row')} {are} in main already"
        return replace(outcome, status=Status.UNCHANGED, message=text)
    if plan.kept:
        text = plan.unmoved or f"nothing to do: no row of {plan.kept:,} changes"
        return replace(outcome, status=Status.UNCHANGED, message=text)
    text = NOTHING_DETACHED if statement.looks_at_detached else NOT_IN_TABLE
    return replace(outcome, message=text)


class PlannedForAnotherError(RefusedError):
    """Main is not what the statement was planned for."""


@dataclass(slots=True)
class AsPlanned:
    """Step 6 of the statement's commit: on every M the plan must be the same."""

    statement: Statement
    partitions: Partitions
    plan: Plan
    seen: str = ""

    def leaving(self, state: LakeTableState, key: str) -> Leaving:
        """Return what leaves main for a key.

        Raises:
            RefusedError: the plan for this M is another one.
            TableFormatError: main or the ledger cannot be read.
        """
        if state.metadata_location != self.seen:
            if self._now(state) != self.plan:
                message = (
                    f"Cannot run {self.statement} on what it was planned for: the partition "
                    "changed meanwhile. Run it again."
                )
                raise PlannedForAnotherError(message)
            self.seen = state.metadata_location
        change = next(c for c in self.plan.changes if c.key.hash == key)
        figures = counted_files(change.leaves)
        paths = tuple(f.path for f in change.leaves)
        return Leaving(paths, figures.rows, bytes=figures.bytes or 0)

    def _now(self, state: LakeTableState) -> Plan | None:
        """Return the plan for M, None when there is none any more; the next turn says why."""
        try:
            return planned(self.statement, self.partitions, state)
        except (NotFoundError, RefusedError):
            return None


def planned(statement: Statement, partitions: Partitions, state: LakeTableState) -> Plan:
    """Return the plan of a statement over one state of the table.

    Raises:
        RefusedError: it cannot be done to what is there.
        TableFormatError: the table or the ledger cannot be read.
    """
    which, detached = statement.which, statement.looks_at_detached
    each = isinstance(which, AllPartitions) and which.each
    part = isinstance(which, OnePart)
    there = partitions.files(state, which.partition_id, detached=detached, each=each, by_name=part)
    plan = statement.plan(there)
    if plan.changes and (statement.detaches or any(c.aside for c in plan.changes)):
        refuse_tag(table_of(state), DETACHED_BRANCH)
    return plan


def is_for_another(ended: CommitOutcome) -> bool:
    """Whether a commit ended because main is not what it was planned for."""
    return isinstance(ended, NotSent) and isinstance(ended.error, PlannedForAnotherError)
