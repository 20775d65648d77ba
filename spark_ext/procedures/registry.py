"""Every procedure and system table, once.

The resource of the Java side, the reference page and dispatch read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_ext.procedures.archiving import ARCHIVE_PARTITION
from spark_ext.procedures.cleaning import GC
from spark_ext.procedures.comparing import VERIFY_PARTITION
from spark_ext.procedures.creating import CREATE_TABLE_LIKE
from spark_ext.procedures.declared import Procedure, SystemTable
from spark_ext.procedures.exporting import EXPORT_PARTITION, EXPORT_PARTITIONS
from spark_ext.procedures.exports import CANCEL_EXPORT, EXPORTS, FORGET_EXPORT
from spark_ext.procedures.looking import PARTITIONS, PARTS
from spark_ext.procedures.statements import EXECUTE_ALTER
from spark_ext.procedures.typed import TYPED_PROCEDURES
from spark_ext.system_tables import counters, partitions, parts
from spark_ext.system_tables.part_log import PART_LOG
from spark_ext.system_tables.replicated_partition_exports import REPLICATED_PARTITION_EXPORTS

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
        counters.EVENTS,
        counters.METRICS,
        partitions.PARTITIONS,
        parts.PARTS,
        parts.DETACHED_PARTS,
        PART_LOG,
        REPLICATED_PARTITION_EXPORTS,
    )
}
"""The system tables by name."""
