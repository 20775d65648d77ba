"""Builds the jar for Spark, unless it is current: `python -m spark_ext.jvm.build`.

The jar has the same bytes on every machine: one compiler, sorted entries, one fixed time, and no
compression, because compressors differ. The manifest holds the digest of all inputs, so a stale
jar is detected without compiling.

The compiler is Eclipse's at a pinned release, a jar that runs on Java 17 or 21; no JDK is needed.
Ivy, which is among PySpark's jars, downloads it from where Ivy is configured to look. Its digest
is checked, and the file is kept in the user's cache directory. `MERGEBERG_ECJ` names a file to
use instead.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyspark

from spark_ext.engine.java import find_java
from spark_ext.jvm.jar import DIGEST, JAR, MANIFEST, RESOURCE, made_of, render_resource
from spark_ext.sql.dispatch import PROCEDURES, TABLES
from tableformat.errors import NotFoundError, SourceError, TableFormatError, UsageError

__all__ = [
    "COMPILER",
    "build",
    "compile_sources",
    "find_compiler",
    "inputs_digest",
    "is_current",
    "write_jar",
]

_VERSION: Final = "3.42.0"
_SHA256: Final = "29f6d3918ee02db4400c103bc25dd90a22491c3a395867d9393070cb96a7dd29"
COMPILER: Final = f"org.eclipse.jdt:ecj:{_VERSION}"
_FILE: Final = f"ecj-{_VERSION}.jar"
_MAIN: Final = "org.eclipse.jdt.internal.compiler.batch.Main"
_OPTIONS: Final = ("-17", "-g:lines,source", "-proc:none", "-encoding", "UTF-8", "-failOnWarning")
# The compiler runs for seconds only, too short for optimizing its own code.
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SECONDS: Final = 300
# A Java from PyPI trusts its own list of authorities; the system's may have more of them.
_SYSTEM_AUTHORITIES: Final = Path("/etc/ssl/certs/java/cacerts")


def compile_sources(sources: Sequence[Path], directory: Path) -> None:
    """Compile Java sources against the jars of the installed PySpark.

    Args:
        sources: the source files.
        directory: the directory for the class files.

    Raises:
        NotFoundError: there is no Java, or the compiler cannot be downloaded.
        UsageError: the sources do not compile; the message has the compiler's output.
        SourceError: the compiler exceeded its time limit.
    """
    compiler = find_compiler(os.environ)
    classes = os.pathsep.join(str(jar) for jar in sorted(_spark_jars().glob("*.jar")))
    arguments = [*_OPTIONS, "-classpath", classes, "-d", str(directory), *map(str, sources)]
    # An argument file, because the class path exceeds the command line limit of some systems.
    with tempfile.NamedTemporaryFile("w", suffix=".args", encoding="utf-8") as file:
        file.write("\n".join(f'"{argument}"' for argument in arguments))
        file.flush()
        done = _java("-cp", str(compiler), _MAIN, f"@{file.name}")
    if done.returncode != 0:
        message = f"Cannot compile the Java sources: {done.stdout}{done.stderr}"
        raise UsageError(message)


def find_compiler(environ: Mapping[str, str]) -> Path:
    """Return the compiler's jar: from MERGEBERG_ECJ, or the cache, or by a download.

    Args:
        environ: usually `os.environ`.

    Raises:
        NotFoundError: the compiler cannot be downloaded, or has another SHA-256.
        SourceError: the download exceeded its time limit.
    """
    given = environ.get("MERGEBERG_ECJ")
    if given:
        return _checked(Path(given))
    cached = _cache(environ) / _FILE
    if not cached.is_file():
        _fetch(cached)
    return _checked(cached)


def _cache(environ: Mapping[str, str]) -> Path:
    root = environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "mergeberg"


def _checked(jar: Path) -> Path:
    found = hashlib.sha256(jar.read_bytes()).hexdigest() if jar.is_file() else "no file"
    if found != _SHA256:
        message = (
            f"Cannot use the Java compiler {jar}: its SHA-256 is {found}, that of {COMPILER} is "
            f"{_SHA256}. Remove the file, or name the right one by MERGEBERG_ECJ."
        )
        raise NotFoundError(message)
    return jar


def _fetch(cached: Path) -> None:
    """Download the compiler with Ivy; rename it into place, so that no partial file appears."""
    (ivy,) = _spark_jars().glob("ivy-*.jar")
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mergeberg-ivy-", dir=cached.parent) as work:
        done = _java(
            *_trust(),
            *("-jar", str(ivy), "-cache", f"{work}/cache", "-confs", "default"),
            *("-dependency", *COMPILER.split(":"), "-retrieve", f"{work}/[artifact].[ext]"),
        )
        fetched = Path(work) / "ecj.jar"
        if done.returncode != 0 or not fetched.is_file():
            message = (
                f"Cannot fetch the Java compiler {COMPILER}: {_end(done.stdout + done.stderr)}. "
                "Name a file that you have by MERGEBERG_ECJ."
            )
            raise NotFoundError(message)
        fetched.replace(cached)


def _java(*arguments: str) -> subprocess.CompletedProcess[str]:
    java = find_java(os.environ).home / "bin" / "java"
    try:
        return subprocess.run(
            [str(java), *_QUICK, *arguments],
            capture_output=True,
            check=False,
            errors="replace",
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        message = (
            f"Cannot compile the Java sources: {java} has not ended within {_SECONDS} seconds. Run "
            "it again; where nothing can be fetched, name the compiler by MERGEBERG_ECJ."
        )
        raise SourceError(message) from error


def _trust() -> tuple[str, ...]:
    if _SYSTEM_AUTHORITIES.exists():
        return (f"-Djavax.net.ssl.trustStore={_SYSTEM_AUTHORITIES}",)
    return ()


def _spark_jars() -> Path:
    return Path(pyspark.__file__).resolve().parent / "jars"


def _end(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-5:]) or "it printed nothing"


_SOURCES: Final = Path(__file__).resolve().with_name("src")
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def build() -> Path:
    """Build the jar unless it is current, and return its path.

    Raises:
        NotFoundError: there is no Java, or the compiler cannot be downloaded.
        UsageError: the sources do not compile.
        SourceError: Java exceeded its time limit.
    """
    if not is_current():
        with tempfile.TemporaryDirectory(prefix="mergeberg-jar-") as directory:
            compile_sources(_sources(), Path(directory))
            classes = {
                path.relative_to(directory).as_posix(): path.read_bytes()
                for path in Path(directory).rglob("*.class")
            }
        write_jar(JAR, classes | {RESOURCE: _resource().encode()}, inputs_digest())
    return JAR


def is_current() -> bool:
    """Whether the jar was built from the current sources and declarations."""
    return made_of(JAR) == inputs_digest()


def inputs_digest() -> str:
    """Return the SHA-256 of the jar's inputs: sources, resource and compiler release."""
    digest = hashlib.sha256(COMPILER.encode())
    for path in _sources():
        digest.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    digest.update(b"\0" + _resource().encode())
    return digest.hexdigest()


def write_jar(path: Path, entries: Mapping[str, bytes], digest: str) -> None:
    """Write a jar whose bytes depend on the arguments only; rename it into place.

    Args:
        path: the path of the jar; an existing file is replaced.
        entries: the contents of the files by name.
        digest: the digest of the inputs, for the manifest.
    """
    manifest = f"Manifest-Version: 1.0\r\n{DIGEST}: {digest}\r\n\r\n"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        # The manifest must be the first entry of a jar.
        for entry, content in [(MANIFEST, manifest.encode()), *sorted(entries.items())]:
            archive.writestr(zipfile.ZipInfo(entry, _TIME), content)
    Path(name).chmod(0o644)
    Path(name).replace(path)


def _sources() -> list[Path]:
    return sorted(_SOURCES.rglob("*.java"))


@functools.cache
def _resource() -> str:
    return render_resource(PROCEDURES.values(), TABLES.values())


def main() -> int:
    """Build the jar; return the exit code."""
    try:
        sys.stdout.write(f"{build()}\n")
    except TableFormatError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
