"""What parts lack is asked once of each part, and again when the table has other columns."""

from __future__ import annotations

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.table_description import list_parts, with_missing_columns
from tableformat.names import TableName
from tests.support.clickhouse_source import Clickhouse, Through


class Listening(Through):
    """Counts the questions about the columns of parts."""

    asked = 0

    def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
        self.asked += "system.parts_columns" in sql
        return super().rows(sql)


def lacks(connection: Listening, name: TableName) -> list[tuple[str, ...]]:
    parts = list_parts(connection, probe_capabilities(connection), name)
    return [part.lacks for part in with_missing_columns(connection, name, parts)]


def test_parts_that_were_looked_at_are_known(clickhouse: Clickhouse) -> None:
    """Harm prevented: every group of a thousand partitions waits for a second, six times."""
    name = clickhouse.filled()
    connection = Listening(clickhouse.connection)

    assert lacks(connection, name) == [(), ()]
    assert lacks(connection, name) == [(), ()]
    assert connection.asked == 1

    clickhouse.command(f"ALTER TABLE {name.sql} ADD COLUMN late UInt8, ADD COLUMN a UInt8 ALIAS 1")
    clickhouse.command(f"INSERT INTO {name.sql} (p, k) VALUES (2, 1)")
    assert lacks(connection, name) == [("late",), ("late",), ()]
    assert connection.asked == 3
    assert lacks(connection, name) == [("late",), ("late",), ()]
    assert connection.asked == 3


def test_a_table_of_the_same_name_is_another_one(clickhouse: Clickhouse) -> None:
    """Harm prevented: a part is taken for one of the same name that lacked nothing."""
    name = clickhouse.table("ENGINE = MergeTree ORDER BY k", "k UInt64, s String")
    connection = Listening(clickhouse.connection)
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, 'x')")
    assert lacks(connection, name) == [()]

    clickhouse.command(f"DROP TABLE {name.sql} SYNC")
    clickhouse.command(f"CREATE TABLE {name.sql} (k UInt64) ENGINE = MergeTree ORDER BY k")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (2)")
    clickhouse.command(f"ALTER TABLE {name.sql} ADD COLUMN s String")

    assert lacks(connection, name) == [("s",)]
