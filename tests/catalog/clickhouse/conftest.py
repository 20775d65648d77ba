"""One ClickHouse for each test file, with several disks, and one that reads parts as files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.support.clickhouse_source import Clickhouse, config_text


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clickhouse]:
    directory = tmp_path_factory.mktemp("source")
    for disk in ("hot", "cold"):
        (directory / disk).mkdir()
    config = directory / "config.xml"
    config.write_text(config_text(directory))
    with EmbeddedConnection(directory / "data", create=True, config_file=config) as connection:
        yield Clickhouse(connection)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedConnection]:
    with EmbeddedConnection(tmp_path_factory.mktemp("reader"), create=True) as connection:
        yield connection
