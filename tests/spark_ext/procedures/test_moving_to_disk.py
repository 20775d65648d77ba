"""MOVE TO DISK|VOLUME on lake tables, of a source whose parts lie on several disks, too."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.file_io import LakeFileIO
from catalog.storages.schemes import BY_CATALOG, Storages
from spark_ext.procedures.declarations import Call
from spark_ext.system_tables import PARTS
from tableformat.errors import NotFoundError, RefusedError, SourceError, UnsupportedError
from tests.properties.duckdb_reader import DuckDBReader
from tests.services.minio import MinIO
from tests.support.s3_places import properties_of
from tests.support.session_lake import alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_COUNT = iter(range(1_000))


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDBReader]:
    reader = DuckDBReader()
    yield reader
    reader.close()


@pytest.fixture
def named(places: Places, session: NoSpark) -> str:
    """Export events to a table that has the disk `cold` and the volume `slow`; its name."""
    name = f"named_{next(_COUNT)}"
    export_all(session, "events", name)
    set_disks(places, name)
    return name


@pytest.fixture
def moved(places: Places, session: NoSpark) -> str:
    """Return the name of another such table, whose files have the rows of events."""
    places.reads_parts = True
    name = f"moved_{next(_COUNT)}"
    export_all(session, "events", name)
    set_disks(places, name)
    return name


def set_disks(places: Places, name: str, **more: str) -> None:
    """Name the disks of a lake table, as any engine sets its properties."""
    given = {
        "mergeberg.disk.cold": f"file://{places.root}/cold",
        "mergeberg.volume.slow": "cold",
        **{f"mergeberg.disk.{disk}": place for disk, place in more.items()},
    }
    with opened(places, name).transaction() as transaction:
        transaction.set_properties(given)


def files(places: Places, name: str) -> list[str]:
    """Return where the files of a lake table are."""
    return sorted(task.file.file_path for task in opened(places, name).scan().plan_files())


def ids(table: pa.Table, column: str = "id") -> list[int]:
    """Return the numbers of rows."""
    found: list[int] = table.column(column).to_pylist()
    return sorted(found)


def read(places: Places, name: str, store: MinIO) -> pa.Table:
    """Return the rows of a table with files in an object store."""
    table = opened(places, name)
    table.io = LakeFileIO({BY_CATALOG: Storages(properties_of(store))})
    return table.scan().to_arrow()


def disks(session: NoSpark, name: str) -> dict[str, set[str | None]]:
    """Return the disks of a lake table's partitions, as the system table parts has them."""
    names = [column.name for column in PARTS.columns]
    found: dict[str, set[str | None]] = {}
    for values in PARTS.run(Call(session.session, "", {}, session.settings)):
        row = dict(zip(names, values, strict=True))
        if row["table"] == f"lake.n.{name}":
            found.setdefault(str(row["partition_id"]), set()).add(row["disk_name"])  # type: ignore[arg-type]
    return found


def test_other_engines_read_the_partition_where_it_is_then(
    places: Places, session: NoSpark, moved: str, duckdb: DuckDBReader
) -> None:
    (row,) = alter(session, f"ALTER TABLE lake.n.{moved} MOVE PARTITION 202402 TO DISK 'cold'")

    assert (row["status"], row["rows"], row["data_files"]) == ("moved", 2, 1)
    assert disks(session, moved) == {"202401": {"default"}, "202402": {"cold"}}
    for to in ("DISK 'cold'", "VOLUME 'slow'"):
        (again,) = alter(session, f"ALTER TABLE lake.n.{moved} MOVE PARTITION 202402 TO {to}")
        assert (again["status"], again["snapshot_id"]) == ("unchanged", None)
    (first,) = alter(session, f"ALTER TABLE lake.n.{moved} MOVE PARTITION 202401 TO VOLUME 'slow'")
    assert (first["status"], disks(session, moved)["202401"]) == ("moved", {"cold"})
    assert ids(opened(places, moved).scan().to_arrow()) == [0, 1, 2]
    assert ids(duckdb.read(opened(places, moved), ["id"])) == [0, 1, 2]
    assert {r["status"] for r in export_all(session, "events", moved)} == {"already_exported"}


def test_the_proof_of_its_rows_outlives_the_source(places: Places, session: NoSpark) -> None:
    """Harm prevented: archived rows of which nobody can say any more that they are all there."""
    places.reads_parts = True
    made = "CREATE TABLE db.proved (n UInt64) ENGINE = MergeTree ORDER BY n"
    places.clickhouse_run(made, "INSERT INTO db.proved SELECT number FROM numbers(50)")
    session.call("export_partitions", table="n.proved", source="ch.db.proved", verify=True)
    set_disks(places, "proved")

    (row,) = alter(session, "ALTER TABLE lake.n.proved MOVE PARTITION tuple() TO DISK 'cold'")

    assert row["status"] == "moved"
    places.clickhouse_run("ALTER TABLE db.proved DROP PARTITION tuple()")
    (found,) = places.outcomes("verify", "db.proved", "--all", "--to", "lake.n.proved")
    assert (found["verdict"], found["compared_with"]) == ("equal", "digest"), found


def test_a_dry_run_of_the_command_line_says_what_would_move(places: Places, named: str) -> None:
    before = opened(places, named).metadata_location
    words = ("alter", f"ALTER TABLE lake.n.{named} MOVE PARTITION 202402 TO DISK 'cold'")
    at = ("--warehouse", str(places.warehouse), "--json")

    code, out, err = places.run(*words, "--dry-run", *at)
    assert (code, err) == (0, "")
    assert "would be moved (2 rows, 1 file)" in out
    assert opened(places, named).metadata_location == before

    done, out, _ = places.run(*words, *at)
    assert (done, json.loads(out.splitlines()[-1])["status"]) == (0, "moved")
    assert sum(path.startswith(f"file://{places.root}/cold/") for path in files(places, named)) == 1


REFUSED = (
    ("PARTITION 202402 TO DISK 'nope'", 479, "No such disk `nope`"),
    ("PARTITION 202402 TO VOLUME 'nope'", 548, "No such volume `nope`"),
    ("PARTITION 202402 TO DISK 'ftp'", None, "storage of the scheme 'ftp' is not supported"),
    ("PARTITION 202402 TO DISK 'here'", 36, "no absolute place"),
    ("PART '202402_9_9_0' TO DISK 'cold'", 232, "has no file of that name"),
)


def test_what_cannot_be_moved_there_is_refused_and_nothing_changes(
    places: Places, session: NoSpark, named: str
) -> None:
    set_disks(places, named, ftp="ftp://host/x", here="cold")
    before, there = opened(places, named).metadata_location, places.files()

    for statement, code, message in REFUSED:
        with pytest.raises(
            (NotFoundError, RefusedError, UnsupportedError), match=message
        ) as refused:
            alter(session, f"ALTER TABLE lake.n.{named} MOVE {statement}")
        assert refused.value.code == code, statement

    assert opened(places, named).metadata_location == before
    assert places.files() == there


def test_the_error_is_clickhouse_s(places: Places, session: NoSpark, named: str) -> None:
    """Harm prevented: who knows ClickHouse looks for another cause."""
    for to, words in (("DISK", "No such disk `nope`"), ("VOLUME", "No such volume `nope`")):
        move = f"MOVE PARTITION 202402 TO {to} 'nope'"
        with (
            EmbeddedConnection(places.clickhouse) as connection,
            pytest.raises(SourceError, match=words) as theirs,
        ):
            connection.command(f"ALTER TABLE db.events {move}")

        with pytest.raises(NotFoundError, match=words) as ours:
            alter(session, f"ALTER TABLE lake.n.{named} {move}")

        assert ours.value.code == theirs.value.code


def test_a_disk_may_be_in_another_storage_than_the_table(
    places: Places,
    session: NoSpark,
    moved: str,
    minio_server: MinIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: gc takes what lies in S3 for what nobody needs, or does not see it."""
    bucket = minio_server.make_bucket()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", minio_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", minio_server.root.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", minio_server.root.secret_key)
    monkeypatch.setenv("SSL_CERT_FILE", str(minio_server.ca_file))
    set_disks(places, moved, far=f"s3://{bucket}/lake")

    (there,) = alter(session, f"ALTER TABLE lake.n.{moved} MOVE PARTITION 202402 TO DISK 'far'")

    assert there["status"] == "moved"
    (path,) = [p for p in files(places, moved) if p.startswith(f"s3://{bucket}/lake/")]
    uuid = opened(places, moved).metadata.table_uuid
    assert path.startswith(f"s3://{bucket}/lake/{uuid}/ts_month=")
    assert ids(read(places, moved, minio_server)) == [0, 1, 2]
    code, _, _ = places.run("gc", "--to", f"lake.n.{moved}", "--older-than", "0s", "--yes")
    assert code == 0
    assert ids(read(places, moved, minio_server)) == [0, 1, 2]
    (back,) = alter(session, f"ALTER TABLE lake.n.{moved} MOVE PARTITION 202402 TO DISK 'default'")
    assert (back["status"], disks(session, moved)["202402"]) == ("moved", {"default"})
    assert ids(opened(places, moved).scan().to_arrow()) == [0, 1, 2]
    assert len(minio_server.client().list_objects_v2(Bucket=bucket)["Contents"]) == 1
