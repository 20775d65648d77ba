"""Iceberg's runtime for Spark as the tests use it: the release that `mergeberg spark` takes.

    python -m tests.support.iceberg_runtime

fetches its jar, with the drivers that other tests need, 130 MB, from Maven's repository into
.readers/jars. The tests give them to Spark as `spark.jars`, which is what Spark makes of
`spark.jars.packages` when it has resolved them: that takes seconds, and one test shows it
(`local_repository`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_ext.engine.jars import ICEBERG, SQLITE, Jar, find_jar
from tableformat.errors import SourceError
from tests.services.maven_files import MavenFile, main_of

__all__ = [
    "AMAZON_CLIENT",
    "POSTGRESQL_DRIVER",
    "SQLITE_DRIVER",
    "VERSION",
    "check_runtime",
    "joined",
    "local_repository",
    "runtime_jar",
    "runtime_settings",
]

_RUNTIME: Final = ICEBERG["4.1"]
VERSION: Final = _RUNTIME.version
SQLITE_DRIVER: Final = SQLITE
POSTGRESQL_DRIVER: Final = Jar(
    "org.postgresql",
    "postgresql",
    "42.7.8",
    "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
)
AMAZON_CLIENT: Final = Jar(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    VERSION,
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
_ALL: Final = (_RUNTIME, SQLITE_DRIVER, POSTGRESQL_DRIVER, AMAZON_CLIENT)
_FOLDER: Final = Path(__file__).resolve().parents[2] / ".readers" / "jars"
_JARS: Final = "spark.jars"


def runtime_settings(memory: str, *drivers: Jar) -> dict[str, str]:
    """Return Spark's settings with which it has the runtime, and runs with so much memory.

    Args:
        memory: of the driver.
        drivers: what else catalogs in databases and files in S3 need.
    """
    jars = ",".join(str(_FOLDER / jar.file) for jar in (_RUNTIME, *drivers))
    return {_JARS: jars, "spark.driver.memory": memory}


def joined(*several: Mapping[str, str]) -> dict[str, str]:
    """Return several settings as one: the last of a name holds, but all jars are there."""
    made = {name: text for settings in several for name, text in settings.items()}
    return made | {_JARS: ",".join(one[_JARS] for one in several if _JARS in one)}


def local_repository(directory: Path) -> str:
    """Lay a repository of Maven into a directory, for a Spark that fetches; return its address."""
    for one in map(_file_of, _ALL):
        place = directory / one.path
        place.parent.mkdir(parents=True)
        place.symlink_to(_FOLDER / one.file)
    return directory.as_uri()


def runtime_jar() -> Path:
    """Return where the jar is, once it is fetched."""
    return _FOLDER / _RUNTIME.file


def check_runtime() -> None:
    """Check that what was fetched is what is meant.

    Raises:
        SourceError: the jar is another one.
    """
    jar = runtime_jar()
    if find_jar(_RUNTIME, (jar.parent,)) is None:
        message = (
            f"Cannot use Iceberg's runtime: {jar} has not the SHA-256 {_RUNTIME.sha256}. Remove it "
            "and fetch it: python -m tests.support.iceberg_runtime"
        )
        raise SourceError(message)


def _file_of(jar: Jar) -> MavenFile:
    return MavenFile(jar.group, jar.name, jar.version, "jar", jar.sha256, kept_as=jar.file)


if __name__ == "__main__":
    sys.exit(main_of([*map(_file_of, _ALL)], _FOLDER))
