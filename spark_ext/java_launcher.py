"""Makes the small launcher that starts a Java without the module jdk.incubator.vector.

Spark's command always says `--add-modules=jdk.incubator.vector`, and a runtime that lacks the
module then refuses to start. The launcher is a directory with one file, `bin/java`: a shell script
that drops this argument and becomes the real java. Spark takes the directory as `JAVA_HOME`.

It lies in the user's cache directory under a name made of its content, so that it is written once
and any number of processes may use it. Where that directory cannot be used it lies in a temporary
directory that ends with the process.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["cache_directory", "launcher_home"]

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
    """Make the launcher of a java, or find the one that is there.

    Args:
        java: The real java.
        environ: Says where the user's cache directory is (`XDG_CACHE_HOME`, `HOME`).

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
    """Return where this user's files that can be made again lie; None when nothing says it.

    Args:
        environ: as for `launcher_home`.
    """
    for name, below in (("XDG_CACHE_HOME", "."), ("HOME", ".cache")):
        # A relative path would depend on the working directory; the XDG rules say to ignore it.
        if Path(environ.get(name, "")).is_absolute():
            return Path(environ[name], below, "mergeberg")
    return None


def _make_private(*directories: Path) -> bool:
    """Make directories, and tell whether nobody else decides what we start from them."""
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
    """Write the script unless it is there, and tell whether it may be started."""
    directory = home / "bin"
    directory.mkdir(exist_ok=True, mode=0o700)
    java = directory / "java"
    if not _is_script(java, script):
        # Written aside and renamed: another process sees a whole script or none.
        handle, name = tempfile.mkstemp(dir=directory, prefix="java-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(script)
        Path(name).chmod(0o700)
        Path(name).replace(java)
    return _is_private(directory) and _may_start(java)


def _is_script(java: Path, script: str) -> bool:
    return java.is_file() and java.read_text(encoding="utf-8") == script and _may_start(java)


def _may_start(java: Path) -> bool:
    """Tell whether the file may be executed; on a disk mounted noexec it may not."""
    return os.access(java, os.X_OK)


@functools.cache
def _temporary_launcher(script: str) -> Path:
    home = Path(tempfile.mkdtemp(prefix="mergeberg-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    _write_launcher(home, script)
    return home
