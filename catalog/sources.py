"""Opens a source by what stands after --source and its options."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.embedded_uri import parse_source
from catalog.clickhouse.frozen.source import FrozenPartsSource
from catalog.clickhouse.frozen.uri import is_parts, parse_parts
from catalog.clickhouse.origin import STAGING_DATABASE
from catalog.clickhouse.server.replicas import SYNC_TIMEOUT
from catalog.clickhouse.server.settings import Host, ServerSettings, is_server, parse_server
from catalog.clickhouse.server.source import ServerSource
from catalog.clickhouse.source import ClickHouseSource
from tableformat.names import TableName

__all__ = ["SourcePlace", "open_source", "server_of"]


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a source is, as the user said; `uri` may hold a password, so no repr shows it.

    `wait` is how many seconds a directory may be in use. For a server: `config_file` says who logs
    in, unless the address or the environment does; `allow_insecure` lets it be spoken to over http;
    `sync_timeout` is how many seconds a partition waits for parts that its replica lacks; `hosts`
    are asked instead of those of the address, where that names another shard;
    `ignore_row_policies` lets an export hold rows that its user is not shown; `staging_database` is
    where staging tables are made.
    """

    uri: str = field(repr=False)
    wait: float = 60.0
    config_file: Path | None = None
    allow_insecure: bool = False
    sync_timeout: float = SYNC_TIMEOUT
    hosts: tuple[Host, ...] = ()
    ignore_row_policies: bool = False
    staging_database: str = STAGING_DATABASE


def open_source(place: SourcePlace, *, is_exporting: bool = False) -> ClickHouseSource:
    """Return the source; it is opened when it is first asked, and let go by `close`.

    Args:
        place: `chdb:DIRECTORY[?config-file=FILE]`, `https://[USER@]HOST[:PORT]`, or
            `parts:DIR?ddl=FILE`.
        is_exporting: whether an export will take snapshots: a server is then asked first whether
            its user may.

    Raises:
        UnsupportedError: another kind of source.
        UsageError: the text is malformed.
    """
    server = server_of(place)
    if server is not None:
        return ServerSource(
            server,
            sync_timeout=place.sync_timeout,
            is_exporting=is_exporting,
            ignore_row_policies=place.ignore_row_policies,
        )
    if is_parts(place.uri):
        return FrozenPartsSource(parse_parts(place.uri))
    embedded = parse_source(place.uri)

    def opened(_: TableName | None) -> Connection:
        return EmbeddedConnection(
            embedded.directory,
            wait=place.wait,
            config_file=embedded.config_file,
            staging_database=place.staging_database,
        )

    return ClickHouseSource(opened)


def server_of(place: SourcePlace) -> ServerSettings | None:
    """Return how to reach the server that the source is, None when it is none.

    Raises:
        UsageError: the address, the environment or the file is malformed.
        RefusedError: it is http and that is not allowed, or others may read the file's secret.
    """
    if not is_server(place.uri):
        return None
    settings = parse_server(
        place.uri,
        environment=os.environ,
        config_file=place.config_file,
        allow_insecure=place.allow_insecure,
    )
    return replace(
        settings,
        hosts=place.hosts or settings.hosts,
        staging_database=place.staging_database,
    )
