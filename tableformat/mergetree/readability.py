"""Refuses tables whose rows cannot be read reliably, regardless of their column types.

There are two cases: an unknown setting of the table may change how its parts are read, or a column
has the name of a virtual column with the part or partition of a row.
"""

from __future__ import annotations

from typing import Final

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import RefusedError, Unable
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.table_settings import unknown_settings
from tableformat.names import quote_identifier

__all__ = ["PART_OFFSET", "check_readable", "has_column", "why_unreadable"]

PART_OFFSET: Final = "_part_offset"
"""The virtual column with a row's position in its part; without it parts are read as a whole."""
# The part and the partition of a row, and the value of the partition key.
_REQUIRED_VIRTUAL: Final = ("_part", "_partition_id", "_partition_value")


def check_readable(table: MergeTreeTable) -> None:
    """Refuse a table that cannot be read reliably.

    Raises:
        RefusedError: every reason is listed (code 48).
    """
    if reasons := why_unreadable(table):
        raise RefusedError(Unable(str(table.name), reasons), code=NOT_IMPLEMENTED)


def why_unreadable(table: MergeTreeTable) -> tuple[str, ...]:
    """Return the reasons why a table cannot be exported, each with its remedy."""
    settings = (
        f"its setting {name} is not known here, and may change how its parts are read; reset it "
        f"(ALTER TABLE {table.name.sql} RESET SETTING {name}), or copy the rows into a table "
        "without it, or use a newer mergeberg"
        for name in unknown_settings(table.engine.settings)
    )
    columns = (
        f"column {name}: ClickHouse has a virtual column of that name, which says where a row is, "
        f"and the table hides it; rename the column (ALTER TABLE {table.name.sql} RENAME COLUMN "
        f"{quote_identifier(name)} TO another_name)"
        for name in _REQUIRED_VIRTUAL
        if has_column(table, name)
    )
    return (*settings, *columns)


def has_column(table: MergeTreeTable, name: str) -> bool:
    """Whether a table has a column of a name; also an alias hides a virtual column."""
    return any(column.name == name for column in table.columns)
