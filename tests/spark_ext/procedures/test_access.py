"""A policy of the server: a refusal names the missing right, and nothing is opened or done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_ext.access.check import check_access
from spark_ext.procedures.declarations import Value
from spark_ext.sql.dispatch import PROCEDURES, TABLES
from tests.support.asked_rights import CALLS, EXPORT
from tests.support.session_lake import ALLOWED, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

POLICY = "spark.mergeberg.policy"
NEEDED = "Not enough privileges. To execute this query, it's necessary to have the grant "


@pytest.fixture
def grant(session: NoSpark, tmp_path: Path) -> Callable[[str], None]:
    """Return what writes the policy of the server; without it the session has none."""
    file = tmp_path / "policy.sql"

    def write(text: str) -> None:
        file.write_text(text)
        session.settings = {**session.settings, POLICY: str(file)}

    return write


@pytest.fixture
def nowhere(tmp_path: Path) -> NoSpark:
    """Return a session under an empty policy; whatever it names is not there."""
    (tmp_path / "policy.sql").write_text("")
    return NoSpark(
        {
            POLICY: str(tmp_path / "policy.sql"),
            "spark.mergeberg.source.ch": f"chdb:{tmp_path}/clickhouse",
            "spark.mergeberg.warehouse": f"{tmp_path}/warehouse",
        }
    )


def refused(response: dict[str, object]) -> str:
    """Return the message of a refusal for want of a right."""
    error = response["error"]
    assert isinstance(error, dict)
    assert (error["kind"], error["code"], error["sqlstate"]) == ("RefusedError", 497, "42501"), (
        error
    )
    return str(error["message"])


@pytest.mark.parametrize("name", PROCEDURES)
def test_a_refused_call_names_every_right_it_needs_before_anything_is_opened(
    nowhere: NoSpark, tmp_path: Path, name: str
) -> None:
    """Harm prevented: a procedure that does what its statement is denied."""
    for given, needs in CALLS[name]:
        message = refused(nowhere.response("eve", name, **given))

        assert (
            message.partition("eve: ")[2]
            == f"{NEEDED}{needs}. Ask the administrator of the server."
        )

    assert [path.name for path in tmp_path.iterdir()] == ["policy.sql"]


@pytest.mark.parametrize("name", TABLES)
def test_a_system_table_is_readable_with_select_on_it(nowhere: NoSpark, name: str) -> None:
    policy = Path(nowhere.settings[POLICY])

    message = refused(nowhere.response("eve", f"system.{name}"))

    assert f"Cannot read system.{name}: eve: {NEEDED}SELECT ON system.{name}." in message
    policy.write_text(f"GRANT SELECT ON system.{name} TO eve")
    assert nowhere.response("eve", f"system.{name}").keys() == {"rows"}


@pytest.mark.parametrize("missing", EXPORT.split(", "))
def test_an_export_needs_each_right_that_the_requirement_names(
    session: NoSpark, grant: Callable[[str], None], missing: str
) -> None:
    needs = EXPORT.replace("ch.db.t", "ch.db.events").replace("lake.n.t", "lake.n.denied")
    lost = missing.replace("ch.db.t", "ch.db.events").replace("lake.n.t", "lake.n.denied")
    others = ", ".join(one for one in needs.split(", ") if one != lost)
    grant(f"GRANT {others} TO bob")
    text = f"ALTER TABLE ch.db.events EXPORT PARTITION ALL TO TABLE lake.n.denied {ALLOWED}"
    call: dict[str, Value] = {"table": "lake.n.denied", "source": "ch.db.events"}

    for response in (
        session.response("bob", "execute_alter", statement=text),
        session.response("bob", "export_partitions", **call),
    ):
        assert f"bob: {NEEDED}{lost}." in refused(response)

    assert not session.response(None, "exports").get("rows")


def test_a_user_with_every_right_exports_and_sees_it(
    places: Places, session: NoSpark, grant: Callable[[str], None]
) -> None:
    grant(
        "CREATE ROLE exporters; GRANT exporters TO bob;"
        " GRANT SELECT, SHOW ON ch.db.*, SHOW, INSERT ON lake.n.*, SELECT ON system.* TO exporters"
    )
    text = f"ALTER TABLE ch.db.events EXPORT PARTITION ALL TO TABLE lake.n.granted {ALLOWED}"

    response = session.response("bob", "execute_alter", statement=text)

    assert [row[1] for row in response["rows"]] == ["committed", "committed"]
    assert rows_of(places, "granted") == 3
    listed = session.response("bob", "system.replicated_partition_exports")["rows"]
    assert "lake.n.granted" in {row[1] for row in listed}
    refused(session.response("eve", "execute_alter", statement=text))


def test_attach_of_detached_rows_needs_create_on_the_table_and_nothing_else(
    places: Places, session: NoSpark, grant: Callable[[str], None], dropped_from: str
) -> None:
    table = f"lake.n.{dropped_from}"
    grant(
        f"GRANT SELECT, INSERT, ALTER, SHOW, DROP, OPTIMIZE ON {table} TO bob;"
        f" GRANT CREATE ON lake.n.another TO bob; GRANT CREATE ON {table} TO carol"
    )
    detach = f"ALTER TABLE {table} DETACH PARTITION 202402"
    session.response("bob", "execute_alter", statement=detach)
    (part,) = {row["name"] for row in detached(session) if row["table"] == table}
    before = opened(places, dropped_from).metadata

    for of in ("PARTITION 202402", "PARTITION ALL", f"PART '{part}'"):
        attach = f"ALTER TABLE {table} ATTACH {of}"
        message = refused(session.response("bob", "execute_alter", statement=attach))
        assert f"bob: {NEEDED}CREATE ON {table}." in message

    assert opened(places, dropped_from).metadata == before
    assert session.response("carol", "execute_alter", statement=attach)["rows"]
    assert rows_of(places, dropped_from) == 3
    # And no more than that.
    message = refused(session.response("carol", "execute_alter", statement=detach))
    assert f"carol: {NEEDED}ALTER DELETE ON {table}." in message


def detached(session: NoSpark) -> list[dict[str, object]]:
    """Return what is detached, as who has no policy over him sees it."""
    settings = {n: text for n, text in session.settings.items() if n != POLICY}
    rows = NoSpark(settings).response("root", "system.detached_parts")["rows"]
    names = [column.name for column in TABLES["detached_parts"].columns]
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_attach_from_another_table_needs_create_here_and_select_there(
    places: Places,
    session: NoSpark,
    grant: Callable[[str], None],
    dropped_from: str,
    other: str,
) -> None:
    """The other table is read: without SELECT on it everybody could copy what he may not see."""
    table, there = f"lake.n.{dropped_from}", f"lake.n.{other}"
    grant(
        f"GRANT ALTER, INSERT ON {table} TO bob, carol; GRANT SELECT ON {there} TO bob, dave;"
        f" GRANT CREATE ON {table} TO carol, dave"
    )
    drop = f"ALTER TABLE {table} DROP PARTITION 202402"
    session.response("bob", "execute_alter", statement=drop)
    attach = f"ALTER TABLE {table} ATTACH PARTITION 202402 FROM {there}"
    before = opened(places, dropped_from).metadata

    for user, missing in (("bob", f"CREATE ON {table}"), ("carol", f"SELECT ON {there}")):
        message = refused(session.response(user, "execute_alter", statement=attach))
        assert f"{user}: {NEEDED}{missing}." in message

    assert opened(places, dropped_from).metadata == before
    assert session.response("dave", "execute_alter", statement=attach)["rows"]
    assert rows_of(places, dropped_from) == 3


def test_a_session_does_not_choose_its_own_policy(nowhere: NoSpark, tmp_path: Path) -> None:
    """Harm prevented: a user who grants himself everything by SET."""
    mine = tmp_path / "mine.sql"
    mine.write_text("GRANT ALL ON *.* TO eve")
    nowhere.started = dict(nowhere.settings)
    for own in (str(mine), "", "/nowhere"):
        nowhere.settings = {**nowhere.settings, POLICY: own}
        assert NEEDED in refused(nowhere.response("eve", "exports"))
    nowhere.settings.pop(POLICY)
    assert NEEDED in refused(nowhere.response("eve", "exports"))


def test_what_is_checked_is_done_although_the_session_moves_meanwhile(
    nowhere: NoSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: USE, in another statement, between the check and the deed."""
    Path(nowhere.settings[POLICY]).write_text("GRANT ALTER DELETE ON lake.n.t TO eve")
    nowhere.current = ("lake", "n")

    def check(*asked: Any) -> None:
        check_access(*asked)
        nowhere.current = ("lake", "another")

    monkeypatch.setattr("spark_ext.sql.dispatch.check_access", check)

    error = nowhere.response("eve", "execute_alter", statement="ALTER TABLE t DROP PARTITION 1")

    assert error["error"]["message"].startswith("Cannot find the lake table lake.n.t:")


def test_a_warning_says_that_a_sessions_policy_protects_nothing(
    nowhere: NoSpark,
) -> None:
    """Harm prevented: a server that seems to have one."""
    nowhere.started = {n: text for n, text in nowhere.settings.items() if n != POLICY}

    error = nowhere.response("eve", "exports")["error"]

    assert f"{POLICY} is set in the session only, where it protects nothing" in error["message"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spark.mergeberg.source.ch", "chdb:/elsewhere"),
        ("spark.mergeberg.source.mine", "chdb:/elsewhere"),
        ("spark.mergeberg.ledger", "sqlite:/elsewhere"),
        ("spark.mergeberg.warehouse", "/elsewhere"),
        ("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"),
        ("spark.sql.catalog.lake.uri", "http://elsewhere"),
        ("spark.hadoop.fs.defaultFS", "file://elsewhere"),
    ],
)
def test_a_session_does_not_say_what_the_names_of_the_policy_mean(
    nowhere: NoSpark, name: str, text: str
) -> None:
    """Harm prevented: another table under the name of one that the user has a right on."""
    Path(nowhere.settings[POLICY]).write_text("GRANT ALL ON *.* TO eve")
    nowhere.started = dict(nowhere.settings)
    assert nowhere.response("eve", "exports") == {"rows": []}
    nowhere.settings = {**nowhere.settings, name: text}

    message = refused(nowhere.response("eve", "exports"))

    assert (
        f"the session has set {name}, but with a policy only the server's configuration" in message
    )


def test_what_a_statement_may_set_a_session_may_set(nowhere: NoSpark) -> None:
    Path(nowhere.settings[POLICY]).write_text("GRANT ALL ON *.* TO eve")
    nowhere.started = dict(nowhere.settings)
    nowhere.settings = {
        **nowhere.settings,
        "spark.mergeberg.export_merge_tree_partition_max_retries": "5",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.catalog.mergeberg": "mergeberg.spark.Catalog",
    }

    assert nowhere.response("eve", "exports") == {"rows": []}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GRANT ALL ON *.* TO eve;\nGRANT EVERYTHING ON *.* TO eve", "line 2: 'EVERYTHING' is no"),
        (b"GRANT ALL ON *.* TO eve -- \xff", "it is not UTF-8"),
        (None, "No such file or directory"),
    ],
)
def test_a_policy_that_cannot_be_read_denies_everything(
    nowhere: NoSpark, content: bytes | None, reason: str
) -> None:
    file = Path(nowhere.settings[POLICY])
    file.unlink()
    if content is not None:
        file.write_bytes(content)

    message = refused(nowhere.response("eve", "exports"))

    assert message.startswith(f"Cannot call exports: the policy {file} cannot be read, {reason}")


@pytest.mark.parametrize("name", ["", "policy.sql"])
def test_a_policy_that_is_not_named_by_a_whole_path_denies_everything(
    nowhere: NoSpark, name: str
) -> None:
    nowhere.settings = {**nowhere.settings, POLICY: name}

    assert "which is no absolute path" in refused(nowhere.response("eve", "exports"))


@pytest.mark.parametrize("user", [None, ""])
def test_an_unknown_user_has_no_right(nowhere: NoSpark, user: str | None) -> None:
    """Harm prevented: the rights of the server's own user for a statement of anybody."""
    Path(nowhere.settings[POLICY]).write_text("GRANT ALL ON *.* TO eve")

    message = refused(nowhere.response(user, "exports"))

    assert "the user of the statement is unknown" in message


def test_without_a_policy_nobody_is_asked(nowhere: NoSpark) -> None:
    nowhere.settings.pop(POLICY)

    assert nowhere.response(None, "exports") == {"rows": []}
