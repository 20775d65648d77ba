"""A statement about a ClickHouse table as its ClickHouse gets to read it."""

from __future__ import annotations

import pytest
from hypothesis import given

from spark_ext.sql.grammar import parse_statement, render_statement
from spark_ext.sql.statement_exports import for_clickhouse
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import Alter, ChangeRows, Optimize, Statement
from tableformat.errors import UnsupportedError, UsageError
from tests.strategies.statements import statements

HERE = DottedName(("db", "t"))


def passed_on(text: str) -> str:
    """Return the text that ClickHouse gets."""
    statement = parse_statement(text)
    assert isinstance(statement, Alter | Optimize | ChangeRows)
    return render_statement(for_clickhouse(statement, "ch", HERE))


@pytest.mark.parametrize(
    ("given_text", "sent"),
    [
        (
            "ALTER TABLE ch.db.t DETACH PARTITION 1",
            "ALTER TABLE db.t DETACH PARTITION 1",
        ),
        (
            "ALTER TABLE ch.db.t ON CLUSTER shards DROP PARTITION ID 'a'",
            "ALTER TABLE db.t ON CLUSTER 'shards' DROP PARTITION ID 'a'",
        ),
        (
            "ALTER TABLE ch.db.t REPLACE PARTITION 1 FROM ch.x.u, ATTACH PARTITION 2 FROM x.v",
            "ALTER TABLE db.t (REPLACE PARTITION 1 FROM x.u), (ATTACH PARTITION 2 FROM x.v)",
        ),
        (
            "ALTER TABLE ch.db.t DELETE WHERE a = 1 SETTINGS mutations_sync = 2, max_threads = 3",
            "ALTER TABLE db.t DELETE WHERE a = 1 SETTINGS mutations_sync = 2, max_threads = 3",
        ),
        (
            "ALTER TABLE ch.db.t DELETE WHERE a = 1 SETTINGS mutations_sync = DEFAULT",
            "ALTER TABLE db.t DELETE WHERE a = 1 SETTINGS mutations_sync = 1",
        ),
        (
            "DELETE FROM ch.db.t IN PARTITION 1 WHERE a = 1 SETTINGS mutations_sync = '2'",
            "DELETE FROM db.t IN PARTITION 1 WHERE a = 1 SETTINGS mutations_sync = 2",
        ),
        (
            "ALTER TABLE ch.db.t FREEZE INTO OUTFILE 'x' FORMAT JSON",
            "ALTER TABLE db.t FREEZE",
        ),
        (
            "OPTIMIZE TABLE ch.db.t PARTITION 1 FINAL SETTINGS optimize_throw_if_noop = 1",
            "OPTIMIZE TABLE db.t PARTITION 1 FINAL SETTINGS optimize_throw_if_noop = 1",
        ),
    ],
)
def test_names_are_clickhouses_and_settings_and_clusters_stay(given_text: str, sent: str) -> None:
    """ON CLUSTER is forwarded (P-69); what ALTER begins is waited for."""
    waits = given_text.startswith("ALTER") and "SETTINGS" not in given_text

    assert passed_on(given_text) == sent + " SETTINGS mutations_sync = 1" * waits


def test_a_table_elsewhere_is_refused_by_its_name() -> None:
    with pytest.raises(UnsupportedError, match=r"lake\.ns\.u in a statement about a table of ch"):
        passed_on("ALTER TABLE ch.db.t ATTACH PARTITION 1 FROM lake.ns.u")


def test_a_table_that_is_named_alone_is_of_the_database_that_the_source_says() -> None:
    """Not of whatever the connection takes."""
    sent = passed_on("ALTER TABLE ch.db.t ATTACH PARTITION 1 FROM u")

    assert sent == "ALTER TABLE db.t ATTACH PARTITION 1 FROM default.u SETTINGS mutations_sync = 1"


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE ch.db.t DELETE", "DELETE FROM ch.db.t IN PARTITION 1"]
)
def test_what_would_not_be_waited_for_is_refused(statement: str) -> None:
    """Harm prevented: "done" is returned, and the rows are still there."""
    with pytest.raises(UnsupportedError, match="mutations_sync with 0: a statement returns when"):
        passed_on(f"{statement} WHERE a = 1 SETTINGS mutations_sync = 0")


@given(statements)
def test_whatever_is_passed_on_can_be_read_again_and_is_about_the_table(
    statement: Statement,
) -> None:
    if not isinstance(statement, Alter | Optimize | ChangeRows):
        return
    try:
        sent = for_clickhouse(statement, "ch", HERE)
    except (UnsupportedError, UsageError) as refused:
        whys = ("in a statement about a table of ch", "use the setting mutations_sync")
        assert any(why in refused.message for why in whys)  # noqa: PT017  both ways are right
        return
    assert sent.table == HERE
    assert parse_statement(render_statement(sent)) == sent
