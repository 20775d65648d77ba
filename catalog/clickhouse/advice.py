"""What to do about an error of ClickHouse whose cause lies with the server, by its number.

The text of a right that is missing says which; here it becomes the statement that gives it.
"""

from __future__ import annotations

import re
from typing import Final

from catalog.clickhouse.server.grant_text import wanted_grant
from catalog.clickhouse.server.grants import statements
from tableformat.clickhouse_codes import (
    ACCESS_DENIED,
    DATABASE_ACCESS_DENIED,
    MEMORY_LIMIT_EXCEEDED,
    NOT_ENOUGH_SPACE,
    QUERY_IS_PROHIBITED,
    QUERY_WAS_CANCELLED,
    QUOTA_EXCEEDED,
    READONLY,
    TABLE_IS_READ_ONLY,
    TIMEOUT_EXCEEDED,
    TOO_MANY_SIMULTANEOUS_QUERIES,
)

__all__ = ["advice"]

_BY_CODE: Final = {
    TIMEOUT_EXCEEDED: "Raise max_execution_time of the user, and run again.",
    READONLY: "Set readonly = 0 in the profile of the user.",
    QUOTA_EXCEEDED: "Raise the user's quota, or run again when its interval is over.",
    TOO_MANY_SIMULTANEOUS_QUERIES: "Run again when the server has less to do, or raise "
    "max_concurrent_queries (of the server, or for the user).",
    MEMORY_LIMIT_EXCEEDED: "Raise max_memory_usage of the user or max_server_memory_usage, or run "
    "again when the server has less to do.",
    TABLE_IS_READ_ONLY: "Run again when the table can be written; a replica needs its Keeper for "
    "that.",
    NOT_ENOUGH_SPACE: "Free space on the server's disk, and run again.",
    DATABASE_ACCESS_DENIED: "Add the database to allow_databases of the user.",
    QUERY_IS_PROHIBITED: "Set allow_ddl = 1 in the profile of the user.",
    QUERY_WAS_CANCELLED: "Somebody ended the query there (KILL QUERY); run again.",
}
_WHO: Final = re.compile(r"\A(?P<user>.+?): Not enough privileges")


def advice(code: int | None, reason: str = "") -> str | None:
    """Return a sentence that says what to do, None for an error that says too little.

    Args:
        code: of the error.
        reason: its text, which names a right that is missing.
    """
    if code == ACCESS_DENIED and (who := _WHO.search(reason)):
        given = statements(wanted_grant(reason), who["user"])
        return f"Run {' '.join(given)}" if given else None
    return None if code is None else _BY_CODE.get(code)
