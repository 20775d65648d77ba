"""Engines parsed from ClickHouse's text, and rendered to staging tables that it accepts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree import table_settings
from tableformat.mergetree.engine_text import (
    old_staging_engine,
    parse_engine,
    staging_engine,
    stored_engine,
)
from tableformat.mergetree.expression import render_expression
from tableformat.mergetree.table import Engine
from tableformat.names import quote_string
from tests.strategies.expressions import expressions
from tests.strategies.types import nasty_text
from tests.tableformat.mergetree.clickhouse_process import ClickHouse

NEVER_MERGE = (
    ("max_bytes_to_merge_at_max_space_in_pool", "1"),
    ("max_bytes_to_merge_at_min_space_in_pool", "1"),
    ("max_number_of_merges_with_ttl_in_pool", "0"),
    ("min_age_to_force_merge_seconds", "0"),
)
# Tables whose clauses are easily read wrongly, and one row for each.
TABLES = {
    "replacing": (
        "(d Date, k UInt64, s String, `we ird` Int8, INDEX i s TYPE bloom_filter(0.01), "
        "PROJECTION p (SELECT d, count() GROUP BY d)) ENGINE = ReplacingMergeTree(k) "
        "PARTITION BY (toYYYYMM(d), concat(s, ' ORDER BY (')) ORDER BY (k, s) "
        "TTL d + INTERVAL 100 YEAR DELETE WHERE s = 'a TTL ', d + INTERVAL 200 YEAR RECOMPRESS "
        "CODEC(ZSTD(3)) SETTINGS deduplicate_merge_projection_mode = 'drop', "
        "index_granularity = 1000, min_age_to_force_merge_seconds = 5"
    ),
    "versioned": (
        "(d Date, k UInt64, sign Int8, ver UInt32) ENGINE = VersionedCollapsingMergeTree(sign, ver)"
        " PARTITION BY toYYYYMM(d) ORDER BY k"
    ),
    "reverse": (
        "(a UInt32, b Int64, n Nullable(String)) ENGINE = SummingMergeTree((b)) "
        "ORDER BY (intHash32(a), b DESC, n) SETTINGS allow_nullable_key = 1, "
        "allow_experimental_reverse_key = 1, "
        "allow_summing_columns_in_partition_or_order_key = 1"
    ),
    "sampled": (
        "(d Date, k UInt64, h UInt64) ENGINE = MergeTree PARTITION BY d PRIMARY KEY (k, "
        "intHash32(h)) ORDER BY (k, intHash32(h), d) SAMPLE BY intHash32(h) "
        "SETTINGS add_minmax_index_for_numeric_columns = 1"
    ),
    "unordered": "(d Date) ENGINE = MergeTree ORDER BY tuple()",
    "words": (
        "(`PARTITION` UInt8, `ORDER` UInt8, `BY` UInt8, `SETTINGS` UInt8, `TTL` Date, `AND` UInt8)"
        " ENGINE = AggregatingMergeTree() PARTITION BY (`PARTITION`, `ORDER`) PRIMARY KEY `BY` "
        "ORDER BY (`BY`, `SETTINGS`) TTL `TTL` + INTERVAL 1 YEAR WHERE `SETTINGS` = 1 "
        "SETTINGS min_bytes_for_wide_part = '10M'"
    ),
    "settings_key": (
        "(`PARTITION` UInt8, `SETTINGS` UInt8, `TTL` Date) ENGINE = MergeTree "
        "PARTITION BY `PARTITION` ORDER BY `SETTINGS` TTL `TTL` + INTERVAL 100 YEAR"
    ),
    "ttl_key": "(`TTL` Date) ENGINE = MergeTree PARTITION BY `TTL` ORDER BY `TTL`",
    "quotes": (
        "(`a``b` Int8, `c'd` Int8, `e\\\\f` Int8, s String, d Date) ENGINE = MergeTree "
        "PARTITION BY concat(s, '\\') SETTINGS x = 1, \\\\') ORDER BY (`a``b`, `c'd`) "
        "PRIMARY KEY `a``b` TTL d + INTERVAL 1 DAY TO DISK 'default'"
    ),
    "grouped": (
        "(k UInt8, d Date, a UInt32) ENGINE = MergeTree ORDER BY k "
        "TTL d + INTERVAL 100 YEAR GROUP BY k SET a = max(a)"
    ),
}


def shown(clickhouse: ClickHouse, name: str) -> str:
    return clickhouse.text(
        f"SELECT engine_full FROM system.tables WHERE database = 'default' AND name = '{name}'"
    )


@pytest.mark.parametrize("name", TABLES)
def test_a_staging_table_takes_over_the_partitions_of_its_source(
    clickhouse: ClickHouse, name: str
) -> None:
    """ClickHouse clones a partition only between tables that it takes for the same."""
    clickhouse.rows("SYSTEM STOP MERGES")
    clickhouse.rows(f"CREATE TABLE {name} {TABLES[name]}")
    clickhouse.rows(f"INSERT INTO {name} SELECT * FROM generateRandom() LIMIT 3")
    engine = parse_engine(shown(clickhouse, name))

    clickhouse.rows(f"CREATE TABLE staged AS {name} {staging_engine(engine, NEVER_MERGE)}")
    ids = clickhouse.rows(f"SELECT DISTINCT _partition_id FROM {name}")
    for (partition_id,) in ids:
        clickhouse.rows(f"ALTER TABLE staged REPLACE PARTITION ID '{partition_id}' FROM {name}")

    rows = f"SELECT count() FROM {name}"
    assert clickhouse.text("SELECT count() FROM staged") == clickhouse.text(rows) != "0"
    staged = parse_engine(shown(clickhouse, "staged"))
    clickhouse.rows("DROP TABLE staged SYNC")
    assert (staged.name, staged.arguments, staged.ttl) == ("MergeTree", "", "")
    assert (staged.partition_by, staged.primary_key, staged.order_by, staged.sample_by) == (
        engine.partition_by,
        engine.primary_key,
        engine.order_by,
        engine.sample_by,
    )
    assert dict(staged.settings).items() >= dict(NEVER_MERGE).items()
    assert (
        dict(staged.settings).items()
        >= dict(table_settings.staging_settings(engine.settings)).items()
    )


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        (
            "versioned",
            Engine(
                "VersionedCollapsingMergeTree",
                "sign, ver",
                "toYYYYMM(d)",
                order_by="k",
                settings=(("index_granularity", "8192"),),
            ),
        ),
        (
            "words",
            Engine(
                "AggregatingMergeTree",
                "",
                "(PARTITION, ORDER)",
                "BY",
                "(BY, SETTINGS)",
                ttl="TTL + toIntervalYear(1) WHERE SETTINGS = 1",
                settings=(("min_bytes_for_wide_part", "'10M'"), ("index_granularity", "8192")),
            ),
        ),
        (
            "settings_key",
            Engine(
                "MergeTree",
                "",
                "PARTITION",
                order_by="SETTINGS",
                ttl="TTL + toIntervalYear(100)",
                settings=(("index_granularity", "8192"),),
            ),
        ),
        (
            "ttl_key",
            Engine(
                "MergeTree",
                partition_by="TTL",
                order_by="TTL",
                settings=(("index_granularity", "8192"),),
            ),
        ),
    ],
)
def test_columns_named_like_clauses_are_no_clauses(
    clickhouse: ClickHouse, name: str, engine: Engine
) -> None:
    """ClickHouse writes such names without quotes."""
    clickhouse.rows(f"CREATE TABLE seen_{name} {TABLES[name]}")

    assert parse_engine(shown(clickhouse, f"seen_{name}")) == engine


values = st.one_of(
    st.integers(0, 9999).map(str),
    nasty_text.map(quote_string),
    nasty_text.map(lambda text: f"disk(type = s3, endpoint = {quote_string(text)}, n = [1, 2])"),
    st.just("{'a': 1, 'b': 'x, y = 2'}"),
)
settings = st.lists(
    st.tuples(st.from_regex(r"[a-z][a-z_]{0,10}", fullmatch=True), values), max_size=4
).map(tuple)
clauses = st.one_of(st.just(""), expressions.map(render_expression))
ttls = st.lists(expressions.map(render_expression), max_size=2).map(
    lambda found: ", ".join(f"{e} DELETE WHERE {e}" for e in found)
)


@given(
    name=st.sampled_from(["MergeTree", "ReplicatedReplacingMergeTree"]),
    arguments=st.lists(nasty_text.map(quote_string), max_size=3).map(", ".join),
    keys=st.tuples(clauses, clauses, clauses, clauses),
    ttl=ttls,
    settings=settings,
)
def test_any_clauses_are_separated_regardless_of_their_texts(
    name: str,
    arguments: str,
    keys: tuple[str, str, str, str],
    ttl: str,
    settings: tuple[tuple[str, str], ...],
) -> None:
    engine = Engine(name, arguments, *keys, ttl, settings)
    texts = (
        *zip(("PARTITION BY", "PRIMARY KEY", "ORDER BY", "SAMPLE BY"), keys, strict=True),
        ("TTL", ttl),
        ("SETTINGS", ", ".join(f"{key} = {value}" for key, value in settings)),
    )
    brackets = f"({arguments})" if arguments else ""
    text = " ".join((name + brackets, *(f"{key} {value}" for key, value in texts if value)))

    assert parse_engine(text) == engine
    assert stored_engine(engine) is engine


@pytest.mark.parametrize(
    ("text", "keys", "held"),
    [
        ("MergeTree(d, (k, s), 8192)", ("toYYYYMM(d)", "(k, s)", ""), "d, (k, s), 8192"),
        (
            "ReplicatedSummingMergeTree('/t,8', 'r', d, intHash32(k), (k, intHash32(k)), 8192, v)",
            ("toYYYYMM(d)", "(k, intHash32(k))", "intHash32(k)"),
            "d, intHash32(k), (k, intHash32(k)), 8192",
        ),
        (
            "GraphiteMergeTree(`a, b`, k, 100, 'rollup 8192')",
            ("toYYYYMM(`a, b`)", "k", ""),
            "`a, b`, k, 100",
        ),
    ],
)
def test_a_table_of_the_old_syntax_has_the_clauses_that_it_stands_for(
    text: str, keys: tuple[str, str, str], held: str
) -> None:
    """Such a table is partitioned by month, and its copy is made with the same syntax."""
    engine = parse_engine(text)

    assert (engine.partition_by, engine.order_by, engine.sample_by) == keys
    assert engine.old_arguments == held
    assert old_staging_engine(engine, ()) == f"ENGINE = MergeTree({held})"
    copy = parse_engine(f"MergeTree({held})")
    assert (copy.partition_by, copy.order_by, copy.old_arguments) == (*keys[:2], held)
    with pytest.raises(UnsupportedError, match="old syntax"):
        staging_engine(engine, ())


@pytest.mark.parametrize(
    ("text", "arguments", "held"),
    [
        ("MergeTree(d, (k, s), 8192)", "", "d, (k, s), 8192"),
        ("ReplacingMergeTree(d, k, 8192, v)", "v", "d, k, 8192"),
        (
            "ReplicatedSummingMergeTree('/t,8', 'r', d, f(k), (k, f(k)), 8192, (v, w))",
            "'/t,8', 'r', (v, w)",
            "d, f(k), (k, f(k)), 8192",
        ),
    ],
)
def test_a_lake_table_has_the_arguments_of_the_engine_without_the_keys(
    text: str, arguments: str, held: str
) -> None:
    """Harm prevented: OPTIMIZE FINAL takes the date for the version of a row."""
    engine = parse_engine(text)

    stored = stored_engine(engine)

    assert (stored.arguments, stored.old_arguments) == (arguments, held)
    assert (stored.partition_by, stored.order_by) == (engine.partition_by, engine.order_by)


def test_a_staging_table_keeps_nothing_that_replicates_merges_or_is_shared() -> None:
    """With table_disk a staging table would use the source's own directory."""
    engine = parse_engine(
        "ReplicatedMergeTree('/tables/{uuid}', '{replica}', ver) ORDER BY k TTL d SETTINGS "
        "replicated_deduplication_window = 1, shared_merge_tree_x = 1, zookeeper_session = 2, "
        "table_readonly = 1, table_disk = 1, min_age_to_force_merge_on_partition_only = 1, "
        "max_bytes_to_merge_at_max_space_in_pool = 7, disk = 'cold', index_granularity = 100"
    )

    assert staging_engine(engine, NEVER_MERGE[:1]) == (
        "ENGINE = MergeTree ORDER BY k SETTINGS disk = 'cold', index_granularity = 100, "
        "max_bytes_to_merge_at_max_space_in_pool = 1"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("MergeTree(d, (k), 8192)", "it has no ORDER BY"),
        ("Log", "it has no ORDER BY"),
        (
            "MergeTree ORDER BY k SETTINGS disk = disk(type = s3, key = '[HIDDEN]')",
            "hides a secret in the setting disk",
        ),
    ],
)
def test_an_engine_that_cannot_be_staged_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        staging_engine(parse_engine(text), NEVER_MERGE)


def test_a_table_with_a_unique_key_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="UNIQUE KEY"):
        parse_engine("MergeTree ORDER BY a UNIQUE KEY a SETTINGS index_granularity = 8192")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it ends where the name of an engine"),
        ("MergeTree(a", "it ends where a closing bracket"),
        ("MergeTree ORDER BY", "it ends where an expression"),
        ("MergeTree ORDER BY 'a", "the quote ' at position 20 is not closed"),
        ("MergeTree x", "'x' at position 11 where a clause"),
        ("MergeTree ORDER BY a SETTINGS", "it ends where the name of a setting"),
        ("MergeTree ORDER BY a SETTINGS x", "it ends where '='"),
        ("MergeTree ORDER BY a SETTINGS x = ", "it ends where the value of x"),
        ("MergeTree ORDER BY a SETTINGS x = 1,", "it ends where the name of a setting"),
    ],
)
def test_a_malformed_engine_is_an_error_that_says_where(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_engine(text)
