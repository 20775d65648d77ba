"""Lists all procedures and system tables.

The resource of the jar, the reference page and `spark_ext.sql.dispatch` use these lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_ext import system_tables
from spark_ext.procedures.archive import ARCHIVE_PARTITION
from spark_ext.procedures.declarations import Procedure, SystemTable
from spark_ext.procedures.export import EXPORT_PARTITION, EXPORT_PARTITIONS
from spark_ext.procedures.exports import CANCEL_EXPORT, EXPORTS, FORGET_EXPORT
from spark_ext.procedures.lake_tables import (
    CREATE_TABLE_LIKE,
    GC,
    PARTITIONS,
    PARTS,
    VERIFY_PARTITION,
)
from spark_ext.procedures.statements import EXECUTE_ALTER, TYPED_PROCEDURES

__all__ = ["PROCEDURES", "TABLES"]

PROCEDURES: Final[Mapping[str, Procedure]] = {
    procedure.name: procedure
    for procedure in (
        ARCHIVE_PARTITION,
        CANCEL_EXPORT,
        CREATE_TABLE_LIKE,
        EXECUTE_ALTER,
        EXPORTS,
        EXPORT_PARTITION,
        EXPORT_PARTITIONS,
        FORGET_EXPORT,
        GC,
        PARTITIONS,
        PARTS,
        VERIFY_PARTITION,
        *TYPED_PROCEDURES,
    )
}
"""The procedures by name."""

TABLES: Final[Mapping[str, SystemTable]] = {
    table.name: table
    for table in (
        system_tables.EVENTS,
        system_tables.METRICS,
        system_tables.PARTITIONS,
        system_tables.PARTS,
        system_tables.DETACHED_PARTS,
        system_tables.PART_LOG,
        system_tables.REPLICATED_PARTITION_EXPORTS,
    )
}
"""The system tables by name."""
