"""Replacements, and first exports with foreign files, that docs/reference/errors.md refuses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import pyarrow as pa
import pytest

from catalog.clickhouse import table_description
from catalog.iceberg.catalogs import open_catalog
from tableformat.mergetree.table import KeeperNode, KeeperUnavailable
from tableformat.names import TableName
from tests.support.errors_page import Refusal, refusal_of
from tests.support.other_engines import delete_by_equality
from tests.wrong.places import Places

__all__ = [
    "WORDS",
    "archived",
    "deleted_by_equality",
    "foreign_files",
    "namesake",
    "other_source",
    "other_table",
    "part_of_another",
    "pending_updates",
    "renamed",
    "silent_keeper",
    "too_many",
]

_ALL = ("export", "db.events", "--to", "lake.n.new", "--all")
_WHOLE = ("--force", "--replace-partition")
_JANUARY = ("--partition-id", "202401")
WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "`--check-rows` with `--force`": (*_ALL, "--check-rows", "--force"),
        "`--incremental` with `--force`": (*_ALL, "--incremental", "--force"),
        "`--incremental` into a tree of Hive directories": (
            "export", "db.events", "--to", "hive:file:///nowhere", "--all", "--incremental",
            "--hive-column", "month=toYYYYMM(ts)",
        ),
        "`--replace-partition` without `--force`": (*_ALL, "--replace-partition"),
        "`--replace-partition` with `--overwrite-file-if-exists`": (
            *_ALL, *_WHOLE, "--overwrite-file-if-exists",
        ),
        "`--replace-partition` where partitions share a lake partition": (
            *_ALL, *_WHOLE, "--partition-spec", "unpartitioned",
        ),
    }
)  # fmt: skip
"""What is wrong, and the command, which changes nothing."""


def foreign_files(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    """Export into a lake partition that others have written to."""
    to = ("--to", "lake.n.theirs")
    places.run("export", "db.events", "--partition-id", "202402", *to)
    table = open_catalog("lake", warehouse=places.warehouse).catalog.load_table("n.theirs")
    row = {"ts": datetime(2024, 1, 5, tzinfo=UTC), "id": 1, "s": "theirs"}
    table.append(pa.Table.from_pylist([row], table.schema().as_arrow()))
    return refusal_of(places, ("export", "db.events", *_JANUARY, *to))


def deleted_by_equality(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    """Export a partition of whose rows another engine deleted some by equality."""
    to = ("--to", "lake.n.deleted")
    places.run("export", "db.events", *_JANUARY, *to)
    table = open_catalog("lake", warehouse=places.warehouse).catalog.load_table("n.deleted")
    (task,) = table.scan().plan_files()
    delete_by_equality(table, task.file, table.schema().find_field("id").field_id, 0)
    return refusal_of(places, ("export", "db.events", *_JANUARY, *to))


def archived(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    """Export rows that arrived after their partition was archived."""
    places.reads_parts = True
    to = ("--to", "lake.n.archived")
    places.clickhouse_run(*_table("late", ""))
    assert places.run("archive", "db.late", *_JANUARY, *to)[0] == 0
    places.clickhouse_run("INSERT INTO db.late VALUES ('2024-01-05', 2)")
    return refusal_of(places, ("export", "db.late", *_JANUARY, *to))


def equal_to_archived(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    """Export rows that were inserted again after their partition was archived and dropped."""
    places.reads_parts = True
    to = ("--to", "lake.n.equal")
    create, insert = _table("equal", "")
    places.clickhouse_run(create, insert)
    assert places.run("archive", "db.equal", *_JANUARY, "--drop", *to)[0] == 0
    places.clickhouse_run(insert)
    return refusal_of(places, ("export", "db.equal", *_JANUARY, *to))


def pending_updates(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    """Export a partition with lightweight updates that its parts do not have yet."""
    kept = "enable_block_number_column = 1, enable_block_offset_column = 1"
    places.clickhouse_run(
        *_table("pending", f"SETTINGS {kept}"),
        "SYSTEM STOP MERGES db.pending",
        "UPDATE db.pending SET id = 7 WHERE id = 1",
    )
    return refusal_of(places, ("export", "db.pending", *_JANUARY, "--to", "lake.n.pending"))


def _table(name: str, settings: str) -> tuple[str, str]:
    """Return what makes a table with a row in 202401."""
    engine = f"MergeTree PARTITION BY toYYYYMM(ts) ORDER BY tuple() {settings}"
    return (
        f"CREATE TABLE db.{name} (ts DateTime('UTC'), id Int64) ENGINE = {engine}",
        f"INSERT INTO db.{name} VALUES ('2024-01-05', 1)",
    )


def too_many(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Replace more partitions than --max-replace allows."""
    words = ("export", "db.other", "--all", "--to", "lake.n.limited")
    places.run(*words)
    return (*words, "--force", "--max-replace", "1")


def other_source(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    """Replace a whole lake partition in which another table has rows."""
    to = ("--to", "lake.n.shared")
    places.run("export", "db.other", *_JANUARY, *to)
    return refusal_of(places, ("export", "db.events", *_JANUARY, *_WHOLE, *to))


def other_table(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
    """Export a table of the Keeper path of another one, of another ensemble."""
    return _under(places, patch, KeeperNode(98, 1_700_000_777_000))


def namesake(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
    """Export a table that was recreated since it was exported."""
    words = ("export", "db.events", *_JANUARY, "--to", "lake.n.namesake")
    places.run(*words)
    patch.setattr(
        table_description, "_identity", lambda *_: "uuid:00000000-0000-4000-8000-000000000001"
    )
    return refusal_of(places, words)


def part_of_another(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    """Export a table that has the parts of one of another name."""
    to = ("--to", "lake.n.twice")
    places.run("export", "db.other", *_JANUARY, *to)
    return refusal_of(places, ("export", "db.events", *_JANUARY, *to))


def renamed(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    """Export a table without a UUID under another name, when no part is as it was."""
    to = ("--partition-id", "all", "--to", "lake.n.renamed")
    places.clickhouse_run(
        "SET allow_deprecated_database_ordinary = 1",
        "CREATE DATABASE o ENGINE = Ordinary",
        "CREATE TABLE o.was (id Int64) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO o.was VALUES (1)",
    )
    places.run("export", "o.was", *to)
    places.clickhouse_run(
        "RENAME TABLE o.was TO o.is", "INSERT INTO o.is VALUES (2)", "OPTIMIZE TABLE o.is FINAL"
    )
    return refusal_of(places, ("export", "o.is", *to))


def silent_keeper(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
    """Export a table again while its Keeper is away."""
    return _under(places, patch, KeeperUnavailable("Session expired. (KEEPER_EXCEPTION)"))


def _under(
    places: Places, patch: pytest.MonkeyPatch, node: KeeperNode | KeeperUnavailable
) -> Refusal:
    """Export a table, and then one of the same path under another node."""
    words = ("export", "db.events", *_JANUARY, "--to", f"lake.n.under_{type(node).__name__}")

    def path(*asked: object) -> tuple[str, str]:
        of_source = any(isinstance(a, TableName) and a.database == "db" for a in asked)
        return ("/tables/01/events" if of_source else "", "default")

    patch.setattr(table_description, "_keeper_path", path)
    patch.setattr(table_description, "node_of", lambda *_: KeeperNode(11, 1_700_000_000_000))
    places.run(*words)
    patch.setattr(table_description, "node_of", lambda *_: node)
    return refusal_of(places, words)
