"""The lake tables of a statement: the one that it is about, and another one that it names.

Both are found here, and compared, whatever goes from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from catalog.clickhouse.row_partitions import RowPartitions
from catalog.iceberg import OpenedCatalog
from catalog.iceberg_table import IcebergTable
from catalog.intact_files import Checks, refuse_changed_files
from catalog.processes import may_be_alive, this_process
from catalog.sources import SourcePlace
from catalog.storages.opening import Storages
from spark_ext.operations.exports_from import ExportsFrom
from spark_ext.operations.spark_views import View, no_view
from spark_ext.sql.session_settings import SourceTable
from spark_ext.wiring import commit_ports, new_transaction
from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.committer import LakeTableState
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError
from tableformat.export.settling import Ports
from tableformat.iceberg.properties import RememberedSource, remembered_source
from tableformat.iceberg.written_anew import other_form
from tableformat.ledger import Ledger
from tableformat.mergetree.alike import differences
from tableformat.names import LakeName
from tableformat.operations.partition_files import Partitions
from tableformat.operations.running import Running
from tableformat.operations.statement import OperationPorts

__all__ = [
    "OtherTables",
    "RememberingTable",
    "Runners",
    "no_table",
    "operation_ports",
    "other_name",
    "refuse_unlike",
    "source_of",
]


_MOST_ATTEMPTS: Final = 100
"""Of a commit: others who change other partitions without a pause refuse no statement."""


def operation_ports(table: IcebergTable, ledger: Ledger) -> Ports:
    """Return what the commit protocol acts on for a statement."""
    ports = commit_ports(table, ledger)
    return replace(ports, storage=table.storages, most_attempts=_MOST_ATTEMPTS)


@dataclass(frozen=True, slots=True)
class OtherTables:
    """How the table behind FROM is found.

    `table` says what a name means, `catalog` opens a catalog by its name, `exports` runs those of
    a statement whose table is ClickHouse's. `allow_empty` is the setting
    allow_replace_partition_from_empty_source; `checks` refuses files that are not as they were
    written. `sources` are those of the session, by name. `view` returns the temporary view that a
    name means. `spark` is the session, where the statement was given in one.
    """

    table: Callable[[tuple[str, ...]], SourceTable | LakeName]
    catalog: Callable[[str], OpenedCatalog]
    exports: ExportsFrom
    allow_empty: bool = False
    checks: Checks = refuse_changed_files
    sources: Mapping[str, SourcePlace] = field(default_factory=dict, repr=False)
    view: Callable[[tuple[str, ...]], View | None] = no_view
    spark: SparkSession | None = None


@dataclass(frozen=True, slots=True)
class RememberingTable:
    """A lake table of a statement, and what it remembers of ClickHouse."""

    name: LakeName
    found: IcebergTable
    source: RememberedSource
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Runners:
    """Makes what runs statements on lake tables; what that opens is closed with `stack`."""

    ledger: Ledger
    note: Callable[[str], None]
    stack: ExitStack
    checks: Checks

    def on(self, table: RememberingTable, storages: Storages) -> Running:
        """Return what runs statements on a table."""
        rows = self.stack.enter_context(RowPartitions(table.source, storages))
        commit = operation_ports(table.found, self.ledger)
        location = table.found.load().location
        intact = partial(self.checks, table.found.storages, location, self.note)
        ports = OperationPorts(
            commit, this_process(), may_be_alive, new_transaction, self.note, intact
        )
        lies = Partitions(
            table.name, table.found, self.ledger, rows, commit.effects, table.source.table
        )
        return Running(ports, table.name, lies)


def other_name(what: str, parts: tuple[str, ...], this: LakeName, others: OtherTables) -> LakeName:
    """Return the lake table that a statement names beside its own.

    Raises:
        UnsupportedError: it is a table of ClickHouse.
        RefusedError: it is the same table.
    """
    name = others.table(parts)
    if isinstance(name, SourceTable):
        message = (
            f"{what}: it is a table of ClickHouse. EXPORT PARTITION … TO TABLE {this} brings "
            "its partitions."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    if name == this:
        message = f"{what}: it is the same table, and its rows would be there twice."
        raise RefusedError(message, code=BAD_ARGUMENTS)
    return name


def no_table(what: str) -> NotFoundError:
    """Return the error that there is no other table."""
    return NotFoundError(f"{what}: its catalog has no table of that name.", code=UNKNOWN_TABLE)


def source_of(what: str, state: LakeTableState) -> RememberedSource:
    """Return the ClickHouse table that a lake table remembers: its partition key counts.

    Raises:
        RefusedError: it remembers none.
        DestinationError: what it remembers cannot be read.
    """
    source = remembered_source(state.properties)
    if source is None:
        message = (
            f"{what}: it was not made by an export, so that it remembers no partition key of "
            "ClickHouse. Use the statements of the engine that made it."
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
    """Refuse tables between which a partition cannot be put.

    `divides`: what divides them into partitions is the same, too.

    Raises:
        RefusedError: they differ; all differences are told (code of the first).
        UnsupportedError: only their columns in the lake do.
    """
    (state, of), (there, to) = source, destination
    found = differences(of.table, to.table, moves=moves, divides=divides)
    if found:
        told = "; ".join(one.text for one in found)
        raise RefusedError(f"{what}: {told}.", code=found[0].code)
    if of.conversions != to.conversions:
        message = f"{what}: their columns were exported with other conversions."
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if odd := other_form(state, there, divides=divides):
        message = (
            f"{what}: files of one cannot be written as those of the other, because {odd}. Change "
            "the lake table with ALTER TABLE, or export the partition from ClickHouse instead."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
