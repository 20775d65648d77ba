"""The comment of a staging table: of which source table its parts are, who made it, and when.

It is written when the staging table is made, so that leftovers can be told apart by whoever finds
them, and one of another table is never taken for what a dead job had frozen of this one. Who made
it is a process on a host, never a user. Comments of earlier releases say only the source table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from tableformat.ledger import Owner
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import TableName

__all__ = ["STAGING_DATABASE", "Made", "Origin"]

STAGING_DATABASE: Final = "mergeberg_staging"
"""Where staging tables are made unless the user names another database."""
_WHAT: Final = "staged by mergeberg from"


@dataclass(frozen=True, slots=True)
class Made:
    """Who made a staging table, and when, to the second in UTC by the clock of that host."""

    owner: Owner
    at: datetime

    @classmethod
    def by(cls, owner: Owner, at: datetime) -> Self:
        """Return what a comment can say of a moment in any zone."""
        return cls(owner, at.astimezone(UTC).replace(microsecond=0))

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.owner}, {_text_of(self.at)}"


@dataclass(frozen=True, slots=True)
class Origin:
    """A source table: its name when the staging table was made, and its identity."""

    table: TableName
    identity: str
    made: Made | None = None

    @classmethod
    def of(cls, table: MergeTreeTable, made: Made | None = None) -> Self:
        """Return the origin of the parts of a described table."""
        return cls(table.name, table.identity, made)

    @property
    def comment(self) -> str:
        """The text that a staging table carries; ASCII whatever the names are."""
        names = {"database": self.table.database, "table": self.table.name}
        said: dict[str, Any] = {"what": _WHAT, **names, "identity": self.identity}
        if self.made is not None:
            owner = self.made.owner
            said["owner"] = {"host": owner.host, "process": owner.pid, "start": owner.start}
            said["made"] = _text_of(self.made.at)
        return json.dumps(said)

    @classmethod
    def parse(cls, comment: str) -> Self | None:
        """Return what a comment says; None when it is not one of ours."""
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
    """Return who made a staging table and when; None when its comment does not say both."""
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
