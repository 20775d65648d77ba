"""Lists exports, source parts and partitions, and opens existing destinations, for all interfaces.

- `list_exports` reports every export in the ledger and its state, `exports_of` some of them.
- `logged_events` reports how exports ended.
- `processed` and `parts_with_files` report which source parts are in finished files, also while
  the export runs and after it failed. The ledger knows this when all files are finished; before
  that, the receipts in the lake do (RQ…PartialProgress, RQ…SystemTables.Exports).
- `partitions_of` and `parts_of` list the partitions and active parts of a source table.
- `NamedTable` is the lake table that has a name now: the uuid identifies it, because the owner may
  rename tables. `named_table` and `named_to_list` find it.
- `KnownDestinations` opens each destination of the ledger's rows once, and only reads it.
  A table that was dropped, or created again by the name, is not found.
- `existing_table` and `open_existing` open a lake table that must exist; they create none.
- `clickhouse_destination` resolves a ClickHouse table as a destination. A table of S3, GCS,
  AzureBlobStorage or HDFS over Hive directories is the tree that it reads, if its structure and
  partition key are those of the source; any other is refused. The messages are those of
  RQ...Restrictions.SameTable and .DestinationSupport, the codes are ClickHouse's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias, TypeVar, overload

from catalog.clickhouse.source import ClickHouseSource
from catalog.clickhouse.table_description import ObjectTable
from catalog.hive import HiveTable, OpenedTree
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_known_ledger
from catalog.network import TimeOuts
from catalog.object_addresses import abfs_location, gs_location, hdfs_location, s3_location
from catalog.processes import may_be_alive
from tableformat.clickhouse_codes import (
    BAD_ARGUMENTS,
    INCOMPATIBLE_COLUMNS,
    NOT_IMPLEMENTED,
    UNKNOWN_TABLE,
)
from tableformat.committer import LakeTableState
from tableformat.errors import (
    DeniedError,
    NotFoundError,
    RefusedError,
    TableFormatError,
    UnsupportedError,
    reason_first,
)
from tableformat.export.give_up import is_resumable, standing
from tableformat.export.outcome import Status
from tableformat.export.slices import receipts_below, stored_receipts, with_files, without_files
from tableformat.history import MOST_EVENTS, Event
from tableformat.ledger import ExportedPart, LastExport, Ledger, Row, Standing, State, last_export
from tableformat.mergetree.expression import ColumnName
from tableformat.mergetree.expression_parser import parse_expression, parse_partition_key
from tableformat.mergetree.table import MergeTreeTable, Part, PartitionSummary
from tableformat.messages import Command, Option
from tableformat.names import HiveName, LakeName, PartitionId, TableName
from tableformat.receipt import Receipt

__all__ = [
    "LOOKING",
    "DestinationsOfRows",
    "KnownDestinations",
    "ListedExport",
    "NamedTable",
    "clickhouse_destination",
    "existing_table",
    "exports_of",
    "failed_parts",
    "in_ledger",
    "list_exports",
    "logged_events",
    "named_table",
    "named_to_list",
    "none_of_name",
    "open_existing",
    "partitions_of",
    "parts_of",
    "parts_with_files",
    "present_names",
    "processed",
    "rows_of_name",
    "unsupported",
]

_SHOWN: Final = 100
"""Characters of an error to show after a statement."""


@dataclass(frozen=True, slots=True)
class ListedExport:
    """The exports of one partition into one table, with the status of the last one.

    `expired` is True if the last export completed and its manifest TTL is over, so that exporting
    the partition again is not refused.
    """

    row: Row
    status: Standing
    expired: bool = False

    @property
    def export(self) -> LastExport:
        """The last export, without changes that statements made to its rows afterwards."""
        return last_export(self.row)

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot of the last completed export; None if none has completed."""
        return self.row.done.landed.snapshot_id if self.row.done else None

    @property
    def statement(self) -> str:
        """The unfinished statement on the lake table that has claimed the rows, '' if none has.

        It includes the last error of an interrupted statement, if there is one.
        """
        claim = self.row.claim
        if self.row.state is not State.RUNNING or not claim.by_statement:
            return ""
        text = claim.gives_way.statement if claim.gives_way is not None else claim.statement
        why = self._last_error.partition("\n")[0][:_SHOWN]
        return f"{text} ({why})" if why else text

    @property
    def rows_in_main(self) -> int | None:
        """The number of the partition's rows in main; None if the ledger does not know it.

        DROP and DETACH take them out, ATTACH brings them back, UPDATE and DELETE change them.
        """
        settled = self.row.settled
        if settled is None:
            return 0
        held = settled.left
        return None if held is None else sum(one.rows for one in held)

    @property
    def changed_by(self) -> str:
        """The last statement on the lake table that changed the rows, '' if none did."""
        changed = self.row.changed
        return f"{changed.statement} (snapshot {changed.snapshot_id})" if changed else ""

    @property
    def last_error(self) -> str:
        """The last error of the export, with the reason first; '' if there is none."""
        return self._last_error if self.export.error else ""

    @property
    def _last_error(self) -> str:
        """The last error of the export or statement that claimed the row."""
        return reason_first(self.row.last_error)

    @property
    def resumable(self) -> bool:
        """Whether the next run can resume with the files that are finished."""
        return is_resumable(self.row, worked_on=self.status is Standing.IN_PROGRESS)

    @property
    def parts(self) -> tuple[ExportedPart, ...]:
        """The source parts of the last export."""
        return self.export.parts


Opener: TypeAlias = Callable[[LakeName], OpenedCatalog | OpenedTree]
"""Opens the catalog of a destination, or its Hive tree."""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """The lake table that has a name now; `uuid` is None if none has it, or nobody can tell."""

    name: LakeName
    uuid: str | None

    def has(self, row: Row) -> bool:
        """Whether a row is of this table; without a uuid, whether it was exported by the name."""
        if self.uuid is not None:
            return row.key.destination == self.uuid
        return LakeName.parse(row.destination_table) == self.name

    def named(self, row: Row) -> Row:
        """Return a row of this table with the name that the table has now."""
        return row if self.uuid is None else replace(row, destination_table=str(self.name))


def named_table(name: LakeName, open_lake: Opener) -> NamedTable:
    """Return the table that has a name now.

    Raises:
        TableFormatError: the catalog or the table cannot be opened or read.
    """
    table = open_lake(name).table(name)
    return NamedTable(name, None if table is None else table.load().layout.table_uuid)


def named_to_list(name: LakeName, open_lake: Opener, note: Callable[[str], None]) -> NamedTable:
    """Return the table that has a name now; to list exports, an unreachable lake is no obstacle."""
    try:
        return named_table(name, open_lake)
    except TableFormatError as error:
        note(f"exports are found by the name that {name} had, not by its present one: {error}")
        return NamedTable(name, None)


def present_names(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows with the latest known name of their lake table: that of its last claim."""
    every = tuple(rows)
    names: dict[str, tuple[int, str]] = {}
    for row in every:
        known = (row.claim.epoch, row.destination_table)
        names[row.key.destination] = max(names.get(row.key.destination, known), known)
    return tuple(replace(row, destination_table=names[row.key.destination][1]) for row in every)


def list_exports(
    ledger: Ledger, *, clock: Callable[[], int] = milliseconds
) -> Iterator[ListedExport]:
    """Yield every export of a ledger, latest first.

    Entries for foreign rows that a statement on a lake table changed are left out: these rows
    came from no ClickHouse table.

    Args:
        ledger: the ledger of the exports.
        clock: returns the time in milliseconds since 1970, to decide whether a TTL is over.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    for row in present_names(ledger.rows()):
        if not row.key.is_of_export:
            continue
        worked_on = row.state is State.RUNNING and _worked_on(row, ledger)
        record = last_export(row).record
        expired = record is not None and not record.refuses(clock())
        yield ListedExport(row, standing(row, worked_on=worked_on), expired)


def exports_of(
    ledger: Ledger, partition_id: str, table: str | None, to: NamedTable | None, what: str
) -> tuple[ListedExport, ...]:
    """Return the exports of a partition, latest first.

    Args:
        ledger: the ledger of the exports.
        partition_id: the partition's id in the source.
        table: the source table in the ledger's notation; None for all.
        to: the destination; None for all.
        what: the action, for the error message, e.g. "show the export of partition 1".

    Raises:
        NotFoundError: the ledger has no such export.
        LedgerError: the ledger cannot be read.
    """
    found = tuple(
        one if to is None else replace(one, row=to.named(one.row))
        for one in list_exports(ledger)
        if one.row.key.partition_id == partition_id
        and table in (None, one.row.source_table)
        and (to is None or to.has(one.row))
    )
    if not found:
        message = (
            f"Cannot {what}: the ledger {ledger.uri} has none. List what it has with "
            f"{Command.EXPORTS}."
        )
        raise NotFoundError(message)
    return found


_NOT_WELL: Final = frozenset(
    one.value for one in Status if one.exit_code and one is not Status.IN_PROGRESS
)


def logged_events(
    ledger: Ledger, table: str | None, since: int | None, *, failed: bool
) -> tuple[Event, ...]:
    """Return the events of the ledger's log, latest first; the ledger keeps the latest 10,000.

    Args:
        ledger: the ledger of the exports.
        table: the source table in the ledger's notation; None for all.
        since: milliseconds since 1970; older events are left out. None for no limit.
        failed: whether to return only exports that did not succeed.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return tuple(
        event
        for event in ledger.events(since, MOST_EVENTS)
        if table in (None, event.table) and (not failed or event.status in _NOT_WELL)
    )


def rows_of_name(
    ledger: Ledger, partition_id: str, table: TableName, to: NamedTable | None
) -> tuple[Row, ...]:
    """Return the ledger rows of a partition, with the latest known name of their lake table.

    There are several when a table was dropped and created again.

    Args:
        ledger: the ledger of the exports.
        partition_id: the partition's id in the source.
        table: the source table.
        to: the destination; None for all.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return tuple(
        row if to is None else to.named(row)
        for row in present_names(ledger.rows())
        if (row.key.partition_id, row.source_table) == (partition_id, str(table))
        and (to is None or to.has(row))
    )


def none_of_name(ledger: Ledger, partition_id: str, table: TableName, to: NamedTable | None) -> str:
    """Return why the ledger has no export of a partition, and where to look."""
    look = f"List what it has with {Command.EXPORTS}."
    by_name = None if to is None else NamedTable(to.name, None)
    if not rows_of_name(ledger, partition_id, table, by_name):
        return f"the ledger {ledger.uri} has none. {look}"
    return (
        f"the ledger {ledger.uri} has none. What was exported to this name is in another table, "
        f"which was renamed or dropped. Name it by its present name. {look}"
    )


def _worked_on(row: Row, ledger: Ledger) -> bool:
    """Whether a process that may be alive holds the lease; a lease can outlive its owner."""
    held = ledger.holder(row.key.hash)
    return held is not None and may_be_alive(held.owner)


_FAILED = (Standing.FAILED, Standing.KILLED)


class DestinationsOfRows(Protocol):
    """Loads the current state of the tables that exports write to."""

    def destination(self, row: Row) -> LakeTableState | None:
        """Return the destination table of a row's export; None if it does not exist any more."""
        ...

    def receipts(self, row: Row, below: str) -> tuple[Receipt, ...]:
        """Return the receipts below a location in the destination table of a row's export."""
        ...


def in_ledger(one: ListedExport) -> frozenset[str]:
    """Return the names of the parts that the ledger records as processed.

    The ledger records them when all files of the export are finished, not one by one.
    """
    match one.export.state:
        case State.COMPLETED:
            return frozenset(part.name for part in one.parts)
        case State.RUNNING:
            return frozenset(part.name for part in one.parts if part.remote_paths)
        case _:
            return frozenset()


def processed(one: ListedExport, lake: DestinationsOfRows) -> frozenset[str]:
    """Return the names of the parts whose rows are all in finished files.

    Raises:
        TableFormatError: the destination table or its receipts cannot be read.
    """
    parts = parts_with_files(one, lake)
    if one.export.state is State.COMPLETED:
        return in_ledger(one)
    return frozenset(part.name for part in parts if part.remote_paths)


def parts_with_files(one: ListedExport, lake: DestinationsOfRows) -> tuple[ExportedPart, ...]:
    """Return the parts of the last export; a part has its files once all of them are finished.

    Raises:
        TableFormatError: the destination table or its receipts cannot be read.
    """
    of = one.export
    if of.state is not State.RUNNING or all(part.remote_paths for part in of.parts):
        return of.parts if of.state in (State.COMPLETED, State.RUNNING) else without_files(of.parts)
    state = lake.destination(one.row)
    if state is None:
        return of.parts
    receipts = lake.receipts(one.row, receipts_below(state.location, one.row))
    return with_files(of.parts, receipts, one.row)


def failed_parts(one: ListedExport, processed_number: int) -> int:
    """Return the number of unprocessed parts of a failed or killed export, else 0."""
    return len(one.parts) - processed_number if one.status in _FAILED else 0


def partitions_of(source: ClickHouseSource, table: TableName) -> tuple[PartitionSummary, ...]:
    """Return the partitions of a table with active parts, with their times.

    Raises:
        NotFoundError: there is no such table.
        SourceError: the source cannot be read.
    """
    return source.with_times(source.describe(table), source.partitions(table))


def parts_of(
    source: ClickHouseSource, table: TableName, partition_id: PartitionId | None
) -> tuple[Part, ...]:
    """Return the active parts of a table.

    Args:
        source: the source that has the table.
        table: the source table.
        partition_id: the partition; None for all.

    Raises:
        NotFoundError: there is no such table.
        SourceError: the source cannot be read.
    """
    source.describe(table)
    there = (p.partition_id for p in source.partitions(table))
    wanted = there if partition_id is None else (partition_id,)
    return tuple(part for one in wanted for part in source.parts(table, one))


T = TypeVar("T")

LOOKING: Final = TimeOuts(connect=5.0, read=10.0, retry_for=0.0)
"""Time limits for listing exports: the list must not wait for an unreachable lake. The progress of
running exports is then unknown."""


class KnownDestinations:
    """Opens each destination once, and caches its state, its receipts and its last error."""

    def __init__(self, open_lake: Callable[[LakeName], OpenedCatalog | OpenedTree]) -> None:
        """Keep `open_lake`, which opens the catalog of a destination, or its Hive tree."""
        self._open_lake = open_lake
        self._opened: dict[str | LakeName, OpenedCatalog | OpenedTree] = {}
        self._states: dict[LakeName, LakeTableState | None] = {}
        self._failures: dict[LakeName, TableFormatError] = {}
        self._receipts: dict[str, Receipt] = {}

    def look_again(self) -> None:
        """Forget the cached errors, so that the next call tries these destinations again."""
        for name in self._failures:
            # The cached state has vended credentials, which may have expired.
            self._states.pop(name, None)
        self._failures.clear()

    def destination(self, row: Row) -> LakeTableState | None:
        """Return the destination table of a row's export; None if it does not exist any more.

        Raises:
            NotFoundError: the catalog is not configured here.
            DestinationError: the catalog did not respond.
            TableFormatError: the catalog or the table cannot be opened.
        """
        name = LakeName.parse(row.destination_table)
        if name not in self._states:
            self._states[name] = self._cached(name, lambda: self._loaded(name))
        state = self._states[name]
        if state is None or state.layout.table_uuid != row.key.destination:
            return None
        return state

    def receipts(self, row: Row, below: str) -> tuple[Receipt, ...]:
        """Return the receipts below a location in the destination table of a row's export.

        If the storage allows no list, none is found.

        Raises:
            TableFormatError: as for `destination`, or the storage cannot be reached.
        """
        name = LakeName.parse(row.destination_table)

        def read() -> tuple[Receipt, ...]:
            storage = self._lake(name).storages(below)
            try:
                return stored_receipts(storage, below, self._receipts)
            except DeniedError:
                return ()

        return self._cached(name, read)

    def _cached(self, name: LakeName, read: Callable[[], T]) -> T:
        """Read from a destination; raise the cached error if an earlier read failed."""
        if name in self._failures:
            raise self._failures[name]
        try:
            return read()
        except TableFormatError as error:
            self._failures[name] = error
            raise

    def _loaded(self, name: LakeName) -> LakeTableState | None:
        table = self._lake(name).table(name)
        return None if table is None else table.load()

    def _lake(self, name: LakeName) -> OpenedCatalog | OpenedTree:
        place = name if isinstance(name, HiveName) else name.catalog
        if place not in self._opened:
            self._opened[place] = self._open_lake(name)
        return self._opened[place]


@overload
def existing_table(catalog: OpenedCatalog, name: LakeName, what: str) -> IcebergTable: ...


@overload
def existing_table(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, what: str
) -> IcebergTable | HiveTable: ...


def existing_table(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, what: str
) -> IcebergTable | HiveTable:
    """Return a lake table that must exist.

    Args:
        catalog: the catalog of the table, or the Hive tree.
        name: the table.
        what: the action, for the error message, e.g. "clean up lake.n.t".

    Raises:
        NotFoundError: the table does not exist (code 60).
        TableFormatError: the catalog cannot be opened or read.
    """
    table = catalog.table(name)
    if table is None:
        message = (
            f"Cannot {what}: there is no such lake table. Check its name, and where its catalog "
            f"is ({Option.WAREHOUSE})."
        )
        raise NotFoundError(message, code=UNKNOWN_TABLE)
    return table


@overload
def open_existing(
    catalog: OpenedCatalog, name: LakeName, what: str, *, ledger: str | None
) -> tuple[IcebergTable, Ledger]: ...


@overload
def open_existing(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, what: str, *, ledger: str | None
) -> tuple[IcebergTable | HiveTable, Ledger]: ...


def open_existing(
    catalog: OpenedCatalog | OpenedTree, name: LakeName, what: str, *, ledger: str | None
) -> tuple[IcebergTable | HiveTable, Ledger]:
    """Open a lake table and the ledger of its exports; the caller closes the ledger.

    Args:
        catalog: the catalog of the table, or the Hive tree.
        name: the table.
        what: the action, for the error message, e.g. "clean up lake.n.t".
        ledger: the ledger's address; None for the default.

    Raises:
        NotFoundError: the table (code 60) or the ledger does not exist.
        TableFormatError: the catalog or the ledger cannot be opened.
    """
    table = existing_table(catalog, name, what)
    return table, open_known_ledger(ledger, what, local_warehouse=catalog.ledger_directory)


_REACHED: Final[Mapping[str, str]] = {
    "S3": "its address is not in the S3 that is reached from here (AWS_ENDPOINT_URL)",
    "GCS": (
        "its address is not in the Google Cloud Storage that is reached from here "
        "(STORAGE_EMULATOR_HOST)"
    ),
    "AzureBlobStorage": (
        "its account is not the one that is reached from here (AZURE_STORAGE_CONNECTION_STRING)"
    ),
}
_OTHERS: Final = (
    "only trees of the engines S3, GCS, AzureBlobStorage and HDFS are found by their table"
)
_PARQUET: Final = "Parquet"
_TREE: Final = "Name the tree itself by its location: hive.`uri` in SQL, hive:URI elsewhere."


def clickhouse_destination(
    source: ClickHouseSource,
    named: TableName,
    exported: Callable[[], MergeTreeTable],
    directories: Mapping[str, str],
    what: str,
    where: str,
) -> HiveName | None:
    """Return the Hive tree that a ClickHouse table reads; None if the table does not exist.

    Args:
        source: the ClickHouse that would have the table.
        named: the name of the table.
        exported: describes the source table of the export.
        directories: the directory columns, as in `ExportRequest`.
        what: the beginning of error messages, "Cannot export ... to ...".
        where: a sentence that names another destination to use.

    Raises:
        UnsupportedError: the table reads no Hive tree, or one that cannot be reached from here
            (code 48).
        TableFormatError: the environment lacks the endpoint or the credentials of the store.
        RefusedError: the table has other columns (code 122) or another partition key (code 36).
        UsageError: an expression of `directories` cannot be read.
        SourceError: the source cannot be read.
    """
    engine = source.engine_of(named)
    if not engine:
        return None
    found = source.object_table(named)
    if found is None or not found.is_hive:
        raise unsupported(what, "MergeTree" if engine.endswith("MergeTree") else engine, where)
    if found.format != _PARQUET:
        raise unsupported(what, f"{engine} of the format {found.format or 'of its own'}", where)
    location = _location(found)
    if location is None:
        why = _REACHED.get(found.engine, _OTHERS)
        raise unsupported(what, f"{found.engine} with Hive directories ({why})", _TREE)
    _check_fits(found, exported(), directories, what)
    return HiveName.at(location)


def unsupported(what: str, storage: str, where: str) -> UnsupportedError:
    """Return the error for a ClickHouse engine or format that cannot be a destination."""
    message = (
        f"{what}: Destination storage {storage} does not support MergeTree parts or uses "
        f"unsupported partitioning. {where}"
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)


def _location(found: ObjectTable) -> str | None:
    """Return the location of the directories; None if they cannot be reached from here.

    Raises:
        TableFormatError: the environment lacks the credentials.
    """
    match found.engine:
        case "S3" | "GCS":
            # If the environment configures it, GCS is reached through its S3 API.
            in_s3 = s3_location(found.address, os.environ)
            return in_s3 or gs_location(found.address, os.environ)
        case "AzureBlobStorage":
            return abfs_location(found.address, found.container, found.path, os.environ)
        case "HDFS":
            return hdfs_location(found.address)
        case _:
            return None


def _check_fits(
    found: ObjectTable, table: MergeTreeTable, directories: Mapping[str, str], what: str
) -> None:
    """Check that a table over directories has the columns and the partition key of the source.

    Raises:
        RefusedError: the columns or the partition key differ.
    """
    stored = [c.name for c in table.stored_columns]
    wanted = {*stored, *directories}
    lacks = [name for name in (*stored, *directories) if name not in found.columns]
    more = [name for name in found.columns if name not in wanted]
    if lacks or more:
        different = "; ".join(
            f"{says} {', '.join(names)}"
            for says, names in (("the destination lacks", lacks), ("the source lacks", more))
            if names
        )
        message = (
            f"{what}: Tables have different structure: {different}. Create the destination with "
            "the columns of the source, and one for each directory that is named."
        )
        raise RefusedError(message, code=INCOMPATIBLE_COLUMNS)
    called = {parse_expression(text): ColumnName(name) for name, text in directories.items()}
    key = parse_partition_key(table.engine.partition_by)
    if tuple(called.get(m, m) for m in key) != parse_partition_key(found.partition_by):
        message = (
            f"{what}: Tables have different partition key: PARTITION BY "
            f"{table.engine.partition_by or 'tuple()'} in the source, PARTITION BY "
            f"{found.partition_by or 'tuple()'} in the destination. A member that is an expression "
            f"is a column of the destination by its name: {Option.HIVE_COLUMN} NAME=EXPRESSION."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
