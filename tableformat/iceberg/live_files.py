"""The data files of a branch as a list of parts: where each lies, what it holds, its name.

A lake part is a data file. Its name `<partition id>_<n>_<n>_0` has the form of a ClickHouse part's,
and stays the same for as long as the file lives (coverage.md reading 35): `n` is made of the file's
path and of nothing else, so that no commit, detach or attach of another file gives it to a
neighbour.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from tableformat.branches import MAIN_BRANCH
from tableformat.errors import DestinationError
from tableformat.file_names import key_in
from tableformat.hive_names import partition_directory
from tableformat.iceberg.tags import branch_head
from tableformat.names import PartitionId, PartName

__all__ = ["LiveFile", "lake_part_name", "live_files"]

_BITS: Final = 48


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a branch. `key` is the hash of the export that wrote it, '' for others'.

    `partition` is that of the spec it was written with, as people read it: `ts_month=2024-01`, ''
    without partition fields. `rows` are those in the file, rows that deletes take away included.
    """

    path: str
    key: str
    spec_id: int
    partition: str
    rows: int
    bytes: int
    snapshot_id: int


def lake_part_name(partition_id: PartitionId, path: str) -> PartName:
    """Return the name of the part that a data file is.

    Args:
        partition_id: of its rows.
        path: of the file, as the table's metadata has it.
    """
    digest = hashlib.sha256(path.encode()).digest()
    number = int.from_bytes(digest, "big") >> (len(digest) * 8 - _BITS)
    return PartName(partition_id, number, number, 0)


def live_files(table: Table, branch: str = MAIN_BRANCH) -> tuple[LiveFile, ...]:
    """Return the data files of a branch, in the order of their paths; none without the branch.

    Args:
        table: as it was loaded; nothing is changed.
        branch: its name.

    Raises:
        DestinationError: a manifest cannot be read.
    """
    try:
        return tuple(sorted(_files_of(table, branch), key=lambda file: file.path))
    except OSError as error:
        message = (
            f"Cannot list the files of {'.'.join(table.name())}: a manifest cannot be read: "
            f"{error}. Check the storage of the catalog."
        )
        raise DestinationError(message) from error


def _files_of(table: Table, branch: str) -> Iterator[LiveFile]:
    snapshot = branch_head(table, branch)
    specs, schema = table.specs(), table.schema()
    return (
        LiveFile(
            path=entry.data_file.file_path,
            key=key_in(entry.data_file.file_path),
            spec_id=manifest.partition_spec_id,
            partition=_shown(entry.data_file, specs[manifest.partition_spec_id], schema),
            rows=entry.data_file.record_count,
            bytes=entry.data_file.file_size_in_bytes,
            snapshot_id=entry.snapshot_id or manifest.added_snapshot_id or 0,
        )
        for manifest in (snapshot.manifests(table.io) if snapshot else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )


def _shown(file: DataFile, spec: PartitionSpec, schema: Schema) -> str:
    names = [field.name for field in spec.fields]
    return partition_directory(names, [_value(file, spec, schema, i) for i in range(len(names))])


def _value(file: DataFile, spec: PartitionSpec, schema: Schema, at: int) -> str | None:
    value, field = file.partition[at], spec.fields[at]
    if value is None:
        return None
    # A column may be dropped when only specs of the past divide by it.
    if schema.find_column_name(field.source_id) is None:
        return str(value)
    return field.transform.to_human_string(schema.find_type(field.source_id), value)
