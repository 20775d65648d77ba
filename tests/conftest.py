"""What holds for every test: fast ones first, and no deadlines on a busy machine."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.services.clickhouse_front import ClickHouseFront, clickhouse_front
from tests.services.minio import MinIO, minio
from tests.services.old_clickhouse import OldPair, old_pair
from tests.services.rest_server import RestServer, rest_server
from tests.services.zookeeper import ZooKeeper, zookeeper

pytest_plugins = [
    "tests.light_machine",
    "tests.services.azurite",
    "tests.services.fake_gcs",
    "tests.services.hdfs",
]

# In CI Hypothesis has a profile of its own: the same examples in every run.
settings.register_profile("development", deadline=None)
if "CI" not in os.environ:
    settings.load_profile("development")

# Whole jobs, real data directories, many processes: seconds each, or minutes together.
_SLOW = (
    "tests/bench/",
    "tests/faults/",
    "tests/integration/",
    "tests/properties/",
    "tests/readers/test_all_readers.py",
    "tests/readers/test_clickhouse_files.py",
    "tests/readers/test_over_s3.py",
    "tests/spark_ext/",
)

# Of those that start Spark: minutes each, or a minute in one test.
_LONGEST = (
    "tests/integration/test_door_",
    "tests/readers/test_all_readers.py",
    "tests/faults/test_server_trouble_stopped.py",
    "tests/faults/test_killed_for_real.py",
    "tests/spark_ext/cli/test_interrupt.py",
    "tests/spark_ext/sql/test_secrets_of_sessions.py",
    "tests/spark_ext/procedures/test_in_session.py",
    "tests/spark_ext/test_secrets.py",
    "tests/spark_ext/jvm/test_doors.py",
    "tests/bench/",
    "tests/big/",
)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is slow by where it lies."""
    if item.nodeid.startswith(_SLOW):
        item.add_marker("slow")


@pytest.fixture(scope="session")
def old_pair_of_session() -> Iterator[OldPair]:
    """Run two replicas of the oldest ClickHouse for all tests that ask for them."""
    with old_pair() as pair:
        yield pair


@pytest.fixture
def old_servers(old_pair_of_session: OldPair) -> Iterator[OldPair]:
    """Lend the replicas to a test, which may end and pause them; the next one finds them mended."""
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
    """Lend the server to a test, which may end and pause it; the next one finds it empty."""
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
    """Lend the object store to a test, which may end and pause it; the next one finds it mended."""
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
    """Lend the ZooKeeper to a test, which may end and pause it; the next one finds it mended."""
    yield zookeeper_of_session
    zookeeper_of_session.resume()
    zookeeper_of_session.start()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what is fast before what is slow, and that before what starts Spark; else as shuffled.

    Of the last ones the longest files come first, then those with many tests, so that of two
    processes none waits long for the other: one that is nearly done takes up to three files.
    """
    size = Counter(item.path for item in items)
    items.sort(
        key=lambda item: (
            "spark" in item.keywords,
            "slow" in item.keywords,
            "spark" in item.keywords and not item.nodeid.startswith(_LONGEST),
            -size[item.path] if "spark" in item.keywords else 0,
        )
    )
