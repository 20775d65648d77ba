"""Whole exports of tables as they were made years ago: by month, of the oldest types and syntax."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from unittest.mock import create_autospec

import pytest

from catalog.clickhouse.rows.digests import FileDigests
from catalog.ledgers.uris import open_ledger
from spark_ext.operations.operate import operate, operation_of
from spark_ext.operations.tables import OtherTables, SessionExports
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.statements import Alter
from tableformat.names import TableName
from tests.services.clickhouse_front import ClickHouseFront
from tests.services.old_clickhouse import OldPair
from tests.support.old_source import OldSource
from tests.support.real_export import Exports, RealExport

pytestmark = pytest.mark.nightly

OLD_SYNTAX = "ENGINE = SummingMergeTree(d, intHash32(k), (k, intHash32(k)), 8192, (v))"
OLD_COLUMNS = "d Date, k UInt64, v UInt64, s String"
OLD_ROWS = "SELECT toDate('2024-01-01') + number % 60, number, 1, 'x' FROM numbers({}, 100)"
EVERY_TYPE = (
    "d Date, k UInt64, i Int8, f Float32, g Float64, t DateTime, dec Decimal(18, 4), s String,"
    " fs FixedString(4), n Nullable(Int32), ns Nullable(String), e Enum8('a' = 1, 'b' = 2),"
    " a Array(String), an Array(Nullable(UInt16)), u UUID, m UInt64 MATERIALIZED k * 2,"
    " c String DEFAULT concat(s, '!')"
)
EVERY_VALUE = (
    "SELECT toDate('2024-01-01') + number % 60, number, number % 256 - 128, number / 3,"
    " number / 7, toDateTime('2024-01-01 00:00:00') + number * 3600, toDecimal64(number, 4) / 8,"
    " toString(number), 'fix', if(number % 3 = 0, NULL, number), if(number % 5 = 0, NULL, 'ü'),"
    " if(number % 2 = 0, 'a', 'b'), ['x', toString(number)], [NULL, number % 9],"
    " toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0') FROM numbers(1000)"
)


def test_every_type_of_the_oldest_version_is_exported_by_month_and_verified(
    old_servers: OldPair, exports_from: Exports
) -> None:
    """Values, partitions and digests are those of the server, which can compute none of them."""
    old = OldSource(old_servers)
    clauses = (
        "ENGINE = ReplicatedMergeTree('/tables/types', 'r') PARTITION BY toYYYYMM(d) ORDER BY k"
    )
    name = old.table(clauses, EVERY_TYPE)
    columns = "d, k, i, f, g, t, dec, s, fs, n, ns, e, a, an, u"
    old.query(f"INSERT INTO {name.sql} ({columns}) {EVERY_VALUE}")
    exports = exports_from(old_servers.url(1))
    found = exports.statuses(name)
    assert {status for status, _ in found.values()} == {"committed"}, found
    with FileDigests() as digests:
        assert {c.verdict for c in exports.verify(name, digests)} == {"equal"}
    assert exports.in_lake(name, "k, s, n, ns, e, a, m, c") == exports.in_source(
        name, "k, s, n, ns, e, a, m, c"
    )
    assert {str(file.partition[0]) for file in exports.data_files(name)} == {"648", "649"}
    assert exports.clickhouse.staging_tables() == ()


def old_syntax(run: Callable[[str], object], name: TableName, allowed: str = "") -> None:
    run(f"CREATE TABLE {name.sql} ({OLD_COLUMNS}) {OLD_SYNTAX}{allowed}")
    for first in (0, 100):
        run(f"INSERT INTO {name.sql} {OLD_ROWS.format(first)}")


def test_a_table_of_the_old_syntax_is_exported_from_the_oldest_server(
    old_servers: OldPair, exports_from: Exports
) -> None:
    """Its parts fit only into a table of the same syntax, and the server reads them there."""
    name = TableName("db", "of_old_syntax")
    old_servers.make_room(1, name.name)
    old_syntax(lambda sql: old_servers.query(1, sql), name)
    exports = exports_from(old_servers.url(1))
    assert {status for status, _ in exports.statuses(name).values()} == {"committed"}
    assert exports.in_lake(name, "k, v, s") == exports.in_source(name, "k, v, s")
    assert {status for status, _ in exports.statuses(name).values()} == {"already_exported"}


def test_a_table_of_the_old_syntax_is_exported_from_the_newest_server(
    newest_server: ClickHouseFront, exports_from: Exports
) -> None:
    """A server that was updated for years keeps such tables, and the syntax must be allowed."""
    exports = exports_from(newest_server.url)
    name = TableName("db", "of_old_syntax")
    newest_server.command("CREATE DATABASE IF NOT EXISTS db")
    old_syntax(newest_server.command, name, " SETTINGS allow_deprecated_syntax_for_merge_tree = 1")
    found = exports.statuses(name)
    assert {status for status, _ in found.values()} == {"committed"}, found
    assert exports.in_lake(name, "k, v, s") == exports.in_source(name, "k, v, s")


def frozen_in_lake(exports: RealExport, name: TableName, command: str) -> set[str]:
    """Run a statement on the lake table; return the months that the name `y` has then."""
    read = parse_statement(f"ALTER TABLE {exports.name_of(name)} {command}")
    assert isinstance(read, Alter)
    lake = exports.catalog("lake")
    others = OtherTables(
        lambda _: exports.name_of(name),
        lambda _: lake,
        create_autospec(SessionExports, instance=True),
    )
    with contextlib.closing(open_ledger(None, local_warehouse=exports.warehouse)) as ledger:
        of = exports.name_of(name)
        list(operate(operation_of(read), of, lake, ledger, lambda _: None, others))
    tag = exports.lake(name).metadata.refs.get("y")
    if tag is None:
        return set()
    days = exports.lake(name).scan(snapshot_id=tag.snapshot_id).to_arrow().column("d")
    return {f"{day:%Y%m}" for day in days.to_pylist()}


@pytest.mark.parametrize("literal", ["2024", "202401", "'202401'", "20", "7", "tuple(2024)"])
def test_a_prefix_freezes_the_months_that_it_freezes_in_clickhouse(
    newest_server: ClickHouseFront, exports_from: Exports, literal: str
) -> None:
    exports = exports_from(newest_server.url)
    name = TableName("db", "by_month")
    newest_server.command("CREATE DATABASE IF NOT EXISTS db")
    old_syntax(newest_server.command, name, " SETTINGS allow_deprecated_syntax_for_merge_tree = 1")
    newest_server.command(f"INSERT INTO {name.sql} SELECT '2023-12-31', 1, 1, 'y'")
    exports.run(name)
    freeze = f"FREEZE PARTITION {literal} WITH NAME 'y'"

    newest_server.command(f"ALTER TABLE {name.sql} {freeze}")
    shown = newest_server.rows(
        f"SELECT DISTINCT partition_id FROM system.parts WHERE active AND is_frozen"
        f" AND database = '{name.database}' AND table = '{name.name}'"
    )
    in_clickhouse = {str(month) for (month,) in shown}

    assert frozen_in_lake(exports, name, freeze) == in_clickhouse
    assert frozen_in_lake(exports, name, f"UN{freeze}") == set()


def test_a_clone_of_the_old_syntax_that_merged_costs_a_run_and_no_row(
    old_servers: OldPair, exports_from: Exports
) -> None:
    """Nothing but a stop of merges, which a restart ends, keeps its parts as they were."""
    name = TableName("db", "merging")
    old_servers.make_room(1, name.name)
    old_syntax(lambda sql: old_servers.query(1, sql), name)
    exports = exports_from(old_servers.url(1))
    happened: list[str] = []

    def restart(*_: object) -> None:
        """Restart the server when the partitions are frozen, and let their parts merge there."""
        if not happened:
            old_servers.kill(1)
            old_servers.mend()
            (staging,) = exports.clickhouse.staging_tables()
            for month in ("202401", "202402"):
                merge = f"OPTIMIZE TABLE mergeberg_staging.`{staging}` PARTITION {month} FINAL"
                happened.append(old_servers.query(1, merge))

    exports.before = restart
    first, second = exports.statuses(name), exports.statuses(name)
    assert {status for status, _ in first.values()} == {"failed"}, first
    assert {status for status, _ in second.values()} == {"committed"}, second
    assert exports.in_lake(name, "k, v, s") == exports.in_source(name, "k, v, s")
