"""Users, grants and row policies of the front, as values, and as the engine's users file.

The embedded engine has one user and no storage for others, but roles: a user of the front is a role
of that one user, and a request runs with this role alone. The rights are so the engine's own. The
engine reads them from a file when it opens, so a change closes and opens it.

Statements are read here as far as tests need them: CREATE, ALTER and DROP USER, GRANT and REVOKE of
privileges, CREATE and DROP ROW POLICY. Quotas and roles are not: no engine would apply them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from xml.sax.saxutils import escape

__all__ = [
    "ADMINISTRATOR",
    "DEFAULT_USER",
    "Access",
    "Policy",
    "User",
    "is_about_access",
    "role_of",
]

ADMINISTRATOR: Final = "front_administrator"
"""The role that may do everything, also to what a row policy hides."""
DEFAULT_USER: Final = "default"

_ALL: Final = "ALL ON *.* WITH GRANT OPTION"
# What the embedded engine sets otherwise than a server does.
_AS_A_SERVER: Final = (
    "<implicit_select>0</implicit_select>"
    "<allow_introspection_functions>0</allow_introspection_functions>"
    "<output_format_arrow_use_native_writer>1</output_format_arrow_use_native_writer>"
    "<storage_file_read_method>pread</storage_file_read_method>"
)
_NAME: Final = r"[`\"]?(\w+)[`\"]?"
_NAMES: Final = r"([\w`\", ]+?)"
_ABOUT: Final = re.compile(
    r"\s*(GRANT|REVOKE|(CREATE|ALTER|DROP)\s+(USER|ROLE|QUOTA|(ROW\s+)?POLICY|SETTINGS\s+PROFILE))"
    r"\b",
    re.IGNORECASE,
)
_USER: Final = re.compile(
    rf"(CREATE|ALTER) USER (?:IF (?:NOT )?EXISTS |OR REPLACE )?{_NAME}"
    r"(?: (?:NOT IDENTIFIED|IDENTIFIED WITH no_password"
    r"|IDENTIFIED WITH ssl_certificate CN '(?P<cn>[^']*)'"
    r"|IDENTIFIED(?: WITH \w+)? BY '(?P<password>[^']*)'))?(?: SETTINGS (?P<settings>.*))?",
    re.IGNORECASE,
)
_DROP_USER: Final = re.compile(rf"DROP USER (?:IF EXISTS )?{_NAME}", re.IGNORECASE)
_GRANT: Final = re.compile(
    rf"(GRANT|REVOKE) (.* ON .*) (?:TO|FROM) {_NAMES}( WITH GRANT OPTION)?", re.IGNORECASE
)
_POLICY: Final = re.compile(
    rf"CREATE (?:ROW )?POLICY (?:IF NOT EXISTS )?{_NAME} ON {_NAME}\.{_NAME}"
    rf"(?: AS \w+)?(?: FOR SELECT)? USING (.*) TO {_NAMES}",
    re.IGNORECASE,
)
_DROP_POLICY: Final = re.compile(
    rf"DROP (?:ROW )?POLICY (?:IF EXISTS )?{_NAME} ON {_NAME}\.{_NAME}", re.IGNORECASE
)
_SETTING: Final = re.compile(r"\s*(\w+)\s*=\s*('[^']*'|\S+)\s*")


@dataclass(frozen=True, slots=True)
class User:
    """One user: how it is recognised, its settings, and its grants as statements in their order."""

    name: str
    password: str = ""
    token: str | None = None
    certificate: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    grants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """A row policy: these users see only rows of the table for which `condition` holds."""

    name: str
    database: str
    table: str
    condition: str
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """All users and row policies.

    `system_is_open` is a server whose configuration has select_from_system_db_requires_grant off.
    """

    users: Mapping[str, User] = field(
        default_factory=lambda: {DEFAULT_USER: User(DEFAULT_USER, grants=(f"GRANT {_ALL}",))}
    )
    policies: tuple[Policy, ...] = ()
    system_is_open: bool = False

    def after(self, statement: str) -> Access:
        """Return the rights after a statement.

        Raises:
            ValueError: no such statement is read, or there is no such user.
        """
        sql = " ".join(statement.strip().rstrip(";").split())
        if found := _USER.fullmatch(sql):
            return self.with_user(self._changed(found))
        if found := _DROP_USER.fullmatch(sql):
            left = {name: user for name, user in self.users.items() if name != found[1]}
            return replace(self, users=left)
        if found := _GRANT.fullmatch(sql):
            text = f"{found[1]} {found[2]}{found[4] or ''}"
            given = self
            for name in _listed(found[3]):
                user = self._user(name, statement)
                given = given.with_user(replace(user, grants=(*user.grants, text)))
            return given
        if found := _POLICY.fullmatch(sql):
            made = Policy(found[1], found[2], found[3], found[4], _listed(found[5]))
            return replace(self, policies=(*self.policies, made))
        if found := _DROP_POLICY.fullmatch(sql):
            place = found.group(1, 2, 3)
            kept = [p for p in self.policies if (p.name, p.database, p.table) != place]
            return replace(self, policies=tuple(kept))
        message = f"the front does not read this statement about access: {statement}"
        raise ValueError(message)

    def with_user(self, user: User) -> Access:
        """Return the rights with a user added or changed."""
        return replace(self, users={**self.users, user.name: user})

    def _user(self, name: str, statement: str) -> User:
        if name not in self.users:
            message = f"there is no user {name}: {statement}"
            raise ValueError(message)
        return self.users[name]

    def _changed(self, found: re.Match[str]) -> User:
        is_new = found[1].upper() == "CREATE"
        user = User(found[2]) if is_new else self._user(found[2], found[0])
        if found["password"] is not None:
            user = replace(user, password=found["password"])
        if found["cn"] is not None:
            user = replace(user, certificate=found["cn"])
        if found["settings"] is not None:
            pairs = _SETTING.findall(found["settings"].replace(",", " "))
            user = replace(user, settings={name: value.strip("'") for name, value in pairs})
        return user

    def users_xml(self) -> str:
        """Return the users file of the engine."""
        roles = [_role_xml(ADMINISTRATOR, (f"GRANT {_ALL}",))]
        roles += [_role_xml(role_of(user.name), user.grants) for user in self.users.values()]
        names = (ADMINISTRATOR, *(role_of(name) for name in self.users))
        granted = "".join(f"<query>GRANT {name}</query>" for name in names)
        return f"""<clickhouse>
  <profiles><default>{_AS_A_SERVER}</default></profiles>
  <quotas><default/></quotas>
  <roles>{"".join(roles)}</roles>
  <users><default>
    <no_password/>
    <networks><ip>::/0</ip></networks>
    <profile>default</profile>
    <quota>default</quota>
    <grants>{granted}</grants>
    <databases>{self._filters_xml()}</databases>
  </default></users>
</clickhouse>
"""

    def policies_sql(self) -> str:
        """Return what stands for `system.row_policies`: the names and users that were given.

        The engine has one policy for a table, which applies to its one user.
        """
        if not self.policies:
            return "system.row_policies"
        places = [f"{one.database}.{one.table}" for one in self.policies]
        names = [one.name for one in self.policies]
        users = [list(one.users) for one in self.policies]
        # Lists of names read the same in SQL.
        at = f"indexOf({places}, concat(database, '.', table))"
        return (
            f"(SELECT * REPLACE ({names}[{at}] AS short_name,"
            f" concat({names}[{at}], ' ON ', database, '.', table) AS name,"
            f" {users}[{at}] AS apply_to_list) FROM system.row_policies)"
        )

    def _filters_xml(self) -> str:
        conditions: dict[tuple[str, str], list[str]] = {}
        for policy in self.policies:
            names = self.users if "ALL" in policy.users else policy.users
            roles = ", ".join(f"'{role_of(name)}'" for name in names)
            applies_not = f"NOT hasAny(currentRoles(), [{roles}])"
            place = policy.database, policy.table
            conditions.setdefault(place, []).append(f"({applies_not} OR ({policy.condition}))")
        return "".join(
            f"<{database}><{table}><filter>{escape(' AND '.join(texts))}</filter></{table}>"
            f"</{database}>"
            for (database, table), texts in conditions.items()
        )

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(read: dict[str, Any]) -> Access:
        """Return the rights that `to_json` wrote."""
        users = {
            name: User(**(user | {"grants": tuple(user["grants"])}))
            for name, user in read["users"].items()
        }
        policies = (Policy(**(one | {"users": tuple(one["users"])})) for one in read["policies"])
        return Access(users, tuple(policies), read["system_is_open"])


def is_about_access(statement: str) -> bool:
    """Whether a statement is about users, rights, policies or quotas."""
    return _ABOUT.match(statement) is not None


def role_of(user: str) -> str:
    """Return the role with which requests of a user run."""
    return "default_user" if user == DEFAULT_USER else user


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip(' `"') for name in names.split(","))


def _role_xml(name: str, grants: tuple[str, ...]) -> str:
    queries = "".join(f"<query>{escape(text)}</query>" for text in grants)
    inside = f"<grants>{queries}</grants>" if queries else ""
    return f"<{name}>{inside}</{name}>"
