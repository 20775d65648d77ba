"""The rights of the front's users are the engine's own: what it refuses, a server would refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
import urllib3

from tests.services.clickhouse_front import ClickHouseFront

_CLONE: Final = (
    "CREATE TABLE stg.x AS db.t ENGINE = MergeTree PARTITION BY p ORDER BY k",
    "ALTER TABLE stg.x REPLACE PARTITION ID '1' FROM db.t",
    "CHECK TABLE stg.x PARTITION ID '1'",
    "SELECT count() FROM stg.x",
    "DROP TABLE stg.x SYNC",
)


class Person:
    """A user of the server, with a way to prove it."""

    def __init__(self, front: ClickHouseFront, http: urllib3.PoolManager, **headers: str) -> None:
        self._front, self._http = front, http
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def ask(self, sql: str) -> str:
        found = self._http.request("POST", self._front.url, body=sql, headers=self._headers)
        code = found.headers.get("X-ClickHouse-Exception-Code")
        return found.data.decode() if code is None else f"{found.status} {found.data.decode()}"


@pytest.fixture
def front(newest_server: ClickHouseFront) -> ClickHouseFront:
    newest_server.commands(
        "CREATE DATABASE db",
        "CREATE DATABASE stg",
        "CREATE TABLE db.t (p UInt8, k UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY k",
        "INSERT INTO db.t SELECT number % 3, number FROM numbers(30)",
        "CREATE USER exporter IDENTIFIED WITH sha256_password BY 'secret'",
    )
    return newest_server


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=60) as pool:
        yield pool


@pytest.fixture
def exporter(front: ClickHouseFront, http: urllib3.PoolManager) -> Person:
    return Person(front, http, X_ClickHouse_User="exporter", X_ClickHouse_Key="secret")


def test_each_missing_grant_is_named_until_the_clone_works(
    front: ClickHouseFront, exporter: Person
) -> None:
    """From nothing to the set of docs/operating/servers.md, by the engine's messages alone."""
    given = []
    for statement in _CLONE:
        while "Not enough privileges" in (response := exporter.ask(statement)):
            assert response.startswith("403 Code: 497. DB::Exception: exporter: Not enough")
            _, _, missing = response.partition("have the grant ")
            grant = missing.partition(". (ACCESS_DENIED)")[0]
            # The message to a query that names no column, as count() is: any column will do.
            grant = grant.replace(" for at least one column on ", " ON ")
            given.append(grant)
            front.command(f"GRANT {grant} TO exporter")
        assert "Code:" not in response

    assert "INSERT, ALTER DELETE ON stg.x" in given
    assert "SELECT ON db.t" in " ".join(given).replace("(p, k)", "")
    shown = exporter.ask("SHOW GRANTS")
    assert shown.count(" TO exporter\n") == len(shown.splitlines())


def test_a_user_is_shown_its_own_grants(
    front: ClickHouseFront, exporter: Person, http: urllib3.PoolManager
) -> None:
    front.command("GRANT SELECT ON db.* TO exporter")

    assert exporter.ask("SHOW GRANTS") == "GRANT SELECT ON db.* TO exporter\n"
    assert exporter.ask("show grants for current_user") == "GRANT SELECT ON db.* TO exporter\n"
    assert Person(front, http).ask("SHOW GRANTS").startswith("GRANT ALL ON *.* TO default WITH")


def test_system_tables_need_a_grant_unless_the_server_is_set_otherwise(
    front: ClickHouseFront, exporter: Person
) -> None:
    parts, found = "SELECT name FROM system.parts WHERE table = 't'", "0_1_1_0\n1_2_2_0\n2_3_3_0\n"
    front.command("GRANT SELECT ON db.* TO exporter")

    assert "have the grant SELECT ON system.parts. (ACCESS_DENIED)" in exporter.ask(parts)
    assert "SELECT ON system.processes" in exporter.ask("KILL QUERY WHERE query_id = 'x'")
    assert exporter.ask("SELECT name FROM system.tables WHERE database = 'db'") == "t\n"
    assert exporter.ask("SELECT 'system.parts'") == "system.parts\n"
    columns = "SELECT count() > 0 FROM system.columns WHERE table = 'parts'"
    assert exporter.ask(columns) == "0\n"
    front.command("GRANT SELECT ON system.parts TO exporter")
    assert exporter.ask(parts) == found
    assert exporter.ask(columns) == "1\n"

    front.command("REVOKE ALL ON system.* FROM exporter")
    front.open_system_tables()

    assert exporter.ask(parts) == found


def test_a_right_that_is_taken_away_is_gone(front: ClickHouseFront, exporter: Person) -> None:
    front.command("GRANT SELECT ON db.* TO exporter")
    assert exporter.ask("SELECT count() FROM db.t") == "30\n"
    assert exporter.ask("CHECK GRANT SELECT ON db.t") == "1\n"

    front.command("REVOKE SELECT ON db.t FROM exporter")

    assert exporter.ask("SELECT count() FROM db.t").startswith("403 Code: 497.")


def test_a_user_sees_only_what_it_may_read(front: ClickHouseFront, exporter: Person) -> None:
    tables = "SELECT database, name FROM system.tables WHERE database = 'db'"
    assert exporter.ask(tables) == ""

    front.command("GRANT SELECT(k) ON db.t TO exporter")

    assert exporter.ask(tables) == "db\tt\n"
    assert exporter.ask("SELECT max(k) FROM db.t") == "29\n"
    assert "have the grant SELECT ON db.t." in exporter.ask("SELECT max(p) FROM db.t")


def test_a_row_policy_hides_rows_from_its_users_alone(
    front: ClickHouseFront, exporter: Person, http: urllib3.PoolManager
) -> None:
    front.commands(
        "GRANT SELECT ON db.* TO exporter",
        "CREATE ROW POLICY some ON db.t FOR SELECT USING p < 2 TO exporter",
    )

    assert exporter.ask("SELECT count() FROM db.t") == "20\n"
    assert Person(front, http).ask("SELECT count() FROM db.t") == "30\n"
    assert front.rows("SELECT count() FROM db.t") == ((30,),)
    policies = "SELECT name, apply_to_list FROM system.row_policies WHERE table = 't'"
    assert front.rows(policies) == (("some ON db.t", ["exporter"]),)
    assert "have the grant SHOW ROW POLICIES ON *.*." in exporter.ask(policies)
    front.command("DROP ROW POLICY some ON db.t")
    assert exporter.ask("SELECT count() FROM db.t") == "30\n"


def test_the_settings_of_a_user_hold_for_its_requests(
    front: ClickHouseFront, http: urllib3.PoolManager
) -> None:
    front.commands(
        "CREATE USER reader SETTINGS readonly = 1, max_threads = 1",
        "GRANT ALL ON *.* TO reader",
        "CREATE USER poor SETTINGS max_memory_usage = '1000000'",
    )
    reader = Person(front, http, X_ClickHouse_User="reader")
    poor = Person(front, http, X_ClickHouse_User="poor")

    assert reader.ask("SELECT getSetting('max_threads')") == "1\n"
    assert "Cannot execute query in readonly mode" in reader.ask("DROP TABLE db.t")
    assert "in readonly mode" in reader.ask("SELECT 1 SETTINGS max_threads = 2")
    assert "(MEMORY_LIMIT_EXCEEDED)" in poor.ask("SELECT groupArray(number) FROM numbers(1000000)")


def test_a_client_without_valid_credentials_gets_no_result(
    front: ClickHouseFront, http: urllib3.PoolManager
) -> None:
    front.command("ALTER USER default IDENTIFIED BY 'set'")
    wrong = Person(front, http, X_ClickHouse_User="exporter", X_ClickHouse_Key="guessed")
    nobody = Person(front, http, X_ClickHouse_User="nobody")
    both = Person(front, http, X_ClickHouse_User="exporter", Authorization="Basic eDp5")

    refusal = "Authentication failed: password is incorrect, or there is no user with such name"
    assert wrong.ask("SELECT 1").startswith(f"403 Code: 516. DB::Exception: exporter: {refusal}.")
    assert nobody.ask("SELECT 1").startswith(f"403 Code: 516. DB::Exception: nobody: {refusal}.")
    assert Person(front, http).ask("SELECT 1").startswith("401 Code: 194. DB::Exception: default")
    assert "it is not allowed to use X-ClickHouse HTTP headers and" in both.ask("SELECT 1")


def test_a_user_is_recognised_by_each_way_to_say_it(
    front: ClickHouseFront, http: urllib3.PoolManager, exporter: Person
) -> None:
    front.command("CREATE USER service")
    front.token("service", "a-token")
    ask = "SELECT currentUser()"
    basic = urllib3.make_headers(basic_auth="exporter:secret")["authorization"]

    assert exporter.ask(ask) == "exporter\n"
    assert Person(front, http, Authorization=basic).ask(ask) == "exporter\n"
    assert Person(front, http, Authorization="Bearer a-token").ask(ask) == "service\n"
    assert Person(front, http, Authorization="Bearer other").ask(ask).startswith("403 Code: 516.")
    url = f"{front.url}/?user=exporter&password=secret"
    assert http.request("POST", url, body=ask).data == b"exporter\n"


def test_a_grant_that_clickhouse_does_not_know_changes_nothing(
    front: ClickHouseFront, exporter: Person
) -> None:
    with pytest.raises(RuntimeError, match="Syntax error"):
        front.command("GRANT NONSENSE ON db.* TO exporter")
    with pytest.raises(ValueError, match="there is no user stranger"):
        front.command("GRANT SELECT ON db.* TO stranger")
    with pytest.raises(ValueError, match="does not read this statement about access"):
        front.command("CREATE QUOTA q FOR INTERVAL 1 hour MAX queries = 1 TO exporter")

    assert exporter.ask("SELECT 1") == "1\n"
