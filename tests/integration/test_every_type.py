"""Every ClickHouse type and every conversion, from a real part to what PyIceberg reads.

Covers the mapping of docs/reference/types.md: scalars at their edges, NULLs, nested containers.
The expected values are written next to the cases, and not computed by code.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, datetime
from typing import Any
from uuid import UUID

import pytest

from tests.support.nested_type_cases import CONTAINERS, SHAPES
from tests.support.real_export import RealExport
from tests.support.type_cases import SCALARS, Case, nulls
from tests.support.union_type_cases import STATES, UNIONS

ROWS = 4
ALLOWED = (
    "flatten_nested = 0, enable_time_time64_type = 1, allow_suspicious_low_cardinality_types = 1, "
    "allow_suspicious_variant_types = 1, allow_experimental_nullable_tuple_type = 1, "
    "allow_suspicious_fixed_string_types = 1"
)
NOT_NULLABLE = ("LowCardinality", "Nullable")


def cases_of(cases: list[Case]) -> list[Case]:
    """Return the cases, and each scalar one again as Nullable."""
    scalars = [c for c in cases if c in SCALARS and not c.type.startswith(NOT_NULLABLE)]
    return [*cases, *(nulls(c) for c in scalars)]


GROUPS = [cases_of(SCALARS), [*CONTAINERS, *SHAPES], UNIONS, STATES]


@pytest.fixture(scope="module")
def lake(exports: RealExport) -> dict[str, tuple[str, bool, list[Any]]]:
    """Export every case as a column of a few tables: Iceberg type, required, values by case."""
    found = {}
    for cases in GROUPS:
        found.update(exported(exports, cases))
    return found


def exported(exports: RealExport, cases: list[Case]) -> dict[str, tuple[str, bool, list[Any]]]:
    columns = ", ".join(f"c{i} {c.type}" for i, c in enumerate(cases))
    name = exports.clickhouse.table(
        f"ENGINE = MergeTree ORDER BY n SETTINGS {ALLOWED}", f"n UInt8, {columns}"
    )
    for row in range(ROWS):
        values = ", ".join(f"{c.sql[row % len(c.sql)]} AS c{i}" for i, c in enumerate(cases))
        exports.clickhouse.command(f"INSERT INTO {name.sql} SELECT {row} AS n, {values}")
    conversions = {f"c{i}": c.conversion for i, c in enumerate(cases) if c.conversion}
    outcomes = exports.run(name, conversions=conversions)
    assert [(o.status.value, o.message) for o in outcomes] == [("committed", "")]
    table = exports.lake(name)
    read = table.scan().to_arrow().sort_by("n")
    return {
        c.name: (
            str(table.schema().find_type(f"c{i}")),
            table.schema().find_field(f"c{i}").required,
            [seen(v) for v in read.column(f"c{i}").to_pylist()],
        )
        for i, c in enumerate(cases)
    }


def seen(value: Any) -> Any:
    """Bring what PyIceberg gives into the form of the cases."""
    match value:
        case datetime():
            return str(value.replace(tzinfo=None))
        case date() | UUID():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return {k: seen(v) for k, v in value.items()}
        case list():
            return [seen(v) for v in value]
        case tuple():
            return tuple(seen(v) for v in value)
        case float() if math.isnan(value):
            return "nan"
        case _:
            return value


@pytest.mark.parametrize("one", [c for g in GROUPS for c in g], ids=lambda c: c.name)
def test_every_value_of_every_type_is_in_the_lake(
    lake: dict[str, tuple[str, bool, list[Any]]], one: Case
) -> None:
    """Harm prevented: a wrapped number, a lost NULL, a label or a zone that Arrow forgot."""
    iceberg, required, values = lake[one.name]

    assert [repr(v) for v in values] == [repr(one.seen[i % len(one.seen)]) for i in range(ROWS)]
    assert not one.iceberg or iceberg == one.iceberg
    assert None not in values or not required


def test_no_case_stands_there_twice() -> None:
    """Harm prevented: a case that hides another one of the same name."""
    names = Counter(c.name for g in GROUPS for c in g)

    assert [n for n, count in names.items() if count > 1] == []
    assert len(names) >= 122
