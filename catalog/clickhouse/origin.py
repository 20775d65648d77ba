"""The comment of a staging table: of which source table its parts are.

It is written when the staging table is made, so that leftovers can be told apart by whoever finds
them, and one of another table is never taken for what a dead job had frozen of this one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import TableName

__all__ = ["STAGING_DATABASE", "Origin"]

STAGING_DATABASE: Final = "mergeberg_staging"
"""Where staging tables are made unless the user names another database."""
_WHAT: Final = "staged by mergeberg from"


@dataclass(frozen=True, slots=True)
class Origin:
    """A source table: its name when the staging table was made, and its identity."""

    table: TableName
    identity: str

    @classmethod
    def of(cls, table: MergeTreeTable) -> Self:
        """Return the origin of the parts of a described table."""
        return cls(table.name, table.identity)

    @property
    def comment(self) -> str:
        """The text that a staging table carries; ASCII whatever the names are."""
        names = {"database": self.table.database, "table": self.table.name}
        return json.dumps({"what": _WHAT, **names, "identity": self.identity})

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
                return cls(TableName(database, table), identity)
        return None
