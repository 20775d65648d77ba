"""Directories of expressions from servers: of one that can compute all, of one that cannot."""

from __future__ import annotations

import pytest

from catalog.clickhouse.capabilities import Capabilities
from tableformat.errors import UnsupportedError
from tableformat.names import TableName
from tests.services.clickhouse_front import ClickHouseFront
from tests.services.old_clickhouse import OldPair
from tests.support.real_export import Exports, RealExport
from tests.support.real_tree import RealTree

pytestmark = pytest.mark.nightly

NAMES = {"month": "toYYYYMM(d)", "odd": "k % 2 = 1"}


def trees_of(exports: RealExport) -> RealTree:
    return RealTree(exports.clickhouse.connection, exports.warehouse.parent, exports.place)


@pytest.mark.parametrize("casts", [True, False])
def test_a_server_returns_the_values_of_a_key_without_our_casts(
    newest_server: ClickHouseFront,
    exports_from: Exports,
    monkeypatch: pytest.MonkeyPatch,
    casts: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    """Harm prevented: of a server without our casts only the table's own columns are asked for."""
    monkeypatch.setattr(Capabilities, "makes_wire_values", casts)
    trees = trees_of(exports_from(newest_server.url))
    name = TableName("db", f"months_{casts}")
    trees.clickhouse.command(
        f"CREATE TABLE {name.sql} (d Date, k UInt8) ENGINE = MergeTree "
        "PARTITION BY (toYYYYMM(d), k % 2 = 1) ORDER BY k"
    )
    trees.clickhouse.command(
        f"INSERT INTO {name.sql} VALUES ('2024-01-31', 1), ('2024-03-01', 2), ('2024-03-02', 4)"
    )

    outcomes = trees.run(name, directories=NAMES)

    assert [o.rows for o in outcomes] == [1, 2]
    assert {p.rsplit("/", 1)[0] for p in trees.committed(name)} == {
        "month=202401/odd=1",
        "month=202403/odd=0",
    }


def test_a_server_that_does_not_show_them_names_nothing(
    old_servers: OldPair, exports_from: Exports
) -> None:
    trees = trees_of(exports_from(old_servers.url(1)))
    old_servers.make_room(1, "months")
    old_servers.query(
        1,
        "CREATE TABLE db.months (d Date, k UInt8) ENGINE = MergeTree PARTITION BY toYYYYMM(d) "
        "ORDER BY k",
    )

    with pytest.raises(
        UnsupportedError, match="does not show the values of a partition's key"
    ) as e:
        trees.run(TableName("db", "months"), directories={"month": "toYYYYMM(d)"})

    assert e.value.code == 48
    assert not trees.root(TableName("db", "months")).exists()
