"""What happens to the source while an export runs, and after it, is not in the lake.

Real ClickHouse, real task code, a real catalog; the source is changed between its snapshot and the
first file (SRS-016 SchemaChangeIsolation, N-03, N-04, N-37).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.iceberg.table import IcebergTable
from catalog.sources import SourcePlace
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, open_ports
from spark_ext.engine.session import SparkSettings
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Silent
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.iceberg.snapshot import table_of
from tableformat.names import LakeName, TableName
from tests.support.child_writer import ChildWriter

_TO = LakeName("lake", ("analytics",), "events")
_TABLE = (
    "CREATE TABLE db.events (day Date, id UInt64, name String, price Decimal(9, 2), old String)"
    " ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY (name, id)"
    " SETTINGS min_bytes_for_wide_part = 0"
)
_ROWS = (
    "INSERT INTO db.events SELECT toDate('2024-01-01') + number % 60, number + {first},"
    " concat('name ', toString(number % 7)), number / 100, 'old' FROM numbers(500)"
)
_CHANGES = {
    "inserts": (_ROWS.format(first=10_000), _ROWS.format(first=20_000)),
    "a merge": ("OPTIMIZE TABLE db.events FINAL",),
    "an update": (
        "ALTER TABLE db.events UPDATE old = 'changed' WHERE 1 SETTINGS mutations_sync = 2",
    ),
    "a delete": ("DELETE FROM db.events WHERE id % 2 = 0",),
    "an added column": (
        "ALTER TABLE db.events ADD COLUMN extra String DEFAULT 'x' SETTINGS mutations_sync = 2",
    ),
    "a dropped column": ("ALTER TABLE db.events DROP COLUMN old SETTINGS mutations_sync = 2",),
    "a renamed column": (
        "ALTER TABLE db.events RENAME COLUMN old TO new SETTINGS mutations_sync = 2",
    ),
    "a modified column": (
        "ALTER TABLE db.events MODIFY COLUMN price Decimal(18, 4) SETTINGS mutations_sync = 2",
    ),
    "dropped partitions": (
        "ALTER TABLE db.events DROP PARTITION ID '202401'",
        "ALTER TABLE db.events DROP PARTITION ID '202402'",
    ),
    "a dropped table": ("DROP TABLE db.events SYNC",),
}


@pytest.fixture
def clickhouse(tmp_path: Path) -> Path:
    """Return a ClickHouse directory with a table of two partitions in four parts."""
    directory = tmp_path / "clickhouse"
    with EmbeddedConnection(directory, create=True) as connection:
        for sql in ("CREATE DATABASE db", _TABLE, *(_ROWS.format(first=n) for n in (0, 1000))):
            connection.command(sql)
    return directory


def run(
    clickhouse: Path, *, meanwhile: Callable[[], None] = lambda: None, ttl: int = 0
) -> list[Outcome]:
    """Export every partition; `meanwhile` happens after the snapshot, before the first file."""
    lake = open_catalog("lake", warehouse=clickhouse.parent / "warehouse")
    places = Places(SourcePlace(f"chdb:{clickhouse}"), lake)
    request = ExportRequest(
        TableName("db", "events"), _TO, AllPartitions(), ExportOptions(manifest_ttl=ttl), {}
    )
    ports = open_ports(places, SparkWhenNeeded(SparkSettings()), Silent())
    writer = ChildWriter(lambda _plan, _tasks: meanwhile())
    without_spark = replace(ports, writer=lambda: writer, begin_writer=lambda: None)
    return list(export(request, without_spark, slots=1))


def change(clickhouse: Path, statements: tuple[str, ...]) -> None:
    """Run statements on the source, as somebody else would."""
    with EmbeddedConnection(clickhouse) as connection:
        for sql in statements:
            connection.command(sql)


def in_source(clickhouse: Path) -> list[tuple[object, ...]]:
    """Return the rows of the source, sorted by id."""
    with EmbeddedConnection(clickhouse) as connection:
        rows = connection.rows(
            "SELECT toString(day), id, name, toString(price), old FROM db.events ORDER BY id"
        )
    return [(day, number, name, Decimal(f"{price}"), old) for day, number, name, price, old in rows]


def in_lake(clickhouse: Path) -> list[tuple[object, ...]]:
    """Return the rows of the lake table, sorted by id."""
    lake = open_catalog("lake", warehouse=clickhouse.parent / "warehouse")
    places = Places(SourcePlace(f"chdb:{clickhouse}"), lake)
    ports = open_ports(places, SparkWhenNeeded(SparkSettings()), Silent())
    table: IcebergTable | None = ports.lake.table(_TO)  # type: ignore[assignment]
    assert table is not None
    found = table_of(table.load()).scan().to_arrow().sort_by("id").to_pylist()
    return [(str(r["day"]), int(r["id"]), r["name"], r["price"], r["old"]) for r in found]


@pytest.mark.parametrize("statements", _CHANGES.values(), ids=_CHANGES)
def test_an_export_is_what_was_there_at_its_snapshot(
    clickhouse: Path, statements: tuple[str, ...]
) -> None:
    """Harm prevented: rows of before and after a change in one snapshot, or rows gone."""
    before = in_source(clickhouse)

    outcomes = run(clickhouse, meanwhile=lambda: change(clickhouse, statements))

    assert [o.status for o in outcomes] == [Status.COMMITTED, Status.COMMITTED]
    assert in_lake(clickhouse) == before


def test_the_same_changes_afterwards_leave_the_lake_as_it_is(clickhouse: Path) -> None:
    """Harm prevented: what happens to the source shrinks or changes the archive."""
    assert {o.status for o in run(clickhouse)} == {Status.COMMITTED}
    before = in_lake(clickhouse)

    for what, statements in _CHANGES.items():
        # The column is gone once it is dropped; renaming it was tried before, on its own.
        if what != "a renamed column":
            change(clickhouse, statements)

    assert in_lake(clickhouse) == before
    assert len(before) == 1000
