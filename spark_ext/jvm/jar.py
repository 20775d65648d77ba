"""Where the jar for Spark lies, and what it was made of. The file is made by `build.py`."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final

from tableformat.errors import NotFoundError

__all__ = ["DIGEST", "JAR", "MANIFEST", "made_of", "require_jar"]

JAR: Final = Path(__file__).resolve().with_name("mergeberg-spark.jar")
"""Beside this file, in a checkout as in an installed wheel; never committed."""

MANIFEST: Final = "META-INF/MANIFEST.MF"
DIGEST: Final = "Inputs"
"""The entry of the manifest with the SHA-256 of the sources and the resource."""


def require_jar() -> Path:
    """Return the path of the jar.

    Raises:
        NotFoundError: this installation has none.
    """
    if not JAR.is_file():
        message = (
            f"Cannot set Spark up: this installation has no {JAR}. Install mergeberg from a wheel, "
            "or run `python -m spark_ext.jvm.build` in a checkout."
        )
        raise NotFoundError(message)
    return JAR


def made_of(jar: Path) -> str | None:
    """Return the digest of what a jar was made of; None when there is no such jar."""
    try:
        with zipfile.ZipFile(jar) as archive:
            manifest = archive.read(MANIFEST).decode()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return None
    found = re.search(rf"^{DIGEST}: ([0-9a-f]+)\r?$", manifest, re.MULTILINE)
    return found[1] if found else None
