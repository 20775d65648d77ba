"""A Spark session with the real Iceberg, as a user configures one, in a Java machine of its own.

Jars are given to a machine when it starts, and a test process may have started another one before:
that one is put aside for the time of the session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from spark_ext.engine.java import find_java
from tests.support.frozen_parts import ROOT
from tests.support.iceberg_runtime import (
    POSTGRESQL_DRIVER,
    SQLITE_DRIVER,
    check_runtime,
    joined,
    runtime_settings,
)

__all__ = ["CATALOG_CLASS", "catalog_settings", "iceberg_spark"]

CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"


def catalog_settings(name: str, **settings: str) -> dict[str, str]:
    """Return the settings of an Iceberg catalog; `__` stands for a dot, `_` for a hyphen."""
    below = {key.replace("__", ".").replace("_", "-"): text for key, text in settings.items()}
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: CATALOG_CLASS, **{f"{prefix}.{key}": text for key, text in below.items()}}


@contextmanager
def iceberg_spark(directory: Path, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start a session with Iceberg and the drivers of its databases; end it and its machine.

    Args:
        directory: where Spark puts what it makes.
        conf: the user's settings.
    """
    own = {
        "spark.master": "local[2]",
        "spark.app.name": "test",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
    }
    settings = joined(runtime_settings("1g", SQLITE_DRIVER, POSTGRESQL_DRIVER), own, conf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java(os.environ).home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setattr(SparkContext, "_gateway", None)
        patch.setattr(SparkContext, "_jvm", None)
        made = SparkConf(loadDefaults=False).setAll([*settings.items()])
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            conf=made, popen_kwargs={"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        )
        try:
            check_runtime()
            session = SparkSession(SparkContext(gateway=gateway, conf=made))
            yield session
            session.stop()
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()
