"""One ClickHouse with several disks for each test file, and a warehouse next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.server import client
from spark_ext.actions import export_ports
from tests.services.old_clickhouse import OldPair
from tests.support.child_writer import ChildWriter
from tests.support.clickhouse_source import config_text
from tests.support.real_export import Exports, RealExport, of_server
from tests.support.shards import Shards


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealExport]:
    root = tmp_path_factory.mktemp("exports")
    for disk in ("hot", "cold"):
        (root / disk).mkdir()
    config = root / "config.xml"
    config.write_text(config_text(root))
    with EmbeddedConnection(root / "data", create=True, config_file=config) as connection:
        yield RealExport(connection, root)


@pytest.fixture
def shards(
    old_servers: OldPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Shards]:
    """Make shards, whose exports need no Spark, and which are soon known to be down."""
    monkeypatch.setattr(client, "_PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(
        export_ports, "SparkWriter", lambda _, server, __: ChildWriter(lambda *_: None, server)
    )
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    return lambda name: Shards(old_servers, tmp_path, name)


@pytest.fixture
def exports_from(tmp_path: Path) -> Exports:
    """Make exports whose source is the server of an address."""
    return lambda uri: of_server(uri, tmp_path)
