"""CLEAR INDEX on a lake table: which bloom filters an index is, and what writes files without."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from catalog.changed_files import ChangedFiles
from catalog.filtered_files import FilteredFiles
from catalog.lake_files import LakeFileIO
from catalog.storages.opening import BY_CATALOG
from spark_ext.operations.other_tables import RememberingTable
from spark_ext.sql.statements import ClearIndex
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import RefusedError
from tableformat.iceberg.bloom_filters import columns_told_apart
from tableformat.iceberg.snapshot import table_of
from tableformat.mergetree.table import SkipIndex
from tableformat.operations.clear_index import ClearIndex as Clearing
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition
from tableformat.parquet.file_format import FileFormat

__all__ = ["clearing_index"]

_OF_COLUMN: Final = re.compile(r"bloom_filter\((.+)\)")


def clearing_index(
    command: ClearIndex,
    which: OnePartition | AllPartitions,
    running: Running,
    of: RememberingTable,
) -> tuple[Running, Clearing]:
    """Return CLEAR INDEX of a partition, or of all, and what runs it.

    Args:
        command: as it was given.
        which: its partition.
        running: what runs statements on the table.
        of: the table.

    Raises:
        RefusedError: there is no such index (code 36).
    """
    state, storages = of.found.load(), of.found.storages
    table = table_of(state)
    names, unmoved = _columns(command, of)
    ids = frozenset(
        field.field_id
        for field in table.schema().fields
        if any(f"{name}.".startswith(f"{field.name}.") for name in names)
    )
    # The files may be in another storage than the metadata.
    filtered = FilteredFiles(LakeFileIO({BY_CATALOG: storages}), ids)
    files = ChangedFiles(storages, filtered, FileFormat(), without=ids)
    place = f" IN {which}" if isinstance(which, OnePartition) else ""
    text = f"CLEAR INDEX {command.index}{place}"
    ready = replace(running, ports=replace(running.ports, rewrite=files))
    return ready, Clearing(which, text, filtered, state.layout.schema_id, unmoved)


def _columns(command: ClearIndex, of: RememberingTable) -> tuple[frozenset[str], str]:
    """Return the columns whose filters are those of an index, or of `bloom_filter(column)`.

    With what is said where files have none of them.

    Raises:
        RefusedError: there is no such index or column (code 36).
    """
    name, table = ".".join(command.index.parts), of.source.table
    if (column := _OF_COLUMN.fullmatch(name)) and any(c.name == column[1] for c in table.columns):
        return frozenset({column[1]}), f"no file of it has a bloom filter of {column[1]}"
    for index in table.indices:
        if index.name == name:
            return _of_index(index, table.indices)
    if command.if_exists:
        return frozenset(), ""
    known = ", ".join(index.name for index in table.indices) or "none"
    message = (
        f"Cannot run CLEAR INDEX {command.index} on {of.name}: it has no such index. Of its "
        f"ClickHouse table it remembers these: {known}. Name one of them, or `bloom_filter(c)` for "
        "the bloom filters of a column c."
    )
    raise RefusedError(message, code=BAD_ARGUMENTS)


def _of_index(index: SkipIndex, indices: tuple[SkipIndex, ...]) -> tuple[frozenset[str], str]:
    """Return the columns whose filters are those of this index and of no other one.

    A filter that another index has, too, stays with that one.
    """
    what = f"index {index.name} is {index.type_text} of {index.expression}"
    told = columns_told_apart(index)
    if not told:
        return told, (
            f"{what}, which data files have no filters of: they hold the bloom filters of columns"
        )
    others = frozenset[str]().union(
        *(columns_told_apart(other) for other in indices if other.name != index.name)
    )
    if not told - others:
        return frozenset(), f"{what}, and its filters are those of another index, too"
    return told - others, f"{what}, and no file of it has a bloom filter of that"
