"""A materialized view has no parts: the table that it writes to has, and is exported by name."""

from __future__ import annotations

import re

import pytest

from tableformat.errors import UnsupportedError
from tableformat.names import LakeName, TableName
from tests.services.clickhouse_front import ClickHouseFront
from tests.services.old_clickhouse import OldPair
from tests.support.real_export import Exports, RealExport

COLUMNS = "(p UInt8, k UInt64, s String)"
KEYS = "ENGINE = MergeTree PARTITION BY p ORDER BY k"
IN_LAKE = TableName("db", "of_view")


@pytest.fixture(autouse=True)
def _one_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    """Export to a table of an ordinary name: the one of an inner table has dots."""
    monkeypatch.setattr(RealExport, "name_of", lambda *_: LakeName("lake", ("n",), IN_LAKE.name))


def check_views(exports: RealExport, inner: str) -> None:
    """Export the inner table of a view, as the refusal of the view names it."""
    run = exports.clickhouse.command
    for database in ("db", "other"):
        run(f"CREATE DATABASE IF NOT EXISTS {database}")
    run(f"CREATE TABLE db.rows {COLUMNS} {KEYS}")
    run(f"CREATE TABLE other.`a sink` {COLUMNS} {KEYS}")
    run(f"CREATE MATERIALIZED VIEW db.into TO other.`a sink` {COLUMNS} AS SELECT * FROM db.rows")
    run(f"CREATE MATERIALIZED VIEW db.made {KEYS} AS SELECT p, k, s FROM db.rows")
    run("INSERT INTO db.rows SELECT number % 2, number, toString(number) FROM numbers(100)")
    try:
        with pytest.raises(UnsupportedError, match=r"writes to, other\.`a sink`\.\Z"):
            exports.run(TableName("db", "into"))
        with pytest.raises(UnsupportedError, match=rf"writes to, db\.`{inner}`\.\Z") as refused:
            exports.run(TableName("db", "made"))
        named = re.search(r"writes to, (\S+)\.\Z", str(refused.value))
        assert named is not None

        found = exports.run(TableName.parse(named[1]))

        assert [one.status.value for one in found] == ["committed", "committed"]
        rows = sorted((n % 2, n, str(n)) for n in range(100))
        assert exports.in_lake(IN_LAKE) == rows
    finally:
        for view in ("into", "made"):
            run(f"DROP TABLE IF EXISTS db.{view}")
        run("DROP TABLE IF EXISTS other.`a sink`")
        run("DROP TABLE IF EXISTS db.rows")


def test_a_view_of_the_newest_server(newest_server: ClickHouseFront, exports_from: Exports) -> None:
    check_views(exports_from(newest_server.url), r"\.inner_id\.[0-9a-f-]{36}")


def test_a_view_of_the_oldest_server(old_servers: OldPair, exports_from: Exports) -> None:
    check_views(exports_from(old_servers.url(1)), r"\.inner\.made")


def test_a_view_of_an_embedded_clickhouse(exports: RealExport) -> None:
    check_views(exports, r"\.inner_id\.[0-9a-f-]{36}")
