"""A Spark session for tests of what runs in it: two cores, and our modules on its path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from spark_ext.java import find_java
from tests.frozen_parts import ROOT

__all__ = ["SPARK_MARKS", "local_spark"]

SPARK_MARKS = [
    pytest.mark.spark,
    # PySpark leaves the socket of `collect` to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
    ),
]
"""The `pytestmark` of a module that uses it."""


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """Start a session, and stop it afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java(os.environ).home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
