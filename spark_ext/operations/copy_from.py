"""Selects the files that ATTACH, REPLACE and FETCH PARTITION … FROM copy from a lake table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from catalog.clickhouse.rows.partitions import RowPartitions
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.rewriting.copies import copies_between
from catalog.rewriting.file_partitions import EarlierFiles, FilePartitions
from spark_ext.operations.tables import (
    OtherTables,
    RememberingTable,
    SelectedTable,
    no_table,
    other_name,
    refuse_unlike,
    selected_table,
    source_of,
)
from tableformat.clickhouse_codes import BAD_ARGUMENTS, NO_REPLICA_HAS_PART
from tableformat.effects import Direct
from tableformat.errors import NotFoundError, RefusedError
from tableformat.iceberg.properties import RememberedSource, refuse_version_of_source
from tableformat.mergetree.compatibility import differences
from tableformat.names import LakeName
from tableformat.operations.copy_from import OtherTable, divided_here, other_table
from tableformat.operations.partition_files import Partitions
from tableformat.operations.run import Running
from tableformat.operations.statement import (
    AllPartitions,
    Copies,
    FileCopier,
    OnePart,
    OnePartition,
)

__all__ = ["FromOther", "copied_from", "copying", "fetched_from"]


@dataclass(frozen=True, slots=True)
class FromOther:
    """The selected partitions of another table, and the function that copies their files.

    `which` are the partitions of the destination. `named` are the partitions of the other table, if
    it has another partition key.
    """

    which: OnePartition | AllPartitions
    other: OtherTable
    copies: Copies
    named: OnePartition | AllPartitions | None = None


def copied_from(
    what: str,
    parts: tuple[str, ...],
    named: Callable[[RememberedSource], OnePartition | AllPartitions],
    to: RememberingTable,
    others: OtherTables,
    *,
    divides: bool = True,
) -> FromOther:
    """Select the partitions of another table for ATTACH or REPLACE … FROM.

    Args:
        what: the beginning of error messages, "Cannot run ...".
        parts: the table name after FROM.
        named: returns the partitions of the statement, by a table's partition key.
        to: the destination table.
        others: resolves names and opens catalogs.
        divides: whether both tables must have the same partition key. Otherwise the statement
            names partitions of the other table, and their rows define the partitions here.

    Raises:
        NotFoundError: there is no such table (code 60).
        UnsupportedError: it is a ClickHouse table, or has other columns in the lake.
        RefusedError: the tables differ; the message has all differences, the code is that of the
            first. Or the rows of a partition there belong to several partitions here (code 36). Or
            ATTACH names main of the same table (code 36).
        DestinationError: a table cannot be read.
        LedgerError: the ledger cannot be read.
    """
    name, catalog, found = _selected(what, parts, to, others)
    state, there = found.state, to.found.load()
    if found.is_of(there):
        if not divides:
            raise _same_table(what)
        other = OtherTable(name, state.layout.table_uuid, state.main, (), is_itself=True)
        copies = copies_between(state, catalog.storages, there, to.found.storages, others.checks)
        return FromOther(named(to.source), other, copies)
    remembered = source_of(what, state)
    keys = (remembered.table.engine.partition_by, to.source.table.engine.partition_by)
    otherwise = not divides and keys[0] != keys[1]
    refuse_unlike(what, (state, remembered), (there, to.source), divides=not otherwise)
    which = named(remembered if otherwise else to.source)
    # What is divided otherwise is looked at file by file when it is copied.
    check = None if otherwise else EarlierFiles(state, catalog.storages, there)
    with RowPartitions(remembered, catalog.storages) as rows:
        other = other_table(state, _partitions(name, found, to, remembered, rows), which, check)
    between = (state, catalog.storages, there, to.found.storages, others.checks)
    if not otherwise:
        return FromOther(which, other, copies_between(*between))
    with RowPartitions(to.source, catalog.storages) as rows:
        differ = f"{what}: {differences(remembered.table, to.source.table)[0].text}"
        lie = divided_here(differ, which, other, lambda file: rows.ids(file, state))
    copies = copies_between(*between, FilePartitions(state, catalog.storages, there))
    return FromOther(*lie, copies, named=which)


def fetched_from(
    what: str,
    parts: tuple[str, ...],
    which: OnePartition | OnePart,
    to: RememberingTable,
    others: OtherTables,
) -> tuple[OtherTable, Copies]:
    """Select a partition or part of another table for FETCH.

    Args:
        what: the beginning of error messages, "Cannot run ...".
        parts: the table name after FROM.
        which: the partition or part.
        to: the destination table.
        others: resolves names and opens catalogs.

    Raises:
        NotFoundError: there is no such table (code 60), or no such part in it (code 234).
        RefusedError: it is main of the same table (code 36).
        TableFormatError: as for `copied_from` with `divides`.
    """
    name, catalog, found = _selected(what, parts, to, others)
    state, there = found.state, to.found.load()
    if found.is_of(there):
        raise _same_table(what)
    remembered = source_of(what, state)
    refuse_unlike(what, (state, remembered), (there, to.source))
    with RowPartitions(remembered, catalog.storages) as rows:
        partitions = _partitions(name, found, to, remembered, rows)
        try:
            check = EarlierFiles(state, catalog.storages, there)
            other = other_table(state, partitions, which, check)
        except NotFoundError as error:
            # ClickHouse has a separate code for a missing part in FETCH.
            raise NotFoundError(error.message, code=NO_REPLICA_HAS_PART) from error
    between = (state, catalog.storages, there, to.found.storages, others.checks)
    return other, copies_between(*between)


def _partitions(
    name: LakeName,
    found: SelectedTable,
    to: RememberingTable,
    remembered: RememberedSource,
    rows: RowPartitions,
) -> Partitions:
    """Return the object that reads the partitions of the other table."""
    return Partitions(name, found.table, to.ledger, rows, Direct(), remembered.table)


def _selected(
    what: str, parts: tuple[str, ...], to: RememberingTable, others: OtherTables
) -> tuple[LakeName, OpenedCatalog, SelectedTable]:
    """Open the lake table after FROM, and its catalog.

    Raises:
        NotFoundError: there is no such table (code 60).
        UnsupportedError: it has a format version that is not written (code 48).
        TableFormatError: it is not a lake table, or cannot be read.
    """
    name = other_name(what, parts, to.name, others)
    catalog = others.catalog(name.catalog)
    found = selected_table(catalog, name)
    if found is None:
        raise no_table(what)
    refuse_version_of_source(what, name, found.state)
    return name, catalog, found


def _same_table(what: str) -> RefusedError:
    """Return the error of rows that would come from main of the table to the same table."""
    message = f"{what}: it is the same table, and its rows would be there twice."
    return RefusedError(message, code=BAD_ARGUMENTS)


def copying(running: Running, copy: Copies) -> Running:
    """Return the runner of a statement, with a function that copies files."""
    return replace(running, ports=replace(running.ports, writer=FileCopier(copy)))
