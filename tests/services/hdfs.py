"""A real Hadoop file system for tests: a NameNode and a DataNode in one Java, WebHDFS over TLS.

Hadoop's own cluster of its tests, whose files outlive its end. It believes who somebody says he is,
and asks what he may do: the user of the tests is not the one that may do everything. Loaded by
tests/conftest.py, for its fixtures.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode
from xml.sax.saxutils import escape

import pytest
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from catalog.network import TimeOuts
from catalog.storages.access import CA_FILE
from catalog.storages.hdfs.access import ENDPOINT, USER, HdfsAccess
from spark_ext.engine.java import find_java
from tests.services.certificates import Authority
from tests.services.hdfs_jars import class_path
from tests.services.server_process import ServerProcess, free_port
from tests.support.quick_java import QUICK_JAVA

__all__ = ["Hdfs", "hdfs"]

_PASSWORD: Final = "of the tests"  # noqa: S105  Java opens no store of keys without one
_ALMIGHTY: Final = "hdfs-itself"
_SECONDS_TO_START: Final = 90.0
_BOUNDS: Final = TimeOuts(connect=5, read=10, retry_for=20)


class Hdfs(ServerProcess):
    """A cluster of one host; what it has stored outlives its end."""

    user: Final = "exporter"
    """Who may write in the directories that tests make."""
    lists: Final = 50
    """How many entries of a directory it lists at once."""

    def __init__(self, directory: Path) -> None:
        self._numbers = itertools.count()
        self.port, self._rows_port, rpc = free_port(), free_port(), free_port()
        self.endpoint = f"https://127.0.0.1:{self.port}"
        self.root = f"hdfs://127.0.0.1:{rpc}"
        """What locations begin with."""
        authority = Authority(directory)
        self.ca_file = authority.file
        """The authority's certificate, as PEM."""
        # No connection stays open after its request: a file leaves none behind.
        self._http = PoolManager(
            ca_certs=str(authority.file),
            retries=False,
            timeout=30.0,
            headers={"Connection": "close"},
        )
        _configure(directory / "conf", authority.sign().kept_for_java(_PASSWORD))
        self._data = directory / "data"
        settings = {
            "dfs.http.policy": "HTTPS_ONLY",
            "dfs.namenode.https-address": f"127.0.0.1:{self.port}",
            "dfs.datanode.https.address": f"127.0.0.1:{self._rows_port}",
            "dfs.datanode.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{free_port()}",
            "dfs.namenode.safemode.extension": "0",
            "dfs.ls.limit": str(self.lists),
            "hdfs.minidfs.basedir": str(self._data),
        }
        options = (option for pair in settings.items() for option in ("-D", "=".join(pair)))
        self._words = [
            *("-Xmx512m", *QUICK_JAVA, f"-DHADOOP_USER_NAME={_ALMIGHTY}"),
            *("-cp", f"{directory / 'conf'}{os.pathsep}{class_path()}"),
            *("org.apache.hadoop.test.MiniDFSClusterManager", "-nnport", str(rpc), *options),
        ]
        # In a file, so that the command of each start is the same (tests/support/leftovers.py).
        self._words_file = directory / "words"
        command = [str(find_java(os.environ).home / "bin" / "java"), f"@{self._words_file}"]
        super().__init__("Hadoop", command, directory, self._responds, seconds=_SECONDS_TO_START)

    def start(self) -> None:
        """Start it, unless it runs; the first time with nothing in it."""
        words = self._words if self.starts else [*self._words, "-format"]
        self._words_file.write_text("".join(f'"{word}"\n' for word in words))
        super().start()

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a catalog whose warehouse is in it."""
        return {ENDPOINT: self.endpoint, USER: self.user, CA_FILE: str(self.ca_file)}

    def access(
        self,
        *,
        endpoint: str | None = None,
        ca_file: Path | None = None,
        user: str | None = None,
        time_outs: TimeOuts = _BOUNDS,
    ) -> HdfsAccess:
        """Return the same as storage is given it; requests go on for seconds only.

        Args:
            endpoint: where it is asked, as a proxy of it.
            ca_file: the authorities that are trusted, its own when None.
            user: the caller, when not the user of the tests.
            time_outs: of every request.
        """
        others = {ENDPOINT: endpoint, USER: user, CA_FILE: ca_file and str(ca_file)}
        given = self.properties | {name: text for name, text in others.items() if text}
        return HdfsAccess.of(given, environment={}, time_outs=time_outs)

    def make_directory(self, name: str = "lake") -> str:
        """Make a directory that no other test has; return its location."""
        made = f"/{name}-{next(self._numbers)}"
        self.ask("PUT", made, "MKDIRS")
        self.ask("PUT", made, "SETOWNER", owner=self.user)
        return f"{self.root}{made}"

    def ask(self, method: str, path: str, operation: str, **more: str) -> bytes:
        """Return the NameNode's response to a user who may do everything."""
        query = urlencode({"op": operation, "user.name": _ALMIGHTY, **more})
        response = self._http.request(method, f"{self.endpoint}/webhdfs/v1{quote(path)}?{query}")
        assert response.status == 200, response.data
        return response.data

    def files(self, location: str) -> list[str]:
        """Return the paths of all files below a directory, begun ones too, by its own listing."""
        found, paths = list[str](), [location.removeprefix(self.root)]
        while paths:
            path = paths.pop()
            response = json.loads(self.ask("GET", path, "LISTSTATUS"))
            for one in response["FileStatuses"]["FileStatus"]:
                below = f"{path}/{one['pathSuffix']}"
                (found if one["type"] == "FILE" else paths).append(below)
        return sorted(found)

    def blocks(self) -> list[Path]:
        """Return where the DataNode keeps the bytes of files that are whole."""
        return [b for b in self._data.rglob("finalized/**/blk_*") if b.suffix != ".meta"]

    def _responds(self) -> bool:
        """Whether it takes files: it takes none before the DataNode has reported its blocks."""
        with contextlib.suppress(HTTPError, AssertionError):
            self.ask("PUT", "/up", "MKDIRS")
            self.ask("PUT", "/up/not-made", "CREATE", noredirect="true")
            return True
        return False


def _configure(directory: Path, keys: Path) -> None:
    """Write how it speaks TLS, which its command line does not take."""
    directory.mkdir()
    for side in ("server", "client"):
        stores = {
            f"ssl.{side}.{store}.{name}": text
            for store in ("keystore", "truststore")
            for name, text in (
                ("location", str(keys)),
                ("password", _PASSWORD),
                ("keypassword", _PASSWORD),
                ("type", "pkcs12"),
            )
        }
        text = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in stores.items()
        )
        (directory / f"ssl-{side}.xml").write_text(f"<configuration>{text}</configuration>")


@contextlib.contextmanager
def hdfs() -> Iterator[Hdfs]:
    """Run one for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-hdfs-") as directory:
        server = Hdfs(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def hdfs_of_session() -> Iterator[Hdfs]:
    """Run a Hadoop file system for all tests that ask for it; each makes its own directory."""
    with hdfs() as server:
        yield server


@pytest.fixture
def hdfs_server(hdfs_of_session: Hdfs) -> Iterator[Hdfs]:
    """Yield it to a test, which may end and pause it; the next one finds it mended."""
    yield hdfs_of_session
    hdfs_of_session.mend()
