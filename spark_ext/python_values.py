"""The values that the functions of `spark_ext.python_actions` return.

Each has the columns of a procedure's answer, but for `CheckedTable`, `LoggedOutcome` and
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
    """What became of one partition of an archive.

    `status` is `detached` or `dropped`; with `dry_run` it is `detach`, `drop` or `keep`, and
    `export_status` what would become of its export.
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

    `status` is `equal`, or `not_exported` where all partitions were compared.
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
    """The last export of a partition into a lake table, as the ledger has it."""

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
    """A source part of an export, and the data files that hold rows of it."""

    name: str
    rows: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownExport:
    """An export with its source parts.

    `files` of a part are empty until all of its files are there; `rows_in_main` is None where the
    ledger does not know.
    """

    export: ExportRecord
    parts: tuple[SourcePart, ...]
    rows_in_main: int | None
    statement: str


@dataclass(frozen=True, slots=True)
class CancelledExport:
    """An export that was given up."""

    partition_id: str
    destination_table: str
    status: str
    removed_files: int
    removed_bytes: int
    transaction_id: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a dead export left: `action` is `remove` (it would be), `removed` or `keep`."""

    action: str
    kind: str
    partition_id: str | None
    bytes: int
    location: str
    why: str


@dataclass(frozen=True, slots=True)
class LoggedOutcome:
    """How the export of a partition ended, or that of one source part of it (`part_name`)."""

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
    """Whether a table can be exported: it can where there are no `reasons`.

    `columns` say what each column becomes, `grants` are the statements that give the user of a
    server what it lacks.
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
        """Whether it can be exported, as far as is known."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class ForgottenExport:
    """An export that a new one of its partition is not refused for any more."""

    partition_id: str
    destination_table: str
    message: str


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition of a ClickHouse table, or of a lake table; what the other side has is None."""

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
    """A lake table for a ClickHouse table: `status` is `created`, `create` or `exists`."""

    destination_table: str
    status: str
    columns: int
    partition_spec: str
    sort_order: str | None
    message: str | None
