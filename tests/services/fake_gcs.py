"""A local Google Cloud Storage for tests, over TLS, with an authority of its own: fake-gcs-server.

It keeps what an export stands on (`ifGenerationMatch=0`, one writer wins; the MD5 of what is sent
is compared), also across its end. It asks nobody who he is: what tests say of that they say of what
is sent to it. Loaded by tests/conftest.py, for its fixtures.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from catalog.network import TimeOuts
from catalog.storages.access import CA_FILE
from catalog.storages.gs.access import ENDPOINT, GsAccess
from tests.services.certificates import Authority
from tests.services.go_programs import program_file
from tests.services.server_process import ServerProcess, free_port

__all__ = ["FakeGcs", "fake_gcs"]

_BOUNDS = TimeOuts(connect=5, read=10, retry_for=20)


class FakeGcs(ServerProcess):
    """A store of one disk; what it has stored outlives its end."""

    def __init__(self, directory: Path) -> None:
        self._numbers = itertools.count()
        self.port = free_port()
        self.endpoint = f"https://127.0.0.1:{self.port}"
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
        self._data = directory / "data"
        command = [str(program_file("fake-gcs-server")), "-scheme", "https", "-host", "127.0.0.1"]
        command += ["-port", str(self.port), "-external-url", self.endpoint]
        command += ["-cert-location", str(signed.certificate)]
        command += ["-private-key-location", str(signed.key), "-log-level", "warn"]
        command += ["-backend", "filesystem", "-filesystem-root", str(self._data)]
        super().__init__("fake-gcs-server", command, directory, self._responds)

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's properties of a catalog whose warehouse is in it."""
        return {ENDPOINT: self.endpoint, CA_FILE: str(self.ca_file)}

    def access(
        self,
        *,
        endpoint: str | None = None,
        ca_file: Path | None = None,
        token: str | None = None,
        time_outs: TimeOuts = _BOUNDS,
    ) -> GsAccess:
        """Return the same as storage is given it; requests go on for seconds only.

        Args:
            endpoint: where it is asked, as a proxy of it.
            ca_file: the authorities that are trusted, its own when None.
            token: of the caller, anonymous when None.
            time_outs: of every request.
        """
        given = {ENDPOINT: endpoint or self.endpoint, CA_FILE: str(ca_file or self.ca_file)}
        named = given if token is None else {**given, "gcs.oauth2.token": token}
        return GsAccess.of(named, environment={}, time_outs=time_outs)

    def make_bucket(self, name: str = "lake") -> str:
        """Make a bucket that no other test has; return its name, which begins with `name`."""
        made = f"{name}-{next(self._numbers)}"
        url = f"{self.endpoint}/storage/v1/b?project=tests"
        response = self._http.request("POST", url, json={"name": made})
        assert response.status == 200, response.data
        return made

    def objects(self, bucket: str) -> list[str]:
        """Return the names of all objects of a bucket, as the server itself lists them."""
        response = self._http.request("GET", f"{self.endpoint}/storage/v1/b/{bucket}/o")
        assert response.status == 200, response.data
        return [one["name"] for one in json.loads(response.data).get("items") or ()]

    def file_of(self, bucket: str, name: str) -> Path:
        """Return where it keeps the bytes of an object."""
        return self._data / bucket / name

    def _responds(self) -> bool:
        with contextlib.suppress(HTTPError):
            url = f"{self.endpoint}/_internal/healthcheck"
            return self._http.request("GET", url).status == 200
        return False


@contextlib.contextmanager
def fake_gcs() -> Iterator[FakeGcs]:
    """Run one for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-gs-") as directory:
        server = FakeGcs(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def gs_server_of_session() -> Iterator[FakeGcs]:
    """Run a local Google Cloud Storage for all tests that ask for it; each makes its own bucket."""
    with fake_gcs() as server:
        yield server


@pytest.fixture
def gs_server(gs_server_of_session: FakeGcs) -> Iterator[FakeGcs]:
    """Yield it to a test, which may end and pause it; the next one finds it mended."""
    yield gs_server_of_session
    gs_server_of_session.mend()
