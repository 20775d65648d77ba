"""`write.data.path`: exports and statements write data files below it, `gc` looks there, too."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from catalog.iceberg.catalogs import open_catalog
from tableformat.errors import RefusedError
from tests.properties.duckdb_reader import DuckDBReader
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places


def set_path(places: Places, name: str, place: str) -> None:
    """Set the property, as the owner of the table does."""
    with opened(places, name).transaction() as transaction:
        transaction.set_properties({"write.data.path": place})


def paths(places: Places, name: str) -> set[Path]:
    """Return the data files of a lake table."""
    files = (task.file.file_path for task in opened(places, name).scan().plan_files())
    return {Path(path.removeprefix("file://")) for path in files}


def test_exports_and_statements_write_below_it(places: Places, session: NoSpark) -> None:
    places.reads_parts = True
    name, elsewhere = "pathed", places.root / "else where" / "files"
    export_all(session, "events", name)
    before = paths(places, name)
    set_path(places, name, f"file://{elsewhere}/")

    alter(session, f"ALTER TABLE lake.n.{name} DELETE IN PARTITION 202402 WHERE id = 2")
    (again,) = alter(
        session,
        f"ALTER TABLE ch.db.events EXPORT PARTITION ID '202401' TO TABLE lake.n.{name} {ALLOWED}, "
        "export_merge_tree_partition_force_export = 1",
    )

    assert again["status"] == "replaced"
    assert not any(path.is_relative_to(elsewhere) for path in before)
    assert {path for path in paths(places, name) if not path.is_relative_to(elsewhere)} == set()
    reader = DuckDBReader()
    try:
        found = reader.read(opened(places, name), ["id"]).column("id").to_pylist()
    finally:
        reader.close()
    assert sorted(found) == [0, 1]


def test_gc_finds_garbage_below_it_and_where_files_were_before(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: files of interrupted exports that nobody removes, and nobody sees."""
    name, elsewhere = "swept", places.root / "swept-files"
    export_all(session, "events", name)
    before = min(paths(places, name))
    set_path(places, name, f"file://{elsewhere}")
    key, rest = before.name.split("-", 1)
    transaction = rest.split("-", 1)[0]
    begun = f".{key}-{transaction}-0-{uuid.uuid4().hex[:8]}.parquet.inprogress"
    partly_written = [before.parent / begun, elsewhere / begun]
    for one in partly_written:
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_bytes(b"PAR1")

    found = places.outcomes("gc", "--to", f"lake.n.{name}", "--older-than", "0d")

    listed = {str(one["location"]).removeprefix("file://") for one in found}
    assert {str(one) for one in partly_written} <= listed


@pytest.mark.parametrize("place", ["relative/path", "s3://bucket/a?b", "/data/../etc"])
def test_a_value_that_is_no_place_is_refused_by_name(
    places: Places, session: NoSpark, place: str
) -> None:
    name = f"refused_{uuid.uuid4().hex}"
    export_all(session, "events", name)
    set_path(places, name, place)
    before = opened(places, name).metadata_location

    with pytest.raises(RefusedError, match=r"its property write\.data\.path is "):
        export_all(session, "events", name)

    table = open_catalog("lake", warehouse=places.warehouse).catalog.load_table(f"n.{name}")
    assert table.metadata_location == before
