"""OPTIMIZE of tables whose keys are no plain columns leaves what it leaves in ClickHouse."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

SMALL = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 200"
UNMERGED = (
    "allow_nullable_key = 1, max_bytes_to_merge_at_max_space_in_pool = 1,"
    " max_bytes_to_merge_at_min_space_in_pool = 1"
)


@dataclass(frozen=True)
class Case:
    """A table: its columns, how it is divided and sorted, and its rows by `number`."""

    name: str
    columns: str
    order: str
    rows: str
    engine: str = "ReplacingMergeTree(v)"
    partition: str = "tuple()"
    inserted: str = ""


CASES = [
    Case(
        "columns with the names of ours",
        "`mergeberg_key` UInt32, `t` String, `rows` Int32, `of v` UInt32, `ü'x` Nullable(String),"
        " `n.a` Array(Int32)",
        "(mergeberg_key, t, `rows`)",
        "number % 3, toString(number % 2), number % 2, number, if(number % 2 = 0, NULL, 'x'),"
        " [number]",
        engine="ReplacingMergeTree(`of v`)",
        partition="t",
    ),
    Case(
        "expressions",
        "ts DateTime, id String, v DateTime64(3), lc LowCardinality(String)",
        "(toDate(ts), cityHash64(id), lower(lc))",
        "toDateTime('2024-03-30 22:00:00', 'UTC') + number * 1800, toString(number % 3),"
        " toDateTime64('2024-01-01 00:00:00', 3) + number, if(number % 2 = 0, 'A', 'a')",
        partition="toYYYYMM(toDateTime(ts, 'UTC'))",
    ),
    Case(
        "rows that a column calls deleted",
        "k UInt8, v UInt64, d UInt8, e Enum8('x' = 1, 'y' = 2)",
        "(k, e)",
        "number % 5, number, number % 2, if(number % 3 = 0, 'x', 'y')",
        engine="ReplacingMergeTree(v, d)",
    ),
    Case(
        "nothing, no number and two zeros",
        "f Float64, n Nullable(Int8), v UInt32",
        "(f, n)",
        "if(number % 4 = 0, nan, if(number % 4 = 1, -0.0, number % 3)),"
        " if(number % 2 = 0, NULL, number % 3), number",
    ),
    Case(
        "a materialized column",
        "a UInt32, v UInt32, m UInt32 MATERIALIZED a % 3, al UInt32 ALIAS a, z UInt32 DEFAULT 7",
        "(m, a % 5)",
        "number, number",
        inserted="(a, v)",
    ),
    Case(
        "many types",
        "k FixedString(3), v UInt8, u UUID, d Decimal(20, 4), i IPv4, m Map(String, Int32),"
        " t Tuple(a Int32, b Nullable(String)), dt Date32",
        "(k, u, d)",
        "toFixedString(toString(number % 3), 3), number,"
        " toUUID(concat('00000000-0000-0000-0000-00000000000', toString(number % 2))), number % 2,"
        " '1.2.3.4', map('k', number), (number, NULL), toDate32('2024-01-01')",
        partition="dt",
    ),
]


def values(places: Places, name: str) -> list[str]:
    """Return all rows of a lake table, as they are compared."""
    return sorted(repr(row) for row in opened(places, name).scan().to_arrow().to_pylist())


@pytest.mark.parametrize(
    "case",
    # Each shows other keys; two are enough for every run.
    [
        pytest.param(one, id=one.name, marks=pytest.mark.soak if number > 1 else ())
        for number, one in enumerate(CASES)
    ],
)
def test_it_leaves_what_clickhouse_leaves(places: Places, session: NoSpark, case: Case) -> None:
    """Harm prevented: rows that go because two keys are one to us, and two to ClickHouse."""
    places.reads_parts = True
    name = f"keys_{CASES.index(case)}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} ({case.columns}) ENGINE = {case.engine}"
        f" PARTITION BY {case.partition} ORDER BY {case.order} SETTINGS {UNMERGED}",
        *(
            f"INSERT INTO db.{name} {case.inserted} SETTINGS optimize_on_insert = 0"
            f" SELECT {case.rows} FROM numbers({20 * part}, 20)"
            for part in range(3)
        ),
    )
    alter(session, f"ALTER TABLE ch.db.{name} EXPORT PARTITION ALL TO TABLE lake.n.{name} {SMALL}")
    before = values(places, name)

    (merged,) = alter(session, f"OPTIMIZE TABLE lake.n.{name}")
    as_before = values(places, name)
    (final,) = alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")

    assert (merged["status"], final["status"], as_before) == ("optimized", "optimized", before)
    places.clickhouse_run(f"OPTIMIZE TABLE db.{name} FINAL")
    export_all(session, name, f"{name}_there")
    assert values(places, name) == values(places, f"{name}_there")
    assert final["rows"] == len(before) - len(values(places, name)) > 0
