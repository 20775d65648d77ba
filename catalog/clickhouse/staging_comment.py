"""Reads and writes the comment of a staging table: its source table, its creator and the time.

The comment is written when the staging table is created. It identifies leftovers for users, and
prevents a job from reusing the staging table of another source table. The creator is a process on a
host, never a user. Comments of earlier releases have only the source table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from tableformat.ledger import Owner
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import TableName

__all__ = ["Made", "Origin"]

_WHAT: Final = "staged by mergeberg from"


@dataclass(frozen=True, slots=True)
class Made:
    """The process that created a staging table, and the time in UTC seconds by its host's clock."""

    owner: Owner
    at: datetime

    @classmethod
    def by(cls, owner: Owner, at: datetime) -> Self:
        """Return the creator with a time of any zone, converted to UTC and whole seconds."""
        return cls(owner, at.astimezone(UTC).replace(microsecond=0))

    @property
    def shown(self) -> str:
        """The creator and time as a message shows them."""
        return f"{self.owner}, {_text_of(self.at)}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a staging table: the table's name at its creation, and the table's identity."""

    table: TableName
    identity: str
    made: Made | None = None

    @classmethod
    def of(cls, table: MergeTreeTable, made: Made | None = None) -> Self:
        """Return the origin for parts of a described table."""
        return cls(table.name, table.identity, made)

    @property
    def comment(self) -> str:
        """The comment of the staging table; it is ASCII for any name."""
        names = {"database": self.table.database, "table": self.table.name}
        members: dict[str, Any] = {"what": _WHAT, **names, "identity": self.identity}
        if self.made is not None:
            owner = self.made.owner
            members["owner"] = {"host": owner.host, "process": owner.pid, "start": owner.start}
            members["made"] = _text_of(self.made.at)
        return json.dumps(members)

    @classmethod
    def parse(cls, comment: str) -> Self | None:
        """Parse a comment; return None if it is not one of ours."""
        try:
            read: Any = json.loads(comment)
        except ValueError:
            return None
        if not isinstance(read, dict) or read.get("what") != _WHAT:
            return None
        match read:
            case {"database": str(database), "table": str(table), "identity": str(identity)} if (
                database and table and identity
            ):
                return cls(TableName(database, table), identity, _made(read))
        return None


def _made(read: Any) -> Made | None:
    """Return the creator of a staging table, None if the comment lacks the process or the time."""
    match read:
        case {
            "owner": {"host": str(host), "process": int(process), "start": str(start)},
            "made": str(at),
        }:
            try:
                moment = datetime.fromisoformat(at)
            except ValueError:
                return None
            return Made.by(Owner(host, process, start), moment) if moment.tzinfo else None
        case _:
            return None


def _text_of(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
