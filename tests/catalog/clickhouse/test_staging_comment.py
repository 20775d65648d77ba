"""A staging table says itself whose parts it holds, whatever the names are."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.snapshot.staging import Made, Origin
from tableformat.ledger import Owner
from tableformat.names import TableName
from tests.support.clickhouse_source import Clickhouse

# ClickHouse's names are bytes: those that are no UTF-8 arrive as surrogates.
names = st.text(min_size=1, alphabet=st.characters(exclude_categories=()))
zones = st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours)))
seconds = st.integers(0, 7_000_000_000)
moments = st.builds(datetime.fromtimestamp, seconds, zones)
owners = st.builds(Owner, st.text(), st.integers(min_value=0), st.text())
made = st.none() | st.builds(Made.by, owners, moments)
ORIGIN = Origin(TableName("db", "t"), "uuid:1")
MADE = Made(Owner("etl7", 41, "1n2"), datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC))


@given(origin=st.builds(Origin, st.builds(TableName, names, names), names, made))
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


def test_a_comment_of_an_earlier_release_says_only_the_table() -> None:
    """Harm prevented: what an earlier release had frozen is frozen again after an upgrade."""
    old = (
        '{"what": "staged by mergeberg from", "database": "db", "table": "t", "identity": "uuid:1"}'
    )

    assert Origin.parse(old) == ORIGIN
    assert ORIGIN.comment == old


def test_people_and_programs_can_read_its_owner_and_time() -> None:
    comment = Origin(ORIGIN.table, ORIGIN.identity, MADE).comment

    assert json.loads(comment)["owner"] == {"host": "etl7", "process": 41, "start": "1n2"}
    assert json.loads(comment)["made"] == "2026-03-01T12:00:05Z"
    assert MADE.shown == "process 41 on etl7, 2026-03-01T12:00:05Z"


@pytest.mark.parametrize(
    "wrong",
    [{"owner": "etl7"}, {"owner": {"host": "etl7"}}, {"made": "soon"}, {"made": "2026-03-01"}],
)
def test_a_comment_without_a_readable_maker_still_says_the_table(wrong: dict[str, Any]) -> None:
    read = json.loads(Origin(ORIGIN.table, ORIGIN.identity, MADE).comment)

    assert Origin.parse(json.dumps(read | wrong)) == ORIGIN


def test_names_that_need_care_in_sql_come_back_from_clickhouse(clickhouse: Clickhouse) -> None:
    name = TableName("db", 'it\'s `a` \\ "table"\n日本')
    clickhouse.command(f"CREATE TABLE {name.sql} (k UInt8) ENGINE = MergeTree ORDER BY k")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (1)")

    clickhouse.snapshot(name, "all", job="odd")

    (found,) = (one for one in clickhouse.source.leftovers() if one.job == "odd")
    assert found.table == name
