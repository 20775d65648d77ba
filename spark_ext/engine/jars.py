"""Finds or downloads the jars that Spark needs in addition to mergeberg's own jar.

Each jar is pinned to one release. It is used only if its SHA-256 is the one listed here. Spark
downloads a missing jar once; it is kept in the user's cache directory (`~/.cache/mergeberg/jars`).
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
        """The Maven coordinates, as in `spark.jars.packages`."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file(self) -> str:
        """The file name that Spark gives to the downloaded jar."""
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
"""Iceberg's Spark runtime by Spark version; the pairs are those of `Versions.java`."""
SQLITE: Final = Jar(
    "org.xerial",
    "sqlite-jdbc",
    "3.54.1.0",
    "f8dce420a6016278497f4f0560f65602b9db858de141b541cf91a4644ebe4639",
)
"""The JDBC driver for SQLite catalogs."""

_OF_FETCHING: Final = (
    "spark.driver.extraJavaOptions",
    "spark.jars.ivySettings",
    "spark.jars.repositories",
)
_OPTIONS: Final = _OF_FETCHING[0]
_TRUST: Final = "-Djavax.net.ssl.trustStore="
# A Java from a package index has its own list of authorities; the machine's list also has those
# that the machine's administrator added.
_AUTHORITIES: Final = Path("/etc/ssl/certs/java/cacerts")
_ERRORS: Final = ":::: ERRORS"
_PROGRAM: Final = "spark-sql"
_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class SparkHome:
    """The directory of a Spark installation."""

    path: Path

    def program(self, name: str) -> Path:
        """Return the path of one of Spark's programs."""
        return self.path / "bin" / name

    def iceberg(self) -> Jar:
        """Return the Iceberg runtime for this version of Spark.

        Raises:
            UnsupportedError: this version of Spark is not supported.
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
    """Return the Java option to trust this machine's authorities; '' if it has no such list."""
    return f"{_TRUST}{_AUTHORITIES}" if _AUTHORITIES.exists() else ""


def jars_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of downloaded jars.

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
    """Return the file of a jar in the first directory that has it; None if none has it."""
    for place in places:
        file = place / jar.file
        if file.is_file() and _is(jar, file):
            return file
    return None


def fetch_jars(
    jars: Iterable[Jar], spark: SparkHome, environ: Mapping[str, str], conf: Mapping[str, str]
) -> tuple[Path, ...]:
    """Download jars with Spark, check their digests, and keep them in the cache directory.

    Args:
        jars: the jars to download.
        spark: the Spark installation, whose own package resolution downloads them.
        environ: the environment of Spark, with `JAVA_HOME` and without secrets.
        conf: the user's Spark settings; only those on repositories and Java options are used.

    Raises:
        SourceError: a jar could not be downloaded, or has another SHA-256.
        UsageError: the user has no cache directory.
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
        output = _usage(spark, file, environ)
        fetched = scratch.path / "jars"
        for jar in wanted:
            if find_jar(jar, (fetched,)) is None:
                raise _not_fetched(jar, fetched / jar.file, output, kept)
        return tuple(_kept(fetched / jar.file, kept) for jar in wanted)


def _usage(spark: SparkHome, properties: Path, environ: Mapping[str, str]) -> str:
    """Run `spark-sql -H`, which resolves packages and starts no session; return its output."""
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
    # Written to a temporary file and renamed, so that other processes never see half a jar.
    handle, aside = tempfile.mkstemp(dir=directory, prefix="fetched-")
    try:
        with os.fdopen(handle, "wb") as written, file.open("rb") as read:
            shutil.copyfileobj(read, written)
        return Path(aside).replace(directory / file.name)
    except BaseException:
        Path(aside).unlink()
        raise


def _not_fetched(jar: Jar, file: Path, output: str, kept: Path) -> SourceError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if file.exists():
        why = f"the downloaded file does not have the SHA-256 {jar.sha256}"
    elif _ERRORS in lines[:-1]:
        why = lines[lines.index(_ERRORS) + 1]
    else:
        why = next((line for line in lines if "xception" in line), lines[-1] if lines else "")
    return SourceError(
        f"Cannot fetch {jar.coordinates}, which Spark needs once: {why.rstrip('.')}. Connect to "
        "Maven Central; or name a repository that has it with --conf spark.jars.repositories=URL; "
        f"or copy the jar to {kept / jar.file}."
    )
