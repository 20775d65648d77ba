"""`--evolve-schema` names what reads NULL in the lake, and `--backfill` exports it again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tableformat.export.request import ById
from tableformat.iceberg.properties import remembered_source
from tableformat.messages import plain
from tableformat.names import PartitionId, TableName
from tests.support.real_export import RealExport

_NEW = ById(PartitionId("2"))


def into(notes: list[str]) -> Callable[[str], None]:
    """Return what adds notices to a list, in the words of the command line."""
    return lambda text: notes.append(plain(text))


def three(exports: RealExport, added: str) -> TableName:
    """Make a table of which two partitions are exported; then a column and a partition come."""
    name = exports.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k", "p UInt8, k UInt64"
    )
    exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT number % 2, number FROM numbers(6)")
    # Its time to live is over at once.
    assert len(exports.run(name, ttl=-1)) == 2
    exports.clickhouse.command(f"ALTER TABLE {name.sql} ADD COLUMN {added}")
    exports.clickhouse.command(f"INSERT INTO {name.sql} (p, k) VALUES (2, 7)")
    return name


def by_id(exports: RealExport, name: TableName, **options: object) -> dict[str, str]:
    found = exports.run(name, **options)  # type: ignore[arg-type]
    return {o.partition_id: o.status.value for o in found}


def test_partitions_that_read_null_are_named_and_exported_if_that_is_wanted(
    exports: RealExport,
) -> None:
    """Harm prevented: GROUP BY gives NULL for rows of which ClickHouse shows the default."""
    name = three(exports, "s String DEFAULT 'zz'")
    notes: list[str] = []

    found = by_id(
        exports,
        name,
        selection=_NEW,
        evolve_schema=True,
        note=into(notes),
    )

    assert found == {"2": "committed"}
    assert [one for one in notes if "--backfill" in one] == [
        (
            f"partitions of lake.n.{name.name} that differ from what ClickHouse shows for s "
            "(DEFAULT 'zz'), and that this command does not export: 0, 1. --backfill exports them "
            "again"
        )
    ]
    assert exports.in_lake(name, "k, s")[0] == (0, None)
    again: list[str] = []
    found = by_id(exports, name, selection=_NEW, backfill=True, note=into(again))
    assert found == {"2": "already_exported", "0": "replaced", "1": "replaced"}
    assert not any("--backfill" in one for one in again)
    assert exports.in_lake(name, "k, s") == exports.in_source(name, "k, s")


def test_partitions_whose_source_is_gone_are_named_with_what_sets_a_constant(
    exports: RealExport,
) -> None:
    name = three(exports, "s String DEFAULT 'zz'")
    exports.clickhouse.command(f"ALTER TABLE {name.sql} DROP PARTITION ID '1'")
    notes: list[str] = []

    by_id(exports, name, evolve_schema=True, note=into(notes))

    (gone,) = [one for one in notes if "NULL" in one]
    assert gone == (
        f"partitions of lake.n.{name.name} with NULL for s (DEFAULT 'zz') whose source is gone: 1. "
        f"Set it there: ALTER TABLE lake.n.{name.name} UPDATE `s` = 'zz' IN PARTITION ID '1' WHERE "
        "`s` IS NULL"
    )


@pytest.mark.parametrize("added", ["s Nullable(String)", "a String ALIAS 'zz'"])
def test_what_is_null_on_both_sides_is_not_named(exports: RealExport, added: str) -> None:
    name = three(exports, added)
    notes: list[str] = []

    by_id(
        exports,
        name,
        selection=_NEW,
        evolve_schema=True,
        backfill=True,
        note=into(notes),
    )

    assert not any("--backfill" in one or "NULL" in one for one in notes)


def test_an_export_that_may_change_the_table_notes_new_labels_of_an_enum(
    exports: RealExport,
) -> None:
    """Harm prevented: REPLACE and MOVE are refused for ever after one new label."""
    name = exports.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY p ORDER BY k", "p UInt8, k UInt64, e Enum8('a' = 1)"
    )
    exports.clickhouse.command(f"INSERT INTO {name.sql} VALUES (0, 1, 'a')")
    exports.run(name)
    exports.clickhouse.command(
        f"ALTER TABLE {name.sql} MODIFY COLUMN e Enum8('a' = 1, 'b' = 2) COMMENT 'new'"
    )
    notes: list[str] = []

    exports.run(name)
    before = remembered_source(exports.lake(name).properties)
    exports.run(name, evolve_schema=True, note=into(notes))
    exports.run(name, evolve_schema=True, note=into(notes))

    after = remembered_source(exports.lake(name).properties)
    assert before is not None
    assert after is not None
    assert before.table.columns[2].type_text == "Enum8('a' = 1)"
    assert after.table.columns == exports.clickhouse.source.describe(name).columns
    noted = [one for one in notes if one.startswith("noted in")]
    assert noted == [f"noted in lake.n.{name.name} as the source has it now: columns"]
    assert len(exports.lake(name).schemas()) == 1
