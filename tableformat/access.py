"""Lists the privileges that statements and procedures require, and parses policies that grant them.

`REQUIRED` is the table: statement -> privileges, each with its object. The sources of its rules:

* EXPORT and both forms of ATTACH follow the requirements (RQ…Security.RBAC, RQ…Attach…RBAC);
* other statements follow ClickHouse (getRequiredAccessForCommand, InterpreterAlterQuery.cpp);
* a statement that brings rows of another table also requires SELECT on that table.

docs/reference/access.md shows the table to users. A `Scope` is the object of a privilege: one
table by its full name, everything below a name, or everything.

A `Policy` grants privileges to users directly or through roles. It denies everything that it does
not grant. Roles and users have separate names: a user with the same name as a role gets nothing
from that role. The text of a policy is a list of ClickHouse's CREATE ROLE and GRANT statements:

    CREATE ROLE analysts;
    GRANT analysts TO alice, bob;
    GRANT SELECT, INSERT ON lake.ns.t, SHOW ON ch.db.* TO analysts, `carol@example.com`;

A name after TO is a role if the text creates a role of that name anywhere; otherwise it is a
user. Comments have ClickHouse's syntax. The parser refuses the rest of ClickHouse's syntax,
because mergeberg does not enforce it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NoReturn, TypeAlias

from tableformat.clickhouse_codes import SYNTAX_ERROR
from tableformat.errors import UsageError
from tableformat.mergetree.sql_tokens import BROKEN, Token, TokenKind, scan
from tableformat.names import quote_identifier

__all__ = [
    "EVERYTHING",
    "REQUIRED",
    "Act",
    "Grant",
    "Grantee",
    "Membership",
    "Need",
    "Of",
    "Policy",
    "Privilege",
    "Required",
    "Role",
    "Scope",
    "User",
    "includes",
    "parse_policy",
    "render_policy",
    "required_for",
]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Scope:
    """A full name by its parts, `lake.ns.t`, or everything `below` it, `lake.ns.*`.

    Everything below () is `*.*`.
    """

    parts: tuple[str, ...]
    below: bool = False

    def covers(self, other: Scope) -> bool:
        """Whether a privilege on this scope applies to the other."""
        if self.below:
            inside = other.parts[: len(self.parts)] == self.parts
            return inside and (other.below or len(other.parts) > len(self.parts))
        return self == other

    def __str__(self) -> str:
        """Return it in the syntax of GRANT."""
        if not self.parts:
            return "*.*"
        shown = ".".join(p if _PLAIN.match(p) else quote_identifier(p) for p in self.parts)
        return f"{shown}.*" if self.below else shown


EVERYTHING: Final = Scope((), below=True)
"""`*.*`."""


class Privilege(StrEnum):
    """A privilege, by its name in GRANT."""

    ALL = "ALL"
    SELECT = "SELECT"
    INSERT = "INSERT"
    SHOW = "SHOW"
    CREATE = "CREATE"
    CREATE_TABLE = "CREATE TABLE"
    DROP = "DROP"
    DROP_TABLE = "DROP TABLE"
    OPTIMIZE = "OPTIMIZE"
    KILL_QUERY = "KILL QUERY"
    ALTER = "ALTER"
    ALTER_TABLE = "ALTER TABLE"
    ALTER_UPDATE = "ALTER UPDATE"
    ALTER_DELETE = "ALTER DELETE"
    ALTER_COLUMN = "ALTER COLUMN"
    ALTER_CLEAR_COLUMN = "ALTER CLEAR COLUMN"
    ALTER_INDEX = "ALTER INDEX"
    ALTER_CLEAR_INDEX = "ALTER CLEAR INDEX"
    ALTER_FREEZE_PARTITION = "ALTER FREEZE PARTITION"
    ALTER_FETCH_PARTITION = "ALTER FETCH PARTITION"
    ALTER_MOVE_PARTITION = "ALTER MOVE PARTITION"


_PARTS: Final[Mapping[Privilege, tuple[Privilege, ...]]] = {
    Privilege.CREATE: (Privilege.CREATE_TABLE,),
    Privilege.DROP: (Privilege.DROP_TABLE,),
    Privilege.ALTER: (Privilege.ALTER_TABLE,),
    Privilege.ALTER_TABLE: (
        Privilege.ALTER_UPDATE,
        Privilege.ALTER_DELETE,
        Privilege.ALTER_COLUMN,
        Privilege.ALTER_INDEX,
        Privilege.ALTER_FREEZE_PARTITION,
        Privilege.ALTER_FETCH_PARTITION,
        Privilege.ALTER_MOVE_PARTITION,
    ),
    Privilege.ALTER_COLUMN: (Privilege.ALTER_CLEAR_COLUMN,),
    Privilege.ALTER_INDEX: (Privilege.ALTER_CLEAR_INDEX,),
}


def includes(granted: Privilege, required: Privilege) -> bool:
    """Whether one privilege includes another: ALTER includes ALTER DELETE, ALL includes all."""
    if granted in (required, Privilege.ALL):
        return True
    return any(includes(part, required) for part in _PARTS.get(granted, ()))


class Act(StrEnum):
    """A statement or procedure that requires privileges, by name."""

    EXPORT = "EXPORT PARTITION|PART … TO TABLE"
    ATTACH = "ATTACH PARTITION|PART"
    ATTACH_FROM = "ATTACH PARTITION … FROM"
    REPLACE_FROM = "REPLACE PARTITION … FROM"
    MOVE_TO_TABLE = "MOVE PARTITION … TO TABLE"
    MOVE_TO_DISK = "MOVE PARTITION|PART … TO DISK|VOLUME"
    DETACH = "DETACH PARTITION|PART"
    DROP = "DROP PARTITION|PART"
    DROP_DETACHED = "DROP DETACHED PARTITION|PART"
    FORGET = "FORGET PARTITION"
    FREEZE = "FREEZE, UNFREEZE"
    FETCH = "FETCH PARTITION|PART … FROM"
    CLEAR_COLUMN = "CLEAR COLUMN"
    CLEAR_INDEX = "CLEAR INDEX"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    OPTIMIZE = "OPTIMIZE TABLE"
    KILL_QUERY = "KILL QUERY"
    ARCHIVE_PARTITION = "archive_partition"
    CANCEL_EXPORT = "cancel_export"
    CREATE_TABLE_LIKE = "create_table_like"
    EXPORTS = "exports"
    FORGET_EXPORT = "forget_export"
    GC_OF_A_SOURCE = "gc, of a source"
    GC_OF_A_TABLE = "gc, of a lake table"
    LOOK = "partitions, parts"
    VERIFY_PARTITION = "verify_partition"


class Of(Enum):
    """The object of a statement to which a privilege applies."""

    TABLE = "the table"
    FROM = "the source table"
    TO = "the destination table"
    DATABASE_FROM = "the source's database"
    DATABASE_TO = "the destination's database"
    SOURCE = "the whole source"


Required: TypeAlias = tuple[Privilege, Of | Scope]
"""A privilege and its object."""

_TABLES: Final = Scope(("system", "tables"))
_EXPORTS: Final = Scope(("system", "replicated_partition_exports"))
_EXPORT: Final[tuple[Required, ...]] = (
    (Privilege.SELECT, Of.FROM),
    (Privilege.INSERT, Of.TO),
    (Privilege.SHOW, Of.DATABASE_FROM),
    (Privilege.SHOW, Of.DATABASE_TO),
    (Privilege.SELECT, _TABLES),
    (Privilege.SELECT, _EXPORTS),
)
_DELETE: Final[tuple[Required, ...]] = ((Privilege.ALTER_DELETE, Of.TABLE),)

REQUIRED: Final[Mapping[Act, tuple[Required, ...]]] = {
    Act.EXPORT: _EXPORT,
    Act.ATTACH: ((Privilege.CREATE, Of.TABLE),),
    Act.ATTACH_FROM: ((Privilege.CREATE, Of.TABLE), (Privilege.SELECT, Of.FROM)),
    Act.REPLACE_FROM: (
        (Privilege.INSERT, Of.TABLE),
        (Privilege.ALTER_DELETE, Of.TABLE),
        (Privilege.SELECT, Of.FROM),
    ),
    Act.MOVE_TO_TABLE: (
        (Privilege.SELECT, Of.TABLE),
        (Privilege.ALTER_DELETE, Of.TABLE),
        (Privilege.INSERT, Of.TO),
    ),
    Act.MOVE_TO_DISK: ((Privilege.ALTER_MOVE_PARTITION, Of.TABLE),),
    Act.DETACH: _DELETE,
    Act.DROP: _DELETE,
    Act.DROP_DETACHED: _DELETE,
    Act.FORGET: _DELETE,
    Act.FREEZE: ((Privilege.ALTER_FREEZE_PARTITION, Of.TABLE),),
    Act.FETCH: ((Privilege.ALTER_FETCH_PARTITION, Of.TABLE), (Privilege.SELECT, Of.FROM)),
    Act.CLEAR_COLUMN: ((Privilege.ALTER_CLEAR_COLUMN, Of.TABLE),),
    Act.CLEAR_INDEX: ((Privilege.ALTER_CLEAR_INDEX, Of.TABLE),),
    Act.UPDATE: ((Privilege.ALTER_UPDATE, Of.TABLE),),
    Act.DELETE: _DELETE,
    Act.OPTIMIZE: ((Privilege.OPTIMIZE, Of.TABLE),),
    Act.KILL_QUERY: ((Privilege.KILL_QUERY, EVERYTHING),),
    Act.ARCHIVE_PARTITION: (*_EXPORT, (Privilege.ALTER_DELETE, Of.FROM)),
    # A user who may export to a table may cancel an export to it.
    Act.CANCEL_EXPORT: (
        (Privilege.SELECT, Of.FROM),
        (Privilege.INSERT, Of.TO),
        (Privilege.SELECT, _EXPORTS),
    ),
    Act.CREATE_TABLE_LIKE: ((Privilege.CREATE_TABLE, Of.TO), (Privilege.SHOW, Of.FROM)),
    Act.EXPORTS: ((Privilege.SELECT, _EXPORTS),),
    Act.FORGET_EXPORT: ((Privilege.ALTER_DELETE, Of.TO),),
    Act.GC_OF_A_SOURCE: ((Privilege.DROP_TABLE, Of.SOURCE),),
    Act.GC_OF_A_TABLE: _DELETE,
    Act.LOOK: ((Privilege.SELECT, Of.TABLE),),
    Act.VERIFY_PARTITION: ((Privilege.SELECT, Of.FROM), (Privilege.SELECT, Of.TO)),
}
"""The privileges of each statement and procedure, in the order of messages."""


@dataclass(frozen=True, slots=True)
class Need:
    """A privilege on a named object."""

    privilege: Privilege
    on: Scope

    def __str__(self) -> str:
        """Return it in the syntax of GRANT."""
        return f"{self.privilege} ON {self.on}"


def required_for(act: Act, named: Mapping[Of, Scope]) -> tuple[Need, ...]:
    """Return the privileges that a statement requires on the given names.

    Args:
        act: the statement.
        named: the names of its objects.

    Raises:
        KeyError: it requires a privilege on an object without a name.
    """
    return tuple(
        Need(privilege, on if isinstance(on, Scope) else named[on])
        for privilege, on in REQUIRED[act]
    )


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
