"""Secrets that a user gives to a Spark session of their own: nobody sees them, in any place."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.services.clickhouse_front import ClickHouseFront
from tests.services.server_process import free_port
from tests.support.iceberg_spark import catalog_settings
from tests.support.local_spark import SPARK_MARKS
from tests.support.watched_session import WatchedSession

pytestmark = SPARK_MARKS

PLACES = (
    "source password",
    "source token",
    "file",
    "environment",
    "jdbc password",
    "jdbc address",
    "rest token",
    "rest credential",
    "s3 secret",
    "basic password",
)


@pytest.fixture
def given(newest_server: ClickHouseFront) -> dict[str, str]:
    """Return a secret for each place; one is the password of a user of the server."""
    made = {place: f"hidden{secrets.token_hex(10)}" for place in PLACES}
    newest_server.commands(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (p UInt8, k UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY k",
        "INSERT INTO db.t SELECT number % 2, number FROM numbers(10)",
        f"CREATE USER exporter IDENTIFIED BY '{made['source password']}'",
        f"CREATE USER other IDENTIFIED BY '{made['file']}'",
        "GRANT ALL ON *.* TO exporter, other",
    )
    return made


def settings(url: str, given: dict[str, str], directory: Path) -> dict[str, str]:
    """Return the settings of a session with a secret wherever one may stand."""
    nobody = free_port()
    file = directory / "source.toml"
    file.write_text(f'[source]\nuser = "other"\npassword = "{given["file"]}"\n')
    file.chmod(0o600)
    sources = {
        "ch": url,
        "ch.user": "exporter",
        "ch.password": given["source password"],
        "by_token": f"http://127.0.0.1:{nobody}",
        "by_token.token": given["source token"],
        "by_file": url,
        "by_file.config-file": str(file),
        "by_environment": url,
        "default": "by_environment",
        **{f"{n}.allow-insecure": "true" for n in ("ch", "by_token", "by_file", "by_environment")},
    }
    at = f"127.0.0.1:{nobody}"
    tokens = {"type": "rest", "uri": f"http://{at}"}
    database = {"type": "jdbc", "warehouse": "file:///nowhere"}
    password = f"user=u&password={given['jdbc address']}"
    basic = {"rest__auth__type": "basic", "rest__auth__basic__username": "u"}
    return {
        **{f"spark.mergeberg.source.{name}": text for name, text in sources.items()},
        **catalog_settings(
            "pg",
            **database,
            uri=f"jdbc:postgresql://{at}/d?sslmode=disable",
            jdbc__user="u",
            jdbc__password=given["jdbc password"],
        ),
        **catalog_settings("pg2", **database, uri=f"jdbc:postgresql://{at}/d?{password}"),
        **catalog_settings("rest", **tokens, token=given["rest token"]),
        **catalog_settings("rest2", **tokens, credential=f"id:{given['rest credential']}"),
        **catalog_settings(
            "rest3", **tokens, **basic, rest__auth__basic__password=given["basic password"]
        ),
        **catalog_settings("s3", type="glue", s3__secret_access_key=given["s3 secret"]),
        **catalog_settings("wrong", **tokens, token=given["rest token"], nothing__of__this="x"),
    }


@pytest.mark.representative
def test_no_secret_of_a_session_is_seen(
    newest_server: ClickHouseFront, given: dict[str, str], tmp_path: Path
) -> None:
    """In its pages, event log, driver's log, list of processes, and every error with its traceback.

    Steps that fail are meant to: nobody listens where most of the settings lead.
    """
    watched = WatchedSession(tmp_path / "session", secrets=given)
    watched.root.mkdir()
    tables = ("ch.db.t", "ch.db.nope", "by_token.db.t", "by_file.db.t", "by_environment.db.t")
    catalogs = ("pg", "pg2", "rest", "rest2", "rest3", "s3", "wrong", "absent")
    steps: list[Mapping[str, object]] = [
        *(
            {"call": "partitions", "catalog": None, "arguments": {"table": t, "cluster": None}}
            for t in tables
        ),
        *({"open": catalog} for catalog in catalogs),
        {"sql": "SELECT count(*) FROM range(10)"},
        {"sql": "SET spark.mergeberg.source.ch.password"},
        {"sql": "SET -v"},
        {"sql": "SELECT * FROM nowhere"},
    ]

    watched.give(
        steps,
        conf=settings(newest_server.url, given, tmp_path),
        environment={"MERGEBERG_SOURCE_PASSWORD": given["environment"]},
    )

    assert watched.code == 0, watched.err
    assert watched.out.count('"rows": [["0"') == 2, watched.out
    assert watched.out.count("STEP ") == len(steps)
    assert watched.out.count("DestinationError: Cannot open the catalog") >= 5, watched.out
    assert "nothing.of.this is no setting" in watched.out
    pages = {name for name, _ in watched.everything() if name.endswith(".page")}
    assert "pages/environment.page" in pages
    assert len(pages) == 8
    environment = (watched.root / "pages" / "environment.page").read_text()
    assert "spark.mergeberg.source.ch.password" in environment, "the page has the settings"
    assert "by_environment" in environment
    events = b"".join(c for name, c in watched.everything() if name.startswith("events"))
    assert b"spark.mergeberg.source.ch.password" in events
    # What the user gives to the process, Spark gives to those that it starts.
    inherited = [place for given_in, place in watched.shown() if given_in == "environment"]
    assert all(place.startswith("environment of") for place in inherited)
    assert watched.shown(environments=False) == []


@pytest.mark.soak
def test_what_the_user_shows_is_found(tmp_path: Path) -> None:
    """Harm prevented: a search that finds nothing; and a page that says SET is safe."""
    given = {"set": "hidden-by-nobody", "plain": "hidden-no-more", "hidden": "unsaid"}
    watched = WatchedSession(tmp_path, secrets=given)

    watched.give(
        [{"sql": "SET spark.mergeberg.source.ch.password=hidden-by-nobody"}],
        conf={"spark.mergeberg.warehouse": "/hidden-no-more", "spark.x.password": "unsaid"},
    )

    assert watched.code == 0, watched.err
    found = {(given_in, place.partition("/")[0]) for given_in, place in watched.shown()}
    assert {("set", "events"), ("set", "pages")} <= found
    assert {("plain", "events"), ("plain", "pages")} <= found
    assert not {place for given_in, place in found if given_in == "hidden"}
