"""A table that was exported under another name is not added to what was exported of it.

Tables of databases of the engine Ordinary have no UUID: only their name tells them apart. Tables of
others keep their UUID when they are renamed, but parts that are attached or copied do not.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tableformat.errors import RefusedError
from tableformat.export.outcome import Outcome, Status
from tableformat.messages import plain
from tableformat.names import TableName
from tests.support.frozen_folders import freeze
from tests.support.real_export import RealExport

_NUMBERS = itertools.count(1)
_KEYS = "ENGINE = MergeTree PARTITION BY p ORDER BY k"


def made(exports: RealExport, database: str, *, parts: int = 2) -> TableName:
    """Make a table of two partitions, each of so many parts, in a database of a kind."""
    engine = "Ordinary" if database == "o" else "Atomic"
    exports.clickhouse.command("SET allow_deprecated_database_ordinary = 1")
    exports.clickhouse.command(f"CREATE DATABASE IF NOT EXISTS {database} ENGINE = {engine}")
    name = TableName(database, f"n{next(_NUMBERS)}")
    exports.clickhouse.command(f"CREATE TABLE {name.sql} (p UInt8, k UInt64, s String) {_KEYS}")
    exports.clickhouse.command(f"SYSTEM STOP MERGES {name.sql}")
    for number in range(parts):
        insert(exports, name, number * 100)
    return name


def insert(exports: RealExport, name: TableName, first: int, rows: int = 100) -> None:
    exports.clickhouse.command(
        f"INSERT INTO {name.sql} SELECT number % 2, number, '{name.name}'"
        f" FROM numbers({first}, {rows})"
    )


def renamed(exports: RealExport, name: TableName) -> TableName:
    new = TableName(name.database, f"{name.name}_renamed")
    exports.clickhouse.command(f"RENAME TABLE {name.sql} TO {new.sql}")
    return new


def identity(exports: RealExport, name: TableName) -> str:
    return exports.clickhouse.source.describe(name).identity


def assert_refused(found: list[Outcome], then: str, why: str) -> None:
    """Check that every partition is refused, and that the refusal says how to go on."""
    assert [o.status for o in found] == [Status.REFUSED] * 2
    for one in found:
        assert why in plain(one.message)
        assert f"use --same-as {then};" in plain(one.message)
        assert "add them with --overwrite-file-if-exists" in plain(one.message)


@pytest.mark.parametrize("merged", [False, True], ids=["as it was", "merged"])
@pytest.mark.parametrize("grown", [False, True], ids=["no more rows", "more rows"])
def test_a_renamed_table_known_by_its_name_alone_is_exported_once(
    exports: RealExport, *, merged: bool, grown: bool
) -> None:
    """Harm prevented: RENAME in a database of the engine Ordinary doubles every row."""
    old = made(exports, "o")
    then = identity(exports, old)
    assert {o.status for o in exports.run(old)} == {Status.COMMITTED}
    before = exports.in_lake(old)
    new = renamed(exports, old)
    if grown:
        insert(exports, new, 1000)
    if merged:
        exports.clickhouse.command(f"SYSTEM START MERGES {new.sql}")
        exports.clickhouse.command(f"OPTIMIZE TABLE {new.sql} FINAL")

    found = exports.run(new, to=old)

    assert_refused(found, then, "" if merged else f"was exported from {old} already")
    assert exports.in_lake(old) == before
    ended = exports.run(new, to=old, same_as=then, force=grown)
    assert {o.status for o in ended} == {Status.REPLACED if grown else Status.ALREADY_EXPORTED}
    assert exports.in_lake(old) == exports.in_source(new)


def test_a_table_whose_old_name_another_one_has_is_known_by_its_parts(exports: RealExport) -> None:
    """Tables that are rotated: a new one under the name, the old one under another."""
    old = made(exports, "o")
    then = identity(exports, old)
    exports.run(old)
    before = exports.in_lake(old)
    new = renamed(exports, old)
    exports.clickhouse.command(f"CREATE TABLE {old.sql} (p UInt8, k UInt64, s String) {_KEYS}")
    insert(exports, old, 0, rows=1000)
    exports.clickhouse.command(f"SYSTEM START MERGES {new.sql}")
    exports.clickhouse.command(f"OPTIMIZE TABLE {new.sql} FINAL")

    found = exports.run(new, to=old)
    again = exports.run(old)

    assert_refused(found, then, f"its parts are those that were exported from {old}, merged")
    assert [o.status for o in again] == [Status.REFUSED] * 2
    assert all(
        "it was created again, or another table was renamed to it" in o.message for o in again
    )
    assert exports.in_lake(old) == before


def test_existing_tables_that_share_no_part_are_exported_together(
    exports: RealExport,
) -> None:
    """One lake table for several tables, such as one for each customer."""
    one, other = made(exports, "o"), made(exports, "o", parts=3)

    first, second = exports.run(one), exports.run(other, to=one)

    assert {o.status for o in (*first, *second)} == {Status.COMMITTED}
    rows = sorted((*exports.in_source(one), *exports.in_source(other)))
    assert exports.in_lake(one) == rows


def test_the_changed_table_of_a_name_is_replaced_as_ever(exports: RealExport) -> None:
    name = made(exports, "o")
    exports.run(name)
    insert(exports, name, 1000)
    exports.clickhouse.command(f"SYSTEM START MERGES {name.sql}")
    exports.clickhouse.command(f"OPTIMIZE TABLE {name.sql} FINAL")

    found = exports.run(name, force=True)

    assert {o.status for o in found} == {Status.REPLACED}
    assert exports.in_lake(name) == exports.in_source(name)


def test_a_renamed_table_with_a_uuid_is_the_table_that_it_was(exports: RealExport) -> None:
    old = made(exports, "a")
    exports.run(old)
    before = exports.in_lake(old)
    new = renamed(exports, old)

    found = exports.run(new, to=old)

    assert {o.status for o in found} == {Status.ALREADY_EXPORTED}
    assert exports.in_lake(old) == before


@pytest.mark.parametrize("word", ["REPLACE", "MOVE", "ATTACH"])
@pytest.mark.parametrize("database", ["a", "o"])
def test_parts_that_another_table_has_too_are_added_only_on_request(
    exports: RealExport, database: str, word: str
) -> None:
    """Two tables that hold the same rows: whether the lake is to have them twice the user says."""
    one = made(exports, database)
    exports.run(one)
    before = exports.in_lake(one)
    other = made(exports, database, parts=0)
    sql = {
        "REPLACE": f"ALTER TABLE {other.sql} REPLACE PARTITION {{}} FROM {one.sql}",
        "MOVE": f"ALTER TABLE {one.sql} MOVE PARTITION {{}} TO TABLE {other.sql}",
        "ATTACH": f"ALTER TABLE {other.sql} ATTACH PARTITION {{}} FROM {one.sql}",
    }[word]
    for partition in (0, 1):
        exports.clickhouse.command(sql.format(partition))

    found = exports.run(other, to=one)

    assert_refused(found, identity(exports, one), f"was exported from {one} already")
    assert exports.in_lake(one) == before
    assert {o.status for o in exports.run(other, to=one, alongside=True)} == {Status.COMMITTED}
    assert exports.in_lake(one) == sorted([*before, *before])


@pytest.mark.parametrize("database", ["a", "o"])
def test_partitions_that_were_moved_and_merged_are_added_only_on_request(
    exports: RealExport, database: str
) -> None:
    """Harm prevented: rows twice, once a merge has given the moved parts other hashes."""
    one = made(exports, database)
    exports.run(one)
    before = exports.in_lake(one)
    other = made(exports, database, parts=1)
    for partition in (0, 1):
        exports.clickhouse.command(
            f"ALTER TABLE {one.sql} MOVE PARTITION {partition} TO TABLE {other.sql}"
        )
    exports.clickhouse.command(f"SYSTEM START MERGES {other.sql}")
    exports.clickhouse.command(f"OPTIMIZE TABLE {other.sql} FINAL")

    found = exports.run(other, to=one)

    assert_refused(found, identity(exports, one), "they may have been moved here")
    assert exports.in_lake(one) == before
    assert {o.status for o in exports.run(other, to=one, alongside=True)} == {Status.COMMITTED}


def test_frozen_parts_under_another_identity_are_known_by_their_parts(
    exports: RealExport, tmp_path: Path
) -> None:
    """Harm prevented: a backup that is named otherwise doubles what its table exported."""
    name = made(exports, "a")
    exports.run(name)
    before = exports.in_lake(name)
    folders = freeze(exports.clickhouse, name, tmp_path).with_settings(identity="name:backup")
    folders.replaced(f"{name.name}", "restored")

    with folders.source() as source:
        found = exports.run(TableName("a", "restored"), to=name, source=source)

    assert_refused(found, identity(exports, name), f"was exported from {name} already")
    assert exports.in_lake(name) == before


def test_an_identity_that_was_never_exported_there_is_refused(exports: RealExport) -> None:
    name = made(exports, "o")
    exports.run(name)

    with pytest.raises(RefusedError, match="no export of a table of that identity is known there"):
        exports.run(name, same_as="server:1:o.t")
