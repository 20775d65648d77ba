"""A small part of the sweep (`partition_sweep.py`), and that the sweep would find a mistake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tableformat.iceberg import key_functions as partition_matrix
from tableformat.mergetree.types import parse_type
from tests.properties.key_values import KeyColumn
from tests.properties.partition_sweep import Sweep
from tests.support.embedded_clickhouse import EmbeddedClickHouse


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        yield started


SMALL = (
    *("Date", "Date32", "DateTime('UTC')", "DateTime64(6, 'UTC')", "DateTime('America/New_York')"),
    *("Int8", "UInt64", "Int64", "Decimal(30, 7)", "Nullable(String)", "FixedString(5)", "UUID"),
)


@pytest.mark.parametrize("of", SMALL)
@pytest.mark.parametrize("seed", [1])
def test_clickhouse_pyiceberg_and_we_divide_the_same_values_alike(
    clickhouse: EmbeddedClickHouse, of: str, seed: int
) -> None:
    """Rows in a partition that a reader would not look into are lost to it."""
    sweep = Sweep(clickhouse)

    sweep.run(seed, 40, only=lambda column: column.type == parse_type(of))

    assert sweep.found == []
    assert sweep.counted["values"] > 200
    assert sweep.counted["probed values"] > 150


@pytest.mark.parametrize(
    ("row", "wrong", "of"),
    [
        ("toDate", "=day =day =day =day", "DateTime64(6, 'UTC')"),
        ("toDate", "=day =day =month ~day", "DateTime('UTC')"),
        ("toStartOfInterval(year)", "=year =year =year ~year", "Date32"),
    ],
)
def test_the_sweep_finds_a_wrong_row_of_the_matrix(
    clickhouse: EmbeddedClickHouse,
    monkeypatch: pytest.MonkeyPatch,
    row: str,
    wrong: str,
    of: str,
) -> None:
    """A sweep that finds nothing must have been able to."""
    changed = dict(partition_matrix.MATRIX) | {row: wrong}
    monkeypatch.setattr(partition_matrix, "MATRIX", changed)
    sweep = Sweep(clickhouse)

    sweep.run(1, 300, only=lambda column: _is(column, of))

    assert sweep.found


def _is(column: KeyColumn, of: str) -> bool:
    return column.type == parse_type(of)
