"""A server with the responses of a test, and a client that speaks to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.settings import Credentials, Secret, ServerSettings
from tests.services.faulty_http import FaultyHttp, Response

HIDDEN = "pa55-w0rd-of-mine"

Asking = Callable[..., tuple[FaultyHttp, ServerClient]]


@pytest.fixture
def asking() -> Iterator[Asking]:
    """Return what starts a server with some responses, and a client of it."""
    with contextlib.ExitStack() as stack:

        def start(
            *responses: Response, pauses: list[float] | None = None, compress: bool = False
        ) -> tuple[FaultyHttp, ServerClient]:
            server = stack.enter_context(FaultyHttp(*responses))
            settings = ServerSettings(
                (server.host,),
                Credentials("exporter", Secret(HIDDEN)),
                connect_timeout=5,
                read_timeout=5,
                compress=compress,
            )
            waited = [] if pauses is None else pauses
            client = ServerClient(settings, server.host, pause=waited.append)
            return server, stack.enter_context(client)

        yield start
