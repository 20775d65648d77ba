"""Data files that are narrower than their table's columns, which were widened at every level."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import DecimalType, DoubleType, LongType

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError
from tests.properties.duckdb_reader import DuckDBReader
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

TABLE = "ALTER TABLE lake.n.w"
NARROW = (
    "p UInt8",
    "id Int64",
    "a Int32",
    "f Float32",
    "d Decimal(5, 2)",
    "n Tuple(x Int32, y Nullable(Float32))",
    "m Map(String, Int32)",
    "l Array(Nullable(Decimal(4, 1)))",
    "q Array(Tuple(z Float32))",
    "INDEX i a TYPE bloom_filter(0.01)",
)
WIDER = (
    "a Int64",
    "f Float64",
    "d Decimal(12, 2)",
    "n Tuple(x Int64, y Nullable(Float64))",
    "m Map(String, Int64)",
    "l Array(Nullable(Decimal(20, 1)))",
    "q Array(Tuple(z Float64))",
)
WIDE = (*NARROW[:2], *WIDER, NARROW[-1])
NAMES = ("p", "id", "a", "f", "d", "n", "m", "l", "q")
MADE = "ENGINE = MergeTree PARTITION BY p ORDER BY id"
SMALL = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 100"
BIG = 5_000_000_000
ROWS = (
    "toUInt8(number % 2), number, number * -1000, number / 8, number / 4,"
    " tuple(number, number / 2), map('k', number), [NULL, number / 10], [tuple(number)]"
)
BEFORE = (
    "CREATE DATABASE db",
    f"CREATE TABLE db.w ({', '.join(NARROW)}) {MADE}",
    f"INSERT INTO db.w SELECT {ROWS} FROM numbers(10)",
    f"CREATE TABLE db.same ({', '.join(WIDE)}) {MADE}",
    f"INSERT INTO db.same SELECT {ROWS} FROM numbers(2)",
    f"CREATE TABLE db.reversed ({', '.join((*WIDE[-2::-1], WIDE[-1]))}) {MADE}",
    f"INSERT INTO db.reversed ({', '.join(NAMES)}) SELECT {ROWS} FROM numbers(2)",
    f"CREATE TABLE db.narrow ({', '.join(NARROW)}) {MADE}",
    f"INSERT INTO db.narrow SELECT {ROWS} FROM numbers(2)",
)
LATER = (
    *(f"ALTER TABLE db.w MODIFY COLUMN {one} SETTINGS mutations_sync = 2" for one in WIDER),
    (
        f"INSERT INTO db.w SELECT 2, 100, {BIG}, 1e300, 1234567.25, tuple({BIG}, 1e300),"
        f" map('k', {BIG}), [12345678901.5], [tuple(1e300)]"
    ),
)
Row = dict[str, Any]


def before(number: int) -> Row:
    """Return a row as it was exported when the columns were narrow."""
    return {
        "p": number % 2,
        "id": number,
        "a": number * -1000,
        "f": number / 8,
        "d": Decimal(number) / 4,
        "n": {"x": number, "y": number / 2},
        "m": [("k", number)],
        "l": [None, Decimal(number) / 10],
        "q": [{"z": float(number)}],
    }


LAST: Row = {
    "p": 2,
    "id": 100,
    "a": BIG,
    "f": 1e300,
    "d": Decimal("1234567.25"),
    "n": {"x": BIG, "y": 1e300},
    "m": [("k", BIG)],
    "l": [Decimal("12345678901.5")],
    "q": [{"z": 1e300}],
}
EVERY = [*map(before, range(10)), LAST]


@pytest.fixture(scope="module")
def module_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    places = Places(tmp_path_factory.mktemp("widened"))
    with EmbeddedConnection(places.clickhouse, create=True) as connection:
        for sql in BEFORE:
            connection.command(sql)
    return places


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDBReader]:
    reader = DuckDBReader()
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def prepared() -> list[str]:
    """Return what was prepared: the tables are made once."""
    return []


@dataclass
class Lake:
    """The table `w`, whose partitions 0 and 1 are narrower than its columns, and empty others."""

    places: Places
    session: NoSpark
    duckdb: DuckDBReader

    def alter(self, statement: str, table: str = "w") -> list[str]:
        found = alter(self.session, f"ALTER TABLE lake.n.{table} {statement}")
        return [row["status"] for row in found]

    def rows(self, table: str = "w") -> list[Row]:
        """Return the rows of a table, of which two readers say the same."""
        at = opened(self.places, table)
        one = at.scan().to_arrow().select(NAMES).to_pylist()
        two = self.duckdb.read(at, NAMES).to_pylist()
        for row in two:
            row["m"] = [(pair["key"], pair["value"]) for pair in row["m"]]
        found = sorted(one, key=lambda row: row["id"])
        assert found == sorted(two, key=lambda row: row["id"])
        return found

    def files(self, table: str = "w") -> list[pq.ParquetFile]:
        tasks = opened(self.places, table).scan().plan_files()
        return [pq.ParquetFile(t.file.file_path.removeprefix("file://")) for t in tasks]

    def widths(self, table: str = "w") -> list[str]:
        """Return the type of `a` in each file of a table."""
        return sorted(str(f.schema_arrow.field("a").type) for f in self.files(table))

    def verdicts(self, of: str, table: str) -> list[tuple[object, ...]]:
        """Return the verdict on each partition of a source in a lake table."""
        found = self.places.outcomes("verify", f"db.{of}", "--all", "--to", f"lake.n.{table}")
        return [(one["partition_id"], one["verdict"], one["compared_with"]) for one in found]


@pytest.fixture
def lake(places: Places, session: NoSpark, duckdb: DuckDBReader, prepared: list[str]) -> Lake:
    places.reads_parts = True
    made = Lake(places, session, duckdb)
    if not prepared:
        alter(session, f"ALTER TABLE ch.db.w EXPORT PARTITION ALL TO TABLE lake.n.w {SMALL}")
        for name in ("same", "reversed", "narrow"):
            export_all(session, name, name)
        places.clickhouse_run(*LATER)
        one = {"source": "ch.db.w", "table": "lake.n.w", "partition_id": "2"}
        session.call("export_partition", **one, evolve_schema=True)
        made.alter("FREEZE WITH NAME 'first'")
        prepared.append("made")
    else:
        made.alter("DROP PARTITION ALL")
        made.alter("ATTACH PARTITION ALL FROM lake.n.w.tag_first")
    for name in ("same", "reversed", "narrow"):
        made.alter("DROP PARTITION ALL", name)
    assert made.rows() == EVERY
    assert set(made.widths()) == {"int32", "int64"}
    return made


def changed(act: Callable[[Row], object], when: Callable[[Row], bool]) -> list[Row]:
    """Return all rows, some of them changed."""
    found = copy.deepcopy(EVERY)
    for row in found:
        if when(row):
            act(row)
    return found


@pytest.mark.parametrize(
    ("command", "left"),
    [
        pytest.param(
            f"UPDATE a = a + {BIG} IN PARTITION 0 WHERE id = 2",
            changed(lambda row: row.update(a=row["a"] + BIG), lambda row: row["id"] == 2),
            marks=pytest.mark.representative,
        ),
        (
            "UPDATE f = f * 1e300, d = d + 1000000 WHERE id IN (3, 4)",
            changed(
                lambda row: row.update(f=row["f"] * 1e300, d=row["d"] + 1_000_000),
                lambda row: row["id"] in (3, 4),
            ),
        ),
        (
            f"UPDATE n = tuple(n.x + {BIG}, n.y * 1e300), m = map('k', {BIG}) WHERE n.x = 7",
            changed(
                lambda row: row.update(n={"x": 7 + BIG, "y": 3.5e300}, m=[("k", BIG)]),
                lambda row: row["id"] == 7,
            ),
        ),
        (
            "UPDATE l = arrayMap(v -> v + 10000000000, l), q = [tuple(1e300)] WHERE q[1].z = 6",
            changed(
                lambda row: row.update(l=[None, Decimal("10000000000.6")], q=[{"z": 1e300}]),
                lambda row: row["id"] == 6,
            ),
        ),
        ("DELETE IN PARTITION 1 WHERE f > 0.85", [r for r in EVERY if r["id"] not in (7, 9)]),
        ("DELETE WHERE m['k'] = 4 OR n.y = 1.5", [r for r in EVERY if r["id"] not in (3, 4)]),
        (
            "CLEAR COLUMN n IN PARTITION 0",
            changed(lambda row: row.update(n={"x": 0, "y": None}), lambda row: row["p"] == 0),
        ),
        ("CLEAR INDEX i IN PARTITION 0", EVERY),
    ],
)
def test_a_statement_changes_rows_over_the_widened_types(
    lake: Lake, command: str, left: list[Row]
) -> None:
    """Harm prevented: a value wraps around, or no statement changes what is there any more."""
    assert "changed" in lake.alter(command)

    assert lake.rows() == left


@pytest.mark.parametrize("how", ["", "FINAL", "DEDUPLICATE", "DEDUPLICATE BY p, id, a, n, m"])
def test_files_of_both_widths_are_merged(lake: Lake, how: str) -> None:
    """Harm prevented: the files of a widened table stay small for ever."""
    alter(lake.session, f"OPTIMIZE TABLE lake.n.w PARTITION 0 {how}")

    assert lake.rows() == EVERY
    assert [f.metadata.num_rows for f in lake.files()].count(5) == 1


@pytest.mark.parametrize(
    "to",
    [
        pytest.param("same", marks=pytest.mark.nightly),
        pytest.param("reversed", marks=pytest.mark.representative),
    ],
)
def test_a_partition_comes_as_it_reads_into_another_table(lake: Lake, to: str) -> None:
    """Harm prevented: wrong values in the table that gets the partition."""
    assert lake.alter("ATTACH PARTITION 0 FROM lake.n.w", to) == ["attached"]
    assert lake.rows(to) == [r for r in EVERY if r["p"] == 0]
    assert lake.alter(f"MOVE PARTITION 1 TO TABLE lake.n.{to}") == ["moved"]
    assert lake.rows(to) == EVERY[:10]
    assert lake.rows() == [r for r in EVERY if r["p"] != 1]
    lake.alter(f"UPDATE a = a + {BIG} IN PARTITION 0 WHERE id = 2", to)
    assert lake.alter("REPLACE PARTITION 0 FROM lake.n.w", to) == ["replaced"]
    fetched = lake.alter("FETCH PARTITION 2 FROM 'lake.n.w', ATTACH PARTITION 2", to)
    assert fetched == ["fetched", "attached"]
    assert lake.rows(to) == EVERY


def test_a_table_of_narrower_columns_refuses_it_by_name(lake: Lake) -> None:
    """Harm prevented: a value that its type there cannot hold."""
    for statement, table in (
        ("ATTACH PARTITION 0 FROM lake.n.w", "narrow"),
        ("REPLACE PARTITION 0 FROM lake.n.w", "narrow"),
        ("FETCH PARTITION 0 FROM 'lake.n.w'", "narrow"),
        ("MOVE PARTITION 0 TO TABLE lake.n.narrow", "w"),
    ):
        with pytest.raises(RefusedError, match="column a is Int64 there and Int32 here"):
            lake.alter(statement, table)
    assert lake.rows() == EVERY


def test_narrow_files_are_detached_and_attached_again(lake: Lake) -> None:
    assert lake.alter("DETACH PARTITION 0") == ["detached"]
    assert lake.rows() == [r for r in EVERY if r["p"] != 0]
    assert lake.alter("ATTACH PARTITION 0") == ["attached"]
    assert lake.rows() == EVERY


def test_an_update_computes_in_the_types_that_the_owner_gave_the_table(lake: Lake) -> None:
    """Harm prevented: a value wraps around in the narrow type that ClickHouse has."""
    rows = f"SELECT {ROWS} FROM numbers(10)"
    lake.places.clickhouse_run(
        f"CREATE TABLE db.o ({', '.join(NARROW)}) {MADE}", f"INSERT INTO db.o {rows}"
    )
    export_all(lake.session, "o", "o")
    with opened(lake.places, "o").update_schema() as update:
        update.update_column("a", LongType()).update_column("f", DoubleType())
        update.update_column("d", DecimalType(12, 2)).update_column("n.x", LongType())
        update.update_column("m.value", LongType())

    sets = f"a = a + {BIG}, f = f * 1e300, d = d + 1000000, n = tuple(n.x + {BIG}, n.y)"
    assert lake.alter(f"UPDATE {sets}, m = map('k', {BIG}) WHERE id = 2", "o") == ["changed"]
    assert lake.alter(f"DELETE WHERE a > {BIG - 10_000} AND p = 0 AND id != 2", "o") != ["changed"]
    found = lake.rows("o")
    alter(lake.session, "OPTIMIZE TABLE lake.n.o FINAL DEDUPLICATE BY p, id, a, f, d")

    wanted: Row = {"a": BIG - 2000, "f": 0.25e300, "d": Decimal("1000000.50"), "m": [("k", BIG)]}
    assert found[2] == before(2) | wanted | {"n": {"x": BIG + 2, "y": 1.0}}
    assert [row for row in found if row["id"] != 2] == [before(n) for n in range(10) if n != 2]
    assert lake.rows("o") == found


def test_a_rewritten_export_of_narrow_columns_still_verifies(lake: Lake) -> None:
    """Harm prevented: a right partition is reported as different, or cannot be verified."""
    rows = f"SELECT {ROWS} FROM numbers(10)"
    lake.places.clickhouse_run(
        f"CREATE TABLE db.v ({', '.join(NARROW)}) {MADE}", f"INSERT INTO db.v {rows}"
    )
    to = {"source": "ch.db.v", "table": "lake.n.v"}
    lake.session.call("export_partitions", **to, max_bytes_per_file=100, verify=True)
    lake.places.clickhouse_run(*(one.replace("db.w", "db.v") for one in LATER))
    lake.session.call("export_partition", **to, partition_id="2", evolve_schema=True, verify=True)
    equal = [(one, "equal", "digest") for one in "01"] + [("2", "equal", "source")]
    assert lake.verdicts("v", "v") == equal

    alter(lake.session, "OPTIMIZE TABLE lake.n.v PARTITION 0")
    lake.alter("CLEAR INDEX i IN PARTITION 1", "v")

    assert set(lake.widths("v")) == {"int64"}
    assert lake.verdicts("v", "v") == equal
    lake.alter("MOVE PARTITION 0 TO TABLE lake.n.same", "v")
    lake.alter("MOVE PARTITION 1 TO TABLE lake.n.reversed", "v")
    for partition, table in enumerate(("same", "reversed")):
        assert (str(partition), "equal") in {one[:2] for one in lake.verdicts("v", table)}
    assert lake.rows("same") + lake.rows("reversed") == sorted(
        EVERY[:10], key=lambda row: (row["p"], row["id"])
    )
