"""Puts the jar for Spark into whatever hatchling builds: wheel, sdist, editable install.

| there is | what happens |
|---|---|
| `PKG-INFO`: this is an unpacked sdist | its jar is taken |
| a checkout | `python -m spark_ext.jvm.build`: the jar that is current, else a new one |
| neither works | the build fails, unless `MERGEBERG_NO_JAR=1` says to do without SQL |

The build of the jar is another process: it needs our packages and PySpark, and this file may need
neither, because in the isolated build of an sdist they are not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["JarBuildHook"]

_JAR: Final = "spark_ext/jvm/mergeberg-spark.jar"
_SKIP: Final = "MERGEBERG_NO_JAR"


class JarBuildHook(BuildHookInterface[Any]):
    """The hook that pyproject.toml names."""

    def dependencies(self) -> list[str]:
        """Return what an isolated build must have: all that our packages import, and a Java."""
        if self._is_sdist() or os.environ.get(_SKIP) == "1":
            return []
        return [*self.metadata.core.dependencies, *self.metadata.core.optional_dependencies["java"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make sure that the jar is there and current.

        Raises:
            RuntimeError: it is not, and cannot be made.
        """
        del version, build_data
        if os.environ.get(_SKIP) == "1":
            return
        if self._is_sdist():
            if not (Path(self.root) / _JAR).is_file():
                message = f"Cannot build mergeberg: this sdist has no {_JAR}. Fetch it anew."
                raise RuntimeError(message)
            return
        done = subprocess.run(
            [sys.executable, "-m", "spark_ext.jvm.build"],
            cwd=self.root,
            capture_output=True,
            check=False,
            text=True,
        )
        if done.returncode != 0:
            message = (
                f"Cannot build mergeberg: the jar for Spark was not made. {done.stderr.strip()} "
                f"Mend this, or set {_SKIP}=1 to do without Spark SQL."
            )
            raise RuntimeError(message)

    def _is_sdist(self) -> bool:
        return (Path(self.root) / "PKG-INFO").is_file()
