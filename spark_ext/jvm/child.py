"""Handles one request of a Spark application in a child process (`python -m spark_ext.jvm.child`).

Java starts it (`PyChild.java`) if the driver is not a Python program: spark-sql, Thrift, Connect.
It attaches to that JVM as PySpark attaches to the JVM of spark-submit, so that it is a driver of
the same application, with the same session and jobs. It gets its token from the environment,
because every user of the host can read a command line. The end of standard input means that the
JVM has ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from catalog.processes import finish
from spark_ext.sql.dispatch import interrupted, respond
from spark_ext.sql.export import are_running, wait_for_all

__all__ = ["main"]

_CALL: Final = "MERGEBERG_CALL"
_SECONDS_TO_END: Final = 10


def main() -> None:
    """Handle the request of the token, and end the process."""
    token = os.environ.pop(_CALL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    waiting, session = _attach(token)
    _be_interrupted_once()
    try:
        response = respond(waiting.request(), session)
    except KeyboardInterrupt:
        response = interrupted()
    waiting.finish(response, are_running())
    wait_for_all()
    sys.stdout.flush()
    sys.stderr.flush()
    finish()
    # PySpark's exit handlers would stop the context, which belongs to the application.
    os._exit(0)


def _attach(token: str) -> tuple[Any, SparkSession]:
    """Connect to the JVM that the environment names; return Java's request and its session."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    # Child processes of this process must not get access to the JVM.
    os.environ.pop("PYSPARK_GATEWAY_SECRET")
    waiting = gateway.jvm.mergeberg.spark.PyChild.attach(token)
    java_context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        waiting.session().sparkContext()
    )
    conf = SparkConf(_jvm=gateway.jvm, _jconf=java_context.getConf())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
    return waiting, SparkSession(context, waiting.session())


def _be_interrupted_once() -> None:
    """Let the first SIGINT or SIGTERM interrupt the request, and ignore later ones.

    PySpark's own handler would cancel the jobs of all sessions. A cancelled statement can send
    several signals: Ctrl-C, Java's signal, the end of the input. A second one would interrupt the
    cleanup after the first, and the Spark job would keep running.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def _end_with_parent() -> None:
    """End the process at the end of its input, because the JVM has ended."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_SECONDS_TO_END)
    os._exit(1)


if __name__ == "__main__":
    main()
