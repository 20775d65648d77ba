"""A Python driver answers for the Java side: statements of its sessions reach it without a process.

The callback comes back on the connection of the thread that gave the statement. The callback server
is for the others: a Thrift server that runs inside a Python driver has threads of its own.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from spark_ext.sql.dispatch import answer, interrupted

__all__ = ["register"]

_SELECTABLE: Final = 1024
"""Py4J waits by select(), which knows no file descriptor from this number on (FD_SETSIZE)."""


class _Answering:
    """The Python end of `mergeberg.spark.PyAnswer`."""

    def __init__(self, context: SparkContext) -> None:
        """Answer for the sessions of a context."""
        self._context: Final = context

    def answer(self, request: str, session: Any) -> str:
        """Return the answer to a request of a session, given as Java has it."""
        try:
            return answer(request, SparkSession(self._context, session))
        except KeyboardInterrupt:
            # It would leave Java waiting for an answer on this connection.
            return interrupted()

    class Java:
        """What Py4J asks of an object that Java calls."""

        implements: Final = ["mergeberg.spark.PyAnswer"]


def register(spark: SparkSession) -> None:
    """Let this process answer for every session of the application, until it ends.

    It may be called again, and must be when the application was stopped and started anew. In a
    process with too many open files a child process answers each statement instead, with a warning:
    Java would wait for ever.

    Args:
        spark: a session that was started with the jar (`spark_ext.setting_up`).
    """
    context = spark.sparkContext
    gateway: Any = context._gateway  # noqa: SLF001  as PySpark's foreachBatch does
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    bridge = gateway.jvm.mergeberg.spark.PyBridge
    waiting = gateway._callback_server.server_socket  # noqa: SLF001  as above
    if waiting.fileno() < _SELECTABLE:
        bridge.register(_Answering(context))
        return
    bridge.register(None)
    waiting.close()
    # So that the next call starts another.
    gateway._callback_server = None  # noqa: SLF001  as above
    warnings.warn(
        f"This process has more than {_SELECTABLE} open files, and Py4J cannot wait for Spark in "
        "it: each statement of mergeberg starts a process of its own, which takes seconds. Close "
        "files and call spark_ext.enable(spark) again.",
        RuntimeWarning,
        stacklevel=3,
    )
