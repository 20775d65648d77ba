"""A local Azure Blob Storage for tests, over TLS, with an authority of its own: Azurite.

It keeps what an export stands on (`If-None-Match: *`, one writer wins; the MD5 of what is sent is
compared), and asks who he is: an account's key, or a signature made with it. What it received in
the seconds before its end is lost with it.
Loaded by tests/conftest.py, for its fixtures.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import itertools
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import pytest
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from catalog.network import TimeOuts
from catalog.storages.abfs.access import ENDPOINT, AbfsAccess
from catalog.storages.abfs.store import VERSION, AbfsObjects
from catalog.storages.access import CA_FILE
from tests.services.certificates import Authority
from tests.services.node_programs import command_of
from tests.services.server_process import ServerProcess, free_port

__all__ = ["ACCOUNT", "Azurite", "azurite"]

ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = base64.b64encode(hashlib.sha512(b"the key of the account of the tests").digest())
_BOUNDS: Final = TimeOuts(connect=5, read=10, retry_for=20)


class Azurite(ServerProcess):
    """A store of one disk."""

    def __init__(self, directory: Path) -> None:
        self._numbers = itertools.count()
        self.port = free_port()
        self.endpoint = f"https://127.0.0.1:{self.port}/{ACCOUNT}"
        authority = Authority(directory)
        self.ca_file = authority.file
        """The authority's certificate, as PEM."""
        signed = authority.sign()
        # No connection stays open after its request: a file leaves none behind.
        self._http = PoolManager(
            ca_certs=str(authority.file),
            retries=False,
            timeout=30.0,
            headers={"Connection": "close"},
        )
        data = directory / "data"
        data.mkdir()
        command = ["env", f"AZURITE_ACCOUNTS={ACCOUNT}:{_KEY.decode()}"]
        command += [*command_of("azurite", "azurite/dist/src/blob/main.js"), "--silent"]
        command += ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--disableTelemetry"]
        command += ["--location", str(data), "--cert", str(signed.certificate)]
        command += ["--key", str(signed.key)]
        super().__init__("azurite", command, directory, self._responds)

    @property
    def key(self) -> str:
        """The account's key."""
        return _KEY.decode()

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of a catalog whose warehouse is in it."""
        return {ENDPOINT: self.connection(), CA_FILE: str(self.ca_file)}

    def connection(self, *, endpoint: str | None = None, key: str = _KEY.decode()) -> str:
        """Return a connection string of the account."""
        return f"AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={endpoint or self.endpoint};"

    def access(
        self,
        *,
        endpoint: str | None = None,
        ca_file: Path | None = None,
        sas: str | None = None,
        time_outs: TimeOuts = _BOUNDS,
    ) -> AbfsAccess:
        """Return the same as storage is given it; requests go on for seconds only.

        Args:
            endpoint: where it is asked, as a proxy of it.
            ca_file: the authorities that are trusted, its own when None.
            sas: a signature, instead of the account's key.
            time_outs: of every request.
        """
        given = {
            ENDPOINT: self.connection(endpoint=endpoint),
            CA_FILE: str(ca_file or self.ca_file),
        }
        named = given if sas is None else {**given, "adls.sas-token": sas}
        return AbfsAccess.of(self.location("c"), named, environment={}, time_outs=time_outs)

    def signature(self, permissions: str, *, seconds: int = 3600) -> str:
        """Return a shared access signature of the whole account, which ends after some seconds.

        Args:
            permissions: letters, as Azure has them: r read, w write, d delete, l list, c create.
            seconds: until it ends; below 0 it has ended.
        """
        until = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        signed = (ACCOUNT, permissions, "b", "sco", "", until, "", "https", VERSION, "", "")
        digest = hmac.new(base64.b64decode(_KEY), "\n".join(signed).encode(), hashlib.sha256)
        return urlencode(
            {
                "sv": VERSION,
                "ss": "b",
                "srt": "sco",
                "sp": permissions,
                "se": until,
                "spr": "https",
                "sig": base64.b64encode(digest.digest()).decode(),
            }
        )

    def location(self, container: str) -> str:
        """Return the location of a container."""
        return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net"

    def make_container(self, name: str = "lake") -> str:
        """Make a container that no other test has; return its name, which begins with `name`."""
        made = f"{name}-{next(self._numbers)}"
        self._client().http.request("PUT", f"/{made}", query={"restype": "container"})
        return made

    def objects(self, container: str) -> list[str]:
        """Return the names of all blobs of a container, also of those that are not committed."""
        query = {"restype": "container", "comp": "list", "include": "uncommittedblobs"}
        _, data = self._client().http.request("GET", f"/{container}", query=query)
        return [one.findtext("Name", "") for one in ET.fromstring(data).iter("Blob")]  # noqa: S314

    def _client(self) -> AbfsObjects:
        return AbfsObjects(self.access())

    def _responds(self) -> bool:
        with contextlib.suppress(HTTPError):
            # Whatever the response, it runs.
            self._http.request("GET", self.endpoint)
            return True
        return False


@contextlib.contextmanager
def azurite() -> Iterator[Azurite]:
    """Run one for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-abfs-") as directory:
        server = Azurite(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def abfs_server_of_session() -> Iterator[Azurite]:
    """Run a local Azure Blob Storage for all tests that ask for it; each makes its container."""
    with azurite() as server:
        yield server


@pytest.fixture
def abfs_server(abfs_server_of_session: Azurite) -> Iterator[Azurite]:
    """Yield it to a test, which may end and pause it; the next one finds it mended."""
    yield abfs_server_of_session
    abfs_server_of_session.mend()
