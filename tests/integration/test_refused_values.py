"""Values that the lake cannot hold refuse their partition before it is visible, with a sample.

Class C of docs/reference/types.md, under every conversion that depends on the data: a real part, a
real task. The other partitions of the table are exported.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.real_export import RealExport

ALLOWED = "enable_time_time64_type = 1"


@dataclass(frozen=True)
class Bad:
    """A column, a value that is fine, one that is not, and its message."""

    type: str
    conversion: str
    good: str
    bad: str
    message: str


def ticks(number: int | str, precision: int) -> str:
    return f"reinterpret(toInt64('{number}'), 'DateTime64({precision}, \\'UTC\\')')"


CASES = [
    Bad(
        "UInt64",
        "long",
        "1",
        "'9223372036854775808'",
        "the greatest long in 2 rows, for example 9223372036854775808",
    ),
    Bad(
        "Array(UInt64)",
        "long",
        "[1]",
        "[toUInt64('18446744073709551615')]",
        "the greatest long in 2 rows, for example [18446744073709551615]",
    ),
    Bad(
        "Int128",
        "decimal(38,0)",
        "'-1'",
        f"'-1{'0' * 38}'",
        f"the most that a decimal holds in 2 rows, for example -1{'0' * 38}",
    ),
    Bad(
        "UInt256",
        "decimal(38,0)",
        "'7'",
        "bitNot(toUInt256(0))",
        f"the most that a decimal holds in 2 rows, for example {2**256 - 1}",
    ),
    Bad(
        "Array(Nullable(UInt256))",
        "decimal(38,0)",
        "[NULL, 5]",
        f"[toUInt256('1{'0' * 40}')]",
        f"the most that a decimal holds in 2 rows, for example [1{'0' * 40}]",
    ),
    Bad(
        "Decimal(50, 5)",
        "decimal(38,2)",
        "'1.25'",
        "'1.251'",
        "before or after the point in 2 rows, for example 1.251",
    ),
    Bad(
        "Decimal(5, 0)",
        "decimal(8,0)",
        "'1'",
        "reinterpret(toInt32(2000000000), 'Decimal(5, 0)')",
        "of more digits than its Decimal type allows in 2 rows, for example 2000000000",
    ),
    Bad(
        "FixedString(2)",
        "string",
        "'ab'",
        "unhex('00FF')",
        "not valid UTF-8 in 2 rows, for example 00FF",
    ),
    Bad(
        "Map(DateTime64(9, 'UTC'), Int8)",
        "truncate",
        f"map({ticks(1, 9)}, 1)",
        f"map({ticks(1, 9)}, 1, {ticks(2, 9)}, 2)",
        "has a key twice, which readers treat differently in 2 rows",
    ),
    Bad(
        "DateTime64(9, 'UTC')",
        "",
        ticks(-1000, 9),
        ticks(-1, 9),
        "that the lake keeps in 2 rows, for example 1969-12-31 23:59:59.999999999",
    ),
    Bad(
        "DateTime64(7, 'UTC')",
        "string",
        ticks(1, 7),
        ticks(92 * 10**17, 7),
        "the years 0 to 9999, which ClickHouse writes as another time in 2 rows",
    ),
    Bad(
        "Variant(String, UInt8)",
        "",
        "NULL",
        "CAST(unhex('FF') AS Variant(String, UInt8))",
        "not valid UTF-8 in 2 rows, for example FF",
    ),
    Bad(
        "Dynamic",
        "struct",
        "1",
        "unhex('FF')",
        "not valid UTF-8 as JSON text in 2 rows, for example FF",
    ),
    Bad(
        "Geometry",
        "wkb",
        "NULL",
        "CAST([(0, 0)] AS Ring)",
        "does not write as well-known binary in 2 rows, for example [(0,0)]",
    ),
    Bad(
        "AggregateFunction(groupArray, String)",
        "finalize",
        "groupArrayState('a')",
        "groupArrayState(unhex('FF'))",
        "not valid UTF-8 in 2 rows, for example 5B27FF275D",
    ),
    Bad(
        "AggregateFunction(sum, Decimal(2, 1))",
        "finalize",
        "sumState(toDecimal32(1, 1))",
        "sumState(reinterpret(toInt32(2000000000), 'Decimal(2, 1)'))",
        "",
    ),
]


@pytest.fixture(scope="module")
def exported(exports: RealExport) -> dict[str, tuple[str, str]]:
    """Export a table in which each partition has two bad values, of one column each."""
    columns = ", ".join(f"c{i} {c.type}" for i, c in enumerate(CASES))
    name = exports.clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY p ORDER BY n SETTINGS {ALLOWED}",
        f"p UInt8, n UInt8, {columns}",
    )
    for partition in range(len(CASES) + 1):
        for row in (1, 2, 3):
            values = ", ".join(
                f"{c.bad if i == partition and row != 1 else c.good} AS c{i}"
                for i, c in enumerate(CASES)
            )
            exports.clickhouse.command(
                f"INSERT INTO {name.sql} SELECT {partition} AS p, {row} AS n, {values}"
            )
    conversions = {f"c{i}": c.conversion for i, c in enumerate(CASES) if c.conversion}
    found = exports.run(name, conversions=conversions)
    return {o.partition_id: (o.status.value, o.message) for o in found}


@pytest.mark.parametrize(
    ("number", "case"), list(enumerate(CASES)), ids=[f"{c.type} {c.conversion}" for c in CASES]
)
def test_a_value_without_a_place_refuses_its_partition_with_count_and_sample(
    exported: dict[str, tuple[str, str]], number: int, case: Bad
) -> None:
    status, message = exported[str(number)]

    if not case.message:
        assert status == "committed"
        return
    assert status == "refused"
    assert f": column c{number}: " in message
    assert case.message in message
    assert message.endswith(".")


def test_partitions_without_such_values_are_exported(exported: dict[str, tuple[str, str]]) -> None:
    assert exported[str(len(CASES))] == ("committed", "")
