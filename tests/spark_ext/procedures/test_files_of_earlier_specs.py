"""Files of a partition spec that the table had earlier, in the statements on lake tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, TruncateTransform

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError
from tests.properties.duckdb_reader import DuckDBReader
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

SMALL = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 100"
BEFORE = (
    "CREATE DATABASE db",
    (
        "CREATE TABLE db.s (p UInt8, id Int64, t String, INDEX i id TYPE bloom_filter(0.01))"
        " ENGINE = MergeTree PARTITION BY p ORDER BY id"
    ),
    "INSERT INTO db.s SELECT number % 2, number, toString(number) FROM numbers(10)",
)
EVERY = list(range(10))
EVEN, ODD = EVERY[::2], EVERY[1::2]
_NUMBERS = iter(range(1_000))


@pytest.fixture(scope="module")
def module_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    places = Places(tmp_path_factory.mktemp("specs"))
    with EmbeddedConnection(places.clickhouse, create=True) as connection:
        for sql in BEFORE:
            connection.command(sql)
    return places


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDBReader]:
    reader = DuckDBReader()
    yield reader
    reader.close()


@dataclass
class Lake:
    """A table whose partition field `p` was replaced after the export of several small files."""

    places: Places
    session: NoSpark
    duckdb: DuckDBReader
    name: str

    @property
    def table(self) -> Table:
        return opened(self.places, self.name)

    def alter(self, statement: str, table: str = "") -> list[str]:
        text = f"ALTER TABLE lake.n.{table or self.name} {statement}"
        return [row["status"] for row in alter(self.session, text)]

    def optimize(self, how: str) -> list[str]:
        found = alter(self.session, f"OPTIMIZE TABLE lake.n.{self.name} {how}")
        return [row["status"] for row in found]

    def ids(self, table: str = "") -> list[int]:
        """Return the ids in a table, of which two readers say the same, also when they filter."""
        at = opened(self.places, table or self.name)
        found = sorted(at.scan().to_arrow().column("id").to_pylist())
        assert found == sorted(self.duckdb.read(at, ["id"]).column("id").to_pylist())
        for number in EVERY:
            parity = f"p = {number % 2} and id = {number}"
            assert at.scan(parity).to_arrow().num_rows == found.count(number)
        snapshot = at.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["total-records"] == str(len(found))
        files = list(at.scan().plan_files())
        assert snapshot.summary["total-data-files"] == str(len(files))
        return found

    def specs(self, partition: int, table: str = "") -> list[bool]:
        """Return of each file of a partition whether it is of the current spec."""
        at = opened(self.places, table or self.name)
        files = (t.file for t in at.scan(f"p = {partition}").plan_files())
        found = [f.spec_id == at.spec().spec_id for f in files]
        return sorted(found)


def replace_field(table: Table, by: str = "bucket") -> PartitionSpec:
    """Replace the partition field `p`, as the table's owner."""
    with table.update_spec() as update:
        update.remove_field("p")
        if by == "bucket":
            update.add_field("p", BucketTransform(4), "p_bucket")
        else:
            update.add_field("id", TruncateTransform(1), "each")
    return table.refresh().spec()


@pytest.fixture
def exported(places: Places, session: NoSpark, duckdb: DuckDBReader) -> Lake:
    """Export the partitions 0 and 1, each into several small files."""
    places.reads_parts = True
    name = f"s_{next(_NUMBERS)}"
    alter(session, f"ALTER TABLE ch.db.s EXPORT PARTITION ALL TO TABLE lake.n.{name} {SMALL}")
    return Lake(places, session, duckdb, name)


@pytest.fixture
def lake(exported: Lake) -> Lake:
    """Have files of both specs in partition 0, and of the earlier one in 1."""
    replace_field(exported.table)
    assert exported.alter("UPDATE t = 'x' IN PARTITION 0 WHERE id = 0") == ["changed"]
    assert set(exported.specs(0)) == {True, False}
    assert set(exported.specs(1)) == {False}
    assert exported.ids() == EVERY
    return exported


@pytest.mark.representative
def test_they_are_detached_and_attached_with_their_own_spec(lake: Lake) -> None:
    """Harm prevented: no partition can be detached once the table is divided otherwise."""
    before = lake.specs(0)

    assert lake.alter("DETACH PARTITION 0") == ["detached"]
    assert lake.ids() == ODD
    assert lake.alter("DETACH PARTITION 1") == ["detached"]
    assert lake.ids() == []
    assert lake.alter("ATTACH PARTITION 0") == ["attached"]
    assert (lake.ids(), lake.specs(0)) == (EVEN, before)
    assert lake.alter("ATTACH PARTITION 1") == ["attached"]
    assert (lake.ids(), set(lake.specs(1))) == (EVERY, {False})
    assert lake.alter("DETACH PARTITION 0, DROP DETACHED PARTITION 0") == ["detached", "dropped"]
    assert lake.ids() == ODD


@pytest.mark.parametrize("how", ["", "DEDUPLICATE"])
def test_they_are_merged_with_those_of_the_current_spec(lake: Lake, how: str) -> None:
    """Harm prevented: a table whose spec was changed keeps its small files for ever."""
    assert lake.optimize(f"PARTITION 0 {how}") == ["optimized"]
    assert (lake.ids(), lake.specs(0)) == (EVERY, [True])
    assert lake.optimize(f"PARTITION 1 {how}") == ["optimized"]
    assert (lake.ids(), lake.specs(1)) == (EVERY, [True])


def test_they_are_rewritten_or_copied_for_the_current_spec(lake: Lake) -> None:
    cold = str(lake.places.root / f"cold_{lake.name}")
    with lake.table.transaction() as changed:
        changed.set_properties({"mergeberg.disk.cold": cold})

    assert lake.alter("CLEAR INDEX i IN PARTITION 0") == ["changed"]
    assert (lake.ids(), set(lake.specs(0))) == (EVERY, {True})
    assert lake.alter("MOVE PARTITION 1 TO DISK 'cold'") == ["moved"]
    assert (lake.ids(), set(lake.specs(1))) == (EVERY, {True})
    files = [t.file.file_path for t in lake.table.scan("p = 1").plan_files()]
    assert all(cold in path for path in files)


def test_they_are_frozen_cleared_and_dropped(lake: Lake) -> None:
    assert lake.alter("FREEZE PARTITION 0 WITH NAME 'even'") == ["frozen"]
    assert lake.alter("FREEZE WITH NAME 'all', UNFREEZE PARTITION 1 WITH NAME 'all'") == [
        "frozen",
        "unfrozen",
    ]
    references = lake.table.metadata.refs
    for name in ("even", "all"):
        at = lake.table.scan(snapshot_id=references[name].snapshot_id).to_arrow()
        assert sorted(at.column("id").to_pylist()) == EVEN
    assert lake.alter("CLEAR COLUMN t IN PARTITION 1") == ["changed"]
    assert (lake.ids(), set(lake.specs(1))) == (EVERY, {True})
    assert lake.alter("DROP PARTITION 0") == ["dropped"]
    assert lake.ids() == ODD


def test_their_rows_come_into_another_table(lake: Lake) -> None:
    """Harm prevented: a partition that no statement takes from one table to another."""
    to = f"{lake.name}_to"
    export_all(lake.session, "s", to)
    lake.alter("DROP PARTITION ALL", to)
    replace_field(opened(lake.places, to))

    assert lake.alter(f"ATTACH PARTITION 0 FROM lake.n.{lake.name}", to) == ["attached"]
    assert (lake.ids(to), set(lake.specs(0, to))) == (EVEN, {True})
    assert lake.alter(f"MOVE PARTITION 1 TO TABLE lake.n.{to}") == ["moved"]
    assert (lake.ids(to), set(lake.specs(1, to)), lake.ids()) == (EVERY, {True}, EVEN)
    lake.alter("UPDATE t = 'y' IN PARTITION 0 WHERE id = 4", to)
    assert lake.alter(f"REPLACE PARTITION 0 FROM lake.n.{lake.name}", to) == ["replaced"]
    assert (lake.ids(to), set(lake.specs(0, to))) == (EVERY, {True})
    lake.alter("DROP PARTITION 0", to)
    fetched = f"FETCH PARTITION 0 FROM 'lake.n.{lake.name}', ATTACH PARTITION 0"
    assert lake.alter(fetched, to) == ["fetched", "attached"]
    assert (lake.ids(to), set(lake.specs(0, to))) == (EVERY, {True})


def test_a_file_of_several_partitions_of_the_current_spec_is_refused(exported: Lake) -> None:
    """Harm prevented: a row in a partition in which no reader looks for it."""
    to = f"{exported.name}_to"
    export_all(exported.session, "s", to)
    exported.optimize("")
    replace_field(exported.table, "each")
    replace_field(opened(exported.places, to), "each")
    with exported.table.transaction() as changed:
        changed.set_properties({"mergeberg.disk.cold": str(exported.places.root / "cold")})
    before = exported.table.metadata_location

    for statement, table in (
        ("CLEAR INDEX i IN PARTITION 0", ""),
        ("MOVE PARTITION 0 TO DISK 'cold'", ""),
        ("UPDATE t = 'x' IN PARTITION 0 WHERE id = 2", ""),
        (f"MOVE PARTITION 0 TO TABLE lake.n.{to}", ""),
        (f"REPLACE PARTITION 0 FROM lake.n.{exported.name}", to),
    ):
        with pytest.raises(RefusedError, match="these values of each: 0, 8"):
            exported.alter(statement, table)
    with pytest.raises(RefusedError, match="these values of each: 1, 9"):
        exported.optimize("PARTITION 1")
    assert exported.table.metadata_location == before
    assert exported.alter("DETACH PARTITION 0, ATTACH PARTITION 0") == ["detached", "attached"]
    assert exported.ids() == EVERY


def test_a_column_of_an_earlier_spec_may_be_dropped(exported: Lake) -> None:
    """Harm prevented: a partition that cannot be taken out of the table any more."""
    with exported.table.update_spec() as update:
        update.add_field("t", TruncateTransform(1), "letter")
    assert exported.alter("DELETE WHERE id = 0") == ["changed"]
    with exported.table.update_spec() as update:
        update.remove_field("letter")
    with exported.table.update_schema() as change:
        change.delete_column("t")

    assert exported.ids() == EVERY[1:]
    assert exported.alter("DETACH PARTITION 0") == ["detached"]
    assert exported.ids() == ODD
    assert exported.alter("ATTACH PARTITION 0") == ["attached"]
    assert exported.ids() == EVERY[1:]
    assert exported.alter("DROP PARTITION 0") == ["dropped"]
    assert exported.ids() == ODD
