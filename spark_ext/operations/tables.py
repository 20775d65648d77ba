"""Finds and compares the lake tables of a statement, and runs the exports that it needs.

A statement is about one lake table and may name another. `refuse_unlike` compares the two for
every statement that puts rows of one into the other.

`selected_table` opens a lake table in its current state, or at a tag, branch or snapshot.
`lake.ns.t.tag_before`, `lake.ns.t.branch_detached` and `lake.ns.t.snapshot_id_123` follow
Iceberg's names for time travel in Spark. A table with that exact name takes precedence.

`SessionExports` and `StoppableExports` run the exports of ATTACH and REPLACE … FROM ClickHouse.
Each interface has its own Spark, its own messages and its own way to stop; the statement is in
`spark_ext.operations.from_clickhouse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from pyspark.sql import SparkSession

from catalog.clickhouse.rows.partitions import RowPartitions
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.iceberg.table import IcebergTable
from catalog.processes import may_be_alive, new_owner
from catalog.rewriting.integrity import Checks, intact, refuse_changed_files
from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from catalog.storages.schemes import Storages
from spark_ext.actions.export import Stopping
from spark_ext.actions.export_ports import (
    Places,
    RunningSpark,
    SparkProvider,
    commit_ports,
    new_transaction,
    open_ports,
)
from spark_ext.operations.spark_views import View, no_view
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_settings import StatementSettings
from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.committer import LakeTableState
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError
from tableformat.export.commit import Ports
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts, Observer, ObserverAround, Silent
from tableformat.iceberg.copied_files import form_differences
from tableformat.iceberg.properties import RememberedSource, remembered_source
from tableformat.ledger import Ledger, Owner
from tableformat.mergetree.compatibility import differences
from tableformat.names import LakeName, new_query_id
from tableformat.operations.partition_files import Partitions
from tableformat.operations.run import Running
from tableformat.operations.statement import OperationPorts

__all__ = [
    "ExportsFrom",
    "OpensPorts",
    "OtherTables",
    "RememberingTable",
    "Runners",
    "SelectedTable",
    "SessionExports",
    "StoppableExports",
    "WithoutOutcomes",
    "no_table",
    "operation_ports",
    "other_name",
    "refuse_unlike",
    "selected_table",
    "source_of",
]

OpensPorts = Callable[[SourcePlace], JobPorts]
"""Opens the ports of an export job whose source is at the given address."""


class ExportsFrom(Protocol):
    """The interface's way to run the exports of one statement."""

    @property
    def slots(self) -> int:
        """The number of tasks that can run at a time."""
        ...

    @property
    def settings(self) -> StatementSettings:
        """The settings of the statement and its session."""
        ...

    def tables(self, source: SourceTable) -> tuple[LocalTable, ...]:
        """Return the tables to read: this table, or its local table on each shard."""
        ...

    def running(self) -> AbstractContextManager[OpensPorts]:
        """Return a context in which exports can be opened."""
        ...


@dataclass(frozen=True, slots=True)
class WithoutOutcomes(ObserverAround):
    """An observer that passes on no outcome, because the statement reports its own outcomes."""

    def finished(self, outcome: Outcome) -> None:
        """Ignore the outcome."""


@dataclass(frozen=True, slots=True)
class SessionExports:
    """Runs exports in a session that the user started.

    `places` returns the addresses of lake and ledger for a source.
    """

    spark: SparkSession
    places: Callable[[SourcePlace], Places] = field(repr=False)
    settings: StatementSettings

    @property
    def slots(self) -> int:
        """The number of tasks that can run at a time."""
        return self.spark.sparkContext.defaultParallelism

    def tables(self, source: SourceTable) -> tuple[LocalTable, ...]:
        """Return the tables to read: this table, or its local table on each shard."""
        return source.tables()

    def running(self) -> AbstractContextManager[OpensPorts]:
        """Return a context in which exports can be opened; it handles no signals."""
        return nullcontext(self._opened)

    def _opened(self, place: SourcePlace) -> JobPorts:
        return open_ports(self.places(place), RunningSpark(self.spark), Silent())


@dataclass(frozen=True, slots=True)
class StoppableExports:
    """Runs exports in a process of its own, and stops them at SIGTERM.

    `find` returns the tables to read.
    """

    spark: Callable[[], SparkProvider]
    places: Callable[[SourcePlace], Places] = field(repr=False)
    settings: StatementSettings
    slots: int
    find: Callable[[SourceTable], tuple[LocalTable, ...]]
    observer: Observer
    until: Stopping

    def tables(self, source: SourceTable) -> tuple[LocalTable, ...]:
        """Return the tables to read: this table, or its local table on each shard."""
        return self.find(source)

    @contextmanager
    def running(self) -> Iterator[OpensPorts]:
        """Provide a function that opens exports, while SIGTERM is handled."""
        with self.until:
            yield partial(self._opened, self.spark())

    def _opened(self, spark: SparkProvider, place: SourcePlace) -> JobPorts:
        ports = open_ports(self.places(place), spark, self.observer)
        return replace(ports, should_stop=lambda: self.until.is_requested() or ports.should_stop())


_MOST_ATTEMPTS: Final = 100
"""Attempts of a commit, so that concurrent changes of other partitions do not fail a statement."""


def operation_ports(table: IcebergTable, ledger: Ledger) -> Ports:
    """Return the ports of the commit protocol for a statement."""
    ports = commit_ports(table, ledger)
    return replace(ports, storage=table.storages, most_attempts=_MOST_ATTEMPTS)


@dataclass(frozen=True, slots=True)
class OtherTables:
    """Finds and opens the other table of a statement.

    `table` resolves a name, `catalog` opens a catalog by name, and `exports` runs exports from a
    ClickHouse table. `allow_empty` is the setting allow_replace_partition_from_empty_source.
    `checks` refuses files that were changed after they were written. `sources` are the session's
    sources by name. `view` resolves a name to a temporary view. `spark` is the session of the
    statement; None on the command line. `query_id` names the statement for KILL QUERY.
    """

    table: Callable[[tuple[str, ...]], SourceTable | LakeName]
    catalog: Callable[[str], OpenedCatalog]
    exports: ExportsFrom
    allow_empty: bool = False
    checks: Checks = refuse_changed_files
    sources: Mapping[str, SourcePlace] = field(default_factory=dict, repr=False)
    view: Callable[[tuple[str, ...]], View | None] = no_view
    spark: SparkSession | None = None
    query_id: str = field(default_factory=new_query_id)


@dataclass(frozen=True, slots=True)
class RememberingTable:
    """A lake table of a statement, with the ClickHouse definition that its properties keep."""

    name: LakeName
    found: IcebergTable
    source: RememberedSource
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Runners:
    """Creates the runners of statements on lake tables; `stack` closes their resources.

    All have one owner, because the runners of one command never compete for a lease.
    """

    ledger: Ledger
    note: Callable[[str], None]
    stack: ExitStack
    checks: Checks
    owner: Owner = field(default_factory=new_owner)

    def on(self, table: RememberingTable, storages: Storages) -> Running:
        """Return a runner of statements on a table."""
        rows = self.stack.enter_context(RowPartitions(table.source, storages))
        commit = operation_ports(table.found, self.ledger)
        found = table.found
        check = intact(self.checks, found.storages, found.load, self.note)
        ports = OperationPorts(commit, self.owner, may_be_alive, new_transaction, self.note, check)
        partitions = Partitions(
            table.name, table.found, self.ledger, rows, commit.effects, table.source.table
        )
        return Running(ports, table.name, partitions)


def other_name(what: str, parts: tuple[str, ...], this: LakeName, others: OtherTables) -> LakeName:
    """Return the name of the other lake table in a statement.

    It may be a name of the same table: the uuids tell, since catalogs may share tables.

    Raises:
        UnsupportedError: it is a ClickHouse table.
    """
    name = others.table(parts)
    if isinstance(name, SourceTable):
        message = (
            f"{what}: it is a table of ClickHouse. EXPORT PARTITION … TO TABLE {this} exports its "
            "partitions."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    return name


def no_table(what: str) -> NotFoundError:
    """Return the error that the other table does not exist."""
    return NotFoundError(f"{what}: its catalog has no table of that name.", code=UNKNOWN_TABLE)


def source_of(what: str, state: LakeTableState) -> RememberedSource:
    """Return the ClickHouse definition in a lake table's properties, with its partition key.

    Raises:
        RefusedError: the table has none, because no export created it.
        DestinationError: the definition cannot be read.
    """
    source = remembered_source(state.properties)
    if source is None:
        message = (
            f"{what}: it was not created by an export, so it records no partition key of "
            "ClickHouse. Use the statements of the engine that created it."
        )
        raise RefusedError(message)
    return source


def refuse_unlike(
    what: str,
    source: tuple[LakeTableState, RememberedSource],
    destination: tuple[LakeTableState, RememberedSource],
    *,
    moves: bool = False,
    divides: bool = True,
) -> None:
    """Refuse two tables if a partition of one cannot be put into the other.

    With `divides`, the partition keys must be equal, too. `moves` adds the conditions of MOVE.

    Raises:
        RefusedError: the tables differ; the message has all differences, the code is that of the
            first.
        UnsupportedError: only their columns in the lake differ.
    """
    (state, of), (there, to) = source, destination
    found = differences(of.table, to.table, moves=moves, divides=divides)
    if found:
        reasons = "; ".join(one.text for one in found)
        raise RefusedError(f"{what}: {reasons}.", code=found[0].code)
    if of.conversions != to.conversions:
        message = f"{what}: their columns were exported with other conversions."
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if odd := form_differences(state, there, divides=divides):
        message = (
            f"{what}: files of one cannot be written as those of the other, because {odd}. Change "
            "the lake table with ALTER TABLE, or export the partition from ClickHouse instead."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


_SNAPSHOT: Final = "snapshot_id_"
_REFERENCES: Final = ("tag_", "branch_")


@dataclass(frozen=True, slots=True)
class SelectedTable:
    """A lake table in one state, whose `main` is the selected snapshot.

    `is_main`: the table itself was named, and not a tag, branch or snapshot of it.
    """

    table: IcebergTable
    state: LakeTableState
    is_main: bool

    def is_of(self, table: LakeTableState) -> bool:
        """Whether this is main of a table, which may have another name in another catalog."""
        return self.is_main and self.state.layout.table_uuid == table.layout.table_uuid


def selected_table(catalog: OpenedCatalog, name: LakeName) -> SelectedTable | None:
    """Open the table of a name; None if the table, tag, branch or snapshot does not exist.

    Raises:
        DestinationError: the catalog cannot be read.
    """
    found = catalog.table(name)
    if found is not None:
        return SelectedTable(found, found.load(), is_main=True)
    *namespace, table = name.namespace
    found = catalog.table(LakeName(name.catalog, tuple(namespace), table)) if namespace else None
    if found is None:
        return None
    state = found.load()
    snapshot = _snapshot(found, state, name.name)
    if snapshot is None:
        return None
    return SelectedTable(found, replace(state, main=snapshot), is_main=False)


def _snapshot(table: IcebergTable, state: LakeTableState, selector: str) -> int | None:
    if selector.startswith(_SNAPSHOT):
        number = selector.removeprefix(_SNAPSHOT)
        return int(number) if number.isdecimal() and int(number) in state.snapshots else None
    kind = next((one for one in _REFERENCES if selector.startswith(one)), None)
    return table.references(state).get(selector.removeprefix(kind)) if kind else None
