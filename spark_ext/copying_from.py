"""What comes from the other table of ATTACH, REPLACE and FETCH PARTITION … FROM: read once."""

from __future__ import annotations

from dataclasses import replace

from catalog.clickhouse.row_partitions import RowPartitions
from catalog.file_copies import CopiedFiles
from spark_ext.other_tables import (
    OtherTables,
    RememberingTable,
    no_table,
    other_name,
    refuse_unlike,
    source_of,
)
from spark_ext.selected_tables import selected_table
from tableformat.effects import Direct
from tableformat.operations.copying import OtherTable, other_table
from tableformat.operations.partition_files import Partitions
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition

__all__ = ["copied_from", "copying"]


def copied_from(
    what: str,
    parts: tuple[str, ...],
    which: OnePartition | AllPartitions,
    to: RememberingTable,
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
    remembered = source_of(what, state)
    refuse_unlike(what, (state, remembered), (there, to.source))
    with RowPartitions(remembered, catalog.storages) as rows:
        partitions = Partitions(name, found.table, to.ledger, rows, Direct())
        other = other_table(state, partitions, which)
    return other, CopiedFiles(state, catalog.storages, there, to.found.storages, others.checks)


def copying(running: Running, copy: CopiedFiles) -> Running:
    """Return what runs statements, with copies of these files."""
    return replace(running, ports=replace(running.ports, copy=copy))
