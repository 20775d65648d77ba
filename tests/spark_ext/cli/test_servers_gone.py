"""Of the servers that cannot be used, which ones make an export ask another replica."""

from __future__ import annotations

from typing import Any, Final

import pytest

from catalog.clickhouse.server.client import ServerClient
from tableformat.errors import SourceGoneError, TableFormatError
from tests.wrong.places import Places
from tests.wrong.servers import SERVERS

# All others respond, or were never asked.
GONE: Final = frozenset(
    {
        "the server does not run",
        "a server to clean up does not run",
        "the server does not respond",
        "the server ends the connection",
        "a response breaks off",
        # What speaks TLS only ends such a connection, as one does that dies.
        "http to a port for https",
    }
)


@pytest.mark.parametrize("what", SERVERS)
def test_of_all_wrong_servers_only_these_are_gone(
    places: Places, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    met: list[TableFormatError] = []
    query = ServerClient.query

    def watched(client: ServerClient, *words: Any, **options: Any) -> bytes:
        try:
            return query(client, *words, **options)
        except TableFormatError as error:
            met.append(error)
            raise

    monkeypatch.setattr(ServerClient, "query", watched)

    SERVERS[what](places, monkeypatch)

    assert any(isinstance(one, SourceGoneError) for one in met) is (what in GONE)
