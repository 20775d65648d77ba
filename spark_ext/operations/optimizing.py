"""OPTIMIZE TABLE on a lake table: what ClickHouse is asked about rows, and what writes files."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import takewhile
from typing import Final

from pyspark.sql import SparkSession

from catalog.clickhouse.merged_rows import MergedRows
from catalog.merged_files import MergedFiles, RowOrder
from spark_ext.operations.merging_in_tasks import MergingInTasks
from spark_ext.operations.other_tables import RememberingTable
from spark_ext.sql.statement_text import render_deduplicate
from spark_ext.sql.statements import Deduplicate, Optimize
from tableformat.committer import LakeTableState
from tableformat.errors import RefusedError
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.row_change_limits import refuse_merged_columns
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.sort_order import file_order, same_order, sort_prefix
from tableformat.mergetree.row_merge import RowMerge
from tableformat.mergetree.table import MergeTreeTable
from tableformat.operations.optimize import Optimize as Optimizing
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition
from tableformat.parquet.file_format import FileFormat

__all__ = ["optimizing"]

_TARGET: Final = "write.target-file-size-bytes"
_MERGES_NOTHING: Final = "MergeTree"
_COMPUTED: Final = ("MATERIALIZED", "ALIAS")


def optimizing(
    command: Optimize,
    which: OnePartition | AllPartitions,
    running: Running,
    of: RememberingTable,
    stack: ExitStack,
    spark: SparkSession | None = None,
) -> tuple[Running, Optimizing]:
    """Return OPTIMIZE of a partition, or of all, and what runs it.

    Args:
        command: as it was given.
        which: its partition.
        running: what runs statements on the table.
        of: the table.
        stack: closes what is opened.
        spark: the session whose tasks merge where all rows are left, where there is one.

    Raises:
        RefusedError: the table's target size of files is none, or a partition field is made of what
            the merge computes (code 420).
        UnsupportedError: it needs what is not at hand.
    """
    state, storages, table = of.found.load(), of.found.storages, of.source.table
    text = _text(command, which)
    merges = command.final and table.engine.family != _MERGES_NOTHING
    merge = RowMerge(text, merges, _same_by(command.deduplicate, table))
    lake = table_of(state)
    rows = stack.enter_context(MergedRows(of.source, storages, lake.schema(), merge))
    refuse_merged_columns(merge, rows.computed, of.source, lake)
    size = _target(of, state)
    files = MergedFiles(
        storages, rows, FileFormat(target_file_bytes=size), _order(of.source, state)
    )
    ready = replace(running, ports=replace(running.ports, rewrite=files))
    # Which rows others leave is found out here, so that it need not be found out again.
    if spark is not None and merge.leaves_all:
        what = f"Cannot run {text} on {of.name}"
        files = replace(files, elsewhere=MergingInTasks(spark, what, storages, of.source, merge))
        ready = replace(running, ports=replace(running.ports, rewrite=files, ahead=files.ahead))
    left = None if merge.leaves_all else rows
    return ready, Optimizing(which, text, state.layout.schema_id, size, left)


def _text(command: Optimize, which: OnePartition | AllPartitions) -> str:
    by = command.deduplicate
    words = (
        "OPTIMIZE TABLE",
        str(which) if isinstance(which, OnePartition) else "",
        "FINAL" if command.final else "",
        "" if by is None else render_deduplicate(by),
    )
    return " ".join(word for word in words if word)


def _same_by(by: Deduplicate | None, table: MergeTreeTable) -> tuple[str, ...]:
    """Return the columns by which rows are the same, () without DEDUPLICATE."""
    if by is None:
        return ()
    if by.columns:
        return by.columns
    return tuple(
        c.name
        for c in table.stored_columns
        if not by.star or (c.default_kind not in _COMPUTED and c.name not in by.without)
    )


def _target(of: RememberingTable, state: LakeTableState) -> int:
    """Return the size of files that the table wants, in bytes.

    Raises:
        RefusedError: what it says is no size.
    """
    said = state.properties.get(_TARGET, "")
    if not said:
        return FileFormat().target_file_bytes
    if said.isdecimal() and int(said):
        return int(said)
    message = (
        f"Cannot optimize {of.name}: its property {_TARGET} is {said!r}, and no number of bytes. "
        "Set it to one."
    )
    raise RefusedError(message)


def _order(source: RememberedSource, state: LakeTableState) -> RowOrder:
    """Return what files may be declared to be sorted by, as those of an export are."""
    table, mapped = table_of(state), map_columns(source.table, source.conversions)
    schema, order = table.schema(), table.sort_order()
    there = {field.name for field in schema.fields}
    prefix = tuple(takewhile(lambda f: f.field.column in there, sort_prefix(source.table, mapped)))
    declared = order.order_id if same_order(prefix, order, schema) else None
    return RowOrder(file_order(prefix, schema), declared)
