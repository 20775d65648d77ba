"""An S3Proxy for tests: an object store in one Java, which no machine has to compile first.

It keeps objects as files, and makes one that must not replace another by a hard link, so that the
kernel decides who was first. It knows one account, without policies or temporary credentials: tests
of those need a MinIO. Loaded by tests/conftest.py, for its fixtures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from spark_ext.engine.java import find_java
from tests.services.certificates import Identity
from tests.services.s3_server import S3Server, running
from tests.services.s3proxy_jar import jar_file
from tests.support.quick_java import QUICK_JAVA

__all__ = ["S3Proxy", "s3proxy"]

_PASSWORD: Final = "of the tests"  # noqa: S105  Java opens no store of keys without one
_SECONDS_TO_START: Final = 60.0


class S3Proxy(S3Server):
    """An object store in a directory."""

    def __init__(self, directory: Path) -> None:
        _check_attributes(directory)
        super().__init__("S3Proxy", directory, seconds=_SECONDS_TO_START)

    def _prepared(self, directory: Path, identity: Identity) -> list[str]:
        data = directory / "data"
        data.mkdir()
        settings = {
            "s3proxy.secure-endpoint": self.endpoint,
            "s3proxy.keystore-path": str(identity.kept_for_java(_PASSWORD)),
            "s3proxy.keystore-password": _PASSWORD,
            "s3proxy.authorization": "aws-v4",
            "s3proxy.identity": self.access_key,
            "s3proxy.credential": self.secret_key,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(data),
        }
        properties = directory / "s3proxy.properties"
        properties.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        java = find_java(os.environ).home / "bin" / "java"
        # Nothing of the machine's own environment, which may have options for every Java.
        # In the locale it has by default, Java makes no file for a key that is not ASCII.
        command = ["env", "-i", f"HOME={directory}", "LC_ALL=C.UTF-8", "LOG_LEVEL=warn", str(java)]
        command += ["-Xmx512m", *QUICK_JAVA, "-jar", str(jar_file())]
        return [*command, "--properties", str(properties)]


def _check_attributes(directory: Path) -> None:
    """Fail where S3Proxy would forget metadata and ETags of objects without a word."""
    try:
        os.setxattr(directory, "user.mergeberg", b"kept")
    except OSError as error:
        message = (
            f"the file system of {directory} keeps no extended attributes ({error.strerror}): "
            "name a directory of another one by TMPDIR"
        )
        raise AssertionError(message) from error


def s3proxy() -> AbstractContextManager[S3Proxy]:
    """Run an S3Proxy for the time of a context; nothing of it is left."""
    return running(S3Proxy)


@pytest.fixture(scope="session")
def s3_server_of_session() -> Iterator[S3Server]:
    """Run an object store for all tests that ask for it; each makes a bucket of its own there."""
    with s3proxy() as server:
        yield server


@pytest.fixture
def s3_server(s3_server_of_session: S3Server) -> Iterator[S3Server]:
    """Yield the store to a test, which may end and pause it; the next one finds it mended."""
    yield s3_server_of_session
    s3_server_of_session.mend()
