"""Partitions go between lake tables whose columns have other field ids: names tell which is it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import LongType, StringType

from tableformat.errors import UnsupportedError
from tests.support.session_lake import alter, export_all, opened
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

_NUMBERS = iter(range(1_000))
COLUMNS = (
    "p UInt8",
    "id Int64",
    "n Nullable(String)",
    "at DateTime64(6, 'UTC')",
    "t Tuple(x Int32, y Array(Nullable(Decimal(20, 4))))",
    "m Map(String, UUID)",
    "`a.b ü` LowCardinality(String)",
    "f Float64",
)
NAMES = ("p", "id", "n", "at", "t", "m", "`a.b ü`", "f")
ROWS = (
    "number % 2",
    "100 - number",
    "if(number % 3 = 0, NULL, toString(number))",
    "toDateTime64('2024-01-01 00:00:00.000001', 6, 'UTC') + number",
    "(number, [NULL, number / 8])",
    "map('k', toUUID('00000000-0000-0000-0000-000000000007'))",
    "'ä'",
    "if(number % 4 = 0, nan, 0.1)",
)


@dataclass
class Lake:
    """Two lake tables alike, but for the order in which their columns came."""

    places: Places
    session: NoSpark
    one: str
    two: str

    def alter(self, statement: str, table: str = "") -> list[Row]:
        return alter(self.session, f"ALTER TABLE lake.n.{table or self.two} {statement}")

    def rows(self, table: str, condition: str = "id > 0") -> list[str]:
        """Return rows as they are compared, in any order, with their columns in one."""
        found = opened(self.places, table).scan(condition).to_arrow()
        named = found.select(sorted(found.column_names)).to_pylist()
        return sorted(map(repr, named))

    def change(self, table: str, act: Callable[[UpdateSchema], object]) -> None:
        """Change the columns of a lake table."""
        with opened(self.places, table).update_schema() as update:
            act(update)


def without_ids(schema: pa.Schema) -> pa.Schema:
    """Return a schema as a writer has it that knows nothing of Iceberg."""
    return pa.schema([pa.field(f.name, f.type, f.nullable) for f in schema])


@contextmanager
def two_tables(places: Places, session: NoSpark, columns: int) -> Iterator[Lake]:
    """Yield two tables of the first columns; the second of them is empty."""
    places.reads_parts = True
    one, two = (f"ids_{next(_NUMBERS)}" for _ in range(2))
    named = COLUMNS[:columns]
    for name, ordered in ((one, named), (two, named[::-1])):
        places.clickhouse_run(
            f"CREATE TABLE db.{name} ({', '.join(ordered)}) ENGINE = MergeTree PARTITION BY p"
            " ORDER BY (id, at)",
            f"INSERT INTO db.{name} ({', '.join(NAMES[:columns])})"
            f" SELECT {', '.join(ROWS[:columns])} FROM numbers(20)",
        )
    session.call("export_partitions", table=f"n.{one}", source=f"ch.db.{one}", verify=True)
    export_all(session, two, two)
    alter(session, f"ALTER TABLE lake.n.{two} DROP PARTITION ALL")
    yield Lake(places, session, one, two)
    places.clickhouse_run(f"DROP TABLE db.{one} SYNC", f"DROP TABLE db.{two} SYNC")


@pytest.fixture
def lake(places: Places, session: NoSpark) -> Iterator[Lake]:
    with two_tables(places, session, len(COLUMNS)) as made:
        yield made


@pytest.fixture
def plain(places: Places, session: NoSpark) -> Iterator[Lake]:
    """Two tables without nested columns, which PyIceberg's own Arrow casts."""
    with two_tables(places, session, 4) as made:
        yield made


@pytest.mark.representative
def test_every_value_comes_under_its_name(lake: Lake) -> None:
    """Harm prevented: values of one column under the name of another, or none at all."""
    wanted = lake.rows(lake.one)
    (row,) = lake.alter(f"ATTACH PARTITION 0 FROM lake.n.{lake.one}")

    assert (row["status"], row["rows"]) == ("attached", 10)
    assert lake.rows(lake.two) == lake.rows(lake.one, "p = 0")
    # Readers skip files by the statistics of columns, which go by field id.
    assert lake.rows(lake.two, "id = 98") == lake.rows(lake.one, "id = 98")
    assert len(lake.rows(lake.two, "n is null and p = 0")) == 4
    (again,) = lake.alter(f"REPLACE PARTITION 0 FROM lake.n.{lake.one}")
    assert again["status"] == "unchanged"
    fetched = lake.alter(f"FETCH PARTITION 1 FROM 'lake.n.{lake.one}', ATTACH PARTITION 1")
    assert [one["status"] for one in fetched] == ["fetched", "attached"]
    assert lake.rows(lake.two) == wanted


def test_rows_keep_their_order_and_the_bloom_filters(plain: Lake) -> None:
    table = opened(plain.places, plain.one)
    file = plain.places.root / f"{plain.one}.parquet"
    rows = table.scan("p = 1").to_arrow().cast(table.schema().as_arrow()).slice(0, 6)
    pq.write_table(rows, file, bloom_filter_options={"id": True, "n": True})
    table.add_files([str(file)])

    (row,) = plain.alter(f"ATTACH PARTITION ALL FROM lake.n.{plain.one}")

    assert (row["status"], row["rows"]) == ("attached", 26)
    here = opened(plain.places, plain.two)
    filters = []
    for task in here.scan().plan_files():
        path = Path(task.file.file_path.removeprefix("file://"))
        metadata = pq.read_metadata(path)
        group = metadata.row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        filters.append({c.path_in_schema for c in columns if c.bloom_filter_offset is not None})
        ids = pq.read_table(path, partitioning=None).column("id").to_pylist()
        if task.file.record_count == 6:
            assert ids == rows.column("id").to_pylist()
            assert not task.file.sort_order_id
            continue
        assert ids == sorted(ids)
        assert task.file.sort_order_id == here.sort_order().order_id
        named = [metadata.schema.column(c.column_index).path for c in group.sorting_columns]
        assert named == ["id", "at"]
    assert sorted(filters, key=len) == [set(), set(), {"id", "n"}]


def test_a_file_without_field_ids_is_read_by_the_name_mapping(plain: Lake) -> None:
    """Harm prevented: no column is found in it by id, and every value that may be NULL is."""
    table = opened(plain.places, plain.one)
    file = plain.places.root / f"{plain.one}.parquet"
    rows = table.scan("p = 1").to_arrow().cast(table.schema().as_arrow())
    pq.write_table(rows.cast(without_ids(rows.schema)), file)
    table.add_files([str(file)])

    plain.alter(f"ATTACH PARTITION 1 FROM lake.n.{plain.one}")

    assert plain.rows(plain.two) == plain.rows(plain.one, "p = 1")
    assert len(plain.rows(plain.two)) == 20


def test_it_is_the_same_export_and_verifies_when_its_source_is_gone(lake: Lake) -> None:
    """Harm prevented: a partition of which nobody can say that it is equal."""
    lake.alter(f"MOVE PARTITION 1 TO TABLE lake.n.{lake.two}", lake.one)

    assert (len(lake.rows(lake.one)), len(lake.rows(lake.two))) == (10, 10)
    (file,) = (task.file for task in opened(lake.places, lake.two).scan().plan_files())
    again = {row["partition_id"]: row for row in export_all(lake.session, lake.one, lake.two)}
    assert {one: row["status"] for one, row in again.items()} == {
        "0": "committed",
        "1": "already_exported",
    }
    assert again["1"]["bytes"] == file.file_size_in_bytes
    lake.places.clickhouse_run(f"ALTER TABLE db.{lake.one} DROP PARTITION 1")
    found = lake.places.outcomes("verify", f"db.{lake.one}", "--all", "--to", f"lake.n.{lake.two}")
    verdicts = {one["partition_id"]: (one["verdict"], one["compared_with"]) for one in found}
    assert verdicts["1"] == ("equal", "digest"), found


def test_a_column_that_was_dropped_and_added_is_the_new_one(lake: Lake) -> None:
    """Harm prevented: values that Iceberg does not show any more come to light again."""
    lake.change(lake.two, lambda update: update.delete_column("n"))
    lake.change(lake.two, lambda update: update.add_column("n", StringType()))

    lake.alter(f"ATTACH PARTITION 0 FROM lake.n.{lake.one}")

    assert lake.rows(lake.two) == lake.rows(lake.one, "p = 0")
    lake.change(lake.one, lambda update: update.delete_column("n"))
    lake.change(lake.one, lambda update: update.add_column("n", StringType()))
    lake.alter(f"ATTACH PARTITION 1 FROM lake.n.{lake.one}")
    found = opened(lake.places, lake.two).scan("p = 1").to_arrow()
    assert found.column("n").null_count == found.num_rows == 10


def test_values_of_a_column_that_was_dropped_there_do_not_return_here(plain: Lake) -> None:
    """Harm prevented: a column that is new here shows what the other table has dropped."""
    twin = f"{plain.one}_twin"
    export_all(plain.session, plain.one, twin)
    plain.alter("DROP PARTITION ALL", twin)
    plain.change(plain.one, lambda update: update.add_column("gone", LongType()))
    table = opened(plain.places, plain.one)
    rows = table.scan("p = 1").to_arrow().slice(0, 3)
    gone = rows.schema.get_field_index("gone")
    rows = rows.set_column(gone, "gone", pa.array([7, 8, 9]))
    table.append(rows.cast(table.schema().as_arrow()))
    plain.change(plain.one, lambda update: update.delete_column("gone"))

    (row,) = plain.alter(f"ATTACH PARTITION ALL FROM lake.n.{plain.one}", twin)

    assert (row["status"], row["rows"]) == ("attached", 23)
    plain.change(twin, lambda update: update.add_column("new", LongType()))
    field = opened(plain.places, twin).schema().find_field("new")
    assert field.field_id == table.schema().find_field("gone").field_id
    found = opened(plain.places, twin).scan().to_arrow().column("new")
    assert (found.null_count, len(found)) == (23, 23)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda update: update.update_column("t.x", LongType()),
            "column t is struct<x int, y list<decimal(20, 4) or NULL>> there and struct<x long, ",
        ),
        pytest.param(
            lambda update: update.add_column("more", StringType()),
            "column more is only here",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["another type", "one column more"],
)
def test_columns_of_another_form_are_refused_by_name(
    lake: Lake, act: Callable[[UpdateSchema], object], message: str
) -> None:
    lake.change(lake.two, act)
    before = [opened(lake.places, name).metadata_location for name in (lake.one, lake.two)]

    for statement, table in (
        (f"ATTACH PARTITION 0 FROM lake.n.{lake.one}", lake.two),
        (f"REPLACE PARTITION 0 FROM lake.n.{lake.one}", lake.two),
        (f"FETCH PARTITION 0 FROM 'lake.n.{lake.one}'", lake.two),
        (f"MOVE PARTITION 0 TO TABLE lake.n.{lake.two}", lake.one),
    ):
        with pytest.raises(UnsupportedError) as refused:
            lake.alter(statement, table)
        assert message in str(refused.value)
        assert refused.value.code == 48
    now = [opened(lake.places, name).metadata_location for name in (lake.one, lake.two)]
    assert now == before
