"""CLEAR INDEX on lake tables: a skip index is the bloom filters of its columns."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

INDEXED = (
    "CREATE TABLE db.indexed (p UInt8, id UInt64, s String, f Float64, d Decimal(9, 2),"
    " INDEX i s TYPE bloom_filter(0.01), INDEX j (id, f, d) TYPE set(10),"
    " INDEX k s TYPE tokenbf_v1(512, 3, 0), INDEX lower lower(s) TYPE bloom_filter,"
    " INDEX mm id TYPE minmax) ENGINE = MergeTree PARTITION BY p ORDER BY id"
)
FILLED = (
    "INSERT INTO db.indexed SELECT number % 2, number, toString(number), number, number"
    " FROM numbers(20)"
)
_NUMBERS = iter(range(1_000))


@pytest.fixture
def indexed(places: Places, session: NoSpark) -> str:
    """Export a table with skip indices; return the name of the lake table."""
    places.reads_parts = True
    places.clickhouse_run("DROP TABLE IF EXISTS db.indexed SYNC", INDEXED, FILLED)
    name = f"indexed_{next(_NUMBERS)}"
    export_all(session, "indexed", name)
    return name


def filtered(places: Places, name: str) -> set[str]:
    """Return the columns with bloom filters in any file of main."""
    found = set()
    for task in opened(places, name).scan().plan_files():
        group = pq.read_metadata(Path(task.file.file_path.removeprefix("file://"))).row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        found |= {c.path_in_schema for c in columns if c.bloom_filter_offset is not None}
    return found


def test_an_export_writes_filters_of_its_indices_for_other_writers_too(
    places: Places, indexed: str
) -> None:
    """Of single values alone, and of types that all readers hash alike; no larger than they are."""
    assert filtered(places, indexed) == {"d", "id", "s"}

    table = opened(places, indexed)
    prefix = "write.parquet.bloom-filter-enabled.column."
    properties = {
        k.removeprefix(prefix): v for k, v in table.properties.items() if k.startswith(prefix)
    }
    assert properties == {"d": "true", "id": "true", "s": "true"}
    assert all(task.file.file_size_in_bytes < 10_000 for task in table.scan().plan_files())


def test_other_engines_read_what_has_filters_right(places: Places, indexed: str) -> None:
    """Values that are there, and those that are not, by equality, which looks at the filters."""
    files = [task.file.file_path for task in opened(places, indexed).scan().plan_files()]
    names = [file.removeprefix("file://") for file in files]
    with duckdb.connect() as database, EmbeddedConnection(places.clickhouse) as clickhouse:
        for n in range(25):
            for condition in (f"id = {n}", f"s = '{n}'", f"d = {n}"):
                asked = f"SELECT count(*) FROM read_parquet({names}) WHERE {condition}"
                assert database.execute(asked).fetchone() == (int(n < 20),)
                asked = " UNION ALL ".join(
                    f"SELECT count() FROM file('{name}', Parquet) WHERE {condition}"
                    for name in names
                )
                found = clickhouse.rows(f"SELECT toInt64(sum(*)) FROM ({asked})")
                assert found == ((int(n < 20),),)
                there = opened(places, indexed).scan(row_filter=condition).to_arrow()
                assert there.num_rows == int(n < 20)


def test_a_table_says_which_filters_its_files_have(
    places: Places, session: NoSpark, indexed: str
) -> None:
    """Iceberg's property decides: another engine's writer follows it, too."""
    table = opened(places, indexed)
    name = "write.parquet.bloom-filter-enabled.column.s"
    with table.transaction() as change:
        change.set_properties({name: "false"})
    alter(session, f"ALTER TABLE lake.n.{indexed} DROP PARTITION ALL")

    forced = f"{ALLOWED}, export_merge_tree_partition_force_export = 1"
    alter(
        session,
        f"ALTER TABLE ch.db.indexed EXPORT PARTITION ALL TO TABLE lake.n.{indexed} {forced}",
    )

    assert filtered(places, indexed) == {"d", "id"}


@pytest.mark.parametrize(
    ("index", "left", "rows"),
    [
        ("j IN PARTITION 1", {"d", "id", "s"}, 10),
        ("j", {"s"}, 20),
        ("`bloom_filter(id)` IN PARTITION ID '1'", {"d", "id", "s"}, 10),
        ("`bloom_filter(s)`", {"d", "id"}, 20),
    ],
)
def test_the_filters_of_its_columns_go_and_the_rows_stay(
    places: Places, session: NoSpark, indexed: str, index: str, left: set[str], rows: int
) -> None:
    before = opened(places, indexed).scan().to_arrow().sort_by("id").to_pylist()

    (row,) = alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX {index}")

    assert (row["status"], row["rows"], row["data_files"]) == ("changed", rows, rows // 10)
    assert filtered(places, indexed) == left
    assert opened(places, indexed).scan().to_arrow().sort_by("id").to_pylist() == before
    (again,) = alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX {index}")
    assert again["status"] == "unchanged"
    assert "has a bloom filter of" in again["message"]
    assert {r["status"] for r in export_all(session, "indexed", indexed)} == {"already_exported"}


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("mm", "index mm is minmax of id, which data files have no filters of"),
        ("lower", r"index lower is bloom_filter.* of lower.s., which data files have no filters"),
        ("i", r"index i is bloom_filter.0\.01. of s, and its filters are those of another index"),
    ],
)
def test_an_index_without_filters_of_its_own_is_reported(
    places: Places, session: NoSpark, indexed: str, index: str, message: str
) -> None:
    """Harm prevented: the filters of another index on the same column go."""
    (row,) = alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX {index} IN PARTITION 1")

    assert row["status"] == "unchanged"
    assert re.search(message, row["message"])
    assert filtered(places, indexed) == {"d", "id", "s"}


@pytest.mark.parametrize("index", ["nobody", "`bloom_filter(nobody)`"])
def test_an_index_that_is_not_there_is_refused_unless_it_need_not_be(
    places: Places, session: NoSpark, indexed: str, index: str
) -> None:
    with pytest.raises(
        RefusedError,
        match=r"it has no such index\. It records these of .*: i, j, k, lower, mm",
    ) as refused:
        alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX {index}")
    assert refused.value.code == 36

    (row,) = alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX IF EXISTS {index}")

    assert row["status"] == "unchanged"
    assert filtered(places, indexed) == {"d", "id", "s"}
