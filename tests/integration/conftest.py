"""One ClickHouse with several disks for each test file, and a warehouse beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.clickhouse_source import config_text
from tests.real_export import RealExport


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealExport]:
    root = tmp_path_factory.mktemp("exports")
    for disk in ("hot", "cold"):
        (root / disk).mkdir()
    config = root / "config.xml"
    config.write_text(config_text(root))
    with EmbeddedConnection(root / "data", create=True, config_file=config) as connection:
        yield RealExport(connection, root)
