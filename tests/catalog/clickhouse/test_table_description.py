"""A table is described as ClickHouse has it; what has no parts is refused with the way round."""

from __future__ import annotations

import re

import pytest

from catalog.clickhouse.connection import definitions, ttl_columns
from tableformat.errors import NotFoundError, UnsupportedError
from tableformat.mergetree.table import Engine, PartitionSummary, Projection, SkipIndex
from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    DataType,
    LowCardinality,
    Nullable,
    Simple,
    Tuple,
    parse_type,
)
from tableformat.names import TableName
from tests.support.clickhouse_source import Clickhouse, ids


def test_columns_and_clauses_are_described_as_declared(clickhouse: Clickhouse) -> None:
    name = clickhouse.table(
        "ENGINE = ReplacingMergeTree(k) PARTITION BY (p, toYYYYMM(d)) PRIMARY KEY k"
        " ORDER BY (k, s DESC) SAMPLE BY k TTL d + INTERVAL 1 MONTH"
        " SETTINGS allow_experimental_reverse_key = 1, allow_nullable_key = 1,"
        " index_granularity = 512,"
        " deduplicate_merge_projection_mode = 'rebuild'",
        "p UInt8, k UInt64 COMMENT 'the key', s LowCardinality(Nullable(String)) DEFAULT 'it''s',"
        " d Date MATERIALIZED today(), e UInt8 EPHEMERAL 3, a UInt64 ALIAS k + 1,"
        " INDEX i k TYPE minmax, PROJECTION j (SELECT p, count() GROUP BY p)",
    )

    table = clickhouse.source.describe(name)

    assert table.name == name
    assert re.fullmatch(r"uuid:[0-9a-f-]{36}", table.identity)
    assert table.identity == f"uuid:{table.uuid}"
    assert table.engine == Engine(
        "ReplacingMergeTree",
        arguments="k",
        partition_by="(p, toYYYYMM(d))",
        primary_key="k",
        order_by="tuple(k, s DESC)",
        sample_by="k",
        ttl="d + toIntervalMonth(1)",
        settings=table.engine.settings,
    )
    assert ("index_granularity", "512") in table.engine.settings
    assert [(c.name, c.default_kind, c.default_expression, c.comment) for c in table.columns] == [
        ("p", "", "", ""),
        ("k", "", "", "the key"),
        ("s", "DEFAULT", "'it\\'s'", ""),
        ("d", "MATERIALIZED", "today()", ""),
        ("e", "EPHEMERAL", "3", ""),
        ("a", "ALIAS", "k + 1", ""),
    ]
    assert table.columns[2].type == LowCardinality(Nullable(Simple("String")))
    assert [column.name for column in table.stored_columns] == ["p", "k", "s", "d"]
    assert table.indices == (SkipIndex("i", "k", "minmax", 1),)
    assert table.projections == (Projection("j", "SELECT p, count() GROUP BY p"),)
    assert (table.storage_policy, table.has_ttl_columns) == ("default", False)
    assert table.server_version.startswith("2")
    assert table.server_zone


def test_a_state_of_an_aggregate_function_has_the_type_of_its_value(clickhouse: Clickhouse) -> None:
    """Only ClickHouse knows, and the lake's columns get that type with --convert …=finalize."""
    name = clickhouse.table(
        "ENGINE = MergeTree ORDER BY tuple()",
        "a AggregateFunction(sum, UInt8), b Array(Tuple(x AggregateFunction(groupArray, String),"
        " y UInt8)), c AggregateFunction(quantiles(0.5), Float64), d UInt8",
    )

    columns = {c.name: c for c in clickhouse.source.describe(name).columns}

    assert _value(columns["a"].type) == Simple("UInt64")
    match columns["b"].type:
        case Array(Tuple(((_, inner), _))):
            assert _value(inner) == Array(Simple("String"))
        case other:
            pytest.fail(repr(other))
    assert _value(columns["c"].type) == Array(Simple("Float64"))
    assert columns["a"].type == parse_type("AggregateFunction(sum, UInt8)")


def _value(of: DataType) -> DataType | None:
    assert isinstance(of, AggregateFunction)
    return of.value


def test_an_identity_follows_the_data_and_not_the_name(clickhouse: Clickhouse) -> None:
    """A table that was renamed is the same; one recreated under its name is another."""
    name = clickhouse.filled()
    before = clickhouse.source.describe(name).identity
    moved = TableName("db", f"{name.name}_moved")
    clickhouse.command(f"RENAME TABLE {name.sql} TO {moved.sql}")
    clickhouse.command(f"CREATE TABLE {name.sql} AS {moved.sql}")

    assert clickhouse.source.describe(moved).identity == before
    assert clickhouse.source.describe(name).identity != before


def test_tables_of_the_default_database_have_an_identity_too(clickhouse: Clickhouse) -> None:
    """Their UUID is hidden by chdb; two of them must not be taken for one."""
    for name in ("one", "two"):
        clickhouse.command(f"CREATE TABLE default.{name} (k UInt8) ENGINE = MergeTree ORDER BY k")

    one, two = (
        clickhouse.source.describe(TableName("default", n)).identity for n in ("one", "two")
    )

    assert re.fullmatch(r"uuid:(?!0{8}-)[0-9a-f-]{36}", one)
    assert one != two


@pytest.mark.parametrize(
    ("name", "code", "match"),
    [
        ("db.evnets", 60, r"'db' has no such table\. Did you mean events\?"),
        ("bd.events", 81, r"there is no database 'bd'\. Did you mean db\?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    clickhouse: Clickhouse, name: str, code: int, match: str
) -> None:
    clickhouse.command(
        "CREATE TABLE IF NOT EXISTS db.events (k UInt8) ENGINE = MergeTree ORDER BY k"
    )

    with pytest.raises(NotFoundError, match=match) as raised:
        clickhouse.source.describe(TableName.parse(name))

    assert raised.value.code == code


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("CREATE TABLE db.odd (k UInt8) ENGINE = Log", "its engine is Log, .*Copy the rows"),
        ("CREATE VIEW db.odd AS SELECT 1 AS k", "its engine is View, .*Copy the rows"),
        (
            "CREATE MATERIALIZED VIEW db.odd ENGINE = MergeTree ORDER BY k AS SELECT k FROM db.log",
            "its engine is MaterializedView, .*Name the table that it writes to",
        ),
    ],
)
def test_what_has_no_parts_is_refused_with_the_way_round(
    clickhouse: Clickhouse, statement: str, match: str
) -> None:
    clickhouse.command("CREATE TABLE IF NOT EXISTS db.log (k UInt8) ENGINE = Log")
    clickhouse.command(statement)

    with pytest.raises(UnsupportedError, match=match) as raised:
        clickhouse.source.describe(TableName("db", "odd"))

    clickhouse.command("DROP TABLE db.odd SYNC")
    assert raised.value.code == 48


def summaries(clickhouse: Clickhouse, name: TableName) -> tuple[PartitionSummary, ...]:
    source = clickhouse.source
    return source.with_times(source.describe(name), source.partitions(name))


def test_partitions_are_summed_up_without_patch_parts(clickhouse: Clickhouse) -> None:
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY k"
        " SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1",
        "d Date, k UInt64, s UInt64 DEFAULT 0",
    )
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    for day in (5, 7):
        clickhouse.command(
            f"INSERT INTO {name.sql} (d, k) VALUES ('2024-01-{day:02}', {day}), ('2024-02-03', 1)"
        )
    clickhouse.command(f"UPDATE {name.sql} SET s = 9 WHERE k = 5")

    january, february = summaries(clickhouse, name)

    assert (str(january.partition_id), january.partition) == ("202401", "202401")
    assert (january.parts, january.rows) == (2, 2)
    assert (january.min_time, january.max_time) == ("2024-01-05", "2024-01-07")
    assert february.bytes_on_disk == sum(
        part.bytes_on_disk for part in clickhouse.source.parts(name, february.partition_id)
    )


def test_parts_are_listed_with_rows_only(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} DELETE WHERE p = 0 SETTINGS mutations_sync = 2")

    (part,) = clickhouse.source.all_parts(name)

    assert clickhouse.source.parts(name, ids("0")[0]) == ()
    assert clickhouse.source.parts(name, ids("1")[0]) == (part,)
    assert (part.rows, part.part_type, part.level, part.min_block) == (50, "Compact", 0, 2)
    assert part.path.startswith(part.disk)
    assert len(part.hash_of_all_files) == 32


def test_row_policies_are_none_where_the_user_may_not_see_them(clickhouse: Clickhouse) -> None:
    """None is no promise: the check says so instead of saying that there are none."""
    assert clickhouse.source.row_policies(clickhouse.filled()) is None


def test_columns_with_a_ttl_are_found_in_the_text_that_clickhouse_prints(
    clickhouse: Clickhouse,
) -> None:
    name = clickhouse.table(
        "ENGINE = MergeTree ORDER BY k TTL d + INTERVAL 9 YEAR",
        "k UInt64, d Date, `a``b` String COMMENT 'no TTL, (here' TTL d + INTERVAL 1 DAY,"
        " plain Enum8('TTL' = 1, 'x)' = 2), n Nested(x UInt8), c UInt8 CODEC(ZSTD(1)),"
        " INDEX i (k, d) TYPE minmax",
    )
    ((query,),) = clickhouse.rows(
        f"SELECT create_table_query FROM system.tables WHERE table = '{name.name}'"
    )

    assert ttl_columns(str(query)) == ("a`b",)
    assert [text.partition(" ")[0] for text in definitions(str(query))] == [
        "`k`", "`d`", "`a\\`b`", "`plain`", "`n.x`", "`c`", "INDEX",
    ]  # fmt: skip
