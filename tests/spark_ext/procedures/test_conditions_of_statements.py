"""The conditions of ATTACH … FROM, REPLACE and MOVE … TO TABLE, asked for by the statements.

What is compared, and how, is in `tests/integration/test_alike_tables.py`, with ClickHouse.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from pyiceberg.catalog import Catalog

from catalog.iceberg.catalogs import open_catalog
from tableformat.errors import RefusedError
from tests.support.session_lake import alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

# Each takes a partition of the table `of` to the table `to`.
STATEMENTS: Final = {
    "attach": "ALTER TABLE lake.n.{to} ATTACH PARTITION 1 FROM lake.n.{of}",
    "replace": "ALTER TABLE lake.n.{to} REPLACE PARTITION 1 FROM lake.n.{of}",
    "move": "ALTER TABLE lake.n.{of} MOVE PARTITION 1 TO TABLE lake.n.{to}",
}
INDEX: Final = ", INDEX by_x x TYPE minmax GRANULARITY 1"
PROJECTION: Final = ", PROJECTION sums (SELECT p, sum(x) GROUP BY p)"
EXACTLY: Final = " SETTINGS enforce_index_structure_match_on_partition_manipulation = 1"
NONE: Final = ("", "")
# What else the source table has, then what the other one has; the message about it.
DIFFERENT: Final = {
    "an index": ((INDEX, ""), NONE, "secondary indices: by_x is only there"),
    "a projection": ((PROJECTION, ""), NONE, "projections: sums is only there"),
    "an index here, exactly": (NONE, (INDEX, EXACTLY), "secondary indices: by_x is only here"),
    "a projection here, exactly": (NONE, (PROJECTION, EXACTLY), "projections: sums is only here"),
}
MORE: Final = {"an index here": (NONE, (INDEX, "")), "the same": ((INDEX, ""), (INDEX, EXACTLY))}


def made(places: Places, session: NoSpark, has: tuple[str, str], side: str) -> str:
    """Return a lake table of a table with this between its columns and behind its keys.

    It is exported once: what refuses changes neither table.
    """
    columns, ending = has
    name = f"{side}_{zlib.crc32(repr(has).encode())}"
    if opened_catalog(places).table_exists(f"n.{name}"):
        return name
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p Int64, x Int64{columns}) ENGINE = MergeTree PARTITION BY p"
        f" ORDER BY x{ending}",
        f"INSERT INTO db.{name} VALUES (1, 1), (1, 2), (2, 3)",
    )
    export_all(session, name, name)
    return name


def opened_catalog(places: Places) -> Catalog:
    return open_catalog("lake", warehouse=places.warehouse).catalog


@contextmanager
def remembered(places: Places, name: str, what: str, text: str) -> Iterator[None]:
    """Let a lake table remember another ClickHouse table than the one that it is of."""
    whole = f"mergeberg.source.{what}"
    before = opened(places, name).properties[whole]
    for value in (text, before):
        with opened(places, name).transaction() as transaction:
            transaction.set_properties({whole: value})
        if value == text:
            yield


def refused(session: NoSpark, statement: str) -> tuple[int | None, str]:
    """Return code and message of a refusal."""
    with pytest.raises(RefusedError) as error:
        alter(session, statement)
    return error.value.code, error.value.message


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("different", DIFFERENT)
def test_other_indices_and_projections_are_refused(
    places: Places, session: NoSpark, different: str, statement: str
) -> None:
    """And both tables keep what they have."""
    there, here, expected = DIFFERENT[different]
    of, to = made(places, session, there, "of"), made(places, session, here, "to")

    code, message = refused(session, STATEMENTS[statement].format(of=of, to=to))

    assert (code, f"Tables have different {expected}" in message) == (36, True), message
    assert (rows_of(places, of), rows_of(places, to)) == (3, 3)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_another_storage_policy_is_refused(
    places: Places, session: NoSpark, statement: str
) -> None:
    of, to = (made(places, session, NONE, side) for side in ("of", "to"))

    with remembered(places, to, "storage-policy", "tiered"):
        code, message = refused(session, STATEMENTS[statement].format(of=of, to=to))

    expected = "Tables have different storage policy: default there, tiered here"
    assert (code, expected in message) == (36, True), message
    assert (rows_of(places, of), rows_of(places, to)) == (3, 3)


def test_a_move_between_replicated_and_not_is_refused(places: Places, session: NoSpark) -> None:
    """With ClickHouse's code of it; the other statements do not ask for it."""
    of, to = (made(places, session, NONE, side) for side in ("of", "to"))

    with remembered(places, to, "engine", "ReplicatedMergeTree('/tables/t', 'r')"):
        code, message = refused(session, STATEMENTS["move"].format(of=of, to=to))
        (row,) = alter(session, STATEMENTS["replace"].format(of=of, to=to))

    expected = "Tables have different engine family: MergeTree there, ReplicatedMergeTree here"
    assert (code, expected in message) == (48, True), message
    assert row["status"] == "replaced"


@pytest.mark.parametrize("more", [*MORE, "another engine"])
def test_what_clickhouse_takes_is_taken(places: Places, session: NoSpark, more: str) -> None:
    """The requirements' page lets the destination have more, unless its setting forbids it."""
    there, here = MORE.get(more, (NONE, NONE))
    # The move takes its partition away.
    side = f"{more.replace(' ', '_')}_"
    of, to = made(places, session, there, f"{side}of"), made(places, session, here, f"{side}to")
    with contextlib.ExitStack() as stack:
        if more not in MORE:
            stack.enter_context(remembered(places, to, "engine", "ReplacingMergeTree"))
        for statement in STATEMENTS.values():
            alter(session, f"ALTER TABLE lake.n.{to} DROP PARTITION 1")
            (row,) = alter(session, statement.format(of=of, to=to))

            assert (row["rows"], rows_of(places, to)) == (2, 3)
