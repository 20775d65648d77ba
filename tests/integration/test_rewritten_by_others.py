"""Snapshots of the operation `replace` with other rows: what exports and comparisons say of them.

The metadata of such a snapshot cannot show that a value changed, and `verify` reads the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation

from catalog.clickhouse.rows.digests import FileDigests
from tableformat.names import TableName
from tests.support.other_engines import Edit, merge_files, rewrite
from tests.support.real_export import RealExport

SOURCES = {
    "as it was": "SELECT 1",
    "changed": "INSERT INTO {} VALUES (0, 1000, 'z'), (1, 1000, 'z')",
    "without the partitions": "ALTER TABLE {} DROP PARTITION ALL",
    "gone": "DROP TABLE {} SYNC",
}


@pytest.fixture(scope="module")
def digests() -> Iterator[FileDigests]:
    with FileDigests() as opened:
        yield opened


def rewritten(exports: RealExport, name: TableName, edit: Edit | None) -> None:
    """Let another engine rewrite all files of the lake table, and claim that the rows are kept."""
    to = exports.name_of(name)
    rewrite(exports.warehouse.parent, of=to, edit=edit, operation=Operation.REPLACE)


def verdicts(exports: RealExport, name: TableName, digests: FileDigests) -> dict[str, str]:
    return {c.partition_id: c.verdict.value for c in exports.verify(name, digests)}


def another_value(rows: pa.Table) -> pa.Table:
    texts = rows["s"].to_pylist()
    return rows.set_column(2, rows.schema.field("s"), pa.array([*texts[:-1], "x"]))


def an_empty_value(rows: pa.Table) -> pa.Table:
    texts = rows["s"].to_pylist()
    return rows.set_column(2, rows.schema.field("s"), pa.array(["", *texts[1:]]))


def values_of_other_rows(rows: pa.Table) -> pa.Table:
    """Keep the values of each column, and not which belong to one row."""
    texts = rows["s"].to_pylist()
    return rows.set_column(2, rows.schema.field("s"), pa.array([*texts[1:], texts[0]]))


def one_twice_and_another_lost(rows: pa.Table) -> pa.Table:
    return rows.take([0, 0, *range(2, rows.num_rows)])


def in_another_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("k", "descending")])


@pytest.mark.parametrize(
    "edit", [another_value, an_empty_value, values_of_other_rows, one_twice_and_another_lost]
)
def test_other_rows_of_the_same_number_are_found_by_verify(
    exports: RealExport, digests: FileDigests, edit: Edit
) -> None:
    """Harm prevented: a compaction that damaged a value passes, and then the source is dropped."""
    name = exports.clickhouse.filled()
    exports.run(name, verify=True)
    rewritten(exports, name, edit)

    assert verdicts(exports, name, digests) == {"0": "differs", "1": "differs"}
    for change in SOURCES.values():
        exports.clickhouse.command(change.format(name.sql))
        assert verdicts(exports, name, digests) == {"0": "differs", "1": "differs"}


def test_rows_in_another_order_are_equal_whatever_became_of_the_source(
    exports: RealExport, digests: FileDigests
) -> None:
    name = exports.clickhouse.filled()
    exports.run(name, verify=True)
    rewritten(exports, name, in_another_order)

    found = {}
    for what, change in SOURCES.items():
        exports.clickhouse.command(change.format(name.sql))
        found[what] = set(verdicts(exports, name, digests).values())

    assert found == {
        "as it was": {"equal"},
        "changed": {"as_exported"},
        "without the partitions": {"equal"},
        "gone": {"equal"},
    }


def test_rows_that_went_to_another_partition_are_changed_by_others(
    exports: RealExport, digests: FileDigests
) -> None:
    """Harm prevented: the rows of two partitions in a file of one count as both exported."""
    name = exports.clickhouse.filled()
    exports.run(name, verify=True)
    to = exports.name_of(name)
    merge_files(exports.warehouse.parent, "mixed", of=to, operation=Operation.REPLACE)

    assert verdicts(exports, name, digests) == {"0": "not_comparable", "1": "not_comparable"}
    assert {status for status, _ in exports.statuses(name).values()} == {"refused"}
