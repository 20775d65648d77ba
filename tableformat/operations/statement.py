"""What a statement on a lake table is, what it acts on, and how its plan is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from tableformat.branches import BranchFile
from tableformat.committer import LakeTableState
from tableformat.export.outcome import Outcome, Status
from tableformat.export.settling import Ports
from tableformat.ledger import Owner, Row
from tableformat.names import LakeName, TransactionId
from tableformat.operations.partition_files import PartitionFiles, Partitions
from tableformat.operations.planned import Plan, Rewrite
from tableformat.operations.which import NOT_IN_TABLE, NOTHING_DETACHED, Which, shown_partition
from tableformat.quantities import counted
from tableformat.receipt import Receipt

__all__ = [
    "Ahead",
    "Alone",
    "Claimed",
    "Copies",
    "OperationPorts",
    "Rewrites",
    "Statement",
    "forecast",
    "nothing_done",
]


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
    """A statement; as text it is what the ledger keeps.

    What leaves main for one that `detaches` is on the branch `detached` afterwards.
    """

    looks_at_detached: ClassVar[bool]
    detaches: ClassVar[bool]

    @property
    def which(self) -> Which:
        """What it is about."""
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
    told = Outcome(shown_partition(which), did, str(name), text)
    told = replace(told, rows=plan.rows, data_files=plan.files, bytes=plan.bytes)
    return told.of_main(plan.leaves_main, plan.comes_to_main)


def nothing_done(statement: Statement, plan: Plan, name: LakeName) -> Outcome:
    """Return what became of what a plan without changes is about."""
    told = Outcome(shown_partition(statement.which), Status.EMPTY, str(name))
    if plan.here:
        are = "is" if plan.here == 1 else "are"
        text = f"{counted(plan.here, 'row')} {are} in main already"
        return replace(told, status=Status.UNCHANGED, message=text)
    if plan.kept:
        text = plan.unmoved or f"nothing to do: no row of {plan.kept:,} changes"
        return replace(told, status=Status.UNCHANGED, message=text)
    text = NOTHING_DETACHED if statement.looks_at_detached else NOT_IN_TABLE
    return replace(told, message=text)
