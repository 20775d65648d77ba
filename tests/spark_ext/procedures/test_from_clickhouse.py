"""ATTACH and REPLACE PARTITION … FROM a table of a ClickHouse, as Spark hands them over."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError
from tests.session_lake import alter, export_all, opened, rows_of
from tests.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

_NUMBERS = itertools.count()


class Table:
    """A table of the source, of its own name, and an empty lake table that is like it."""

    def __init__(self, places: Places, session: NoSpark) -> None:
        self.places, self.session = places, session
        self.name = f"from{next(_NUMBERS)}"
        self.make(self.name)
        export_all(session, self.name, self.name)
        self.run("DROP PARTITION ALL")
        # What the lake has of it was dropped; what it remembers stays.

    def make(self, name: str, rows: int = 3) -> None:
        """Make a table with the id 0 in 202401, and the others in 202402."""
        self.command(
            f"CREATE TABLE db.{name} (ts DateTime('UTC'), id Int64, s String) ENGINE = MergeTree"
            " PARTITION BY toYYYYMM(ts) ORDER BY id",
        )
        self.add(name, 0, rows)

    def add(self, name: str, first: int, rows: int) -> None:
        """Insert ids; 0 is of 2024-01-31, and 1 a day later."""
        self.command(
            f"INSERT INTO db.{name} SELECT toDateTime('2024-01-31', 'UTC') + number * 86400,"
            f" number, toString(number) FROM numbers({first}, {rows})"
        )

    def command(self, *statements: str) -> None:
        with EmbeddedConnection(self.places.clickhouse) as connection:
            for sql in statements:
                connection.command(sql)

    def run(self, what: str) -> list[Row]:
        """Run statements on the lake table."""
        return alter(self.session, f"ALTER TABLE lake.n.{self.name} {what}")

    @property
    def ids(self) -> list[int]:
        """The ids in the lake."""
        found = opened(self.places, self.name).scan().to_arrow().column("id").to_pylist()
        return sorted(int(one) for one in found)

    @property
    def rows(self) -> int:
        return rows_of(self.places, self.name)

    @property
    def snapshots(self) -> int:
        return len(opened(self.places, self.name).metadata.snapshots)

    def append(self, day: str, number: int) -> None:
        """Append a row as another engine does."""
        table = opened(self.places, self.name)
        arrow = table.schema().as_arrow()
        moment = pa.scalar(f"{day}T00:00:00+00:00").cast(arrow.field("ts").type)
        columns = [pa.array([moment.as_py()], arrow.field("ts").type), [number], [""]]
        table.append(pa.table(columns, schema=arrow))


@pytest.fixture
def table(places: Places, session: NoSpark) -> Table:
    return Table(places, session)


def told(rows: list[Row]) -> list[tuple[object, ...]]:
    return [(row["partition_id"], row["status"], row["rows"]) for row in rows]


def test_a_partition_is_attached_and_is_the_export_that_it_is(table: Table) -> None:
    table.places.reads_parts = True

    first = table.run(f"ATTACH PARTITION 202402 FROM ch.db.{table.name}")

    assert told(first) == [("202402", "attached", 2)]
    assert table.ids == [1, 2]
    before = table.snapshots
    again = table.run(f"ATTACH PARTITION 202402 FROM ch.db.{table.name}")
    assert told(again) == [("202402", "unchanged", 2)]
    assert table.snapshots == before


def test_rows_of_the_same_partition_are_never_attached_twice(table: Table) -> None:
    """Nor replaced without a word: the statement says which one would."""
    attach = f"ATTACH PARTITION 202402 FROM ch.db.{table.name}"
    table.run(attach)
    table.add(table.name, 3, 2)
    before = table.snapshots

    with pytest.raises(RefusedError, match="could be there twice.* Use REPLACE PARTITION"):
        table.run(attach)

    assert (table.rows, table.snapshots) == (2, before)
    table.run("DROP PARTITION 202402")
    assert told(table.run(attach)) == [("202402", "attached", 4)]
    assert table.rows == 4


def test_a_partition_is_replaced_in_one_snapshot_whoever_wrote_what_was_there(
    table: Table,
) -> None:
    """Another source's rows, rows of others, and what it had brought before."""
    table.places.reads_parts = True
    other = f"{table.name}_other"
    table.make(other)
    table.run(
        f"ATTACH PARTITION ALL FROM ch.db.{table.name}, ATTACH PARTITION ALL FROM ch.db.{other}"
    )
    table.append("2024-02-20", 50)
    table.append("2024-03-20", 60)
    assert table.ids == [0, 0, 1, 1, 2, 2, 50, 60]
    table.add(table.name, 3, 2)
    before = table.snapshots

    rows = table.run(f"REPLACE PARTITION 202402 FROM ch.db.{table.name}")

    assert told(rows) == [("202402", "replaced", 4)]
    assert table.ids == [0, 0, 1, 2, 3, 4, 60]
    assert table.snapshots == before + 1
    with pytest.raises(RefusedError, match=rf"REPLACE .* FROM ch\.db\.{table.name}"):
        export_all(table.session, other, table.name)
