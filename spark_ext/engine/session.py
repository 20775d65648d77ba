"""Starts the Spark session of the command line, and reads and writes `spark-defaults.conf`.

The session uses the Java that was found and this Python interpreter; JVM output goes to a file.
The Python API uses the caller's session instead. A task needs about `TASK_MEMORY` per slot
outside the JVM (Python, ClickHouse, Parquet). Local mode has no limit on it; a cluster's limit is
`spark.executor.memoryOverhead`.

Settings files are Java property files (java.util.Properties, `load`). Spark takes the names that
begin with `spark.`, and strips blanks around values. Only the owner can read a file that this
module writes, because settings may be secret.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from catalog.secret_variables import harmless_environment, is_secret
from spark_ext.engine.java import (
    ClassArchive,
    archive_of,
    check_archive,
    find_java,
    start_options,
)
from tableformat.errors import SourceError, UsageError

__all__ = [
    "TASK_MEMORY",
    "SparkSettings",
    "default_settings",
    "open_session",
    "parse_properties",
    "read_defaults",
    "render_properties",
    "slots",
    "write_properties",
]

TASK_MEMORY: Final = 800 * 1024 * 1024
"""Bytes outside the JVM to plan for each task slot (docs/operating/benchmarks.md)."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings with which the command line starts Spark; `conf` overrides the defaults."""

    master: str = "local[*]"
    conf: tuple[tuple[str, str], ...] = ()


def open_session(settings: SparkSettings, *, log: Path | None = None) -> SparkSession:
    """Return the active session of this process, or start one.

    Args:
        settings: master and configuration.
        log: the file for the output of the JVM; None for a temporary one.

    Raises:
        NotFoundError: no Java version that Spark supports is installed.
        SourceError: Spark did not start; the message has the end of its log.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    java = find_java(harmless_environment())
    archive = archive_of(java, settings.master, settings.conf, os.environ)
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = SparkConf().setAll(default_settings(settings.master)).setAll(list(settings.conf))
    conf.setMaster(settings.master).setAppName("mergeberg")
    with log.open("wb") if log else tempfile.TemporaryFile(prefix="mergeberg-spark-") as output:
        try:
            context = SparkContext(gateway=_start_java(conf, archive, output), conf=conf)
            return SparkSession(context)
        except (PySparkException, OSError, RuntimeError) as error:
            output.flush()
            raise SourceError(_not_started(error, output.fileno())) from error


def _start_java(conf: SparkConf, archive: ClassArchive | None, output: IO[bytes]) -> JavaGateway:
    """Start the JVM with its archive of classes, and if it does not start so, without."""
    options = () if archive is None else start_options(archive)
    try:
        gateway = _launch(conf, options, output)
    except (PySparkException, OSError, RuntimeError):
        if archive is None or not check_archive(archive, options, None):
            raise
        return _launch(conf, (), output)
    if archive is not None:
        check_archive(archive, options, gateway.jvm.java.lang.System.getProperty("java.vm.info"))
    return gateway


def _launch(conf: SparkConf, options: tuple[str, ...], output: IO[bytes]) -> JavaGateway:
    with _without_secrets(), _quick_java(conf.get("spark.master") or "", options):
        return launch_gateway(  # type: ignore[no-untyped-call]
            conf=conf, popen_kwargs={"stderr": output, "stdout": output}
        )


@contextlib.contextmanager
def _without_secrets() -> Iterator[None]:
    """Remove secrets from the environment while a process is started.

    The JVM and its Python workers inherit the environment and need no secret from it: tasks get
    theirs in a broadcast. `SourcePlace` and `OpenedCatalog` have copied theirs before.
    """
    held = {name: os.environ.pop(name) for name in [*os.environ] if is_secret(name)}
    try:
        yield
    finally:
        os.environ.update(held)


_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
# Half of the CPU time of a short run went into the second compiler. The JVM of a local Spark moves
# no rows: Python workers do (docs/operating/benchmarks.md).
_QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1"


@contextlib.contextmanager
def _quick_java(master: str, options: tuple[str, ...]) -> Iterator[None]:
    """Let the JVM of a local Spark that is started use one compiler; the user's options win.

    Args:
        master: the master URL.
        options: further options for this JVM.
    """
    given = os.environ.get(_JAVA_OPTIONS)
    if not master.startswith("local"):
        yield
        return
    # An option on the command line would replace the user's in spark-defaults.conf.
    os.environ[_JAVA_OPTIONS] = " ".join((_QUICK_JAVA, *options, given or "")).rstrip()
    try:
        yield
    finally:
        del os.environ[_JAVA_OPTIONS]
        if given is not None:
            os.environ[_JAVA_OPTIONS] = given


def default_settings(master: str) -> list[tuple[str, str]]:
    """Return the default settings of a Spark that the command line starts."""
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
    """Return the number of parallel tasks, as far as the master URL shows it, else 1."""
    inside = master.partition("[")[2].rstrip("]").split(",")[0]
    if inside.isdecimal():
        return int(inside)
    return _processors() if master.startswith("local[*") else 1


def _processors() -> int:
    """Return the number of processors this process may use; on macOS, of all processors."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_OURS: Final = "spark."
_BLANKS: Final = " \t\f"
_LINES: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
_BETWEEN: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPED: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {text: "\\" + letter for letter, text in _CONTROLS.items()}
_OF_NAMES: Final = frozenset("\\=:#! ")
_OF_VALUES: Final = frozenset("\\ ")


def read_defaults(directory: Path) -> dict[str, str]:
    """Return the settings in `spark-defaults.conf`; empty if the file does not exist.

    Args:
        directory: `SPARK_CONF_DIR`, or `conf` below `SPARK_HOME`.

    Raises:
        UsageError: the file cannot be read.
    """
    file = directory / "spark-defaults.conf"
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return {}
    except OSError as error:
        message = f"Cannot read Spark's settings {file}: {error.strerror}. Check its rights."
        raise UsageError(message) from error
    found = parse_properties(text).items()
    return {name: value.strip() for name, value in found if name.startswith(_OURS)}


def write_properties(file: Path, settings: Mapping[str, str]) -> None:
    """Write a property file that only its owner can read.

    Args:
        file: the path of the file, which must not exist.
        settings: the values by name.

    Raises:
        OSError: the file exists or cannot be created.
    """
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as opened:
        opened.write(render_properties(settings))


def parse_properties(text: str) -> dict[str, str]:
    """Parse a property file; if a name occurs twice, the last value counts."""
    found = {}
    for line in _logical_lines(text):
        name = _KEY.match(line)
        end = name.end() if name else 0
        between = _BETWEEN.match(line, end)
        found[_unescaped(line[:end])] = _unescaped(line[between.end() if between else end :])
    return found


def render_properties(settings: Mapping[str, str]) -> str:
    """Return the text of a property file with these settings, in order."""
    return "".join(
        f"{_escaped(name, _OF_NAMES)}={_escaped(value, _OF_VALUES)}\n"
        for name, value in settings.items()
    )


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without blank and comment lines, each joined with its continuation lines."""
    held = ""
    for natural in _LINES.split(text):
        line = natural.lstrip(_BLANKS)
        if not held and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        held += line.removesuffix("\\") if continues else line
        if not continues:
            yield held
            held = ""
    if held:
        yield held


def _unescaped(text: str) -> str:
    def unescape(escaped: re.Match[str]) -> str:
        letters = escaped[1]
        if len(letters) > 1:
            return chr(int(letters[1:], 16))
        return _CONTROLS.get(letters, letters)

    # Java escapes UTF-16 units, so that one character can be two escapes.
    units = _ESCAPED.sub(unescape, text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escaped(text: str, marked: frozenset[str]) -> str:
    return "".join(_WRITTEN.get(c, f"\\{c}" if c in marked else c) for c in text)
