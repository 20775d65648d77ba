"""MOVE PARTITION … TO TABLE and MOVE PARTITION|PART … TO DISK|VOLUME on a lake table.

`moved_to` finds the other table, compares both tables, and opens the other one for changes.
`moving_to_disk` finds the location of the disk or volume, and prepares the copying of the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from catalog.rewriting.copies import MovedFiles, copies_between
from catalog.rewriting.file_partitions import EarlierFiles, OwnPartitions
from catalog.rewriting.integrity import Checks
from catalog.storages.schemes import Storages
from spark_ext.operations.tables import (
    OtherTables,
    RememberingTable,
    Runners,
    no_table,
    other_name,
    refuse_unlike,
    source_of,
)
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import MoveToDisk, MoveToVolume
from tableformat.clickhouse_codes import SUPPORT_IS_DISABLED
from tableformat.committer import BranchFile, LakeTableState
from tableformat.disks import Disks
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.leases import Leases
from tableformat.export.outcome import Outcome
from tableformat.iceberg.properties import RememberedSource
from tableformat.names import LakeName
from tableformat.operations.move import Moving, give_up
from tableformat.operations.partition_files import Partitions
from tableformat.operations.rewrite import MoveToDisk as MoveFilesToDisk
from tableformat.operations.run import Running
from tableformat.operations.statement import (
    AllPartitions,
    Copies,
    FileRewriter,
    OnePartition,
    OperationPorts,
    Which,
)
from tableformat.operations.take_out import Leave

__all__ = ["moved_to", "moving_to_disk"]


@dataclass(frozen=True, slots=True)
class _Move:
    """A MOVE between two existing tables."""

    moving: Moving
    which: OnePartition

    def run(
        self,
        ports: OperationPorts,  # noqa: ARG002  `moving` has the ports of both tables
        partitions: Partitions,  # noqa: ARG002
        *,
        dry_run: bool = False,
    ) -> Outcome:
        """Run the statement, or return its forecast."""
        return self.moving.forecast(self.which) if dry_run else self.moving.run(self.which)


@dataclass(frozen=True, slots=True)
class _ToNowhere:
    """A MOVE to a table that does not exist (any more); an unfinished one is given up.

    It is not, if the catalog has the table by another name, as `name_of` tells by its uuid.
    """

    here: Running
    leave: Leave
    error: NotFoundError
    name_of: Callable[[str], LakeName | None]

    def run(
        self,
        ports: OperationPorts,
        partitions: Partitions,  # noqa: ARG002  `here` has them
        *,
        dry_run: bool = False,
    ) -> Outcome:
        """Give up an unfinished MOVE, and raise the error that the table does not exist.

        Raises:
            RefusedError: the table has another name now.
            NotFoundError: in any other case.
        """
        if not dry_run:
            with Leases(
                ports.commit.ledger,
                ports.owner,
                effects=ports.commit.effects,
                is_alive=ports.is_alive,
                note=ports.note,
            ) as leases:
                why = f"{self.leave} was given up: {self.error}"
                give_up(self.here, leases, self.leave, why, self.name_of)
        raise self.error


def moved_to(
    parts: tuple[str, ...],
    which: OnePartition | AllPartitions,
    this: RememberingTable,
    here: Running,
    others: OtherTables,
    runners: Runners,
) -> _Move | _ToNowhere:
    """Prepare MOVE PARTITION … TO TABLE.

    Args:
        parts: the table name after TO TABLE.
        which: the partition.
        this: the table that has the partition.
        here: runs statements on this table.
        others: resolves names and opens catalogs.
        runners: creates the runner for the other table.

    Raises:
        UnsupportedError: the other table is a ClickHouse table.
        RefusedError: the other table was not created by an export, or all partitions are named.
        DestinationError: a table cannot be read.
    """
    what = f"Cannot run MOVE {which} TO TABLE {DottedName(parts)} on {this.name}"
    if not isinstance(which, OnePartition):
        message = f"{what}: one partition is moved at a time, as in ClickHouse."
        raise RefusedError(message, code=SUPPORT_IS_DISABLED)
    name = other_name(what, parts, this.name, others)
    catalog = others.catalog(name.catalog)
    found = catalog.table(name)
    if found is None:
        return _ToNowhere(here, Leave(which, name), no_table(what), catalog.name_of)
    source = source_of(what, found.load())
    there = runners.on(RememberingTable(name, found, source, this.ledger), catalog.storages)
    check = partial(_check, what, this.source, source)
    check_back = partial(_check, what, source, this.source)
    copies = partial(_copies, this.found.storages, catalog.storages, others.checks)
    check_file = partial(_check_file, this.found.storages)
    moving = Moving(here, there, copies, check, check_file, catalog.name_of, check_back)
    return _Move(moving, which)


def _check(
    what: str,
    source: RememberedSource,
    destination: RememberedSource,
    here: LakeTableState,
    there: LakeTableState,
) -> None:
    """Check that both tables are alike; called with their states at planning time."""
    refuse_unlike(what, (here, source), (there, destination), moves=True)


def _check_file(
    source: Storages, here: LakeTableState, there: LakeTableState, file: BranchFile
) -> None:
    """Refuse a file of an earlier partition spec whose rows have no single place there."""
    EarlierFiles(here, source, there)(file)


def _copies(
    source: Storages,
    destination: Storages,
    checks: Checks,
    here: LakeTableState,
    there: LakeTableState,
) -> Copies:
    return copies_between(here, source, there, destination, checks)


_PLANS: Final = 2
"""Plans at most twice if others change the partition, because each plan copies its files."""


def moving_to_disk(
    command: MoveToDisk | MoveToVolume,
    which: Which,
    running: Running,
    of: RememberingTable,
    checks: Checks,
) -> tuple[Running, MoveFilesToDisk]:
    """Prepare MOVE PARTITION|PART … TO DISK or TO VOLUME.

    Args:
        command: the command.
        which: the partition or part.
        running: runs statements on the table.
        of: the table.
        checks: refuses files that were changed after they were written.

    Returns:
        The statement, and `running` with a function that copies the files.

    Raises:
        NotFoundError: there is no such disk (code 479) or volume (548).
        RefusedError: a property of the table has no valid location (code 36).
        UsageError: the disk's storage is not supported, or the catalog does not configure it.
    """
    what = f"Cannot run {command} on {of.name}"
    if isinstance(which, AllPartitions):
        # The grammar refuses PARTITION ALL here.
        raise TypeError(command)
    state, storages = of.found.load(), of.found.storages
    disks, partitions = Disks.of(state), OwnPartitions(storages)
    match command:
        case MoveToDisk(_, name):
            to = disks.disk(name, what)
        case MoveToVolume(_, name):
            to = disks.volume(name, what)
    for place in to.places:
        # Opening the storage fails before the statement claims anything.
        storages(place)
    moved = MovedFiles(storages, running.ports.note, checks, partitions)
    ready = replace(
        running, ports=replace(running.ports, writer=FileRewriter(moved)), most_plans=_PLANS
    )
    return ready, MoveFilesToDisk(which, to, disks, partial(partitions, state=state))
