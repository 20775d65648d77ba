"""One Spark application for all test files of a process: each file has sessions of its own in it.

A start of Spark costs five CPU seconds. A test starts a Spark of its own
(`tests.support.local_spark`, `tests.support.iceberg_spark`) where it is about what an application
is started with: its jars, its master, its secrets, how often a task is tried, or how it ends.

The application has Iceberg's runtime, the drivers of its databases and our jar, which also declares
what tests/support/declared_for_tests.py declares. A session has neither extensions nor catalogs but
those that it asks for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from spark_ext.engine.java import find_java
from spark_ext.set_up import register
from tests.support.declared_for_tests import CRASH, ECHO, REFUSE, STATE
from tests.support.frozen_parts import ROOT
from tests.support.iceberg_runtime import (
    POSTGRESQL_DRIVER,
    SQLITE_DRIVER,
    check_runtime,
    joined,
    runtime_settings,
)
from tests.support.iceberg_spark import catalog_settings
from tests.support.spark_jar import jar_with

__all__ = [
    "ICEBERG",
    "MERGEBERG",
    "SparkApplication",
    "lake_settings",
    "session_below",
    "started_application",
]

MERGEBERG: Final = "mergeberg.spark.Extensions"
ICEBERG: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_EXTENSIONS: Final = "spark.sql.extensions"
_CATALOG: Final = "spark.sql.catalog.mergeberg"


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """An application that runs."""

    context: SparkContext
    gateway: JavaGateway

    @contextmanager
    def session(
        self, conf: Mapping[str, str] | None = None, extensions: Sequence[str] = ()
    ) -> Iterator[SparkSession]:
        """Show PySpark the application, and a new session as its default one; hide both afterwards.

        Where the session has mergeberg's extensions this process runs its statements.

        Args:
            conf: the settings of the session.
            extensions: its extensions, in their order.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SparkContext, "_gateway", self.gateway)
            patch.setattr(SparkContext, "_jvm", self.gateway.jvm)
            patch.setattr(SparkContext, "_active_spark_context", self.context)
            patch.setattr(SparkSession, "_instantiatedSession", None)
            patch.setattr(SparkSession, "_activeSession", None)
            made = self.further_session(conf, extensions)
            if MERGEBERG in extensions:
                register(made)
            try:
                yield made
            finally:
                self._sessions.clearDefaultSession()
                self._sessions.clearActiveSession()

    @property
    def _sessions(self) -> Any:
        return self.gateway.jvm.org.apache.spark.sql.SparkSession

    def further_session(
        self, conf: Mapping[str, str] | None = None, extensions: Sequence[str] = ()
    ) -> SparkSession:
        """Make one more session within `session`, whose own stays the default one.

        Args:
            conf: as in `session`.
            extensions: as in `session`. `newSession` would take over those of the other session:
                Spark reads them from the application's settings when it makes the first one.
        """
        sessions, of_application = self._sessions, self.context._jsc.sc().conf()
        default, active = sessions.getDefaultSession(), sessions.getActiveSession()
        of_application.set(_EXTENSIONS, ",".join(extensions))
        sessions.clearDefaultSession()
        sessions.clearActiveSession()
        try:
            made = SparkSession(self.context, sessions.builder().getOrCreate())
        finally:
            of_application.remove(_EXTENSIONS)
            if default.isDefined():
                sessions.setDefaultSession(default.get())
                sessions.setActiveSession(active.get())
        catalogs = {_CATALOG: "mergeberg.spark.Catalog"} if MERGEBERG in extensions else {}
        for name, value in (catalogs | dict(conf or {})).items():
            made.conf.set(name, value)
        return made


def lake_settings(directory: Path) -> dict[str, str]:
    """Return the settings of a catalog `lake`, whose tables are forgotten with the session."""
    return {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.sql.catalog.lake.warehouse": str(directory / "lake"),
    }


@contextmanager
def session_below(
    application: SparkApplication, root: Path, warehouse: str
) -> Iterator[SparkSession]:
    """Start a session with Iceberg; its catalog, ledger and ClickHouse are below a directory.

    The catalog is `lake`, in a SQLite database that PyIceberg opens, too. The source is `ch`.

    Args:
        application: the application of the session.
        root: the directory, in which `clickhouse` exists.
        warehouse: the URI of the warehouse.
    """
    conf = {
        **catalog_settings(
            "lake",
            type="jdbc",
            uri=f"jdbc:sqlite:{root}/lake.db",
            jdbc__schema_version="V1",
            warehouse=warehouse,
        ),
        "spark.mergeberg.source.ch": f"chdb:{root}/clickhouse",
        "spark.mergeberg.ledger": f"sqlite:{root}/ledger.db",
    }
    with pytest.MonkeyPatch.context() as patch, application.session(conf, (ICEBERG,)) as session:
        patch.setenv("PYICEBERG_HOME", str(root))
        yield session


@contextmanager
def started_application(directory: Path) -> Iterator[SparkApplication]:
    """Start an application, hidden from PySpark; end it and its Java machine.

    Args:
        directory: where Spark puts what it makes.
    """
    check_runtime()
    settings = joined(
        runtime_settings("1g", SQLITE_DRIVER, POSTGRESQL_DRIVER),
        {
            "spark.jars": str(jar_with(directory, [ECHO, REFUSE, CRASH], [STATE])),
            "spark.mergeberg.python": sys.executable,
            "spark.master": "local[2]",
            "spark.app.name": "tests",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "OFF",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(directory / "spark"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
        },
    )
    conf = SparkConf(loadDefaults=False).setAll([*settings.items()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java(os.environ).home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        # What it sets itself is undone with the rest: the application is hidden.
        for name in ("_gateway", "_jvm", "_active_spark_context"):
            patch.setattr(SparkContext, name, None)
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            conf=conf, popen_kwargs={"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        )
        context = SparkContext(gateway=gateway, conf=conf)
    try:
        yield SparkApplication(context, gateway)
        context.stop()
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


@pytest.fixture(scope="session")
def spark_application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkApplication]:
    """Run the application for all test files of this process that ask for it."""
    with started_application(tmp_path_factory.mktemp("spark-application")) as application:
        yield application
