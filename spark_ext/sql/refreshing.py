"""Lets a Spark session see what was committed beside it: Spark keeps tables as it once read them.

Iceberg's catalog keeps a table until it is refreshed (`cache-enabled`, spark-iceberg.md section 3),
so whatever commits ends with this, in the session of who asked (DESIGN 6).
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from catalog.spark_settings import iceberg_catalogs
from spark_ext.sql.names import spark_name
from tableformat.errors import DestinationError, TableFormatError
from tableformat.names import HiveName, LakeName

__all__ = ["refresh", "unseen"]


def unseen(spark: SparkSession, name: LakeName) -> tuple[TableFormatError, ...]:
    """Refresh a table as below; return why that cannot be, for who has more to say."""
    try:
        refresh(spark, name)
    except TableFormatError as error:
        return (error,)
    return ()


def refresh(spark: SparkSession, name: LakeName) -> None:
    """Run `REFRESH TABLE` in a session, where it has such a table.

    It has none of a catalog that is configured for PyIceberg alone, and none of a tree of Hive
    directories, which it lists when it reads them.

    Args:
        spark: the session of who asked.
        name: the table that was changed.

    Raises:
        DestinationError: Spark cannot read the table; what was done to it stays.
    """
    if isinstance(name, HiveName) or name.catalog not in iceberg_catalogs(spark.conf.getAll):
        return
    parts = (name.catalog, *name.identifier)
    quoted = spark_name(parts)
    try:
        if spark.catalog.tableExists(quoted):
            spark.catalog.refreshTable(quoted)
    except (PySparkException, Py4JError) as error:
        why = str(error).strip().splitlines()[0]
        message = (
            f"Cannot show {name} in this session as it is now: {why} What was done to it stays. "
            f"Run REFRESH TABLE {quoted} before you read it."
        )
        raise DestinationError(message) from error
