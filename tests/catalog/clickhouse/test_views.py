"""The table that a materialized view writes to, as the view's statement says it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.table_description import written_table
from tableformat.names import TableName, quote_identifier
from tests.support.clickhouse_source import Clickhouse

VIEW = TableName("db", "view")
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


class Silent:
    """A connection that knows no table."""

    address = ""
    staging_database = ""

    def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
        assert sql.startswith("SELECT name FROM system.tables")
        return ()

    def command(self, sql: str) -> None:
        raise AssertionError(sql)

    def close(self) -> None: ...


TABLES = st.builds(TableName, NAMES, NAMES)


@given(TABLES, TABLES, st.sampled_from(("", " REFRESH EVERY 1 HOUR")))
def test_any_name_is_found_behind_to(view: TableName, to: TableName, when: str) -> None:
    for name in (to.sql, quote_identifier(to.name)):
        statement = f"CREATE MATERIALIZED VIEW {view.sql}{when} TO {name} (`k` UInt8) AS SELECT 1"
        found = written_table(Silent(), view, statement, "")

        assert found == (to if name == to.sql else TableName(view.database, to.name))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MATERIALIZED VIEW db.view (`k` UInt8) ENGINE = Null AS SELECT 1 AS k",
        "CREATE MATERIALIZED VIEW db.` TO db.x ` (`k` UInt8) ENGINE = Null AS SELECT 1 AS k",
        "CREATE MATERIALIZED VIEW db.view (`k` UInt8) ENGINE = Null AS SELECT ' TO db.x ' AS k",
        "",
    ],
)
def test_without_to_only_a_table_that_is_there_is_named(statement: str) -> None:
    assert written_table(Silent(), VIEW, statement, "") is None


def test_what_clickhouse_itself_says_is_understood(clickhouse: Clickhouse) -> None:
    """With everything that may stand before TO and behind it."""
    clickhouse.command("CREATE TABLE db.`it``s` (k UInt8) ENGINE = MergeTree ORDER BY k")
    for clauses in (
        "TO db.`it``s`",
        "TO db.`it``s` (k UInt8)",
        "REFRESH EVERY 1 YEAR OFFSET 1 DAY RANDOMIZE FOR 1 HOUR APPEND TO db.`it``s`",
        "TO db.`it``s` DEFINER = CURRENT_USER SQL SECURITY DEFINER",
    ):
        clickhouse.command(f"CREATE MATERIALIZED VIEW db.view {clauses} AS SELECT 1 AS k")
        ((statement,),) = clickhouse.rows(
            "SELECT create_table_query FROM system.tables WHERE database = 'db' AND name = 'view'"
        )
        clickhouse.command("DROP TABLE db.view SYNC")

        assert written_table(Silent(), VIEW, str(statement), "") == TableName("db", "it`s"), (
            statement
        )
