"""What a table of ClickHouse is as a destination: one over Hive directories is its tree, no other.

A table of S3, GCS, AzureBlobStorage or HDFS over Hive directories (`object_tables.py`) resolves to
the tree that it reads, where its structure and its partition key are those of the source; anything
else of ClickHouse is refused. The words are the requirement's (RQ...Restrictions.SameTable,
.DestinationSupport), the codes ClickHouse's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from catalog.clickhouse.object_tables import ObjectTable
from catalog.clickhouse.source import ClickHouseSource
from catalog.object_addresses import abfs_location, gs_location, hdfs_location, s3_location
from tableformat.clickhouse_codes import BAD_ARGUMENTS, INCOMPATIBLE_COLUMNS, NOT_IMPLEMENTED
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.mergetree.expression import ColumnName
from tableformat.mergetree.expression_text import parse_expression, parse_partition_key
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import HiveName, TableName

__all__ = ["clickhouse_destination", "unsupported"]

_REACHED: Final[Mapping[str, str]] = {
    "S3": "its address is not in the S3 that is reached from here (AWS_ENDPOINT_URL)",
    "GCS": (
        "its address is not in the Google Cloud Storage that is reached from here "
        "(STORAGE_EMULATOR_HOST)"
    ),
    "AzureBlobStorage": (
        "its account is not the one that is reached from here (AZURE_STORAGE_CONNECTION_STRING)"
    ),
}
_OTHERS: Final = (
    "only trees of the engines S3, GCS, AzureBlobStorage and HDFS are found by their table"
)
_PARQUET: Final = "Parquet"
_TREE: Final = "Name the tree itself by its location: hive.`uri` in SQL, hive:URI elsewhere."


def clickhouse_destination(
    source: ClickHouseSource,
    named: TableName,
    exported: Callable[[], MergeTreeTable],
    directories: Mapping[str, str],
    what: str,
    where: str,
) -> HiveName | None:
    """Return the tree that a table of ClickHouse stands for; None when there is no such table.

    Args:
        source: where it would be.
        named: its name there.
        exported: describes the table to export.
        directories: as in `ExportRequest`.
        what: how messages begin, "Cannot export ... to ...".
        where: what to write instead, a sentence.

    Raises:
        UnsupportedError: it stands for no tree, or for one that is not reached from here (code 48).
        TableFormatError: the environment does not say how its store is reached, or as whom.
        RefusedError: it has other columns (code 122), or another partition key (36).
        UsageError: an expression of `directories` cannot be read.
        SourceError: the source cannot be read.
    """
    engine = source.engine_of(named)
    if not engine:
        return None
    found = source.object_table(named)
    if found is None or not found.is_hive:
        raise unsupported(what, "MergeTree" if engine.endswith("MergeTree") else engine, where)
    if found.format != _PARQUET:
        raise unsupported(what, f"{engine} of the format {found.format or 'of its own'}", where)
    location = _location(found)
    if location is None:
        why = _REACHED.get(found.engine, _OTHERS)
        raise unsupported(what, f"{found.engine} with Hive directories ({why})", _TREE)
    _check_fits(found, exported(), directories, what)
    return HiveName.at(location)


def unsupported(what: str, storage: str, where: str) -> UnsupportedError:
    """Return the refusal of a storage that holds no table of the lake."""
    message = (
        f"{what}: Destination storage {storage} does not support MergeTree parts or uses "
        f"unsupported partitioning. {where}"
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)


def _location(found: ObjectTable) -> str | None:
    """Return the location of the directories, None when they are not reached from here.

    Raises:
        TableFormatError: the environment does not say as whom they are reached.
    """
    match found.engine:
        case "S3" | "GCS":
            # Google's objects are reached by the protocol of S3, too, where that is said.
            in_s3 = s3_location(found.address, os.environ)
            return in_s3 or gs_location(found.address, os.environ)
        case "AzureBlobStorage":
            return abfs_location(found.address, found.container, found.path, os.environ)
        case "HDFS":
            return hdfs_location(found.address)
        case _:
            return None


def _check_fits(
    found: ObjectTable, table: MergeTreeTable, directories: Mapping[str, str], what: str
) -> None:
    """Check that a table over directories is of the columns and the key of the source.

    Raises:
        RefusedError: it is not.
    """
    stored = [c.name for c in table.stored_columns]
    wanted = {*stored, *directories}
    lacks = [name for name in (*stored, *directories) if name not in found.columns]
    more = [name for name in found.columns if name not in wanted]
    if lacks or more:
        different = "; ".join(
            f"{says} {', '.join(names)}"
            for says, names in (("the destination lacks", lacks), ("the source lacks", more))
            if names
        )
        message = (
            f"{what}: Tables have different structure: {different}. Make the destination with "
            "the columns of the source, and one for each directory that is named."
        )
        raise RefusedError(message, code=INCOMPATIBLE_COLUMNS)
    called = {parse_expression(text): ColumnName(name) for name, text in directories.items()}
    key = parse_partition_key(table.engine.partition_by)
    if tuple(called.get(m, m) for m in key) != parse_partition_key(found.partition_by):
        message = (
            f"{what}: Tables have different partition key: PARTITION BY "
            f"{table.engine.partition_by or 'tuple()'} in the source, PARTITION BY "
            f"{found.partition_by or 'tuple()'} in the destination. A member that is an expression "
            "is a column of the destination by its name: --hive-column NAME=EXPRESSION."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
