"""The parameters that several procedures have, and a column that their answers have: said alike."""

from __future__ import annotations

from typing import Final

from spark_ext.procedures.declared import Column, Parameter

__all__ = [
    "CLUSTER",
    "CONVERT",
    "DESTINATION",
    "HIVE_COLUMNS",
    "LAKE_TABLE",
    "PARTITION_ID",
    "PARTITION_SPEC",
    "SHARD",
    "SOURCE",
]

LAKE_TABLE: Final = Parameter("table", "STRING", "the lake table: [catalog.]namespace.table")
DESTINATION: Final = Parameter(
    "table", "STRING", "the lake table: [catalog.]namespace.table, or hive.`uri` for a tree"
)
SOURCE: Final = Parameter("source", "STRING", "the ClickHouse table: source.database.table")
PARTITION_ID: Final = Parameter("partition_id", "STRING", "the partition's id, as in system.parts")
CONVERT: Final = Parameter("convert", "MAP<STRING, STRING>", "column to conversion", "map()")
PARTITION_SPEC: Final = Parameter(
    "partition_spec", "STRING", "of a table that is made; NULL to derive it", "NULL"
)
HIVE_COLUMNS: Final = Parameter(
    "hive_columns", "MAP<STRING, STRING>",
    "of hive.`uri`: directory to the member of the partition key that it is of", "map()",
)  # fmt: skip
CLUSTER: Final = Parameter(
    "cluster", "STRING", "the source is a table of every shard of this cluster", "NULL"
)

SHARD: Final = Column("shard", "INT", "the number of the shard; NULL where there are none")
