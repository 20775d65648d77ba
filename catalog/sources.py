"""Opens a source from the text of --source and its options, and guards changes of a source.

- `open_source` accepts `chdb:DIRECTORY[?config-file=FILE][&zone=ZONE]`,
  `https://[USER@]HOST[:PORT]` and `parts:DIR?ddl=FILE`.
- `tables_under` lists the tables of a server that are replicated under a ZooKeeper path.
- `check_alter_allowed` and `check_pass_on` run before anything else and send nothing:

    server         other users depend on it: changed only with explicit permission, whatever the
                   grants allow
    embedded       the user's own directory: a command that changes the source, such as
                   `archive`, suffices; a statement that is passed on needs permission, too
    frozen parts   never changed
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from catalog.clickhouse.capabilities import READING_SETTINGS
from catalog.clickhouse.connection import Connection, text
from catalog.clickhouse.embedded import EmbeddedConnection, parse_source
from catalog.clickhouse.frozen.definition import is_parts, parse_parts
from catalog.clickhouse.frozen.source import FrozenPartsSource
from catalog.clickhouse.server.access_report import missing_rights, user_of
from catalog.clickhouse.server.grants import ARCHIVE, Grant, Target, statements
from catalog.clickhouse.server.replicas import Lag, connect, lag_of
from catalog.clickhouse.server.settings import PREFIX, Host, ServerSettings, is_server, parse_server
from catalog.clickhouse.server.source import ServerSource
from catalog.clickhouse.source import ClickHouseSource
from catalog.clickhouse.table_description import MAIN_KEEPER, node_of
from catalog.source_defaults import DEFAULT_DATABASE, STAGING_DATABASE, SYNC_TIMEOUT
from tableformat.clickhouse_codes import ACCESS_DENIED, NOT_IMPLEMENTED
from tableformat.errors import RefusedError, UnsupportedError, UsageError
from tableformat.mergetree.table import KeeperNode
from tableformat.messages import Option
from tableformat.names import TableName, quote_string

__all__ = [
    "Replica",
    "SourcePlace",
    "check_alter_allowed",
    "check_alter_rights",
    "check_pass_on",
    "each_host",
    "open_source",
    "pass_on",
    "replica_at",
    "server_of",
    "tables_under",
]


def _given_in_environment() -> Mapping[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith(PREFIX)}


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A source as the user named it, with its options.

    - `uri` may hold a password, so no repr shows it.
    - `wait`: seconds to wait for a directory that another process uses.
    - `database`: the database of tables that a statement names without one.
    - `allow_alter`: whether commands may change the user's tables.
    - `environment`: the source's variables when the place was created; later processes need not
      inherit them.
    - `opened`: returns the source if it is an object of this process; then `uri` is only shown.

    For servers:

    - `config_file`: a client configuration with the credentials, unless address or environment have
      them.
    - `allow_insecure`: whether http is allowed.
    - `sync_timeout`: seconds to wait for parts that the replica lacks.
    - `hosts`: the hosts of another shard, instead of those of the address.
    - `cluster_hosts`: pairs of `HOST:PORT` in the cluster's definition and of the HTTP interface.
    - `ignore_row_policies`: whether to export although row policies hide rows from the user.
    - `staging_database`: the database for staging tables.
    - `reading`: settings for the queries of an export.
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
    """Return the source; its first use opens it, `close` releases it.

    Args:
        place: `chdb:DIRECTORY[?config-file=FILE]`, `https://[USER@]HOST[:PORT]`, or
            `parts:DIR?ddl=FILE`.
        is_exporting: whether an export will take snapshots; on a server the user's rights are then
            checked first.

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
            zone=embedded.zone or None,
        )

    return ClickHouseSource(opened, assumes_zone=not embedded.zone)


def server_of(place: SourcePlace) -> ServerSettings | None:
    """Return the connection settings of a server, None for another kind of source.

    Raises:
        UsageError: the address, the environment or the file is malformed.
        RefusedError: the address is http and that is not allowed, or other users may read the file
            with the secret.
    """
    if not is_server(place.uri):
        if place.reading:
            message = f"Cannot use {Option.SOURCE_SETTING}: the source is no server. Leave it out."
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
    """Return a place for each host of a server's address; another source has one place.

    Raises:
        UsageError: the address, the environment or the file is malformed.
        RefusedError: the address is http and that is not allowed, or other users may read the file
            with the secret.
    """
    settings = server_of(place)
    if settings is None:
        return (place,)
    return tuple(replace(place, hosts=(host,)) for host in settings.hosts)


def _check_reading(given: tuple[tuple[str, str], ...]) -> None:
    reserved = {name for name, _ in READING_SETTINGS} | {"session_timezone"}
    for name, _ in given:
        if name in reserved:
            message = (
                f"Cannot set {name} for the queries of an export: they depend on the value that it "
                "has there. Leave it out."
            )
            raise UsageError(message)


@dataclass(frozen=True, slots=True)
class Replica:
    """The Keeper node of a replicated table and the lag of its replica, each None if unknown."""

    node: KeeperNode | None
    lag: Lag | None


def tables_under(place: SourcePlace, path: str) -> tuple[TableName, ...]:
    """Return a server's tables that are replicated under a Keeper path; none for other sources.

    Args:
        place: the source.
        path: the path in the tables' definitions, with macros expanded.

    Raises:
        UsageError: the source's address is malformed.
        SourceError: the server cannot be read.
    """
    settings = server_of(place)
    if settings is None:
        return ()
    with contextlib.closing(connect(settings, None)) as connection:
        found = connection.rows(
            "SELECT database, table FROM system.replicas"
            f" WHERE zookeeper_path = {quote_string(path.rstrip('/'))} ORDER BY database, table"
        )
    return tuple(TableName(text(database), text(table)) for database, table in found)


def replica_at(place: SourcePlace, name: TableName, path: str) -> Replica:
    """Return the Keeper node and the lag of a table's replica on a server.

    Args:
        place: the source.
        name: the table.
        path: its Keeper path.

    Raises:
        SourceError: the server cannot be read, or its user may not read `system.zookeeper`.
    """
    settings = server_of(place)
    if settings is None:
        return Replica(None, None)
    with contextlib.closing(connect(settings, name)) as connection:
        node = node_of(connection, path.rstrip("/"), MAIN_KEEPER)
        return Replica(node if isinstance(node, KeeperNode) else None, lag_of(connection, name))


def check_alter_allowed(place: SourcePlace, table: TableName, *, drop: bool) -> None:
    """Refuse to archive from a source that may not be changed. Sends nothing.

    Args:
        place: the source.
        table: the table that would be changed.
        drop: whether detached parts would be dropped.

    Raises:
        UnsupportedError: the source is frozen parts (code 48).
        RefusedError: the source is a server without --allow-alter.
    """
    if is_parts(place.uri):
        message = (
            f"Cannot archive partitions of {table}: its source is frozen parts, which mergeberg "
            "only reads. Export them, detach the partitions on their server, or remove the part "
            "folders yourself."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    server = server_of(place)
    if server is None or place.allow_alter:
        return
    then = ", and DROP DETACHED PART of each part" if drop else ""
    user = server.credentials.user or "default"
    (grant,) = statements(_grants(table), user)
    message = (
        f"Cannot archive partitions of {table}: that runs ALTER TABLE {table.sql} DETACH PARTITION "
        f"ID '...'{then} at {server.hosts[0].url}, and mergeberg changes a server only if that is "
        f"allowed. Give {Option.ALLOW_ALTER}; the user needs {grant}"
    )
    raise RefusedError(message)


def check_alter_rights(place: SourcePlace, table: TableName) -> None:
    """Refuse a server's user who may not detach parts of a table, or attach them again.

    Nothing is refused if the grants cannot be determined; the server then checks them itself.

    Raises:
        RefusedError: a right is missing (code 497).
        SourceError: the server cannot be reached.
    """
    server = server_of(place)
    if server is None:
        return
    with contextlib.closing(connect(server, table)) as connection:
        missing = missing_rights(connection, _grants(table)).missing
        if not missing:
            return
        user = user_of(connection)
    message = (
        f"Cannot archive partitions of {table} as the user {user!r}: a right is missing. Run "
        f"{' '.join(statements(missing, user))}"
    )
    raise RefusedError(message, code=ACCESS_DENIED)


def _grants(table: TableName) -> tuple[Grant, ...]:
    on = Target(table.database, table.name)
    return tuple(Grant(privilege, on, why) for privilege, why in ARCHIVE)


def check_pass_on(place: SourcePlace, table: TableName, statement: str) -> None:
    """Refuse to run a statement on a source that does not allow it. Sends nothing.

    Args:
        place: the source.
        table: the table of the statement.
        statement: ClickHouse's SQL.

    Raises:
        UnsupportedError: the source is frozen parts (code 48).
        RefusedError: the source does not allow changes.
    """
    what = f"Cannot run {statement.partition(chr(10))[0]}"
    if is_parts(place.uri):
        message = f"{what}: its source is frozen parts, only read. Run it on their server."
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    if not place.allow_alter:
        message = (
            f"{what}: it changes {table}, and its source does not allow that. Allow it with "
            f"{Option.ALLOW_ALTER}."
        )
        raise RefusedError(message)


def pass_on(place: SourcePlace, table: TableName, statement: str) -> None:
    """Run a statement about a table on its source.

    Args:
        place: the source.
        table: the table of the statement.
        statement: ClickHouse's SQL, which names the table.

    Raises:
        UnsupportedError: the source is frozen parts (code 48).
        RefusedError: the source does not allow changes.
        SourceError: ClickHouse refuses the statement, or cannot be reached.
    """
    check_pass_on(place, table, statement)
    with open_source(place) as source:
        source.command(table, statement)
