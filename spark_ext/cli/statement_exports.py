"""The exports of a statement on a lake table, run by `mergeberg alter`."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.iceberg import OpenedCatalog
from catalog.shards import local_tables
from spark_ext.exports_from import StoppableExports
from spark_ext.session import SparkSettings, slots
from spark_ext.sql.statement_settings import StatementSettings
from spark_ext.stopping import Stopping
from spark_ext.wiring import Places, SparkWhenNeeded
from tableformat.export.ports import Observer

__all__ = ["statement_exports"]


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
