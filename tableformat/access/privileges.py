"""Lists the privileges that each statement and procedure requires, and the objects they apply to.

`REQUIRED` is the table: statement -> privileges, each with its object. The sources of its rules:

* EXPORT and both forms of ATTACH follow the requirements (RQ…Security.RBAC, RQ…Attach…RBAC);
* other statements follow ClickHouse (getRequiredAccessForCommand, InterpreterAlterQuery.cpp);
* a statement that brings rows of another table also requires SELECT on that table.

docs/reference/access.md shows the table to users. A `Scope` is the object of a privilege: one
table by its full name, everything below a name, or everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from tableformat.names import quote_identifier

__all__ = [
    "EVERYTHING",
    "REQUIRED",
    "Act",
    "Need",
    "Of",
    "Privilege",
    "Required",
    "Scope",
    "includes",
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
