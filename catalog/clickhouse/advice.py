"""What to do about an error of ClickHouse whose cause lies with the server, by its number.

The text of a right that is missing says which; here it becomes the statement that gives it.
"""

from __future__ import annotations

import re
from typing import Final

from catalog.clickhouse.server.grant_text import wanted_grant
from catalog.clickhouse.server.grants import statements

__all__ = ["advice"]

_BY_CODE: Final = {
    159: "Raise max_execution_time of the user, and run again.",
    164: "Set readonly = 0 in the profile of the user.",
    201: "Raise the user's quota, or run again when its interval is over.",
    202: "Run again when the server has less to do, or raise max_concurrent_queries (of the "
    "server, or for the user).",
    241: "Raise max_memory_usage of the user or max_server_memory_usage, or run again when the "
    "server has less to do.",
    242: "Run again when the table can be written; a replica needs its Keeper for that.",
    243: "Free space on the server's disk, and run again.",
    291: "Add the database to allow_databases of the user.",
    392: "Set allow_ddl = 1 in the profile of the user.",
    394: "Somebody ended the query there (KILL QUERY); run again.",
}


_ACCESS_DENIED: Final = 497
_WHO: Final = re.compile(r"\A(?P<user>.+?): Not enough privileges")


def advice(code: int | None, reason: str = "") -> str | None:
    """Return a sentence that says what to do, None for an error that says too little.

    Args:
        code: of the error.
        reason: its text, which names a right that is missing.
    """
    if code == _ACCESS_DENIED and (who := _WHO.search(reason)):
        given = statements(wanted_grant(reason), who["user"])
        return f"Run {' '.join(given)}" if given else None
    return None if code is None else _BY_CODE.get(code)
