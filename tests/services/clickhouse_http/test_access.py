"""Statements about users and rights are read as they are meant, and kept over a restart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.services.clickhouse_http.access import Access, Policy, User, is_about_access

_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
_TEXTS = st.text(max_size=8)
_USERS = st.builds(
    User,
    _NAMES,
    password=_TEXTS,
    token=st.none() | _TEXTS,
    certificate=st.none() | _TEXTS,
    settings=st.dictionaries(_NAMES, _TEXTS, max_size=2),
    grants=st.lists(_TEXTS, max_size=2).map(tuple),
)
_POLICIES = st.builds(
    Policy,
    _NAMES,
    _NAMES,
    _NAMES,
    _TEXTS,
    users=st.lists(_NAMES, min_size=1, max_size=2).map(tuple),
)
_ACCESS = st.builds(
    Access,
    st.lists(_USERS, max_size=3).map(lambda users: {user.name: user for user in users}),
    st.lists(_POLICIES, max_size=2).map(tuple),
)


@given(_ACCESS)
def test_rights_survive_the_file_that_a_restart_reads(access: Access) -> None:
    assert Access.from_json(json.loads(json.dumps(access.to_json()))) == access


@pytest.mark.parametrize(
    ("statement", "user"),
    [
        ("CREATE USER a", User("a")),
        ("create user if not exists `a` identified by 'x y';", User("a", "x y")),
        ("CREATE USER a IDENTIFIED WITH ssl_certificate CN 'c'", User("a", certificate="c")),
        (
            "CREATE USER a\n IDENTIFIED WITH sha256_password BY 'x' SETTINGS b = 1, c = 'd'",
            User("a", "x", settings={"b": "1", "c": "d"}),
        ),
    ],
)
def test_a_user_is_made_as_the_statement_says(statement: str, user: User) -> None:
    assert Access().after(statement).users["a"] == user


def test_grants_are_kept_in_their_order_for_each_user_named() -> None:
    access = Access().after("CREATE USER a").after("CREATE USER b")

    access = access.after("GRANT SELECT, INSERT(x, y) ON d.* TO a, b WITH GRANT OPTION")
    access = access.after("REVOKE INSERT ON d.t FROM b;")

    granted = "GRANT SELECT, INSERT(x, y) ON d.* WITH GRANT OPTION"
    assert access.users["a"].grants == (granted,)
    assert access.users["b"].grants == (granted, "REVOKE INSERT ON d.t")


def test_a_dropped_user_is_gone() -> None:
    assert "a" not in Access().after("CREATE USER a").after("DROP USER a").users


@pytest.mark.parametrize(
    ("statement", "is_so"),
    [
        ("GRANT SELECT ON a.b TO c", True),
        (" revoke all on *.* from x", True),
        ("CREATE ROW POLICY p ON a.b USING 1 TO c", True),
        ("ALTER USER x IDENTIFIED BY 'y'", True),
        ("CREATE TABLE grants (a UInt8) ENGINE = Memory", False),
        ("SHOW GRANTS", False),
    ],
)
def test_statements_about_access_are_distinguished_from_others(
    statement: str, *, is_so: bool
) -> None:
    assert is_about_access(statement) is is_so
