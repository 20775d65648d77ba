"""One ClickHouse for each test file, a warehouse next to it, and no catalogs of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.support.real_export import RealExport


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealExport]:
    root = tmp_path_factory.mktemp("exports")
    with EmbeddedConnection(root / "data", create=True) as connection:
        yield RealExport(connection, root)


@pytest.fixture(autouse=True)
def _no_catalogs_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
