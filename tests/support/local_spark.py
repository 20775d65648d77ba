"""A Spark session for tests of what runs in it: two cores, and our modules on its path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_ext.engine.java import find_java
from tests.support.frozen_parts import ROOT

__all__ = ["SPARK_MARKS", "local_spark", "own_java"]

SPARK_MARKS = [
    pytest.mark.spark,
    # PySpark leaves the socket of `collect` to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
    ),
]
"""The `pytestmark` of a module that uses it."""


@contextmanager
def own_java() -> Iterator[None]:
    """Let the session that is started within have a Java machine of its own, and end that.

    What a machine is started with, jars and settings, stays with every later session in it: another
    file's tests would find it, or lack it, by the order in which files are run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkContext, "_gateway", None)
        patch.setattr(SparkContext, "_jvm", None)
        try:
            yield
        finally:
            started: Any = SparkContext._gateway
            if started is not None:
                started.shutdown()
                started.proc.stdin.close()
                started.proc.wait()


@contextmanager
def local_spark(slots: int = 2, failures: int = 1) -> Iterator[SparkSession]:
    """Start a session of so many slots for tasks, each tried so often; stop it afterwards."""
    with own_java(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java(os.environ).home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        session = (
            SparkSession.builder.master(f"local[{slots},{failures}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
