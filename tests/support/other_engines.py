"""What other engines do to a lake table: files are rewritten, and rows deleted by delete files.

PyIceberg itself reads delete files and writes none, so their manifests are written here.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

from tableformat.committer import LakeTableState
from tableformat.names import LakeName
from tests.places.found import place_at
from tests.support.scenarios import TO

__all__ = [
    "delete_by_equality", "delete_first_row", "merge_files", "origin_of", "rewrite",
    "rewrite_in_two", "upgrade",
]  # fmt: skip

Edit = Callable[[pa.Table], pa.Table]
"""Changes the rows of a file, and not their number."""
_ENTRY = ("content", "file_format", "partition", "record_count", "file_size_in_bytes")
_PATH_ID, _POSITION_ID = 2147483546, 2147483545


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> _DeletesWriter:
        metadata = self._transaction.table_metadata
        return _DeletesWriter(
            spec, metadata.schema(), self.new_manifest_output(), self.snapshot_id, "deflate"
        )


def rewrite(
    directory: Path,
    which: Callable[[str], bool] = lambda _: True,
    *,
    of: LakeName = TO,
    copies: Callable[[int], int] = lambda _: 1,
    edit: Edit | None = None,
    operation: Operation = Operation.OVERWRITE,
) -> None:
    """Rewrite files of main under other names, in one snapshot: all, or those of some paths.

    `copies` says how often the rows of each file are added: 1 for a rewrite that is right. `edit`
    changes the rows of each file.
    """
    table = place_at(directory).lake().catalog.load_table(of.identifier)
    tasks = [task for task in table.scan().plan_files() if which(task.file.file_path)]
    if not tasks:
        return
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        for number, task in enumerate(tasks):
            for _ in range(copies(number)):
                update.append_data_file(_copied(table, task.file, number, edit))
            update.delete_data_file(task.file)
    if operation is not Operation.OVERWRITE:
        _rename_operation(table, operation)


def merge_files(
    directory: Path, name: str, *, of: LakeName = TO, operation: Operation = Operation.OVERWRITE
) -> None:
    """Merge all files of main into one of this name, in one snapshot."""
    table = place_at(directory).lake().catalog.load_table(of.identifier)
    tasks = list(table.scan().plan_files())
    location = f"{table.location()}/data/{name}.parquet"
    files = (task.file.file_path.removeprefix("file://") for task in tasks)
    rows = pa.concat_tables([pq.read_table(path) for path in files])
    pq.write_table(rows, location.removeprefix("file://"))
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        entry = {name: getattr(tasks[0].file, name) for name in _ENTRY}
        entry["record_count"] = rows.num_rows
        entry["file_size_in_bytes"] = Path(location.removeprefix("file://")).stat().st_size
        made = DataFile.from_args(**entry, file_path=location)
        made.spec_id = tasks[0].file.spec_id
        update.append_data_file(made)
        for task in tasks:
            update.delete_data_file(task.file)
    if operation is not Operation.OVERWRITE:
        _rename_operation(table, operation)


def rewrite_in_two(
    directory: Path, which: Callable[[str], bool] = lambda _: True, *, of: LakeName = TO
) -> None:
    """Rewrite files of main in two snapshots, as `Table.overwrite` of PyIceberg does.

    The first only removes files, and the second only adds some.
    """
    table = place_at(directory).lake().catalog.load_table(of.identifier)
    files = [t.file for t in table.scan().plan_files() if which(t.file.file_path)]
    made = [_copied(table, file, number) for number, file in enumerate(files)]
    with table.transaction() as removal, removal.update_snapshot().overwrite() as update:
        for file in files:
            update.delete_data_file(file)
    _rename_operation(table, Operation.DELETE)
    table = table.refresh()
    with table.transaction() as addition, addition.update_snapshot().fast_append() as append:
        for file in made:
            append.append_data_file(file)


def _copied(table: Table, of: DataFile, number: int, edit: Edit | None = None) -> DataFile:
    """Write the rows of a data file to another one, which is in no snapshot yet."""
    origin = origin_of(of.file_path)
    name = f"compacted-{origin}-{uuid.uuid4().hex}-{number}.parquet"
    copy = table.io.new_output(f"{table.location()}/data/{name}")
    with table.io.new_input(of.file_path).open() as old, copy.create() as new:
        if edit is None:
            new.write(old.read())
        else:
            pq.write_table(edit(pq.read_table(old)), new)
    entry = {name: getattr(of, name) for name in _ENTRY}
    entry["file_size_in_bytes"] = len(table.io.new_input(copy.location))
    made = DataFile.from_args(**entry, file_path=copy.location)
    made.spec_id = of.spec_id
    return made


def origin_of(path: str) -> str:
    """Return the key of the export whose rows a file had first, '' if its name does not say so."""
    found = re.search(r"(?<![a-z2-7])[a-z2-7]{26}(?=-)", path.rsplit("/", 1)[-1])
    return found[0] if found is not None else ""


def _rename_operation(table: Table, operation: Operation) -> None:
    """Let the last snapshot have another operation, which PyIceberg does not write for files."""
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    (last,) = [
        one
        for one in metadata["snapshots"]
        if one["snapshot-id"] == metadata["current-snapshot-id"]
    ]
    last["summary"]["operation"] = operation.value
    path.write_text(json.dumps(metadata))


def upgrade(state: LakeTableState) -> None:
    """Let a table have format version 3, to which PyIceberg upgrades none."""
    path = Path(state.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}
    path.write_text(json.dumps(metadata))


def delete_first_row(table: Table, of: DataFile) -> None:
    """Delete the first row of a data file by its position."""
    path = pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": str(_PATH_ID)})
    position = pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": str(_POSITION_ID)})
    rows = pa.table([pa.array([of.file_path]), pa.array([0])], pa.schema([path, position]))
    _add(table, of, rows, DataFileContent.POSITION_DELETES)


def delete_by_equality(table: Table, of: DataFile, field_id: int, value: int) -> None:
    """Delete the rows of a partition that have a value in a column, wherever they are."""
    name = table.schema().find_column_name(field_id)
    column = pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(field_id)})
    rows = pa.table([pa.array([value])], pa.schema([column]))
    _add(table, of, rows, DataFileContent.EQUALITY_DELETES, equality_ids=[field_id])


def _add(
    table: Table,
    of: DataFile,
    rows: pa.Table,
    content: DataFileContent,
    equality_ids: list[int] | None = None,
) -> None:
    location = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    output = table.io.new_output(location)
    with output.create() as sink:
        pq.write_table(rows, sink)
    made = DataFile.from_args(
        content=content,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=of.partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(output.to_input_file()),
        equality_ids=equality_ids,
    )
    made.spec_id = of.spec_id
    with table.transaction() as transaction:
        producer = _AddDeletes(Operation.OVERWRITE, transaction, table.io, branch="main")
        with producer as update:
            update.append_data_file(made)
