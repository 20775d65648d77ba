"""docs/reference/types.md agrees with the mapping for every ClickHouse type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pytest
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tableformat.errors import RefusedError
from tableformat.iceberg.schema import conversions_in, map_columns
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import (
    SIMPLE_TYPES,
    AggregateFunction,
    DataType,
    Decimal,
    Simple,
    parse_type,
    rebuild,
    type_matcher,
)
from tests.repository.source_files import ROOT
from tests.strategies.mapping import table_of
from tests.support.embedded_clickhouse import EmbeddedClickHouse

PAGE: Final = ROOT / "docs" / "reference" / "types.md"
CODE: Final = re.compile(r"`([^`]+)`")
WAY: Final = re.compile(r"`([^`]+)` → `([^`]+)` \(([ABC])\)")
# The letters that the page leaves to the user.
DIGITS: Final = {"P": "38", "S": "8"}


@dataclass(frozen=True)
class Row:
    """One row of the page: types, their mapping, and the result of each conversion."""

    types: tuple[str, ...]
    iceberg: str
    kind: str
    ways: dict[str, tuple[str, str]]


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 5 and cells[0].startswith("`"):
            ways = {way: (to, kind) for way, to, kind in WAY.findall(cells[3])}
            assert cells[3].count("→") == len(ways), cells[3]
            found.append(Row(tuple(CODE.findall(cells[0])), cells[1].strip("`"), cells[2], ways))
    return found


ROWS: Final = rows()
EACH: Final = [(row, text) for row in ROWS for text in row.types]


@pytest.mark.parametrize("text", [text for row, text in EACH if row.ways])
def test_a_conversion_may_name_every_type_that_takes_one(text: str) -> None:
    """Harm prevented: `--convert TYPE=HOW` is refused as an unknown column for a new type."""
    matchers = [type_matcher(text.partition("(")[0]), type_matcher(text)]

    assert [matches is not None and matches(parse_type(text)) for matches in matchers] == [True] * 2


def read(text: str) -> DataType:
    """Parse a type as a source does, with the final type of a state."""
    return rebuild(
        parse_type(text),
        lambda of: (
            AggregateFunction(of.arguments, Simple("UInt64"))
            if isinstance(of, AggregateFunction)
            else of
        ),
    )


def shown(of: IcebergType) -> str:
    """Return an Iceberg type as the page writes it."""
    match of:
        case StructType():
            return f"struct<{', '.join(f'{f.name}: {shown(f.field_type)}' for f in of.fields)}>"
        case ListType():
            return f"list<{shown(of.element_type)}>"
        case MapType():
            return f"map<{shown(of.key_type)}, {shown(of.value_type)}>"
        case _:
            return str(of).replace(", ", ",")


def mapped(text: str, conversion: str = "") -> tuple[str, str]:
    """Return Iceberg type and class, as the page writes them."""
    table = table_of(Column("c", read(text), text))
    try:
        (column,) = map_columns(table, {"c": conversion} if conversion else {}).columns
    except RefusedError:
        return "refused", "D"
    return shown(column.type), column.faithfulness.value


def chosen(text: str) -> str:
    """Choose the digits that the page leaves open."""
    for letter, digits in DIGITS.items():
        text = re.sub(rf"\b{letter}\b", digits, text)
    return text


@pytest.mark.parametrize(("row", "text"), EACH, ids=[text for _, text in EACH])
def test_the_page_says_what_each_type_becomes(row: Row, text: str) -> None:
    of = parse_type(text)
    same = f"decimal({of.precision},{of.scale})" if isinstance(of, Decimal) else ""

    assert mapped(text) == (row.iceberg.replace("decimal(=)", same), row.kind)


@pytest.mark.parametrize(("row", "text"), EACH, ids=[text for _, text in EACH])
def test_the_page_lists_the_conversions_of_each_type_and_what_they_make(
    row: Row, text: str
) -> None:
    assert set(row.ways) == set(conversions_in(read(text)).get(text, ()))
    for way, (to, kind) in row.ways.items():
        assert mapped(text, chosen(way)) == (chosen(to), kind), way


def test_the_page_has_every_type_that_the_mapping_knows() -> None:
    listed = {text for row in ROWS for text in row.types}

    assert listed >= SIMPLE_TYPES


def test_the_page_has_every_family_of_types_of_clickhouse() -> None:
    """A family that a new ClickHouse brings is to be mapped, or refused on the page."""
    with EmbeddedClickHouse() as clickhouse:
        families = {
            str(name)
            for (name,) in clickhouse.rows(
                "SELECT name FROM system.data_type_families WHERE alias_to = ''"
            )
        }
    page = PAGE.read_text(encoding="utf-8")

    assert len(families) > 50
    assert [f for f in sorted(families) if not re.search(rf"`{f}[`(]", page)] == []
