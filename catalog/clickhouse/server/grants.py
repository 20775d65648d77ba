"""Lists the rights that an export needs at a server, and parses the grants that a server shows.

- `export_grants` and `system_grants` return the minimal set. It was found by running every step
  with one right less at a time (tests/integration/test_grants.py). A clone needs SELECT on the
  whole source table, not on columns alone, and nothing else there. `statements` renders the
  GRANTs.
- `parse_line` reads a line of SHOW GRANTS, and `wanted_grant` the text of error 497.
- A line that is not understood never counts as a right. A line that revokes something and is not
  understood raises `NotUnderstoodError`: the whole result is unusable.

The rights and their reasons are documented in docs/operating/servers.md, "What to grant".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tableformat.names import TableName, quote_identifier

__all__ = [
    "ARCHIVE",
    "NICE",
    "Given",
    "GivenRole",
    "Grant",
    "Names",
    "Need",
    "NotUnderstoodError",
    "Target",
    "allows",
    "export_grants",
    "parse_line",
    "statements",
    "system_grants",
    "wanted_grant",
]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """The target of a right: a table, a database (`table` is '') or everything (both '')."""

    database: str = ""
    table: str = ""

    @property
    def sql(self) -> str:
        """The target as SQL, after ON."""
        return f"{_named(self.database)}.{_named(self.table)}"


@dataclass(frozen=True, slots=True)
class Grant:
    """One privilege on one target, and its purpose."""

    privilege: str
    on: Target
    why: str

    @property
    def sql(self) -> str:
        """The privilege and its target, as between GRANT and TO."""
        return f"{self.privilege} ON {self.on.sql}"


@dataclass(frozen=True, slots=True)
class Need:
    """The facts that decide which rights an export of a table needs; True if unknown.

    `makes_database`: the staging database does not exist yet. `closes_tables`: the version can make
    a table read-only. `has_column_ttl` and `is_replicated` are those of the table.
    """

    table: TableName
    staging: str
    makes_database: bool = True
    closes_tables: bool = True
    has_column_ttl: bool = True
    is_replicated: bool = True


_STAGING: Final = (
    ("CREATE TABLE", "a staging table is created"),
    ("INSERT", "parts of the source are linked into it"),
    ("ALTER DELETE", "REPLACE PARTITION requires it, even if there is nothing to replace"),
    ("SELECT", "the rows are read from it"),
    ("CHECK", "each of its parts is checked for damage"),
    ("SYSTEM MERGES", "its parts must not be merged"),
    ("SYSTEM TTL MERGES", "its rows must not expire"),
    ("DROP TABLE", "it is dropped in the end"),
)
_READ: Final = (
    ("parts", "the parts of a snapshot are listed and compared"),
    ("parts_columns", "it shows a RENAME that is not finished"),
    ("mutations", "it shows mutations that are not finished"),
    ("detached_parts", "it shows broken parts that were detached"),
    ("merge_tree_settings", "it lists the settings that a staging table can have"),
    ("disks", "it lists the disks of parts"),
    ("data_skipping_indices", "the lake table records the skip indices of the table"),
    ("projections", "the lake table records the projections of the table"),
)
_READ_OF_REPLICAS: Final = (
    ("replicas", "it has the identity and the delay of a replicated table"),
    ("zookeeper", "the node of its path distinguishes it from another table with that path"),
    ("replication_queue", "it shows the parts that a replica still has to fetch"),
)
ARCHIVE: Final = (
    ("ALTER DELETE", "`archive` detaches the partition, and drops it if that is asked"),
    ("INSERT", "`archive` attaches parts again that changed meanwhile"),
)
"""Rights on the source table that only `archive` needs."""
NICE: Final = (
    Grant(
        "SHOW ROW POLICIES",
        Target(),
        "mergeberg reads row policies instead of counting rows",
    ),
    Grant(
        "SELECT",
        Target("system", "processes"),
        "the queries of an export that is stopped are ended at once",
    ),
)
"""Rights without which an export works, too."""


def export_grants(need: Need) -> tuple[Grant, ...]:
    """Return the rights that an export needs in addition to `system_grants`, in order of use."""
    staging = Target(need.staging)
    database = Grant("CREATE DATABASE", staging, "the staging database is created once")
    closing = Grant("ALTER SETTINGS", staging, "a filled staging table is made read-only")
    ttl = Grant("ALTER MODIFY COLUMN", staging, "the TTLs of its columns are removed")
    source = Grant(
        "SELECT",
        Target(need.table.database, need.table.name),
        "its parts are cloned; SELECT on columns alone is not enough for that",
    )
    return (
        source,
        *((database,) if need.makes_database else ()),
        *(Grant(privilege, staging, why) for privilege, why in _STAGING),
        *((closing,) if need.closes_tables else ()),
        *((ttl,) if need.has_column_ttl else ()),
    )


def system_grants(*, is_replicated: bool = True) -> tuple[Grant, ...]:
    """Return the rights on system tables that every command needs.

    A server gives them to every user, unless its configuration requires grants
    (select_from_system_db_requires_grant, as in the configuration of its packages).
    """
    read = (*_READ, *(_READ_OF_REPLICAS if is_replicated else ()))
    return tuple(Grant("SELECT", Target("system", table), why) for table, why in read)


def statements(grants: Iterable[Grant], user: str) -> tuple[str, ...]:
    """Return the GRANT statements for a user, one for each target."""
    found: dict[Target, list[str]] = {}
    for grant in grants:
        held = found.setdefault(grant.on, [])
        if grant.privilege not in held:
            held.append(grant.privilege)
    return tuple(
        f"GRANT {', '.join(privileges)} ON {on.sql} TO {_named(user)};"
        for on, privileges in found.items()
    )


def _named(name: str) -> str:
    if not name:
        return "*"
    return name if _PLAIN.fullmatch(name) else quote_identifier(name)


_NAME: Final = r"(?:`(?:[^`\\]|\\.|``)*`|[^\s.,`()]+)"
_LINE: Final = re.compile(
    rf"(?P<how>GRANT|REVOKE)(?P<option> GRANT OPTION FOR| ADMIN OPTION FOR)? (?P<what>.+?) ON "
    rf"(?P<database>{_NAME})(?:\.(?P<table>{_NAME}))? (?:TO|FROM) .+",
    re.DOTALL,
)
_ROLES: Final = re.compile(rf"GRANT (?P<roles>{_NAME}(?:, {_NAME})*) TO .+", re.DOTALL)
_COLUMNS: Final = re.compile(r"(?P<privilege>[A-Za-z ]+?)\s*\((?P<columns>.*)\)", re.DOTALL)
_WANTED: Final = re.compile(
    r"necessary to have (?:the )?grants? (?P<what>[A-Za-z][A-Za-z ]*?(?:\([^)]*\))?"
    r"(?:, [A-Za-z][A-Za-z ]*?(?:\([^)]*\))?)*?)(?: for at least one column on| ON) "
    rf"(?P<database>{_NAME})(?:\.(?P<table>{_NAME}))?",
    re.DOTALL,
)
# A job's name (catalog/processes.py) and a number.
_STAGING_TABLE: Final = re.compile(r".+_\d+_\w+_[0-9a-f]{8}_\d+", re.DOTALL)
# The parent of each privilege; for others it is their first word.
_PARENTS: Final = {
    "ALTER DELETE": ("ALTER TABLE", "ALTER"),
    "ALTER SETTINGS": ("ALTER TABLE", "ALTER"),
    "ALTER MODIFY COLUMN": ("ALTER COLUMN", "ALTER TABLE", "ALTER"),
    "SHOW ROW POLICIES": ("SHOW ACCESS", "ACCESS MANAGEMENT"),
}


class NotUnderstoodError(ValueError):
    """A line revokes something that cannot be determined."""


@dataclass(frozen=True, slots=True)
class Names:
    """One name, or all names with a prefix."""

    text: str = ""
    is_beginning: bool = True

    def hold(self, name: str) -> bool:
        """Whether they include a name."""
        return name.startswith(self.text) if self.is_beginning else name == self.text


@dataclass(frozen=True, slots=True)
class Given:
    """Privileges that a line grants or revokes, without those on columns alone."""

    privileges: tuple[str, ...]
    databases: Names = Names()
    tables: Names = Names()
    is_revoke: bool = False

    def covers(self, on: Target) -> bool:
        """Whether they apply to the whole target."""
        if not self.databases.hold(on.database) or (not on.database and self.databases != Names()):
            return False
        return self.tables == Names() or (bool(on.table) and self.tables.hold(on.table))

    def touches(self, on: Target) -> bool:
        """Whether they apply to a part of the target."""
        here = not on.database or self.databases.hold(on.database)
        return here and (not on.table or self.tables.hold(on.table))


@dataclass(frozen=True, slots=True)
class GivenRole:
    """Roles that a line grants."""

    roles: tuple[str, ...]


def parse_line(line: str) -> Given | GivenRole | None:
    """Parse a line of SHOW GRANTS; return None if it grants nothing relevant.

    Raises:
        NotUnderstoodError: the line revokes something that cannot be determined.
    """
    text = line.strip().rstrip(";")
    found = _LINE.fullmatch(text)
    if found is None:
        roles = _ROLES.fullmatch(text)
        if roles:
            return GivenRole(tuple(_unquoted(n) for n in re.findall(_NAME, roles["roles"])))
        if text.startswith("REVOKE"):
            message = f"cannot tell what {text!r} takes away"
            raise NotUnderstoodError(message)
        return None
    is_revoke = found["how"] == "REVOKE"
    if found["option"]:
        return None
    names = tuple(
        name.upper()
        for one in _split(found["what"])
        if (name := _whole(one, is_revoke=is_revoke)) is not None
    )
    if not names or found["table"] is None:
        # A right on a table engine, a source or a user names no table.
        return None
    return Given(names, _names(found["database"]), _names(found["table"]), is_revoke)


def allows(lines: Iterable[Given], grant: Grant) -> bool:
    """Whether the lines of one user or role, in order, give a right on the whole target."""
    held = False
    for line in lines:
        if not _includes(line.privileges, grant.privilege):
            continue
        if line.is_revoke and line.touches(grant.on):
            held = False
        elif not line.is_revoke and line.covers(grant.on):
            held = True
    return held


def wanted_grant(reason: str) -> tuple[Grant, ...]:
    """Return the rights that the text of an error 497 names, () if it names none.

    A right on columns becomes one on their table, and a right on a staging table becomes one on its
    database, because the next statement needs that.
    """
    found = _WANTED.search(reason)
    if found is None:
        return ()
    database = _unquoted(found["database"])
    table = _unquoted(found["table"] or "*")
    whole = table == "*" or _STAGING_TABLE.fullmatch(table) is not None
    target = Target("" if database == "*" else database, "" if whole else table)
    names = (re.sub(r"\s*\(.*\)", "", one, flags=re.DOTALL) for one in _split(found["what"]))
    return tuple(Grant(name.strip().upper(), target, "") for name in names)


def _includes(given: tuple[str, ...], privilege: str) -> bool:
    parents = _PARENTS.get(privilege, (privilege.partition(" ")[0],))
    return any(one in (privilege, *parents, "ALL", "ALL PRIVILEGES") for one in given)


def _whole(one: str, *, is_revoke: bool) -> str | None:
    """Return a privilege, None if it is granted on columns alone; a revoke on columns counts."""
    found = _COLUMNS.fullmatch(one)
    if found is None:
        return one.strip()
    return found["privilege"].strip() if is_revoke else None


def _split(text: str) -> list[str]:
    """Split a text at commas outside brackets and quotes."""
    found, depth, quoted, begin = [], 0, False, 0
    for at, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        elif not quoted and character in "()":
            depth += 1 if character == "(" else -1
        elif not quoted and not depth and character == ",":
            found.append(text[begin:at].strip())
            begin = at + 1
    return [*found, text[begin:].strip()]


def _unquoted(name: str) -> str:
    if not name.startswith("`"):
        return name
    return re.sub(r"\\(.)|``", lambda found: found[1] or "`", name[1:-1], flags=re.DOTALL)


def _names(text: str) -> Names:
    """Parse a name; a star outside quotes stands for any rest."""
    is_beginning = text.endswith("*") and not text.startswith("`")
    return Names(text[:-1] if is_beginning else _unquoted(text), is_beginning)
