"""A catalog that does not respond is an error in time, from the first request on."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.iceberg.catalogs import OpenedCatalog, open_catalog
from catalog.network import TimeOuts
from tableformat.errors import DestinationError
from tableformat.names import LakeName
from tests.services.certificates import Authority
from tests.services.faulty_http import FaultyHttp, response_of
from tests.support.time_bounds import ENDS_WITHIN

CONFIG = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 31\r\n"
    b'Connection: close\r\n\r\n{"defaults":{},"overrides":{}}\n'
)


@pytest.mark.parametrize("response_count", [0, 1], ids=["the first request", "a later request"])
def test_a_catalog_that_never_responds_does_not_block_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, response_count: int
) -> None:
    """Harm prevented: an export hangs, and blocks its partition, until it is killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent: list[socket.socket] = []

        def serve() -> None:
            for number in range(response_count + 1):
                client, _ = server.accept()
                client.recv(65_536)
                if number < response_count:
                    client.sendall(CONFIG)
                    client.close()
                else:
                    silent.append(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("PYICEBERG_CATALOG__SLOW__URI", uri)
        monkeypatch.setenv("PYICEBERG_CATALOG__SLOW__TYPE", "rest")
        catalog = open_catalog("slow", warehouse=tmp_path, time_outs=TimeOuts(read=0.3))

        began = time.monotonic()
        with pytest.raises(DestinationError, match="'slow' or its storage failed with ReadTimeout"):
            catalog.table(LakeName("slow", ("n",), "t"))

        assert time.monotonic() - began < ENDS_WITHIN
        thread.join()
        for client in silent:
            client.close()


_NONE = b'{"namespaces":[]}'


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Serve a catalog over TLS; return where, and the authority that signed for it."""
    authority = Authority(tmp_path, "right")
    signed = authority.sign()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(signed.certificate, signed.key)
    responses = [
        response_of(text, ours=False) for text in (b'{"defaults":{},"overrides":{}}', _NONE)
    ]
    with FaultyHttp(*responses, tls=tls) as server:
        yield f"https://127.0.0.1:{server.host.port}", authority.file


def opened(uri: str, authority: Path) -> OpenedCatalog:
    """Open a catalog whose configuration names an authority."""
    properties = {"type": "rest", "uri": uri, "ssl": {"cabundle": str(authority)}}
    return OpenedCatalog("far", None, properties, TimeOuts(read=5))


def test_authorities_of_a_catalog_are_trusted_whatever_the_environment_has(
    served: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: `ssl.cabundle` has no effect where REQUESTS_CA_BUNDLE is set."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(Authority(tmp_path, "another").file))

    catalog = opened(*served).catalog

    assert catalog.list_namespaces() == []
    catalog.close()


def test_no_others_are_trusted_than_a_catalog_names(
    served: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, right = served
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(right))

    with pytest.raises(DestinationError, match=r"SSLError.*CERTIFICATE_VERIFY_FAILED"):
        opened(uri, Authority(tmp_path, "another").file).catalog.close()
