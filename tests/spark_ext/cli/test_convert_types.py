"""`mergeberg export --convert UInt64=long`: one option for every column of a type."""

from __future__ import annotations

import itertools

import pytest
from pyiceberg.types import DecimalType, ListType, LongType, MapType

from catalog.iceberg.catalogs import open_catalog
from tests.wrong.places import Places

_NUMBERS = itertools.count(1)
_COLUMNS = "id UInt64, own UInt64, list Array(UInt64), named Map(String, Nullable(UInt64))"


@pytest.fixture
def table(places: Places) -> str:
    """Make a table with numbers at several depths."""
    places.reads_parts = True
    name = f"db.typed{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE {name} ({_COLUMNS}) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO {name} VALUES (1, 2, [3], map('a', 4))",
    )
    return name


def words(table: str, *more: str, to: str = "") -> tuple[str, ...]:
    return ("export", table, "--all", "--to", to or f"lake.n.{table[3:]}", *more)


@pytest.mark.representative
def test_every_number_is_a_long_and_the_table_remembers_that(places: Places, table: str) -> None:
    """Harm prevented: fifty columns of decimals, because fifty options were too many to write."""
    given = ("--convert", "UInt64=long", "--convert", "own=default")

    first = places.outcomes(*words(table, *given))
    again = places.outcomes(*words(table, "--force"))
    same = places.outcomes(*words(table, "--force", *given))
    found = open_catalog("lake", warehouse=places.warehouse).catalog.load_table(f"n.{table[3:]}")
    types = {field.name: field.field_type for field in found.schema().fields}
    (row,) = found.scan().to_arrow().to_pylist()

    assert [one["status"] for one in (*first, *again, *same)] == ["committed", *["replaced"] * 2]
    assert (types["id"], types["own"]) == (LongType(), DecimalType(20, 0))
    assert isinstance(types["list"], ListType)
    assert isinstance(types["named"], MapType)
    assert (types["list"].element_type, types["named"].value_type) == (LongType(), LongType())
    assert (row["id"], row["list"], row["named"]) == (1, [3], [("a", 4)])


def test_a_value_that_does_not_fit_is_refused_as_with_the_columns_own_option(
    places: Places, table: str
) -> None:
    places.clickhouse_run(f"INSERT INTO {table} VALUES (18446744073709551615, 0, [], map())")

    of_type = places.outcomes(*words(table, "--convert", "UInt64=long"))
    own = places.outcomes(*words(table, "--convert", "id=long", to="lake.n.too_great"))

    assert [one["status"] for one in (*of_type, *own)] == ["refused", "refused"]
    assert of_type[0]["message"] == own[0]["message"]
    assert "column id: greater than 9223372036854775807" in str(of_type[0]["message"])


def test_check_shows_the_columns_as_they_would_be(places: Places, table: str) -> None:
    before = places.run("check", table)[1]
    after = places.run("check", table, "--convert", "UInt64=long")[1]

    assert "--convert UInt64=long makes it a long" in before
    assert "decimal(20, 0)" in before
    assert "decimal(20, 0)" not in after


def test_verify_needs_no_option_where_the_table_remembers(places: Places, table: str) -> None:
    places.run(*words(table, "--convert", "UInt64=long"))

    code, out, err = places.run("verify", table, "--all", "--to", f"lake.n.{table[3:]}")

    assert (code, "equal" in out) == (0, True), (out, err)
