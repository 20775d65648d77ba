"""A proxy before a real REST catalog that vends credentials for a table, as such servers do.

Where a client asks for them (`X-Iceberg-Access-Delegation: vended-credentials`) every load and
every creation of a table brings new ones, of the object store's own: they hold below the
table's location, until they end. The store's address comes with them, so that a client needs to
know nothing of it but whom to trust. All else is the server's own word.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import requests

from tests.services.minio import WRITER, Account, MinIO
from tests.services.rest_server import RestServer

__all__ = ["LendingCatalog"]

_ASKED: Final = "vended-credentials"
_LENDS: Final = re.compile(
    r"GET /v1/namespaces/[^/]+/tables/[^/]+|POST /v1/namespaces/[^/]+/tables"
)
_SECONDS: Final = 60


class LendingCatalog:
    """The proxy, on a free port of 127.0.0.1; a context manager."""

    def __init__(self, server: RestServer) -> None:
        """Stand before a server that runs."""
        self._server = server
        self.vended: list[Account] = []
        """The accounts that it vended, the newest last."""
        self._listener = _Listener(("127.0.0.1", 0), _Connection)
        self._listener.catalog = self
        signed = server.authority.sign()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(signed.certificate, signed.key)
        self._listener.socket = tls.wrap_socket(self._listener.socket, server_side=True)
        # A short poll: the end of every test waits for it.
        serve = self._listener.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    @property
    def properties(self) -> dict[str, Any]:
        """How PyIceberg reaches it; of its storage they say whom to trust, and no more."""
        uri = f"https://127.0.0.1:{self._listener.server_port}"
        trusted = str(self._server.store.ca_file)
        return {**self._server.properties, "uri": uri, "mergeberg.ca-file": trusted}

    def response_to(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes]:
        """Return the server's response, with credentials where it is to vend them."""
        response = requests.request(
            method,
            f"{self._server.uri}{path}",
            data=body,
            headers={"Content-Type": "application/json"},
            verify=str(self._server.authority.file),
            timeout=_SECONDS,
        )
        asked = _ASKED in headers.get("X-Iceberg-Access-Delegation", "")
        lends = asked and response.ok and _LENDS.fullmatch(f"{method} {urlsplit(path).path}")
        return response.status_code, self._lending(response.json()) if lends else response.content

    def _lending(self, table: dict[str, Any]) -> bytes:
        store, location = self._server.store, table["metadata"]["location"]
        place = urlsplit(location)
        assert isinstance(store, MinIO), "it alone has accounts that end"
        account = store.account(*WRITER, bucket=place.netloc, below=f"{place.path[1:]}/")
        self.vended.append(account)
        reached = {"s3.endpoint": store.endpoint, "s3.region": store.region}
        keys = {
            "s3.access-key-id": account.access_key,
            "s3.secret-access-key": account.secret_key,
            "s3.session-token": account.token,
        }
        vended = {"prefix": location, "config": keys}
        config = {**(table.get("config") or {}), **reached}
        return json.dumps({**table, "config": config, "storage-credentials": [vended]}).encode()


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    catalog: LendingCatalog


class _Connection(BaseHTTPRequestHandler):
    server: _Listener

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, content = self.server.catalog.response_to(
            self.command, self.path, dict(self.headers), body
        )
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_DELETE = _pass_on  # noqa: N815  the names of the base class

    def log_message(self, *_: object) -> None:
        """Say nothing."""
