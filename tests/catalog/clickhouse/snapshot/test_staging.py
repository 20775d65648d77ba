"""Staging tables tell whose they are, and stay as long as somebody needs them."""

from __future__ import annotations

import time

from tests.support.clickhouse_source import Clickhouse, frozen


def test_what_is_to_be_kept_is_neither_released_nor_swept(clickhouse: Clickhouse) -> None:
    """Ledger rows name it: a later job finds its partitions there."""
    name = clickhouse.filled()
    snapshot = clickhouse.snapshot(name, "0", "9", "1", job="kept")
    first, second = snapshot.handle

    clickhouse.source.release(snapshot, keep={first})
    assert {first, second} & set(clickhouse.staging_tables()) == {first}
    swept = clickhouse.source.sweep_leftovers(lambda job: job != "kept", keep={first})
    assert swept == ()
    assert first in clickhouse.staging_tables()

    assert clickhouse.source.sweep_leftovers(lambda job: job != "kept") == (first,)


def test_leftovers_have_their_owner_and_size(clickhouse: Clickhouse) -> None:
    """An operator wants to know before anything is dropped."""
    name = clickhouse.filled()
    snapshot = clickhouse.snapshot(name, job="told")
    clickhouse.command("CREATE TABLE mergeberg_staging.unknown_1 (k UInt8) ENGINE = Memory")
    clickhouse.command("CREATE TABLE mergeberg_staging.somebodys (k UInt8) ENGINE = Memory")

    found = {leftover.name: leftover for leftover in clickhouse.source.leftovers()}

    left = found["told_1"]
    held = [f.part for partition in frozen(snapshot) for f in partition.parts]
    assert (left.job, left.table, left.rows) == ("told", name, 100)
    assert left.bytes_on_disk == sum(part.bytes_on_disk for part in held)
    assert 0 <= time.time() * 1000 - left.created < 60_000
    unknown = found["unknown_1"]
    assert (unknown.job, unknown.table, unknown.rows, unknown.bytes_on_disk) == (
        "unknown", None, 0, 0,
    )  # fmt: skip
    assert "somebodys" not in found
    assert list(found) == sorted(found)
