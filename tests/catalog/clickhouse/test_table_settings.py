"""A copy of parts has every setting that decides what they hold, and none that would refuse it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError
from tableformat.mergetree import engine_text
from tableformat.mergetree.table_settings import SETTINGS, unknown_settings
from tableformat.names import TableName
from tableformat.source import Probe
from tests.support.clickhouse_source import Clickhouse, assert_same_rows, frozen, ids
from tests.support.frozen_folders import Folders, freeze

_WIDE = "min_bytes_for_wide_part = 0, min_rows_for_wide_part = 0"
_NESTED = "p UInt8, k UInt64, n Nested(a UInt8, b String), s String"
# Offsets of its own for each array of a Nested.
_OWN_OFFSETS = f"{_WIDE}, share_nested_offsets = 0"
_READ = "count(), sum(cityHash64(p, k, n.a, n.b)), sum(length(n.a))"
_KEYS = "ENGINE = MergeTree PARTITION BY p ORDER BY k"


def nested(clickhouse: Clickhouse, settings: str) -> TableName:
    """Make a table with a Nested, of which every row has elements."""
    name = clickhouse.table(f"{_KEYS} SETTINGS {settings}", _NESTED)
    clickhouse.command(
        f"INSERT INTO {name.sql} SELECT number % 2, number, [1, number], ['x', toString(number)],"
        " toString(number) FROM numbers(400)"
    )
    return name


def test_every_setting_of_the_engine_is_listed(clickhouse: Clickhouse) -> None:
    """A setting of a new version has to be looked at before its tables are exported."""
    names = clickhouse.rows(
        "SELECT name FROM system.merge_tree_settings"
        " UNION DISTINCT SELECT name FROM system.replicated_merge_tree_settings"
    )

    assert len(names) > 300
    assert unknown_settings(tuple((str(name), "1") for (name,) in names)) == ()


def test_every_setting_is_one_of_some_version(clickhouse: Clickhouse) -> None:
    """A name that is spelled wrongly in the list lets the right one through."""
    found = clickhouse.rows("SELECT name FROM system.merge_tree_settings")

    assert sorted(SETTINGS.keys() - {str(name) for (name,) in found}) == [
        "allow_experimental_block_number_column",
        "allow_experimental_optimized_row_order",
        "allow_s3_zero_copy_replication",
        "async_block_ids_cache_min_update_interval_ms",
        "s3_execute_merges_on_single_replica_time_threshold",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        _OWN_OFFSETS,
        f"{_WIDE}, index_granularity = 16, index_granularity_bytes = 0",
        f"{_WIDE}, index_granularity = 16, enable_mixed_granularity_parts = 0",
        "index_granularity = 16",
        f"{_WIDE}, max_file_name_length = 3",
        f"{_WIDE}, enable_block_number_column = 1, enable_block_offset_column = 1",
    ],
)
def test_parts_are_read_as_files_under_the_settings_of_their_table(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path, settings: str
) -> None:
    """Harm prevented: empty arrays, or wrong rows, in the lake, and "exported"."""
    assert_same_rows(clickhouse, reader, nested(clickhouse, settings), tmp_path, _READ)


@pytest.mark.parametrize(
    "settings",
    [
        "max_partitions_to_read = 1",
        "max_concurrent_queries = 1, min_marks_to_honor_max_concurrent_queries = 1",
        "max_table_size_rows = 1000, max_parts_in_total = 2",
        "min_free_disk_bytes_to_perform_insert = 1000000000000000",
    ],
)
def test_limits_of_a_table_do_not_refuse_its_export(clickhouse: Clickhouse, settings: str) -> None:
    """They are for the users of the table; the staging table has none."""
    name = nested(clickhouse, "index_granularity = 64")
    for setting in settings.split(", "):
        clickhouse.command(f"ALTER TABLE {name.sql} MODIFY SETTING {setting}")

    snapshot = clickhouse.snapshot(name, probes=(Probe("__src.s", "toString(v)"),))
    assert [p.visible_rows for p in frozen(snapshot)] == [200, 200]


def test_an_index_that_clickhouse_makes_for_an_alias_is_cloned(clickhouse: Clickhouse) -> None:
    """A copy without the ALIAS had no such index, and ClickHouse refused to clone the parts."""
    name = clickhouse.table(
        f"{_KEYS} SETTINGS add_minmax_index_for_string_columns = 1,"
        " add_minmax_index_for_numeric_columns = 1",
        "p UInt8, k UInt64, s String, `a x` String ALIAS concat('a', s), b String ALIAS `a x`",
    )
    clickhouse.command(f"INSERT INTO {name.sql} SELECT number % 2, number, 'x' FROM numbers(4)")

    assert [p.visible_rows for p in frozen(clickhouse.snapshot(name))] == [2, 2]


def test_settings_of_the_configuration_hold_for_parts_as_well(
    reader: EmbeddedConnection, tmp_path: Path
) -> None:
    """The statement of the table does not have them."""
    config = tmp_path / "config.xml"
    config.write_text(
        "<clickhouse><merge_tree><share_nested_offsets>0</share_nested_offsets>"
        "<min_bytes_for_wide_part>0</min_bytes_for_wide_part></merge_tree></clickhouse>"
    )
    with EmbeddedConnection(tmp_path / "data", create=True, config_file=config) as connection:
        clickhouse = Clickhouse(connection)
        name = nested(clickhouse, "index_granularity = 64")
        (tmp_path / "linked").mkdir()

        assert_same_rows(clickhouse, reader, name, tmp_path / "linked", _READ)


def test_a_copy_that_does_not_read_every_file_is_refused(
    clickhouse: Clickhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a setting that is listed wrongly, and empty arrays that nobody sees."""
    name = nested(clickhouse, _OWN_OFFSETS)
    monkeypatch.setattr(engine_text, "staging_settings", lambda _: (("index_granularity", "8192"),))

    refused = dict(clickhouse.snapshot(name).refused)

    assert refused.keys() == set(ids("0", "1"))
    assert "a copy of its part" in str(refused[ids("0")[0]])


def test_a_snapshot_of_a_table_with_an_unknown_setting_is_refused(clickhouse: Clickhouse) -> None:
    """What it changes is not known, so neither is what a copy of the parts shows."""
    name = nested(clickhouse, "index_granularity = 64")
    table = clickhouse.source.describe(name)
    engine = table.engine
    settings = (*engine.settings, ("fold_rows_at_night", "1"))

    with pytest.raises(RefusedError, match="fold_rows_at_night"):
        clickhouse.source.snapshot(
            replace(table, engine=replace(engine, settings=settings)), ids("0"), job="job"
        )


class TestFrozenParts:
    """Of these nothing but the statement says how they were written, and it may be wrong."""

    def folders(self, clickhouse: Clickhouse, directory: Path, settings: str) -> Folders:
        return freeze(clickhouse, nested(clickhouse, settings), directory)

    def test_a_column_of_which_a_file_is_not_read_is_refused(
        self, clickhouse: Clickhouse, tmp_path: Path
    ) -> None:
        """Both sides of `verify` would be read through the same wrong table, and be equal."""
        right = self.folders(clickhouse, tmp_path, _OWN_OFFSETS)
        assert right.refusals() == {}

        refused = right.replaced(", share_nested_offsets = 0", "").refusals()

        assert refused.keys() == {"0", "1"}
        assert "n%2Ea.size0, n%2Eb.size0" in refused["0"]
        assert "share_nested_offsets" in refused["0"]

    @pytest.mark.parametrize("wrong", ["8", "32", "8192"])
    def test_marks_that_are_of_another_granularity_are_refused(
        self, clickhouse: Clickhouse, tmp_path: Path, wrong: str
    ) -> None:
        """Without adaptive granularity the marks do not say how many rows each is of."""
        settings = f"{_WIDE}, index_granularity = 16, index_granularity_bytes = 0"
        right = self.folders(clickhouse, tmp_path, settings)
        assert right.refusals() == {}

        false = right.replaced("index_granularity = 16", f"index_granularity = {wrong}")
        refused = false.refusals()

        assert refused.keys() == {"0", "1"}
        assert f"index_granularity = {wrong}" in refused["0"]

    def test_the_check_of_a_table_says_it_too(self, clickhouse: Clickhouse, tmp_path: Path) -> None:
        wrong = self.folders(clickhouse, tmp_path, _OWN_OFFSETS).replaced(
            ", share_nested_offsets = 0", ""
        )

        with wrong.source() as source:
            found = tuple(p.partition_id for p in source.partitions(wrong.table))
            assert source.refusals(wrong.table, found).keys() == set(found)
