"""The commands `mergeberg partitions`, `mergeberg parts` and `mergeberg read`, which only read.

`partitions` lists the partitions of a source table. `parts` lists its active parts.
`read` lists or reads the rows exported into a tree of Hive directories, by its commit files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.clickhouse.source import ClickHouseSource
from catalog.hive import OpenedTree, open_tree, tree_name
from catalog.network import TimeOuts
from catalog.shards import LocalTable, local_tables
from catalog.sources import SourcePlace, open_source
from spark_ext.actions.export import each_table
from spark_ext.actions.exports import partitions_of, parts_of
from spark_ext.cli.option_values import pairs
from spark_ext.cli.output import Output, error_printer, output_for
from tableformat.clickhouse_codes import UNKNOWN_TABLE
from tableformat.errors import NotFoundError, UsageError
from tableformat.hive.documents import CommitFile, TreeIdentity
from tableformat.names import HiveName, LakeName, PartitionId, TableName

__all__ = ["partitions", "parts", "read"]

_COLUMNS: Final = (
    "partition_id", "partition", "parts", "rows", "bytes_on_disk", "min_time", "max_time",
)  # fmt: skip
_PART_COLUMNS: Final = (
    "name", "partition_id", "part_type", "rows", "bytes_on_disk", "disk", "hash_of_all_files",
)  # fmt: skip


def partitions(
    table: str, source: SourcePlace, cluster: str | None, cluster_host: tuple[str, ...],
    *, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg partitions`; return the exit code."""
    hosts = pairs("--cluster-host", cluster_host)
    tables = local_tables(source, TableName.parse(table), cluster=cluster, cluster_hosts=hosts)
    return _list_each(tables, partitions_of, _COLUMNS, output_for(as_json=as_json))


def parts(
    table: str, partition_id: str | None, source: SourcePlace,
    cluster: str | None, cluster_host: tuple[str, ...], *, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg parts`; return the exit code."""
    hosts = pairs("--cluster-host", cluster_host)
    tables = local_tables(source, TableName.parse(table), cluster=cluster, cluster_hosts=hosts)
    wanted = PartitionId(partition_id) if partition_id else None
    listed = partial(parts_of, partition_id=wanted)
    return _list_each(tables, listed, _PART_COLUMNS, output_for(as_json=as_json))


def _list_each(
    tables: tuple[LocalTable, ...],
    listed: Callable[[ClickHouseSource, TableName], Iterable[object]],
    columns: tuple[str, ...],
    output: Output,
) -> int:
    """Print what is listed of each table, one or those of the shards; return the exit code."""

    def list_one(one: LocalTable) -> int:
        with open_source(one.place) as opened:
            found = listed(opened, one.table)
        records = [{column: getattr(each, column) for column in columns} for each in found]
        output.table(
            (*one.columns, *columns),
            [{**one.fields, **r, "partition_id": r["partition_id"].value} for r in records],
        )
        return 0

    return each_table(tables, list_one, output.note, error_printer(output))


_ROW_COLUMNS: Final = ("partition_id", "transaction_id", "rows", "bytes", "path")


def read(
    tree: str, partition_id: str | None, time_outs: TimeOuts,
    *, with_rows: bool, check: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg read`; return the exit code."""
    name = LakeName.parse(tree)
    if not isinstance(name, HiveName):
        message = (
            f"Cannot read {tree}: it is no tree of Hive directories. Write hive:URI; an Iceberg "
            "table is read by any Iceberg reader."
        )
        raise UsageError(message)
    opened = open_tree(tree_name(name), time_outs=time_outs, completes=False)
    identity = opened.identity()
    if identity is None:
        message = f"Cannot read {opened.name}: there is no such tree. Check the directory's name."
        raise NotFoundError(message, code=UNKNOWN_TABLE)
    wanted = PartitionId(partition_id).value if partition_id is not None else None
    commits = [c for c in opened.commit_files() if wanted in (None, c.partition_id)]
    output = output_for(as_json=as_json or with_rows)
    if with_rows:
        _print_rows(output, opened, identity, commits)
    else:
        _print_files(output, opened, commits, check=check)
    return 0


def _print_files(
    output: Output, opened: OpenedTree, commits: list[CommitFile], *, check: bool
) -> None:
    records = []
    for commit in commits:
        for file in commit.files:
            opened.files.check(commit, file, content=check)
            records.append(
                {
                    "partition_id": commit.partition_id,
                    "transaction_id": commit.transaction_id,
                    "rows": file.rows,
                    "bytes": file.bytes,
                    "path": opened.paths.absolute(file.path),
                }
            )
    output.table(_ROW_COLUMNS, records)


def _print_rows(
    output: Output, opened: OpenedTree, identity: TreeIdentity, commits: list[CommitFile]
) -> None:
    for commit in commits:
        for file in commit.files:
            of_directories = identity.values_of(file.path)
            for row in _rows(opened.files.content(commit, file)):
                output.record({**row, **of_directories})


def _rows(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file; values of types that JSON lacks become text."""
    for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches():
        kinds = {field.name: field.type for field in batch.schema}
        for row in batch.to_pylist():
            yield {name: _plain(value, kinds[name]) for name, value in row.items()}


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value for JSON; all values of a type have the same JSON type."""
    match value:
        case int() if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
            # Many JSON readers keep integers exact only up to 2^53.
            return str(value)
        case float() if not math.isfinite(value):
            # JSON has no number for it.
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case dict():
            return {str(k): _plain(v, kind.field(k).type) for k, v in value.items()}
        case list() if pa.types.is_map(kind):
            return [[_plain(k, kind.key_type), _plain(v, kind.item_type)] for k, v in value]
        case list():
            return [_plain(v, kind.value_type) for v in value]
        case _:
            return str(value)
