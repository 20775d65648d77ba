"""Opens a source by what stands after --source and its options."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from catalog.clickhouse.capabilities import READING_SETTINGS
from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.embedded_uri import parse_source
from catalog.clickhouse.frozen.source import FrozenPartsSource
from catalog.clickhouse.frozen.uri import is_parts, parse_parts
from catalog.clickhouse.origin import STAGING_DATABASE
from catalog.clickhouse.server.given import PREFIX
from catalog.clickhouse.server.replicas import SYNC_TIMEOUT
from catalog.clickhouse.server.settings import Host, ServerSettings, is_server, parse_server
from catalog.clickhouse.server.source import ServerSource
from catalog.clickhouse.source import ClickHouseSource
from tableformat.errors import UsageError
from tableformat.names import TableName

__all__ = ["DEFAULT_DATABASE", "SourcePlace", "each_host", "open_source", "server_of"]

DEFAULT_DATABASE: Final = "default"
"""Where ClickHouse looks for a table that is named alone, when nobody said another one."""


def _given_in_environment() -> Mapping[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith(PREFIX)}


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a source is, as the user said; `uri` may hold a password, so no repr shows it.

    `wait` is how many seconds a directory may be in use. For a server: `config_file` says who logs
    in, unless the address or the environment does; `allow_insecure` lets it be spoken to over http;
    `sync_timeout` is how many seconds a partition waits for parts that its replica lacks; `hosts`
    are asked instead of those of the address, where that names another shard;
    `ignore_row_policies` lets an export hold rows that its user is not shown; `staging_database` is
    where staging tables are made; `allow_alter` lets a command change the user's own tables.
    `environment` has what the environment gave when the place was named: processes that are started
    later need not inherit it. `cluster_hosts` says where hosts of a cluster speak HTTP, as pairs of
    `HOST:PORT` as the cluster names it and over HTTP. `database` has the tables that a statement
    names alone. `opened` gives the source where it is an
    object of this process, which no address names; `uri` is then only shown.
    """

    uri: str = field(repr=False)
    wait: float = 60.0
    config_file: Path | None = None
    allow_insecure: bool = False
    sync_timeout: float = SYNC_TIMEOUT
    hosts: tuple[Host, ...] = ()
    ignore_row_policies: bool = False
    staging_database: str = STAGING_DATABASE
    reading: tuple[tuple[str, str], ...] = ()
    allow_alter: bool = False
    cluster_hosts: tuple[tuple[str, str], ...] = ()
    database: str = DEFAULT_DATABASE
    environment: Mapping[str, str] = field(
        default_factory=_given_in_environment, repr=False, hash=False
    )
    opened: Callable[[], ClickHouseSource] | None = field(default=None, repr=False)


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
    if place.opened is not None:
        return place.opened()
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
        if place.reading:
            message = "Cannot use --source-setting: the source is no server. Leave it out."
            raise UsageError(message)
        return None
    _check_reading(place.reading)
    settings = parse_server(
        place.uri,
        environment=place.environment,
        config_file=place.config_file,
        allow_insecure=place.allow_insecure,
        instead=place.hosts,
    )
    return replace(
        settings,
        staging_database=place.staging_database,
        reading=place.reading,
    )


def each_host(place: SourcePlace) -> tuple[SourcePlace, ...]:
    """Return a place for each host of a server's address; one that is no server is its only place.

    Raises:
        UsageError: the address, the environment or the file is malformed.
        RefusedError: it is http and that is not allowed, or others may read the file's secret.
    """
    settings = server_of(place)
    if settings is None:
        return (place,)
    return tuple(replace(place, hosts=(host,)) for host in settings.hosts)


def _check_reading(given: tuple[tuple[str, str], ...]) -> None:
    ours = {name for name, _ in READING_SETTINGS} | {"session_timezone"}
    for name, _ in given:
        if name in ours:
            message = (
                f"Cannot set {name} for the queries of an export: they depend on the value that it "
                "has there. Leave it out."
            )
            raise UsageError(message)
