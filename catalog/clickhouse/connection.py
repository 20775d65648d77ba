"""Defines `Connection`, the SQL interface of all of `catalog.clickhouse`, and its errors.

- Rows arrive as JSON with integers of 64 bits and more unquoted. Python integers have no limit, so
  no digit is lost and no type has to be interpreted. Decimals, NaN, infinities and dates arrive as
  text. `text`, `whole`, `flag`, `texts` and `one_text` check the type of a value.
- `advice` maps the code of an error that the server caused to a sentence with a remedy. For a
  missing right (code 497) it is the GRANT statement.
- `definitions` splits the column list of a CREATE TABLE statement, as ClickHouse prints it, into
  columns, indices, projections and constraints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from catalog.clickhouse.server.grants import statements, wanted_grant
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
from tableformat.errors import InternalError, SourceError
from tableformat.names import quote_string

__all__ = [
    "JSON_SETTINGS",
    "LARGE_QUERY_SETTINGS",
    "PLAIN_SETTINGS",
    "ClickHouseError",
    "Connection",
    "Row",
    "advice",
    "changed_settings",
    "current_settings",
    "definitions",
    "flag",
    "large_query_settings",
    "one_text",
    "set_statement",
    "text",
    "texts",
    "ttl_columns",
    "whole",
]

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
    QUERY_WAS_CANCELLED: "KILL QUERY ended the query there; run again.",
}
_DENIED_USER: Final = re.compile(r"\A(?P<user>.+?): Not enough privileges")


def advice(code: int | None, reason: str = "") -> str | None:
    """Return a sentence with the remedy of an error, None if it is unknown.

    Args:
        code: the code of the error.
        reason: its text, which names a missing right.
    """
    if code == ACCESS_DENIED and (user := _DENIED_USER.search(reason)):
        given = statements(wanted_grant(reason), user["user"])
        return f"Run {' '.join(given)}" if given else None
    return None if code is None else _BY_CODE.get(code)


Row = tuple[object, ...]

# All connections send these settings with their queries, in the format JSONCompactEachRow.
JSON_SETTINGS: Final = (
    ("output_format_json_quote_64bit_integers", "0"),
    ("output_format_json_quote_decimals", "1"),
    ("output_format_json_quote_denormals", "1"),
    ("output_format_json_validate_utf8", "0"),
)
PLAIN_SETTINGS: Final = (
    ("additional_result_filter", ""),
    ("additional_table_filters", "{}"),
    ("aggregate_functions_null_for_empty", "0"),
    ("apply_deleted_mask", "1"),
    ("cast_keep_nullable", "0"),
    ("data_type_default_nullable", "0"),
    ("date_time_64_output_format_cut_trailing_zeros_align_to_groups_of_thousands", "0"),
    ("date_time_output_format", "simple"),
    ("distinct_overflow_mode", "throw"),
    ("extremes", "0"),
    ("filter", ""),
    ("final", "0"),
    ("group_by_overflow_mode", "throw"),
    ("http_write_exception_in_output_format", "0"),
    ("ignore_cold_parts_seconds", "0"),
    ("join_overflow_mode", "throw"),
    ("join_use_nulls", "0"),
    ("limit", "0"),
    ("offset", "0"),
    ("order", ""),
    ("output_format_decimal_trailing_zeros", "0"),
    ("output_format_trim_fixed_string", "0"),
    ("page", "0"),
    ("partial_result_on_first_cancel", "0"),
    ("read_overflow_mode", "throw"),
    ("read_overflow_mode_leaf", "throw"),
    ("result_overflow_mode", "throw"),
    ("select", ""),
    ("session_timezone", ""),
    ("set_overflow_mode", "throw"),
    ("sort", ""),
    ("sort_overflow_mode", "throw"),
    ("timeout_overflow_mode", "throw"),
    ("timeout_overflow_mode_leaf", "throw"),
    ("transfer_overflow_mode", "throw"),
    ("transform_null_in", "0"),
    ("use_query_cache", "0"),
)
"""With these settings a statement means the same for every user.

A profile may change what it means: truncate results at a limit instead of failing, hide rows, show
deleted ones, write times in another zone.
"""
_FIXED: Final = dict((*JSON_SETTINGS, *PLAIN_SETTINGS))
# ClickHouse 26.9 puts them into the query and shows that query their defaults (measured).
_CONSUMED: Final = frozenset({"filter", "limit", "offset", "order", "page", "select", "sort"})
LARGE_QUERY_SETTINGS: Final = (
    ("max_query_size", "1073741824"),
    ("max_ast_elements", "100000000"),
    ("max_expanded_ast_elements", "100000000"),
)
"""Settings for queries over thousands of columns; the text of their digest has a megabyte."""
# ClickHouse's defaults are 262,144 bytes and 50,000 elements.
_SMALL_QUERY_BYTES: Final = 65536
_CODE: Final = re.compile(r"Code: (\d+)[.,]")
_TAIL: Final = re.compile(
    r"(, e\.what\(\) = (?:DB|Coordination)::\w*Exception)?( \(version .*\)\.?)?\Z"
)
# Newer versions repeat the whole statement after an unknown name.
_SCOPE: Final = re.compile(r"\. In scope .*?(?=\. \([A-Z_]+\)|\Z)", re.DOTALL)
_EXCEPTION: Final = re.compile(r"\A.*?(?:DB|Coordination)::Exception: ", re.DOTALL)


class ClickHouseError(SourceError):
    """An error of ClickHouse; `reason` is its first line without the code."""

    def __init__(self, error_text: str, *, place: str = "ClickHouse") -> None:
        """Parse code and reason from ClickHouse's error text, without stack trace and version.

        Args:
            error_text: ClickHouse's text.
            place: names the ClickHouse in the message.
        """
        found = _CODE.search(error_text)
        first_line = _TAIL.sub("", error_text.strip().partition("\n")[0])
        first_line = _SCOPE.sub("", _EXCEPTION.sub("", first_line))
        self.reason = first_line.rstrip(". ") or "it gave no reason"
        code = int(found[1]) if found else None
        remedy = advice(code, self.reason)
        also = f" {remedy}" if remedy else ""
        message = f"Cannot run a statement in {place}: {self.reason}.{also}"
        super().__init__(message, code=code, why=self.reason)


class Connection(Protocol):
    """An open ClickHouse. Executes one statement at a time; not safe from threads."""

    @property
    def address(self) -> str:
        """The server's address for tasks, without a secret; '' if tasks open the parts as files."""
        ...

    @property
    def staging_database(self) -> str:
        """The database for staging tables."""
        ...

    def rows(self, sql: str) -> tuple[Row, ...]:
        """Return the rows of a query, which has no FORMAT clause.

        Raises:
            ClickHouseError: ClickHouse refused the query, or it failed.
            SourceError: ClickHouse no longer responds.
        """
        ...

    def command(self, sql: str) -> None:
        """Run a statement without a result.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: ClickHouse no longer responds.
        """
        ...

    def close(self) -> None:
        """Close the connection; closing again does nothing."""
        ...


def current_settings(
    rows: Callable[[str], tuple[Row, ...]], place: str = ""
) -> dict[str, str | None]:
    """Return the values that a ClickHouse has now of `JSON_SETTINGS` and `PLAIN_SETTINGS`.

    A setting that it does not know is missing. The value is None if a query cannot see it.

    Args:
        rows: runs a query under the settings of the user's profile.
        place: follows 'ClickHouse' in messages.

    Raises:
        ClickHouseError: the query failed.
        SourceError: the profile changes the result even of a query for one row.
    """
    names = ", ".join(quote_string(name) for name in sorted(_FIXED))
    # One row, because a `limit` in the profile cuts what has more.
    found = rows(
        "SELECT groupArray(name), groupArray(value), groupArray(changed) FROM system.settings "
        f"WHERE name IN ({names})"
    )
    match found:
        case ((list(known), list(values), list(changed)),):
            return {
                text(name): None if flag(other) and name in _CONSUMED else text(value)
                for name, value, other in zip(known, values, changed, strict=True)
            }
        case _:
            where = f" {place}" if place else ""
            message = (
                f"Cannot read from ClickHouse{where}: a query for one row returned {len(found)} "
                "rows, or other columns, so the profile of the user changes results. Remove "
                "offset, filter, select and the like from the profile, or use another user."
            )
            raise SourceError(message)


def changed_settings(current: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return the settings to send, so that a statement means the same for every user.

    Args:
        current: what `current_settings` returned.
    """
    return tuple((name, _FIXED[name]) for name, value in current.items() if _FIXED[name] != value)


def set_statement(rows: Callable[[str], tuple[Row, ...]]) -> str:
    """Return the statement after which a session's statements mean the same for every profile.

    Args:
        rows: runs a query in the session.

    Raises:
        SourceError: see `current_settings`.
    """
    wanted = (*changed_settings(current_settings(rows)), *LARGE_QUERY_SETTINGS)
    return "SET " + ", ".join(f"{name} = {quote_string(value)}" for name, value in wanted)


def large_query_settings(sql: str) -> tuple[tuple[str, str], ...]:
    """Return the settings that a large query needs, none for an ordinary one."""
    return LARGE_QUERY_SETTINGS if len(sql) > _SMALL_QUERY_BYTES else ()


def text(value: object) -> str:
    """Return a value that must be text.

    Raises:
        InternalError: it is another type.
    """
    if isinstance(value, str):
        return value
    raise _wrong("text", value)


def whole(value: object) -> int:
    """Return a value that must be an integer.

    Raises:
        InternalError: it is another type.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _wrong("a whole number", value)


def flag(value: object) -> bool:
    """Return a value that must be 0 or 1 (true and false in newer versions).

    Raises:
        InternalError: it is another value.
    """
    if value in (0, 1):
        return bool(value)
    raise _wrong("0 or 1", value)


def texts(connection: Connection, sql: str) -> tuple[str, ...]:
    """Return the first column of a query as texts.

    Raises:
        SourceError: the query failed.
    """
    return tuple(text(row[0]) for row in connection.rows(sql))


def one_text(connection: Connection, sql: str) -> str:
    """Return the single value of a query as text.

    Raises:
        SourceError: the query failed.
    """
    return text(connection.rows(sql)[0][0])


def _wrong(expected: str, value: object) -> InternalError:
    return InternalError(
        f"Cannot read a response of ClickHouse: {value!r} is not {expected}. This is a bug, please "
        "report it."
    )


_QUOTES: Final = "'`\""
_COLUMN: Final = re.compile(r"`(?P<name>(?:[^`\\]|\\.)*)`\s+(?P<rest>.*)\Z", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}
_TTL: Final = re.compile(r"\bTTL\b")


def definitions(create_query: str) -> tuple[str, ...]:
    """Return the definitions of columns, indices, projections and constraints as texts.

    Args:
        create_query: `create_table_query` of system.tables.
    """
    depth, found, current = 0, [], ""
    for piece in _cut(create_query):
        if piece == ")":
            depth -= 1
            if depth == 0:
                break
        if depth == 1 and piece == ",":
            found.append(current.strip())
            current = ""
        elif depth >= 1:
            current += piece
        if piece == "(":
            depth += 1
    return (*found, current.strip()) if current.strip() else tuple(found)


def ttl_columns(create_query: str) -> tuple[str, ...]:
    """Return the columns whose definition may have a TTL.

    A column that reads another column named TTL is included; ClickHouse tells them apart.
    """
    names = []
    for definition in definitions(create_query):
        column = _COLUMN.match(definition)
        if column and _TTL.search(_outside_quotes(column["rest"])):
            names.append(_ESCAPED.sub(_unescaped, column["name"]))
    return tuple(names)


def _outside_quotes(definition: str) -> str:
    return "".join(piece for piece in _cut(definition) if piece[0] not in _QUOTES)


def _cut(sql: str) -> Iterator[str]:
    """Split SQL into quoted texts and single characters."""
    i = 0
    while i < len(sql):
        start = i
        quote = sql[i]
        i += 1
        if quote in _QUOTES:
            while i < len(sql) and sql[i] != quote:
                i += 2 if sql[i] == "\\" else 1
            i += 1
        yield sql[start:i]


def _unescaped(found: re.Match[str]) -> str:
    return _PLAIN_ESCAPES.get(found[1], found[1])
