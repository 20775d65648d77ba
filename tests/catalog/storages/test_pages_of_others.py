"""A server that answers every request with the page of a proxy, or with a redirect to itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from catalog.storages.abfs.access import AbfsAccess
from catalog.storages.abfs.store import AbfsStorage
from catalog.storages.gs.access import GsAccess
from catalog.storages.gs.store import GsStorage
from catalog.storages.s3.access import S3Access
from catalog.storages.s3.storage import PART_BYTES, S3Storage
from tableformat.errors import DestinationError
from tableformat.storage import Storage

pytestmark = [
    # The connections of clients that are no longer needed are left to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
    )
]
PAGE = b"<html><body>Please log in to this network.</body></html>"
KEY = "c2VjcmV0"


class _Page(BaseHTTPRequestHandler):
    """Answers with a page, or with a redirect to the same address."""

    protocol_version = "HTTP/1.1"
    status: ClassVar[int] = 200

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        if self.status != 200:
            self.send_header("Location", f"http://{self.headers['Host']}{self.path}")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(PAGE)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815  the library's names

    def log_message(self, *_: object) -> None:
        pass


class _Redirect(_Page):
    status = 307


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Print nothing when a client goes away."""


def _storages(endpoint: str) -> dict[str, tuple[Storage, str]]:
    s3 = S3Access(endpoint, "us-east-1", "user", KEY, retry_for=0.2)
    gs = GsAccess(endpoint, "token", retry_for=0.2)
    azure = AbfsAccess(endpoint, "account", KEY, retry_for=0.2)
    return {
        "s3": (S3Storage(s3), "s3://bucket/table"),
        "gs": (GsStorage(gs), "gs://bucket/table"),
        "abfs": (AbfsStorage(azure), "abfss://container@account.dfs.core.windows.net/table"),
    }


@pytest.fixture(params=[_Page, _Redirect], ids=["page", "redirect"])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    with _Server(("127.0.0.1", 0), request.param) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def _written(storage: Storage, location: str, size: int) -> None:
    sink = storage.create(location)
    try:
        sink.write(b"r" * size)
        sink.commit()
    finally:
        sink.abort()


ACTS: dict[str, Callable[[Storage, str], object]] = {
    "put": lambda storage, file: storage.put(file, b"rows"),
    "put_if_absent": lambda storage, file: storage.put_if_absent(file, b"rows"),
    "create": lambda storage, file: _written(storage, file, 4),
    "create in parts": lambda storage, file: _written(storage, file, PART_BYTES + 1),
    "read": lambda storage, file: storage.read(file),
    "size": lambda storage, file: storage.size(file),
    "sha256": lambda storage, file: storage.sha256(file),
    "list": lambda storage, file: storage.list(file),
    "list_unfinished": lambda storage, file: storage.list_unfinished(file),
    "delete": lambda storage, file: storage.delete(file),
}


CASES = [
    (store, act)
    for store in ("s3", "gs", "abfs")
    for act in ACTS
    # Nothing is begun at the other stores, so nothing is asked.
    if store == "s3" or act != "list_unfinished"
]


@pytest.mark.parametrize(("store", "act"), CASES)
def test_the_page_of_a_proxy_is_no_success(endpoint: str, store: str, act: str) -> None:
    """Harm prevented: a file counts as stored, or a directory as empty, and nothing was sent."""
    storage, root = _storages(endpoint)[store]

    with pytest.raises(DestinationError):
        ACTS[act](storage, f"{root}/file")
