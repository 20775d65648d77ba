"""What came from a table divided otherwise is rows of its partition here, to every statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from tableformat.errors import RefusedError
from tests.support.session_lake import alter, export_all, opened
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

_NUMBERS = iter(range(1_000))
COLUMNS = "(id Int64, d Date, s String) ENGINE = MergeTree PARTITION BY"
DAYS = "VALUES (1, '2024-01-02', 'a'), (2, '2024-01-02', 'b'), (3, '2024-01-03', 'c')"
MONTHS = "VALUES (10, '2024-01-31', 'z'), (11, '2024-03-01', 'z')"


@dataclass
class Lake:
    """A lake table of days, one of months, and what is done with them."""

    places: Places
    session: NoSpark
    days: str
    months: str

    def alter(self, statement: str, table: str = "") -> list[Row]:
        return alter(self.session, f"ALTER TABLE lake.n.{table or self.months} {statement}")

    def attach(self, day: int, to: str = "") -> str:
        """Attach a day; return what became of it."""
        (row,) = self.alter(f"ATTACH PARTITION {day} FROM lake.n.{self.days}", to)
        return str(row["status"])

    def refused(self, statement: str, table: str = "") -> str:
        """See that a statement is refused and changes nothing; return the message."""
        before = opened(self.places, table or self.months).metadata_location
        with pytest.raises(RefusedError) as refused:
            self.alter(statement, table)
        assert opened(self.places, table or self.months).metadata_location == before
        return str(refused.value)

    def ids(self, table: str = "") -> list[int]:
        found: list[int] = (
            opened(self.places, table or self.months).scan().to_arrow().column("id").to_pylist()
        )
        return sorted(found)

    def export_days(self, *words: str) -> tuple[int, str, str]:
        """Export the table of days into the lake table of months."""
        to = ("--to", f"lake.n.{self.months}", "--partition-spec", "month(d)", *words)
        return self.places.run("export", f"db.{self.days}", "--partition", "20240102", *to)


@pytest.fixture
def lake(places: Places, session: NoSpark) -> Iterator[Lake]:
    places.reads_parts = True
    days, months = (f"{what}_{next(_NUMBERS)}" for what in ("days", "months"))
    for name, key, rows in ((days, "toYYYYMMDD(d)", DAYS), (months, "toYYYYMM(d)", MONTHS)):
        places.clickhouse_run(
            f"CREATE TABLE db.{name} {COLUMNS} {key} ORDER BY id",
            f"INSERT INTO db.{name} {rows}",
        )
        export_all(session, name, name)
    yield Lake(places, session, days, months)
    places.clickhouse_run(f"DROP TABLE db.{days} SYNC", f"DROP TABLE db.{months} SYNC")


@pytest.mark.representative
def test_each_day_comes_to_its_month_once(lake: Lake) -> None:
    """Harm prevented: a day that takes the place of its sister, or is there twice."""
    assert [lake.attach(20240102), lake.attach(20240103)] == ["attached", "attached"]
    assert lake.ids() == [1, 2, 3, 10, 11]

    for day in ("20240102", "ALL"):
        message = lake.refused(f"ATTACH PARTITION {day} FROM lake.n.{lake.days}")
        assert "could be there twice" in message
    assert lake.attach(20240109) == "empty"
    assert "different partition key" in lake.refused(
        f"REPLACE PARTITION 20240102 FROM lake.n.{lake.days}"
    )
    lake.alter("DROP PARTITION 202401")
    assert lake.ids() == [11]
    (row,) = lake.alter(f"ATTACH PARTITION ALL FROM lake.n.{lake.days}")
    assert (row["status"], row["rows"], lake.ids()) == ("attached", 3, [1, 2, 3, 11])


def test_statements_on_the_month_find_its_days(lake: Lake) -> None:
    """Harm prevented: rows that a statement on their partition passes over."""
    lake.attach(20240102)
    lake.attach(20240103)

    lake.alter("UPDATE s = 'new' IN PARTITION 202401 WHERE id IN (1, 3, 10)")
    lake.alter("DELETE IN PARTITION 202401 WHERE id = 2")
    (merged,) = alter(lake.session, f"OPTIMIZE TABLE lake.n.{lake.months} PARTITION 202401")
    lake.alter("DETACH PARTITION 202401")
    assert (merged["status"], lake.ids()) == ("unchanged", [11])
    lake.alter("ATTACH PARTITION 202401")

    found = opened(lake.places, lake.months).scan().to_arrow().to_pylist()
    values = {row["id"]: row["s"] for row in found}
    assert values == {1: "new", 3: "new", 10: "new", 11: "z"}
    # Changed rows are not added to themselves again.
    lake.refused(f"ATTACH PARTITION 20240102 FROM lake.n.{lake.days}")
    lake.alter("FREEZE PARTITION 202401, DROP PARTITION 202401, FORGET PARTITION 202401")
    assert lake.ids() == [11]


def test_exports_and_days_are_never_there_together(lake: Lake) -> None:
    """Harm prevented: every row of the day is there twice, or goes with an export of the month."""
    lake.attach(20240102)

    code, message, _ = lake.export_days("--force")
    assert (code != 0, "that no export of this ledger wrote" in message) == (True, True), message
    assert {row["status"] for row in export_all(lake.session, lake.months, lake.months)} == {
        "already_exported"
    }
    lake.places.clickhouse_run(f"INSERT INTO db.{lake.months} VALUES (12, '2024-01-30', 'y')")
    forced = "export_merge_tree_partition_force_export = 1, "
    alter(
        lake.session,
        f"ALTER TABLE ch.db.{lake.months} EXPORT PARTITION 202401 TO TABLE lake.n.{lake.months}"
        f" SETTINGS {forced} allow_experimental_export_merge_tree_part = 1",
    )
    assert lake.ids() == [1, 2, 10, 11, 12]
    lake.alter("DROP PARTITION 202401")
    assert lake.export_days()[0] == 0
    assert lake.ids() == [1, 2, 11]
    message = lake.refused(f"ATTACH PARTITION 20240102 FROM lake.n.{lake.days}")
    assert "could be there twice" in message


@pytest.mark.soak
def test_a_day_keeps_where_it_comes_from_when_its_month_goes_on(lake: Lake) -> None:
    """Harm prevented: the day is brought again to where its month was moved to."""
    third = f"{lake.months}_third"
    export_all(lake.session, lake.months, third)
    lake.alter("DROP PARTITION ALL", third)
    lake.attach(20240102)

    (moved,) = lake.alter(f"MOVE PARTITION 202401 TO TABLE lake.n.{third}")

    assert (moved["status"], lake.ids(), lake.ids(third)) == ("moved", [11], [1, 2, 10])
    message = lake.refused(f"ATTACH PARTITION 20240102 FROM lake.n.{lake.days}", third)
    assert "could be there twice" in message
    assert lake.attach(20240103, third) == "attached"
    # Back among days it is the day that is there.
    back = f"{lake.days}_back"
    export_all(lake.session, lake.days, back)
    lake.alter("DROP PARTITION ALL", back)
    message = lake.refused(f"ATTACH PARTITION 202401 FROM lake.n.{third}", back)
    assert "20240102 and 20240103 and 1 more" in message
    lake.alter("DELETE WHERE id = 10", third)
    lake.alter("DROP PARTITION 202401", third)
    lake.attach(20240103, third)
    lake.alter(f"ATTACH PARTITION 202401 FROM lake.n.{third}", back)
    assert lake.ids(back) == [3]
    message = lake.refused(f"ATTACH PARTITION 20240103 FROM lake.n.{lake.days}", back)
    assert "could be there twice" in message


@pytest.mark.soak
def test_rows_of_others_come_with_their_day_and_only_once(lake: Lake) -> None:
    """Harm prevented: rows that another engine rewrote are added a second time."""
    table = opened(lake.places, lake.days)
    arrow = table.schema().as_arrow()
    days = pa.scalar("2024-01-04").cast(pa.date32())
    table.append(pa.table([[4], [days.as_py()], ["other"]], schema=arrow))

    assert lake.attach(20240104) == "attached"
    lake.attach(20240102)
    lake.alter("DROP PARTITION 20240103", lake.days)
    # Another engine rewrites the day: nobody can tell which rows of it are those of before.
    table = opened(lake.places, lake.days)
    table.overwrite(table.scan("d = '2024-01-02'").to_arrow(), "d = '2024-01-02'")

    for day in (20240104, 20240102):
        message = lake.refused(f"ATTACH PARTITION {day} FROM lake.n.{lake.days}")
        assert "could be there twice" in message
    assert lake.ids() == [1, 2, 4, 10, 11]
