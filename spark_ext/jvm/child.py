"""`python -m spark_ext.jvm.child`: answers one request inside the application that started it.

Java starts it (`PyChild.java`) where the driver is no Python: spark-sql, Thrift, Connect. It
attaches to that JVM as PySpark attaches to the one of spark-submit, so it is a whole driver of the
same application: same session, same jobs. The token comes by the environment, because a command
line can be read by everybody on the host. Standard input says that the parent lives.
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

from spark_ext.sql.dispatch import answer, interrupted
from spark_ext.sql.export import are_running, wait_for_all

__all__ = ["main"]

_CALL: Final = "MERGEBERG_CALL"
_SECONDS_TO_END: Final = 10


def main() -> None:
    """Answer the request that the token stands for, and end the process."""
    token = os.environ.pop(_CALL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    waiting, session = _attach(token)
    _be_interrupted_once()
    try:
        answered = answer(waiting.request(), session)
    except KeyboardInterrupt:
        answered = interrupted()
    waiting.finish(answered, are_running())
    wait_for_all()
    sys.stdout.flush()
    sys.stderr.flush()
    # Whatever runs at the end of a driver would stop the context, which is not ours.
    os._exit(0)


def _attach(token: str) -> tuple[Any, SparkSession]:
    """Return Java's side of the request, and its session; the gateway's place is inherited."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    # What this process starts has no business with the JVM.
    os.environ.pop("PYSPARK_GATEWAY_SECRET")
    waiting = gateway.jvm.mergeberg.spark.PyChild.attach(token)
    java_context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        waiting.session().sparkContext()
    )
    conf = SparkConf(_jvm=gateway.jvm, _jconf=java_context.getConf())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
    return waiting, SparkSession(context, waiting.session())


def _be_interrupted_once() -> None:
    """Let the first SIGINT or SIGTERM interrupt the answer, and later ones nothing.

    PySpark's own handler would cancel the jobs of everybody. And a cancelled statement says so
    more than once (a key, Java's signal, the end of the input): the second would interrupt what
    the first began, and Spark's job would go on for nobody.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def _end_with_parent() -> None:
    """End the process when its input does: the JVM is gone, and nobody waits for an answer."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_SECONDS_TO_END)
    os._exit(1)


if __name__ == "__main__":
    main()
