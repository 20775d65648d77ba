"""A catalog in a real PostgreSQL: it keeps the promises, and no request of it waits for ever."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from catalog.iceberg.catalogs import BoundedSqlCatalog, OpenedCatalog
from catalog.network import TimeOuts
from conformance.suites.catalog import catalog_promises
from tableformat.errors import DestinationError
from tableformat.names import LakeName
from tests.services.postgres import ADMINISTRATOR, Postgres, postgres
from tests.services.postgres_relay import Exchange, Fault, Relay
from tests.support.time_bounds import ENDS_WITHIN

TABLE: Final = LakeName("lake", ("n",), "t")
IMPATIENT: Final = TimeOuts(connect=1, read=3)
"""Longer than a process stands still on a busy machine: the server ends who pauses longer."""
_STACK: Final = contextlib.ExitStack()


@cache
def _server() -> Postgres:
    return _STACK.enter_context(postgres())


@cache
def _place(name: str) -> dict[str, str]:
    """Return the configuration of a catalog, by a name of the suite's."""
    made = tempfile.TemporaryDirectory(prefix="mergeberg-pg-files-")
    warehouse = Path(_STACK.enter_context(made), name).as_uri()
    return {"uri": _server().uri(_server().account()), "warehouse": warehouse}


def _in_postgres(name: str) -> Catalog:
    return OpenedCatalog("lake", None, _place(name)).catalog


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    """End the server before the process ends."""
    yield
    _STACK.close()
    _server.cache_clear()
    _place.cache_clear()


@pytest.fixture
def relay() -> Iterator[Relay]:
    """Return a relay to the server."""
    with Relay(_server().socket) as relay:
        yield relay


TestACatalogInPostgres = catalog_promises(_in_postgres)


def opened(uri: str, time_outs: TimeOuts = IMPATIENT, **more: str) -> OpenedCatalog:
    return OpenedCatalog("lake", None, {"uri": uri, **more}, time_outs)


def parameters(catalog: Catalog) -> dict[str, str]:
    """Return the parameters of a catalog's connection."""
    assert isinstance(catalog, SqlCatalog)
    with catalog.engine.connect() as connection:
        made: Any = connection.connection.dbapi_connection
        return dict(made.get_dsn_parameters())


def test_a_connection_is_bounded_and_options_of_the_address_win() -> None:
    """Harm prevented: an operator's own time-out that is not kept."""
    uri = _server().uri(_server().account())
    ours = parameters(opened(uri, TimeOuts(connect=7, read=40)).catalog)
    options = parameters(opened(f"{uri}&connect_timeout=33&keepalives_idle=5").catalog)

    assert (ours["connect_timeout"], ours["tcp_user_timeout"]) == ("7", "40000")
    assert (ours["keepalives_idle"], ours["keepalives_interval"]) == ("20", "7")
    assert (options["connect_timeout"], options["keepalives_idle"]) == ("33", "5")


def test_the_bounds_of_a_transaction_end_with_it() -> None:
    """Harm prevented: other clients of a connection pooler get our time-outs."""
    catalog = opened(_server().uri(_server().account())).catalog
    assert isinstance(catalog, SqlCatalog)
    show = "SELECT current_setting('statement_timeout')"
    with catalog.engine.connect() as connection:
        within = connection.exec_driver_sql(show).scalar_one()
        connection.rollback()
        made: Any = connection.connection.dbapi_connection
        made.autocommit = True
        with made.cursor() as cursor:
            cursor.execute(show)
            assert (within, cursor.fetchone()) == ("3s", ("0",))


def test_a_server_that_never_responds_is_an_error_in_time() -> None:
    """Harm prevented: an export that hangs before it has begun."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"postgresql+psycopg2://me@127.0.0.1:{silent.getsockname()[1]}/d"
        assert_ends(lambda: opened(uri).table(TABLE), "open the catalog")


@pytest.mark.parametrize("performed", [False, True], ids=["question", "answer"])
def test_a_server_that_stops_responding_is_an_error_in_time(
    relay: Relay, *, performed: bool
) -> None:
    """Harm prevented: an export hangs, and blocks its partitions, until it is killed."""

    def silent(exchange: Exchange) -> bool:
        if performed:
            exchange.perform()
        return True

    lake = opened(_server().uri(_server().account(), relay.port))
    table = lake.table(TABLE)
    relay.arm(Fault("iceberg_tables.metadata_location", silent))

    assert table is None
    assert_ends(lambda: lake.table(TABLE), "load lake.n.t")
    assert relay.happened


def test_a_server_that_is_paused_is_an_error_in_time(relay: Relay) -> None:
    """Harm prevented: a swapping machine responds to keepalives and to nothing else."""
    account = _server().account()
    catalog = opened(_server().uri(account, relay.port)).catalog
    (backend,) = _server().execute(
        ADMINISTRATOR, f"SELECT pid FROM pg_stat_activity WHERE usename = '{account}'"
    )
    subprocess.run(["kill", "-STOP", str(backend[0])], check=True)
    try:
        began = time.monotonic()
        # The connection that does not respond is given up, and another one is asked.
        assert catalog.list_namespaces() == []
        assert time.monotonic() - began < ENDS_WITHIN
    finally:
        subprocess.run(["kill", "-CONT", str(backend[0])], check=True)


def assert_ends(ask: Callable[[], object], what: str) -> None:
    """Check that a question ends with an error before long."""
    began = time.monotonic()
    with pytest.raises(DestinationError, match=f"Cannot ({what}): .* failed with Operational"):
        ask()
    assert time.monotonic() - began < ENDS_WITHIN


def test_a_new_database_that_many_open_at_once() -> None:
    """Harm prevented: of the first commands of a new lake, all but one fail."""
    uri = _server().uri(_server().account())
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(lambda _: opened(uri, TimeOuts()).catalog, range(8))]

    assert [isinstance(catalog, BoundedSqlCatalog) for catalog in made] == [True] * 8
    assert [catalog.list_namespaces() for catalog in made] == [[]] * 8


def test_a_garbage_collected_catalog_holds_no_connection() -> None:
    """Harm prevented: a schedule of many exports in one process takes every slot of the server."""
    account = _server().account()
    for _ in range(3):
        # Its own bounds: a machine under load must not end these before their time.
        assert opened(_server().uri(account), TimeOuts()).table(TABLE) is None

    # Ended connections are gone a moment after their client has closed them.
    count = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{account}'"
    deadline = time.monotonic() + ENDS_WITHIN
    while _server().execute(ADMINISTRATOR, count) != [(0,)]:
        assert time.monotonic() < deadline


def test_an_error_says_no_password_and_no_statement(relay: Relay) -> None:
    """Harm prevented: secrets and values in logs."""
    uri = _server().uri(_server().account(), relay.port).replace("postgres@", "postgres:secret@")
    lake = opened(uri)
    assert lake.table(TABLE) is None
    relay.arm(Fault("iceberg_tables.metadata_location", lambda _: False))

    with pytest.raises(DestinationError, match="OperationalError") as refused:
        lake.table(TABLE)

    assert "secret" not in f"{lake!r} {refused.value}"
    assert "SELECT" not in str(refused.value)
