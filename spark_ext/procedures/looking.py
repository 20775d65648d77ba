"""Procedures that only look: at the partitions and parts of a table."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from typing import Final

from catalog.shards import LocalTable
from catalog.sources import open_source
from spark_ext.procedures.declared import Call, Column, Parameter, Procedure, Rows, Value
from spark_ext.procedures.naming import CallNames
from spark_ext.procedures.parameters import CLUSTER, SHARD
from spark_ext.sharding import each_table
from spark_ext.source_parts import partitions_of, parts_of
from tableformat.iceberg.live_files import LiveFile, live_files
from tableformat.names import LakeName, PartitionId

__all__ = ["PARTITIONS", "PARTS"]

_LOGGER: Final = logging.getLogger("mergeberg")


def _partitions(call: Call) -> Rows:
    names = CallNames.of(call)
    named = names.table("table")
    if isinstance(named, LakeName):
        return _in_lake(names, named)
    found: list[tuple[Value, ...]] = []

    def list_one(one: LocalTable) -> int:
        with contextlib.closing(open_source(one.place)) as source:
            found.extend(
                (
                    p.partition_id.value, p.partition, p.parts, None, p.rows, p.bytes_on_disk,
                    p.min_time or None, p.max_time or None, one.shard,
                )
                for p in partitions_of(source, one.table)
            )  # fmt: skip
        return 0

    each_table(named.tables(cluster=call.text_or_none("cluster")), list_one, _LOGGER.info)
    return tuple(found)


def _in_lake(names: CallNames, name: LakeName) -> Rows:
    table = names.existing("table", name, f"list the partitions of {name}")
    held: defaultdict[str, list[LiveFile]] = defaultdict(list)
    for file in live_files(table.loaded):
        held[file.partition].append(file)
    return tuple(
        (
            None, partition, None, len(files), sum(f.rows for f in files),
            sum(f.bytes for f in files), None, None, None,
        )
        for partition, files in sorted(held.items())
    )  # fmt: skip


def _parts(call: Call) -> Rows:
    named = CallNames.of(call).source("table")
    text = call.text_or_none("partition_id")
    partition_id = PartitionId(text) if text is not None else None
    found: list[tuple[Value, ...]] = []

    def list_one(one: LocalTable) -> int:
        with contextlib.closing(open_source(one.place)) as source:
            found.extend(
                (
                    p.name, p.partition_id.value, p.part_type, p.rows, p.bytes_on_disk, p.disk,
                    p.hash_of_all_files, one.shard,
                )
                for p in parts_of(source, one.table, partition_id)
            )  # fmt: skip
        return 0

    each_table(named.tables(cluster=call.text_or_none("cluster")), list_one, _LOGGER.info)
    return tuple(found)


PARTITIONS: Final = Procedure(
    name="partitions",
    description="Lists the partitions of a ClickHouse table that an export can name, or those that "
    "a lake table has in main.",
    parameters=(
        Parameter("table", "STRING", "source.database.table, or [catalog.]namespace.table"),
        CLUSTER,
    ),
    columns=(
        Column("partition_id", "STRING", "ClickHouse: the id, as in system.parts"),
        Column("partition", "STRING", "ClickHouse: the value of the key; lake: month=2024-01"),
        Column("parts", "BIGINT", "ClickHouse: active parts"),
        Column("files", "BIGINT", "lake: data files"),
        Column("rows", "BIGINT", "rows of parts or data files, those deleted lightly included"),
        Column("bytes", "BIGINT", "compressed bytes of parts or data files"),
        Column("min_time", "STRING", "ClickHouse: the least time in it, if the key tells"),
        Column("max_time", "STRING", "ClickHouse: the greatest time in it, if the key tells"),
        SHARD,
    ),
    run=_partitions,
)
PARTS: Final = Procedure(
    name="parts",
    description="Lists the active parts of a ClickHouse table.",
    parameters=(
        Parameter("table", "STRING", "the ClickHouse table: source.database.table"),
        Parameter("partition_id", "STRING", "only of this partition; NULL for all", "NULL"),
        CLUSTER,
    ),
    columns=(
        Column("name", "STRING", "the part"),
        Column("partition_id", "STRING", "its partition"),
        Column("part_type", "STRING", "Wide or Compact"),
        Column("rows", "BIGINT", "its rows, those deleted lightly included"),
        Column("bytes_on_disk", "BIGINT", "its compressed bytes"),
        Column("disk", "STRING", "the disk that it is on"),
        Column("hash_of_all_files", "STRING", "what it holds"),
        SHARD,
    ),
    run=_parts,
)
