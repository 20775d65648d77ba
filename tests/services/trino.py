"""A real Trino for tests: one node whose catalog `lake` is PyIceberg's, its warehouse in S3 by TLS.

Java 25 is that of the readers' environment. Spark's own 17 or 21 is too old.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.services.java_trust import trust_store, trusting
from tests.services.minio import MinIO
from tests.services.server_process import ServerProcess, free_port
from tests.services.trino_files import java_home, server_home

__all__ = ["Trino", "trino"]

_SECONDS_TO_START: Final = 120.0
_MAIN: Final = "io.trino.server.TrinoServer"
_JAVA: Final = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dfile.encoding=UTF-8",
    # Trino does not begin without.
    "-Djdk.attach.allowAttachSelf=true",
)


class Trino(ServerProcess):
    """A server of one node; `port` is where it speaks HTTP, on the loopback only."""

    def __init__(self, directory: Path, store: MinIO, catalog: str) -> None:
        """Configure it.

        Args:
            directory: an existing one, of its own.
            store: the object store of the warehouse.
            catalog: the address of the catalog's database, for JDBC.
        """
        self.port = free_port()
        home = server_home()
        (directory / "catalogs").mkdir()
        _write(directory / "config.properties", self._configured())
        _write(directory / "catalogs" / "lake.properties", _of_catalog(store, catalog))
        trusted = trust_store(java_home(), store.ca_file, directory / "trusted")
        places = {
            "config": directory / "config.properties",
            "catalog.config-dir": directory / "catalogs",
            "node.data-dir": directory / "data",
            "plugin.dir": home / "plugin",
            "secrets-plugin.dir": home / "secrets-plugin",
            "node.environment": "tests",
            "node.id": "tests",
        }
        options = (f"-D{name}={text}" for name, text in places.items())
        java = (str(java_home() / "bin" / "java"), *_JAVA, *trusting(trusted), *options)
        command = [*java, "-cp", f"{home}/lib/*", _MAIN]
        super().__init__("Trino", command, directory, self._responds, seconds=_SECONDS_TO_START)

    def _configured(self) -> dict[str, str]:
        return {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(self.port),
            "node.internal-address": "127.0.0.1",
            "node.bind-ip": "127.0.0.1",
            "discovery.uri": f"http://127.0.0.1:{self.port}",
            "web-ui.enabled": "false",
            "query.max-memory": "256MB",
            "query.max-memory-per-node": "256MB",
            "memory.heap-headroom-per-node": "128MB",
        }

    def _responds(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/info", timeout=5) as response,
        ):
            return json.load(response)["starting"] is False
        return False


@contextlib.contextmanager
def trino(store: MinIO, catalog: str) -> Iterator[Trino]:
    """Run a Trino for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-trino-") as directory:
        server = Trino(Path(directory), store, catalog)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _of_catalog(store: MinIO, catalog: str) -> dict[str, str]:
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.catalog-name": "lake",
        "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
        "iceberg.jdbc-catalog.connection-url": catalog,
        "iceberg.jdbc-catalog.default-warehouse-dir": "s3://unused/warehouse",
        "fs.native-s3.enabled": "true",
        "s3.endpoint": store.endpoint,
        "s3.region": store.region,
        "s3.path-style-access": "true",
        "s3.aws-access-key": store.access_key,
        "s3.aws-secret-key": store.secret_key,
    }


def _write(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
