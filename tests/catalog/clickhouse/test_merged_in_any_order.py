"""Whether it is seen that a merge leaves other values when rows were inserted in another order.

What ClickHouse leaves is asked of itself: it merges the same rows in every order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random

import pytest

from catalog.clickhouse.embedded import OwnClickHouse
from catalog.clickhouse.rows.partitions import KeyTables
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.final_merge import (
    OrderCheck,
    RowMerge,
    ambiguous_rows,
    ambiguous_values,
    merged_columns,
)
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.types import parse_type
from tableformat.names import TableName, quote_identifier
from tests.support.merged_engines import CASES, MOST, Case, drawn

MERGE = RowMerge("OPTIMIZE TABLE FINAL", merges=True)
Values = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def held() -> Iterator[OwnClickHouse]:
    with OwnClickHouse("orders") as connection:
        yield connection


def table_of(case: Case) -> MergeTreeTable:
    """Return the table of a case; a column `in_key` is read by its sorting key."""
    order = "(k, in_key % 2)" if any(name == "in_key" for name, *_ in case.columns) else "k"
    columns = (("k", "Int32"), *((name, of) for name, of, _ in case.columns))
    return MergeTreeTable(
        TableName("db", "t"),
        "",
        "",
        parse_engine(f"{case.engine} ORDER BY {order}"),
        tuple(Column(name, parse_type(of), of) for name, of in columns),
        "",
        "26.9",
        "UTC",
    )


def merged(
    held: OwnClickHouse, table: MergeTreeTable, rows: list[tuple[int, list[str]]], order: list[int]
) -> Values:
    """Insert the rows of each key in an order, merge them, and return what is left."""
    held.command("TRUNCATE TABLE default.merged")
    placed = sorted(rows, key=lambda row: order.index(row[0]))
    values = ", ".join(f"({', '.join(row)})" for _, row in placed)
    held.command(f"INSERT INTO default.merged SETTINGS optimize_on_insert = 0 VALUES {values}")
    held.command("OPTIMIZE TABLE default.merged FINAL SETTINGS optimize_throw_if_noop = 1")
    return values_in(held, table, "default.merged")


def values_in(held: OwnClickHouse, table: MergeTreeTable, name: str) -> Values:
    """Return the bytes of the values of each column, by key."""
    names = [c.name for c in table.columns]
    shown = ", ".join(f"hex(formatRow('RowBinary', {quote_identifier(n)}))" for n in names)
    found: Values = {}
    for key, *values in held.rows(f"SELECT toString(k), {shown} FROM {name} ORDER BY ALL"):
        of_key = found.setdefault(str(key), {name: [] for name in names})
        for column, value in zip(names, values, strict=True):
            of_key[column].append(str(value))
    return found


@pytest.mark.parametrize(
    ("seed", "keys"),
    [(1, 8), *(pytest.param(n, 40, marks=pytest.mark.soak) for n in range(2, 12))],
)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_not_refused_is_the_same_in_every_order(
    held: OwnClickHouse, case: Case, seed: int, keys: int
) -> None:
    """Harm prevented: a value that ClickHouse would not have left, because rows came otherwise."""
    table, random = table_of(case), Random(seed)  # noqa: S311  chance, no secret
    held.command("DROP TABLE IF EXISTS default.merged")
    held.command("DROP TABLE IF EXISTS default.rows")
    tables = KeyTables(held, table)
    tables.make("default.rows", table.columns, "")
    tables.make_merging("default.merged", table.columns, merges=True)
    rows = drawn(case, random, keys)
    values = ", ".join(f"({', '.join(row)})" for _, row in rows)
    held.command(f"INSERT INTO default.rows VALUES {values}")

    every = [merged(held, table, rows, list(order)) for order in permutations(range(MOST))]

    names = [name for name, *_ in case.columns]
    given = values_in(held, table, "default.rows")
    kept = {one.column.name for one in merged_columns(table) if not one.computed}
    clear = 0
    for key in map(str, range(keys)):
        unclear = unclear_of(held, table, f"(SELECT * FROM default.rows WHERE k = {key})")
        left = [one.get(key) for one in every]
        for name in names:
            # The columns of a structure are merged together.
            if any(one.partition(".")[0] == name.partition(".")[0] for one in unclear):
                continue
            clear += 1
            found = {tuple(one[name]) for one in left if one is not None}
            assert len(found) <= 1, (name, found, [row for _, row in rows if row[0] == key])
            if name in kept:
                assert all(set(one) <= set(given[key][name]) for one in found), (name, found)
        if not unclear:
            assert all(one == left[0] for one in left), (left, key)
    assert clear >= case.clear * keys * len(names)


def unclear_of(held: OwnClickHouse, table: MergeTreeTable, rows: str) -> set[str]:
    """Return the columns that are refused of some rows."""
    asked = [OrderCheck((one,), one.dependence) for one in merged_columns(table)]
    if asked:
        (found,) = held.rows(ambiguous_values(asked, table.engine, rows))
        return {one.names[0] for one, dependence in zip(asked, found, strict=True) if dependence}
    sql = ambiguous_rows(MERGE, table.engine, rows, table.columns)
    return {c.name for c in table.columns} if held.rows(sql) else set()
