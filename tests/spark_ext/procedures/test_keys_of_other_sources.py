"""Exports of a table with another partition key lie in the partitions that their rows have here.

The lake table remembers one ClickHouse table, and `--partition-spec` brings another one that is
divided otherwise: its partition ids mean nothing here, or something else.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from tableformat.errors import RefusedError
from tests.support.session_lake import alter, export_all, opened
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

COLUMNS = "(id Int64, d Date, p UInt8, q UInt8) ENGINE = MergeTree PARTITION BY"
ROWS = {
    "months": ("toYYYYMM(d)", "(10, '2024-01-31', 0, 0), (11, '2024-03-01', 0, 0)"),
    "days": (
        "toYYYYMMDD(d)",
        "(1, '2024-01-02', 0, 0), (2, '2024-01-03', 0, 0), (3, '2024-03-03', 0, 0)",
    ),
    "by_p": ("p", "(20, '2024-01-01', 1, 1), (21, '2024-01-01', 2, 2)"),
    "by_q": ("q", "(22, '2024-01-01', 2, 1), (23, '2024-01-01', 1, 2)"),
}


@dataclass
class Lake:
    """Lake tables, and what is done with them."""

    places: Places
    session: NoSpark

    def export(self, table: str, to: str, spec: str) -> None:
        """Export all of a ClickHouse table, with a partition spec that the user names."""
        to = f"lake.n.{to}"
        done = self.places.run(
            "export", f"db.{table}", "--all", "--to", to, "--partition-spec", spec
        )
        assert done[0] == 0, done

    def alter(self, table: str, statement: str) -> Row:
        (row,) = alter(self.session, f"ALTER TABLE lake.n.{table} {statement}")
        return row

    def refused(self, table: str, statement: str) -> str:
        """See that a statement is refused and changes nothing; return the message."""
        before = opened(self.places, table).metadata_location
        with pytest.raises(RefusedError) as refused:
            self.alter(table, statement)
        assert opened(self.places, table).metadata_location == before
        return str(refused.value)

    def rows(self, table: str, column: str = "id") -> list[int]:
        found: list[int] = opened(self.places, table).scan().to_arrow().column(column).to_pylist()
        return sorted(found)


@pytest.fixture(scope="module")
def filled(module_places: Places) -> Iterator[Places]:
    for name, (key, rows) in ROWS.items():
        module_places.clickhouse_run(
            f"CREATE TABLE db.{name} {COLUMNS} {key} ORDER BY id",
            f"INSERT INTO db.{name} VALUES {rows}",
        )
    yield module_places
    module_places.clickhouse_run(*(f"DROP TABLE db.{name} SYNC" for name in ROWS))


@pytest.fixture
def lake(filled: Places, places: Places, session: NoSpark) -> Lake:
    places.reads_parts = True
    return Lake(filled, session)


@pytest.mark.soak
def test_a_statement_on_the_month_finds_the_days_that_were_exported_to_it(lake: Lake) -> None:
    """Harm prevented: rows that DROP, DETACH, UPDATE and FREEZE of their partition pass over."""
    export_all(lake.session, "months", "months")
    export_all(lake.session, "months", "others")
    lake.export("days", "months", "month(d)")

    assert lake.alter("months", "FREEZE PARTITION 202401 WITH NAME 'before'")["rows"] == 3
    assert lake.alter("months", "UPDATE q = 9 IN PARTITION 202401 WHERE 1")["rows"] == 3
    assert lake.rows("months", "q") == [0, 0, 9, 9, 9]
    lake.alter("months", "DETACH PARTITION 202401")
    assert lake.rows("months") == [3, 11]
    assert "are in partition 202401 here" in lake.refused("months", "ATTACH PARTITION 20240102")
    lake.alter("months", "ATTACH PARTITION 202401")
    assert lake.rows("months") == [1, 2, 3, 10, 11]
    # The id that a day has where it comes from is none of here: it is not passed over.
    for statement in ("DROP", "FREEZE", "DETACH"):
        message = lake.refused("months", f"{statement} PARTITION 20240102")
        assert "partition 20240102 is one of db.days" in message
        assert "are in partition 202401 here" in message
    assert lake.alter("months", "REPLACE PARTITION 202401 FROM lake.n.others")["status"]
    assert lake.rows("months") == [3, 10, 11]
    lake.alter("months", "DROP PARTITION 202403")
    assert lake.rows("months") == [10]
    # The days know that they went.
    to = ("--to", "lake.n.months", "--partition-spec", "month(d)")
    messages = {
        str(one["message"]) for one in lake.places.outcomes("export", "db.days", "--all", *to)
    }
    assert sum(": REPLACE PARTITION ID '202401' FROM" in one for one in messages) == 1, messages


def test_ids_that_mean_something_else_here_are_not_taken_for_those_of_here(lake: Lake) -> None:
    """Harm prevented: DROP PARTITION 1 takes the rows of 2, because they were in 1 elsewhere."""
    export_all(lake.session, "by_p", "by_p")
    lake.export("by_q", "by_p", "p")

    with pytest.raises(RefusedError, match="rows of 2 exports"):
        alter(lake.session, "OPTIMIZE TABLE lake.n.by_p PARTITION 1 DEDUPLICATE")
    assert lake.alter("by_p", "DROP PARTITION 1")["rows"] == 2
    assert lake.rows("by_p", "p") == [2, 2]


@pytest.mark.soak
def test_a_table_of_days_with_files_by_month_has_partitions_of_days(
    lake: Lake,
) -> None:
    """Harm prevented: rows of other days go, or those that others appended are passed over."""
    lake.export("days", "days", "month(d)")
    append(lake, [4], [dt.date(2024, 1, 2)])

    assert lake.alter("days", "DROP PARTITION 202401")["status"] == "empty"
    assert lake.alter("days", "DROP PARTITION 20240102")["rows"] == 2
    assert lake.rows("days") == [2, 3]
    append(lake, [5, 6], [dt.date(2024, 1, 3), dt.date(2024, 1, 4)])
    message = lake.refused("days", "DROP PARTITION 20240103")
    assert "holds rows of it and of 20240104" in message


def append(lake: Lake, ids: list[int], days: list[dt.date]) -> None:
    """Add rows as another engine does, in one file."""
    table = opened(lake.places, "days")
    columns = [ids, days, [0] * len(ids), [0] * len(ids)]
    table.append(pa.table(columns, schema=table.schema().as_arrow()))
