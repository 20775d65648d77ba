"""A ClickHouse of our own can do less than its user, ends, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.embedded import LEAST_SECONDS, EmbeddedConnection, OwnClickHouse
from tableformat.clickhouse_codes import (
    ACCESS_DENIED,
    MEMORY_LIMIT_EXCEEDED,
    SETTING_CONSTRAINT_VIOLATION,
    TIMEOUT_EXCEEDED,
)
from tableformat.errors import SourceError
from tests.services.server_process import wait_until
from tests.support.processes import descendants, environment, has_ended

ENDLESS = "SELECT 1 IN (SELECT * FROM system.zeros)"
CONTENT = "the operator's"
NOW = "SETTINGS mutations_sync = 2"
IS_KILLED = """
import os, sys, threading
from catalog.clickhouse.embedded import OwnClickHouse
clickhouse = OwnClickHouse("x")
print(clickhouse.process_id, flush=True)
if sys.argv[1:]:
    threading.Timer(0.5, os._exit, (1,)).start()
    clickhouse.rows(sys.argv[1])
os._exit(1)
"""


@pytest.fixture(autouse=True)
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make directories in one of the test."""
    scratch = tmp_path / "scratch & more"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    return scratch


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Give an address at which a call is seen, and look afterwards that nobody called."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(0)
        yield made
        with pytest.raises(BlockingIOError):
            made.accept()


@pytest.fixture
def own(below: Path) -> Iterator[OwnClickHouse]:
    """Give one, with a table of one row."""
    with OwnClickHouse("x") as started:
        started.command("CREATE TABLE default.t (s String) ENGINE = MergeTree ORDER BY tuple()")
        started.command("INSERT INTO default.t VALUES ('v')")
        yield started
    assert list(below.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM url('ADDRESS', 'LineAsString', 's String')",
        "SELECT * FROM s3('ADDRESS/bucket/key', 'LineAsString', 's String')",
        "SELECT * FROM remote('HOST', system.one)",
        "SELECT * FROM mysql('HOST', 'd', 't', 'u', 'p')",
        "SELECT * FROM postgresql('HOST', 'd', 't', 'u', 'p')",
        "SELECT * FROM mongodb('HOST', 'd', 't', 'u', 'p', 's String')",
        "SELECT * FROM redis('HOST', 'k', 'k String')",
        (
            "CREATE DICTIONARY default.d (k UInt64) PRIMARY KEY k SOURCE(HTTP(URL 'ADDRESS'))"
            " LAYOUT(FLAT()) LIFETIME(1)"
        ),
        "CREATE FUNCTION f AS x -> x",
        "CREATE NAMED COLLECTION c AS a = 1",
        "CREATE TABLE default.u (s String) ENGINE = URL('ADDRESS', 'LineAsString')",
        "SELECT dictGet('d', 'a', 1)",
        "SYSTEM RELOAD CONFIG",
        "CREATE USER u",
    ],
)
def test_it_calls_nobody_and_changes_no_rights(
    own: OwnClickHouse, listener: socket.socket, sql: str
) -> None:
    host = "{}:{}".format(*listener.getsockname())

    with pytest.raises(ClickHouseError):
        own.rows(sql.replace("ADDRESS", f"http://{host}").replace("HOST", host))


def test_what_it_does_in_the_background_calls_nobody(
    own: OwnClickHouse, listener: socket.socket
) -> None:
    """A mutation and a default are computed by no user, so that rights say nothing."""
    host, port = listener.getsockname()
    called = f"toString('x' IN url('http://{host}:{port}/x', 'LineAsString', 's String'))"
    made = f"CREATE TABLE default.d (a UInt8, s String DEFAULT {called}) ENGINE = Memory"

    for statement in (f"ALTER TABLE default.t UPDATE s = {called} WHERE 1 {NOW}", made):
        with pytest.raises(ClickHouseError):
            own.command(statement)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT addressToSymbol(1)", ACCESS_DENIED),
        ("SET allow_introspection_functions = 1", SETTING_CONSTRAINT_VIOLATION),
        ("SELECT 1 SETTINGS allow_introspection_functions = 1", SETTING_CONSTRAINT_VIOLATION),
    ],
)
def test_it_does_not_look_into_its_process(own: OwnClickHouse, sql: str, code: int) -> None:
    with pytest.raises(ClickHouseError) as refused:
        own.rows(sql)

    assert refused.value.code == code


def test_no_secret_is_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "MERGEBERG_HARMLESS"):
        monkeypatch.setenv(name, CONTENT)

    with OwnClickHouse("x") as own:
        found = [name for name, text in environment(own.process_id).items() if text == CONTENT]

    assert found == ["MERGEBERG_HARMLESS"]


def test_a_configuration_where_the_command_is_run_is_not_its_own(
    below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ClickHouse takes a config.xml of the working directory where no other is configured."""
    place = below.parent / "elsewhere"
    place.mkdir()
    (place / "config.xml").write_text("<clickhouse><macros><m>theirs</m></macros></clickhouse>")
    monkeypatch.chdir(place)

    with OwnClickHouse("x") as own:
        assert own.rows("SELECT count() FROM system.macros") == ((0,),)


@pytest.mark.parametrize(
    "sql",
    [
        ENDLESS,
        "SELECT count() FROM system.numbers",
        "SELECT sum(cityHash64(toString(number))) FROM numbers(1000000000000)",
    ],
)
def test_what_takes_too_long_ends_with_its_process(below: Path, sql: str) -> None:
    before = descendants(os.getpid())
    with OwnClickHouse("x", seconds=1) as own:
        child = own.process_id
        with pytest.raises(ClickHouseError, match="it ran longer than 1 seconds") as refused:
            own.rows(sql)
        with pytest.raises(SourceError, match="was interrupted"):
            own.rows("SELECT 1")

    assert refused.value.code == TIMEOUT_EXCEEDED
    assert has_ended(child)
    assert descendants(os.getpid()) <= before
    assert list(below.iterdir()) == []


def test_rows_give_a_statement_more_time() -> None:
    with OwnClickHouse("x", seconds=1) as own:
        own.allow(1_000_000, 50 << 20)

        assert own.seconds == LEAST_SECONDS + 100 + 50


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(arrayStringConcat(range(100000000)))",
        (
            "ALTER TABLE default.t UPDATE s = toString(length(arrayStringConcat(range(100000000))))"
            " WHERE 1 SETTINGS mutations_sync = 2"
        ),
        "SELECT length(groupArray(number)) FROM numbers(1000000000)",
    ],
)
def test_what_takes_too_much_memory_is_refused(below: Path, sql: str) -> None:
    with OwnClickHouse("x", memory=0.02, seconds=60) as own:
        own.command("CREATE TABLE default.t (s String) ENGINE = MergeTree ORDER BY tuple()")
        own.command("INSERT INTO default.t VALUES ('v')")
        with pytest.raises(ClickHouseError) as refused:
            own.rows(sql)

    assert refused.value.code == MEMORY_LIMIT_EXCEEDED
    assert list(below.iterdir()) == []


@pytest.mark.parametrize("sql", [None, "SELECT 1", ENDLESS])
def test_it_ends_with_a_command_that_is_killed(below: Path, sql: str | None) -> None:
    """Harm prevented: a process that computes for ever, and rows that stay on the disk."""
    done = subprocess.run(
        [sys.executable, "-c", IS_KILLED, *(() if sql is None else (sql,))],
        capture_output=True,
        text=True,
        check=False,
    )
    child = int(done.stdout.split()[-1])

    wait_until(lambda: has_ended(child), "the ClickHouse of a killed command has ended")
    assert list(below.iterdir()) == []


def test_a_source_may_take_as_long_as_it_needs(tmp_path: Path) -> None:
    """Only what others wrote is bounded: a part of 100 GB is not."""
    with EmbeddedConnection(tmp_path / "data", create=True) as connection:
        assert connection.seconds is None
