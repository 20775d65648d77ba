"""What comes from the other table of ATTACH, REPLACE and FETCH PARTITION … FROM: read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from catalog.clickhouse.rows.partitions import RowPartitions
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.rewriting.file_partitions import FilePartitions
from catalog.rewriting.rewritten_copies import copies_between
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
from tableformat.clickhouse_codes import NO_REPLICA_HAS_PART
from tableformat.effects import Direct
from tableformat.errors import NotFoundError
from tableformat.iceberg.properties import RememberedSource
from tableformat.mergetree.compatibility import differences
from tableformat.names import LakeName
from tableformat.operations.copy_from import OtherTable, divided_here, other_table
from tableformat.operations.partition_files import Partitions
from tableformat.operations.run import Running
from tableformat.operations.statement import AllPartitions, Copies, OnePart, OnePartition

__all__ = ["FromOther", "copied_from", "copying", "fetched_from"]


@dataclass(frozen=True, slots=True)
class FromOther:
    """What another table has of partitions, and what copies its files.

    `which` are the partitions here. `named` are those of the other table, where it is divided
    otherwise.
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
    """Return what another table has of a partition, and what copies its files.

    Args:
        what: begins errors: what cannot be run.
        parts: the name behind FROM.
        named: says which partitions are meant, of a table of a partition key.
        to: the table that they come to.
        others: how names are looked up.
        divides: both have one partition key; else the partitions are those of the other table,
            and become those in which their rows lie here.

    Raises:
        NotFoundError: there is no such table (code 60).
        UnsupportedError: it is a table of ClickHouse, or its columns in the lake are others.
        RefusedError: the tables differ; all differences are told (code of the first). Or rows of a
            partition there would lie in several here (code 36).
        DestinationError: a table cannot be read.
        LedgerError: the ledger cannot be read.
    """
    name, catalog, found = _selected(what, parts, to, others)
    state, there = found.state, to.found.load()
    remembered = source_of(what, state)
    keys = (remembered.table.engine.partition_by, to.source.table.engine.partition_by)
    otherwise = not divides and keys[0] != keys[1]
    refuse_unlike(what, (state, remembered), (there, to.source), divides=not otherwise)
    which = named(remembered if otherwise else to.source)
    with RowPartitions(remembered, catalog.storages) as rows:
        other = other_table(state, _partitions(name, found, to, remembered, rows), which)
    between = (state, catalog.storages, there, to.found.storages, others.checks)
    if not otherwise:
        return FromOther(which, other, copies_between(*between))
    with RowPartitions(to.source, catalog.storages) as rows:
        differ = f"{what}: {differences(remembered.table, to.source.table)[0].text}"
        lie = divided_here(differ, which, other, lambda file: rows.ids(file.path, state))
    copies = copies_between(*between, FilePartitions(state, catalog.storages, there))
    return FromOther(*lie, copies, named=which)


def fetched_from(
    what: str,
    parts: tuple[str, ...],
    which: OnePartition | OnePart,
    to: RememberingTable,
    others: OtherTables,
) -> tuple[OtherTable, Copies]:
    """Return what another table has of a partition or a part, and what copies its files.

    Args:
        what: begins errors: what cannot be run.
        parts: the name behind FROM.
        which: the partition, or the part.
        to: the table that they come to.
        others: how names are looked up.

    Raises:
        NotFoundError: there is no such table (code 60), or no such part there (code 234).
        TableFormatError: as `copied_from`, of tables with one partition key.
    """
    name, catalog, found = _selected(what, parts, to, others)
    state, there = found.state, to.found.load()
    remembered = source_of(what, state)
    refuse_unlike(what, (state, remembered), (there, to.source))
    with RowPartitions(remembered, catalog.storages) as rows:
        partitions = _partitions(name, found, to, remembered, rows)
        try:
            other = other_table(state, partitions, which)
        except NotFoundError as error:
            # FETCH has a code of its own for it.
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
    """Return what looks at the partitions of the other table."""
    return Partitions(name, found.table, to.ledger, rows, Direct(), remembered.table)


def _selected(
    what: str, parts: tuple[str, ...], to: RememberingTable, others: OtherTables
) -> tuple[LakeName, OpenedCatalog, SelectedTable]:
    """Return the table behind FROM, and its catalog.

    Raises:
        NotFoundError: there is none (code 60).
        TableFormatError: it is none of which rows can come, or cannot be read.
    """
    name = other_name(what, parts, to.name, others)
    catalog = others.catalog(name.catalog)
    found = selected_table(catalog, name)
    if found is None:
        raise no_table(what)
    return name, catalog, found


def copying(running: Running, copy: Copies) -> Running:
    """Return what runs statements, with copies of these files."""
    return replace(running, ports=replace(running.ports, copy=copy))
