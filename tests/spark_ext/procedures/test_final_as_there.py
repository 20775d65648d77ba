"""FINAL of the engines that compute values of rows leaves what it leaves in ClickHouse."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

import pytest
from pyiceberg.types import StringType

from tableformat.errors import RefusedError, UnsupportedError
from tableformat.names import quote_identifier
from tests.support.merged_engines import CASES as GENERATED
from tests.support.merged_engines import Case as Generated
from tests.support.merged_engines import drawn
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

SMALL = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 1500"
PARTITIONS = 5
UNMERGED = "max_bytes_to_merge_at_max_space_in_pool = 1"


@dataclass(frozen=True)
class Case:
    """A table: its columns, and its rows by `number`."""

    name: str
    engine: str
    columns: str
    rows: str
    order: str = "k"


CASES = [
    Case(
        "sums",
        "SummingMergeTree",
        "p UInt8, k UInt32, s LowCardinality(String), i Int8, u UInt64, n Nullable(Int32),"
        " d Decimal(20, 4), w Int256, e Enum8('x' = 1, 'y' = 2), f Float64,"
        " hitsMap Nested(id UInt16, hits Int64), m Int32 MATERIALIZED i + 1, a UInt8 ALIAS p",
        "number % 2, number % 6, toString(number % 2), number, 18446744073709551610 + number,"
        " if(number % 3 = 0, NULL, number), number / 4, -number, if(number % 2 = 0, 'x', 'y'),"
        " if(number % 6 = 5, 0, number / 8), [number % 3, number % 3 + 1], [number, -number]",
    ),
    Case(
        "rows that come to nothing go",
        "SummingMergeTree((v, w))",
        "p UInt8, k UInt32, v Int32, w Nullable(Int8), kept UInt16",
        "number % 2, intDiv(number, 4), if(number % 4 < 2, 5, if(number < 30, -5, 1)), NULL,"
        " intDiv(number, 4) % 2",
    ),
    Case(
        "functions",
        "AggregatingMergeTree",
        "p UInt8, k UInt32, s SimpleAggregateFunction(sum, Int64),"
        " most SimpleAggregateFunction(max, DateTime64(3, 'UTC')),"
        " least SimpleAggregateFunction(min, LowCardinality(String)),"
        " some SimpleAggregateFunction(anyLast, Nullable(String)),"
        " bits SimpleAggregateFunction(groupBitOr, UInt32),"
        " of_map SimpleAggregateFunction(sumMap, Map(String, UInt64))",
        "number % 2, number % 6, number, toDateTime64('2024-01-01', 3, 'UTC') + number,"
        " toString(number), if(number < 20, toString(number % 6), NULL), number,"
        " map(toString(number % 3), number)",
    ),
    Case(
        "what is known stays",
        "CoalescingMergeTree",
        "p UInt8, k UInt32, a Nullable(Int32), b LowCardinality(Nullable(String)),"
        " d Nullable(DateTime('UTC'))",
        "number % 2, number % 20, if(number < 20, number, NULL), if(number >= 40, 'x', NULL),"
        " if(number < 20, NULL, toDateTime('2024-01-01 00:00:00', 'UTC') + number % 20)",
    ),
    Case(
        "states",
        "CollapsingMergeTree(sign)",
        "p UInt8, k UInt32, sign Int8, v UInt8",
        "number % 2, number % 20, if(number BETWEEN 20 AND 39, -1, 1), number % 20",
    ),
]


def values(places: Places, name: str) -> list[str]:
    """Return all rows of a lake table, as they are compared."""
    return sorted(repr(row) for row in opened(places, name).scan().to_arrow().to_pylist())


def made(places: Places, session: NoSpark, case: Case, name: str) -> None:
    """Make a table of three parts in each of two partitions, and export it into several files."""
    places.reads_parts = True
    places.clickhouse_run(
        f"CREATE TABLE db.{name} ({case.columns}) ENGINE = {case.engine}"
        f" PARTITION BY p ORDER BY {case.order} SETTINGS {UNMERGED}",
        *(
            f"INSERT INTO db.{name} SETTINGS optimize_on_insert = 0"
            f" SELECT {case.rows} FROM numbers({20 * part}, 20)"
            for part in range(3)
        ),
    )
    alter(session, f"ALTER TABLE ch.db.{name} EXPORT PARTITION ALL TO TABLE lake.n.{name} {SMALL}")
    assert len(list(opened(places, name).scan().plan_files())) > 2


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, id=one.name, marks=pytest.mark.soak if number else ())
        for number, one in enumerate(CASES)
    ],
)
def test_it_leaves_what_clickhouse_leaves(places: Places, session: NoSpark, case: Case) -> None:
    """Harm prevented: a sum that ClickHouse would not have, or a row that is not gone."""
    name = f"computed_{CASES.index(case)}"
    made(places, session, case, name)
    before = values(places, name)

    rows = alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")

    assert {row["status"] for row in rows} == {"optimized"}
    after = values(places, name)
    assert {row["status"] for row in export_all(session, name, name)} == {"already_exported"}
    places.clickhouse_run(f"OPTIMIZE TABLE db.{name} FINAL")
    export_all(session, name, f"{name}_there")
    assert after == values(places, f"{name}_there")
    assert len(after) < len(before)
    (again,) = alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")
    assert again["status"] == "unchanged"


@pytest.mark.parametrize(
    ("engine", "columns", "rows", "message"),
    [
        (
            "SummingMergeTree",
            "f Float64, s String",
            "number / 10, toString(number % 9)",
            "f: float",
        ),
        pytest.param(
            "SummingMergeTree", "d Decimal(4, 2)", "90", "more digits", marks=pytest.mark.soak
        ),
        pytest.param(
            "CollapsingMergeTree(s)",
            "s Int8",
            "if(number < 20, 1, -1)",
            "inserted last",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_result_that_depends_on_row_order_is_refused_without_a_change(
    places: Places, session: NoSpark, engine: str, columns: str, rows: str, message: str
) -> None:
    """Harm prevented: a lake that has other values than ClickHouse after the same statement."""
    case = Case("", engine, f"p UInt8, k UInt8, {columns}", f"1, number % 3, {rows}")
    made(places, session, case, "refused")
    before = opened(places, "refused").metadata.current_snapshot_id

    with pytest.raises(RefusedError, match=message):
        alter(session, "OPTIMIZE TABLE lake.n.refused FINAL")

    assert opened(places, "refused").metadata.current_snapshot_id == before


@pytest.mark.representative
def test_rows_of_one_key_each_get_what_a_merge_makes_of_them(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: a row that stays as it was, because no row went."""
    columns = "p UInt8, k UInt32, v Int32, hitsMap Nested(id UInt8, hits Int32)"
    case = Case("", "SummingMergeTree", columns, "1, number, 1, [2, 1], [number % 2, 5]")
    made(places, session, case, "single")

    (row,) = alter(session, "OPTIMIZE TABLE lake.n.single FINAL")

    assert (row["status"], row["rows"]) == ("optimized", 60)
    after = values(places, "single")
    places.clickhouse_run("OPTIMIZE TABLE db.single FINAL")
    export_all(session, "single", "single_there")
    assert after == values(places, "single_there")
    assert len(after) == 60


@pytest.mark.soak
def test_columns_that_only_the_lake_has_are_not_merged(places: Places, session: NoSpark) -> None:
    """Harm prevented: a value of another row together with a sum."""
    case = Case("", "SummingMergeTree", "p UInt8, k UInt32, v Int32", "number % 2, number % 3, 1")
    made(places, session, case, "wider")
    with opened(places, "wider").update_schema() as change:
        change.add_column("note", StringType())

    with pytest.raises(UnsupportedError, match="note, which its ClickHouse table does not have"):
        alter(session, "OPTIMIZE TABLE lake.n.wider FINAL")


@pytest.mark.parametrize(
    ("engine", "columns", "rows"),
    [
        ("CoalescingMergeTree", "t Tuple(a Int32)", "tuple(1)"),
        pytest.param(
            "AggregatingMergeTree",
            "t SimpleAggregateFunction(anyLast, Tuple(a Int32))",
            "tuple(1)",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "SummingMergeTree",
            "v Int32, t Tuple(a Int32)",
            "1, tuple(1)",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_members_that_only_the_lake_has_are_not_merged(
    places: Places, session: NoSpark, engine: str, columns: str, rows: str
) -> None:
    """Harm prevented: what another engine wrote into a struct is NULL after a merge."""
    name = f"members_of_{engine.lower()}"
    case = Case("", engine, f"p UInt8, k UInt32, {columns}", f"number % 2, number % 3, {rows}")
    made(places, session, case, name)
    with opened(places, name).update_schema() as change:
        change.add_column(("t", "c"), StringType())

    with pytest.raises(UnsupportedError, match=r"t\.c, which its ClickHouse table does not have"):
        alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")


def some_columns(case: Generated, random: Random) -> Generated:
    """Return a case with few columns, so that it is not always refused; structures stay whole."""
    groups = sorted({name.partition(".")[0] for name, *_ in case.columns})
    named = {one for one in groups if re.search(rf"\b{one}\b", case.engine)}
    chosen = named | set(random.sample(groups, k=min(2, len(groups))))
    columns = tuple(one for one in case.columns if one[0].partition(".")[0] in chosen)
    return replace(case, columns=columns)


@pytest.mark.soak
@pytest.mark.parametrize("engine", GENERATED)
def test_a_partition_is_refused_or_has_the_rows_that_clickhouse_leaves(
    places: Places, session: NoSpark, engine: str
) -> None:
    """Any rows in any number of parts; which share is refused other tests say."""
    places.reads_parts = True
    random = Random(engine)  # noqa: S311  chance, no secret
    equal = 0
    for number in range(2):
        case = some_columns(GENERATED[engine], random)
        name = f"{engine.replace(' ', '_')}_{number}"
        defined = ", ".join(f"{quote_identifier(name)} {of}" for name, of, _ in case.columns)
        order = "(k, in_key % 2)" if "in_key" in defined else "k"
        places.clickhouse_run(
            f"CREATE TABLE db.{name} (p UInt8, k Int32, {defined}) ENGINE = {case.engine}"
            f" PARTITION BY p ORDER BY {order}"
            f" SETTINGS {UNMERGED}, allow_dimensions_outside_sorting_key = 1",
            *(
                f"INSERT INTO db.{name} SETTINGS optimize_on_insert = 0,"
                f" allow_suspicious_low_cardinality_types = 1 VALUES {rows}"
                for rows in inserts(case, random)
            ),
        )
        export_all(session, name, name)
        merged = []
        for partition in range(PARTITIONS):
            statement = f"OPTIMIZE TABLE lake.n.{name} PARTITION {partition} FINAL"
            try:
                alter(session, statement)
            except RefusedError:
                continue
            merged.append(partition)
            places.clickhouse_run(statement.replace("lake.n.", "db."))
        export_all(session, name, f"{name}_there")
        here, there = (rows_by_partition(places, one) for one in (name, f"{name}_there"))
        for partition in merged:
            assert here[partition] == there[partition], (case, partition)
        equal += len(merged)
    assert equal


def inserts(case: Generated, random: Random) -> list[str]:
    """Return the VALUES of some inserts, with one key in each partition."""
    made: list[list[str]] = [[] for _ in range(random.randint(1, 4))]
    for partition in range(PARTITIONS):
        for _, values in drawn(case, random, 1):
            random.choice(made).append(f"({partition}, {', '.join(values)})")
    return [", ".join(rows) for rows in made if rows]


def rows_by_partition(places: Places, name: str) -> dict[int, list[str]]:
    """Return the rows of a lake table, as they are compared."""
    found: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    for row in opened(places, name).scan().to_arrow().to_pylist():
        found[row["p"]].append(repr(row))
    return {partition: sorted(rows) for partition, rows in found.items()}


@pytest.mark.soak
def test_rows_stay_in_the_partition_of_the_lake_that_they_are_in(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: a sum in a file of which Iceberg says that it holds another value."""
    rows = "number % 2, number % 6, number % 2 + 1"
    places.reads_parts = True
    places.clickhouse_run(
        "CREATE TABLE db.by_sum (p UInt8, k UInt32, v Int32) ENGINE = SummingMergeTree"
        f" PARTITION BY p ORDER BY k SETTINGS {UNMERGED}",
        *(
            f"INSERT INTO db.by_sum SETTINGS optimize_on_insert = 0 SELECT {rows} FROM numbers(20)"
            for _ in range(2)
        ),
    )
    session.call(
        "export_partitions", source="ch.db.by_sum", table="lake.n.by_sum", partition_spec="v"
    )

    with pytest.raises(RefusedError, match="the partition field v") as refused:
        alter(session, "OPTIMIZE TABLE lake.n.by_sum FINAL")

    assert refused.value.code == 420
