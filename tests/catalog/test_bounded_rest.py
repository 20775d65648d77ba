"""A catalog that does not answer is an error in time, from its very first request on."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from catalog.bounded_rest import TimeOuts
from catalog.iceberg import open_catalog
from tableformat.errors import DestinationError
from tableformat.names import LakeName

CONFIG = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 31\r\n"
    b'Connection: close\r\n\r\n{"defaults":{},"overrides":{}}\n'
)


@pytest.mark.parametrize("answered", [0, 1], ids=["the first request", "a later request"])
def test_a_catalog_that_never_answers_does_not_hold_an_export_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    """Harm prevented: an export that hangs, and holds its partition, until somebody kills it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent: list[socket.socket] = []

        def serve() -> None:
            for number in range(answered + 1):
                client, _ = server.accept()
                client.recv(65_536)
                if number < answered:
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

        assert time.monotonic() - began < 10
        thread.join()
        for client in silent:
            client.close()
