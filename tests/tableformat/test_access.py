"""A policy grants exactly its text, and keeps its meaning when it is rendered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.access import (
    EVERYTHING,
    Grant,
    Grantee,
    Membership,
    Need,
    Policy,
    Privilege,
    Role,
    Scope,
    User,
    parse_policy,
    render_policy,
)
from tableformat.errors import UsageError

NAMES = st.sampled_from(["a", "b", "c", "lake", "carol@x.example", "it's `q`", "ON", "*", "ä\n"])
SCOPES = st.builds(
    Scope, st.lists(NAMES, min_size=1, max_size=4).map(tuple), below=st.booleans()
) | st.just(EVERYTHING)
NEEDS = st.builds(Need, st.sampled_from(Privilege), SCOPES)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    roles = tuple(Role(n) for n in draw(st.lists(NAMES, unique=True, max_size=3)))
    named = {role.name for role in roles}
    users = NAMES.filter(lambda name: name not in named).map(User)
    grantee: st.SearchStrategy[Grantee] = st.sampled_from(roles) | users if roles else users
    to = st.lists(grantee, min_size=1, max_size=3).map(tuple)
    grants = st.lists(st.builds(Grant, st.sampled_from(Privilege), SCOPES, to), max_size=4)
    held = st.builds(Membership, st.sampled_from(roles), to) if roles else None
    members = () if held is None else tuple(draw(st.lists(held, max_size=3)))
    return Policy(roles, members, tuple(draw(grants)))


@given(policies())
def test_a_policy_that_is_written_is_read_as_the_same(policy: Policy) -> None:
    assert parse_policy(render_policy(policy)) == policy


@given(policies(), policies(), NAMES, st.lists(NEEDS, max_size=5))
def test_more_grants_never_refuse_more(
    policy: Policy, more: Policy, user: str, needs: list[Need]
) -> None:
    # Of another role nothing is known to this policy.
    added = tuple(g for g in more.grants if all(isinstance(one, User) for one in g.to))
    larger = Policy(policy.roles, policy.memberships, (*policy.grants, *added))

    assert set(larger.missing(user, needs)) <= set(policy.missing(user, needs))


@given(policies(), NAMES, st.lists(NEEDS, max_size=5))
def test_what_is_missing_is_enough_when_it_is_granted(
    policy: Policy, user: str, needs: list[Need]
) -> None:
    """The privileges that the error names are sufficient."""
    missing = policy.missing(user, needs)
    granted = tuple(Grant(need.privilege, need.on, (User(user),)) for need in missing)

    mended = Policy(policy.roles, policy.memberships, (*policy.grants, *granted))
    assert mended.missing(user, needs) == ()


@given(NAMES, NEEDS)
def test_an_empty_policy_grants_nothing(user: str, need: Need) -> None:
    assert parse_policy("-- nobody yet").missing(user, [need]) == (need,)


@pytest.mark.parametrize(
    ("granted", "on", "asked", "gives"),
    [
        ("SELECT", "lake.ns.t", "SELECT ON lake.ns.t", True),
        ("SELECT", "lake.ns.t", "SELECT ON lake.ns.t2", False),
        ("SELECT", "lake.ns.t", "INSERT ON lake.ns.t", False),
        ("SELECT", "lake.ns.*", "SELECT ON lake.ns.t", True),
        ("SELECT", "lake.ns.*", "SELECT ON lake.ns.deeper.t", True),
        ("SELECT", "lake.ns.*", "SELECT ON lake.ns2.t", False),
        ("SELECT", "lake.ns.*", "SELECT ON lake.ns", False),
        ("SELECT", "lake.*", "SELECT ON lake.ns.t", True),
        ("SHOW", "ch.db.t", "SHOW ON ch.db.*", False),
        ("SHOW", "ch.*", "SHOW ON ch.db.*", True),
        ("SHOW", "ch.db.x.*", "SHOW ON ch.db.*", False),
        ("SELECT", "*.*", "SELECT ON `s3://b`.`x.y`", True),
        ("SELECT", "lake.NS.t", "SELECT ON lake.ns.t", False),
        ("ALTER", "lake.ns.t", "ALTER CLEAR COLUMN ON lake.ns.t", True),
        ("ALTER TABLE", "lake.ns.t", "ALTER DELETE ON lake.ns.t", True),
        ("ALTER DELETE", "lake.ns.t", "ALTER UPDATE ON lake.ns.t", False),
        ("ALTER CLEAR COLUMN", "lake.ns.t", "ALTER COLUMN ON lake.ns.t", False),
        ("CREATE", "lake.ns.t", "CREATE TABLE ON lake.ns.t", True),
        ("CREATE TABLE", "lake.ns.t", "CREATE ON lake.ns.t", False),
        ("ALL", "lake.ns.t", "KILL QUERY ON *.*", False),
        ("ALL PRIVILEGES", "*.*", "KILL QUERY ON *.*", True),
    ],
)
def test_a_grant_gives(granted: str, on: str, asked: str, *, gives: bool) -> None:
    policy = parse_policy(f"GRANT {granted} ON {on} TO u")
    (wanted,) = parse_policy(f"GRANT {asked} TO u").grants

    missing = policy.missing("u", [Need(wanted.privilege, wanted.on)])

    assert (missing == ()) is gives


def test_roles_have_roles_and_what_they_have_users_have() -> None:
    policy = parse_policy(
        """
        GRANT SELECT ON lake.ns.t, SHOW ON ch.db.* TO readers;
        GRANT INSERT ON lake.ns.t TO writers;  -- and what readers have
        CREATE ROLE IF NOT EXISTS readers, writers;
        GRANT readers TO writers, alice;
        GRANT writers TO 'bob';
        """
    )
    needs = [Need(p, Scope(("lake", "ns", "t"))) for p in (Privilege.SELECT, Privilege.INSERT)]

    assert policy.missing("bob", needs) == ()
    assert [str(one) for one in policy.missing("alice", needs)] == ["INSERT ON lake.ns.t"]
    assert len(policy.missing("carol", needs)) == 2


def test_roles_that_have_each_other_are_one() -> None:
    policy = parse_policy(
        "CREATE ROLE a, b; GRANT a TO b; GRANT b TO a, u; GRANT SELECT ON x.y TO a"
    )

    assert policy.missing("u", [Need(Privilege.SELECT, Scope(("x", "y")))]) == ()


def test_a_user_who_is_called_like_a_role_has_nothing_of_it() -> None:
    """Harm prevented: a client that may claim any name claims that of a role."""
    policy = parse_policy("CREATE ROLE admins; GRANT ALL ON *.* TO admins")
    need = Need(Privilege.SELECT, Scope(("lake", "ns", "t")))

    assert policy.missing("admins", [need]) == (need,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GRANT SELECT ON a.b TO u;\nREVOKE x", "line 2: found 'REVOKE', and CREATE ROLE or GRANT"),
        ("\n\nGRANT FLY ON a.b TO u", "line 3: 'FLY' is no privilege; there are ALL, SELECT"),
        ("GRANT SELECT(n) ON a.b TO u", "line 1: privileges on columns are not known here"),
        (
            "GRANT readers TO u",
            "line 1: 'readers' is neither a privilege with ON after it nor a role",
        ),
        ("GRANT SELECT ON a.*.t TO u", "line 1: found 't', and * (no text may follow"),
        ("GRANT SELECT ON a.b* TO u", "line 1: found '*', and TO is expected"),
        ("GRANT SELECT ON 'a' TO u", "line 1: found \"'a'\", and a name, or * is expected"),
        ("GRANT SELECT ON a.b TO u WITH GRANT OPTION", "line 1: found 'WITH', and a comma, or ;"),
        ("GRANT SELECT ON a.b\nTO", "line 2: found the end, and a name is expected"),
        ("GRANT SELECT ON a.b TO ``", "line 1: found '``', and a name is expected"),
        ("GRANT SELECT ON a.b TO 'u", 'line 1: found "\'", and a name is expected'),
        ("GRANT ON a.b TO u", "line 1: 'ON' is no privilege"),
        ("CREATE ROLE a;\nCREATE ROLE a", "line 2: the role 'a' is created twice"),
        ("CREATE USER u", "line 1: found 'USER', and ROLE is expected"),
        ("/* GRANT ALL ON *.* TO u", "line 1: found '/*', and CREATE ROLE or GRANT is expected"),
    ],
)
def test_a_text_that_says_something_else_is_refused_with_its_line(text: str, message: str) -> None:
    """Harm prevented: a part of a policy is ignored."""
    with pytest.raises(UsageError) as refused:
        parse_policy(text)

    assert refused.value.message.startswith(message)
