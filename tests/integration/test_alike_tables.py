"""Between which tables partitions can be put: what we say is what ClickHouse does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.clickhouse.table_description import describe
from tableformat.errors import SourceError
from tableformat.mergetree.compatibility import differences
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.types import parse_type
from tableformat.messages import plain
from tableformat.names import TableName
from tests.support.fakes import TABLE

COLUMNS = "p Int64, x Int64, v String"
INDEX = "INDEX ix x TYPE minmax GRANULARITY 1"
PROJECTION = "PROJECTION pj (SELECT p, count() GROUP BY p)"
KEYS = "PARTITION BY p ORDER BY (p, x)"
EXACTLY = "SETTINGS enforce_index_structure_match_on_partition_manipulation = 1"
IN_WORDS = EXACTLY.replace("= 1", "= true")
IN_QUOTES = EXACTLY.replace("= 1", "= 'TRUE'")
NOT_EXACTLY = EXACTLY.replace("= 1", "= false")
TABLES = {
    "same": f"({COLUMNS}) ENGINE = MergeTree {KEYS}",
    "exactly": f"({COLUMNS}) ENGINE = MergeTree {KEYS} {EXACTLY}",
    "in another order": f"(v String, x Int64, p Int64) ENGINE = MergeTree {KEYS}",
    "without a column": f"(p Int64, x Int64) ENGINE = MergeTree {KEYS}",
    "of another type": f"(p Int64, x Int64, v Nullable(String)) ENGINE = MergeTree {KEYS}",
    "by another name": f"(p Int64, x Int64, w String) ENGINE = MergeTree {KEYS}",
    "with a default": f"({COLUMNS} DEFAULT 'a' COMMENT 'c' CODEC(ZSTD)) ENGINE = MergeTree {KEYS}",
    "materialized": f"({COLUMNS}, m Int64 MATERIALIZED x) ENGINE = MergeTree {KEYS}",
    "alias": f"({COLUMNS}, m Int64 ALIAS x) ENGINE = MergeTree {KEYS}",
    "index": f"({COLUMNS}, {INDEX}) ENGINE = MergeTree {KEYS}",
    "index, exactly": f"({COLUMNS}, {INDEX}) ENGINE = MergeTree {KEYS} {IN_WORDS}",
    "index, in quotes": f"({COLUMNS}, {INDEX}) ENGINE = MergeTree {KEYS} {IN_QUOTES}",
    "index, not exactly": f"({COLUMNS}, {INDEX}) ENGINE = MergeTree {KEYS} {NOT_EXACTLY}",
    "another index": f"({COLUMNS}, {INDEX.replace('minmax', 'set(10)')}) ENGINE = MergeTree {KEYS}",
    "projection": f"({COLUMNS}, {PROJECTION}) ENGINE = MergeTree {KEYS}",
    "projection, exactly": f"({COLUMNS}, {PROJECTION}) ENGINE = MergeTree {KEYS} {EXACTLY}",
    "partitioned otherwise": f"({COLUMNS}) ENGINE = MergeTree PARTITION BY x % 2 ORDER BY (p, x)",
    "ordered otherwise": f"({COLUMNS}) ENGINE = MergeTree PARTITION BY p ORDER BY (x, p)",
    "with a primary key": (
        f"({COLUMNS}) ENGINE = MergeTree PARTITION BY p PRIMARY KEY p ORDER BY (p, x)"
    ),
    "of another engine": f"({COLUMNS}) ENGINE = ReplacingMergeTree {KEYS}",
    "another in everything": "(a Int64) ENGINE = MergeTree PARTITION BY a ORDER BY a",
}
ENGINES = (
    *("MergeTree", "ReplacingMergeTree", "SummingMergeTree"),
    *("ReplicatedMergeTree", "ReplicatedReplacingMergeTree"),
)
MACROS = "<macros><shard>1</shard><replica>r1</replica></macros>"
NO_ZOOKEEPER = 225


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedConnection]:
    with EmbeddedConnection(tmp_path_factory.mktemp("alike") / "ch", create=True) as opened:
        opened.command("CREATE DATABASE db")
        yield opened


@pytest.fixture(scope="module")
def tables(connection: EmbeddedConnection) -> dict[str, MergeTreeTable]:
    """Return the tables as they are described; each has a row in its partition 1."""
    capabilities = probe_capabilities(connection)
    found = {}
    for number, (what, definition) in enumerate(TABLES.items()):
        connection.command(f"CREATE TABLE db.t{number} {definition}")
        column = "a" if "(a Int64)" in definition else "p, x"
        connection.command(
            f"INSERT INTO db.t{number} ({column}) VALUES (1{', 1' * (',' in column)})"
        )
        found[what] = describe(connection, capabilities, TableName("db", f"t{number}"))
    return found


@pytest.mark.parametrize(
    ("source", "destination"),
    list(itertools.permutations(TABLES, 2)),
    ids=lambda name: name,
)
def test_what_is_refused_is_what_clickhouse_refuses_with_its_code(
    connection: EmbeddedConnection,
    tables: dict[str, MergeTreeTable],
    source: str,
    destination: str,
) -> None:
    """Harm prevented: rows of one meaning under the names of another, or a statement in vain."""
    there, here = tables[source], tables[destination]
    found = differences(there, here)
    statement = f"ALTER TABLE {here.name.sql} ATTACH PARTITION ID '1' FROM {there.name.sql}"

    if not found:
        connection.command(statement)
        return
    with pytest.raises(SourceError) as refused:
        connection.command(statement)
    assert refused.value.code == found[0].code
    message = str(refused.value)
    assert any(one.text.partition(":")[0] in message for one in found), message


@pytest.mark.parametrize(
    ("there", "here", "fits"),
    [
        ("Enum8('a' = 1)", "Enum8('b' = 2, 'a' = 1)", True),
        ("Enum8('a' = 1)", "Enum16('a' = 1, 'b' = 300)", True),
        ("Array(Nullable(Enum8('a' = 1)))", "Array(Nullable(Enum8('a' = 1, 'b' = 2)))", True),
        ("Enum8('a' = 1)", "Enum8('a' = 2, 'b' = 1)", False),
        ("Enum8('a' = 1)", "Enum8('b' = 1)", False),
        ("Enum8('a' = 1)", "Nullable(Enum8('a' = 1))", False),
        ("Tuple(Enum8('a' = 1), Enum8('a' = 1))", "Tuple(Enum8('a' = 1), Enum8('b' = 1))", False),
    ],
)
def test_a_destination_may_have_more_labels_than_the_source(
    there: str, here: str, *, fits: bool
) -> None:
    """ClickHouse refuses them, because its files hold codes. No value loses its meaning."""
    source, destination = (
        replace(TABLE, columns=(Column("e", parse_type(of), of),)) for of in (there, here)
    )

    found = differences(source, destination)

    assert [one.code for one in found] == ([] if fits else [122])
    back = [plain(one.text) for one in differences(destination, source)]
    assert len(back) == 1
    assert back[0].endswith("by an export with --evolve-schema)") is fits


def test_all_differences_are_listed(tables: dict[str, MergeTreeTable]) -> None:
    messages = [str(d.text) for d in differences(tables["same"], tables["another in everything"])]

    assert messages == [
        (
            "Tables have different structure: column p is only there; column x is only there; "
            "column v is only there; column a is only here"
        ),
        "Tables have different ordering: ORDER BY (p, x) there, ORDER BY a here",
        "Tables have different partition key: PARTITION BY p there, PARTITION BY a here",
        "Tables have different primary key: PRIMARY KEY (p, x) there, PRIMARY KEY a here",
    ]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedConnection]:
    """Open a ClickHouse with a table of each of `ENGINES`, with a row in its partition 1."""
    directory = tmp_path_factory.mktemp("engines")
    config = directory / "config.xml"
    config.write_text(f"<clickhouse>{MACROS}</clickhouse>")
    with EmbeddedConnection(directory / "ch", create=True, config_file=config) as opened:
        opened.command("CREATE DATABASE db")
        for engine in ENGINES:
            table, name = f"db.{engine}", engine.removeprefix("Replicated")
            opened.command(f"CREATE TABLE {table} ({COLUMNS}) ENGINE = {name} {KEYS}")
            opened.command(f"INSERT INTO {table} (p) VALUES (1)")
            if name != engine:
                # No Keeper is needed for it.
                opened.command(f"DETACH TABLE {table}")
                opened.command(f"ATTACH TABLE {table} AS REPLICATED")
        yield opened


@pytest.mark.parametrize(
    ("source", "destination"), list(itertools.permutations(ENGINES, 2)), ids=lambda name: name
)
def test_a_move_asks_for_what_clickhouse_asks_of_engines(
    engines: EmbeddedConnection, source: str, destination: str
) -> None:
    """Harm prevented: a move that ClickHouse makes is refused, or one that it refuses is made."""
    capabilities = probe_capabilities(engines)
    there, here = (
        describe(engines, capabilities, TableName("db", name)) for name in (source, destination)
    )
    found = differences(there, here, moves=True)
    statement = f"ALTER TABLE {there.name.sql} MOVE PARTITION ID '1' TO TABLE {here.name.sql}"

    assert differences(there, here) == (), "the engine is asked for by MOVE alone"
    if not found and not there.engine.replicated:
        engines.command(statement)
        return
    with pytest.raises(SourceError) as refused:
        engines.command(statement)
    # Of two replicated tables it asks for their Keeper, which is not there, after all conditions.
    assert refused.value.code == (found[0].code if found else NO_ZOOKEEPER)


def test_a_difference_of_engines_comes_first(tables: dict[str, MergeTreeTable]) -> None:
    """As in ClickHouse, which finds it before it looks at anything else."""
    other = tables["another in everything"]
    replicated = replace(other, engine=replace(other.engine, name="ReplicatedMergeTree"))

    found = differences(tables["same"], replicated, moves=True)

    text = "Tables have different engine family: MergeTree there, ReplicatedMergeTree here"
    assert [(one.text, one.code) for one in found[:1]] == [(text, 48)]
    assert len(found) == 5


def test_partition_keys_are_not_compared_where_the_rows_decide(
    tables: dict[str, MergeTreeTable],
) -> None:
    same, otherwise = tables["same"], tables["partitioned otherwise"]

    assert differences(same, otherwise, divides=False) == ()
    assert differences(same, tables["ordered otherwise"], divides=False) == differences(
        same, tables["ordered otherwise"]
    )


def test_the_names_of_storage_policies_are_compared(tables: dict[str, MergeTreeTable]) -> None:
    """Where files lie is no policy; none is alike none (P-21, P-28, P-33)."""
    fast, none = (replace(tables["same"], storage_policy=name) for name in ("fast", ""))

    assert [d.text for d in differences(fast, tables["same"])] == [
        "Tables have different storage policy: fast there, default here"
    ]
    assert [d.code for d in differences(none, fast)] == [36]
    assert differences(none, none) == differences(fast, fast) == ()
