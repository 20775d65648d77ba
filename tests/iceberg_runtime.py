"""Iceberg's runtime for Spark as the tests use it: which release, from where, and its digest.

Spark fetches the jar from a repository of Maven and caches it; no jar is in this one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from tableformat.errors import SourceError

__all__ = [
    "POSTGRESQL_DRIVER",
    "SQLITE_DRIVER",
    "VERSION",
    "check_runtime",
    "runtime_jar",
    "runtime_settings",
]

VERSION: Final = "1.12.0"
SQLITE_DRIVER: Final = "org.xerial:sqlite-jdbc:3.54.1.0"
POSTGRESQL_DRIVER: Final = "org.postgresql:postgresql:42.7.8"
_GROUP: Final = "org.apache.iceberg"
_NAME: Final = "iceberg-spark-runtime-4.1_2.13"
_SHA256: Final = "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
_CACHE: Final = Path(__file__).resolve().parents[1] / ".readers" / "jars"
# A Java from PyPI trusts its own list of authorities; the system's may have more of them.
_SYSTEM_AUTHORITIES: Final = Path("/etc/ssl/certs/java/cacerts")


def runtime_settings(memory: str, *drivers: str) -> dict[str, str]:
    """Return Spark's settings with which it fetches the runtime, and runs with so much memory.

    Args:
        memory: of the driver.
        drivers: `SQLITE_DRIVER`, `POSTGRESQL_DRIVER`: what catalogs in databases need besides.
    """
    settings = {
        "spark.jars.packages": ",".join((f"{_GROUP}:{_NAME}:{VERSION}", *drivers)),
        "spark.jars.ivy": str(_CACHE),
        "spark.driver.memory": memory,
    }
    if _SYSTEM_AUTHORITIES.exists():
        trusted = f"-Djavax.net.ssl.trustStore={_SYSTEM_AUTHORITIES}"
        settings["spark.driver.extraJavaOptions"] = trusted
    return settings


def runtime_jar() -> Path:
    """Return where the jar is, once Spark has fetched it."""
    return _CACHE / "jars" / f"{_GROUP}_{_NAME}-{VERSION}.jar"


def check_runtime() -> None:
    """Check that what was fetched is what is meant.

    Raises:
        SourceError: the jar is another one.
    """
    jar = runtime_jar()
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != _SHA256:
        message = (
            f"Cannot use Iceberg's runtime: {jar} has the SHA-256 {found}, not {_SHA256}. Remove "
            "it and run again."
        )
        raise SourceError(message)
