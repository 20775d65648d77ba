"""What a server says about rights, read: lines of SHOW GRANTS, texts of error 497."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.connection import advice
from catalog.clickhouse.server.grants import (
    Given,
    GivenRole,
    Grant,
    NotUnderstoodError,
    Target,
    allows,
    parse_line,
    wanted_grant,
)
from catalog.processes import new_job

EVENTS = Target("db", "events")
STAGING = Target("mergeberg_staging")


def shown(*lines: str) -> tuple[Given, ...]:
    """Read lines as a server shows them."""
    return tuple(one for line in lines if isinstance(one := parse_line(line), Given))


@pytest.mark.parametrize(
    ("privilege", "on", "lines", "expected"),
    [
        ("SELECT", EVENTS, ("GRANT SELECT ON db.events TO e",), True),
        ("SELECT", EVENTS, ("GRANT SELECT ON db.* TO e WITH GRANT OPTION",), True),
        ("SELECT", EVENTS, ("GRANT SELECT, INSERT ON *.* TO e",), True),
        ("SELECT", EVENTS, ("GRANT ALL ON *.* TO e WITH GRANT OPTION",), True),
        ("SELECT", EVENTS, ("GRANT SELECT ON d*.* TO e",), True),
        ("SELECT", EVENTS, ("GRANT SELECT ON db.ev* TO e",), True),
        ("SELECT", EVENTS, ("GRANT SELECT ON db.`ev*` TO e",), False),
        ("SELECT", EVENTS, ("GRANT SELECT ON db.evil* TO e",), False),
        ("SELECT", EVENTS, ("GRANT SELECT(k, `s,)`) ON db.events TO e",), False),
        ("SELECT", EVENTS, ("GRANT SELECT(k), INSERT ON db.events TO e",), False),
        ("SELECT", EVENTS, ("GRANT SELECT ON *.* TO e", "REVOKE SELECT ON db.* FROM e"), False),
        (
            "SELECT",
            EVENTS,
            ("GRANT SELECT ON *.* TO e", "REVOKE SELECT(k) ON db.events FROM e"),
            False,
        ),
        ("SELECT", EVENTS, ("GRANT SELECT ON *.* TO e", "REVOKE SELECT ON db.other FROM e"), True),
        ("SELECT", EVENTS, ("REVOKE GRANT OPTION FOR SELECT ON db.* FROM e",), False),
        (
            "SELECT",
            EVENTS,
            (
                "GRANT SELECT ON *.* TO e",
                "REVOKE ALL ON db.* FROM e",
                "GRANT SELECT ON db.events TO e",
            ),
            True,
        ),
        ("SELECT", STAGING, ("GRANT SELECT ON mergeberg_staging.* TO e",), True),
        ("SELECT", STAGING, ("GRANT SELECT ON mergeberg_staging.one TO e",), False),
        ("SELECT", STAGING, ("GRANT SELECT ON mergeberg*.* TO e",), True),
        (
            "SELECT",
            STAGING,
            ("GRANT SELECT ON *.* TO e", "REVOKE SELECT ON mergeberg_staging.one FROM e"),
            False,
        ),
        ("ALTER DELETE", STAGING, ("GRANT ALTER TABLE ON mergeberg_staging.* TO e",), True),
        ("ALTER DELETE", STAGING, ("GRANT ALTER ON mergeberg_staging.* TO e",), True),
        ("ALTER DELETE", STAGING, ("GRANT ALTER COLUMN ON mergeberg_staging.* TO e",), False),
        ("ALTER MODIFY COLUMN", STAGING, ("GRANT ALTER COLUMN ON *.* TO e",), True),
        ("CREATE TABLE", STAGING, ("GRANT CREATE ON mergeberg_staging.* TO e",), True),
        ("DROP TABLE", STAGING, ("GRANT DROP ON mergeberg_staging.* TO e",), True),
        ("SYSTEM MERGES", STAGING, ("GRANT SYSTEM ON *.* TO e",), True),
        ("SHOW ROW POLICIES", Target(), ("GRANT ACCESS MANAGEMENT ON *.* TO e",), True),
        ("SHOW ROW POLICIES", Target(), ("GRANT SHOW ROW POLICIES ON db.* TO e",), False),
        ("SELECT", EVENTS, ("GRANT TABLE ENGINE ON MergeTree TO e",), False),
    ],
)
def test_a_right_is_held_when_the_lines_say_so_in_their_order(
    privilege: str,
    on: Target,
    lines: tuple[str, ...],
    expected: bool,  # noqa: FBT001
) -> None:
    assert allows(shown(*lines), Grant(privilege, on, "")) is expected


def test_roles_are_distinguished_from_rights() -> None:
    assert parse_line("GRANT reader, `odd, role` TO e") == GivenRole(("reader", "odd, role"))
    assert parse_line("something else") is None


def test_what_takes_something_away_and_is_not_understood_is_not_passed_over() -> None:
    """Else a right that is gone would be counted as held."""
    with pytest.raises(NotUnderstoodError, match="cannot tell what"):
        parse_line("REVOKE whatever this is")


@given(st.text())
def test_any_text_is_read_or_reported_as_not_understood(text: str) -> None:
    try:
        read = parse_line(text)
    except NotUnderstoodError:
        return
    assert read is None or isinstance(read, Given | GivenRole)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (
            (
                "e: Not enough privileges. To execute this query, it's necessary to have the grant"
                " SELECT ON system.parts. (ACCESS_DENIED)"
            ),
            "Run GRANT SELECT ON system.parts TO e;",
        ),
        (
            (
                "e: Not enough privileges. To execute this query it's necessary to have grant"
                " SELECT(k, s) ON db.events"
            ),
            "Run GRANT SELECT ON db.events TO e;",
        ),
        (
            (
                "e: Not enough privileges. To execute this query, it's necessary to have the grant"
                " SELECT for at least one column on db.events"
            ),
            "Run GRANT SELECT ON db.events TO e;",
        ),
        (
            (
                "e: Not enough privileges. To execute this query, it's necessary to have the grant"
                " INSERT, ALTER DELETE ON mergeberg_staging.h_1_2_0123abcd_1. (ACCESS_DENIED)"
            ),
            "Run GRANT INSERT, ALTER DELETE ON mergeberg_staging.* TO e;",
        ),
        (
            (
                "my user: Not enough privileges. To execute this query, it's necessary to have the"
                " grant ALTER MODIFY COLUMN(s) ON mergeberg_staging.`h_1_2_0123abcd_3`"
            ),
            "Run GRANT ALTER MODIFY COLUMN ON mergeberg_staging.* TO `my user`;",
        ),
        (
            (
                "e: Not enough privileges. To execute this query, it's necessary to have the grant"
                " SHOW ROW POLICIES ON *.*. (ACCESS_DENIED)"
            ),
            "Run GRANT SHOW ROW POLICIES ON *.* TO e;",
        ),
        ("e: Not enough privileges. To execute this query, something else", None),
        ("nothing of the kind", None),
    ],
)
def test_a_refusal_becomes_the_statement_to_run(reason: str, expected: str | None) -> None:
    assert advice(497, reason) == expected


def test_a_right_on_a_staging_table_is_asked_for_on_their_database() -> None:
    """The next statement is about another table there."""
    text = "it's necessary to have the grant CHECK ON mergeberg_staging.{}. (ACCESS_DENIED)"
    name = f"{new_job()}_17"

    assert wanted_grant(text.format(name)) == (Grant("CHECK", STAGING, ""),)
    assert wanted_grant(text.format(f"`{name}`")) == (Grant("CHECK", STAGING, ""),)
    assert wanted_grant(text.format("events_1"))[0].on == Target("mergeberg_staging", "events_1")
