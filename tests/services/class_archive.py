"""Makes the archive of classes with which the Sparks of tests start in half the time.

A Java machine writes it when it ends, with the classes that it had loaded: those of a session that
reads and writes an Iceberg table and runs Python.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from spark_ext.engine.java import find_java
from tests.support.iceberg_spark import catalog_settings, iceberg_spark
from tests.support.quick_java import ARCHIVE, QUICK_JAVA

__all__: list[str] = []

# Java 21 leaves what stands twice out of the class path that it compares with, as slf4j stands in
# Spark's, and takes no archive of it.
_VERSION: Final = 17


def _make(archive: Path) -> None:
    """Run such a session, and let its machine write the archive."""
    # Renamed when it is whole: one that was interrupted would be read by every later Java.
    begun = archive.with_suffix(".begun")
    begun.unlink(missing_ok=True)
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        options = (*QUICK_JAVA, f"-XX:ArchiveClassesAtExit={begun}")
        patch.setenv("SPARK_SUBMIT_OPTS", " ".join(options))
        lake = catalog_settings(
            "lake", type="jdbc", uri=f"jdbc:sqlite:{name}/lake.db", warehouse=f"file://{name}/lake"
        )
        with iceberg_spark(Path(name), lake) as session:
            session.sql("CREATE TABLE lake.n.t (a INT, b STRING) USING iceberg PARTITIONED BY (a)")
            session.sql("INSERT INTO lake.n.t VALUES (1, 'x'), (2, 'y')")
            session.sql("DELETE FROM lake.n.t WHERE a = 1")
            frame = session.sql("SELECT a, count(*) FROM lake.n.t GROUP BY a ORDER BY a")
            assert frame.rdd.map(tuple).collect() == [(2, 1)]
    begun.replace(archive)


def main() -> None:
    """Make the archive, or say why there is none."""
    java = find_java(os.environ)
    if java.version == _VERSION:
        _make(ARCHIVE)
    else:
        sys.stderr.write(f"no archive of classes: it is for Java {_VERSION} alone, not {java}\n")


if __name__ == "__main__":
    main()
