"""Maintains an Iceberg table without ending a guarantee of an export (`mergeberg maintain`).

A run has four tasks, in this order. Each may be left out, and may be killed at any moment: it
changes the table by whole commits, and deletes only what no snapshot refers to.

1. `COMPACT` runs mergeberg's own OPTIMIZE on partitions with small files, so that exports keep
   their files (docs/reference/statements/optimize.md).
2. `MANIFESTS` calls Iceberg's procedure `rewrite_manifests`.
3. `SNAPSHOTS` calls Iceberg's procedure `expire_snapshots` with the ids of the snapshots that
   `tableformat.export.maintenance` chose. An age alone would expire what the ledger needs.
4. `ORPHANS` lists old unreferenced files with a dry run of Iceberg's `remove_orphan_files`, which
   knows their ages. It deletes those that mergeberg lists, too, and that neither the metadata nor
   the ledger, both read afterwards, refer to.

Before anything is deleted, and at the end, the rows of each lake partition are compared with those
before the run (`Maintenance.compare`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, partial
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from catalog.iceberg.catalogs import OpenedCatalog
from catalog.iceberg.spark_settings import CATALOG
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import milliseconds
from catalog.processes import may_be_alive, new_owner
from catalog.rewriting.integrity import refuse_changed_files
from spark_ext.actions.export_ports import commit_ports
from spark_ext.engine.jobs import spark_reason
from spark_ext.operations.rewrite import optimizing
from spark_ext.operations.tables import RememberingTable, Runners, source_of
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import Optimize
from tableformat.committer import LakeTableState
from tableformat.errors import DestinationError, RefusedError, TableFormatError
from tableformat.export.commit import load_table
from tableformat.export.leases import Leases
from tableformat.export.maintenance import (
    Expired,
    Expiring,
    OrphanFilter,
    SmallFiles,
    path_in,
    small_files,
)
from tableformat.export.outcome import Outcome, Status
from tableformat.iceberg.properties import Retention, refuse_kept_files, retention_of
from tableformat.ledger import Ledger, Row
from tableformat.names import LakeName, PartitionId, quote_string
from tableformat.operations.statement import OnePartition
from tableformat.parquet.writer import FileFormat, file_format
from tableformat.quantities import counted

__all__ = ["DELETING", "LEAST_AGE", "Maintenance", "Procedures", "Report", "Task", "tasks_of"]


T = TypeVar("T")


class Task(StrEnum):
    """A task of maintenance, in the order of a run."""

    COMPACT = "compact"
    MANIFESTS = "manifests"
    SNAPSHOTS = "snapshots"
    ORPHANS = "orphans"


DELETING: Final = frozenset({Task.SNAPSHOTS, Task.ORPHANS})
"""The tasks that delete files."""
LEAST_AGE: Final = 86_400_000
"""Milliseconds for which a file of another writer stays: as in Iceberg, a running write has it."""
_ORPHANS: Final = 7 * LEAST_AGE
_MANIFEST_BYTES: Final = ("commit.manifest.target-size-bytes", 8 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Report:
    """What a task did or would do.

    `count` is the number of partitions, manifests, snapshots or files. `files` and `bytes` are of
    what leaves, `new_files` and `new_bytes` of what takes its place; None is not known before.
    `notes` are sentences for the user. `failed`: a part of the task failed, and may be run again.
    `for_gc` counts old files that only `gc` can judge, `unfinished` exports that hold snapshots.
    """

    task: Task
    count: int = 0
    files: int = 0
    bytes: int = 0
    new_files: int | None = 0
    new_bytes: int | None = 0
    notes: tuple[str, ...] = ()
    failed: bool = False
    for_gc: int = 0
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Procedures:
    """Iceberg's procedures for one table, in a Spark session that has its catalog."""

    session: SparkSession
    table: LakeName

    def check(self, load: Callable[[], LakeTableState]) -> None:
        """Check that Spark's catalog has the same table; `load` loads its metadata.

        Raises:
            RefusedError: it has none of this name, or another one.
            DestinationError: Spark failed.
        """
        what = f"Cannot maintain {self.table}: Spark's catalog {self.table.catalog}"
        way = (
            f"Compare --conf {CATALOG}{self.table.catalog}.… with the catalog of the export, or "
            f"leave these tasks out: --only {Task.COMPACT}."
        )
        catalog = f"{CATALOG}{self.table.catalog}"
        if self.session.conf.get(catalog, None) is None:
            message = (
                f"Cannot maintain {self.table}: Spark has no catalog {self.table.catalog}, and "
                "Iceberg's procedures run in Spark. Describe the same catalog to Spark with --conf "
                f"{catalog}=org.apache.iceberg.spark.SparkCatalog and its settings, or leave these "
                f"tasks out: --only {Task.COMPACT}."
            )
            raise RefusedError(message)
        try:
            # PySpark logs the error of a query whose table is not there.
            if not self._asked("read", lambda: self.session.catalog.tableExists(self._quoted)):
                message = f"{what} does not have it. {way}"
                raise RefusedError(message)
            found = self._sql(f"SELECT snapshot_id FROM {self._quoted}.refs")
        except DestinationError as error:
            message = f"{what} cannot read it: {error.message} {way}"
            raise RefusedError(message) from error
        known = load().snapshots
        if any(one.snapshot_id not in known for one in found):
            message = f"{what} has another table of this name. {way}"
            raise RefusedError(message)

    def rewrite_manifests(self) -> tuple[int, int]:
        """Rewrite the manifests of main; return how many were replaced, and how many came."""
        (done,) = self._call("rewrite_manifests")
        return done.rewritten_manifests_count, done.added_manifests_count

    def expire(self, snapshot_ids: frozenset[int]) -> None:
        """Expire snapshots by their ids, and delete the files that only they refer to."""
        ids = ", ".join(f"{one}L" for one in sorted(snapshot_ids))
        # Without a time, the procedure would also expire what is older than five days.
        ages = f"older_than => {_timestamp(0)}, retain_last => 1"
        self._call("expire_snapshots", f"{ages}, snapshot_ids => array({ids})")

    def orphans(self, older_than: int) -> tuple[str, ...]:
        """Return the locations of unreferenced files that were last changed before a time."""
        age = f"older_than => {_timestamp(older_than)}"
        found = self._call("remove_orphan_files", f"{age}, dry_run => true, prefix_listing => true")
        return tuple(one.orphan_file_location for one in found)

    def _call(self, name: str, arguments: str = "") -> list[Any]:
        # A session keeps tables as it once read them.
        self._sql(f"REFRESH TABLE {self._quoted}")
        *namespace, table = (_quoted(part) for part in self.table.identifier)
        given = f"table => {quote_string('.'.join((*namespace, table)))}"
        joined = f"{given}, {arguments}" if arguments else given
        return self._sql(f"CALL {_quoted(self.table.catalog)}.system.{name}({joined})")

    @property
    def _quoted(self) -> str:
        parts = (self.table.catalog, *self.table.identifier)
        return ".".join(_quoted(part) for part in parts)

    def _sql(self, text: str) -> list[Any]:
        what = f"run {text.partition('(')[0]} on"
        return self._asked(what, lambda: [*self.session.sql(text).collect()])

    def _asked(self, what: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except (PySparkException, Py4JError) as error:
            why = f"Spark failed with {spark_reason(error)}"
            message = f"Cannot {what} {self.table}: {why}. Run it again."
            raise DestinationError(message) from error


def _quoted(part: str) -> str:
    return f"`{part.replace('`', '``')}`"


def _timestamp(moment: int) -> str:
    """Return a time in milliseconds since 1970 as a literal of Spark."""
    at = datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return f"TIMESTAMP '{at}+00:00'"


@dataclass(slots=True)
class Maintenance:
    """Maintains one table, task by task.

    `older_than` is the age in milliseconds of snapshots that expire and of orphans, `keeps` the
    number of snapshots of each branch that stay. None is what the table's owner has set for its
    snapshots, and a week for orphans. `procedures` starts Spark. `note` receives notes. `before` is
    the metadata before the run, `ours` the snapshots that the run made.
    """

    name: LakeName
    table: IcebergTable
    lake: OpenedCatalog
    ledger: Ledger
    procedures: Callable[[], Procedures]
    note: Callable[[str], None]
    older_than: int | None
    keeps: int | None
    clock: Callable[[], int] = milliseconds
    before: LakeTableState = field(init=False)
    ours: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        """Load the metadata before the run.

        Raises:
            RefusedError: the table belongs to another ledger.
            DestinationError: it cannot be loaded.
        """
        self.before = load_table(commit_ports(self.table, self.ledger), writes=False)

    def check(self, tasks: Collection[Task]) -> None:
        """Check that the table's owner allows these tasks.

        Raises:
            RefusedError: the owner forbids to expire snapshots, or a property has a wrong value.
        """
        properties = self.before.properties
        if DELETING.intersection(tasks):
            others = " ".join(f"--only {task}" for task in Task if task not in DELETING)
            refuse_kept_files(properties, self.name, f"leave these tasks out: {others}")
        if Task.SNAPSHOTS in tasks:
            self._retention(properties)

    def _retention(self, properties: Mapping[str, str]) -> Retention:
        return retention_of(properties, self.name, age=self.older_than, keeps=self.keeps)

    def run(self, task: Task, *, dry_run: bool) -> Report:
        """Run one task, or say what it would do.

        Raises:
            TableFormatError: it is refused, or failed; the table is whole.
        """
        match task:
            case Task.COMPACT:
                return self._compact(dry_run=dry_run)
            case Task.MANIFESTS:
                return self._manifests(dry_run=dry_run)
            case Task.SNAPSHOTS:
                return self._snapshots(dry_run=dry_run)
            case Task.ORPHANS:
                return self._orphans(dry_run=dry_run)

    def compare(self) -> tuple[int, int]:
        """Compare the rows of each partition with those before what this run rewrote.

        Return the rows and the lake partitions of main. Other writers may commit at any time; only
        commits that must keep the rows are compared.

        Raises:
            DestinationError: a commit of this run changed the number of rows.
        """
        state = self._load()
        rows = cache(partial(self.table.rows_by_partition, state))
        for one in state.ancestors():
            if one.snapshot_id == self.before.main:
                break
            kept = one.operation == "replace" and not one.added_files
            parent = one.parent_id
            if parent is None or parent not in state.snapshots:
                continue
            if not (kept or one.snapshot_id in self.ours):
                continue
            was, now = rows(parent), rows(one.snapshot_id)
            if _differ(was, now):
                message = (
                    f"Cannot continue the maintenance of {self.name}: snapshot {one.snapshot_id} "
                    f"has {sum(now.values()):,} rows in {counted(len(now), 'partition')}, and "
                    f"{parent} before it {sum(was.values()):,} in {len(was):,}. Nothing was "
                    "deleted since. Roll main back to that snapshot, and please report this."
                )
                raise DestinationError(message)
        found = rows(state.main) if state.main is not None else {}
        return sum(found.values()), len(found)

    def _load(self) -> LakeTableState:
        return load_table(commit_ports(self.table, self.ledger), writes=False)

    def _rows(self, state: LakeTableState) -> tuple[Row, ...]:
        every = self.ledger.rows()
        return tuple(row for row in every if row.key.destination == state.layout.table_uuid)

    def _is_worked_on(self, key: str) -> bool:
        held = self.ledger.holder(key)
        return held is not None and may_be_alive(held.owner)

    def _compact(self, *, dry_run: bool) -> Report:
        state = self._load()
        target = file_format(FileFormat(), state.properties, self.name).target_bytes
        rows = self._rows(state)
        found = [*small_files(rows, state, self.table, target, self._is_worked_on)]
        report, notes = Report(Task.COMPACT, new_bytes=None if dry_run else 0), list[str]()
        for one in found:
            try:
                outcome = self._optimize(one, state, dry_run=dry_run)
            except TableFormatError as error:
                notes.append(f"partition {one.partition_id} is left: {error.message}")
                bad = not isinstance(error, RefusedError)
                report = replace(report, failed=report.failed or bad)
                continue
            if outcome.status is not Status.OPTIMIZED:
                if outcome.status not in (Status.UNCHANGED, Status.EMPTY):
                    notes.append(f"partition {one.partition_id} is left: {outcome.message}")
                bad = outcome.status in (Status.FAILED, Status.UNKNOWN)
                report = replace(report, failed=report.failed or bad)
                continue
            if outcome.snapshot_id is not None:
                self.ours.add(outcome.snapshot_id)
            report = replace(
                report,
                count=report.count + 1,
                files=report.files + outcome.left_files,
                bytes=report.bytes + outcome.left_bytes,
                new_files=(report.new_files or 0) + outcome.came_files,
                new_bytes=None if dry_run else (report.new_bytes or 0) + (outcome.came_bytes or 0),
            )
        return replace(report, notes=tuple(notes))

    def _optimize(self, one: SmallFiles, state: LakeTableState, *, dry_run: bool) -> Outcome:
        """Run OPTIMIZE on a partition, or return what it would do."""
        source = source_of(f"Cannot compact partitions of {self.name}", state)
        to = RememberingTable(self.name, self.table, source, self.ledger)
        command = Optimize(DottedName((self.name.catalog, *self.name.identifier)))
        which = OnePartition(PartitionId(one.partition_id))
        with ExitStack() as stack:
            running = Runners(self.ledger, self.note, stack, refuse_changed_files).on(
                to, self.lake.storages
            )
            ready, statement = optimizing(command, which, running, to, stack)
            return ready.forecast(statement) if dry_run else ready.run(statement)

    def _manifests(self, *, dry_run: bool) -> Report:
        state = self._load()
        sizes = self.table.manifest_sizes(state)
        name, default = _MANIFEST_BYTES
        text = state.properties.get(name, "")
        wanted = max(1, -(-sum(sizes) // (int(text) if text.isdecimal() else default)))
        if len(sizes) < 2 * wanted:
            return Report(Task.MANIFESTS)
        report = Report(Task.MANIFESTS, len(sizes), len(sizes), sum(sizes), wanted, None)
        if dry_run:
            return report
        gone, came = self.procedures().rewrite_manifests()
        after = sum(self.table.manifest_sizes(self._load()))
        return replace(report, count=gone, files=gone, new_files=came, new_bytes=after)

    def _snapshots(self, *, dry_run: bool) -> Report:
        stay = self._retention(self._load().properties)
        ports = commit_ports(self.table, self.ledger)
        expiring = Expiring(ports, self.table, self.clock() - stay.age, stay.keeps)
        if dry_run:
            return self._expired(expiring.find())
        with self._leases() as leases:
            return self._expired(expiring.run(leases, lambda ids: self.procedures().expire(ids)))

    def _expired(self, done: Expired) -> Report:
        notes = [
            f"partition {one.partition_id} keeps snapshots since {_shown(one.since)}: {one.why}"
            for one in done.plan.holds
        ]
        if done.plan.of_others:
            named = ", ".join(done.plan.of_others)
            notes.append(
                f"others removed partition {named} from main; without these snapshots, an export "
                "of it again needs --force"
            )
        if done.noted:
            what = counted(done.noted, "partition")
            notes.append(f"noted in the ledger which files others wrote anew: {what}")
        return Report(
            Task.SNAPSHOTS,
            len(done.plan.snapshot_ids),
            done.files,
            done.bytes,
            notes=tuple(notes),
            holds=bool(done.plan.holds),
        )

    def _leases(self) -> Leases:
        effects = commit_ports(self.table, self.ledger).effects
        return Leases(
            self.ledger, new_owner(), effects=effects, is_alive=may_be_alive, note=self.note
        )

    def _orphans(self, *, dry_run: bool) -> Report:
        age = max(_ORPHANS if self.older_than is None else self.older_than, LEAST_AGE)
        old = {
            path_in(one, is_encoded=False) for one in self.procedures().orphans(self.clock() - age)
        }
        location = self.before.location.rstrip("/")
        listed = self.table.storages(location).list(location)
        found = [one for one in listed if path_in(one.location) in old]
        # The metadata is read after the list, and the ledger after the metadata: what is written
        # or claimed in between is younger than any age.
        orphans = self._filter()
        gone = [one for one in found if orphans.may_go(one.location)]
        if not dry_run:
            for one in gone:
                self.table.storages(one.location).delete(one.location)
            self._check_left(frozenset(one.location for one in gone))
        for_gc = sum(orphans.is_of_export(one.location) for one in found)
        size = sum(one.size for one in gone)
        return Report(Task.ORPHANS, len(gone), len(gone), size, for_gc=for_gc)

    def _filter(self) -> OrphanFilter:
        state = self._load()
        files = self.table.referred_files(state, state.snapshots)
        every = (*files, *self.table.metadata_files(state))
        return OrphanFilter.of(state, every, lambda key: self.ledger.read(key) is not None)

    def _check_left(self, gone: Collection[str]) -> None:
        """Check that no snapshot refers to a file that was deleted.

        Raises:
            DestinationError: one does.
        """
        orphans = self._filter()
        lost = sorted(one for one in gone if one.rsplit("/", 1)[-1] in orphans.names)
        if lost:
            message = (
                f"Cannot end the maintenance of {self.name}: another writer committed "
                f"{counted(len(lost), 'file')} that nothing referred to for a day, and that were "
                f"deleted: {', '.join(lost[:3])}. Roll back its commit, and write it again."
            )
            raise DestinationError(message)


def _shown(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_Places = Mapping[tuple[int, tuple[object, ...]], int]


def _differ(was: _Places, now: _Places) -> bool:
    """Whether partitions have other numbers of rows; with several specs, whether the table has."""
    if len({spec_id for spec_id, _ in (*was, *now)}) > 1:
        return sum(was.values()) != sum(now.values())
    return {p: n for p, n in was.items() if n} != {p: n for p, n in now.items() if n}


def tasks_of(names: Collection[str]) -> Iterator[Task]:
    """Yield the tasks of these names in the order of a run; all of them if there are no names."""
    return (task for task in Task if not names or task.value in names)
