"""Adds the jar for Spark to everything that hatchling builds: wheel, sdist, editable install.

| the directory has | the hook |
|---|---|
| `PKG-INFO` (an unpacked sdist) | uses the jar in it |
| a checkout | runs `python -m spark_ext.jvm.build`, unless the jar is current |
| no jar in the end | fails, unless `MERGEBERG_NO_JAR=1` builds without Spark SQL |

The jar is built in another process, because that needs mergeberg's packages and PySpark. This file
must not import them: the isolated build of an sdist does not have them.
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
    """The build hook in pyproject.toml."""

    def dependencies(self) -> list[str]:
        """Return the packages for an isolated build: mergeberg's dependencies and a Java."""
        if self._is_sdist() or os.environ.get(_SKIP) == "1":
            return []
        return [*self.metadata.core.dependencies, *self.metadata.core.optional_dependencies["java"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make sure that the jar exists and is current.

        Raises:
            RuntimeError: the jar is missing and cannot be built.
        """
        del version, build_data
        if os.environ.get(_SKIP) == "1":
            return
        if self._is_sdist():
            if not (Path(self.root) / _JAR).is_file():
                message = f"Cannot build mergeberg: this sdist has no {_JAR}. Download it again."
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
                f"Fix this, or set {_SKIP}=1 to do without Spark SQL."
            )
            raise RuntimeError(message)

    def _is_sdist(self) -> bool:
        return (Path(self.root) / "PKG-INFO").is_file()
