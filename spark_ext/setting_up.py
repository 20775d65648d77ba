"""Gives a Spark session the SQL of mergeberg, when it starts or while it runs.

| who | does |
|---|---|
| a Python program | `configure(SparkSession.builder).getOrCreate()` |
| a notebook whose session is there | `enable(spark)` |
| spark-sql, Thrift, Connect | `spark-sql $(python -m spark_ext)`: the same settings as arguments |

Iceberg's own settings and jar stay the user's; only its extensions are named too, because half of
Iceberg's SQL is missing without them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from spark_ext.bridge import register
from spark_ext.jvm.jar import require_jar
from tableformat.errors import UsageError

__all__ = ["configure", "enable", "merged", "settings"]

_CATALOG: Final = ("spark.sql.catalog.mergeberg", "mergeberg.spark.Catalog")
_JARS: Final = "spark.jars"
_EXTENSIONS: Final = "spark.sql.extensions"
# Ours first: then Iceberg's parser is the outermost, as Iceberg expects it.
_NAMES: Final = (
    "mergeberg.spark.Extensions",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


class _Builder(SparkSession.Builder):
    """A builder whose sessions are answered by this process."""

    def getOrCreate(self) -> SparkSession:  # noqa: N802  the name is PySpark's
        """Return a session, started or active, with everything."""
        # PySpark reads it when a session starts; without it workers are the `python3` of the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        session: SparkSession = super().getOrCreate()
        enable(session)
        return session


def settings() -> dict[str, str]:
    """Return the settings that a session needs, for this Python and its jar.

    Raises:
        NotFoundError: this installation has no jar.
    """
    return {
        _JARS: str(require_jar()),
        _EXTENSIONS: ",".join(_NAMES),
        _CATALOG[0]: _CATALOG[1],
        # Where no Python is the driver, the child that answers is this one.
        "spark.mergeberg.python": sys.executable,
    }


def merged(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings joined with a session's own, which keep their jars and extensions.

    Raises:
        NotFoundError: this installation has no jar.
    """
    ours = settings()
    for name in (_JARS, _EXTENSIONS):
        theirs = [part for part in given.get(name, "").split(",") if part.strip()]
        added = [part for part in ours[name].split(",") if part not in theirs]
        ours[name] = ",".join(theirs + added)
    return ours


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Return a builder with the settings of another one and ours.

    Args:
        builder: as it is configured so far; `spark.jars` and `spark.sql.extensions` are kept.

    Raises:
        NotFoundError: this installation has no jar.
    """
    made = _Builder()
    made._options = dict(builder._options)  # noqa: SLF001  there is no other way to read them
    for name, value in merged({**made._options}).items():  # noqa: SLF001
        made.config(name, value)
    return made


def enable(spark: SparkSession) -> None:
    """Give a session that is there the SQL of mergeberg, whatever it was started with.

    A session that has it already is only told that this process answers. Sessions made of it
    by `newSession` have to be enabled themselves.

    Args:
        spark: a session of this process's own application.

    Raises:
        NotFoundError: this installation has no jar.
        UsageError: the session is a Connect client's.
    """
    if not hasattr(spark, "_jsparkSession"):
        message = (
            "Cannot enable mergeberg: the session is a Spark Connect client's, and has no JVM. "
            "Start the server with the settings that `python -m spark_ext` prints."
        )
        raise UsageError(message)
    jvm: Any = spark._jvm  # noqa: SLF001
    if not isinstance(jvm.mergeberg.spark.Extensions, JavaClass):
        spark.sql(f"ADD JAR '{require_jar()}'")
    jvm.mergeberg.spark.Extensions.install(spark._jsparkSession)  # noqa: SLF001
    if spark.conf.get(_CATALOG[0], None) is None:
        spark.conf.set(*_CATALOG)
    register(spark)
