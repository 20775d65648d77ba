"""Adds the SQL of mergeberg to a Spark session, when it starts or while it runs.

| client | call |
|---|---|
| a Python program | `configure(SparkSession.builder).getOrCreate()` |
| a notebook with a running session | `enable(spark)` |
| spark-sql, Thrift, Connect | `spark-sql $(python -m spark_ext)`: the settings as arguments |

The user keeps Iceberg's own settings and jar. Only Iceberg's extensions are added too, because
half of Iceberg's SQL is missing without them.

`register` makes a Python driver handle the JVM's requests, so that its statements start no child
process. Java calls back on the connection of the thread that ran the statement. Py4J's callback
server handles all other threads: a Thrift server inside a Python driver has threads of its own.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

from py4j.java_gateway import JavaClass
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from spark_ext.jvm.jar import require_jar
from spark_ext.sql.dispatch import interrupted, respond
from tableformat.errors import UsageError

__all__ = ["configure", "enable", "merged", "register", "settings"]

_SELECTABLE: Final = 1024
"""Py4J waits with select(), which supports file descriptors below this number (FD_SETSIZE)."""


class _PythonDriver:
    """The Python implementation of `mergeberg.spark.PyAnswer`."""

    def __init__(self, context: SparkContext) -> None:
        """Keep the context whose sessions send requests."""
        self._context: Final = context

    def answer(self, request: str, session: Any) -> str:
        """Handle a request of a session, which is a Java object; return the response."""
        try:
            return respond(request, SparkSession(self._context, session))
        except KeyboardInterrupt:
            # An exception here would leave Java waiting for a response on this connection.
            return interrupted()

    class Java:
        """Names the implemented Java interface, as Py4J requires."""

        implements: Final = ["mergeberg.spark.PyAnswer"]


def register(spark: SparkSession) -> None:
    """Handle the statements of every session of the application in this process, until it ends.

    Call it again after the application was stopped and restarted. In a process with too many open
    files, a child process handles each statement instead, and a warning is issued: Java would wait
    for ever for this process.

    Args:
        spark: a session that was started with the jar (`spark_ext.set_up`).
    """
    context = spark.sparkContext
    gateway: Any = context._gateway  # noqa: SLF001  as PySpark's foreachBatch does
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    bridge = gateway.jvm.mergeberg.spark.PyBridge
    waiting = gateway._callback_server.server_socket  # noqa: SLF001  as above
    if waiting.fileno() < _SELECTABLE:
        bridge.register(_PythonDriver(context))
        return
    bridge.register(None)
    waiting.close()
    # Cleared, so that the next call starts another callback server.
    gateway._callback_server = None  # noqa: SLF001  as above
    warnings.warn(
        f"This process has more than {_SELECTABLE} open files, and Py4J cannot wait for Spark in "
        "it: each statement of mergeberg starts a process of its own, which takes seconds. Close "
        "files and call spark_ext.enable(spark) again.",
        RuntimeWarning,
        stacklevel=3,
    )


_CATALOG: Final = ("spark.sql.catalog.mergeberg", "mergeberg.spark.Catalog")
_JARS: Final = "spark.jars"
_EXTENSIONS: Final = "spark.sql.extensions"
# In this order Iceberg's parser is the outermost, as Iceberg expects.
_NAMES: Final = (
    "mergeberg.spark.Extensions",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


class _Builder(SparkSession.Builder):
    """A builder that enables mergeberg in its sessions."""

    def getOrCreate(self) -> SparkSession:  # noqa: N802  the name is PySpark's
        """Return a session, started or active, with mergeberg enabled."""
        # PySpark reads it when a session starts; the default is the `python3` of the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        session: SparkSession = super().getOrCreate()
        enable(session)
        return session


def settings() -> dict[str, str]:
    """Return the Spark settings that a session needs for mergeberg.

    Raises:
        NotFoundError: this installation has no jar.
    """
    return {
        _JARS: str(require_jar()),
        _EXTENSIONS: ",".join(_NAMES),
        _CATALOG[0]: _CATALOG[1],
        # If the driver is not a Python program, child processes use this interpreter.
        "spark.mergeberg.python": sys.executable,
    }


def merged(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for mergeberg, merged with the jars and extensions of a session.

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
    """Return a builder with the settings of another one and those of mergeberg.

    Args:
        builder: the other builder; its `spark.jars` and `spark.sql.extensions` are kept.

    Raises:
        NotFoundError: this installation has no jar.
    """
    made = _Builder()
    made._options = dict(builder._options)  # noqa: SLF001  there is no other way to read them
    for name, value in merged({**made._options}).items():  # noqa: SLF001
        made.config(name, value)
    return made


def enable(spark: SparkSession) -> None:
    """Add the SQL of mergeberg to a running session.

    A session that has it already is only registered again (`register`). Sessions that it creates
    with `newSession` must be enabled separately.

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
