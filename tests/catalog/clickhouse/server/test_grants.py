"""Which rights an export needs, and the statements that give them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.server.grants import (
    Given,
    Grant,
    Names,
    Need,
    Target,
    allows,
    export_grants,
    parse_line,
    statements,
    system_grants,
)
from tableformat.names import TableName

EVENTS = TableName("db", "events")
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1)


def test_what_an_export_needs_is_one_statement_for_each_place() -> None:
    """As an administrator copies them."""
    least = Need(EVENTS, "stg", False, False, False, False)  # noqa: FBT003  all at once

    staging = (
        "CREATE TABLE, INSERT, ALTER DELETE, SELECT, CHECK, SYSTEM MERGES, SYSTEM TTL MERGES,"
        " DROP TABLE"
    )
    assert statements(export_grants(least), "exporter") == (
        "GRANT SELECT ON db.events TO exporter;",
        f"GRANT {staging} ON stg.* TO exporter;",
    )


def test_what_is_not_known_is_asked_for() -> None:
    more = {one.privilege for one in export_grants(Need(EVENTS, "stg"))}
    least = {one.privilege for one in export_grants(Need(EVENTS, "stg", closes_tables=False))}

    assert {"CREATE DATABASE", "ALTER SETTINGS", "ALTER MODIFY COLUMN"} <= more
    assert more - least == {"ALTER SETTINGS"}


def test_only_a_replicated_table_needs_the_tables_about_replicas() -> None:
    more = {one.on.table for one in system_grants()}

    assert more - {one.on.table for one in system_grants(is_replicated=False)} == {
        "replicas",
        "replication_queue",
        "zookeeper",
    }


@given(NAMES, NAMES, NAMES)
def test_a_statement_gives_the_right_whatever_the_names_are(
    database: str, table: str, user: str
) -> None:
    """Read as a server that has no CHECK GRANT would show it."""
    grant = Grant("SELECT", Target(database, table), "")
    (statement,) = statements((grant,), user)

    read = parse_line(statement)

    assert isinstance(read, Given)
    assert allows((read,), grant)
    assert read == Given(
        ("SELECT",), Names(database, is_beginning=False), Names(table, is_beginning=False)
    )
    assert not allows((read,), Grant("SELECT", Target(database), ""))
    assert not allows((read,), Grant("INSERT", Target(database, table), ""))
