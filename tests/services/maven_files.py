"""Files of a repository of Maven, each with its digest, fetched once into a directory.

They come over HTTP, several at once. A Java machine that resolves them with Ivy takes ten times as
long: it starts, parses POMs, and copies each file twice. Which repository it is says
`DEFAULT_ARTIFACT_REPOSITORY`, as to Spark; else it is the one that Ivy has built in, which PySpark
carries: no address stands here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import ssl
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final

import certifi

from tableformat.errors import SourceError
from tests.support.java_constants import text_constants

__all__ = ["MavenFile", "check", "fetch", "main_of", "repository"]

_AT_ONCE: Final = 8
_ATTEMPTS: Final = 3
_SECONDS: Final = 60.0
_CHUNK: Final = 1 << 20
_IVY: Final = "org.apache.ivy.plugins.resolver.IBiblioResolver"
_CLIENT_ERRORS: Final = range(400, 500)


@dataclass(frozen=True, slots=True)
class MavenFile:
    """One file of a release; `kind` is how its name ends, `classifier` what stands before that."""

    group: str
    name: str
    version: str
    kind: str
    sha256: str
    classifier: str = ""
    kept_as: str = ""

    @property
    def published(self) -> str:
        """The name that it has in a repository."""
        stem = "-".join(filter(None, (self.name, self.version, self.classifier)))
        return f"{stem}.{self.kind}"

    @property
    def path(self) -> str:
        """Where it is in a repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.published}"

    @property
    def file(self) -> str:
        """The name that it has in a directory."""
        return self.kept_as or self.published


def fetch(files: Sequence[MavenFile], folder: Path) -> None:
    """Fetch what is not there yet; each file appears whole and as it should be, or not at all.

    Raises:
        SourceError: one cannot be had, or is another one.
    """
    missing = [one for one in files if not (folder / one.file).is_file()]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    address, trusted = repository(), _trusted()
    with (
        tempfile.TemporaryDirectory(prefix="fetched-", dir=folder) as directory,
        ThreadPoolExecutor(_AT_ONCE) as threads,
    ):
        made = Path(directory)

        def one_of_them(one: MavenFile) -> None:
            _fetch(f"{address}{one.path}", one, made / one.file, trusted)
            check(made, one)
            (made / one.file).replace(folder / one.file)

        list(threads.map(one_of_them, missing))


def check(folder: Path, one: MavenFile) -> None:
    """Check that a file is what is meant.

    Raises:
        SourceError: it is another one.
    """
    with (folder / one.file).open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != one.sha256:
        message = (
            f"Cannot use {folder / one.file}: its SHA-256 is {found}, not {one.sha256}. Remove it "
            "and run again."
        )
        raise SourceError(message)


def main_of(files: Sequence[MavenFile], folder: Path) -> int:
    """Fetch what is not there; one line and status 1 when it cannot be had."""
    try:
        fetch(files, folder)
    except SourceError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


def repository() -> str:
    """Return the address of the repository, which ends with a slash."""
    named = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    if not named:
        # Found without importing it, which takes a second.
        found = importlib.util.find_spec("pyspark")
        assert found is not None
        assert found.origin is not None
        (ivy,) = (Path(found.origin).parent / "jars").glob("ivy-*.jar")
        named = text_constants(ivy, _IVY)["DEFAULT_M2_ROOT"]
    return f"{named.rstrip('/')}/"


def _trusted() -> ssl.SSLContext:
    """Trust the authorities of this machine; some Pythons know of none, and have these."""
    trusted = ssl.create_default_context()
    trusted.load_verify_locations(certifi.where())
    return trusted


def _fetch(address: str, one: MavenFile, to: Path, trusted: ssl.SSLContext) -> None:
    """Write what is at an address to a file; try again when the network fails."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _copy(address, to, trusted)
        except (OSError, HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code in _CLIENT_ERRORS
            if attempt == _ATTEMPTS or refused:
                message = (
                    f"Cannot fetch {one.group}:{one.name}:{one.version}: {error}. Check the "
                    "network and run again."
                )
                raise SourceError(message) from error
        else:
            return


def _copy(address: str, to: Path, trusted: ssl.SSLContext) -> None:
    with (
        urllib.request.urlopen(address, timeout=_SECONDS, context=trusted) as response,  # noqa: S310
        to.open("wb") as file,
    ):
        while chunk := response.read(_CHUNK):
            file.write(chunk)
        # A connection that ends early is no error to every version of urllib.
        length = response.headers["Content-Length"]
        if length is not None and file.tell() != int(length):
            message = f"it ended after {file.tell()} of {length} bytes"
            raise ConnectionError(message)
