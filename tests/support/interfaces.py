"""What every interface of Spark is tried with: a ClickHouse, a lake, a ledger, one configuration.

The configuration is the one of `docs/how-to/spark-sql.md`, in Spark's own file, for all interfaces:
what starts is a program of Spark's, and nothing but that file and the environment tells it of us.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.engine.java import find_java
from spark_ext.set_up import settings
from tableformat.receipt import Receipt
from tests.repository.source_files import ROOT
from tests.services.server_process import ServerProcess
from tests.support.iceberg_runtime import SQLITE_DRIVER, joined, runtime_settings
from tests.support.quick_java import JAVA_VARIABLES

__all__ = [
    "BIG_ROWS",
    "EVENTS",
    "Ended",
    "Interfaces",
    "blocks",
    "reads_as",
    "wait_while_it_runs",
]

_SPARK: Final = Path(pyspark.__file__).parent
BIG_ROWS: Final = 800_000
# Those of January and February, which the pages export.
EVENTS: Final = [number for number in range(910) if number % 91 < 60]
_SECONDS: Final = 240
_RETRY_SECONDS: Final = 0.05
# A Java that loads Spark, while others do.
_SECONDS_TO_START: Final = 120.0
_DATA: Final = "/data"
_FENCED: Final = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLES: Final = (
    "CREATE DATABASE db",
    """CREATE TABLE db.events (day Date, n UInt64)
    ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY n""",
    "INSERT INTO db.events SELECT toDate('2024-01-01') + number % 91, number FROM numbers(910)",
    "CREATE TABLE db.big (id UInt32, a String, b String) ENGINE = MergeTree ORDER BY id",
    f"""INSERT INTO db.big SELECT number, hex(cityHash64(number)), hex(cityHash64(number, 1))
    FROM numbers({BIG_ROWS})""",
)


def _page(name: str) -> str:
    """Return a page of `docs/how-to`."""
    return (ROOT / "docs" / "how-to" / name).read_text(encoding="utf-8")


def blocks(name: str, kind: str) -> list[str]:
    """Return the fenced texts of one kind on a page of `docs/how-to`, in order."""
    return [text["text"] for text in _FENCED.finditer(_page(name)) if text["kind"] == kind]


def reads_as(text: str) -> re.Pattern[str]:
    """Return what a text on a page matches: `…` stands for what is another each time."""
    lines = (re.escape(line).replace("…", r"\S.*") for line in text.splitlines())
    return re.compile(r"\s*\n".join(lines))


def wait_while_it_runs(
    process: subprocess.Popen[str], is_so: Callable[[], bool], what: str
) -> None:
    """Return when something is so; else end a program, and fail with its output."""
    deadline = time.monotonic() + _SECONDS
    try:
        while not is_so():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                pytest.fail(f"waited in vain until {what}: {process.communicate()}")
            time.sleep(_RETRY_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that has ended."""

    code: int
    out: str
    err: str

    @classmethod
    def of(cls, process: subprocess.Popen[str], text: str | None = None) -> Ended:
        """Wait for its end, with or without an input."""
        try:
            out, err = process.communicate(text, timeout=_SECONDS)
        finally:
            process.kill()
        return cls(process.returncode, out, err)


@dataclass(frozen=True, slots=True)
class Interfaces:
    """The directory that stands for `/data` of the pages."""

    root: Path

    @classmethod
    def made(cls, root: Path, conf: Mapping[str, str]) -> Interfaces:
        """Fill ClickHouse, and write the configuration.

        Args:
            root: an empty directory.
            conf: what a test needs in addition to the page's.
        """
        with EmbeddedConnection(root / "clickhouse", create=True) as connection:
            for statement in _TABLES:
                connection.command(statement)
        made = cls(root)
        (root / "conf").mkdir()
        lines = [f"{name} {text}\n" for name, text in {**made._of_machine(), **conf}.items()]
        (file,) = blocks("spark-sql.md", "properties")
        properties = file.replace(_DATA, str(root))
        (root / "conf" / "spark-defaults.conf").write_text(properties + "".join(lines))
        return made

    def _of_machine(self) -> dict[str, str]:
        """Return what is of a machine with little memory and other tests at the same time."""
        own = {
            # Its jars are there already.
            "spark.jars.packages": "",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": f"{self.root}/spark",
            "spark.log.level": "ERROR",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": f"{self.root}/spark-warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        return joined(runtime_settings("640m", SQLITE_DRIVER), settings(), own)

    def environment(self, java: Path | None = None) -> dict[str, str]:
        """Return the environment of a user whose Python has mergeberg; `java` is a Java's home."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        return {
            **kept,
            **JAVA_VARIABLES,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            # A Spark that resolves packages finds them there, or nowhere.
            "DEFAULT_ARTIFACT_REPOSITORY": (self.root / "maven").as_uri(),
            "JAVA_HOME": str(java or find_java(os.environ).home),
            "SPARK_HOME": str(_SPARK),
            "SPARK_CONF_DIR": str(self.root / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "PYICEBERG_HOME": str(self.root),
        }

    def start(
        self, command: Sequence[str | Path], java: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start a program."""
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment(java),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: Sequence[str | Path], java: Path | None = None) -> Ended:
        """Run a program to its end."""
        return Ended.of(self.start(command, java))

    def server(
        self, name: str, command: str, port: int, *, host: str = "127.0.0.1"
    ) -> ServerProcess:
        """Return a server of Spark's, not started yet.

        Args:
            name: its own, in messages and as its directory.
            command: as on a page.
            port: it is up when something listens there.
            host: the loopback address that is its own.
        """
        environment = self.environment() | {"SPARK_LOCAL_IP": host}
        variables = [f"{name}={text}" for name, text in environment.items()]
        directory = self.root / name
        directory.mkdir()
        return ServerProcess(
            name,
            ["env", "-i", *variables, *shlex.split(command)],
            directory,
            lambda: _listens(host, port),
            seconds=_SECONDS_TO_START,
        )

    def written(self, text: str) -> str:
        """Return a text of a page as it is here."""
        return text.replace(_DATA, str(self.root))

    def table(self, name: str) -> Table:
        """Load a lake table as it is now."""
        lake = load_catalog(
            "lake",
            type="sql",
            uri=f"sqlite:///{self.root}/lake.db",
            warehouse=f"file://{self.root}/lake",
        )
        return lake.load_table(name)

    def numbers(self, table: str, column: str) -> list[int]:
        """Return a column of a lake table, sorted."""
        found = self.table(table).scan(selected_fields=(column,)).to_arrow()[column]
        return sorted(found.to_pylist())

    def data_files(self, table: str) -> set[str]:
        """Return the data files of a lake table."""
        files = self.table(table).inspect.data_files()["file_path"].to_pylist()
        return {file.removeprefix("file://") for file in files}

    def finished(self, table: str) -> tuple[Receipt, ...]:
        """Return the receipts of the data files that are finished, visible or not.

        A worker that Spark took for lost may finish a file when another one has begun the same rows
        again: then there are two of these rows, and the lake gets one of them.
        """
        below = self.root / "lake" / table.replace(".", "/") / "metadata" / "mergeberg"
        found = (path for path in below.rglob("[0-9]*.json") if path.parent.name != "groups")
        return tuple(Receipt.from_json(path.read_text()) for path in found)
