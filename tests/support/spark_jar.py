"""Our jar for tests: with declarations of a test and the product's, and a JVM that has it."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from spark_ext.engine.java import find_java
from spark_ext.jvm.build import build, write_jar
from spark_ext.jvm.jar import JAR, MANIFEST, RESOURCE, render_resource
from spark_ext.procedures.declarations import Procedure, SystemTable
from spark_ext.sql.dispatch import PROCEDURES, TABLES

__all__ = ["Driver", "jar_with", "jvm_with_jar"]


def jar_with(
    directory: Path, procedures: Sequence[Procedure] = (), tables: Sequence[SystemTable] = ()
) -> Path:
    """Make a jar of the product's classes, its procedures and tables, and some of a test."""
    with zipfile.ZipFile(build()) as archive:
        entries = {name: archive.read(name) for name in archive.namelist() if name != MANIFEST}
    declared = render_resource([*PROCEDURES.values(), *procedures], [*TABLES.values(), *tables])
    made = directory / JAR.name
    write_jar(made, entries | {RESOURCE: declared.encode()}, "0" * 64)
    return made


@contextmanager
def jvm_with_jar() -> Iterator[Any]:
    """Start a Java virtual machine that has Spark's classes and ours; yield the access to them."""
    conf = SparkConf(loadDefaults=False).set("spark.jars", str(build()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java(os.environ).home))
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            conf=conf.set("spark.driver.memory", "256m"),
            popen_kwargs={"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL},
        )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


class Driver:
    """A Python driver that keeps the requests, and responds as a test says."""

    def __init__(self, functions: Mapping[str, Callable[[dict[str, Any]], object]]) -> None:
        """Respond by the name of the procedure or table."""
        self._functions = dict(functions)
        self.requests: list[dict[str, Any]] = []

    def answer(self, request: str, session: Any) -> str:
        """Respond as Java requests it."""
        assert session is not None
        asked = json.loads(request)
        self.requests.append(asked)
        return json.dumps(self._functions[asked.get("call") or asked["table"]](asked))

    def taken(self) -> list[dict[str, Any]]:
        """Return the requests since the last time."""
        taken, self.requests = self.requests, []
        return taken

    class Java:
        """What Py4J asks of an object that Java calls."""

        implements = ["mergeberg.spark.PyAnswer"]  # noqa: RUF012  Py4J wants a list
