"""Every engine of the family: as the source of EXPORT, and as what a lake table remembers of it."""

from __future__ import annotations

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import RefusedError
from tests.support.clickhouse_source import config_text
from tests.support.session_lake import alter, opened, rows_of
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

COLUMNS = (
    "p UInt8, id UInt64, amount Int64, sign Int8, version UInt32, Path String,"
    " Time DateTime('UTC'), Value Float64, Timestamp DateTime('UTC')"
)
SHOWN = ("p", "id", "amount", "sign", "version", "Path", "Value")
ENGINES = {
    "MergeTree": "MergeTree",
    "ReplacingMergeTree": "ReplacingMergeTree(version)",
    "SummingMergeTree": "SummingMergeTree(amount)",
    "AggregatingMergeTree": "AggregatingMergeTree",
    "CollapsingMergeTree": "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree": "VersionedCollapsingMergeTree(sign, version)",
    "GraphiteMergeTree": "GraphiteMergeTree('graphite_rollup')",
    "CoalescingMergeTree": "CoalescingMergeTree",
    "ReplicatedMergeTree": "MergeTree",
    "ReplicatedReplacingMergeTree": "ReplacingMergeTree(version)",
}
NIGHTLY = ("SummingMergeTree", "CoalescingMergeTree", "ReplicatedReplacingMergeTree")
_STATES_OF = (
    "INSERT INTO db.states SELECT p, id, sumState(v) FROM (SELECT number % 2 AS p,"
    " number % 4 AS id, toInt64(number) AS v FROM numbers(8)) GROUP BY p, id"
)
STATES = (
    (
        "CREATE TABLE db.states (p UInt8, id UInt64, s AggregateFunction(sum, Int64))"
        " ENGINE = AggregatingMergeTree PARTITION BY p ORDER BY id"
    ),
    "SYSTEM STOP MERGES db.states",
    *(_STATES_OF, _STATES_OF),
)


@pytest.fixture(scope="module")
def module_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Return places whose ClickHouse has a rollup configuration and the macros of a replica."""
    places = Places(tmp_path_factory.mktemp("engines"))
    config = places.root / "config.xml"
    config.write_text(config_text(places.root / "disks"))
    with EmbeddedConnection(places.clickhouse, create=True, config_file=config) as connection:
        for sql in ("CREATE DATABASE db", *(sql for one in ENGINES for sql in _made(one)), *STATES):
            connection.command(sql)
    return places


def _made(engine: str) -> tuple[str, ...]:
    """Return statements that make a table of an engine; every row is there twice.

    So there is something that the engine would sum, replace or collapse in a merge.
    """
    table = f"db.{engine.lower()}"
    rows = (
        f"INSERT INTO {table} SETTINGS optimize_on_insert = 0"
        " SELECT number % 2, number, number + 1, 1, 1, 'a.b', 0, 1.5, 0 FROM numbers(10)"
    )
    return (
        f"CREATE TABLE {table} ({COLUMNS}) ENGINE = {ENGINES[engine]} PARTITION BY p ORDER BY id",
        f"SYSTEM STOP MERGES {table}",
        *(rows, rows),
        *(
            (f"DETACH TABLE {table}", f"ATTACH TABLE {table} AS REPLICATED")
            if engine.startswith("Replicated")
            else ()
        ),
    )


@pytest.fixture
def session(places: Places) -> NoSpark:
    """Return a session whose source has that configuration; rows are read from real parts."""
    places.reads_parts = True
    source = f"chdb:{places.clickhouse}?config-file={places.root / 'config.xml'}"
    return NoSpark(
        {
            "spark.mergeberg.source.ch": source,
            "spark.mergeberg.warehouse": str(places.warehouse),
        }
    )


def shown(places: Places, name: str, columns: tuple[str, ...] = SHOWN) -> list[tuple[object, ...]]:
    """Return the rows of a lake table."""
    found = opened(places, name).scan().to_arrow().select(columns).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def exported(session: NoSpark, table: str, to: str, **given: dict[str, str]) -> list[Row]:
    return session.call("export_partitions", source=f"ch.db.{table}", table=f"lake.n.{to}", **given)


@pytest.mark.parametrize(
    "engine",
    [pytest.param(one, marks=pytest.mark.nightly if one in NIGHTLY else ()) for one in ENGINES],
)
def test_every_engine_is_exported_and_served_by_statements_of_lake_tables(
    places: Places, session: NoSpark, engine: str
) -> None:
    """Harm prevented: rows that an engine would merge are merged, or left out, on the way."""
    table, one, two = (f"{engine.lower()}{n}" for n in ("", "_one", "_two"))
    rows = sorted((n % 2, n, n + 1, 1, 1, "a.b", 1.5) for n in (*range(10), *range(10)))

    for to in (one, two):
        assert [r["status"] for r in exported(session, table, to)] == ["committed"] * 2
    assert opened(places, one).properties["mergeberg.source.engine"].startswith(engine)
    assert shown(places, one) == rows
    results = alter(
        session,
        f"ALTER TABLE lake.n.{one} DROP PARTITION ID '0',"
        f" ATTACH PARTITION ID '0' FROM lake.n.{two}, DETACH PARTITION ID '1',"
        f" ATTACH PARTITION ID '1', DROP PARTITION ID '1',"
        f" REPLACE PARTITION ID '1' FROM lake.n.{two}, FREEZE PARTITION ID '1' WITH NAME 'f'",
    )
    assert [r["status"] for r in results] == [
        *("dropped", "attached", "detached", "attached", "dropped", "replaced", "frozen")
    ]
    assert shown(places, one) == shown(places, two) == rows
    alter(session, f"ALTER TABLE lake.n.{two} DROP PARTITION ALL")
    results = [
        alter(session, f"ALTER TABLE lake.n.{one} {command}")[0]
        for command in (
            f"MOVE PARTITION ID '0' TO TABLE lake.n.{two}",
            f"FETCH PARTITION ID '0' FROM 'lake.n.{two}'",
        )
    ]

    assert [(r["status"], r["rows"]) for r in results] == [("moved", 10), ("fetched", 10)]
    assert (rows_of(places, one), rows_of(places, two)) == (10, 10)
    assert shown(places, two) == [row for row in rows if row[0] == 0]


def test_aggregate_states_come_by_the_conversion_that_the_user_names(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: states that nobody can read any more, or that are merged with their values.

    Between tables of different conversions no file is copied, because its values would be others.
    """
    with pytest.raises(RefusedError, match="choose --convert s=finalize or --convert s=state"):
        exported(session, "states", "refused")

    for to, how in (("values", "finalize"), ("others", "finalize"), ("bytes", "state")):
        exported(session, "states", to, convert={"s": how})
    rows = sorted((n % 2, n, n + n + 4) for n in (*range(4), *range(4)))
    assert shown(places, "values", ("p", "id", "s")) == rows
    assert all(isinstance(row[2], bytes) for row in shown(places, "bytes", ("p", "id", "s")))
    results = alter(
        session,
        "ALTER TABLE lake.n.values DROP PARTITION ALL,"
        " ATTACH PARTITION ID '0' FROM lake.n.others, REPLACE PARTITION ID '1' FROM lake.n.others",
    )
    assert [r["status"] for r in results] == ["dropped", "attached", "replaced"]
    assert shown(places, "values", ("p", "id", "s")) == rows
    for statement in ("ATTACH PARTITION ID '0' FROM", "REPLACE PARTITION ID '0' FROM"):
        with pytest.raises(RefusedError, match="exported with other conversions") as refused:
            alter(session, f"ALTER TABLE lake.n.values {statement} lake.n.bytes")
        assert refused.value.code == 36
    assert shown(places, "values", ("p", "id", "s")) == rows
