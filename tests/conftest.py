"""What holds for every test: fast ones first, and the servers that they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.services.clickhouse_front import ClickHouseFront, clickhouse_front
from tests.services.minio import MinIO, minio
from tests.services.old_clickhouse import OldPair, old_pair
from tests.services.rest_server import RestServer, rest_server
from tests.services.zookeeper import ZooKeeper, zookeeper
from tests.support.durations import load_durations

pytest_plugins = [
    "tests.support.light_machine",
    "tests.support.store_places",
    "tests.services.azurite",
    "tests.services.fake_gcs",
    "tests.services.hdfs",
    "tests.services.s3proxy",
    "tests.support.spark_application",
]

_LEAST: Final = 0.02
"""Seconds of a test whose cost is not listed."""
_DEAR: Final = 10.0
"""Seconds from which a file is run late, the dearest first."""


@pytest.fixture(scope="session")
def old_pair_of_session() -> Iterator[OldPair]:
    """Run two replicas of the oldest ClickHouse for all tests that ask for them."""
    with old_pair() as pair:
        yield pair


@pytest.fixture
def old_servers(old_pair_of_session: OldPair) -> Iterator[OldPair]:
    """Yield the replicas to a test that may end and pause them; the next one finds them mended."""
    yield old_pair_of_session
    old_pair_of_session.mend()
    old_pair_of_session.forget_staging()


@pytest.fixture(scope="session")
def newest_server_of_session() -> Iterator[ClickHouseFront]:
    """Run the newest ClickHouse as a server for all tests that ask for it."""
    with clickhouse_front() as front:
        yield front


@pytest.fixture
def newest_server(newest_server_of_session: ClickHouseFront) -> Iterator[ClickHouseFront]:
    """Yield the server to a test, which may end and pause it; the next one finds it empty."""
    yield newest_server_of_session
    newest_server_of_session.mend()
    newest_server_of_session.drop_databases()


@pytest.fixture(scope="session")
def minio_server_of_session() -> Iterator[MinIO]:
    """Run an object store for all tests that ask for it; each makes a bucket of its own there."""
    with minio() as server:
        yield server


@pytest.fixture
def minio_server(minio_server_of_session: MinIO) -> Iterator[MinIO]:
    """Yield the object store to a test that may end and pause it; the next one finds it mended."""
    yield minio_server_of_session
    minio_server_of_session.mend()


@pytest.fixture(scope="session")
def rest_server_of_session(minio_server_of_session: MinIO) -> Iterator[RestServer]:
    """Run a REST catalog for all tests that ask for it; each has a namespace of its own there."""
    with rest_server(minio_server_of_session) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_of_session() -> Iterator[ZooKeeper]:
    """Run a ZooKeeper for all tests that ask for it; each has a path of its own there."""
    with zookeeper() as server:
        yield server


@pytest.fixture
def zookeeper_server(zookeeper_of_session: ZooKeeper) -> Iterator[ZooKeeper]:
    """Yield the ZooKeeper to a test, which may end and pause it; the next one finds it mended."""
    yield zookeeper_of_session
    zookeeper_of_session.resume()
    zookeeper_of_session.start()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files that are cheap before those that are dear, and those before what starts Spark.

    A mistake is seen early. Of the last ones the longest files come first, so that of two processes
    none waits long for the other: one that is nearly done takes up to three files.
    """
    durations = load_durations()
    cost: dict[Path, float] = {}
    spark: set[Path] = set()
    for item in items:
        cost[item.path] = cost.get(item.path, 0.0) + max(durations.of(item.nodeid), _LEAST)
        if item.get_closest_marker("spark"):
            spark.add(item.path)
    for item in {item.path: item for item in items}.values():
        cost[item.path] += durations.around(item.nodeid)

    def place(item: pytest.Item) -> tuple[bool, bool, float]:
        dear = cost[item.path] > _DEAR
        return item.path in spark, dear, -cost[item.path] if dear or item.path in spark else 0

    items.sort(key=place)
