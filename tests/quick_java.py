"""Javas that live for seconds start sooner: most compiling is not worth it for them."""

from __future__ import annotations

from typing import Final

__all__ = ["JAVA_VARIABLES", "QUICK_JAVA"]

QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The options of such a Java."""
JAVA_VARIABLES: Final = dict.fromkeys(
    ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"), " ".join(QUICK_JAVA)
)
"""The environment of such Sparks."""
