"""A session with a source and a warehouse, and a writer that needs no Spark."""

from __future__ import annotations

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.actions import export_ports
from tests.support.session_lake import export_all
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

EVENTS = (
    "CREATE DATABASE db",
    (
        "CREATE TABLE db.events (ts DateTime('UTC'), id Int64, s String) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(ts) ORDER BY id"
    ),
    (
        "INSERT INTO db.events SELECT toDateTime('2024-01-31', 'UTC') + number * 86400, number,"
        " toString(number) FROM numbers(3)"
    ),
    (
        "CREATE TABLE db.odd (id Int64, a AggregateFunction(sum, Int64)) ENGINE = MergeTree"
        " ORDER BY id"
    ),
)


@pytest.fixture(scope="module")
def module_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    places = Places(tmp_path_factory.mktemp("procedures"))
    with EmbeddedConnection(places.clickhouse, create=True) as connection:
        for sql in EVENTS:
            connection.command(sql)
    return places


@pytest.fixture
def places(module_places: Places, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Return the places, with a writer that needs no Spark."""
    module_places.before, module_places.reads_parts = (lambda *_: None), False
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(export_ports, "SparkWriter", lambda *_: module_places.writer())
    monkeypatch.setattr(export_ports, "_back_off", lambda _: None)
    monkeypatch.setenv("PYICEBERG_HOME", str(module_places.root))
    return module_places


@pytest.fixture
def session(places: Places) -> NoSpark:
    """Return a session whose source `ch` may be changed, and `fixed` may not."""
    source = f"chdb:{places.clickhouse}"
    return NoSpark(
        {
            "spark.mergeberg.source.ch": source,
            "spark.mergeberg.source.ch.wait": "0.3",
            "spark.mergeberg.source.ch.allow-alter": "true",
            "spark.mergeberg.source.fixed": source,
            "spark.mergeberg.warehouse": str(places.warehouse),
            # Spark has the catalog, too; how PyIceberg reaches it is configured elsewhere.
        }
    )


@pytest.fixture
def dropped_from(session: NoSpark, request: pytest.FixtureRequest) -> str:
    """Return the name of a lake table with the ids 0 in 202401, and 1 and 2 in 202402."""
    name = f"of_{abs(hash(request.node.name))}"
    export_all(session, "events", name)
    return name


@pytest.fixture
def other(session: NoSpark, dropped_from: str) -> str:
    """Return the name of another lake table with the same rows."""
    name = f"{dropped_from}_other"
    export_all(session, "events", name)
    return name
