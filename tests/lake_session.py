"""A Spark session with our jar, Iceberg and a catalog `lake` of its own, and others beside it.

All are in one application, because a start costs seconds: what a session's extensions are is read
from the application's settings when the session is made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_ext.jvm.jar
from spark_ext.java import find_java
from spark_ext.setting_up import configure
from tests.frozen_parts import ROOT
from tests.iceberg_runtime import check_runtime, runtime_settings

__all__ = ["ICEBERG", "OURS", "lake_session", "session_beside"]

OURS = "mergeberg.spark.Extensions"
ICEBERG = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@contextmanager
def lake_session(jar: Path, directory: Path) -> Iterator[SparkSession]:
    """Start the application with a jar, and stop it afterwards."""
    settings = runtime_settings("1g") | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "spark"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java(os.environ).home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setattr(spark_ext.jvm.jar, "JAR", jar)
        builder = SparkSession.builder.master("local[2]")
        for name, value in (settings | _lake(directory)).items():
            builder.config(name, value)
        session = configure(builder).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        check_runtime()
        yield session
        session.stop()


def session_beside(spark: SparkSession, extensions: Sequence[str], directory: Path) -> SparkSession:
    """Make a session of the same application with other extensions and a lake of its own."""
    jvm: Any = spark._jvm
    java = jvm.org.apache.spark.sql.SparkSession
    context: Any = spark.sparkContext._jsc.sc()
    before = context.conf().get("spark.sql.extensions")
    context.conf().set("spark.sql.extensions", ",".join(extensions))
    java.clearActiveSession()
    java.clearDefaultSession()
    made = SparkSession(spark.sparkContext, java.builder().getOrCreate())
    java.setActiveSession(spark._jsparkSession)
    java.setDefaultSession(spark._jsparkSession)
    context.conf().set("spark.sql.extensions", before)
    for name, value in _lake(directory).items():
        made.conf.set(name, value)
    return made


def _lake(directory: Path) -> dict[str, str]:
    return {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.sql.catalog.lake.warehouse": str(directory / "lake"),
    }
