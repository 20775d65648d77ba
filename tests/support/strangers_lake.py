"""Destinations that others make with PyIceberg for a table of events, before it is exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import (
    DateType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from catalog.iceberg.catalogs import open_catalog
from tableformat.names import TableName
from tests.support.real_export import RealExport

__all__ = [
    "COLUMNS",
    "EVENTS",
    "ROWS",
    "events",
    "lake_schema",
    "make",
    "make_with_ids",
    "month",
    "statuses",
]

EVENTS = "ts DateTime('UTC'), id UInt32, s String, n Tuple(a UInt8, b String)"
BY_MONTH = "ENGINE = MergeTree PARTITION BY toYYYYMM(ts) ORDER BY id"
COLUMNS = "id, s, n"
ROWS = [(i, str(i), {"b": "x", "more": None, "a": i}) for i in range(5)]
"""The rows of `COLUMNS` in the lake, with the member that only `lake_schema` has."""


def make(exports: RealExport, name: TableName, schema: Schema, **more: Any) -> Table:
    """Make the destination of a table as a stranger does."""
    catalog = open_catalog("lake", warehouse=exports.warehouse).catalog
    catalog.create_namespace_if_not_exists("n")
    return catalog.create_table(f"n.{name.name}", schema, **more)


def make_with_ids(exports: RealExport, name: TableName, schema: Schema) -> None:
    """Make the destination with exactly these field ids, which a catalog would assign itself."""
    table = make(exports, name, schema)
    path = Path(urlparse(table.metadata_location).path)
    metadata = json.loads(path.read_text())
    metadata["schemas"] = [json.loads(schema.model_dump_json())]
    metadata["last-column-id"] = schema.highest_field_id
    path.write_text(json.dumps(metadata))


def statuses(exports: RealExport, name: TableName, **options: Any) -> list[str]:
    return [o.status.value for o in exports.run(name, **options)]


def events(exports: RealExport, clauses: str = BY_MONTH, columns: str = EVENTS) -> TableName:
    """Make a table with three rows in January and two in February."""
    name = exports.clickhouse.table(clauses, columns)
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (ts, id, s, n) SELECT toDateTime('2024-01-29 00:00:00', 'UTC')"
        " + number * 86400, number, toString(number), (number, 'x') FROM numbers(5)"
    )
    return name


def lake_schema(*more: NestedField) -> Schema:
    """Return a schema for the events, members and columns in another order than theirs."""
    members = StructType(
        NestedField(11, "b", StringType()), NestedField(12, "more", DateType()),
        NestedField(13, "a", LongType()),
    )  # fmt: skip
    return Schema(
        NestedField(1, "s", StringType()),
        NestedField(2, "n", members),
        NestedField(3, "id", LongType(), required=True),
        NestedField(4, "ts", TimestamptzType()),
        *more,
    )


def month(schema: Schema) -> PartitionSpec:
    source = schema.find_field("ts").field_id
    return PartitionSpec(PartitionField(source, 1000, MonthTransform(), "ts_month"))
