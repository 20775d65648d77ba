"""The jars that Spark needs besides ours, each in one release: found, or fetched once by Spark.

A jar is used only when its SHA-256 is the one that stands here, wherever it comes from. What was
fetched is kept in the user's cache directory (`~/.cache/mergeberg/jars`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.processes import ScratchDirectory
from spark_ext.engine.java import cache_directory
from spark_ext.engine.session import write_properties
from tableformat.errors import SourceError, UnsupportedError, UsageError

__all__ = [
    "ICEBERG",
    "SQLITE",
    "Jar",
    "SparkHome",
    "fetch_jars",
    "find_jar",
    "jars_directory",
    "system_trust",
]


@dataclass(frozen=True, slots=True)
class Jar:
    """One release of a jar in a Maven repository."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """What `spark.jars.packages` calls it."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file(self) -> str:
        """The name of the file that Spark keeps it as."""
        return f"{self.group}_{self.name}-{self.version}.jar"


ICEBERG: Final = {
    "4.1": Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    "4.0": Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.0_2.13",
        "1.11.0",
        "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc",
    ),
}
"""Iceberg's runtime by the Spark that it is for; the pairs are those of `Versions.java`."""
SQLITE: Final = Jar(
    "org.xerial",
    "sqlite-jdbc",
    "3.54.1.0",
    "f8dce420a6016278497f4f0560f65602b9db858de141b541cf91a4644ebe4639",
)
"""The driver for catalogs in SQLite."""

_OF_FETCHING: Final = (
    "spark.driver.extraJavaOptions",
    "spark.jars.ivySettings",
    "spark.jars.repositories",
)
_OPTIONS: Final = _OF_FETCHING[0]
_TRUST: Final = "-Djavax.net.ssl.trustStore="
# A Java from a package index trusts a list of its own; the machine's has its owner's authorities.
_AUTHORITIES: Final = Path("/etc/ssl/certs/java/cacerts")
_ERRORS: Final = ":::: ERRORS"
_PROGRAM: Final = "spark-sql"
_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class SparkHome:
    """Where a Spark is installed."""

    path: Path

    def program(self, name: str) -> Path:
        """Return one of its programs."""
        return self.path / "bin" / name

    def iceberg(self) -> Jar:
        """Return the Iceberg that fits this Spark.

        Raises:
            UnsupportedError: none does.
        """
        cores = sorted((self.path / "jars").glob("spark-core_*.jar"))
        version = cores[0].stem.rpartition("-")[2] if cores else "of an unknown version"
        jar = ICEBERG.get(".".join(version.split(".")[:2]))
        if jar is None:
            message = (
                f"Cannot start Spark's shell: the Spark in {self.path} is {version}, and mergeberg "
                f"works with {' and '.join(ICEBERG)}. Unset SPARK_HOME, so that the Spark that was "
                "installed with mergeberg is taken."
            )
            raise UnsupportedError(message)
        return jar


def system_trust() -> str:
    """Return Java's option to trust the authorities of this machine, '' where none are listed."""
    return f"{_TRUST}{_AUTHORITIES}" if _AUTHORITIES.exists() else ""


def jars_directory(environ: Mapping[str, str]) -> Path:
    """Return where fetched jars are kept.

    Raises:
        UsageError: the user has no cache directory.
    """
    cache = cache_directory(environ)
    if cache is None:
        message = (
            "Cannot keep the jars that Spark needs: neither XDG_CACHE_HOME nor HOME names a "
            "directory. Set HOME, or name the jars with --conf spark.jars=FILE,FILE."
        )
        raise UsageError(message)
    return cache / "jars"


def find_jar(jar: Jar, places: Iterable[Path]) -> Path | None:
    """Return the file that is the jar, of several directories where it may be; None without one."""
    for place in places:
        file = place / jar.file
        if file.is_file() and _is(jar, file):
            return file
    return None


def fetch_jars(
    jars: Iterable[Jar], spark: SparkHome, environ: Mapping[str, str], conf: Mapping[str, str]
) -> tuple[Path, ...]:
    """Let Spark fetch jars, check them, and keep them.

    Args:
        jars: which.
        spark: the Spark that fetches, by its own resolution of packages.
        environ: with a `JAVA_HOME`; no secret in it.
        conf: the user's settings of Spark, of which those of repositories and Java are used.

    Raises:
        SourceError: they could not be fetched, or are others than they should be.
        UsageError: there is no place to keep them.
    """
    wanted = tuple(jars)
    kept = jars_directory(environ)
    settings = {name: conf[name] for name in _OF_FETCHING if name in conf}
    options, trusted = settings.get(_OPTIONS, ""), system_trust()
    if trusted and _TRUST not in options:
        settings[_OPTIONS] = f"{options} {trusted}".strip()
    with ScratchDirectory("jars") as scratch:
        settings["spark.jars.packages"] = ",".join(jar.coordinates for jar in wanted)
        settings["spark.jars.ivy"] = str(scratch.path)
        file = scratch.path / "fetching.conf"
        write_properties(file, settings)
        said = _usage(spark, file, environ)
        fetched = scratch.path / "jars"
        for jar in wanted:
            if find_jar(jar, (fetched,)) is None:
                raise _not_fetched(jar, fetched / jar.file, said, kept)
        return tuple(_kept(fetched / jar.file, kept) for jar in wanted)


def _usage(spark: SparkHome, properties: Path, environ: Mapping[str, str]) -> str:
    """Ask for its usage: it starts no session, and its packages are there by then."""
    try:
        return subprocess.run(
            [spark.program(_PROGRAM), "--properties-file", properties, "-H"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        ).stdout
    except subprocess.TimeoutExpired:
        return f"{_PROGRAM} has not ended within {_SECONDS} seconds"


def _is(jar: Jar, file: Path) -> bool:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == jar.sha256


def _kept(file: Path, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Written aside and renamed: another process sees a whole jar or none.
    handle, aside = tempfile.mkstemp(dir=directory, prefix="fetched-")
    try:
        with os.fdopen(handle, "wb") as written, file.open("rb") as read:
            shutil.copyfileobj(read, written)
        return Path(aside).replace(directory / file.name)
    except BaseException:
        Path(aside).unlink()
        raise


def _not_fetched(jar: Jar, file: Path, said: str, kept: Path) -> SourceError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if file.exists():
        why = f"what came has not the SHA-256 {jar.sha256}"
    elif _ERRORS in lines[:-1]:
        why = lines[lines.index(_ERRORS) + 1]
    else:
        why = next((line for line in lines if "xception" in line), lines[-1] if lines else "")
    return SourceError(
        f"Cannot fetch {jar.coordinates}, which Spark needs once: {why.rstrip('.')}. Connect to "
        "Maven Central; or name a repository that has it with --conf spark.jars.repositories=URL; "
        f"or copy the jar to {kept / jar.file}."
    )
