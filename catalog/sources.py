"""Opens a source by what stands after --source and its options."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.embedded_uri import parse_source
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import ServerSettings, is_server, parse_server
from catalog.clickhouse.source import ClickHouseSource

__all__ = ["SourcePlace", "open_source", "server_of"]


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a source is, as the user said.

    `wait` is how many seconds a directory may be in use. For a server: `config_file` says who logs
    in, unless the address or the environment does; `allow_insecure` lets it be spoken to over http.
    """

    uri: str
    wait: float = 60.0
    config_file: Path | None = None
    allow_insecure: bool = False


def open_source(place: SourcePlace) -> ClickHouseSource:
    """Return the source; it is opened when it is first asked, and let go by `close`.

    Args:
        place: `chdb:DIRECTORY[?config-file=FILE]`, or `https://[USER@]HOST[:PORT]`.

    Raises:
        UnsupportedError: another kind of source.
        UsageError: the text is malformed.
    """
    server = server_of(place)
    if server is not None:
        settings = server
        return ClickHouseSource(lambda: _connected(settings))
    embedded = parse_source(place.uri)

    def connect() -> Connection:
        return EmbeddedConnection(
            embedded.directory, wait=place.wait, config_file=embedded.config_file
        )

    return ClickHouseSource(connect)


def server_of(place: SourcePlace) -> ServerSettings | None:
    """Return how to reach the server that the source is, None when it is none.

    Raises:
        UsageError: the address, the environment or the file is malformed.
        RefusedError: it is http and that is not allowed, or others may read the file's secret.
    """
    if not is_server(place.uri):
        return None
    return parse_server(
        place.uri,
        environment=os.environ,
        config_file=place.config_file,
        allow_insecure=place.allow_insecure,
    )


def _connected(settings: ServerSettings) -> Connection:
    return ServerConnection(ServerClient(settings, settings.hosts[0]))
