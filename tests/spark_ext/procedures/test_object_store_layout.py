"""`write.object-storage.enabled`: new files have a hash before their partition directory."""

from __future__ import annotations

import re
from pathlib import Path

from tests.properties.duckdb_reader import DuckDBReader
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

HASHED = r"data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/"


def exported(places: Places, session: NoSpark, name: str) -> dict[str, str]:
    """Export a table whose files are read; return the paths of its files."""
    places.reads_parts = True
    export_all(session, "events", name)
    return paths(places, name)


def lay_out(places: Places, name: str, **values: str) -> None:
    """Set properties about paths, as the owner of the table does."""
    properties = {
        f"write.object-storage.{key.replace('_', '-')}": value for key, value in values.items()
    }
    with opened(places, name).transaction() as transaction:
        transaction.set_properties(properties)


def paths(places: Places, name: str) -> dict[str, str]:
    """Return the location of each data file in main below the table's, by its partition."""
    table = opened(places, name)
    return {
        str(task.file.partition[0]): task.file.file_path.removeprefix(f"{table.location()}/")
        for task in table.scan().plan_files()
    }


def ids(places: Places, name: str) -> list[int]:
    """Return the ids in main as DuckDB reads them."""
    reader = DuckDBReader()
    try:
        return sorted(reader.read(opened(places, name), ["id"]).column("id").to_pylist())
    finally:
        reader.close()


def replaced(session: NoSpark, name: str, partition: str) -> None:
    """Export a partition once more."""
    settings = f"{ALLOWED}, export_merge_tree_partition_force_export = 1"
    statement = f"EXPORT PARTITION ID '{partition}' TO TABLE lake.n.{name} {settings}"
    (again,) = alter(session, f"ALTER TABLE ch.db.events {statement}")
    assert again["status"] == "replaced"


def test_exports_and_statements_put_a_hash_before_the_partition(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: the store limits the requests for a table whose owner asked for hashes."""
    name = "hashed"
    before = exported(places, session, name)
    lay_out(places, name, enabled="true")

    alter(session, f"ALTER TABLE lake.n.{name} DELETE IN PARTITION 202402 WHERE id = 2")
    replaced(session, name, "202401")
    export_all(session, "events", "hashed_source")
    alter(session, f"ALTER TABLE lake.n.{name} DROP PARTITION 202402")
    alter(session, f"ALTER TABLE lake.n.{name} ATTACH PARTITION 202402 FROM lake.n.hashed_source")

    after = paths(places, name)
    assert len(after) == len(before) == 2
    for partition, path in before.items():
        directory = Path(path).parent.relative_to("data")
        assert re.fullmatch(f"{HASHED}{directory}/[^/]+", after[partition])
    assert ids(places, name) == [0, 1, 2]
    assert places.outcomes("gc", "--to", f"lake.n.{name}", "--older-than", "0d") is not None


def test_a_file_that_replaces_a_hashed_one_has_a_hash_of_its_own(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: hashes pile up in a path, or a path keeps that of another file."""
    name = "hashed_again"
    plain = exported(places, session, name)
    lay_out(places, name, enabled="true")
    replaced(session, name, "202402")
    first = paths(places, name)

    alter(session, f"ALTER TABLE lake.n.{name} DELETE IN PARTITION 202402 WHERE id = 2")
    second = paths(places, name)
    lay_out(places, name, enabled="false")
    alter(session, f"ALTER TABLE lake.n.{name} UPDATE s = 'x' IN PARTITION 202402 WHERE id = 1")

    (changed,) = {p for p in first if first[p] != plain[p]}
    directory = Path(plain[changed]).parent.relative_to("data")
    for path in (first[changed], second[changed]):
        assert re.fullmatch(f"{HASHED}{directory}/[^/]+", path)
    assert Path(first[changed]).parent != Path(second[changed]).parent
    assert Path(paths(places, name)[changed]).parent == Path(plain[changed]).parent
    assert ids(places, name) == [0, 1]


def test_the_partition_may_be_left_out_of_the_path(places: Places, session: NoSpark) -> None:
    name = "hashed_only"
    exported(places, session, name)
    lay_out(places, name, enabled="true", partitioned_paths="false")

    replaced(session, name, "202402")

    (path,) = (one for one in paths(places, name).values() if "=" not in one)
    assert re.fullmatch(f"{HASHED}[^/]+", path)
    assert ids(places, name) == [0, 1, 2]
