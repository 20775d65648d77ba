"""Opens the catalogs and the ledger of a Spark session, and refreshes tables after commits.

The configuration of a catalog, in this order:
1. PyIceberg's own configuration, if it has the catalog.
2. The settings of Spark (`catalog.iceberg.spark_settings`, docs/reference/spark-catalogs.md).
3. For `lake` only, the built-in local catalog.

Spark's Iceberg catalog caches a table until it is refreshed (`cache-enabled`). So every
commit ends with `refresh` in the session of the caller (docs/reference/procedures.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from catalog.hive import OpenedTree, open_tree
from catalog.iceberg.catalogs import LOCAL_CATALOG, OpenedCatalog, configured_catalogs, open_catalog
from catalog.iceberg.spark_settings import (
    DEFAULT_FS,
    iceberg_catalogs,
    other_catalogs,
    pyiceberg_properties,
)
from catalog.ledgers.uris import open_ledger
from catalog.network import TimeOuts
from spark_ext.engine.jobs import spark_reason
from spark_ext.sql.names import Names, Parts, spark_name
from spark_ext.sql.session_settings import SessionSettings
from spark_ext.sql.statement_settings import SESSION
from tableformat.errors import DestinationError, NotFoundError, TableFormatError, UsageError
from tableformat.ledger import Ledger
from tableformat.names import HiveName, LakeName

__all__ = [
    "current_of",
    "has_ledger",
    "names_of",
    "open_destination_in",
    "open_named",
    "open_session_ledger",
    "refresh",
    "refresh_errors",
    "session_ledger",
    "settings_of",
    "settings_of_application",
]


def settings_of(spark: SparkSession) -> dict[str, str]:
    """Return the SQL settings of a session, with the file system of paths without a scheme.

    They hold secrets.
    """
    state = spark._jsparkSession.sessionState()  # noqa: SLF001  PySpark shows Hadoop's settings nowhere else
    return {DEFAULT_FS: state.newHadoopConf().get("fs.defaultFS"), **dict(spark.conf.getAll)}


def settings_of_application(spark: SparkSession) -> dict[str, str]:
    """Return the settings that an application was started with, whatever a session has set.

    They hold secrets.
    """
    context = spark.sparkContext
    hadoop: Any = context._jsc.hadoopConfiguration()  # noqa: SLF001  as in `settings_of`
    return {DEFAULT_FS: hadoop.get("fs.defaultFS"), **dict(context.getConf().getAll())}


def open_destination_in(
    conf: Mapping[str, str],
    name: LakeName,
    *,
    looks_only: bool = False,
    time_outs: TimeOuts | None = None,
) -> OpenedCatalog | OpenedTree:
    """Open the catalog of a destination, or its Hive tree, with the settings of a session.

    Args:
        conf: the settings of the session.
        name: the destination.
        looks_only: whether the caller only reads.
        time_outs: time limits; None for those of the session.

    Raises:
        NotFoundError: neither Spark nor PyIceberg has the catalog.
        UsageError: the scheme of the tree is not supported, or its storage is not configured.
        TableFormatError: as for `open_named`.
    """
    if not isinstance(name, HiveName):
        return open_named(name.catalog, conf, time_outs=time_outs)
    settings = SessionSettings.of(conf)
    return open_tree(
        name,
        warehouse=settings.warehouse,
        time_outs=time_outs or settings.time_outs,
        completes=not looks_only,
    )


def open_named(
    name: str, conf: Mapping[str, str], *, time_outs: TimeOuts | None = None
) -> OpenedCatalog:
    """Open a catalog by its name in a session.

    Args:
        name: the first part of a lake table's name.
        conf: the settings of the session.
        time_outs: time limits; None for those of the session.

    Raises:
        NotFoundError: neither Spark nor PyIceberg has a catalog of that name.
        UnsupportedError: a setting of Spark's catalog has no counterpart in PyIceberg.
        DestinationError: PyIceberg's configuration cannot be read.
    """
    settings = SessionSettings.of(conf)
    properties = {} if name.lower() in configured_catalogs() else pyiceberg_properties(name, conf)
    try:
        return open_catalog(
            name,
            warehouse=settings.warehouse,
            time_outs=time_outs or settings.time_outs,
            properties=properties,
        )
    except NotFoundError as error:
        known = ", ".join(iceberg_catalogs(conf)) or "none"
        message = (
            f"Cannot find the catalog {name!r}: the Iceberg catalogs of the session are {known}, "
            f"and PyIceberg has no configuration of it. Set spark.sql.catalog.{name} and what "
            f"belongs to it, or name another one; {LOCAL_CATALOG!r} needs no configuration."
        )
        raise NotFoundError(message) from error


def current_of(spark: SparkSession) -> Parts:
    """Return the current catalog of a session, followed by its current namespace."""
    held = spark._jsparkSession.sessionState().catalogManager()  # noqa: SLF001  as in `settings_of`
    return (held.currentCatalog().name(), *held.currentNamespace())


def names_of(
    spark: SparkSession, conf: Mapping[str, str], *, current: Parts | None = None
) -> Names:
    """Return the name resolution of a session.

    Args:
        spark: the session.
        conf: the settings of the session.
        current: the catalog and namespace to use as current; None for those of the session.

    Raises:
        UsageError: a mergeberg setting is malformed.
    """

    def table_exists(parts: Parts) -> bool:
        return spark.catalog.tableExists(spark_name(parts))

    catalogs = frozenset((*iceberg_catalogs(conf), *configured_catalogs(), LOCAL_CATALOG))
    others = frozenset(other_catalogs(conf)) - catalogs
    return Names(
        SessionSettings.of(conf), catalogs, others, current or current_of(spark), table_exists
    )


def open_session_ledger(conf: Mapping[str, str], name: str | HiveName = LOCAL_CATALOG) -> Ledger:
    """Open the ledger of a session's exports; the caller closes it.

    Args:
        conf: the settings of the session.
        name: the catalog of the exports, or the Hive tree. If the session names no ledger, a
            catalog with a warehouse on a local disk has its ledger there, and a tree on a local
            disk has it in the built-in warehouse.

    Raises:
        UsageError: the session names no ledger, and the warehouse is not on a local disk.
        UnsupportedError: this kind of ledger is not supported.
        LedgerError: the ledger cannot be opened.
    """
    settings = SessionSettings.of(conf)
    if settings.ledger is not None:
        return open_ledger(settings.ledger, local_warehouse=None)
    lake = (
        open_destination_in(conf, name, looks_only=True)
        if isinstance(name, HiveName)
        else open_named(name, conf)
    )
    return open_ledger(session_ledger(settings, lake), local_warehouse=lake.ledger_directory)


def has_ledger(conf: Mapping[str, str]) -> bool:
    """Whether a session names a ledger or has the built-in catalog.

    It has the built-in catalog unless Spark or PyIceberg configures another one of that name.

    Raises:
        UsageError: a mergeberg setting is malformed.
        DestinationError: PyIceberg's configuration cannot be read.
    """
    return SessionSettings.of(conf).ledger is not None or not (
        f"spark.sql.catalog.{LOCAL_CATALOG}" in conf or LOCAL_CATALOG in configured_catalogs()
    )


def session_ledger(settings: SessionSettings, catalog: OpenedCatalog | OpenedTree) -> str | None:
    """Return the address of the ledger for exports into a catalog; None for its warehouse.

    Raises:
        UsageError: the session names no ledger, and the warehouse is not on a local disk.
    """
    if settings.ledger is None and catalog.ledger_directory is None:
        what = (
            f"{catalog.name} is not on a local disk"
            if isinstance(catalog, OpenedTree)
            else f"the warehouse of the catalog {catalog.name!r} is no directory of this host"
        )
        message = (
            f"Cannot choose a ledger: {what}, so that the ledger cannot be there. Set "
            f"{SESSION}ledger, for example to sqlite:/var/lib/mergeberg/ledger.db, the same in "
            "every session."
        )
        raise UsageError(message)
    return settings.ledger


def refresh_errors(spark: SparkSession, name: LakeName) -> tuple[TableFormatError, ...]:
    """Refresh a table as `refresh` does; return the error, if any, instead of raising it."""
    try:
        refresh(spark, name)
    except TableFormatError as error:
        return (error,)
    return ()


def refresh(spark: SparkSession, name: LakeName) -> None:
    """Run `REFRESH TABLE` in a session, if the session has the table.

    Spark does not have tables of catalogs that only PyIceberg configures. A Hive tree needs no
    refresh: Spark lists its directories when it reads them.

    Args:
        spark: the session of the caller.
        name: the table that was changed.

    Raises:
        DestinationError: Spark cannot read the table; the change itself stays.
    """
    if isinstance(name, HiveName) or name.catalog not in iceberg_catalogs(spark.conf.getAll):
        return
    parts = (name.catalog, *name.identifier)
    quoted = spark_name(parts)
    try:
        if spark.catalog.tableExists(quoted):
            spark.catalog.refreshTable(quoted)
    except (PySparkException, Py4JError) as error:
        message = (
            f"Cannot show {name} in this session as it is now: {spark_reason(error)}. The "
            f"statement's changes are kept. Run REFRESH TABLE {quoted} before you read it."
        )
        raise DestinationError(message) from error
