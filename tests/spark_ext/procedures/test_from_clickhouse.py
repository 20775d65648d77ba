"""ATTACH and REPLACE PARTITION … FROM a table of a ClickHouse, in a session and a command."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from spark_ext.operations.from_clickhouse import Local, each_once
from tableformat.errors import NotFoundError, RefusedError, TableFormatError
from tests.support.fakes import TABLE
from tests.support.session_lake import alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

_NUMBERS = itertools.count()


class Table:
    """A table of the source that is like `db.events`, and a lake table that is like it."""

    def __init__(self, places: Places, session: NoSpark) -> None:
        places.reads_parts = True
        self.places, self.session = places, session
        self.name = f"from{next(_NUMBERS)}"
        self.make(self.name, 3)
        export_all(session, "events", self.name)

    def make(self, name: str, rows: int) -> None:
        """Make a table with the id 0 in 202401, and the others in 202402."""
        self.command(
            f"CREATE TABLE db.{name} (ts DateTime('UTC'), id Int64, s String) ENGINE = MergeTree"
            " PARTITION BY toYYYYMM(ts) ORDER BY id",
            _rows(name, 0, rows),
        )

    def command(self, *statements: str) -> None:
        with EmbeddedConnection(self.places.clickhouse) as connection:
            for sql in statements:
                connection.command(sql)

    def in_source(self, name: str) -> list[tuple[object, ...]]:
        with EmbeddedConnection(self.places.clickhouse) as connection:
            return list(connection.rows(f"SELECT id, s FROM db.{name} ORDER BY id"))

    def run(self, what: str) -> list[Row]:
        """Run statements on the lake table."""
        return alter(self.session, f"ALTER TABLE lake.n.{self.name} {what}")

    @property
    def ids(self) -> list[int]:
        """The ids in the lake."""
        found = opened(self.places, self.name).scan().to_arrow().column("id").to_pylist()
        return sorted(int(one) for one in found)

    @property
    def snapshots(self) -> int:
        return len(opened(self.places, self.name).metadata.snapshots)

    def append(self, day: str, number: int) -> None:
        """Append a row as another engine does."""
        table = opened(self.places, self.name)
        arrow = table.schema().as_arrow()
        moment = pa.scalar(f"{day}T00:00:00+00:00").cast(arrow.field("ts").type)
        columns = [pa.array([moment.as_py()], arrow.field("ts").type), [number], [""]]
        table.append(pa.table(columns, schema=arrow))


def _rows(name: str, first: int, rows: int) -> str:
    """Return what inserts ids; 0 is of 2024-01-31, and 1 a day later."""
    return (
        f"INSERT INTO db.{name} SELECT toDateTime('2024-01-31', 'UTC') + number * 86400,"
        f" number, concat('row ', toString(number)) FROM numbers({first}, {rows})"
    )


@pytest.fixture
def table(places: Places, session: NoSpark) -> Table:
    """Return a table whose lake table has the ids 0 in 202401, and 1 and 2 in 202402, of events."""
    return Table(places, session)


def outcomes_of(rows: list[Row]) -> list[tuple[object, ...]]:
    return [(row["partition_id"], row["status"], row["rows"]) for row in rows]


def test_a_partition_is_attached_once_and_the_source_is_as_it_was(table: Table) -> None:
    """It is the export that it is: nothing brings its rows a second time."""
    attach = f"ATTACH PARTITION 202402 FROM ch.db.{table.name}"
    source = table.in_source(table.name)
    table.run("DROP PARTITION 202402")

    assert outcomes_of(table.run(attach)) == [("202402", "attached", 2)]

    assert table.ids == [0, 1, 2]
    assert table.in_source(table.name) == source
    before = table.snapshots
    assert outcomes_of(table.run(attach)) == [("202402", "unchanged", 2)]
    assert table.snapshots == before


def test_rows_of_the_same_partition_are_never_attached_twice_nor_replaced(
    table: Table,
) -> None:
    """What was dropped comes back at once, as the source has it now."""
    attach = f"ATTACH PARTITION 202402 FROM ch.db.{table.name}"
    table.run(attach)
    table.command(_rows(table.name, 3, 2))
    before = table.snapshots

    with pytest.raises(RefusedError, match=r"could be there twice\..* Use REPLACE PARTITION"):
        table.run(attach)

    assert (table.ids, table.snapshots) == ([0, 1, 1, 2, 2], before)
    table.run("DROP PARTITION 202402")
    assert outcomes_of(table.run(attach)) == [("202402", "attached", 4)]
    assert table.ids == [0, 1, 2, 3, 4]


def test_a_partition_of_any_writer_is_replaced_in_one_snapshot(
    table: Table,
) -> None:
    """The rows of another source, and those that others added; other partitions stay."""
    replace = f"REPLACE PARTITION 202402 FROM ch.db.{table.name}"
    source = table.in_source(table.name)
    table.append("2024-02-20", 50)
    table.append("2024-03-20", 60)
    table.command(_rows(table.name, 3, 2))
    before = table.snapshots

    assert outcomes_of(table.run(replace)) == [("202402", "replaced", 4)]

    assert (table.ids, table.snapshots) == ([0, 1, 2, 3, 4, 60], before + 1)
    assert table.in_source(table.name)[: len(source)] == source
    with pytest.raises(RefusedError, match=rf"REPLACE .* FROM ch\.db\.{table.name}"):
        export_all(table.session, "events", table.name)
    assert outcomes_of(table.run(replace)) == [("202402", "unchanged", 4)]
    assert table.snapshots == before + 1
    # What is there already stays, and all else leaves, in one snapshot again.
    table.append("2024-02-21", 51)
    assert outcomes_of(table.run(replace)) == [("202402", "replaced", 4)]
    assert (table.ids, table.snapshots) == ([0, 1, 2, 3, 4, 60], before + 3)


def test_shards_with_one_uuid_are_different_tables() -> None:
    """Harm prevented: of a cluster whose tables ON CLUSTER made, one shard alone is attached."""
    place = SourcePlace("https://one.example:8443")
    shards = [
        Local(
            LocalTable(place, TABLE.name, shard),
            replace(TABLE, server=f"server {shard}"),
            has_parts=True,
        )
        for shard in (1, 2)
    ]
    replicas = [replace(one, table=replace(TABLE, identity="keeper:/t")) for one in shards]

    assert each_once(shards) == tuple(shards)
    assert each_once(replicas) == (replicas[0],)


def test_replacing_by_nothing_must_be_allowed(table: Table) -> None:
    """As in ClickHouse: else the partition would be dropped without a word."""
    table.command(f"ALTER TABLE db.{table.name} DROP PARTITION 202402")

    assert outcomes_of(table.run(f"ATTACH PARTITION 202402 FROM ch.db.{table.name}")) == [
        ("202402", "empty", 0)
    ]
    with pytest.raises(RefusedError, match="Use --allow-empty, or DROP PARTITION") as refused:
        table.run(f"REPLACE PARTITION 202402 FROM ch.db.{table.name}")
    assert (refused.value.code, table.ids) == (36, [0, 1, 2])

    table.run(
        f"REPLACE PARTITION 202402 FROM ch.db.{table.name}"
        " SETTINGS allow_replace_partition_from_empty_source = 1"
    )
    assert table.ids == [0]


@pytest.mark.parametrize(
    "inner",
    [pytest.param(False, id="TO"), pytest.param(True, id="its own", marks=pytest.mark.nightly)],
)
def test_a_materialized_view_is_the_table_that_it_writes_to(table: Table, *, inner: bool) -> None:
    view, name = f"{table.name}_view", table.name
    keys = "ENGINE = MergeTree PARTITION BY toYYYYMM(ts) ORDER BY id POPULATE"
    to = keys if inner else f"TO db.{name}"
    table.command(f"CREATE MATERIALIZED VIEW db.{view} {to} AS SELECT ts, id, s FROM db.events")

    rows = table.run(f"REPLACE PARTITION 202402 FROM ch.db.{view}")

    assert outcomes_of(rows) == [("202402", "replaced", 2)]
    assert table.ids == [0, 1, 2]
    # Its rows are those of the table: by whichever name they are not attached again.
    again = table.run(f"ATTACH PARTITION 202402 FROM ch.db.{view if inner else name}")
    assert outcomes_of(again) == [("202402", "unchanged", 2)]


REFUSED: dict[str, tuple[type[TableFormatError], str, int | None]] = {
    "ATTACH PARTITION 1 FROM ch.db.nothing": (NotFoundError, "has no such table", 60),
    "ATTACH PARTITION 1 FROM ch.none.t": (NotFoundError, "there is no database", 81),
    "ATTACH PARTITION 1 FROM nowhere.db.t": (TableFormatError, "nowhere", None),
    "REPLACE PARTITION ALL FROM ch.db.events": (TableFormatError, "Only support", 344),
    "ATTACH PARTITION 1 FROM ch.db.unlike": (RefusedError, "different structure", 122),
    "REPLACE PARTITION 1 FROM ch.db.unlike": (RefusedError, "different partition key", 122),
}


def test_an_impossible_statement_is_refused_before_any_work(table: Table) -> None:
    """All differences of two tables at once, also of a statement behind one that could be run."""
    table.command(
        "CREATE TABLE db.unlike (ts DateTime('UTC'), id Int32)"
        " ENGINE = MergeTree PARTITION BY toYear(ts) ORDER BY (id, ts)"
    )
    before = table.snapshots

    for statement, (error, message, code) in REFUSED.items():
        with pytest.raises(error, match=message) as refused:
            table.run(f"DROP PARTITION 202401, {statement}")

        assert code in (None, refused.value.code), statement
        if "unlike" in statement:
            for what in ("structure", "ordering", "partition key", "primary key"):
                assert f"Tables have different {what}: " in str(refused.value)
    assert (table.ids, table.snapshots) == ([0, 1, 2], before)


def test_the_command_says_what_it_would_do_and_does_it(table: Table) -> None:
    """With `--dry-run` nothing is changed; every partition is listed by its id."""
    where = ("--source", f"chdb:{table.places.clickhouse}", "--source-wait", "0.3")
    warehouse = ("--warehouse", str(table.places.warehouse))
    on = f"ALTER TABLE lake.n.{table.name}"
    replace = f"{on} REPLACE PARTITION 202402 FROM ch.db.{table.name}"
    attach = f"{on} ATTACH PARTITION ALL FROM ch.db.{table.name}"
    table.command(_rows(table.name, 3, 1))
    before = table.snapshots

    dry, out, err = table.places.run("alter", replace, *where, *warehouse, "--dry-run")
    too, more, _ = table.places.run("alter", attach, *where, *warehouse, "--dry-run")

    assert (dry, too, table.snapshots) == (0, 0, before), err
    assert "dry run: partition 202402 would be replaced (3 rows, 1 file)" in out
    assert "partition 202402: 2 rows in 1 file would leave main with it" in out
    assert "dry run: partition 202401 would be attached (1 row, 1 file)" in more

    code, out, err = table.places.run("alter", replace, *where, *warehouse)

    assert (code, "partition 202402: replaced" in out) == (0, True), out + err
    assert table.ids == [0, 1, 2, 3]
    refused, _, err = table.places.run("alter", attach, *where, *warehouse)
    assert refused == 0, err
    assert table.ids == [0, 0, 1, 2, 3]


ENGINES = {
    "MergeTree": "MergeTree",
    "ReplacingMergeTree": "ReplacingMergeTree(version)",
    "SummingMergeTree": "SummingMergeTree(amount)",
    "AggregatingMergeTree": "AggregatingMergeTree",
    "CollapsingMergeTree": "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree": "VersionedCollapsingMergeTree(sign, version)",
}


@pytest.mark.parametrize(
    "engine",
    [
        name if name == "ReplacingMergeTree" else pytest.param(name, marks=pytest.mark.nightly)
        for name in ENGINES
    ],
)
def test_partitions_come_from_every_engine(places: Places, session: NoSpark, engine: str) -> None:
    """Every row that the parts have: nothing is merged on the way."""
    places.reads_parts = True
    name = f"{engine.lower()}_there"
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command(
            f"CREATE TABLE db.{name} (p UInt8, id UInt64, amount Int64, sign Int8,"
            f" version UInt32) ENGINE = {ENGINES[engine]} PARTITION BY p ORDER BY id"
        )
        for sign in (1, -1):
            connection.command(
                f"INSERT INTO db.{name} SELECT number % 2, number, 1, {sign}, 1 FROM numbers(6)"
            )
    export_all(session, name, name)
    on = f"ALTER TABLE lake.n.{name}"
    alter(session, f"{on} DROP PARTITION ALL")

    rows = alter(
        session,
        f"{on} ATTACH PARTITION 0 FROM ch.db.{name}, REPLACE PARTITION 1 FROM ch.db.{name}",
    )

    assert outcomes_of(rows) == [("0", "attached", 6), ("1", "replaced", 6)]
    assert rows_of(places, name) == 12
