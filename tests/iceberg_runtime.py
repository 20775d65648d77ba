"""Iceberg's runtime for Spark as the tests use it: the release that `mergeberg spark` takes.

Spark fetches the jar from a repository of Maven and caches it; no jar is in this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from spark_ext.pinned_jars import ICEBERG, SQLITE, find_jar, system_trust
from tableformat.errors import SourceError

__all__ = [
    "AMAZON_CLIENT",
    "DRIVERS",
    "POSTGRESQL_DRIVER",
    "SQLITE_DRIVER",
    "VERSION",
    "check_runtime",
    "runtime_jar",
    "runtime_settings",
]

_RUNTIME: Final = ICEBERG["4.1"]
VERSION: Final = _RUNTIME.version
SQLITE_DRIVER: Final = SQLITE.coordinates
POSTGRESQL_DRIVER: Final = "org.postgresql:postgresql:42.7.8"
AMAZON_CLIENT: Final = f"org.apache.iceberg:iceberg-aws-bundle:{VERSION}"
DRIVERS: Final = (SQLITE_DRIVER, POSTGRESQL_DRIVER, AMAZON_CLIENT)
"""All that tests need besides; fetched before them, since two must not fetch into one directory."""
_CACHE: Final = Path(__file__).resolve().parents[1] / ".readers" / "jars"


def runtime_settings(memory: str, *drivers: str) -> dict[str, str]:
    """Return Spark's settings with which it fetches the runtime, and runs with so much memory.

    Args:
        memory: of the driver.
        drivers: of `DRIVERS`: what catalogs in databases and files in S3 need besides.
    """
    assert set(drivers) <= set(DRIVERS), drivers
    settings = {
        "spark.jars.packages": ",".join((_RUNTIME.coordinates, *drivers)),
        "spark.jars.ivy": str(_CACHE),
        "spark.driver.memory": memory,
    }
    if trusted := system_trust():
        settings["spark.driver.extraJavaOptions"] = trusted
    return settings


def runtime_jar() -> Path:
    """Return where the jar is, once Spark has fetched it."""
    return _CACHE / "jars" / _RUNTIME.file


def check_runtime() -> None:
    """Check that what was fetched is what is meant.

    Raises:
        SourceError: the jar is another one.
    """
    jar = runtime_jar()
    if find_jar(_RUNTIME, (jar.parent,)) is None:
        message = (
            f"Cannot use Iceberg's runtime: {jar} has not the SHA-256 {_RUNTIME.sha256}. Remove it "
            "and run again."
        )
        raise SourceError(message)
