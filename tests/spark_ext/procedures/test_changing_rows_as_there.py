"""Statements that change rows mean here what they mean there, or are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError, UnsupportedError
from tests.support.session_lake import alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_NUMBERS = iter(range(1_000))


@pytest.fixture(autouse=True)
def _written(places: Places) -> None:
    """Let files be written of what is in the source."""
    places.reads_parts = True


@pytest.fixture
def name(places: Places) -> Iterator[str]:
    """Return a name of a table that is new in the source and in the lake."""
    found = f"there_{next(_NUMBERS)}"
    yield found
    places.clickhouse_run(f"DROP TABLE IF EXISTS db.{found} SYNC")


def made(places: Places, session: NoSpark, name: str, columns: str, values: str) -> None:
    """Make a table and export it."""
    places.clickhouse_run(
        f"CREATE TABLE db.{name} ({columns}) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.{name} {values}",
    )
    export_all(session, name, name)


def rows(places: Places, name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (
        opened(places, name).scan().to_arrow().sort_by("id").to_pylist()
    )
    return found


def assert_same(places: Places, session: NoSpark, name: str, statement: str) -> None:
    """Run a statement here and there, and compare what there is."""
    before = rows(places, name)
    alter(session, f"ALTER TABLE lake.n.{name} {statement}")
    places.clickhouse_run(f"ALTER TABLE db.{name} {statement} SETTINGS mutations_sync = 2")
    export_all(session, name, f"{name}_after")
    assert rows(places, name) == rows(places, f"{name}_after") != before


def assert_refused(
    places: Places, session: NoSpark, name: str, statement: str, reason: str
) -> None:
    """See that a statement is refused and leaves the table as it is."""
    before = opened(places, name).metadata_location
    with pytest.raises((RefusedError, UnsupportedError), match=reason):
        alter(session, f"ALTER TABLE lake.n.{name} {statement}")
    assert opened(places, name).metadata_location == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE at = '2024-05-05 12:00:00' WHERE id = 0",
        "UPDATE hour = toHour(at) WHERE at >= '2024-01-01 09:00:00'",
    ],
)
def test_times_without_a_zone_are_of_the_zone_of_the_source(
    places: Places,
    session: NoSpark,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
) -> None:
    """Harm prevented: every time is hours off when another machine runs the statement."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    made(
        places,
        session,
        name,
        "id Int64, at DateTime, hour UInt8, day Date MATERIALIZED toDate(at)",
        "SELECT number, toDateTime('2024-01-01 00:00:00', 'UTC') + number * 21600, 0"
        " FROM numbers(4)",
    )
    before = rows(places, name)

    monkeypatch.setenv("TZ", "America/New_York")
    alter(session, f"ALTER TABLE lake.n.{name} {statement}")

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    places.clickhouse_run(f"ALTER TABLE db.{name} {statement} SETTINGS mutations_sync = 2")
    export_all(session, name, f"{name}_after")
    assert rows(places, name) == rows(places, f"{name}_after") != before


NESTED = "id Int64, `n.a` Array(Int32), `n.b` Array(String), x Int32"
FILLED = (
    "SELECT number, range(number), arrayMap(v -> toString(v), range(number)), 0 FROM numbers(4)"
)


@pytest.mark.parametrize(
    "statement",
    ["CLEAR COLUMN `n.a`", "UPDATE `n.a` = arrayReverse(`n.a`) WHERE id > 1"],
)
def test_a_column_of_a_nested_structure_keeps_the_length_of_its_siblings(
    places: Places, session: NoSpark, name: str, statement: str
) -> None:
    made(places, session, name, NESTED, FILLED)

    assert_same(places, session, name, statement)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE `n.a` = [1, 2, 3] WHERE id = 1", "n.a"),
        ("CLEAR COLUMN n", "n is a Nested structure. Name its columns: n.a, n.b"),
    ],
)
def test_arrays_of_a_nested_structure_never_differ_in_length(
    places: Places, session: NoSpark, name: str, statement: str, reason: str
) -> None:
    made(places, session, name, NESTED, FILLED)

    assert_refused(places, session, name, statement, reason)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("a BETWEEN 1 AND n IS NULL", [2]),
        pytest.param("a BETWEEN 1 AND n IS NOT NULL", [1], marks=pytest.mark.soak),
        pytest.param("a NOT BETWEEN 1 AND n IS NULL", [2], marks=pytest.mark.soak),
        pytest.param("a = n IS NULL", [2], marks=pytest.mark.soak),
    ],
)
def test_is_null_is_about_all_that_stands_before_it(
    places: Places, session: NoSpark, name: str, condition: str, left: list[int]
) -> None:
    """Harm prevented: other rows are deleted than those that the same text deletes there."""
    made(
        places,
        session,
        name,
        "id Int64, a Int32, n Nullable(Int32)",
        "VALUES (1, 2, NULL), (2, 2, 2)",
    )

    assert_same(places, session, name, f"DELETE WHERE {condition}")

    assert [row["id"] for row in rows(places, name)] == left


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE WHERE isNotNull(t)",
        "UPDATE t = (7, 'y') WHERE id = 1",
        "UPDATE x = 1 WHERE t IS NULL",
    ],
)
def test_a_null_is_not_taken_for_a_tuple_of_nulls(
    places: Places, session: NoSpark, name: str, statement: str
) -> None:
    """Harm prevented: rows whose tuple is NULL are deleted as rows that have one."""
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command("SET allow_experimental_nullable_tuple_type = 1")
        connection.command(
            f"CREATE TABLE db.{name} (id Int64, x Int32, t Nullable(Tuple(a Nullable(Int32),"
            " b Nullable(String)))) ENGINE = MergeTree ORDER BY id"
        )
        connection.command(f"INSERT INTO db.{name} VALUES (1, 1, NULL), (2, 1, (NULL, NULL))")
    export_all(session, name, name)

    assert_refused(places, session, name, statement, "column t, .* a NULL and a tuple of NULLs")
    alter(session, f"ALTER TABLE lake.n.{name} DELETE WHERE id = 1")
    assert rows_of(places, name) == 1


def test_times_that_were_cut_off_are_not_compared(
    places: Places, session: NoSpark, name: str
) -> None:
    """Harm prevented: rows that do not match there match here, as their digits are gone."""
    columns = "id Int64, x Int32, at DateTime64(9, 'UTC')"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} ({columns}) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.{name} VALUES (1, 1, '2024-01-01 00:00:00.123456789')",
    )
    to = f"lake.n.{name}"
    places.run("export", f"db.{name}", "--all", "--to", to, "--convert", "at=truncate")

    condition = "at = toDateTime64('2024-01-01 00:00:00.123456', 9, 'UTC')"
    assert_refused(places, session, name, f"DELETE WHERE {condition}", "column at, .* cut off")
    alter(session, f"ALTER TABLE lake.n.{name} UPDATE x = 7 WHERE id = 1")
    assert [row["x"] for row in rows(places, name)] == [7]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE WHERE j.d = '20240101'",
        "UPDATE x = 7 WHERE dynamicType(j.f) = 'Float64'",
        "DELETE WHERE kind = 'Float64'",
    ],
)
def test_types_of_json_values_that_files_lost_are_not_guessed(
    places: Places, session: NoSpark, name: str, statement: str
) -> None:
    """Harm prevented: a text is taken for a date and 1.0 for 1, and other rows match than there."""
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (id Int64, x Int32, j JSON,"
        " kind String ALIAS dynamicType(j.f)) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.{name} SETTINGS input_format_try_infer_dates = 0,"
        " input_format_try_infer_datetimes = 0"
        """ SELECT number, number, '{"f": 1.0, "d": "2024-01-01"}' FROM numbers(3)""",
    )
    export_all(session, name, name)

    assert_refused(places, session, name, statement, "column j, JSON, its files hold text")
    alter(session, f"ALTER TABLE lake.n.{name} UPDATE x = 7 WHERE id = 1")
    assert [row["x"] for row in rows(places, name)] == [0, 7, 2]


def test_declared_paths_of_json_mean_the_same(places: Places, session: NoSpark, name: str) -> None:
    columns = "id Int64, x Int32, j JSON(max_dynamic_paths=4, a.b Float64, `c` String, SKIP s)"
    value = """ '{"a": {"b": 1.0}, "c": "2024-01-01", "d": 1}' FROM numbers(3)"""
    made(places, session, name, columns, f"SELECT number, number, {value}")

    assert_same(places, session, name, "DELETE WHERE j.a.b = 1 AND j.c = '2024-01-01' AND id = 1")
    assert_refused(places, session, name, "DELETE WHERE j.d = 1", "column j, JSON.* hold text")
    assert_refused(places, session, name, "DELETE WHERE j.s = 1", "column j, JSON.* hold text")


def test_declared_paths_of_several_types_are_not_read(
    places: Places, session: NoSpark, name: str
) -> None:
    made(places, session, name, "id Int64, j JSON(a Dynamic)", """VALUES (1, '{"a": 1}')""")

    assert_refused(places, session, name, "DELETE WHERE j.a = 1", "column j, JSON.* hold text")


def test_a_partition_field_of_a_member_of_a_tuple_is_looked_at(
    places: Places, session: NoSpark, name: str
) -> None:
    """Harm prevented: a row in a partition of the lake that its values do not belong to."""
    made(places, session, name, "id Int64, t Tuple(a Int32, b Int32)", "VALUES (1, (1, 1))")
    with opened(places, name).update_spec() as change:
        change.add_identity("t.a")
    table = opened(places, name)
    row = {"id": 5, "t": {"a": 7, "b": 1}}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))

    statement = "UPDATE t = tuple(8, 2) WHERE id = 5"
    assert_refused(places, session, name, statement, "the partition field t.a")


def test_a_default_may_be_made_of_a_column_that_is_not_stored(
    places: Places, session: NoSpark, name: str
) -> None:
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (id Int64, given Int32 EPHEMERAL 3, c Int32 DEFAULT given + 1)"
        " ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.{name} (id, c) VALUES (1, 9)",
    )
    export_all(session, name, name)

    assert_same(places, session, name, "CLEAR COLUMN c")
