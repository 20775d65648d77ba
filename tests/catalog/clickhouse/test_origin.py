"""A staging table says itself whose parts it holds, whatever the names are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.origin import Origin
from tableformat.names import TableName
from tests.clickhouse_source import Clickhouse

# ClickHouse's names are bytes: those that are no UTF-8 arrive as surrogates.
names = st.text(min_size=1, alphabet=st.characters(exclude_categories=()))
ORIGIN = Origin(TableName("db", "t"), "uuid:1")


@given(origin=st.builds(Origin, st.builds(TableName, names, names), names))
def test_what_was_written_is_read(origin: Origin) -> None:
    assert Origin.parse(origin.comment) == origin
    assert origin.comment.isascii()


@given(text=st.text())
def test_a_comment_of_somebody_else_says_nothing(text: str) -> None:
    """People write comments too."""
    assert Origin.parse(text) is None


@pytest.mark.parametrize("name", ["what", "database", "table", "identity"])
@pytest.mark.parametrize("value", [None, "", 7, ["db"]])
def test_a_comment_that_lacks_something_says_nothing(name: str, value: Any) -> None:
    read = json.loads(ORIGIN.comment)

    assert Origin.parse(json.dumps(read)) == ORIGIN
    assert Origin.parse(json.dumps({**read, name: value})) is None
    assert Origin.parse(json.dumps([read])) is None


def test_names_that_need_care_in_sql_come_back_from_clickhouse(clickhouse: Clickhouse) -> None:
    name = TableName("db", 'it\'s `a` \\ "table"\n日本')
    clickhouse.command(f"CREATE TABLE {name.sql} (k UInt8) ENGINE = MergeTree ORDER BY k")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (1)")

    clickhouse.snapshot(name, "all", job="odd")

    (found,) = (one for one in clickhouse.source.leftovers() if one.job == "odd")
    assert found.table == name
