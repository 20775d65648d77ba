"""What a ClickHouse lacks is done without: each offer is hidden from the newest one in turn."""

from __future__ import annotations

import pytest

from catalog.clickhouse.capabilities import Offer, probe_capabilities
from catalog.clickhouse.connection import Connection, Row
from catalog.clickhouse.source import ClickHouseSource
from tests.support.clickhouse_source import Clickhouse, Through, frozen, ids


class Without(Through):
    """A connection to a ClickHouse that seems to lack some features, and is never released."""

    def __init__(self, connection: Connection, *lacking: Offer) -> None:
        super().__init__(connection)
        self._lacking = {(offer.sign.name,) for offer in lacking}

    def rows(self, sql: str) -> tuple[Row, ...]:
        return tuple(row for row in super().rows(sql) if row not in self._lacking)


def test_the_newest_clickhouse_offers_everything(clickhouse: Clickhouse) -> None:
    """Harm prevented: a name that changed there makes an export do with less, without a word."""
    found = probe_capabilities(clickhouse.connection)
    assert found.offers == frozenset(Offer) - {Offer.DATA_PATH}
    assert len(found.blockers) == 4
    assert found.makes_wire_values


@pytest.mark.parametrize("offer", Offer, ids=lambda offer: offer.name)
def test_a_snapshot_is_whole_without_any_one_offer(clickhouse: Clickhouse, offer: Offer) -> None:
    """Every row is frozen, released and counted, whichever feature a ClickHouse lacks."""
    name = clickhouse.filled()
    source = ClickHouseSource(lambda _: Without(clickhouse.connection, offer))
    table = source.describe(name)
    snapshot = source.snapshot(table, ids("0", "1"), job=f"without_{offer.name.lower()}")
    assert [p.visible_rows for p in frozen(snapshot)] == [50, 50]
    assert {part.part.content for p in snapshot.partitions for part in p.parts} == {
        p.content for p in source.all_parts(name)
    }
    assert [row.name for row in source.leftovers()] == list(snapshot.handle)
    source.release(snapshot)
    assert clickhouse.staging_tables() == ()


def test_without_hashes_every_merge_and_mutation_makes_other_content(
    clickhouse: Clickhouse,
) -> None:
    """A mutation that keeps every size is seen all the same: it never keeps a part's name."""
    name = clickhouse.filled()
    source = ClickHouseSource(lambda _: Without(clickhouse.connection, Offer.PART_HASHES))
    before = {p.content for p in source.all_parts(name)}
    clickhouse.command(f"ALTER TABLE {name.sql} UPDATE s = s WHERE 1 SETTINGS mutations_sync = 2")
    after = {p.content for p in source.all_parts(name)}
    assert not before & after


def test_a_mutation_of_a_table_of_the_old_syntax_refuses_its_months_only(
    clickhouse: Clickhouse,
) -> None:
    """The names of its parts begin with days and not with the partition."""
    clickhouse.command("SET allow_deprecated_syntax_for_merge_tree = 1")
    name = clickhouse.table("ENGINE = MergeTree(d, k, 8192)", "d Date, k UInt64, s String")
    clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES ('2024-02-03', 1, 'x')")
    clickhouse.command(f"ALTER TABLE {name.sql} UPDATE s = 'y' WHERE 1 SETTINGS mutations_sync = 0")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES ('2024-01-03', 1, 'x')")
    months = ids("202401", "202402")
    assert list(clickhouse.source.refusals(name, months)) == [months[1]]
