"""A partition leaves the source only as exactly what was exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.source import ClickHouseSource
from tableformat.errors import RefusedError
from tableformat.ledger import ExportedPart
from tableformat.names import PartitionId, TableName
from tests.clickhouse_source import Clickhouse

_ONE = PartitionId("1")


def exported(clickhouse: Clickhouse, name: TableName) -> tuple[ExportedPart, ...]:
    """Return the parts of partition 1 as an export notes them."""
    return tuple(
        ExportedPart(p.name, p.hash_of_all_files, p.rows, p.min_block, p.max_block, p.data_version)
        for p in clickhouse.source.parts(name, _ONE)
    )


def rows(clickhouse: Clickhouse, name: TableName) -> tuple[int, int]:
    """Return the rows of partition 1 that a SELECT shows, and the number of detached parts."""
    shown = clickhouse.rows(f"SELECT count() FROM {name.sql} WHERE p = 1")
    detached = clickhouse.rows(
        f"SELECT count() FROM system.detached_parts WHERE table = '{name.name}'"
    )
    return int(str(shown[0][0])), int(str(detached[0][0]))


@pytest.mark.parametrize("drop", [False, True], ids=["detached", "dropped"])
def test_what_was_exported_leaves_the_table(clickhouse: Clickhouse, *, drop: bool) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"INSERT INTO {name.sql} (p, k, s) VALUES (1, 1000, 'more')")

    clickhouse.source.take_out(name, _ONE, exported(clickhouse, name), drop=drop)

    assert rows(clickhouse, name) == (0, 0 if drop else 2)
    clickhouse.command(f"ALTER TABLE {name.sql} ATTACH PARTITION ID '1'")
    assert rows(clickhouse, name) == (0 if drop else 51, 0)


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO {t} (p, k, s) VALUES (1, 1000, 'late')",
        "ALTER TABLE {t} UPDATE s = 'x' WHERE k = 1 SETTINGS mutations_sync = 2",
        "ALTER TABLE {t} DETACH PARTITION ID '1'",
    ],
)
@pytest.mark.parametrize("drop", [False, True], ids=["detach", "drop"])
def test_a_partition_that_changed_since_its_export_stays(
    clickhouse: Clickhouse, change: str, *, drop: bool
) -> None:
    """Harm prevented: rows that were never exported are dropped from the source."""
    name = clickhouse.filled()
    known = exported(clickhouse, name)
    clickhouse.command(change.format(t=name.sql))
    before = rows(clickhouse, name)

    with pytest.raises(RefusedError, match="not those that were exported and compared any more"):
        clickhouse.source.take_out(name, _ONE, known, drop=drop)

    assert rows(clickhouse, name) == before


class _Meanwhile:
    """A connection on which something happens before a command."""

    def __init__(self, real: Connection, before: str, act: Callable[[], None]) -> None:
        self._real, self._before, self._act = real, before, act

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def command(self, sql: str) -> None:
        if self._before in sql:
            self._before = "nothing"
            self._act()
        self._real.command(sql)


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO {t} (p, k, s) VALUES (1, 1000, 'late')",
        "OPTIMIZE TABLE {t} PARTITION ID '1' FINAL",
    ],
)
def test_what_comes_in_the_last_moment_is_put_back(clickhouse: Clickhouse, change: str) -> None:
    """Harm prevented: DETACH takes a part with it that was inserted a moment ago."""
    name = clickhouse.filled()
    clickhouse.command(f"INSERT INTO {name.sql} (p, k, s) VALUES (1, 999, 'more')")
    known = exported(clickhouse, name)
    meanwhile = _Meanwhile(
        clickhouse.connection,
        "DETACH PARTITION",
        lambda: clickhouse.command(change.format(t=name.sql)),
    )

    source = ClickHouseSource(lambda _: meanwhile)  # type: ignore[arg-type,return-value]
    with pytest.raises(RefusedError, match="The source is as it was"):
        source.take_out(name, _ONE, known, drop=True)

    assert rows(clickhouse, name) == (51 + change.startswith("INSERT"), 0)


def test_other_partitions_and_older_detached_parts_are_left_alone(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    clickhouse.command(f"ALTER TABLE {name.sql} DETACH PARTITION ID '1'")
    clickhouse.insert(name)
    others = clickhouse.rows(f"SELECT count() FROM {name.sql} WHERE p != 1")

    clickhouse.source.take_out(name, _ONE, exported(clickhouse, name), drop=True)

    assert clickhouse.rows(f"SELECT count() FROM {name.sql} WHERE p != 1") == others
    assert rows(clickhouse, name) == (0, 1)


def test_parts_of_another_hash_are_not_the_exported_ones(clickhouse: Clickhouse) -> None:
    name = clickhouse.filled()
    (known,) = exported(clickhouse, name)

    with pytest.raises(RefusedError, match="not those that were exported"):
        clickhouse.source.take_out(
            name, _ONE, (replace(known, hash_of_all_files="0" * 32),), drop=True
        )

    assert rows(clickhouse, name) == (50, 0)
