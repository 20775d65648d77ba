"""Whether it is seen that a merge would leave one row or another, by the order of insertion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.clickhouse.own import OwnClickHouse
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.row_merge import RowMerge, unclear_rows

_MERGE = RowMerge("OPTIMIZE TABLE FINAL", merges=True)
_REPLACING = "ReplacingMergeTree(v) ORDER BY (mergeberg_key, n)"
_VERSIONED = "VersionedCollapsingMergeTree(s, v) ORDER BY (mergeberg_key, n)"


@pytest.fixture(scope="module")
def held() -> Iterator[OwnClickHouse]:
    with OwnClickHouse("unclear") as connection:
        connection.command(
            "CREATE TABLE default.t (mergeberg_key Float64, n Nullable(Float64), v Float64, s Int8)"
            " ENGINE = MergeTree ORDER BY tuple()"
        )
        yield connection


def is_unclear(held: OwnClickHouse, engine: str, rows: str) -> bool:
    """Put rows into a table, and ask whether a merge of them is unclear."""
    held.command("TRUNCATE TABLE default.t")
    held.command(f"INSERT INTO default.t VALUES {rows}")
    return bool(held.rows(unclear_rows(_MERGE, parse_engine(engine), "default.t")))


@pytest.mark.parametrize(
    ("engine", "rows"),
    [
        (_REPLACING, "(1, NULL, 5, 1), (1, NULL, 5, 1)"),
        (_REPLACING, "(0, 1, 5, 1), (-0., 1, 5, 1)"),
        (_REPLACING, "(nan, NULL, 5, 1), (-nan, NULL, 5, 1)"),
        (_REPLACING, "(1, 1, nan, 1), (1, 1, nan, 1), (1, 1, 7, 1)"),
        (_REPLACING, "(1, 1, 0, 1), (1, 1, -0., 1), (1, 1, -3, 1)"),
        ("ReplacingMergeTree ORDER BY tuple()", "(1, 1, 5, 1), (2, 1, 6, 1)"),
        (_VERSIONED, "(0, 1, 5, 1), (-0., 1, 5, 1)"),
        (_VERSIONED, "(1, 1, nan, 1), (1, 1, -nan, 1), (1, 1, nan, -1)"),
        (_VERSIONED, "(1, 1, 5, 1), (1, 1, 5, 2), (1, 1, 5, -1)"),
        (_VERSIONED, "(1, 1, 5, 0), (1, 1, 5, -1)"),
    ],
)
def test_what_a_merge_takes_for_one_key_is_one_key(
    held: OwnClickHouse, engine: str, rows: str
) -> None:
    """Harm prevented: a row of the latest version goes, and an older one stays."""
    assert is_unclear(held, engine, rows)


@pytest.mark.parametrize(
    ("engine", "rows"),
    [
        (_REPLACING, "(1, NULL, 5, 1), (1, NULL, 5, 1), (1, NULL, 6, 1), (1, 0, 7, 1)"),
        (_REPLACING, "(1, 1, nan, 1), (1, 1, 7, 1), (1, 1, 7, 1), (0, 1, 1, 1), (-0., 1, 2, 1)"),
        ("ReplacingMergeTree(v) ORDER BY tuple()", "(1, 1, 5, 1), (2, 1, 6, 1)"),
        (_VERSIONED, "(1, 1, 5, 1), (1, 1, 5, -1), (1, 1, 6, -1), (2, 1, 6, 2)"),
        ("VersionedCollapsingMergeTree(s, v) ORDER BY tuple()", "(1, 1, 5, 1), (2, 1, 5, -1)"),
    ],
)
def test_rows_of_which_only_one_can_stay_are_clear(
    held: OwnClickHouse, engine: str, rows: str
) -> None:
    assert not is_unclear(held, engine, rows)
