"""The Spark session of the command line: Java, our interpreter, the JVM's noise in a file.

The Python API takes the caller's own session instead. Worker memory outside the JVM (Python,
ClickHouse, Parquet) is what a task needs, about `TASK_MEMORY` per slot; local mode has no limit on
it, a cluster's is `spark.executor.memoryOverhead`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from catalog.secret_variables import harmless_environment, is_secret
from spark_ext.java import find_java
from tableformat.errors import SourceError

__all__ = ["TASK_MEMORY", "SparkSettings", "default_settings", "open_session", "slots"]

TASK_MEMORY: Final = 800 * 1024 * 1024
"""Bytes outside the JVM to plan for each task slot (performance.md section 4)."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How the command line starts Spark. `conf` wins over every default."""

    master: str = "local[*]"
    conf: tuple[tuple[str, str], ...] = ()


def open_session(settings: SparkSettings, *, log: Path | None = None) -> SparkSession:
    """Return a session, started or, when one is active in this process, that one.

    Args:
        settings: master and configuration.
        log: the file that gets what the JVM prints; a temporary one when None.

    Raises:
        NotFoundError: there is no Java that Spark runs on.
        SourceError: Spark did not start; the message holds the end of its log.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    java = find_java(harmless_environment())
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = SparkConf().setAll(default_settings(settings.master)).setAll(list(settings.conf))
    conf.setMaster(settings.master).setAppName("mergeberg")
    with log.open("wb") if log else tempfile.TemporaryFile(prefix="mergeberg-spark-") as output:
        try:
            with _without_secrets():
                gateway = launch_gateway(  # type: ignore[no-untyped-call]
                    conf=conf, popen_kwargs={"stderr": output, "stdout": output}
                )
            context = SparkContext(gateway=gateway, conf=conf)
            return SparkSession(context)
        except (PySparkException, OSError, RuntimeError) as error:
            output.flush()
            raise SourceError(_not_started(error, output.fileno())) from error


@contextlib.contextmanager
def _without_secrets() -> Iterator[None]:
    """Keep the secrets of the environment from a process that is started meanwhile.

    The JVM and the Python workers that it starts inherit it, and none of them needs a secret: tasks
    have theirs by a broadcast. A `SourcePlace` and an `OpenedCatalog` have taken their own before.
    """
    held = {name: os.environ.pop(name) for name in [*os.environ] if is_secret(name)}
    try:
        yield
    finally:
        os.environ.update(held)


def default_settings(master: str) -> list[tuple[str, str]]:
    """Return what a Spark that the command line starts is set to, where the user says nothing."""
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.python.worker.reuse": "true",
        "spark.sql.session.timeZone": "UTC",
        # The default of 10,000 numbers per batch is more than any job has tasks.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if master.startswith("local"):
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
        }
    return list(defaults.items())


def _not_started(error: BaseException, log: int) -> str:
    size = os.fstat(log).st_size
    tail = os.pread(log, 2000, max(0, size - 2000)).decode(errors="replace").strip()
    return (
        f"Cannot start Spark: {error}. Check Java and the --conf settings; the end of its "
        f"log:\n{tail}"
    )


def slots(master: str) -> int:
    """Return the tasks that run at a time, as far as the master's name tells."""
    inside = master.partition("[")[2].rstrip("]").split(",")[0]
    if inside.isdecimal():
        return int(inside)
    return _processors() if master.startswith("local[*") else 1


def _processors() -> int:
    """Return the processors that this process may use; macOS does not tell more than it has."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
