"""Starts Spark's own shells, spark-sql and pyspark, with mergeberg's settings.

`--conf` wins over the user's `spark-defaults.conf`, and both win over the defaults set here. All
settings go into one file that only the user can read, so that none is in the list of processes.
A password in the environment stays there (docs/operating/secrets.md): the Python process that
runs mergeberg's statements for the shell inherits the environment, as it does on a server.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Final, Protocol, Self

from catalog.iceberg.catalogs import LOCAL_CATALOG, configured_catalogs
from catalog.ledgers.uris import LEDGER_FILE
from catalog.processes import ScratchDirectory
from catalog.secret_variables import is_secret
from catalog.source_defaults import DEFAULT_SOURCE
from catalog.storages.local import local_directory, local_location
from spark_ext.engine.jars import SQLITE, Jar, SparkHome, fetch_jars, find_jar
from spark_ext.engine.java import cache_directory
from spark_ext.engine.session import default_settings, read_defaults, write_properties
from spark_ext.set_up import merged
from spark_ext.sql.session_settings import SOURCE, SessionSettings
from spark_ext.sql.statement_settings import SESSION
from tableformat.errors import DestinationError, RefusedError
from tableformat.messages import Command, Option

__all__ = ["Shell", "ShellOptions"]


_LAKE: Final = f"spark.sql.catalog.{LOCAL_CATALOG}"
_LEDGER: Final = f"{SESSION}ledger"
_WAREHOUSE: Final = f"{SESSION}warehouse"
_JARS: Final = "spark.jars"
_WITH_JARS: Final = (_JARS, "spark.jars.packages", "spark.driver.extraClassPath")
_RUNTIME: Final = "iceberg-spark-runtime"
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
# The result of a CALL is hard to read without column names.
_HEADER: Final = "spark.sql.cli.print.header"
_TABLES: Final = "spark.sql.catalogImplementation"
# A shell runs the user's own queries, which need Spark's default memory. The log level is set in
# the Log4j configuration, because Spark prints a notice about `spark.log.level`.
_NOT_FOR_SHELLS: Final = frozenset(("spark.driver.memory", "spark.log.level"))
_SHELLS: Final = ("spark-sql", "pyspark")
_SIGNALLED: Final = 128
_LOGS: Final = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# Shells that find no level of their own set one, and say so.
logger.sql.name = org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver
logger.sql.level = error
logger.python.name = org.apache.spark.api.python.PythonGatewayServer
logger.python.level = error
"""


class Notes(Protocol):
    """Receives notices for the user before the shell starts."""

    def note(self, text: str) -> None:
        """Receive one notice."""
        ...


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """The options of the command; None or empty where Spark's configuration or a default counts."""

    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    master: str | None = None
    warehouse: Path | None = None
    ledger: str | None = None

    def over(self, user: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of the user's configuration, overridden by these options."""
        given = {SOURCE + name: address for name, address in self.sources.items()}
        given |= self.conf
        if self.master is not None:
            given["spark.master"] = self.master
        if self.ledger is not None:
            given[_LEDGER] = self.ledger
        if self.warehouse is not None:
            given[_WAREHOUSE] = str(self.warehouse)
        return {**user, **given}


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell that can be started.

    Attributes:
        spark: the Spark installation.
        environ: the environment of the shell, with `JAVA_HOME`.
        settings: all settings except the pinned jars; they hold secrets.
        jars: the pinned jars that the shell needs and the settings do not name yet.
        warehouse: the directory of the built-in catalog, created when the shell starts; None if
            the lake is another catalog.
        logs: whether mergeberg configures Spark's logging, because the user has not.
    """

    spark: SparkHome
    environ: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    jars: tuple[Jar, ...]
    warehouse: Path | None
    logs: bool

    @classmethod
    def made(cls, options: ShellOptions, spark: SparkHome, environ: Mapping[str, str]) -> Self:
        """Return a shell with the options of the command and all default settings.

        Args:
            options: the options of the command.
            spark: the Spark installation.
            environ: the environment, with `JAVA_HOME`.

        Raises:
            UsageError: a mergeberg setting is malformed, or Spark's own settings cannot be read.
            RefusedError: a secret is in a setting that Spark would show.
            UnsupportedError: this version of Spark is not supported.
            DestinationError: PyIceberg's configuration cannot be read.
        """
        directory = Path(environ.get("SPARK_CONF_DIR") or spark.path / "conf")
        user = options.over(read_defaults(directory))
        settings = {**_defaults(user, directory), **user}
        jars = [] if _has(settings, _RUNTIME, spark) else [spark.iceberg()]
        warehouse = None
        if _LAKE not in user and LOCAL_CATALOG not in configured_catalogs():
            warehouse = local_directory(Path(user.get(_WAREHOUSE, "warehouse")))
            settings = {**_local_lake(warehouse), **settings}
            if not _has(settings, SQLITE.name, spark):
                jars.append(SQLITE)
        # Settings that every statement would refuse fail here, before the shell starts.
        SessionSettings.of(settings)
        logs = "log4j" not in settings.get(_DRIVER_OPTIONS, "") and not any(
            directory.glob("log4j2.*")
        )
        own = {
            "SPARK_HOME": str(spark.path),
            "PYSPARK_PYTHON": environ.get("PYSPARK_PYTHON", sys.executable),
            "PYSPARK_DRIVER_PYTHON": environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        }
        return cls(spark, {**environ, **own}, settings, tuple(jars), warehouse, logs)

    @property
    def lacks_lake(self) -> bool:
        """Whether Spark has no catalog `lake`: only PyIceberg's configuration has one."""
        return _LAKE not in self.settings

    def with_jars(self, notes: Notes) -> Shell:
        """Return the shell with its pinned jars in the settings; download those that are missing.

        Raises:
            SourceError: a jar cannot be downloaded.
            UsageError: the user has no cache directory.
        """
        found = {jar: find_jar(jar, self._places()) for jar in self.jars}
        missing = [jar for jar, file in found.items() if file is None]
        if missing:
            named = ", ".join(jar.coordinates for jar in missing)
            notes.note(f"fetching {named}, which Spark needs once")
            harmless = {n: text for n, text in self.environ.items() if not is_secret(n)}
            fetched = fetch_jars(missing, self.spark, harmless, self.settings)
            found |= dict(zip(missing, fetched, strict=True))
        given = [self.settings[_JARS]] if self.settings.get(_JARS) else []
        jars = ",".join((*given, *(str(file) for file in found.values() if file is not None)))
        with_all = merged({**self.settings, _JARS: jars})
        return replace(self, settings={**self.settings, **with_all}, jars=())

    def run(self, arguments: Sequence[str], *, python: bool = False) -> int:
        """Run the shell with this process's input and output; return its exit code.

        The shell handles Ctrl-C. This process passes SIGTERM and SIGHUP on to it.

        Args:
            arguments: arguments for the shell itself, passed on unchanged.
            python: run pyspark instead of spark-sql.

        Raises:
            DestinationError: the directory of the warehouse cannot be created.
        """
        self._make_warehouse()
        with _Running() as running, ScratchDirectory("shell") as scratch:
            settings = dict(self.settings)
            if self.logs:
                logs = scratch.path / "log4j2.properties"
                logs.write_text(_LOGS, encoding="utf-8")
                options = settings.get(_DRIVER_OPTIONS, "")
                quiet = f"-Dlog4j2.configurationFile={logs.as_uri()}"
                settings[_DRIVER_OPTIONS] = f"{options} {quiet}".strip()
            file = scratch.path / "spark.conf"
            write_properties(file, settings)
            program = self.spark.program(_SHELLS[python])
            return running.run([str(program), "--properties-file", str(file), *arguments], self)

    def _make_warehouse(self) -> None:
        """Create the directory in which Spark creates the catalog's file."""
        if self.warehouse is None:
            return
        try:
            self.warehouse.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = (
                f"Cannot create the directory {self.warehouse}: {error.strerror}. Name another one "
                f"with {Option.WAREHOUSE}."
            )
            raise DestinationError(message) from error

    def _places(self) -> list[Path]:
        """Return the directories that may have a jar: mergeberg's cache, and Spark's Ivy cache."""
        cache, home = cache_directory(self.environ), self.environ.get("HOME")
        ivy = self.settings.get("spark.jars.ivy") or (home and f"{home}/.ivy2.5.2")
        return [place / "jars" for place in (cache, Path(ivy) if ivy else None) if place]


class _Running:
    """Runs a program in the foreground, and passes signals on to it until the context ends."""

    def __init__(self) -> None:
        """Install the signal handlers."""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._pending: list[int] = []
        self._before = {
            number: signal.signal(number, self._pass_on)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            # Under nohup the signal is ignored, and stays so.
            if signal.getsignal(number) is not signal.SIG_IGN
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def run(self, command: Sequence[str], shell: Shell) -> int:
        """Run the program; return its exit code, or 128 plus the signal that ended it."""
        self._is_starting = True
        self._process = subprocess.Popen(command, env=dict(shell.environ))
        for number in self._pending:
            self._pass_on(number, None)
        code = self._process.wait()
        return _SIGNALLED - code if code < 0 else code

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._process is not None:
            # The terminal sends Ctrl-C to the shell itself.
            if number != signal.SIGINT:
                self._process.send_signal(number)
        elif self._is_starting:
            # The program may be running already, and must not be left without its parent.
            self._pending.append(number)
        else:
            raise SystemExit(_SIGNALLED + number)


def _defaults(user: Mapping[str, str], directory: Path) -> dict[str, str]:
    master = user.get("spark.master", "local[*]")
    made = {"spark.master": master, _HEADER: "true", **dict(default_settings(master))}
    if not (directory / "hive-site.xml").exists():
        # Otherwise Spark creates a Hive metastore in the working directory.
        made[_TABLES] = "in-memory"
    is_named = any(name.startswith(SOURCE) for name in user)
    if not is_named and f"spark.sql.catalog.{DEFAULT_SOURCE}" not in user:
        made[SOURCE + DEFAULT_SOURCE] = "chdb:./clickhouse"
    return {name: text for name, text in made.items() if name not in _NOT_FOR_SHELLS}


def _local_lake(root: Path) -> dict[str, str]:
    """Return the Spark settings of the built-in catalog.

    Raises:
        RefusedError: the path contains `?`, so that the JDBC driver would open another file.
    """
    if "?" in str(root):
        message = (
            f"Cannot use the warehouse {root} in a shell of Spark: text after ? in the path of a "
            "SQLite file is read as options there. Give the directory another name, or export with "
            f"{Command.EXPORT}, which takes any name."
        )
        raise RefusedError(message)
    return {
        _LAKE: "org.apache.iceberg.spark.SparkCatalog",
        f"{_LAKE}.type": "jdbc",
        f"{_LAKE}.uri": f"jdbc:sqlite:{root / LOCAL_CATALOG}.db",
        f"{_LAKE}.warehouse": local_location(root),
        f"{_LAKE}.jdbc.schema-version": "V1",
        _LEDGER: f"sqlite:{root / LEDGER_FILE}",
    }


def _has(settings: Mapping[str, str], jar: str, spark: SparkHome) -> bool:
    """Whether the settings name any release of a jar, or the Spark installation includes one."""
    is_named = any(jar in settings.get(name, "") for name in _WITH_JARS)
    return is_named or any((spark.path / "jars").glob(f"{jar}*.jar"))
