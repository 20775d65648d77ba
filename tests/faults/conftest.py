"""Servers for exports that get into trouble, and the one process that writes their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.properties.task_worker import TaskWorker
from tests.services.clickhouse_front import ClickHouseFront
from tests.services.old_clickhouse import OldPair
from tests.services.postgres import Postgres, postgres
from tests.support.postgres_lake import Lake, lake_in
from tests.support.server_trouble import Trouble


@pytest.fixture(scope="session")
def worker() -> Iterator[TaskWorker]:
    """Run the real tasks, export after export."""
    with TaskWorker() as made:
        yield made


@pytest.fixture
def newest(
    newest_server: ClickHouseFront,
    worker: TaskWorker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Trouble:
    """Return the newest ClickHouse, which is well so far, and an empty warehouse."""
    return Trouble(newest_server.url, newest_server, tmp_path, worker, monkeypatch)


@pytest.fixture
def oldest(
    old_servers: OldPair, worker: TaskWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Trouble]:
    """Return the first of the two oldest servers, and an empty warehouse."""
    made = Trouble(old_servers.url(1), old_servers.replica(1), tmp_path, worker, monkeypatch)
    yield made
    old_servers.mend()
    for database in ("db", "mergeberg_staging"):
        made.ask(f"DROP DATABASE IF EXISTS {database}")


@pytest.fixture(params=["newest", pytest.param("oldest", marks=pytest.mark.nightly)])
def either(request: pytest.FixtureRequest) -> Trouble:
    """Return the newest, then the oldest."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Trouble)
    return found


@pytest.fixture(scope="module")
def postgres_of_file() -> Iterator[Postgres]:
    """Run a PostgreSQL for the tests of one file, which may stop and start it."""
    with postgres() as server:
        yield server


@pytest.fixture
def lake(
    postgres_of_file: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    """Return a new lake whose catalog is in PostgreSQL."""
    with lake_in(postgres_of_file, tmp_path, monkeypatch) as made:
        yield made
