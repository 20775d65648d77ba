"""Files that were written before a column was added: it is NULL in them, and they change."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import TruncateTransform

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import DestinationError, RefusedError
from tests.support.session_lake import alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

TABLE = "ALTER TABLE lake.n.old"
BEFORE = (
    "CREATE DATABASE db",
    "CREATE TABLE db.old (p UInt8, id UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY id",
    "INSERT INTO db.old SELECT 0, number FROM numbers(4)",
)
LATER = (
    (
        "ALTER TABLE db.old ADD COLUMN x Int32 DEFAULT 7, ADD COLUMN l LowCardinality(String),"
        " ADD COLUMN a Array(UInt8)"
    ),
    "INSERT INTO db.old SELECT 1, number, 9, 'new', [1] FROM numbers(4, 3)",
)


@pytest.fixture(scope="module")
def module_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    places = Places(tmp_path_factory.mktemp("old"))
    with EmbeddedConnection(places.clickhouse, create=True) as connection:
        for sql in BEFORE:
            connection.command(sql)
    return places


def rows(places: Places, name: str = "old") -> list[tuple[Any, ...]]:
    found = opened(places, name).scan().to_arrow().select(["id", "x", "l"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


FIRST = [(n, None, None) for n in range(4)] + [(n, 9, "new") for n in range(4, 7)]


@pytest.fixture
def exported(places: Places, session: NoSpark, prepared: list[str]) -> NoSpark:
    """Have a partition without later columns and one with them, as they were at first."""
    places.reads_parts = True
    if not prepared:
        session.call("export_partitions", source="ch.db.old", table="lake.n.old")
        with EmbeddedConnection(places.clickhouse) as connection:
            for sql in LATER:
                connection.command(sql)
        one = {"source": "ch.db.old", "table": "lake.n.old", "partition_id": "1"}
        session.call("export_partition", **one, evolve_schema=True)
        statuses_of(session, "FREEZE WITH NAME 'first'")
        prepared.append("made")
    else:
        statuses_of(session, "DROP PARTITION ALL")
        statuses_of(session, "ATTACH PARTITION ALL FROM lake.n.old.tag_first")
    assert rows(places) == FIRST
    return session


@pytest.fixture(scope="module")
def prepared() -> list[str]:
    """Return what was prepared: the table is made once."""
    return []


def statuses_of(session: NoSpark, command: str, table: str = TABLE) -> list[object]:
    return [row["status"] for row in alter(session, f"{table} {command}")]


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("UPDATE x = 1 WHERE x IS NULL", [(n, 1, None) for n in range(4)]),
        ("UPDATE x = x + 1 WHERE id != 3", [(n, None, None) for n in range(4)]),
        ("UPDATE l = 'v' WHERE id = 1", [(n, None, "v" if n == 1 else None) for n in range(4)]),
        ("CLEAR COLUMN x IN PARTITION ID '0'", [(n, 7, None) for n in range(4)]),
        ("DELETE WHERE x IS NULL AND id > 1", [(0, None, None), (1, None, None)]),
        ("DELETE WHERE x = 9", [(n, None, None) for n in range(4)]),
    ],
)
def test_a_column_that_came_later_is_null_in_an_older_file(
    places: Places, exported: NoSpark, command: str, left: list[tuple[Any, ...]]
) -> None:
    """Harm prevented: after one ADD COLUMN no statement changes what is there any more."""
    assert "changed" in statuses_of(exported, command)

    assert [row for row in rows(places) if row[0] < 4] == left
    others = [row for row in rows(places) if row[0] >= 4]
    expected = {"UPDATE x = x + 1 WHERE id != 3": [(n, 10, "new") for n in range(4, 7)]}
    gone = command == "DELETE WHERE x = 9"
    assert others == ([] if gone else expected.get(command, FIRST[4:]))


def test_rows_are_compared_with_null_where_a_file_lacks_a_column(
    places: Places, exported: NoSpark
) -> None:
    found = alter(exported, "OPTIMIZE TABLE lake.n.old PARTITION ID '0' DEDUPLICATE BY p, id, x, l")

    assert {row["status"] for row in found} <= {"optimized", "unchanged"}
    assert rows(places) == FIRST


def test_a_type_without_null_is_refused_by_its_name(places: Places, exported: NoSpark) -> None:
    """An array of ClickHouse is empty, and never NULL."""
    with pytest.raises(
        DestinationError, match="lacks a, which was added to the table later, and a value"
    ):
        statuses_of(exported, "UPDATE a = [2] WHERE id = 1")
    assert rows(places) == FIRST


@pytest.mark.parametrize("rewrite", ["UPDATE x = 1 WHERE id = 1", "DELETE WHERE id = 3"])
def test_an_array_stays_null_in_a_rewritten_file_and_is_refused(
    places: Places, exported: NoSpark, rewrite: str
) -> None:
    """Harm prevented: NULL becomes an empty array, and `empty(a)` deletes rows that have none."""
    assert "changed" in statuses_of(exported, rewrite)
    (file,) = [t.file for t in opened(places, "old").scan("p = 0").plan_files()]
    with pq.ParquetFile(file.file_path.removeprefix("file://")) as parquet:
        assert parquet.read(["a"]).column("a").null_count == file.record_count
    before = opened(places, "old").metadata_location

    for command in (
        f"{TABLE} UPDATE a = [2] IN PARTITION 0 WHERE id = 1",
        f"{TABLE} DELETE IN PARTITION 0 WHERE empty(a)",
        f"{TABLE} UPDATE l = toString(length(a)) IN PARTITION 0 WHERE 1",
        "OPTIMIZE TABLE lake.n.old PARTITION 0 DEDUPLICATE BY p, id, a",
    ):
        with pytest.raises(
            DestinationError, match=r"has NULLs in a, and a value of Array\(UInt8\) is never NULL"
        ):
            alter(exported, command)
    assert opened(places, "old").metadata_location == before

    assert statuses_of(exported, "CLEAR COLUMN a IN PARTITION 0") == ["changed"]
    found = opened(places, "old").scan("p = 0").to_arrow().column("a").to_pylist()
    assert found == [[]] * file.record_count


def test_an_array_in_a_tuple_is_not_emptied_where_a_file_lacks_it(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: NULL becomes an empty array in rows that a statement does not set."""
    places.reads_parts = True
    places.clickhouse_run(
        "CREATE TABLE db.tuples (p UInt8, t Tuple(x Int32)) ENGINE = MergeTree"
        " PARTITION BY p ORDER BY p",
        "INSERT INTO db.tuples VALUES (0, tuple(1)), (0, tuple(2))",
    )
    export_all(session, "tuples", "tuples")
    places.clickhouse_run(
        "ALTER TABLE db.tuples MODIFY COLUMN t Tuple(x Int32, l Array(UInt8))",
        "INSERT INTO db.tuples VALUES (1, (3, [4]))",
    )
    one = {"source": "ch.db.tuples", "table": "lake.n.tuples", "partition_id": "1"}
    session.call("export_partition", **one, evolve_schema=True)

    with pytest.raises(DestinationError, match="it has NULLs in t, and a value of Tuple"):
        statuses_of(session, "UPDATE t = tuple(7, [8]) WHERE t.x = 1", "ALTER TABLE lake.n.tuples")
    found = opened(places, "tuples").scan().to_arrow().column("t").to_pylist()
    assert sorted(str(one["l"]) for one in found) == ["None", "None", "[4]"]


@pytest.mark.parametrize("order", ["as it is", "reversed"])
def test_such_files_go_from_table_to_table_and_stay_null(
    places: Places, exported: NoSpark, order: str
) -> None:
    """Harm prevented: a table whose required column a file lacks, which no engine reads then."""
    columns = ("p UInt8", "id UInt64", "x Int32", "l LowCardinality(String)", "a Array(UInt8)")
    name = f"old_{order.replace(' ', '_')}"
    listed = ", ".join(columns if order == "as it is" else columns[::-1])
    places.clickhouse_run(
        f"CREATE TABLE db.{name} ({listed}) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{name} (p, id) SELECT 2, number FROM numbers(7, 2)",
    )
    export_all(exported, name, name)
    other = f"ALTER TABLE lake.n.{name}"
    before = opened(places, name).metadata_location
    for command, table in (
        ("ATTACH PARTITION 0 FROM lake.n.old", other),
        ("REPLACE PARTITION 0 FROM lake.n.old", other),
        (f"MOVE PARTITION 0 TO TABLE lake.n.{name}", TABLE),
    ):
        with pytest.raises(DestinationError, match=r"x: it has NULLs, .* Allow NULL there, with"):
            statuses_of(exported, command, table)
    assert opened(places, name).metadata_location == before
    assert rows(places) == FIRST

    with opened(places, name).update_schema() as update:
        for column in ("x", "l", "a"):
            update.make_column_optional(column)
    assert statuses_of(exported, f"MOVE PARTITION 0 TO TABLE lake.n.{name}") == ["moved"]
    assert rows(places) == FIRST[4:]
    assert rows(places, name)[:4] == FIRST[:4]
    assert statuses_of(exported, f"ATTACH PARTITION 0 FROM lake.n.{name}") == ["attached"]
    assert rows(places) == FIRST
    fetched = "FETCH PARTITION 1 FROM 'lake.n.old', ATTACH PARTITION 1"
    assert statuses_of(exported, fetched, other) == ["fetched", "attached"]
    assert rows(places, name)[:7] == FIRST


def test_such_files_are_detached_and_attached_again(places: Places, exported: NoSpark) -> None:
    assert statuses_of(exported, "DETACH PARTITION 0") == ["detached"]
    assert rows(places) == FIRST[4:]
    assert statuses_of(exported, "ATTACH PARTITION 0") == ["attached"]
    assert rows(places) == FIRST


@pytest.mark.parametrize(
    ("command", "left"),
    [("UPDATE x = 1 WHERE id = 5", [4, 5, 6]), ("DELETE WHERE id = 5", [4, 6])],
)
@pytest.mark.parametrize(("width", "is_one"), [(100, True), (1, False)])
def test_files_of_an_earlier_spec_go_to_the_one_partition_that_they_lie_in(
    places: Places, exported: NoSpark, command: str, left: list[int], width: int, *, is_one: bool
) -> None:
    """Harm prevented: DELETE is refused for ever, or a row lies where no reader looks for it."""
    name = f"ids_{width}"
    with opened(places, "old").update_spec() as update:
        update.add_field("id", TruncateTransform(width), name)
    try:
        if is_one:
            assert "changed" in statuses_of(exported, command)
        else:
            with pytest.raises(RefusedError, match=r"values of ids_1: 4, 6\. It is of an ear"):
                statuses_of(exported, command)
    finally:
        number = opened(places, "old").spec().spec_id
        with opened(places, "old").update_spec() as update:
            update.remove_field(name)

    files = [task.file for task in opened(places, "old").scan().plan_files()]
    expected = [(1, 0)] if is_one else []
    assert [(f.partition[0], f.partition[1]) for f in files if f.spec_id == number] == expected
    found = opened(places, "old").scan("id = 5").to_arrow().num_rows
    assert found == (left.count(5) if is_one else 1)
    assert [row[0] for row in rows(places) if row[0] >= 4] == (left if is_one else [4, 5, 6])
