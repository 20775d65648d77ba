"""The other table of ATTACH, REPLACE and FETCH PARTITION … FROM: found, compared, and read once.

That of MOVE PARTITION … TO TABLE is found and compared here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from catalog.clickhouse.row_partitions import RowPartitions
from catalog.file_copies import CopiedFiles
from catalog.iceberg import OpenedCatalog
from catalog.iceberg_table import IcebergTable
from spark_ext.selected_tables import selected_table
from spark_ext.sql.session_settings import SourceTable
from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.committer import LakeTableState
from tableformat.effects import Direct
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError
from tableformat.iceberg.copies import different_columns
from tableformat.iceberg.properties import RememberedSource, remembered_source
from tableformat.ledger import Ledger
from tableformat.mergetree.alike import differences
from tableformat.names import LakeName
from tableformat.operations.copying import OtherTable, other_table
from tableformat.operations.partition_files import Partitions
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition

__all__ = [
    "Destination",
    "OtherTables",
    "copied_from",
    "copying",
    "no_table",
    "other_name",
    "refuse_unlike",
]


@dataclass(frozen=True, slots=True)
class OtherTables:
    """How the table behind FROM is found.

    `table` says what a name means, `catalog` opens a catalog by its name. `allow_empty` is the
    setting allow_replace_partition_from_empty_source.
    """

    table: Callable[[tuple[str, ...]], SourceTable | LakeName]
    catalog: Callable[[str], OpenedCatalog]
    allow_empty: bool = False


@dataclass(frozen=True, slots=True)
class Destination:
    """The table that copies come to, and what it remembers."""

    name: LakeName
    found: IcebergTable
    source: RememberedSource
    ledger: Ledger


def copied_from(
    what: str,
    parts: tuple[str, ...],
    which: OnePartition | AllPartitions,
    to: Destination,
    others: OtherTables,
) -> tuple[OtherTable, CopiedFiles]:
    """Return what another table has of a partition, and what copies its files.

    Args:
        what: begins errors: what cannot be run.
        parts: the name behind FROM.
        which: the partitions.
        to: the table that they come to.
        others: how names are looked up.

    Raises:
        NotFoundError: there is no such table (code 60).
        UnsupportedError: it is a table of ClickHouse, or files would have to be written anew.
        RefusedError: the tables differ; all differences are told (code of the first).
        DestinationError: a table cannot be read.
        LedgerError: the ledger cannot be read.
    """
    name = other_name(what, parts, to.name, others)
    catalog = others.catalog(name.catalog)
    found = selected_table(catalog, name)
    if found is None:
        raise no_table(what)
    state, there = found.state, to.found.load()
    remembered = _source_of(what, state)
    refuse_unlike(what, (state, remembered), (there, to.source))
    with RowPartitions(remembered, catalog.storages) as rows:
        partitions = Partitions(name, found.table, to.ledger, rows, Direct())
        other = other_table(state, partitions, which)
    return other, CopiedFiles(state, catalog.storages, there, to.found.storages)


def copying(running: Running, copy: CopiedFiles) -> Running:
    """Return what runs statements, with copies of these files."""
    return replace(running, ports=replace(running.ports, copy=copy))


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


def _source_of(what: str, state: LakeTableState) -> RememberedSource:
    source = remembered_source(state.properties)
    if source is None:
        message = f"{what}: it was not made by an export, so that it remembers no partition key."
        raise RefusedError(message)
    return source


def refuse_unlike(
    what: str,
    source: tuple[LakeTableState, RememberedSource],
    destination: tuple[LakeTableState, RememberedSource],
    *,
    moves: bool = False,
) -> None:
    """Refuse tables between which a partition cannot be put.

    Raises:
        RefusedError: they differ; all differences are told (code of the first).
        UnsupportedError: only their files do.
    """
    (state, of), (there, to) = source, destination
    found = differences(of.table, to.table, moves=moves)
    if found:
        told = "; ".join(one.text for one in found)
        raise RefusedError(f"{what}: {told}.", code=found[0].code)
    if of.conversions != to.conversions:
        message = f"{what}: their columns were exported with other conversions."
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if odd := different_columns(state, there):
        message = (
            f"{what}: files cannot be copied as they are, because {odd}. Export the partition from "
            "ClickHouse instead; files that have to be written anew are not there yet."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
