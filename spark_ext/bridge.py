"""A Python driver answers for the Java side: statements of its sessions reach it without a process.

The callback comes back on the connection of the thread that gave the statement. The callback server
is for the others: a Thrift server that runs inside a Python driver has threads of its own.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from spark_ext.sql.dispatch import answer, interrupted

__all__ = ["register"]


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

    It may be called again, and must be when the application was stopped and started anew.

    Args:
        spark: a session that was started with the jar (`spark_ext.setting_up`).
    """
    context = spark.sparkContext
    gateway: Any = context._gateway  # noqa: SLF001  as PySpark's foreachBatch does
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    gateway.jvm.mergeberg.spark.PyBridge.register(_Answering(context))
