"""ATTACH PARTITION … FROM a lake table with another partition key, and what ClickHouse makes of it.

ClickHouse has a rule of its own for such pairs, which its releases lack: they refuse each. So what
is compared is what ClickHouse itself says of the rows: in which partitions they lie when they are
inserted into the destination.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError, SourceError
from tests.support.session_lake import alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

COLUMNS: Final = "(id Int64, ts DateTime('UTC'), a UInt16, b UInt16, s String)"
# Of which the last lies nowhere near the others: without a row there is no lake table.
ROWS: Final = """VALUES
    (1, '2010-03-02 02:01:01', 1, 12, 'food'), (2, '2010-03-02 02:01:03', 1, 12, 'food'),
    (3, '2010-04-02 02:01:01', 6, 12, 'bread'), (4, '2010-04-03 02:01:01', 7, 13, 'broccoli'),
    (5, '2011-05-01 00:00:00', 3, 1, '')"""
FAR: Final = "VALUES (9, '1999-01-01 00:00:00', 999, 999, 'zz')"
DAY, MONTH, YEAR = "toYYYYMMDD(ts)", "toYYYYMM(ts)", "toYear(ts)"


@dataclass(frozen=True)
class Case:
    """Two partition keys, and a row of the partition that is attached."""

    source: str
    destination: str
    row: int
    nightly: bool = False

    def __str__(self) -> str:
        return f"{self.source} of row {self.row} into {self.destination}"


BYTES, CHARACTERS, HASH = "substring(s, 1, 2)", "substringUTF8(s, 1, 2)", "cityHash64(s) % 5"
SIXES, HALVES = "intDiv(a, 6)", "(intDiv(a, 2), intDiv(b, 2))"
UNPARTITIONED: Final = (BYTES, HASH)
"""Keys that are nothing in Iceberg: their lake tables have one partition there."""
CASES: Final = [
    Case(DAY, MONTH, 1),
    Case(DAY, "tuple()", 3),
    Case(MONTH, DAY, 1),
    Case(MONTH, DAY, 3),
    Case(SIXES, HASH, 3, nightly=True),
    Case("(a, b)", HALVES, 5, nightly=True),
    Case(MONTH, "tuple()", 3, nightly=True),
    Case(DAY, YEAR, 4, nightly=True),
    Case(YEAR, MONTH, 1, nightly=True),
    Case(YEAR, DAY, 5, nightly=True),
    Case("intDiv(toUnixTimestamp(ts), 86400)", YEAR, 1, nightly=True),
    Case(YEAR, "intDiv(toUnixTimestamp(ts), 86400)", 1, nightly=True),
    Case("tuple()", MONTH, 1, nightly=True),
    Case(SIXES, "a", 1, nightly=True),
    Case(SIXES, "a", 3, nightly=True),
    Case("(a, b)", "a", 1, nightly=True),
    Case("(a, b)", "b", 1, nightly=True),
    Case(f"({MONTH}, {SIXES})", "a", 1, nightly=True),
    Case(f"({MONTH}, {SIXES})", "a", 3, nightly=True),
    Case(HALVES, "(a, b)", 3, nightly=True),
    Case(HALVES, "(a, b)", 1, nightly=True),
    Case("s", "id", 1, nightly=True),
    Case("s", "id", 5, nightly=True),
    Case(HASH, "s", 1, nightly=True),
    Case("s", BYTES, 3, nightly=True),
    Case(CHARACTERS, HASH, 3, nightly=True),
    Case("id", "icebergBucket(4, id)", 3, nightly=True),
    Case("tuple()", "icebergBucket(4, id)", 3, nightly=True),
    Case("b", DAY, 1, nightly=True),
]


@dataclass
class Both:
    """Makes tables of a partition key there and here, once each."""

    places: Places
    session: NoSpark
    made: dict[tuple[str, str], str]

    def table(self, key: str, rows: str) -> str:
        """Return the name of a table, which is that of the lake table, too."""
        if (key, rows) not in self.made:
            name = f"divided_{len(self.made)}"
            self.places.clickhouse_run(
                f"CREATE TABLE db.{name} {COLUMNS} ENGINE = MergeTree PARTITION BY {key}"
                " ORDER BY id",
                f"INSERT INTO db.{name} {rows}",
            )
            self._export(name, key)
            self.made[key, rows] = name
        return self.made[key, rows]

    def _export(self, name: str, key: str) -> None:
        if key not in UNPARTITIONED:
            export_all(self.session, name, name)
            return
        words = ("--all", "--to", f"lake.n.{name}", "--partition-spec", "unpartitioned")
        assert self.places.run("export", f"db.{name}", *words)[0] == 0


@pytest.fixture(scope="module")
def made() -> dict[tuple[str, str], str]:
    """Return the names of tables that are there already."""
    return {}


@pytest.fixture
def both(places: Places, session: NoSpark, made: dict[tuple[str, str], str]) -> Both:
    places.reads_parts = True
    return Both(places, session, made)


def ids_in(places: Places, name: str) -> list[int]:
    """Return the rows of a lake table."""
    found: list[int] = opened(places, name).scan().to_arrow().column("id").to_pylist()
    return sorted(found)


def inserted(
    places: Places, source: str, destination: str, row: int
) -> tuple[str, set[str], set[str]]:
    """Let ClickHouse refuse the statement, and insert the rows instead.

    Returns:
        The partition there, those in which its rows are, and those of the destination.
    """
    with EmbeddedConnection(places.clickhouse) as connection:
        query = f"SELECT _partition_id FROM db.{source} WHERE id = {row}"
        ((there,),) = connection.rows(query)
        with pytest.raises(SourceError, match="Tables have different partition key") as refused:
            connection.command(
                f"ALTER TABLE db.{destination} ATTACH PARTITION ID '{there}' FROM db.{source}"
            )
        assert refused.value.code == 36
        connection.command(f"CREATE OR REPLACE TABLE db.inserted AS db.{destination}")
        connection.command(
            f"INSERT INTO db.inserted SELECT * FROM db.{source} WHERE _partition_id = '{there}'"
        )
        lie, had = (
            {str(one) for (one,) in connection.rows(f"SELECT _partition_id FROM db.{name}")}
            for name in ("inserted", destination)
        )
    return str(there), lie, had


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=str(c), marks=pytest.mark.nightly if c.nightly else ()) for c in CASES],
)
def test_what_lies_in_one_partition_comes_and_what_does_not_is_refused(
    places: Places, session: NoSpark, both: Both, case: Case
) -> None:
    """Harm prevented: rows in a partition that DROP, or an export, does not find them in."""
    source, destination = both.table(case.source, ROWS), both.table(case.destination, FAR)
    there, lie, had = inserted(places, source, destination, case.row)
    statement = f"ALTER TABLE lake.n.{destination} ATTACH PARTITION ID '{there}' FROM"
    before, stays = opened(places, destination).metadata_location, ids_in(places, destination)

    if len(lie) > 1:
        with pytest.raises(RefusedError) as refused:
            alter(session, f"{statement} lake.n.{source}")
        message = f"Tables have different partition key: PARTITION BY {case.source} there"
        assert message in str(refused.value)
        assert all(one in str(refused.value) for one in sorted(lie)[:2])
        assert refused.value.code == 36
        assert opened(places, destination).metadata_location == before
        return
    (here,) = lie
    (row,) = alter(session, f"{statement} lake.n.{source}")

    wanted = opened(places, source).scan().to_arrow()
    assert (row["status"], row["partition_id"]) == ("attached", here)
    ids = set(ids_in(places, destination)) - {9}
    assert case.row in ids
    assert len(ids) == row["rows"]
    # A reader that goes by partition values finds them.
    for found in wanted.to_pylist():
        if found["id"] in ids:
            moment = found["ts"].isoformat()
            scan = opened(places, destination).scan(
                f"ts = '{moment}' and a = {found['a']} and b = {found['b']} and s = '{found['s']}'"
            )
            assert found in scan.to_arrow().to_pylist()
    alter(session, f"ALTER TABLE lake.n.{destination} DROP PARTITION ID '{here}'")
    assert ids_in(places, destination) == ([] if here in had else stays)
    assert rows_of(places, source) == 5
