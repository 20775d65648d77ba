"""Parses and renders an access policy, which grants privileges to users directly or through roles.

The policy denies everything that it does not grant. Roles and users have separate names: a user
with the same name as a role gets nothing from that role.

The text of a policy is a list of ClickHouse's CREATE ROLE and GRANT statements:

    CREATE ROLE analysts;
    GRANT analysts TO alice, bob;
    GRANT SELECT, INSERT ON lake.ns.t, SHOW ON ch.db.* TO analysts, `carol@example.com`;

A name after TO is a role if the text creates a role of that name anywhere; otherwise it is a
user. Comments have ClickHouse's syntax. The parser refuses the rest of ClickHouse's syntax,
because mergeberg does not enforce it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from tableformat.access.privileges import Need, Privilege, Scope, includes
from tableformat.clickhouse_codes import SYNTAX_ERROR
from tableformat.errors import UsageError
from tableformat.mergetree.sql_tokens import BROKEN, Token, TokenKind, scan
from tableformat.names import quote_identifier

__all__ = [
    "Grant",
    "Grantee",
    "Membership",
    "Policy",
    "Role",
    "User",
    "parse_policy",
    "render_policy",
]


@dataclass(frozen=True, slots=True)
class User:
    """A user, by the name that the server knows."""

    name: str


@dataclass(frozen=True, slots=True)
class Role:
    """A role that the policy creates."""

    name: str


Grantee: TypeAlias = User | Role


@dataclass(frozen=True, slots=True)
class Grant:
    """A privilege on a scope, granted to users and roles."""

    privilege: Privilege
    on: Scope
    to: tuple[Grantee, ...]

    def gives(self, need: Need) -> bool:
        """Whether the grant satisfies a need."""
        return includes(self.privilege, need.privilege) and self.on.covers(need.on)


@dataclass(frozen=True, slots=True)
class Membership:
    """A role granted to users and to other roles."""

    role: Role
    to: tuple[Grantee, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """Roles, their members, and grants."""

    roles: tuple[Role, ...] = ()
    memberships: tuple[Membership, ...] = ()
    grants: tuple[Grant, ...] = ()

    def missing(self, user: str, needs: Iterable[Need]) -> tuple[Need, ...]:
        """Return the needs that a user's grants do not satisfy, each once, in order."""
        grantees = self._grantees(user)
        held = [grant for grant in self.grants if not grantees.isdisjoint(grant.to)]
        unique = dict.fromkeys(needs)
        return tuple(need for need in unique if not any(grant.gives(need) for grant in held))

    def _grantees(self, user: str) -> set[Grantee]:
        """Return a user with all roles, including roles of roles."""
        found: set[Grantee] = {User(user)}
        while True:
            more = {one.role for one in self.memberships if not found.isdisjoint(one.to)} - found
            if not more:
                return found
            found |= more


_NAMES: Final = (TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING)
_IN_SCOPES: Final = (TokenKind.WORD, TokenKind.QUOTED)


def parse_policy(text: str) -> Policy:
    """Parse a policy.

    Raises:
        UsageError: it is malformed; the message begins with the line.
    """
    return _Reader(text).policy()


def render_policy(policy: Policy) -> str:
    """Return a policy as text, one line for each statement."""
    lines = [f"CREATE ROLE {quote_identifier(role.name)};" for role in policy.roles]
    lines += [
        f"GRANT {quote_identifier(one.role.name)} TO {_listed(one.to)};"
        for one in policy.memberships
    ]
    lines += [f"GRANT {one.privilege} ON {one.on} TO {_listed(one.to)};" for one in policy.grants]
    return "".join(f"{line}\n" for line in lines)


def _listed(grantees: Iterable[Grantee]) -> str:
    return ", ".join(quote_identifier(one.name) for one in grantees)


class _Reader:
    """Parses the statements of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tuple(scan(text))
        self._at = 0
        self._roles: dict[str, Token] = {}
        self._granted: list[tuple[Token, tuple[str, ...]]] = []
        self._grants: list[tuple[Privilege, Scope, tuple[str, ...]]] = []

    def policy(self) -> Policy:
        while self._peek().kind is not TokenKind.END:
            if self._word("CREATE"):
                self._create()
            elif self._word("GRANT"):
                self._grant()
            elif not self._symbol(";"):
                self._refuse("CREATE ROLE or GRANT")
        return self._resolved()

    def _resolved(self) -> Policy:
        for token, _ in self._granted:
            if token.value not in self._roles:
                known = ", ".join(sorted(self._roles)) or "none"
                why = (
                    f"{token.value!r} is neither a privilege with ON after it nor a role; the roles"
                )
                self._fail(token, f"{why} are {known}")
        return Policy(
            tuple(Role(name) for name in self._roles),
            tuple(Membership(Role(t.value), self._grantees(to)) for t, to in self._granted),
            tuple(Grant(of, on, self._grantees(to)) for of, on, to in self._grants),
        )

    def _grantees(self, names: tuple[str, ...]) -> tuple[Grantee, ...]:
        return tuple(Role(name) if name in self._roles else User(name) for name in names)

    def _create(self) -> None:
        if not self._word("ROLE"):
            self._refuse("ROLE")
        if self._word("IF") and not (self._word("NOT") and self._word("EXISTS")):
            self._refuse("NOT EXISTS")
        for token in self._listed_names():
            if token.value in self._roles:
                self._fail(token, f"the role {token.value!r} is created twice")
            self._roles[token.value] = token
        self._end()

    def _grant(self) -> None:
        first = self._at
        while not (self._peek().is_word("ON", "TO") or self._is_over()):
            self._take()
        is_of_roles = self._peek().is_word("TO")
        self._at = first
        if is_of_roles:
            roles = self._listed_names()
            to = self._to()
            self._granted.extend((token, to) for token in roles)
            return
        found = [*self._privileges()]
        while self._symbol(","):
            found.extend(self._privileges())
        to = self._to()
        self._grants.extend((privilege, scope, to) for privilege, scope in found)

    def _privileges(self) -> list[tuple[Privilege, Scope]]:
        named = [self._privilege()]
        while self._symbol(","):
            named.append(self._privilege())
        if not self._word("ON"):
            self._refuse("a comma, or ON")
        scope = self._scope()
        return [(privilege, scope) for privilege in named]

    def _privilege(self) -> Privilege:
        begin, words = self._peek(), list[str]()
        while self._peek().kind is TokenKind.WORD and not self._peek().is_word("ON"):
            words.append(self._take().text.upper())
        if self._peek().is_symbol("("):
            self._fail(self._peek(), "privileges on columns are not known here")
        if words == ["ALL", "PRIVILEGES"]:
            words = ["ALL"]
        name = " ".join(words)
        if name not in [*Privilege]:
            known = ", ".join(Privilege)
            self._fail(begin, f"{name or begin.text!r} is no privilege; there are {known}")
        return Privilege(name)

    def _scope(self) -> Scope:
        parts = list[str]()
        while not self._symbol("*"):
            token = self._take()
            if token.kind not in _IN_SCOPES or not token.value:
                self._refuse("a name, or *", token)
            parts.append(token.value)
            if not self._symbol("."):
                return Scope(tuple(parts))
        while self._symbol("."):
            if not self._symbol("*"):
                self._refuse("* (no text may follow a *)")
        return Scope(tuple(parts), below=True)

    def _to(self) -> tuple[str, ...]:
        if not self._word("TO"):
            self._refuse("TO")
        names = tuple(token.value for token in self._listed_names())
        self._end()
        return names

    def _listed_names(self) -> list[Token]:
        found = [self._name()]
        while self._symbol(","):
            found.append(self._name())
        return found

    def _name(self) -> Token:
        token = self._take()
        if token.kind not in _NAMES or not token.value:
            self._refuse("a name", token)
        return token

    def _end(self) -> None:
        if self._peek().kind is not TokenKind.END and not self._symbol(";"):
            self._refuse("a comma, or ; at the end")

    def _is_over(self) -> bool:
        return self._peek().is_symbol(";") or self._peek().kind in (TokenKind.END, *BROKEN)

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._peek()
        self._at += token.kind not in (TokenKind.END, *BROKEN)
        return token

    def _word(self, word: str) -> bool:
        found = self._peek().is_word(word)
        self._at += found
        return found

    def _symbol(self, symbol: str) -> bool:
        found = self._peek().is_symbol(symbol)
        self._at += found
        return found

    def _refuse(self, expected: str, token: Token | None = None) -> NoReturn:
        token = token or self._peek()
        found = "the end" if token.kind is TokenKind.END else repr(token.text[:40])
        self._fail(token, f"found {found}, and {expected} is expected")

    def _fail(self, token: Token, why: str) -> NoReturn:
        line = self._text.count("\n", 0, token.start) + 1
        raise UsageError(f"line {line}: {why}", code=SYNTAX_ERROR)
