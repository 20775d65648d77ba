"""docs/reference/partition-keys.md says what the code does, row by row."""

from __future__ import annotations

import re

import pytest

from tableformat.errors import RefusedError
from tableformat.iceberg.key_functions import MATRIX, DerivedField, time_field
from tableformat.iceberg.partition_spec import derive_spec
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.sort_order import SortedField, sort_prefix
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import parse_type
from tests.properties.key_texts import spellings
from tests.repository.source_files import ROOT
from tests.strategies.mapping import column_of, table_of

PAGE = ROOT / "docs" / "reference" / "partition-keys.md"
KINDS = ("Date", "Date32", "DateTime('UTC')", "DateTime64(3, 'UTC')")
REFUSED = "refused"


def tables() -> dict[str, list[list[str]]]:
    """Return the rows of the page's tables by their header; code without its marks."""
    found: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            rows = []
        elif not rows:
            rows = found.setdefault(line, [])
            rows.append([])
        else:
            rows.append([c.strip().strip("`") for c in re.split(r"(?<!\\)\|", line)[1:-1]])
    return {header: rows[2:] for header, rows in found.items()}


TIMES, TUPLES, OTHERS, CHOICES, ORDERS = tables().values()


def described(ts: str = "DateTime('UTC')", **clauses: str) -> MergeTreeTable:
    types = {
        "ts": ts,
        "bare": "DateTime",
        "d": "Date",
        "region": "String",
        "number": "Int32",
        "id": "UUID",
        "ratio": "Float64",
        "label": "Enum8('b' = 1, 'a' = 2)",
    }
    return table_of(*(column_of(n, parse_type(t)) for n, t in types.items()), **clauses)


def test_the_page_has_every_row_of_the_matrix() -> None:
    assert [row[0] for row in TIMES] == [spellings(r)[0].replace("{c}", "c") for r in MATRIX]


@pytest.mark.parametrize("row", TIMES, ids=lambda row: row[0])
def test_a_time_is_what_the_page_says(row: list[str]) -> None:
    for kind, shown in zip(KINDS, row[1:], strict=True):
        columns = map_columns(table_of(column_of("c", parse_type(kind))))
        found = time_field(parse_expression(row[0]), columns, "UTC")
        if isinstance(found, DerivedField):
            assert shown == f"{found.field.transform}{'' if found.exact else ' ¹'}"
        else:
            assert shown == "none"


@pytest.mark.parametrize("row", TUPLES, ids=lambda row: row[0])
def test_a_tuple_is_what_the_page_says(row: list[str]) -> None:
    made = described(partition_by=row[0])

    assert _spec(made, {}) == row[1]


@pytest.mark.parametrize("row", OTHERS, ids="; ".join)
def test_a_number_or_a_text_is_what_the_page_says(row: list[str]) -> None:
    key, of, conversion, shown = row
    made = table_of(column_of("c", parse_type(of)), partition_by=key)

    assert _spec(made, {"c": conversion} if conversion else {}) == shown


@pytest.mark.parametrize("row", CHOICES, ids=lambda row: row[0])
def test_the_message_offers_what_the_page_says(row: list[str]) -> None:
    made = described(row[1], partition_by=row[0])

    with pytest.raises(RefusedError, match=f"for example '{re.escape(row[2])}'"):
        derive_spec(made, map_columns(made))


@pytest.mark.parametrize("row", ORDERS, ids=lambda row: row[0])
def test_a_sorting_key_declares_what_the_page_says(row: list[str]) -> None:
    made = described(order_by=row[0])

    prefix = sort_prefix(made, map_columns(made))

    assert (", ".join(_shown(f) for f in prefix) or "nothing") == row[1]


def _shown(field: SortedField) -> str:
    return f"{field.field}{' DESC' if field.descending else ''}"


def _spec(table: MergeTreeTable, conversions: dict[str, str]) -> str:
    try:
        return str(derive_spec(table, map_columns(table, conversions)))
    except RefusedError:
        return REFUSED
