"""Columns that parts lack: their values change with the table, and nothing of the parts does."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from catalog.ledgers import uris
from tableformat.export.outcome import Outcome
from tableformat.export.watermark import Watermark, find_watermark
from tableformat.names import TableName
from tests.services.clickhouse_front import ClickHouseFront
from tests.support.frozen_folders import freeze
from tests.support.real_export import Exports, RealExport

Changes = tuple[str, ...]

_CHANGES: list[tuple[Changes, str]] = [
    (("s String DEFAULT 'Hello'",), "s String DEFAULT 'World'"),
    (("s String MATERIALIZED 'Hello'",), "s String MATERIALIZED 'World'"),
    (("s String DEFAULT 'Hello'",), "s REMOVE DEFAULT"),
    (("a String ALIAS 'Hello'", "s String DEFAULT upper(a)"), "a String ALIAS 'World'"),
    (("u String DEFAULT 'Hello'", "s String DEFAULT concat(u, '!')"), "u String DEFAULT 'World'"),
    (("e String EPHEMERAL 'Hello'", "s String DEFAULT e"), "e String EPHEMERAL 'World'"),
]
"""What is added before the export, in this order, and how a column is modified after it."""


def months(exports: RealExport, columns: str = "") -> TableName:
    """Make a table with one part in each of two partitions."""
    name = exports.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k", f"p UInt8, k UInt64{columns}"
    )
    insert(exports, name)
    return name


def insert(exports: RealExport, name: TableName) -> None:
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} (p, k) SELECT number % 2, number FROM numbers(6)"
    )


def alter(exports: RealExport, name: TableName, *changes: str) -> None:
    for change in changes:
        exports.clickhouse.command(f"ALTER TABLE {name.sql} {change}")


def words(outcomes: list[Outcome]) -> list[str]:
    return [o.status.value for o in outcomes]


def watermark(exports: RealExport, name: TableName) -> Watermark:
    lake = exports.destination_of(name).table(exports.name_of(name))
    assert lake is not None
    source = exports.clickhouse.source
    with contextlib.closing(
        uris.open_ledger(exports.ledger, local_warehouse=exports.warehouse)
    ) as ledger:
        return find_watermark(source.describe(name), source, lake, ledger, now=1)


@pytest.mark.parametrize(("columns", "change"), _CHANGES)
def test_another_expression_of_a_column_that_parts_lack_is_another_content(
    exports: RealExport, columns: Changes, change: str
) -> None:
    """Harm prevented: "unchanged", while ClickHouse shows other values than the lake."""
    name = months(exports)
    alter(exports, name, *(f"ADD COLUMN {one}" for one in columns))
    assert words(exports.run(name)) == ["committed"] * 2
    assert words(exports.run(name)) == ["already_exported"] * 2
    before = exports.in_lake(name, "k, s")

    alter(exports, name, f"MODIFY COLUMN {change}")

    found = exports.run(name)
    assert words(found) == ["refused"] * 2
    assert (
        "its parts are the same, but the definitions from which ClickHouse computes missing columns"
    ) in (found[0].message)
    stopped = watermark(exports, name)
    assert stopped.partition_id is None
    assert "computes missing columns" in stopped.why
    assert words(exports.run(name, force=True)) == ["replaced"] * 2
    assert exports.in_lake(name, "k, s") == exports.in_source(name, "k, s") != before
    assert words(exports.run(name)) == ["already_exported"] * 2
    assert watermark(exports, name).reached == 2


@pytest.mark.parametrize(
    ("column", "stays"),
    [
        ("s String DEFAULT 'Hello'", False),
        ("s UInt32", False),
        ("s Nullable(UInt32)", True),
        ("s LowCardinality(Nullable(String)) DEFAULT NULL", True),
        ("s Nullable(UInt32) DEFAULT 1", False),
    ],
)
def test_a_column_that_is_added_is_another_content_unless_it_is_null(
    exports: RealExport, column: str, *, stays: bool
) -> None:
    """A reader of the lake has NULL for a column that no file of the partition has."""
    name = months(exports)
    exports.run(name)

    alter(exports, name, f"ADD COLUMN {column}")

    word = "already_exported" if stays else "refused"
    assert words(exports.run(name, evolve_schema=True)) == [word] * 2
    assert watermark(exports, name).reached == (2 if stays else 0)


def test_an_expression_of_a_column_that_parts_have_changes_nothing(exports: RealExport) -> None:
    """Harm prevented: all partitions are written again when a DEFAULT is changed."""
    name = months(exports, ", s String DEFAULT 'Hello'")
    exports.run(name)

    alter(exports, name, "MODIFY COLUMN s String DEFAULT 'World'", "ADD COLUMN a UInt8 ALIAS k")

    assert words(exports.run(name)) == ["already_exported"] * 2


@pytest.mark.parametrize("given", ["", ", u UInt64 DEFAULT k + 1", ", u UInt64 MATERIALIZED k + 1"])
@pytest.mark.parametrize("flatten", [0, 1])
def test_an_expression_does_not_change_a_nested_column(
    exports: RealExport, given: str, flatten: int
) -> None:
    """Harm prevented: a clone without the expression divides the column, and parts fit no more."""
    exports.clickhouse.command(f"SET flatten_nested = {flatten}")
    name = exports.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k",
        f"p UInt8, k UInt64, n Nested(a UInt8, b String){given}",
    )
    exports.clickhouse.command("SET flatten_nested = 1")
    values = "[1, 2], ['x', 'y']" if flatten else "[(1, 'x'), (2, 'y')]"
    columns = "p, k, `n.a`, `n.b`" if flatten else "p, k, n"
    exports.clickhouse.command(f"INSERT INTO {name.sql} ({columns}) SELECT 0, 7, {values}")

    assert words(exports.run(name, verify=True)) == ["committed"]


@pytest.mark.parametrize("changes", [("MODIFY COLUMN s String DEFAULT 'World'",), ()])
def test_a_merge_explains_nothing_of_what_parts_lacked(
    exports: RealExport, changes: Changes
) -> None:
    """A merge writes the values as they are computed then, whatever was computed before."""
    name = months(exports)
    insert(exports, name)
    if changes:
        alter(exports, name, "ADD COLUMN s String DEFAULT 'Hello'")
    exports.run(name)
    if not changes:
        alter(exports, name, "ADD COLUMN s String DEFAULT 'Hello'")
    alter(exports, name, *changes)

    exports.clickhouse.command(f"OPTIMIZE TABLE {name.sql} FINAL")

    assert words(exports.run(name, evolve_schema=True)) == ["refused"] * 2
    assert words(exports.run(name, force=True)) == ["replaced"] * 2
    assert exports.in_lake(name, "k, s") == exports.in_source(name, "k, s")


def test_a_merge_of_parts_that_lack_nothing_explains_other_hashes(exports: RealExport) -> None:
    name = months(exports)
    insert(exports, name)
    exports.run(name)

    exports.clickhouse.command(f"OPTIMIZE TABLE {name.sql} FINAL")

    assert words(exports.run(name)) == ["already_exported"] * 2


def test_frozen_parts_of_another_statement_are_another_content(
    exports: RealExport, tmp_path: Path
) -> None:
    name = months(exports)
    alter(exports, name, "ADD COLUMN s String DEFAULT 'Hello'")
    folders = freeze(exports.clickhouse, name, tmp_path)
    assert words(exports.run(name, source=folders.source())) == ["committed"] * 2
    assert words(exports.run(name, source=folders.source())) == ["already_exported"] * 2
    ddl = folders.settings.ddl_file

    ddl.write_text(ddl.read_text().replace("Hello", "World"))

    assert words(exports.run(name, source=folders.source())) == ["refused"] * 2
    assert words(exports.run(name, source=folders.source(), force=True)) == ["replaced"] * 2
    assert exports.in_lake(name, "k, s") == [(k, "World") for k in range(6)]


def test_a_server_reports_another_expression_too(
    newest_server: ClickHouseFront, exports_from: Exports
) -> None:
    exports = exports_from(newest_server.url)
    name = months(exports)
    alter(exports, name, "ADD COLUMN s String DEFAULT 'Hello'")
    exports.run(name)
    assert words(exports.run(name)) == ["already_exported"] * 2

    alter(exports, name, "MODIFY COLUMN s String DEFAULT 'World'")

    assert words(exports.run(name)) == ["refused"] * 2
    assert words(exports.run(name, force=True)) == ["replaced"] * 2
    assert exports.in_lake(name, "k, s") == [(k, "World") for k in range(6)]
