"""Spark's own shell with everything of mergeberg: its settings, and its run.

What the user says wins: --conf over the user's `spark-defaults.conf`, both over what is set here.
All of it goes into one file that only the user can open, so that no setting is in the list of
processes. The shell is no Python, so that a password in the environment stays there
(docs/operating/secrets.md): the Python that answers for it finds it as it would in a server's.
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
from spark_ext.sql.session_settings import SessionSettings
from spark_ext.sql.source_settings import SOURCE
from spark_ext.sql.statement_settings import SESSION
from tableformat.errors import DestinationError, RefusedError

__all__ = ["Shell", "Wanted"]


_LAKE: Final = f"spark.sql.catalog.{LOCAL_CATALOG}"
_LEDGER: Final = f"{SESSION}ledger"
_WAREHOUSE: Final = f"{SESSION}warehouse"
_JARS: Final = "spark.jars"
_WITH_JARS: Final = (_JARS, "spark.jars.packages", "spark.driver.extraClassPath")
_RUNTIME: Final = "iceberg-spark-runtime"
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
# What CALL answers is read by the names of its columns.
_HEADER: Final = "spark.sql.cli.print.header"
_TABLES: Final = "spark.sql.catalogImplementation"
# A shell runs the user's own queries, for which Spark's memory is right; and its logs are quiet
# from the first line, without a level that Spark would announce.
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
    """Who hears what is done before the shell is there."""

    def note(self, text: str) -> None:
        """Hear one sentence."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user says: None, or nothing, where Spark's own configuration or a default counts."""

    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    master: str | None = None
    warehouse: Path | None = None
    ledger: str | None = None

    def over(self, user: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of the user's configuration with what is said here over them."""
        said = {SOURCE + name: address for name, address in self.sources.items()}
        said |= self.conf
        if self.master is not None:
            said["spark.master"] = self.master
        if self.ledger is not None:
            said[_LEDGER] = self.ledger
        if self.warehouse is not None:
            said[_WAREHOUSE] = str(self.warehouse)
        return {**user, **said}


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell that can be started.

    Attributes:
        spark: the Spark whose shell it is.
        environ: the environment that it gets; `JAVA_HOME` is in it.
        settings: all of its settings, but the jars that are pinned; they hold secrets.
        jars: those that it needs besides.
        warehouse: the directory of the built-in lake, made when the shell starts; None for another.
        logs: whether the user says nothing of what Spark logs.
    """

    spark: SparkHome
    environ: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    jars: tuple[Jar, ...]
    warehouse: Path | None
    logs: bool

    @classmethod
    def made(cls, wanted: Wanted, spark: SparkHome, environ: Mapping[str, str]) -> Self:
        """Return the shell that the user wants.

        Args:
            wanted: what the user says.
            spark: whose shell it is.
            environ: with a `JAVA_HOME`.

        Raises:
            UsageError: a setting of ours is malformed, or Spark's own settings cannot be read.
            RefusedError: a secret stands where Spark shows it.
            UnsupportedError: no Iceberg fits this Spark.
            DestinationError: PyIceberg's configuration cannot be read.
        """
        directory = Path(environ.get("SPARK_CONF_DIR") or spark.path / "conf")
        user = wanted.over(read_defaults(directory))
        settings = {**_defaults(user, directory), **user}
        jars = [] if _has(settings, _RUNTIME, spark) else [spark.iceberg()]
        warehouse = None
        if _LAKE not in user and LOCAL_CATALOG not in configured_catalogs():
            warehouse = local_directory(Path(user.get(_WAREHOUSE, "warehouse")))
            settings = {**_local_lake(warehouse), **settings}
            if not _has(settings, SQLITE.name, spark):
                jars.append(SQLITE)
        # What a statement would refuse is said before a shell is waited for.
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
        """Whether Spark has no catalog `lake`, because only PyIceberg's configuration has one."""
        return _LAKE not in self.settings

    def with_jars(self, notes: Notes) -> Shell:
        """Return the shell with its jars, which are fetched when they are not here.

        Raises:
            SourceError: they cannot be fetched.
            UsageError: there is no place to keep them.
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
        """Run the shell on this process's own input and output; return its exit code.

        Ctrl-C is the shell's. What this process is told otherwise (SIGTERM, SIGHUP) is told to it.

        Args:
            arguments: its own, as they are.
            python: PySpark's instead of SQL's.

        Raises:
            DestinationError: the directory of the lake cannot be made.
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
        """Make the directory in which Spark makes the catalog's file."""
        if self.warehouse is None:
            return
        try:
            self.warehouse.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = (
                f"Cannot make the directory {self.warehouse}: {error.strerror}. Name another one "
                "with --warehouse."
            )
            raise DestinationError(message) from error

    def _places(self) -> list[Path]:
        """Return where a jar may be: what we fetched, and what Spark fetched for the user."""
        cache, home = cache_directory(self.environ), self.environ.get("HOME")
        ivy = self.settings.get("spark.jars.ivy") or (home and f"{home}/.ivy2.5.2")
        return [place / "jars" for place in (cache, Path(ivy) if ivy else None) if place]


class _Running:
    """A program that has the terminal, while this process only waits; undone when left."""

    def __init__(self) -> None:
        """Begin to pass on signals."""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._told_meanwhile: list[int] = []
        self._before = {
            number: signal.signal(number, self._told)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            # Whoever starts a command with nohup wants it deaf.
            if signal.getsignal(number) is not signal.SIG_IGN
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def run(self, command: Sequence[str], shell: Shell) -> int:
        """Run it to its end; return its exit code, of a signal as a shell of Unix would."""
        self._is_starting = True
        self._process = subprocess.Popen(command, env=dict(shell.environ))
        for number in self._told_meanwhile:
            self._told(number, None)
        code = self._process.wait()
        return _SIGNALLED - code if code < 0 else code

    def _told(self, number: int, _: FrameType | None) -> None:
        if self._process is not None:
            # The terminal tells Ctrl-C to the shell itself.
            if number != signal.SIGINT:
                self._process.send_signal(number)
        elif self._is_starting:
            # The program may run already; ending now would leave it alone.
            self._told_meanwhile.append(number)
        else:
            raise SystemExit(_SIGNALLED + number)


def _defaults(user: Mapping[str, str], directory: Path) -> dict[str, str]:
    master = user.get("spark.master", "local[*]")
    made = {"spark.master": master, _HEADER: "true", **dict(default_settings(master))}
    if not (directory / "hive-site.xml").exists():
        # Else Spark makes a metastore of Hive's in the working directory.
        made[_TABLES] = "in-memory"
    is_named = any(name.startswith(SOURCE) for name in user)
    if not is_named and f"spark.sql.catalog.{DEFAULT_SOURCE}" not in user:
        made[SOURCE + DEFAULT_SOURCE] = "chdb:./clickhouse"
    return {name: text for name, text in made.items() if name not in _NOT_FOR_SHELLS}


def _local_lake(root: Path) -> dict[str, str]:
    """Return the settings with which Spark opens what is the built-in catalog elsewhere.

    Raises:
        RefusedError: Java would open another file.
    """
    if "?" in str(root):
        message = (
            f"Cannot use the warehouse {root} in a shell of Spark: what follows ? in the path of a "
            "SQLite file is taken for options there. Give the directory another name, or export "
            "with `mergeberg export`, which takes any name."
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
    """Whether the user brings any release of a jar, or Spark has one built in."""
    said = any(jar in settings.get(name, "") for name in _WITH_JARS)
    return said or any((spark.path / "jars").glob(f"{jar}*.jar"))
