"""The jar of S3Proxy with everything that it needs.

    python -m tests.services.s3proxy_jar

fetches it from Maven's repository, 55 MB, into .readers/s3proxy.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tableformat.errors import SourceError
from tests.services.maven_files import MavenFile, check, main_of

__all__ = ["jar_file"]

_FOLDER: Final = Path(__file__).resolve().parents[2] / ".readers" / "s3proxy"
_JAR: Final = MavenFile(
    "org.gaul",
    "s3proxy",
    "4.1.0",
    "jar",
    "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d",
    "jar-with-dependencies",
)


def jar_file() -> Path:
    """Return where the jar is.

    Raises:
        SourceError: it is missing, or another one.
    """
    file = _FOLDER / _JAR.file
    if not file.is_file():
        message = (
            f"Cannot run S3Proxy: there is no {file}. Fetch it: "
            "python -m tests.services.s3proxy_jar"
        )
        raise SourceError(message)
    check(_FOLDER, _JAR)
    return file


if __name__ == "__main__":
    sys.exit(main_of((_JAR,), _FOLDER))
