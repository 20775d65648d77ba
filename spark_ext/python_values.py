"""The values that the functions of `spark_ext.python_actions` return.

Each has the columns of a procedure's result, except `CheckedTable`, `LoggedOutcome` and
`ShownExport`, which no procedure returns. The page for users is docs/reference/python-api.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from spark_ext.actions.check import CheckedColumn, Space
from tableformat.mergetree.table import PartitionSummary

__all__ = [
    "ArchivedPartition",
    "CancelledExport",
    "CheckedTable",
    "CreatedTable",
    "ExportRecord",
    "ForgottenExport",
    "Leftover",
    "ListedPart",
    "ListedPartition",
    "LoggedOutcome",
    "ShownExport",
    "SourcePart",
    "VerifiedPartition",
]


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """The result of archiving one partition.

    `status` is `detached` or `dropped`. With `dry_run`, it is `detach`, `drop` or `keep`, and
    `export_status` is the action that the export would take.
    """

    partition_id: str
    status: str
    export_status: str
    rows: int
    data_files: int | None
    snapshot_id: int | None
    message: str | None
    shard: int | None


@dataclass(frozen=True, slots=True)
class VerifiedPartition:
    """A partition that was compared with its source.

    `status` is `equal`, or with `all_partitions` also `not_exported`.
    """

    partition_id: str
    status: str
    compared_with: str | None
    rows: int
    columns: int
    data_files: int
    rows_per_second: int
    message: str | None
    shard: int | None


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """The last export of a partition into a lake table, from the ledger."""

    source_table: str
    destination_table: str
    partition_id: str
    status: str
    rows: int
    data_files: int
    bytes: int
    snapshot_id: int | None
    transaction_id: str
    create_time: datetime
    update_time: datetime
    last_error: str | None
    changed_by: str | None


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A source part of an export, with the data files that have its rows."""

    name: str
    rows: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownExport:
    """An export with its source parts.

    The `files` of a part are empty until all of its files are finished. `rows_in_main` is None if
    the ledger does not know it.
    """

    export: ExportRecord
    parts: tuple[SourcePart, ...]
    rows_in_main: int | None
    statement: str


@dataclass(frozen=True, slots=True)
class CancelledExport:
    """An export that was cancelled."""

    partition_id: str
    destination_table: str
    status: str
    removed_files: int
    removed_bytes: int
    transaction_id: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """Garbage of an abandoned export; `action` is `removed`, `keep`, or `remove` in a dry run."""

    action: str
    kind: str
    partition_id: str | None
    bytes: int
    location: str
    why: str


@dataclass(frozen=True, slots=True)
class LoggedOutcome:
    """The outcome of the export of a partition, or of one of its source parts (`part_name`)."""

    event_time: datetime
    event_type: str
    table: str
    destination_table: str
    partition: str
    part_name: str
    status: str
    rows: int
    bytes_read: int
    bytes_written: int
    duration_ms: int
    transaction_id: str
    error: str


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """The check of a table, which can be exported if there are no `reasons`.

    `columns` has the Iceberg type of each column. `grants` are the GRANT statements for privileges
    that the user of a server lacks.
    """

    table: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    columns: tuple[CheckedColumn, ...]
    partition_key: str
    partition_spec: str
    sorting_key: str
    sort_order: str
    destination: str
    partitions: tuple[PartitionSummary, ...]
    space: tuple[Space, ...]
    grants: tuple[str, ...]
    versions: Mapping[str, str]
    shard: int | None

    @property
    def works(self) -> bool:
        """Whether the table can be exported, as far as the check can tell."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class ForgottenExport:
    """An export whose manifest TTL was ended, so that the partition can be exported again."""

    partition_id: str
    destination_table: str
    message: str


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition of a ClickHouse table or a lake table; fields of the other kind are None."""

    partition_id: str | None
    partition: str
    parts: int | None
    files: int | None
    rows: int
    bytes: int
    min_time: str | None
    max_time: str | None
    shard: int | None


@dataclass(frozen=True, slots=True)
class ListedPart:
    """An active part of a ClickHouse table."""

    name: str
    partition_id: str
    part_type: str
    rows: int
    bytes_on_disk: int
    disk: str
    hash_of_all_files: str
    shard: int | None


@dataclass(frozen=True, slots=True)
class CreatedTable:
    """A lake table for a ClickHouse table; `status` is `created`, `create` or `exists`."""

    destination_table: str
    status: str
    columns: int
    partition_spec: str
    sort_order: str | None
    message: str | None
