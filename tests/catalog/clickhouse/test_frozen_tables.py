"""Whatever a MergeTree table is made of, its frozen parts open as files and hold its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.support.clickhouse_source import COLUMNS, KEYS, Clickhouse, assert_same_rows, frozen


@pytest.mark.parametrize(
    "engine",
    [
        "MergeTree",
        "ReplacingMergeTree(k)",
        "SummingMergeTree(Value)",
        "AggregatingMergeTree",
        "CollapsingMergeTree(sign)",
        "VersionedCollapsingMergeTree(sign, Value)",
        "GraphiteMergeTree('graphite_rollup')",
        "CoalescingMergeTree",
    ],
)
def test_every_engine_of_the_family_is_frozen_with_all_its_rows(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path, engine: str
) -> None:
    """Rows that the engine would replace or collapse in a merge are still in the parts."""
    name = clickhouse.table(f"ENGINE = {engine} {KEYS}", COLUMNS.replace("Float64", "UInt64"))
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    clickhouse.insert(name)

    snapshot = assert_same_rows(
        clickhouse, reader, name, tmp_path, "count(), sum(k), groupBitXor(cityHash64(*))"
    )

    assert [partition.visible_rows for partition in frozen(snapshot)] == [100, 100]
    assert [len(partition.parts) for partition in frozen(snapshot)] == [2, 2]


def test_a_replicated_table_is_frozen_although_it_is_read_only(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path
) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"DETACH TABLE {name.sql}")
    clickhouse.command(f"ATTACH TABLE {name.sql} AS REPLICATED")

    snapshot = assert_same_rows(clickhouse, reader, name, tmp_path, "count(), sum(k)")

    assert snapshot.table.engine.replicated
    assert snapshot.table.identity.startswith("keeper:/clickhouse/tables/")


@pytest.mark.parametrize(
    ("settings", "types"),
    [
        ("min_bytes_for_wide_part = 0", {"Wide"}),
        ("min_bytes_for_wide_part = '1G'", {"Compact"}),
        ("min_bytes_for_wide_part = 3000", {"Wide", "Compact"}),
        (
            "index_granularity = 7, index_granularity_bytes = 0, min_bytes_for_wide_part = 0",
            {"Wide"},
        ),
    ],
)
def test_wide_and_compact_parts_are_frozen(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path, settings: str,
    types: set[str],
) -> None:  # fmt: skip
    name = clickhouse.table(f"ENGINE = MergeTree {KEYS} SETTINGS {settings}")
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)
    clickhouse.insert(name, 100, 1000)

    snapshot = assert_same_rows(clickhouse, reader, name, tmp_path, "count(), sum(k), max(s)")

    assert {f.part.part_type for p in frozen(snapshot) for f in p.parts} == types


@pytest.mark.parametrize(
    ("columns", "clauses"),
    [
        pytest.param(
            "p UInt8, k UInt64, s String, INDEX i k TYPE minmax GRANULARITY 1,"
            " INDEX b s TYPE bloom_filter GRANULARITY 2,"
            " PROJECTION j (SELECT s, count() GROUP BY s),"
            " CONSTRAINT c CHECK k >= 0",
            KEYS,
            id="projection, skip indices, constraint",
        ),
        pytest.param(
            "p UInt8, k UInt64, s String CODEC(ZSTD(3)), c UInt64 DEFAULT k CODEC(Delta, LZ4)",
            KEYS,
            id="codecs",
        ),
        pytest.param(
            "p UInt8, k UInt64, s String", f"{KEYS[:-1]}(intHash32(k), s) SAMPLE BY intHash32(k)",
            id="sampling",
        ),
        pytest.param(
            "p UInt8, k UInt64, s String",
            "PARTITION BY p ORDER BY (p, k DESC, s) SETTINGS allow_experimental_reverse_key = 1",
            id="descending key",
        ),
        pytest.param(
            "p UInt8, k UInt64, s String", "PARTITION BY p PRIMARY KEY k ORDER BY (k, s)",
            id="shorter primary key",
        ),
        pytest.param(
            "p UInt8, k UInt64, s String, n Nullable(UInt64) DEFAULT nullIf(k, 4)",
            "PARTITION BY p ORDER BY (k, n) SETTINGS allow_nullable_key = 1",
            id="nullable key",
        ),
        pytest.param(
            "p UInt8, k UInt64, e String EPHEMERAL 'x', s String, a String ALIAS concat(s, '!'),"
            " d String DEFAULT concat(e, a), m String MATERIALIZED lower(d), `TTL` UInt8 DEFAULT 3,"
            " `it's``odd` UInt8 DEFAULT TTL + 1 COMMENT 'TTL, ('",
            KEYS,
            id="defaults, materialized, alias, ephemeral, odd names",
        ),
        pytest.param(
            "p UInt8, k UInt64, s String, `n.a` Array(UInt64) DEFAULT [k], `n.b` Array(String)"
            " DEFAULT [s], l LowCardinality(UInt8) DEFAULT 1, f FixedString(300) DEFAULT s",
            f"{KEYS} SETTINGS allow_suspicious_low_cardinality_types = 1,"
            " allow_suspicious_fixed_string_types = 1",
            id="nested, suspicious types",
        ),
        pytest.param(
            "p UInt8, k UInt64, s String",
            f"{KEYS} SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1",
            id="block numbers",
        ),
        pytest.param(
            "p UInt8, k UInt64, s String",
            f"{KEYS} SETTINGS max_bytes_to_merge_at_max_space_in_pool = 9",
            id="merge settings of its own",
        ),
    ],
)  # fmt: skip
def test_what_a_table_may_be_made_of_is_frozen_and_opens(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path, columns: str, clauses: str
) -> None:
    name = clickhouse.table(f"ENGINE = MergeTree {clauses}", columns)
    clickhouse.insert(name)
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name, 100)
    # Added later: the parts do not hold it, its default is computed from what they hold.
    clickhouse.command(f"ALTER TABLE {name.sql} ADD COLUMN late UInt64 DEFAULT k + 1")

    stored = [
        f"`{c.name.replace('`', '``')}`" for c in clickhouse.source.describe(name).stored_columns
    ]

    assert_same_rows(
        clickhouse, reader, name, tmp_path,
        f"count(), sum(late), groupBitXor(cityHash64({', '.join(stored)}))",
    )  # fmt: skip


def test_rows_that_expired_are_frozen_as_they_are_and_stay(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path
) -> None:
    """A TTL merge in the copy once replaced all parts by one without rows, within seconds."""
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k TTL d + INTERVAL 1 DAY",
        "p UInt8, k UInt64, s String TTL d + INTERVAL 1 DAY, d Date DEFAULT '2020-01-01'",
    )
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.insert(name)

    snapshot = assert_same_rows(clickhouse, reader, name, tmp_path, "count(), max(s), sum(k)")

    assert snapshot.table.has_ttl_columns
    (staging,) = snapshot.handle
    ((query,),) = clickhouse.rows(
        f"SELECT create_table_query FROM system.tables WHERE name = '{staging}'"
    )
    assert " TTL " not in str(query)
