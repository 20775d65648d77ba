"""`--incremental` from a real ClickHouse: after each change the lake has the rows of the source.

Real ClickHouse, real task code, a real catalog. Merges and mutations happen when a test asks.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from catalog.sources import SourcePlace
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, open_ports
from spark_ext.engine.session import SparkSettings
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Silent
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.messages import plain
from tableformat.names import LakeName, TableName
from tests.support.child_writer import ChildWriter

_TO = LakeName("lake", ("n",), "t")
_TABLE = (
    "CREATE TABLE db.t (p UInt8, id Int64, s String) ENGINE = {engine} PARTITION BY p"
    " ORDER BY id SETTINGS min_bytes_for_wide_part = 0, old_parts_lifetime = 1000{more}"
)
_KEPT = ", enable_block_number_column = 1, enable_block_offset_column = 1"
_SYNC = "SETTINGS mutations_sync = 2"


@dataclass
class World:
    """A ClickHouse directory with a table, and its lake table."""

    at: Path
    engine: str = "MergeTree"
    more: str = ""
    now: Iterator[int] = field(default_factory=lambda: itertools.count(2_000_000_000_000, 60_000))
    ids: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        """Make the table, with a part that is exported."""
        with EmbeddedConnection(self.at / "clickhouse", create=True) as connection:
            connection.command("CREATE DATABASE db")
            connection.command(_TABLE.format(engine=self.engine, more=self.more))
            connection.command("SYSTEM STOP MERGES db.t")
        self.change(self.insert(), self.insert())
        assert self.export().status is Status.COMMITTED

    def insert(self, partition: int = 1, rows: int = 100) -> str:
        """Return the statement that inserts rows that were never there."""
        first = next(self.ids) * 1000
        return (
            f"INSERT INTO db.t (p, id, s) SELECT {partition}, {first} + number, toString(number)"
            f" FROM numbers({rows})"
        )

    def change(self, *statements: str) -> None:
        """Run statements; merges happen only where one of them asks."""
        with EmbeddedConnection(self.at / "clickhouse") as connection:
            connection.command("SYSTEM STOP MERGES db.t")
            for sql in statements:
                merges = sql.startswith(("OPTIMIZE", "ALTER", "DELETE"))
                if merges:
                    connection.command("SYSTEM START MERGES db.t")
                connection.command(sql)
                if merges:
                    connection.command("SYSTEM STOP MERGES db.t")

    def export(self, *, incremental: bool = True, evolve_schema: bool = True) -> Outcome:
        """Export all partitions after the TTL of the last export; return the outcome of the first.

        Afterwards the lake has the rows of the source, unless it is refused.
        """
        lake = open_catalog("lake", warehouse=self.at / "warehouse")
        places = Places(SourcePlace(f"chdb:{self.at}/clickhouse"), lake)
        ports = open_ports(places, SparkWhenNeeded(SparkSettings()), Silent())
        writer = ChildWriter(lambda _plan, _tasks: None)
        ports = replace(
            ports, writer=lambda: writer, begin_writer=lambda: None, clock=self.now.__next__
        )
        options = ExportOptions(incremental=incremental, manifest_ttl=1)
        request = ExportRequest(
            TableName("db", "t"), _TO, AllPartitions(), options, {}, evolve_schema=evolve_schema
        )
        outcomes = list(export(request, ports, slots=1))
        if all(one.status is not Status.REFUSED for one in outcomes):
            assert self.in_lake() == self.in_source()
        return outcomes[0]

    @property
    def columns(self) -> list[str]:
        """The columns of the source."""
        with EmbeddedConnection(self.at / "clickhouse") as connection:
            sql = "SELECT name FROM system.columns WHERE table = 't' AND database = 'db'"
            return sorted(str(name) for (name,) in connection.rows(sql))

    def in_source(self) -> list[tuple[str, ...]]:
        """Return the rows of the source, sorted."""
        names = ", ".join(f"toString({name})" for name in self.columns)
        with EmbeddedConnection(self.at / "clickhouse") as connection:
            return sorted(
                tuple(map(str, row)) for row in connection.rows(f"SELECT {names} FROM db.t")
            )

    def in_lake(self) -> list[tuple[str, ...]]:
        """Return the rows of the lake, sorted."""
        table = open_catalog("lake", warehouse=self.at / "warehouse").catalog.load_table("n.t")
        found, names = table.scan().to_arrow().to_pylist(), self.columns
        return sorted(tuple(str(row[name]) for name in names) for row in found)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Export a table of one partition with two parts."""
    return World(tmp_path)


def test_inserted_parts_alone_are_written(world: World) -> None:
    for rows in (100, 7, 20_000):
        world.change(world.insert(rows=rows))

        added = world.export()

        assert added.status is Status.COMMITTED
        assert f"only its 1 new part with {rows:,} rows" in added.message
    assert world.export().status is Status.UNCHANGED


_CHANGES = {
    "a merge of all": ("OPTIMIZE TABLE db.t FINAL",),
    "an update": (f"ALTER TABLE db.t UPDATE s = 'x' WHERE id % 2 = 0 {_SYNC}",),
    "a lightweight delete": (
        "DELETE FROM db.t WHERE id = 3 SETTINGS lightweight_deletes_sync = 2",
    ),
    "a column with a default": (
        "ALTER TABLE db.t ADD COLUMN more String DEFAULT concat('of ', toString(id))",
    ),
    "a column that is NULL": ("ALTER TABLE db.t ADD COLUMN more Nullable(String)",),
    "a part that left": ("ALTER TABLE db.t DETACH PART '1_1_1_0'",),
    "a part that came back": (
        "ALTER TABLE db.t DETACH PART '1_1_1_0'",
        "ALTER TABLE db.t ATTACH PART '1_1_1_0'",
    ),
    "other rows": ("TRUNCATE TABLE db.t",),
}
_REFUSED = {"a part that left", "other rows"}


@pytest.mark.parametrize("change", _CHANGES)
def test_after_another_change_the_lake_has_the_rows_of_the_source(
    world: World, change: str
) -> None:
    """Harm prevented: rows twice, or values of before, beside the new parts."""
    size = 150 if change not in _REFUSED else 50
    world.change(*_CHANGES[change], world.insert(rows=size))

    found = world.export()

    assert found.status is (Status.REFUSED if change in _REFUSED else Status.REPLACED), found
    if change in _REFUSED:
        assert "would lose" in plain(found.message)


@pytest.mark.parametrize("engine", ["ReplacingMergeTree", "SummingMergeTree", "MergeTree"])
def test_rows_that_were_inserted_twice_are_in_the_lake_twice(tmp_path: Path, engine: str) -> None:
    """Harm prevented: a part with the hash of an exported one counts as exported."""
    world = World(tmp_path, engine)
    again = world.insert()
    world.change(again)
    world.export()

    world.change(again)
    added = world.export()

    assert (added.status, added.rows) == (Status.COMMITTED, 400)
    assert len(world.in_lake()) == 400


def test_updates_that_wait_are_refused_beside_new_parts(tmp_path: Path) -> None:
    world = World(tmp_path, more=_KEPT)
    world.change(world.insert(), "UPDATE db.t SET s = 'x' WHERE id < 50")

    refused = world.export()

    assert refused.status is Status.REFUSED
    assert len(world.in_lake()) == 200


_ACTS = st.tuples(
    st.sampled_from((None, "a merge of all", "an update")),
    st.booleans(),
    st.sampled_from((1, 1, 2)),
    st.integers(1, 300),
)
"""A change, whether it comes after the INSERT, and the partition and the rows of that."""


@settings(max_examples=4, deadline=None)
@given(st.lists(st.tuples(_ACTS, st.booleans()), min_size=3, max_size=6))
def test_whatever_happens_the_lake_has_the_rows_of_the_source(
    history: list[tuple[tuple[str | None, bool, int, int], bool]],
) -> None:
    """Harm prevented: a history that no list of changes has; `export` compares after each run."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        for (change, is_later, partition, rows), incremental in history:
            statements = [world.insert(partition, rows)]
            at = 1 if is_later else 0
            statements[at:at] = _CHANGES[change] if change is not None else ()
            world.change(*statements)
            assert world.export(incremental=incremental).status is not Status.REFUSED
