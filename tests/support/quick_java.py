"""Javas that live for seconds start sooner: most compiling is not worth it for them.

Half of what a Spark of a test does is to load and verify its classes. An archive of them (class
data sharing of the Java machine), which `make test` makes once, halves the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from spark_ext.engine.java import ARCHIVE_SWITCH

__all__ = ["ARCHIVE", "JAVA_VARIABLES", "QUICK_JAVA"]

QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The options of such a Java."""
ARCHIVE: Final = Path(__file__).resolve().parents[2] / ".readers" / "spark.jsa"
"""The classes of Spark and Iceberg, once `tests.services.class_archive` has made it."""
# A machine or a class path that it is not of runs without it; nobody's output is to say so.
_ARCHIVED: Final = (
    f"-XX:SharedArchiveFile={ARCHIVE}",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
    # At the address for which it was written: at a random one, a second goes by to mend it.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ArchiveRelocationMode=0",
)

JAVA_VARIABLES: Final = {
    "SPARK_SUBMIT_OPTS": " ".join((*QUICK_JAVA, *(_ARCHIVED if ARCHIVE.is_file() else ()))),
    "SPARK_LAUNCHER_OPTS": " ".join(QUICK_JAVA),
    # No command of a test leaves a process that writes an archive.
    ARCHIVE_SWITCH: "off",
}
"""The environment of such Sparks."""
