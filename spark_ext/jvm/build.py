"""Makes the jar for Spark: `python -m spark_ext.jvm.build`, which does nothing when it is current.

The bytes are the same on every machine: one compiler (`compiler.py`), sorted entries, one fixed
time, nothing compressed, because compressors differ. The manifest names the digest of all that went
in, so that a stale jar is known without compiling.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_ext.jvm.compiler import COMPILER, compile_sources
from spark_ext.jvm.jar import DIGEST, JAR, MANIFEST, made_of
from spark_ext.jvm.resource import RESOURCE, render_resource
from spark_ext.procedures.registry import PROCEDURES, TABLES
from tableformat.errors import TableFormatError

__all__ = ["build", "inputs_digest", "is_current", "write_jar"]

_SOURCES: Final = Path(__file__).resolve().with_name("src")
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def build() -> Path:
    """Make the jar unless it is current, and return its path.

    Raises:
        NotFoundError: there is no Java, or the compiler cannot be had.
        UsageError: the sources do not compile.
        SourceError: Java has not ended in time.
    """
    if not is_current():
        with tempfile.TemporaryDirectory(prefix="mergeberg-jar-") as directory:
            compile_sources(_sources(), Path(directory))
            classes = {
                path.relative_to(directory).as_posix(): path.read_bytes()
                for path in Path(directory).rglob("*.class")
            }
        write_jar(JAR, classes | {RESOURCE: _resource().encode()}, inputs_digest())
    return JAR


def is_current() -> bool:
    """Whether the jar was made of the sources and the declarations that are here now."""
    return made_of(JAR) == inputs_digest()


def inputs_digest() -> str:
    """Return the SHA-256 of everything that goes into the jar, the compiler's release included."""
    digest = hashlib.sha256(COMPILER.encode())
    for path in _sources():
        digest.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    digest.update(b"\0" + _resource().encode())
    return digest.hexdigest()


def write_jar(path: Path, entries: Mapping[str, bytes], digest: str) -> None:
    """Write a jar whose bytes depend on the arguments only; it appears whole or not at all.

    Args:
        path: where; replaced when it is there.
        entries: the content of the files by name.
        digest: what the manifest says that it was made of.
    """
    manifest = f"Manifest-Version: 1.0\r\n{DIGEST}: {digest}\r\n\r\n"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        # A jar begins with its manifest.
        for entry, content in [(MANIFEST, manifest.encode()), *sorted(entries.items())]:
            archive.writestr(zipfile.ZipInfo(entry, _TIME), content)
    Path(name).chmod(0o644)
    Path(name).replace(path)


def _sources() -> list[Path]:
    return sorted(_SOURCES.rglob("*.java"))


@functools.cache
def _resource() -> str:
    return render_resource(PROCEDURES.values(), TABLES.values())


def main() -> int:
    """Make the jar; return the exit code."""
    try:
        sys.stdout.write(f"{build()}\n")
    except TableFormatError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
