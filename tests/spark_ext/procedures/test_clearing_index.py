"""CLEAR INDEX on lake tables: a skip index is the bloom filters of its columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tableformat.errors import RefusedError
from tests.session_lake import alter, export_all, opened
from tests.session_without_spark import NoSpark
from tests.wrong.places import Places

INDEXED = (
    "CREATE TABLE db.indexed (p UInt8, id UInt64, s String, INDEX i lower(s) TYPE bloom_filter,"
    " INDEX j (id, s) TYPE set(10)) ENGINE = MergeTree PARTITION BY p ORDER BY id"
)
FILLED = "INSERT INTO db.indexed SELECT number % 2, number, toString(number) FROM numbers(20)"
_NUMBERS = iter(range(1_000))


@pytest.fixture
def indexed(places: Places, session: NoSpark) -> str:
    """Make a table with skip indices, in the lake with a file by another engine; its name."""
    places.reads_parts = True
    places.clickhouse_run("DROP TABLE IF EXISTS db.indexed SYNC", INDEXED, FILLED)
    name = f"indexed_{next(_NUMBERS)}"
    export_all(session, "indexed", name)
    table = opened(places, name)
    file = places.root / f"{name}.parquet"
    rows = table.scan(row_filter="p = 1").to_arrow().cast(table.schema().as_arrow())
    pq.write_table(rows, file, bloom_filter_options={"id": True, "s": True})
    table.add_files([str(file)])
    return name


def filtered(places: Places, name: str) -> set[str]:
    """Return the columns with bloom filters in any file of main."""
    found = set()
    for task in opened(places, name).scan().plan_files():
        group = pq.read_metadata(Path(task.file.file_path.removeprefix("file://"))).row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        found |= {c.path_in_schema for c in columns if c.bloom_filter_offset is not None}
    return found


@pytest.mark.parametrize(
    ("index", "left"),
    [
        ("i IN PARTITION 1", {"id"}),
        ("j", set()),
        ("`bloom_filter(id)` IN PARTITION ID '1'", {"s"}),
    ],
)
def test_the_filters_of_its_columns_go_and_the_rows_stay(
    places: Places, session: NoSpark, indexed: str, index: str, left: set[str]
) -> None:
    before = opened(places, indexed).scan().to_arrow().sort_by("id").to_pylist()
    assert filtered(places, indexed) == {"id", "s"}

    (row,) = alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX {index}")

    assert (row["status"], row["rows"], row["data_files"]) == ("changed", 10, 1)
    assert filtered(places, indexed) == left
    assert opened(places, indexed).scan().to_arrow().sort_by("id").to_pylist() == before
    (again,) = alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX {index}")
    assert again["status"] == "unchanged"
    assert {r["status"] for r in export_all(session, "indexed", indexed)} == {"already_exported"}


@pytest.mark.parametrize("index", ["nobody", "`bloom_filter(nobody)`"])
def test_an_index_that_is_not_there_is_refused_unless_it_need_not_be(
    places: Places, session: NoSpark, indexed: str, index: str
) -> None:
    with pytest.raises(RefusedError, match=r"it has no such index.* these: i, j") as refused:
        alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX {index}")
    assert refused.value.code == 36

    (row,) = alter(session, f"ALTER TABLE lake.n.{indexed} CLEAR INDEX IF EXISTS {index}")

    assert row["status"] == "unchanged"
    assert filtered(places, indexed) == {"id", "s"}
