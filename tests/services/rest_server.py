"""A real Iceberg REST catalog for tests: Iceberg Java's own servlet, by Jetty, over TLS.

Its tables are in SQLite, by Iceberg's own JDBC catalog; it writes their metadata into an object
store itself. Jetty reads from a file what it is to serve, so that no Java of ours is needed. It
requires no login, and vends no credentials: `vending_catalog.py` does.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import requests

from spark_ext.engine.java import find_java
from tests.services.certificates import Authority
from tests.services.java_trust import trust_store, trusting
from tests.services.rest_jars import class_path
from tests.services.s3_server import S3Server
from tests.services.server_process import ServerProcess, free_port
from tests.support.quick_java import QUICK_JAVA

__all__ = ["RestServer", "rest_server"]

_PASSWORD: Final = "of the tests"  # noqa: S105  Java opens no store of keys without one
_SERVES: Final = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://jetty.org/configure_10_0.dtd">
<Configure id="server" class="org.eclipse.jetty.server.Server">
  <New id="catalog" class="org.apache.iceberg.jdbc.JdbcCatalog">
    <Call name="initialize"><Arg>served</Arg><Arg><Map>{entries}</Map></Arg></Call>
  </New>
  <Call name="addConnector"><Arg>
    <New class="org.eclipse.jetty.server.ServerConnector">
      <Arg><Ref refid="server"/></Arg>
      <Arg><New class="org.eclipse.jetty.util.ssl.SslContextFactory$Server">
        <Set name="keyStorePath">{keys}</Set>
        <Set name="keyStorePassword">{password}</Set>
      </New></Arg>
      <Set name="host">127.0.0.1</Set>
      <Set name="port">{port}</Set>
    </New>
  </Arg></Call>
  <Set name="handler">
    <New class="org.eclipse.jetty.ee10.servlet.ServletContextHandler">
      <Call name="addServlet">
        <Arg><New class="org.eclipse.jetty.ee10.servlet.ServletHolder">
          <Arg><New class="org.apache.iceberg.rest.RESTCatalogServlet">
            <Arg><New class="org.apache.iceberg.rest.RESTCatalogAdapter">
              <Arg><Ref refid="catalog"/></Arg>
            </New></Arg>
          </New></Arg>
        </New></Arg>
        <Arg>/*</Arg>
      </Call>
    </New>
  </Set>
</Configure>
"""


class RestServer(ServerProcess):
    """A catalog whose warehouse is in a bucket of its own; what it knows outlives its end."""

    def __init__(self, directory: Path, store: S3Server) -> None:
        """Configure it.

        Args:
            directory: an existing one, of its own.
            store: an object store that runs.
        """
        port = free_port()
        self.uri = f"https://127.0.0.1:{port}"
        self.store, self.bucket = store, store.make_bucket()
        self.authority = Authority(directory)
        """Signs its certificate; the store has another one."""
        held = {
            "uri": f"jdbc:sqlite:{directory}/catalog.db",
            "warehouse": f"s3://{self.bucket}/wh",
            "jdbc.schema-version": "V1",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": store.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": store.root.access_key,
            "s3.secret-access-key": store.root.secret_key,
            "client.region": store.region,
        }
        entries = "".join(
            f"<Entry><Item>{name}</Item><Item>{escape(text)}</Item></Entry>"
            for name, text in held.items()
        )
        keys = self.authority.sign().kept_for_java(_PASSWORD)
        serves = directory / "serves.xml"
        text = _SERVES.format(entries=entries, keys=keys, password=_PASSWORD, port=port)
        serves.write_text(text)
        java = find_java(os.environ).home
        command = [
            str(java / "bin" / "java"),
            *("-Xmx256m", *QUICK_JAVA),
            *trusting(trust_store(java, store.ca_file, directory / "trusted")),
            *("-cp", class_path(), "org.eclipse.jetty.xml.XmlConfiguration", str(serves)),
        ]
        super().__init__("Iceberg's REST server", command, directory, self._responds)

    @property
    def properties(self) -> dict[str, Any]:
        """How PyIceberg reaches it, and trusts it; nothing of its storage."""
        return {"type": "rest", "uri": self.uri, "ssl": {"cabundle": str(self.authority.file)}}

    def _responds(self) -> bool:
        with contextlib.suppress(requests.ConnectionError):
            response = requests.get(
                f"{self.uri}/v1/config", verify=str(self.authority.file), timeout=5
            )
            return response.ok
        return False


@contextlib.contextmanager
def rest_server(store: S3Server) -> Iterator[RestServer]:
    """Run a server for the time of a context; nothing of it is left but its bucket."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-rest-") as directory:
        server = RestServer(Path(directory), store)
        try:
            server.start()
            yield server
        finally:
            server.kill()
