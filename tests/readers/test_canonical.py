"""The form in which readers are compared, and filters in every reader's language."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.canonical import canonical, python_value
from tests.readers.filters import Dialect, where

DUCKDB = Dialect('"', {"'": "''", "\0": "' || chr(0) || '"}, {"decimal": "D{precision},{scale}"})
STRUCT = {
    "type": "struct",
    "fields": [{"name": "a b", "type": "int"}, {"name": "c", "type": "string"}],
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(38, 10)": st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -10))
    ),
    "string": st.text(),
    "uuid": st.uuids(),
    "fixed[4]": st.binary(min_size=4, max_size=4),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamptz": st.datetimes(timezones=st.just(dt.UTC)),
}


def same(one: Any, other: Any) -> bool:
    """Whether two values are one: NaN is itself, and zeros have signs."""
    if isinstance(one, float):
        return repr(one) == repr(float(other))
    return bool(one == other)


@pytest.mark.parametrize("of", VALUES)
def test_a_value_survives_its_canonical_form_and_json(of: str) -> None:
    """Harm prevented: two values look alike, and a wrong one is taken for right."""

    @given(value=VALUES[of])
    def check(value: Any) -> None:
        cell = json.loads(json.dumps(canonical(value, of)))
        assert same(value, python_value(cell, of))
        assert canonical(python_value(cell, of), of) == cell

    check()


@given(value=st.floats(width=32, allow_nan=False))
def test_a_float_is_shown_as_its_exact_double(value: float) -> None:
    assert same(value, float(canonical(value, "float")))


@pytest.mark.parametrize(
    ("value", "of", "cell"),
    [
        (None, "int", None),
        (0.1, "float", "0.10000000149011612"),
        (math.nan, "double", "nan"),
        (Decimal("1.50"), "decimal(9, 2)", "1.5"),
        (Decimal("-0.00"), "decimal(9, 2)", "0"),
        (UUID(int=1).bytes, "uuid", "00000000-0000-0000-0000-000000000001"),
        ("a\udcff", "fixed[2]", "0x61ff"),
        (dt.datetime(2024, 2, 29, 1), "timestamptz", "2024-02-29T01:00:00.000000Z"),  # noqa: DTZ001  as some readers give it
        ("2024-02-29T01:00:00Z", "timestamptz", "2024-02-29T01:00:00.000000Z"),
        ({"c": "x", "a b": 1}, STRUCT, [1, "x"]),
        ((1, None), STRUCT, [1, None]),
        ([1, None], {"type": "list", "element": "int"}, [1, None]),
        ({"b": 1, "a": 2}, {"type": "map", "key": "string", "value": "int"}, [["a", 2], ["b", 1]]),
        ([(2, "x"), (2, "y")], {"type": "map", "key": "int", "value": "string"},
         [[2, "x"], [2, "y"]]),
    ],
)  # fmt: skip
def test_what_readers_give_in_different_forms_is_one_value(value: Any, of: Any, cell: Any) -> None:
    assert canonical(value, of) == cell


@pytest.mark.parametrize(
    ("value", "of"), [(1, "boolean"), (1, "string"), ("x", "int"), (1, "time"), ([1], STRUCT)]
)
def test_a_value_of_another_type_is_no_value(value: Any, of: Any) -> None:
    """Harm prevented: 1 is taken for true, and a text for the number that it looks like."""
    with pytest.raises((ValueError, TypeError)):
        canonical(value, of)


@given(value=st.text())
def test_a_text_in_sql_is_that_text(value: str) -> None:
    """Harm prevented: a reader is asked for another value, and its result is called wrong."""
    with duckdb.connect() as session:
        assert session.sql(f"SELECT {DUCKDB.text(value)}").fetchall() == [(value,)]


def test_filters_are_written_in_sql() -> None:
    types = {'q"': "string", "n": "int", "d": "decimal(9, 2)"}
    of = ["and", ["in", 'q"', ["it's", ""]], ["and", ["null", "n"], [">", "d", "1.5"]]]

    assert where(of, types, DUCKDB) == (
        '("q""" IN (\'it\'\'s\', \'\')) AND (("n" IS NULL) AND ("d" > D9,2))'
    )


def test_an_unknown_filter_is_refused() -> None:
    with pytest.raises(ValueError, match="is no filter"):
        where(["like", "n", 1], {"n": "int"}, DUCKDB)
