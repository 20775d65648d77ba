"""FETCH PARTITION and PART from directories of Parquet files that somebody put there."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import NotFoundError, RefusedError, TableFormatError, UsageError
from tests.support.session_lake import alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

FEBRUARY = [("2024-02-01", 1, "1"), ("2024-02-02", 2, "2")]


@pytest.fixture
def real(places: Places, session: NoSpark, request: pytest.FixtureRequest) -> str:
    """Return the name of a lake table of the events, of which every reader reads the files."""
    places.reads_parts = True
    name = f"real_{abs(hash(request.node.name))}"
    export_all(session, "events", name)
    return name


@pytest.fixture
def table(places: Places, session: NoSpark) -> str:
    """Return the name of a lake table that every refusal leaves as it is, and so the next finds."""
    if not (places.warehouse / "n" / "refusing").exists():
        export_all(session, "events", "refusing")
    return "refusing"


@pytest.fixture
def other(session: NoSpark, real: str) -> str:
    """Return the name of another lake table with the same rows."""
    export_all(session, "events", f"{real}_other")
    return f"{real}_other"


def rows_in_lake(
    places: Places, name: str, snapshot_id: int | None = None
) -> list[tuple[str, int, str]]:
    """Return the rows of a lake table as PyIceberg reads them."""
    rows = opened(places, name).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted((str(r["ts"].date()), r["id"], r["s"]) for r in rows)


def as_duckdb_reads(places: Places, name: str) -> list[tuple[str, int, str]]:
    """Return the rows of a lake table as DuckDB reads its data files, by their field ids."""
    files = [task.file.file_path for task in opened(places, name).scan().plan_files()]
    schema = (
        "MAP {1: {name: 'ts', type: 'TIMESTAMPTZ', default_value: NULL},"
        " 2: {name: 'id', type: 'BIGINT', default_value: NULL},"
        " 3: {name: 's', type: 'VARCHAR', default_value: NULL}}"
    )
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT strftime(ts AT TIME ZONE 'UTC', '%Y-%m-%d'), id, s"
            f" FROM read_parquet({files}, schema = {schema}) ORDER BY ALL"
        ).fetchall()
    return [(str(day), int(number), str(text)) for day, number, text in found]


def written_by_duckdb(path: Path, rows: list[tuple[str, int, str]] = FEBRUARY) -> None:
    values = ", ".join(
        f"(TIMESTAMPTZ '{day} 00:00:00+00', {n}::BIGINT, '{s}')" for day, n, s in rows
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * FROM (VALUES {values}) AS v(ts, id, s)) TO '{path}' (FORMAT parquet)"
        )


def written_by_clickhouse(path: Path, places: Places) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command(
            f"INSERT INTO FUNCTION file('{path}', Parquet) SELECT s, id, ts FROM db.events"
            " WHERE toYYYYMM(ts) = 202402"
        )


def copied_from_the_lake(path: Path, places: Places, name: str, at: int | None = None) -> None:
    for task in opened(places, name).scan(snapshot_id=at).plan_files():
        place = path / Path(task.file.file_path).parent.name
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(task.file.file_path.removeprefix("file://"), place)


@pytest.mark.parametrize("by", ["duckdb", "clickhouse", "another lake"])
def test_files_that_somebody_put_there_are_detached_and_then_attached(
    places: Places, session: NoSpark, real: str, tmp_path: Path, by: str
) -> None:
    name = f"lake.n.{real}"
    directory = tmp_path / "put there"
    if by == "duckdb":
        written_by_duckdb(directory / "a.parquet", FEBRUARY[:1])
        written_by_duckdb(directory / "deeper" / "b.parquet", FEBRUARY[1:])
        (directory / "_SUCCESS").touch()
    elif by == "clickhouse":
        written_by_clickhouse(directory / "a.parquet", places)
    else:
        # Files of the other partition lie there, too.
        copied_from_the_lake(directory, places, real)
    alter(session, f"ALTER TABLE {name} DROP PARTITION 202402")
    main = opened(places, real).metadata.current_snapshot_id

    (row,) = alter(session, f"ALTER TABLE {name} FETCH PARTITION 202402 FROM '{directory}'")

    assert (row["status"], row["rows"], row["partition_id"]) == ("fetched", 2, "202402")
    table = opened(places, real)
    assert table.metadata.current_snapshot_id == main
    detached = table.metadata.refs["detached"].snapshot_id
    assert rows_in_lake(places, real, detached) == FEBRUARY
    (row,) = alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402")
    assert (row["status"], row["rows"]) == ("attached", 2)
    assert rows_in_lake(places, real) == [("2024-01-31", 0, "0"), *FEBRUARY]
    assert as_duckdb_reads(places, real) == rows_in_lake(places, real)
    assert rows_in_february(places, real) == 2
    with pytest.raises(RefusedError):
        export_all(session, "events", real)
    assert rows_of(places, real) == 3


def test_a_backup_that_was_copied_elsewhere_brings_back_what_was_deleted(
    places: Places, session: NoSpark, real: str, tmp_path: Path
) -> None:
    """FREEZE, copy the files of the tag, UNFREEZE and DROP; then FETCH and ATTACH (P-44, P-48)."""
    name, directory = f"lake.n.{real}", tmp_path / "backup"
    alter(session, f"ALTER TABLE {name} FREEZE PARTITION 202402 WITH NAME 'backup'")
    tag = opened(places, real).metadata.refs["backup"].snapshot_id
    copied_from_the_lake(directory, places, real, tag)
    assert len([*directory.rglob("*.parquet")]) == 1, "the backup is of one partition"
    alter(session, f"ALTER TABLE {name} UNFREEZE WITH NAME 'backup', DROP PARTITION 202402")
    table = opened(places, real)
    head = table.metadata.current_snapshot_id
    expiry = table.maintenance.expire_snapshots()
    expiry.by_ids([s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != head])
    expiry.commit()

    alter(
        session,
        f"ALTER TABLE {name} FETCH PARTITION 202402 FROM '{directory}', ATTACH PARTITION 202402",
    )

    assert rows_in_lake(places, real) == [("2024-01-31", 0, "0"), *FEBRUARY]


def rows_in_february(places: Places, name: str) -> int:
    """Return the rows of files that a reader looks at for a day: by their partition."""
    scan = opened(places, name).scan(row_filter="ts >= '2024-02-01T00:00:00+00:00'")
    return sum(task.file.record_count for task in scan.plan_files())


def test_one_file_is_fetched_by_its_address_or_as_a_part(
    places: Places, session: NoSpark, real: str, tmp_path: Path
) -> None:
    name = f"lake.n.{real}"
    alter(session, f"ALTER TABLE {name} DROP PARTITION 202402")
    for number, row in enumerate(FEBRUARY, 1):
        written_by_duckdb(tmp_path / f"202402_{number}_{number}_0.parquet", [row])

    (one,) = alter(
        session,
        f"ALTER TABLE {name} FETCH PARTITION 202402 FROM 'file://{tmp_path}/202402_2_2_0.parquet'",
    )
    alter(session, f"ALTER TABLE {name} DROP DETACHED PARTITION 202402")
    (part,) = alter(session, f"ALTER TABLE {name} FETCH PART '202402_1_1_0' FROM '{tmp_path}'")

    assert (one["status"], one["rows"], part["status"], part["rows"]) == (
        "fetched",
        1,
        "fetched",
        1,
    )
    alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402")
    assert rows_in_lake(places, real) == [("2024-01-31", 0, "0"), FEBRUARY[0]]
    with pytest.raises(NotFoundError, match="there is no part of that name") as refused:
        alter(session, f"ALTER TABLE {name} FETCH PART '202402_9_9_0' FROM '{tmp_path}'")
    assert refused.value.code == 234


def test_of_two_files_of_one_name_none_is_taken_for_the_part(
    places: Places, session: NoSpark, table: str, tmp_path: Path
) -> None:
    """Harm prevented: half of the rows are fetched, and no message says which."""
    for directory, row in zip(("a", "b"), FEBRUARY, strict=True):
        written_by_duckdb(tmp_path / directory / "202402_1_1_0.parquet", [row])
    before = places.files()

    with pytest.raises(RefusedError, match="are both named so") as refused:
        alter(session, f"ALTER TABLE lake.n.{table} FETCH PART '202402_1_1_0' FROM '{tmp_path}'")

    assert refused.value.code == 36
    assert places.files() == before


def test_a_part_of_another_lake_table_is_fetched(
    places: Places, session: NoSpark, real: str, other: str
) -> None:
    name = f"lake.n.{real}"
    alter(session, f"ALTER TABLE {name} DROP PARTITION 202402")

    (row,) = alter(session, f"ALTER TABLE {name} FETCH PART '202402_2_2_0' FROM 'lake.n.{other}'")

    assert (row["status"], row["rows"], rows_of(places, real)) == ("fetched", 2, 1)
    with pytest.raises(NotFoundError, match="Cannot find part 202402_7_7_0") as refused:
        alter(session, f"ALTER TABLE {name} FETCH PART '202402_7_7_0' FROM 'lake.n.{other}'")
    assert refused.value.code == 234


def test_all_differences_of_all_files_are_reported_before_any_work(
    places: Places, session: NoSpark, table: str, tmp_path: Path
) -> None:
    name = f"lake.n.{table}"
    utc = pa.timestamp("ns", "UTC")
    pq.write_table(
        pa.table({"ts": pa.array([0], utc), "id": ["1"], "s": ["1"]}), tmp_path / "a.parquet"
    )
    pq.write_table(pa.table({"id": [1], "more": [1]}), tmp_path / "b.parquet")
    before = places.files()

    with pytest.raises(RefusedError, match="Tables have different structure") as refused:
        alter(session, f"ALTER TABLE {name} FETCH PARTITION 202402 FROM '{tmp_path}'")

    assert refused.value.code == 122
    for message in (
        "a.parquet: its column ts is timestamp[ns, tz=UTC], and the table's is",
        "its column id is string, and the table's is int64",
        "b.parquet: it has no column ts, it has no column s, it has a column more",
    ):
        assert message in str(refused.value)
    assert places.files() == before


def put(tmp_path: Path, what: str) -> None:
    """Put files there that are no rows of 202402."""
    if what == "a file of two partitions":
        written_by_duckdb(tmp_path / "a.parquet", [("2024-01-31", 0, "0"), *FEBRUARY])
    elif what == "NULL where a value is required":
        row = pa.table(
            {
                "ts": pa.array([1706745600000000], pa.timestamp("us", "UTC")),
                "id": pa.array([None], pa.int64()),
                "s": ["1"],
            }
        )
        pq.write_table(row, tmp_path / "a.parquet")
    elif what == "no Parquet file":
        (tmp_path / "a.parquet").write_text("PAR1")
    elif what == "another name":
        written_by_duckdb(tmp_path / "a.parquet")
        (tmp_path / "notes.txt").touch()
    elif what in ("a link to a directory", "a link to nothing"):
        written_by_duckdb(tmp_path / "there" / "a.parquet", FEBRUARY[:1])
        written_by_duckdb(tmp_path / "_elsewhere" / "b.parquet", FEBRUARY[1:])
        directory = "_elsewhere" if what == "a link to a directory" else "nowhere"
        (tmp_path / "there" / "b.parquet").symlink_to(tmp_path / directory)
    elif what == "another partition":
        written_by_duckdb(tmp_path / "a.parquet", [("2024-01-31", 0, "0")])


@pytest.mark.parametrize(
    ("what", "message", "code"),
    [
        (
            "a file of two partitions",
            "a.parquet holds rows of partition 202402 and of 202401",
            None,
        ),
        ("NULL where a value is required", "column id: it has NULLs", None),
        ("no Parquet file", "a.parquet is not a readable Parquet file", None),
        ("another name", "notes.txt does not have the name of a Parquet file", None),
        ("a link to a directory", "b.parquet is not a file", None),
        ("a link to nothing", "b.parquet is not a file", None),
        ("another partition", "has no files of it", 257),
        ("nothing", "there is no Parquet file at", 257),
    ],
)
def test_what_is_no_partition_of_the_table_is_refused_and_changes_nothing(
    places: Places,
    session: NoSpark,
    table: str,
    tmp_path: Path,
    what: str,
    message: str,
    code: int | None,
) -> None:
    put(tmp_path, what)
    before = places.files()

    with pytest.raises(TableFormatError, match=message) as refused:
        alter(
            session,
            f"ALTER TABLE lake.n.{table} FETCH PARTITION 202402 FROM '{tmp_path}'",
        )

    assert refused.value.code == code
    assert places.files() == before


def test_a_malformed_address_is_reported(session: NoSpark, table: str) -> None:
    with pytest.raises(UsageError, match="neither the name of a lake table"):
        alter(session, f"ALTER TABLE lake.n.{table} FETCH PARTITION 202402 FROM 'here'")


def test_nothing_is_attached_alongside_rows_that_may_be_the_same(
    places: Places, session: NoSpark, real: str, tmp_path: Path
) -> None:
    """Harm prevented: rows that others wrote, and a copy of their file, are there twice."""
    name = f"lake.n.{real}"
    alter(session, f"ALTER TABLE {name} DROP PARTITION 202402")
    table = opened(places, real)
    written_by_duckdb(tmp_path / "a.parquet")
    rows = pq.read_table(tmp_path / "a.parquet")
    table.append(rows.cast(table.schema().as_arrow()))
    alter(session, f"ALTER TABLE {name} FETCH PARTITION 202402 FROM '{tmp_path}'")

    with pytest.raises(RefusedError, match="it is unknown whether the fetched rows"):
        alter(session, f"ALTER TABLE {name} ATTACH PARTITION 202402")

    assert rows_of(places, real) == 3


def test_what_is_detached_already_is_not_fetched_over(
    places: Places, session: NoSpark, real: str, tmp_path: Path
) -> None:
    name = f"lake.n.{real}"
    written_by_duckdb(tmp_path / "a.parquet")
    alter(session, f"ALTER TABLE {name} DETACH PARTITION 202402")
    before = places.files()

    with pytest.raises(RefusedError, match="are detached here already") as refused:
        alter(session, f"ALTER TABLE {name} FETCH PARTITION 202402 FROM '{tmp_path}'")

    assert refused.value.code == 256
    assert places.files() == before


def test_a_rehearsal_says_what_would_be_fetched_and_does_nothing(
    places: Places, table: str, tmp_path: Path
) -> None:
    written_by_duckdb(tmp_path / "a.parquet")
    before = places.files()

    code, out, err = places.run(
        "alter",
        f"ALTER TABLE lake.n.{table} FETCH PARTITION 202402 FROM '{tmp_path}'",
        *("--warehouse", str(places.warehouse), "--source", f"chdb:{places.clickhouse}"),
        "--dry-run",
    )

    expected = "dry run: partition 202402 would be fetched (2 rows, 1 file)\n"
    assert (code, out) == (0, expected), err
    assert places.files() == before
