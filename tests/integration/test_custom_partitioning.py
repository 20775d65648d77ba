"""ClickHouse's own examples of partitions, statement by statement, there and on lake tables (P-78).

What a reader sees of each table, which partitions have how many parts, and what is detached, is
compared after every statement.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.old_clickhouse import OldPair
from tests.support.both_sides import DONE, UNMERGED, BothSides
from tests.support.custom_partitioning import EXAMPLES, Example
from tests.support.real_export import Exports, RealExport

Statement = Callable[[str], str]
Detached = Callable[[], set[str]]
examples = pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)


def parts(sides: BothSides, example: Example, detached: Detached) -> dict[str, int]:
    """Check that both sides have parts of the same partitions; return how many there are."""
    there = sides.parts_there(example.name)
    here = sides.parts_here(example.name)
    aside = sides.parts_here(example.name, detached=True)

    assert here == there
    assert set(aside) == detached()
    return dict(there)


def assert_both_do_the_same(
    sides: BothSides,
    example: Example,
    statements: tuple[str, ...],
    there: Statement,
    detached: Detached,
) -> None:
    """Run the statements on both sides; after each of them both show the same.

    `there` runs one in ClickHouse, and `detached` says of which partitions it has detached parts.
    """
    whole = sides.assert_same_rows(example.name)
    several = parts(sides, example, detached)
    left = whole
    for statement in statements:
        text = statement.format(f"db.{example.name}")

        assert (text, there(text), sides.here(text)) == (text, DONE, DONE)

        left = sides.assert_same_rows(example.name)
        found = parts(sides, example, detached)
        if text.startswith("OPTIMIZE"):
            assert left == whole
            assert sum(found.values()) < sum(several.values()) or max(several.values()) == 1
        several = found
    assert len(left) == example.left


@examples
def test_an_example_of_one_server_does_the_same_in_the_lake(
    exports: RealExport, example: Example
) -> None:
    """Harm prevented: a statement that users know from the documentation has another meaning."""
    sides = BothSides(exports)
    keys = f"ENGINE = MergeTree {example.keys} SETTINGS {UNMERGED}"
    rows = (f"VALUES {one}" for one in example.inserts)
    sides.make(example.name, f"({example.columns}) {keys}", *rows)
    sides.export(example.name, spec=example.spec, target=sides.largest_part(example.name))

    def detached() -> set[str]:
        return set(sides.parts_there(example.name, detached=True))

    assert_both_do_the_same(sides, example, example.statements, sides.there, detached)


@examples
def test_an_example_of_two_replicas_does_the_same_in_the_lake(
    old_servers: OldPair, exports_from: Exports, example: Example
) -> None:
    """A statement on one replica has its result on the other one, and in the lake."""
    sides = BothSides(exports_from(old_servers.url(2)))
    name = example.name
    for number in (1, 2):
        old_servers.make_room(number, name)
        engine = f"ReplicatedMergeTree('/tables/custom/{name}', 'r{number}')"
        old_servers.query(
            number, f"CREATE TABLE db.{name} ({example.columns}) ENGINE = {engine} {example.keys}"
        )

    def on_one_replica(statement: str) -> str:
        old_servers.replica(1).query(statement, replication_alter_partitions_sync="2")
        old_servers.query(2, f"SYSTEM SYNC REPLICA db.{name}")
        return DONE

    for rows in example.inserts:
        on_one_replica(f"INSERT INTO db.{name} VALUES {rows}")
    sides.export(name, spec=example.spec, target=sides.largest_part(name))

    def detached() -> set[str]:
        # This version has no system.detached_parts.
        place = Path(old_servers.replica(2).directory, "data", "data", "db", name, "detached")
        return {one.name.partition("_")[0] for one in place.iterdir()}

    assert_both_do_the_same(
        sides, example, (*example.replicated, *example.statements), on_one_replica, detached
    )
