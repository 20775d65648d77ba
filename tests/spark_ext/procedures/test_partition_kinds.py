"""Every statement on partitions of every kind: one file, many, mixed, evolved, without rows."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.support.session_lake import alter, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

PARTITIONS = 5
"""Of one compact part, of many small ones, of a wide one, mixed, and of a column more."""


def _insert(partition: int, first: int, rows: int, last: str = "") -> str:
    """Return the insert of numbered rows; `last` is the value of a later column."""
    return (
        f"INSERT INTO db.kinds SELECT {partition}, number, toString(number){last and ', '}{last}"
        f" FROM numbers({first}, {rows})"
    )


BEFORE = (
    "CREATE DATABASE db",
    (
        "CREATE TABLE db.kinds (p UInt8, id UInt64, s String) ENGINE = MergeTree PARTITION BY p"
        " ORDER BY id SETTINGS min_bytes_for_wide_part = 1500,"
        " max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
    ),
    _insert(0, 0, 5),
    *(_insert(1, n, 1) for n in range(12)),
    _insert(2, 0, 300),
    *(_insert(3, 0, 2), _insert(3, 2, 200), _insert(3, 202, 1)),
)
LATER = ("ALTER TABLE db.kinds ADD COLUMN x Int32 DEFAULT 7", _insert(4, 0, 6, "9"))


@pytest.fixture(scope="module")
def module_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    places = Places(tmp_path_factory.mktemp("kinds"))
    with EmbeddedConnection(places.clickhouse, create=True) as connection:
        for sql in BEFORE:
            connection.command(sql)
    return places


def statuses_of(session: NoSpark, statement: str) -> list[object]:
    """Run a statement; return what became of each partition."""
    return [row["status"] for row in alter(session, statement)]


def rows(places: Places, name: str) -> list[tuple[Any, ...]]:
    """Return the rows of a lake table."""
    found = opened(places, name).scan().to_arrow().select(["p", "id", "s", "x"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def add_rows(places: Places, name: str) -> None:
    """Append rows as another engine does: the column that came later is in their file."""
    table = opened(places, name)
    arrow = table.schema().as_arrow()
    columns = [pa.array([value], arrow.field(n).type) for n, value in enumerate((0, 77, "f", 1))]
    table.append(pa.table(columns, schema=arrow))


def add_a_file_without_rows(places: Places, name: str) -> None:
    """Commit a file that has no row, as other engines leave them."""
    table = opened(places, name)
    path = Path(urlparse(table.location()).path) / "data" / "p=0" / "empty.parquet"
    pq.write_table(table.schema().as_arrow().empty_table(), path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(0),
        record_count=0,
        file_size_in_bytes=path.stat().st_size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=[4],
    )
    file.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        snapshot = transaction.update_snapshot()
        with snapshot.fast_append() as append:
            append.append_data_file(file)


@pytest.fixture(scope="module")
def prepared() -> list[str]:
    """Return what was prepared: the tables are made once."""
    return []


@pytest.fixture
def every(places: Places, session: NoSpark, prepared: list[str]) -> list[tuple[Any, ...]]:
    """Make two lake tables with partitions of every kind; return the rows of each."""
    places.reads_parts = True
    if not prepared:
        make(places, session)
        prepared.append("made")
    return rows(places, "two")


def make(places: Places, session: NoSpark) -> None:
    """Export partitions of every kind to two tables, of which others have files, too."""
    for to in ("one", "two"):
        session.call(
            "export_partitions",
            source="ch.db.kinds",
            table=f"lake.n.{to}",
            max_bytes_per_file=800,
        )
    with EmbeddedConnection(places.clickhouse) as connection:
        for sql in LATER:
            connection.command(sql)
    for to in ("one", "two"):
        session.call(
            "export_partition",
            source="ch.db.kinds",
            table=f"lake.n.{to}",
            partition_id="4",
            evolve_schema=True,
        )
        add_rows(places, to)
        add_a_file_without_rows(places, to)


def files_of(places: Places, name: str) -> dict[int, list[int]]:
    """Return how many rows the files of each partition have."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    table = opened(places, name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            found[entry.data_file.partition[0]].append(entry.data_file.record_count)
    return {partition: sorted(counts) for partition, counts in found.items()}


def each(command: str) -> str:
    """Return a command for every partition, with commas between them."""
    return ", ".join(command.format(f"PARTITION ID '{n}'") for n in range(PARTITIONS))


def test_the_partitions_are_of_every_kind(
    places: Places, session: NoSpark, every: list[tuple[Any, ...]]
) -> None:
    parts: defaultdict[str, set[str]] = defaultdict(set)
    for part in session.call("parts", table="ch.db.kinds"):
        parts[part["partition_id"]].add(part["part_type"])
    assert dict(parts) == {
        "0": {"Compact"},
        "1": {"Compact"},
        "2": {"Wide"},
        "3": {"Compact", "Wide"},
        "4": {"Compact"},
    }
    # A file of others without rows, one of an export and one of others; twelve; more; mixed; one.
    found = files_of(places, "two")
    assert (found[0], found[4], len(every)) == ([0, 1, 5], [6], 527)
    assert (len(found[1]) > 1, len(found[2]) > 1, len(set(found[3])) > 1) == (True, True, True)
    assert {row[3] for row in every} == {None, 1, 9}


@pytest.mark.representative
def test_statements_on_one_table_work_on_every_kind(
    places: Places, session: NoSpark, every: list[tuple[Any, ...]]
) -> None:
    """Harm prevented: a statement that takes one file for all, or an old file for a new one."""
    table = "ALTER TABLE lake.n.one"
    if 0 not in files_of(places, "one")[0]:
        # The other test has dropped it.
        add_a_file_without_rows(places, "one")

    assert statuses_of(session, f"{table} {each('DETACH {}')}") == ["detached"] * PARTITIONS
    assert rows(places, "one") == []
    assert statuses_of(session, f"{table} {each('ATTACH {}')}") == ["attached"] * PARTITIONS
    assert rows(places, "one") == every
    assert statuses_of(session, f"{table} DETACH PARTITION ALL, ATTACH PARTITION ALL") == [
        "detached",
        "attached",
    ]
    assert files_of(places, "one")[0] == [0, 1, 5]
    frozen = f"{table} FREEZE WITH NAME 'all', {each('FREEZE {}')}"
    assert statuses_of(session, frozen) == ["frozen"] * (1 + PARTITIONS)
    changed = f"{table} UPDATE s = 'u' WHERE id % 2 = 0"
    assert set(statuses_of(session, changed)) == {"changed"}
    assert rows(places, "one") == sorted((p, n, s if n % 2 else "u", x) for p, n, s, x in every)
    assert set(statuses_of(session, f"{table} DELETE WHERE id % 2 = 0")) == {"changed"}
    assert rows(places, "one") == [row for row in every if row[1] % 2]
    assert statuses_of(session, f"{table} CLEAR COLUMN s IN PARTITION ID '0'") == ["changed"]
    assert set(statuses_of(session, "OPTIMIZE TABLE lake.n.one")) == {"optimized"}
    assert rows(places, "one") == sorted((p, n, s if p else "", x) for p, n, s, x in every if n % 2)
    assert statuses_of(session, f"{table} {each('DROP {}')}") == ["dropped"] * PARTITIONS
    assert rows(places, "one") == []
    assert files_of(places, "one") == {0: [0]}
    assert statuses_of(session, f"{table} DROP PARTITION ALL") == ["dropped"]
    assert files_of(places, "one") == {}
    back = f"{table} ATTACH PARTITION ALL FROM lake.n.one.tag_all"
    assert statuses_of(session, back) == ["attached"]
    assert rows(places, "one") == every


def test_statements_between_two_tables_work_on_every_kind(
    places: Places, session: NoSpark, every: list[tuple[Any, ...]]
) -> None:
    """ATTACH, REPLACE and FETCH from, and MOVE to; what others wrote comes, too."""
    table = "ALTER TABLE lake.n.one"

    alter(session, f"{table} DROP PARTITION ALL")
    assert statuses_of(session, f"{table} {each('ATTACH {} FROM lake.n.two')}") == ["attached"] * 5
    assert rows(places, "one") == every
    alter(session, f"{table} DELETE WHERE id = 1")
    assert set(statuses_of(session, f"{table} {each('REPLACE {} FROM lake.n.two')}")) <= {
        "replaced",
        "unchanged",
    }
    assert rows(places, "one") == every
    alter(session, f"{table} DROP PARTITION ALL")
    fetch = "FETCH {} FROM 'lake.n.two'"
    assert statuses_of(session, f"{table} {each(fetch)}") == ["fetched"] * PARTITIONS
    assert statuses_of(session, f"{table} ATTACH PARTITION ALL") == ["attached"]
    assert rows(places, "one") == every
    alter(session, f"{table} DROP PARTITION ALL")
    moved = f"ALTER TABLE lake.n.two {each('MOVE {} TO TABLE lake.n.one')}"
    assert statuses_of(session, moved) == ["moved"] * PARTITIONS
    assert (rows(places, "one"), rows(places, "two")) == (every, [])
    alter(session, "ALTER TABLE lake.n.two ATTACH PARTITION ALL FROM lake.n.one")
    assert rows(places, "two") == every
