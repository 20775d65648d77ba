"""OPTIMIZE on lake tables: as ClickHouse merges rows, into fewer files."""

from __future__ import annotations

from itertools import pairwise

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError, UnsupportedError
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

COLUMNS = "p UInt8, a String, k Nullable(Int32), v UInt32, d DateTime64(3, 'UTC'), s Int8"
ROWS = (
    "number % 2, toString(number % 5), if(number % 7 = 0, NULL, number % 3), number,"
    " toDateTime64('2024-01-01', 3) + number / 10, if(number % 3 = 0, -1, 1)"
)
SAME = "toUInt8(number % 2), toString(number % 5), number % 3, 0, toDateTime64('2024-01-01', 3), 1"
PAIRS = (
    "intDiv(number, 2) % 2, toString(intDiv(number, 2) % 5), intDiv(number, 2) % 3,"
    " intDiv(number, 2) + if(number % 12 = 1, 1000, 0), toDateTime64('2024-01-01', 3),"
    " if(number % 2 = 0, 1, -1)"
)
SMALL = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 200"
_NUMBERS = iter(range(1_000))


@pytest.fixture(autouse=True)
def _written(places: Places) -> None:
    """Let files be written of what is in the source."""
    places.reads_parts = True


def made(
    places: Places,
    session: NoSpark,
    engine: str,
    *,
    order: str = "(a, k DESC)",
    partition: str = "p",
    rows: str = ROWS,
) -> str:
    """Make a table of three parts, and export it into several files; its name on both sides."""
    name = f"merged_{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} ({COLUMNS}) ENGINE = {engine} PARTITION BY {partition}"
        f" ORDER BY {order} SETTINGS allow_nullable_key = 1, allow_experimental_reverse_key = 1,"
        " max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1",
        *(
            f"INSERT INTO db.{name} SETTINGS optimize_on_insert = 0"
            f" SELECT {rows} FROM numbers({20 * part}, 20)"
            for part in range(3)
        ),
    )
    alter(session, f"ALTER TABLE ch.db.{name} EXPORT PARTITION ALL TO TABLE lake.n.{name} {SMALL}")
    assert len(files_of(opened(places, name))) > 2
    return name


def files_of(table: Table) -> list[str]:
    """Return the data files of main."""
    return [t.file.file_path.removeprefix("file://") for t in table.scan().plan_files()]


def values(places: Places, name: str) -> list[str]:
    """Return all rows of a lake table, as they are compared."""
    return sorted(repr(row) for row in opened(places, name).scan().to_arrow().to_pylist())


def of_clickhouse(places: Places, session: NoSpark, name: str, statement: str) -> list[str]:
    """Run the statement there, export what it leaves, and return all rows."""
    places.clickhouse_run(f"OPTIMIZE TABLE db.{name} {statement}")
    export_all(session, name, f"{name}_there")
    return values(places, f"{name}_there")


@pytest.mark.representative
@pytest.mark.parametrize(
    "engine",
    ["MergeTree", pytest.param("SummingMergeTree", marks=pytest.mark.soak)],
)
def test_files_become_one_in_the_order_of_the_source(
    places: Places, session: NoSpark, engine: str
) -> None:
    """Harm prevented: thousands of small files of an export that grew day by day."""
    name = made(places, session, engine)
    before = values(places, name)

    (row,) = alter(session, f"OPTIMIZE TABLE lake.n.{name} PARTITION 1")

    assert (row["partition_id"], row["status"], row["rows"]) == ("1", "optimized", 30)
    assert values(places, name) == before
    table = opened(places, name)
    (file,) = [t.file for t in table.scan(row_filter="p = 1").plan_files()]
    path = file.file_path.removeprefix("file://")
    found = [(r["a"], r["k"]) for r in pq.read_table(path).to_pylist()]
    with EmbeddedConnection(places.clickhouse) as connection:
        there = connection.rows(
            f"SELECT a, k FROM db.{name} WHERE p = 1 ORDER BY a, k DESC NULLS FIRST"
        )
    assert found == [tuple(one) for one in there]
    assert file.sort_order_id == table.sort_order().order_id
    assert pq.read_metadata(path).row_group(0).sorting_columns


def test_it_is_the_same_export_and_verifies(places: Places, session: NoSpark) -> None:
    """Harm prevented: an export without an outcome, because its files are others."""
    name = made(places, session, "MergeTree")

    rows = alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")

    assert [row["status"] for row in rows] == ["optimized"]
    assert len(files_of(opened(places, name))) == 2
    again = export_all(session, name, name)
    assert {row["status"] for row in again} == {"already_exported"}
    found = places.outcomes("verify", f"db.{name}", "--all", "--to", f"lake.n.{name}")
    assert [one["verdict"] for one in found] == ["equal", "equal"], found
    (row,) = alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")
    message = "already as few files as its size needs (2 files)"
    assert (row["status"], row["message"]) == ("unchanged", message)


def test_the_proof_of_its_rows_outlives_the_files_and_the_source(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: a partition whose source is gone, of which nobody can say it is equal."""
    name = made(places, session, "MergeTree", partition="tuple()")
    session.call(
        "export_partitions",
        table=f"n.{name}",
        source=f"ch.db.{name}",
        max_bytes_per_file=200,
        verify=True,
        force=True,
    )

    rows = alter(session, f"OPTIMIZE TABLE lake.n.{name}")

    assert [row["status"] for row in rows] == ["optimized"]
    export_all(session, name, f"{name}_copy")
    alter(session, f"ALTER TABLE lake.n.{name}_copy DROP PARTITION ALL")
    places.clickhouse_run(f"ALTER TABLE db.{name} DROP PARTITION tuple()")
    (found,) = places.outcomes("verify", f"db.{name}", "--all", "--to", f"lake.n.{name}")
    assert (found["verdict"], found["compared_with"]) == ("equal", "digest"), found
    alter(session, f"ALTER TABLE lake.n.{name}_copy ATTACH PARTITION ALL FROM lake.n.{name}")
    (found,) = places.outcomes("verify", f"db.{name}", "--all", "--to", f"lake.n.{name}_copy")
    assert (found["verdict"], found["compared_with"]) == ("equal", "digest"), found


@pytest.mark.parametrize(
    ("engine", "statement", "rows"),
    [
        ("ReplacingMergeTree(v)", "FINAL", ROWS),
        pytest.param("ReplacingMergeTree(v)", "PARTITION 1 FINAL", ROWS, marks=pytest.mark.soak),
        ("VersionedCollapsingMergeTree(s, v)", "FINAL", PAIRS),
        ("MergeTree", "FINAL DEDUPLICATE", SAME),
        pytest.param("MergeTree", "FINAL DEDUPLICATE BY p, a, k", SAME, marks=pytest.mark.soak),
    ],
)
def test_it_leaves_the_rows_that_clickhouse_leaves(
    places: Places, session: NoSpark, engine: str, statement: str, rows: str
) -> None:
    """The same statement there, exported afterwards, gives the same rows."""
    name = made(places, session, engine, rows=rows)
    before = values(places, name)

    (row,) = alter(session, f"OPTIMIZE TABLE lake.n.{name} {statement}")

    after = values(places, name)
    assert (row["status"], row["rows"]) == ("optimized", len(before) - len(after))
    assert after == of_clickhouse(places, session, name, statement)
    assert len(after) < len(before)


def test_of_the_old_syntax_the_version_is_the_argument_after_the_keys(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: the date is taken for the version, or ClickHouse refuses the arguments."""
    name = made(places, session, "ReplacingMergeTree(v)")
    engine = "ReplacingMergeTree(d, (a, k), 8192, v)"
    with opened(places, name).transaction() as change:
        change.set_properties({"mergeberg.source.engine": engine})

    (row,) = alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")

    assert row["status"] == "optimized"
    assert values(places, name) == of_clickhouse(places, session, name, "FINAL")


def test_which_of_two_rows_is_the_later_one_is_never_guessed(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: an old row in the place of a new one."""
    name = made(places, session, "ReplacingMergeTree")
    before = values(places, name)

    with pytest.raises(RefusedError, match="which of them was inserted last"):
        alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")

    assert values(places, name) == before


@pytest.mark.soak
def test_rows_that_are_the_same_are_no_question_once_they_are_there_once(
    places: Places, session: NoSpark
) -> None:
    name = made(places, session, "ReplacingMergeTree(v)", order="(p, a, k)", rows=SAME)
    with pytest.raises(RefusedError, match="DEDUPLICATE first"):
        alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")

    alter(session, f"OPTIMIZE TABLE lake.n.{name} DEDUPLICATE")
    (row,) = alter(session, f"OPTIMIZE TABLE lake.n.{name} FINAL")

    assert row["status"] == "unchanged"
    assert values(places, name) == of_clickhouse(places, session, name, "FINAL")


@pytest.mark.parametrize(
    ("engine", "statement", "message"),
    [
        ("SummingMergeTree", "FINAL", "d: one of their values is kept, and they are different"),
        ("CollapsingMergeTree(s)", "FINAL", "which of them was inserted last"),
        ("MergeTree", "DEDUPLICATE BY v", "DEDUPLICATE"),
        ("MergeTree", "DEDUPLICATE BY nobody", "nobody"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name_and_changes_nothing(
    places: Places, session: NoSpark, engine: str, statement: str, message: str
) -> None:
    name = made(places, session, engine)
    before = opened(places, name).metadata.current_snapshot_id

    with pytest.raises((RefusedError, UnsupportedError), match=message):
        alter(session, f"OPTIMIZE TABLE lake.n.{name} {statement}")

    assert opened(places, name).metadata.current_snapshot_id == before


def test_the_partition_of_a_table_without_a_key_is_tuple(places: Places, session: NoSpark) -> None:
    name = made(places, session, "MergeTree", partition="tuple()")

    (row,) = alter(session, f"OPTIMIZE TABLE lake.n.{name} PARTITION tuple() FINAL")

    assert (row["partition_id"], row["status"]) == ("all", "optimized")
    assert len(files_of(opened(places, name))) == 1


def test_the_table_says_how_large_files_are(places: Places, session: NoSpark) -> None:
    name = made(places, session, "MergeTree", partition="tuple()")
    with opened(places, name).transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "3000"})

    alter(session, f"OPTIMIZE TABLE lake.n.{name}")

    found = [[r["a"] for r in pq.read_table(p).to_pylist()] for p in files_of(opened(places, name))]
    assert 1 < len(found) < 60
    ranges = sorted((one[0], one[-1]) for one in found)
    assert all(a[1] <= b[0] for a, b in pairwise(ranges))
    with opened(places, name).transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "many"})
    with pytest.raises(RefusedError, match="is 'many', and not a number above 0"):
        alter(session, f"OPTIMIZE TABLE lake.n.{name}")
