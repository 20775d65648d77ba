"""The system tables `parts`, `detached_parts` and `partitions` of the lake tables in the ledger.

A part is a data file of a lake table that exports go to, with the rows it holds.
`parts` lists main, `detached_parts` the branch `detached`. `partitions` sums up main.

The ledger gives the ClickHouse partition of a file by the key in the file's name. A file that
another writer wrote gets the partition of its neighbours in the same lake partition, if they all
belong to one; otherwise it is NULL. The page for users is docs/reference/system-tables.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from spark_ext.actions.exports import KnownDestinations, present_names
from spark_ext.procedures.declarations import Call, Column, Rows, SystemTable, Value
from spark_ext.sql.catalogs import open_destination_in
from spark_ext.system_tables.exports import known_ledger
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH, LakeTableState
from tableformat.disks import Disks
from tableformat.errors import NotFoundError
from tableformat.iceberg.manifest_scan import LiveFile, lake_part_name, live_files
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.names import HiveName, LakeName, PartitionId

__all__ = [
    "DETACHED_PARTS",
    "PARTITIONS",
    "PARTS",
    "LakePart",
    "lake_parts",
    "partition_rows",
    "parts_of_files",
]


@dataclass(frozen=True, slots=True)
class LakePart:
    """A data file of a lake table, as a part.

    `partition_id` is the ClickHouse partition; None if it is unknown. `source_parts` are the names
    of the ClickHouse parts whose rows are in the file, as far as the ledger has them. `disk` is
    None if the file is on no disk that the table names.
    """

    table: str
    partition_id: str | None
    file: LiveFile
    source_parts: tuple[str, ...]
    disk: str | None = None

    @property
    def name(self) -> str | None:
        """The name of the part; None without a partition id."""
        if self.partition_id is None:
            return None
        return str(lake_part_name(PartitionId(self.partition_id), self.file.path))


def lake_parts(conf: Mapping[str, str], branch: str = MAIN_BRANCH) -> Iterator[LakePart]:
    """Yield the parts of every lake table in the session's ledger.

    Args:
        conf: the settings of the session.
        branch: the branch of the parts.

    Raises:
        TableFormatError: ledger, catalog or storage cannot be read.
    """
    with known_ledger(conf) as ledger:
        rows = () if ledger is None else present_names(ledger.rows())
    lake = KnownDestinations(partial(open_destination_in, conf, looks_only=True))
    for name, (state, of_table) in sorted(_tables(rows, lake).items()):
        files, disks = live_files(table_of(state), branch), Disks.of(state)
        for part in parts_of_files(name, files, of_table):
            yield replace(part, disk=disks.disk_of(part.file.path))


def _tables(
    rows: Iterable[Row], lake: KnownDestinations
) -> dict[LakeName, tuple[LakeTableState, list[Row]]]:
    """Return the Iceberg tables of the ledger's rows, with their state and rows.

    Tables of catalogs that the session does not have are left out.
    """
    found: dict[LakeName, tuple[LakeTableState, list[Row]]] = {}
    for row in rows:
        name = LakeName.parse(row.destination_table)
        if isinstance(name, HiveName):
            continue
        try:
            state = lake.destination(row)
        except NotFoundError:
            # The session does not have the catalog of the table.
            continue
        if state is not None:
            found.setdefault(name, (state, []))[1].append(row)
    return found


def parts_of_files(
    name: LakeName, files: Iterable[LiveFile], rows: Iterable[Row]
) -> Iterator[LakePart]:
    """Yield a part for each data file.

    Args:
        name: the lake table.
        files: data files of the table, in any order.
        rows: the ledger's rows of exports into the table.
    """
    known, held = tuple(files), tuple(rows)
    by_key = {row.key.hash: row.key.partition_id for row in held}
    sources = _source_parts(held)
    neighbours = defaultdict[tuple[int, str], set[str]](set)
    for file in known:
        if file.key in by_key:
            neighbours[file.spec_id, file.partition].add(by_key[file.key])
    for file in known:
        there = neighbours.get((file.spec_id, file.partition), set())
        only = next(iter(there)) if len(there) == 1 else None
        yield LakePart(str(name), by_key.get(file.key, only), file, sources.get(file.path, ()))


def _source_parts(rows: Iterable[Row]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the source parts whose rows are in a file, by path of the file."""
    found = defaultdict[str, dict[str, None]](dict)
    for row in rows:
        for part in (*(row.done.parts if row.done else ()), *row.claim.parts):
            for path in part.remote_paths:
                found[path][part.name] = None
    return {path: tuple(names) for path, names in found.items()}


def _run(branch: str, call: Call) -> Rows:
    return tuple(_row(part) for part in lake_parts(call.conf, branch))


def _row(part: LakePart) -> tuple[Value, ...]:
    file = part.file
    return (
        part.table,
        part.partition_id,
        file.partition,
        part.name,
        part.source_parts,
        file.rows,
        file.bytes,
        file.path,
        part.disk,
        file.snapshot_id,
    )


_COLUMNS: Final = (
    Column("table", "STRING", "the lake table"),
    Column("partition_id", "STRING", "the ClickHouse partition's id; NULL if it is unknown"),
    Column("partition", "STRING", "the lake's partition: ts_month=2024-01"),
    Column("name", "STRING", "the part: <partition_id>_<n>_<n>_0; NULL without a partition id"),
    Column("source_parts", "ARRAY<STRING>", "the ClickHouse parts whose rows are in the file"),
    Column("rows", "BIGINT", "rows of the file, including rows that were deleted later"),
    Column("bytes", "BIGINT", "bytes of the file"),
    Column("file_path", "STRING", "the file"),
    Column("disk_name", "STRING", "the disk of the file; NULL if the table names none for it"),
    Column("snapshot_id", "BIGINT", "the snapshot that added it"),
)

PARTS: Final = SystemTable(
    name="parts",
    description="The parts of the lake tables that exports go to: a part is a data file of main.",
    columns=_COLUMNS,
    run=partial(_run, MAIN_BRANCH),
)

DETACHED_PARTS: Final = SystemTable(
    name="detached_parts",
    description="The parts that DETACH removed from main, until ATTACH or DROP DETACHED.",
    columns=_COLUMNS,
    run=partial(_run, DETACHED_BRANCH),
)


def _partition_rows(call: Call) -> Rows:
    return tuple(partition_rows(lake_parts(call.conf)))


def partition_rows(parts: Iterable[LakePart]) -> Iterator[tuple[Value, ...]]:
    """Yield a row of sums for each partition, in the order of its first part."""
    sums: dict[tuple[str, str | None, str], list[int]] = {}
    for part in parts:
        of_this = sums.setdefault((part.table, part.partition_id, part.file.partition), [0, 0, 0])
        for at, value in enumerate((1, part.file.rows, part.file.bytes)):
            of_this[at] += value
    return ((*partition, *of_this) for partition, of_this in sums.items())


PARTITIONS: Final = SystemTable(
    name="partitions",
    description="The partitions of the lake tables that exports go to, in main.",
    columns=(
        Column("table", "STRING", "the lake table"),
        Column("partition_id", "STRING", "the ClickHouse partition's id; NULL if it is unknown"),
        Column("partition", "STRING", "the lake's partition: ts_month=2024-01"),
        Column("parts", "BIGINT", "data files"),
        Column("rows", "BIGINT", "rows of the files, including rows that were deleted later"),
        Column("bytes", "BIGINT", "bytes of the files"),
    ),
    run=_partition_rows,
)
