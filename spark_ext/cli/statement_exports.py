"""The exports of a statement, as `mergeberg alter` runs them: what they need, and when they may."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.iceberg import OpenedCatalog
from catalog.shards import local_tables
from spark_ext.operations.exports_from import StoppableExports
from spark_ext.session import SparkSettings, slots
from spark_ext.sql.asked import SessionExport
from spark_ext.sql.statement_settings import StatementSettings
from spark_ext.stopping import Stopping
from spark_ext.wiring import Places, SparkWhenNeeded
from tableformat.clickhouse_codes import SUPPORT_IS_DISABLED
from tableformat.errors import StoppedError, UnsupportedError
from tableformat.export.ports import Observer

__all__ = ["check_it_waits", "check_not_stopped", "statement_exports"]


def statement_exports(
    spark: SparkSettings,
    hosts: Mapping[str, str],
    stopping: Stopping,
    observer: Observer,
    lake: OpenedCatalog,
    ledger: str | None,
    settings: StatementSettings,
) -> StoppableExports:
    """Return what runs the exports of one statement.

    Args:
        spark: how Spark is started, when there is something to write.
        hosts: where hosts of a cluster speak HTTP, by their names there.
        stopping: hears when the command is to stop.
        observer: hears how the exports go.
        lake: the catalog of the lake table.
        ledger: as the user said it.
        settings: of the statement.
    """
    return StoppableExports(
        lambda: SparkWhenNeeded(spark),
        lambda place: Places(place, lake, ledger),
        settings,
        slots(spark.master),
        lambda one: local_tables(one.place, one.table, cluster_hosts=hosts),
        observer,
        stopping,
    )


def check_it_waits(settings: StatementSettings) -> None:
    """Check that the exports are waited for: nobody would go on with them when the command ends.

    Raises:
        UnsupportedError: the settings say that they are only begun.
    """
    if not settings.wait:
        message = (
            "Cannot export without waiting: `mergeberg alter` ends with its exports. Leave "
            "export_merge_tree_partition_wait = 0 out."
        )
        raise UnsupportedError(message, code=SUPPORT_IS_DISABLED)


def check_not_stopped(asked: SessionExport, stopping: Stopping) -> None:
    """Check that an export may be begun.

    Raises:
        StoppedError: the command was told to stop.
    """
    if stopping.is_told():
        message = (
            f"Cannot export {asked.request.table} to {asked.request.to}: the command was told to "
            "stop before. Run the same command again."
        )
        raise StoppedError(message)
