"""Who owns a lake table reads no file of the operator, calls nobody, and keeps nothing running.

Everything of a lake table that is evaluated is tried: what its properties remember, and what a
statement says. A file with a secret and a listener tell whether anything went out.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tableformat.errors import TableFormatError
from tests.support.processes import descendants
from tests.support.session_lake import alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

CONTENT = "what only the operator reads"
COLUMNS = "mergeberg.source.columns"
_NUMBERS = iter(range(1_000))
_MADE: dict[Path, str] = {}
"""The tables of the refused statements, which change nothing, by warehouse."""
Change = Callable[[dict[str, str], "Reach"], None]
"""Changes the properties of a table."""


@dataclass(frozen=True)
class Reach:
    """A file that only the operator may read, and an address at which a call is seen."""

    secret: Path
    listener: socket.socket

    @property
    def url(self) -> str:
        host, port = self.listener.getsockname()
        return f"http://{host}:{port}/x"

    @property
    def called(self) -> bool:
        """Whether somebody connected."""
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return False
        connection.close()
        return True

    def reading(self) -> str:
        """Return an expression that reads the file."""
        return f"file('{self.secret}')"

    def calling(self) -> str:
        """Return an expression that calls the listener."""
        return f"toString('x' IN url('{self.url}', 'LineAsString', 's String'))"


@pytest.fixture
def reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reach]:
    """Give what is out of reach, and look afterwards that nothing was reached, and nothing left."""
    secret, scratch = tmp_path / "secret.txt", tmp_path / "scratch"
    secret.write_text(f"{CONTENT}\n")
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = descendants(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        found = Reach(secret, listener)
        yield found
        assert not found.called
    assert descendants(os.getpid()) <= before
    assert list(scratch.iterdir()) == []


@pytest.fixture
def lake(places: Places, session: NoSpark) -> Iterator[str]:
    """Yield a lake table with a default, a computed column and an alias: its properties go back."""
    name = _MADE.get(places.warehouse) or made(places, session)
    _MADE[places.warehouse] = name
    before = dict(opened(places, name).properties)
    yield name
    opened(places, name).transaction().set_properties(before).commit_transaction()


@pytest.fixture
def changed_lake(places: Places, session: NoSpark) -> str:
    """Return the name of such a table for one test."""
    return made(places, session)


def made(places: Places, session: NoSpark) -> str:
    """Export a table; return its name in the lake."""
    places.reads_parts = True
    name = f"reach_{next(_NUMBERS)}"
    places.clickhouse_run(
        "DROP TABLE IF EXISTS db.reach SYNC",
        "CREATE TABLE db.reach (p UInt8, k UInt64, ver UInt64, s String DEFAULT 'none',"
        " m String MATERIALIZED lower(s), a String ALIAS upper(s)) ENGINE ="
        " ReplacingMergeTree(ver) PARTITION BY p ORDER BY k",
        "INSERT INTO db.reach (p, k, ver, s) SELECT number % 3, number, 1, 'v' FROM numbers(6)",
    )
    export_all(session, "reach", name)
    return name


def remember(places: Places, name: str, change: Change, reach: Reach) -> None:
    """Change what a lake table remembers, as its owner may in any engine."""
    table = opened(places, name)
    properties = dict(table.properties)
    change(properties, reach)
    table.transaction().set_properties(properties).commit_transaction()


def default_of(column: str, text: Callable[[Reach], str], kind: str | None = None) -> Change:
    """Return what gives a column another default."""

    def change(properties: dict[str, str], reach: Reach) -> None:
        columns = json.loads(properties[COLUMNS])
        (found,) = [one for one in columns if one["name"] == column]
        found["default"] = text(reach)
        if kind is not None:
            found["default_kind"] = kind
        properties[COLUMNS] = json.dumps(columns)

    return change


def type_of(column: str, text: str) -> Change:
    """Return what gives a column another type."""

    def change(properties: dict[str, str], reach: Reach) -> None:
        columns = json.loads(properties[COLUMNS])
        (found,) = [one for one in columns if one["name"] == column]
        found["type"] = text.replace("READING", reach.reading())
        properties[COLUMNS] = json.dumps(columns)

    return change


def text_of(name: str, text: str) -> Change:
    """Return what gives a property another text."""

    def change(properties: dict[str, str], reach: Reach) -> None:
        reading = text.replace("READING", reach.reading()).replace("CALLING", reach.calling())
        properties[f"mergeberg.source.{name}"] = reading

    return change


CLEAR = "CLEAR COLUMN s"
UPDATE = "UPDATE s = 'w' WHERE k = 1"
REMEMBERED: dict[str, tuple[Change, str]] = {
    "a default that reads": (default_of("s", Reach.reading), CLEAR),
    "a default that calls": (default_of("s", Reach.calling), CLEAR),
    "a default in a lambda": (
        default_of("s", lambda r: f"arrayMap(x -> file(x), ['{r.secret}'])[1]"),
        CLEAR,
    ),
    "a default that asks who runs it": (default_of("s", lambda _: "hostName()"), CLEAR),
    "a default that asks for a macro": (default_of("s", lambda _: "getMacro('x')"), CLEAR),
    "a default that looks at another host": (
        default_of(
            "s",
            lambda r: (
                "toString(hasColumnInTable('127.0.0.1:"
                f"{r.listener.getsockname()[1]}', 'system', 'one', 'dummy'))"
            ),
        ),
        CLEAR,
    ),
    "a default that waits": (default_of("s", lambda _: "toString(sleep(3))"), CLEAR),
    "a table behind IN": (
        default_of("s", lambda _: "toString(k IN system.zeros)"),
        "CLEAR COLUMN s",
    ),
    "a file behind IN": (
        default_of("s", lambda r: f"toString(s IN `{r.secret}`)"),
        CLEAR,
    ),
    "a subquery": (
        default_of("s", lambda r: f"(SELECT * FROM file('{r.secret}', 'LineAsString'))"),
        CLEAR,
    ),
    "a kind of default": (
        default_of("s", lambda _: "1", kind="DEFAULT hostName() --"),
        CLEAR,
    ),
    "a computed column that reads": (default_of("m", Reach.reading), UPDATE),
    "a computed column that calls": (default_of("m", Reach.calling), UPDATE),
    "an alias that reads": (default_of("a", Reach.reading), "UPDATE ver = 2 WHERE a = 'V'"),
    "an alias that calls": (default_of("a", Reach.calling), "DELETE WHERE a = 'V'"),
    "a type": (
        type_of("s", "AggregateFunction(sum, UInt8 /* ) DEFAULT READING /* */)"),
        CLEAR,
    ),
    "a zone": (text_of("server-zone", ":/dev/zero"), UPDATE),
    "the partition key": (text_of("partition-key", "p % 3 + length(READING)"), "DROP PARTITION 1"),
    "the partition key, calling": (
        text_of("partition-key", "p % 3 + length(CALLING)"),
        "DROP PARTITION 1",
    ),
    "the partition key, of UPDATE": (text_of("partition-key", "(p % 3, READING)"), UPDATE),
    "the partition key, closed early": (
        text_of("partition-key", "p % 3 ORDER BY k SETTINGS disk = disk(type = web)"),
        "DROP PARTITION 1",
    ),
    "the sorting key": (text_of("sorting-key", "(k, READING)"), UPDATE),
    "the sorting key, of OPTIMIZE": (text_of("sorting-key", "(k, READING)"), "OPTIMIZE"),
    "the primary key": (text_of("primary-key", "CALLING"), UPDATE),
    "the engine's arguments": (text_of("engine", "ReplacingMergeTree(READING)"), UPDATE),
}
STATEMENTS = [
    "UPDATE s = file('SECRET') WHERE 1",
    "UPDATE s = `file`('SECRET') WHERE 1",
    "UPDATE s = FILE('SECRET', 'none') WHERE 1",
    "DELETE WHERE s = file('SECRET')",
    "DELETE WHERE s IN `SECRET`",
    "DELETE WHERE s NOT IN (`SECRET`)",
    "DELETE WHERE k IN system.zeros",
    "DELETE WHERE k IN zeros()",
    "DELETE WHERE s IN url('URL', 'LineAsString', 's String')",
    "DELETE WHERE s IN s3('URL', 'LineAsString', 's String')",
    "DELETE WHERE nullIn(s, url('URL', 'LineAsString', 's String'))",
    "DELETE WHERE s IN remote('127.0.0.1:PORT', system.one)",
    "DELETE WHERE s IN executable('cat SECRET', 'LineAsString', 's String')",
    "DELETE WHERE s IN file('SECRET', 'LineAsString', 's String')",
    "DELETE WHERE s IN format('LineAsString', 'v')",
    "DELETE WHERE s IN (SELECT * FROM file('SECRET', 'LineAsString'))",
    "UPDATE s = dictGet('d', 'a', k) WHERE 1",
    "UPDATE s = joinGet('j', 'a', k) WHERE 1",
    "UPDATE s = catboostEvaluate('SECRET', k) WHERE 1",
    "UPDATE s = getSetting('max_threads') WHERE 1",
    "UPDATE s = currentUser() WHERE 1",
    "UPDATE s = serverUUID() WHERE 1",
    "UPDATE s = toString(filesystemAvailable()) WHERE 1",
    "UPDATE s = toString(generateSerialID('x')) WHERE 1",
    "UPDATE s = toString(sleepEachRow(3)) WHERE 1",
    "UPDATE s = addressToSymbol(1) WHERE 1",
    "UPDATE s = functionOfTomorrow(s) WHERE 1",
]


@pytest.mark.parametrize("name", REMEMBERED)
def test_what_a_lake_table_remembers_reaches_nothing(
    places: Places, session: NoSpark, lake: str, reach: Reach, name: str
) -> None:
    change, command = REMEMBERED[name]
    remember(places, lake, change, reach)
    before = opened(places, lake).metadata.current_snapshot_id
    table = f"TABLE lake.n.{lake}"
    optimizes = command == "OPTIMIZE"

    with pytest.raises(TableFormatError) as refused:
        alter(session, f"OPTIMIZE {table} FINAL" if optimizes else f"ALTER {table} {command}")

    assert CONTENT not in refused.value.message
    assert re.search(r"mergeberg\.source\.|Cannot read the \w+ key", refused.value.message)
    after = opened(places, lake)
    assert after.metadata.current_snapshot_id == before
    assert after.scan().to_arrow().column("s").to_pylist() == ["v"] * 6


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_on_a_lake_table_reaches_nothing(
    places: Places, session: NoSpark, lake: str, reach: Reach, statement: str
) -> None:
    port = str(reach.listener.getsockname()[1])
    text = statement.replace("SECRET", str(reach.secret)).replace("URL", reach.url)
    before = opened(places, lake).metadata.current_snapshot_id

    with pytest.raises(TableFormatError) as refused:
        alter(session, f"ALTER TABLE lake.n.{lake} {text.replace('PORT', port)}")

    assert CONTENT not in refused.value.message
    assert opened(places, lake).metadata.current_snapshot_id == before


@pytest.mark.parametrize("command", [UPDATE, "DELETE WHERE k = 1", "DROP PARTITION 1"])
def test_what_a_statement_does_not_need_is_in_nobodys_way(
    places: Places, session: NoSpark, changed_lake: str, reach: Reach, command: str
) -> None:
    """Harm prevented: a table with one dictGet in a default that can no more be changed at all."""
    remember(places, changed_lake, default_of("s", lambda _: "dictGet('d', 'a', k)"), reach)

    (row, *_) = alter(session, f"ALTER TABLE lake.n.{changed_lake} {command}")

    assert row["status"] in ("changed", "dropped")
