"""Whole exports from a server that asks who logs in: nobody sees the secret, however they end."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.services.clickhouse_front import ClickHouseFront
from tests.services.clickhouse_http.faults import error
from tests.support.local_spark import SPARK_MARKS
from tests.support.watched_export import WatchedExport

pytestmark = SPARK_MARKS


@pytest.fixture
def watched(tmp_path: Path) -> WatchedExport:
    """Return an export with a secret of its own, that is nowhere yet."""
    return WatchedExport(tmp_path, f"s3cret-{secrets.token_hex(12)}".encode())


@pytest.fixture
def front(newest_server: ClickHouseFront, watched: WatchedExport) -> ClickHouseFront:
    """Return a server with a table, and a user with the secret for a password."""
    newest_server.commands(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (p UInt8, k UInt64, s String) ENGINE = MergeTree"
        " PARTITION BY p ORDER BY k",
        "INSERT INTO db.t SELECT number % 2, number, toString(number) FROM numbers(1000)",
        f"CREATE USER exporter IDENTIFIED BY '{watched.secret.decode()}'",
        "GRANT ALL ON *.* TO exporter",
    )
    return newest_server


def words(front: ClickHouseFront, user: str = "exporter@") -> tuple[str, ...]:
    source = front.url.replace("://", f"://{user}")
    return ("db.t", "--all", "--source", source, "--to", "lake.n.t")


def assert_hidden(watched: WatchedExport, front: ClickHouseFront) -> None:
    """Check that the secret is in nothing that is left or was seen, nor was part of a statement."""
    assert watched.shows() == []
    requests = " ".join(f"{r.sql} {r.query_id} {r.parameters}" for r in front.requests())
    assert watched.secret.decode() not in requests


@pytest.mark.soak
def test_a_password_of_the_environment_is_seen_nowhere_after_an_export(
    front: ClickHouseFront, watched: WatchedExport
) -> None:
    """Nor while it runs, but in the environment of the one process to which it was given.

    And in a file of Spark's temporary directory that only its owner opens, as docs/operating says.
    """
    given = {"MERGEBERG_SOURCE_PASSWORD": watched.secret.decode()}

    watched.run(*words(front), environment=given)

    assert (watched.code, watched.out.count(": exported")) == (0, 2), watched.err
    assert watched.out.count("verified") == 2
    assert_hidden(watched, front)
    assert watched.broadcast_modes == {(0o600, 0o700)}
    lines = b"\n".join(watched.command_lines)
    assert b"org.apache.spark.deploy.SparkSubmit" in lines
    assert b"pyspark.daemon" in lines
    names = {name.partition("/")[0] for name, _ in watched.everything()}
    assert {"events", "log.json", "warehouse"} <= names
    suffixes = {Path(name).suffix for name, _ in watched.everything()}
    assert {".parquet", ".avro", ".json", ".db"} <= suffixes
    events = b"".join(c for name, c in watched.everything() if name.startswith("events"))
    assert b"MapInArrow" in events, "the event log has the plan"
    made = [one.sql for one in front.requests("CREATE TABLE") if "COMMENT" in one.sql]
    assert made, "staging tables have a comment"


@pytest.mark.representative
def test_a_token_of_a_file_is_nowhere_even_while_an_export_runs(
    front: ClickHouseFront, watched: WatchedExport
) -> None:
    """Where Spark encrypts what it writes, its temporary directory has it neither."""
    front.token("exporter", watched.secret.decode())
    file = watched.root.parent / f"{watched.root.name}-source.toml"
    file.write_text(f'[source]\ntoken = "{watched.secret.decode()}"\n')
    file.chmod(0o600)

    watched.run(
        *words(front, user=""),
        "--source-config",
        str(file),
        environment={},
        conf=("spark.io.encryption.enabled=true",),
    )

    assert (watched.code, watched.out.count(": exported")) == (0, 2), watched.err
    assert_hidden(watched, front)
    assert watched.broadcast_modes == set()


@pytest.mark.soak
def test_a_slice_that_fails_does_not_show_it_even_if_the_server_says_it(
    front: ClickHouseFront, watched: WatchedExport
) -> None:
    """What a server says to a task comes back through Spark."""
    secret = watched.secret.decode()
    refusal = error(241, "MEMORY_LIMIT_EXCEEDED", f"no memory for {secret}")
    front.fail_next(refusal, times=100, containing="FORMAT ArrowStream")

    watched.run(*words(front), environment={"MERGEBERG_SOURCE_PASSWORD": secret})

    assert watched.code == 4, watched.err
    assert "no memory for ***" in watched.out + watched.err
    assert_hidden(watched, front)


@pytest.mark.parametrize(
    ("table", "user", "message"),
    [("db.nope", "exporter", "db.nope"), ("db.t", "somebody", "Cannot log in")],
)
def test_an_export_that_is_refused_does_not_show_it(
    front: ClickHouseFront, watched: WatchedExport, table: str, user: str, message: str
) -> None:
    """With the traceback that --debug shows."""
    given = {"MERGEBERG_SOURCE_PASSWORD": watched.secret.decode()}
    _, *others = words(front, user=f"{user}@")

    watched.run(table, *others, environment=given)

    assert watched.code in (3, 4)
    assert message in watched.err
    assert "Traceback" in watched.err
    assert_hidden(watched, front)
