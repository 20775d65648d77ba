"""The jars of Iceberg Java's own REST server, each in one release.

    python -m tests.services.rest_jars

fetches them from Maven's repository, 90 MB, into .readers/rest-server.

The servlet that serves is in the test jar of Iceberg's core, a release behind Spark's runtime: of
1.12.0 there is none. The bundle is Amazon's client, which writes metadata into S3.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tableformat.errors import SourceError
from tests.services.maven_files import MavenFile, check, main_of

__all__ = ["class_path"]

_FOLDER: Final = Path(__file__).resolve().parents[2] / ".readers" / "rest-server"
_ICEBERG: Final = "1.11.0"
_JETTY: Final = "12.1.2"


def _jar(group: str, name: str, version: str, sha256: str, classifier: str = "") -> MavenFile:
    return MavenFile(group, name, version, "jar", sha256, classifier)


def _iceberg(name: str, sha256: str, classifier: str = "") -> MavenFile:
    return _jar("org.apache.iceberg", name, _ICEBERG, sha256, classifier)


def _jetty(name: str, sha256: str, group: str = "org.eclipse.jetty") -> MavenFile:
    return _jar(group, name, _JETTY, sha256)


def _jackson(name: str, version: str, sha256: str) -> MavenFile:
    return _jar("com.fasterxml.jackson.core", name, version, sha256)


_JARS: Final = (
    _jar(
        "org.apache.avro",
        "avro",
        "1.12.1",
        "72600f057bfbe2efe35fa55433e7756d45667dc938934be38a6e2be368aca237",
    ),
    _jar(
        "com.github.ben-manes.caffeine",
        "caffeine",
        "2.9.3",
        "1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b",
    ),
    _jar(
        "dev.failsafe",
        "failsafe",
        "3.3.2",
        "2c5dc879a6dac7ea3a7b29d795e27bd49b8e7908b05c2f3e56053c19d79850f5",
    ),
    _jar(
        "org.apache.httpcomponents.core5",
        "httpcore5",
        "5.4",
        "cec2981fa7f520efb63f0787c24f10af2679e31f9f75c448c4dde40a3ae8100d",
    ),
    _iceberg("iceberg-api", "f00675a12ceb6d833bb9c22024823a3e7afdedf7abcefe34719f45b0d211995a"),
    _iceberg("iceberg-aws", "4cfe4a7ba3a4fb247a29e60c614678c3b7a1e9b4b91f54e0ca3406419c9338f0"),
    _iceberg(
        "iceberg-aws-bundle", "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f"
    ),
    _iceberg(
        "iceberg-bundled-guava", "396d48d93ef5735f2ddef0cf9b3d6968ebd67b64b5cfe753d41c429d3f46a2a1"
    ),
    _iceberg("iceberg-common", "b2835d00db7c92bdfa728123ad7cdcb488e2f2805c1c51fb9ae94e8bd203bd7d"),
    _iceberg(
        "iceberg-core", "4284719a5f0eb7db01e9f784a0ed4ca8bacf7d6f9951924143afc083428d8be3", "tests"
    ),
    _iceberg("iceberg-core", "53b9eb7a8c34fb9958ea7d9a4d19ba5bc96f592d0f05e8625b0778c70b1f0090"),
    _jackson(
        "jackson-annotations",
        "2.21",
        "53ca085f4a150f703f49e1aabd935bd03b43e1ea3d55d135438292af22cef56b",
    ),
    _jackson(
        "jackson-core", "2.21.3", "baf8b739e9d9b93bcdb33f25046bfdb8dbd74c97de2a8698539fbe0c7eeac0bb"
    ),
    _jackson(
        "jackson-databind",
        "2.21.3",
        "f397563d8e67630c10cab8c2334ca0e55af832fa3ebde160a379c2c96d43bf25",
    ),
    _jar(
        "jakarta.servlet",
        "jakarta.servlet-api",
        "6.0.0",
        "c034eb1afb158987dbb53a5fea0cadf611c8dae8daadd59c44d9d5ab70129cef",
    ),
    _jetty(
        "jetty-ee10-servlet",
        "98b3e2165d1a436b7d76f319e0dc2038adc524704ca701995d27e2227d7377d4",
        "org.eclipse.jetty.ee10",
    ),
    _jetty("jetty-http", "3a5872100eafaac97fb91b6963ed27e87378e9457b3562ca59c362bbae1d290b"),
    _jetty("jetty-io", "1250330209cf77e0c95880af2bb8cd7226906ebfb2f9526ea2ac428f1d8aeeb1"),
    _jetty("jetty-security", "415a289e776e7501744658e69bd6fadc48e75550783c843424aa7fb726e6d821"),
    _jetty("jetty-server", "eb7d67d3fa0e8a6213b5fc38dab10a20ca87c2a9a888aca8c8d0beceb2f70807"),
    _jetty("jetty-session", "522de25195d751e0058483f07bc6fff757abeb3fce13f63e201ab532882f4638"),
    _jetty("jetty-util", "03f144ee693205eef00a494e785bf73931324a8c7053b979082bd7425f7af3ea"),
    _jetty("jetty-xml", "a9dadf73679462851ab3e5ee2d44dfad0a40c25faa53432fdd382024a511f82b"),
    _jar(
        "org.slf4j",
        "slf4j-api",
        "2.0.17",
        "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832",
    ),
    _jar(
        "org.slf4j",
        "slf4j-simple",
        "2.0.17",
        "ddfea59ac074c6d3e24ac2c38622d2d963895e17f70b38ed4bdae4d780be6964",
    ),
    _jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.54.1.0",
        "f8dce420a6016278497f4f0560f65602b9db858de141b541cf91a4644ebe4639",
    ),
)


def class_path() -> str:
    """Return the class path of the server.

    Raises:
        SourceError: a jar is missing, or another one.
    """
    for jar in _JARS:
        if not (_FOLDER / jar.file).is_file():
            message = (
                f"Cannot run Iceberg's REST server: there is no {_FOLDER / jar.file}. Fetch it: "
                "python -m tests.services.rest_jars"
            )
            raise SourceError(message)
        check(_FOLDER, jar)
    return os.pathsep.join(str(_FOLDER / jar.file) for jar in _JARS)


if __name__ == "__main__":
    sys.exit(main_of(_JARS, _FOLDER))
