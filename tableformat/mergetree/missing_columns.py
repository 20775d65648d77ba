"""Finds the definitions from which ClickHouse computes columns that a part lacks.

A column that was added, or cleared, after a part was written is in none of the part's files. Its
values come from the table's current default expression or type, so they change with the table
while the part stays the same. Therefore these definitions belong to the part's content. A default
expression names other columns. Columns that the part has are in its files; for the others their
definitions count, too.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from tableformat.mergetree.sql_tokens import Token, TokenKind, scan
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import LowCardinality, Nullable
from tableformat.names import quote_identifier

__all__ = [
    "called_functions",
    "column_list",
    "columns_of_parts",
    "computed_text",
    "definitions",
    "depends_on_zone",
    "external_reference",
    "is_constant",
    "is_null",
    "shown_definitions",
]

_NAMES: Final = (TokenKind.WORD, TokenKind.QUOTED)
_OPERATORS: Final = (
    *("AND", "AS", "BETWEEN", "CASE", "CAST", "DIV", "ELSE", "ILIKE", "IN", "INTERVAL", "IS"),
    *("LIKE", "MOD", "NOT", "OR", "THEN", "WHEN"),
)
"""Words that may precede a bracket but are no function."""
_SERVER_PREFIXES: Final = (
    *("authenticated", "catboostevaluate", "current", "default", "dict", "enabled", "file", "get"),
    *("initial", "joinget", "query", "server", "shard", "zookeeper"),
)
"""Prefixes of functions that describe a server or read its data."""
_SERVER_FUNCTIONS: Final = (
    *("buildid", "connection_id", "connectionid", "database", "displayname", "fqdn"),
    *("fullhostname", "generateserialid", "hascolumnintable", "hostname", "revision", "schema"),
    *("showcertificate", "tcpport", "uptime", "user", "version"),
)
_ROW_FUNCTIONS: Final = (
    *("defaultvalueofargumenttype", "defaultvalueoftypename", "getsizeofenumtype", "getsubcolumn"),
    *("querystring", "querystringandfragment"),
)
"""Functions with these prefixes that nevertheless use only their row."""
_NOW: Final = frozenset(("now", "now64", "nowinblock", "nowinblock64"))
_OF_TIMES: Final = ("date", "time", "today", "yesterday")
"""Parts of the names of all other functions that make, read or show a time in some zone."""
_DATE: Final = re.compile(r"\bDate(?:32)?\b")
_TIME: Final = re.compile(r"\bDateTime(?:32|64)?\b")
_WITHOUT_ZONE: Final = re.compile(r"\bDateTime(?:32|64)?\b(?!\([^)]*')")
_INFERRED: Final = re.compile(r"\b(?:JSON|Object|Dynamic|Variant)\b")
"""Types that may take a text for a time."""
_MOMENT: Final = 5
"""The digits of the least number that ClickHouse converts to a Date as seconds."""


def definitions(
    columns: tuple[Column, ...], lacked: Collection[str], texts: Iterable[str] = ()
) -> tuple[Column, ...]:
    """Return the columns whose definitions decide the values of lacked ones, in declared order.

    These are the lacked columns, and the columns that their expressions use and the part does not
    store: other lacked columns, ALIAS and EPHEMERAL ones. The name of a lambda's argument counts as
    the column of that name, which may find too many columns but never too few.

    Args:
        columns: of the table, in declared order.
        lacked: names of stored columns.
        texts: other expressions that use columns.
    """
    absent = [c for c in columns if c.name in lacked or not c.stored]
    found: set[str] = set()
    referenced = [name for text in texts for name in _names(text)]
    waiting = [
        c for c in absent if c.name in lacked or any(_is_of(name, c.name) for name in referenced)
    ]
    while waiting:
        column = waiting.pop()
        if column.name in found:
            continue
        found.add(column.name)
        names = _names(column.default_expression)
        waiting += [c for c in absent if any(_is_of(name, c.name) for name in names)]
    return tuple(c for c in columns if c.name in found)


def computed_text(columns: tuple[Column, ...], lacked: Collection[str]) -> str:
    """Return the definitions of a part's lacked columns as one text.

    It is '' if all of them are NULL, as lake readers return for a column that a file does not have.
    A table that computes other values has another text.
    """
    if all(is_null(c) for c in columns if c.name in lacked):
        return ""
    return json.dumps(
        [
            (c.name, c.type_text, c.default_kind, c.default_expression)
            for c in definitions(columns, lacked)
        ]
    )


def is_null(column: Column) -> bool:
    """Whether every value of the column is NULL in a part that lacks it."""
    of = column.type.of if isinstance(column.type, LowCardinality) else column.type
    nothing = column.default_expression.upper() in ("", "NULL")
    return isinstance(of, Nullable) and nothing


def is_constant(expression: str) -> bool:
    """Whether an expression has only constants, so that its value is the same everywhere."""
    names = {one.upper() for one in _names(expression)}
    return bool(expression) and names <= {"TRUE", "FALSE", "NULL"}


def shown_definitions(columns: tuple[Column, ...], lacked: Collection[str]) -> str:
    """Return the definitions of lacked columns that are not NULL, for a message."""
    return ", ".join(
        f"{c.name} ({c.default_kind or 'DEFAULT'} {c.default_expression})"
        if c.default_expression
        else f"{c.name} (the default value of {c.type_text})"
        for c in columns
        if c.name in lacked and not is_null(c)
    )


def columns_of_parts(
    columns: tuple[Column, ...], lacked: Collection[str], texts: Iterable[str] = ()
) -> tuple[Column, ...]:
    """Return the columns of a table over parts that lack some: the stored ones, as in the parts.

    A default is kept only if a part needs it. An ALIAS or EPHEMERAL column is kept only if such a
    default, or one of `texts`, uses it. The expressions of other columns may use functions or
    tables that exist only at the source, or no longer, and one ALIAS that cannot be computed makes
    all columns unreadable.
    """
    needed = {c.name for c in definitions(columns, lacked, texts)}
    return tuple(
        c if c.name in needed else replace(c, default_kind="", default_expression="")
        for c in columns
        if c.stored or c.name in needed
    )


def column_list(columns: tuple[Column, ...]) -> str:
    """Return the column list of CREATE TABLE for a table with these columns."""
    return ", ".join(
        f"{quote_identifier(column.name)} {column.type_text}"
        + (f" {column.default_kind} {column.default_expression}" if column.default_kind else "")
        for column in columns
    )


def external_reference(expression: str, known: Collection[str]) -> str:
    """Return the first function or table that only the table's own ClickHouse has, '' for none.

    Args:
        expression: of a column.
        known: the functions of every ClickHouse of its version, in lower case.
    """
    for name in called_functions(expression):
        small = name.lower()
        of_server = small in _SERVER_FUNCTIONS or small.startswith(_SERVER_PREFIXES)
        if small not in known or (of_server and small not in _ROW_FUNCTIONS):
            return f"the function {name}"
    tokens = tuple(scan(expression))
    for one, after, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if one.is_word("IN") and after.kind in _NAMES and not third.is_symbol("("):
            return f"the table {after.value}"
    return ""


def depends_on_zone(columns: tuple[Column, ...], column: Column) -> bool:
    """Whether a column's default may have another value on a server with another time zone.

    It may be true of a default that has not, but is never false of one that has.

    Args:
        columns: of the table.
        column: the column with the default.
    """
    expression, own = column.default_expression, column.type_text
    tokens = [token for token in scan(expression) if token.kind is not TokenKind.END]
    called = {name.lower() for name in called_functions(expression)}
    names = _names(expression)
    used = [c.type_text for c in columns if any(_is_of(name, c.name) for name in names)]
    same = len(tokens) == 1 and used == [own]
    if same or (_is_moment(tokens) and _TIME.search(own)):
        return False
    makes_times = any(part in name for name in called for part in _OF_TIMES)
    if makes_times or called & _NOW or _TIME.search(expression) or _DATE.search(expression):
        return True
    if any(_WITHOUT_ZONE.search(of) or _INFERRED.search(of) for of in used):
        return True
    given = "".join(token.value for token in tokens if token.kind is TokenKind.STRING)
    numbers = [token.value for token in tokens if token.kind is TokenKind.NUMBER]
    computed = bool(called or used)
    if _WITHOUT_ZONE.search(own):
        return computed or bool(given)
    if _INFERRED.search(own):
        return computed or any(map(str.isdigit, given))
    # A great number is a moment, not a day.
    is_date = _DATE.search(own) is not None
    return is_date and (computed or any(len(number) >= _MOMENT for number in numbers))


def _is_moment(tokens: Sequence[Token]) -> bool:
    """Whether an expression is now() or now64(precision), the same moment in every time zone."""
    first, *rest = [token.value.lower() for token in tokens] or [""]
    return first in _NOW and all(one in "()" or one.isdecimal() for one in rest)


def called_functions(expression: str) -> tuple[str, ...]:
    """Return the functions that an expression calls, as written."""
    tokens = tuple(scan(expression))
    return tuple(
        dict.fromkeys(
            one.value
            for one, following in itertools.pairwise(tokens)
            if one.kind in _NAMES
            and following.is_symbol("(")
            and not (one.kind is TokenKind.WORD and one.is_word(*_OPERATORS))
        )
    )


def _names(expression: str) -> frozenset[str]:
    return frozenset(t.value for t in scan(expression) if t.kind in _NAMES)


def _is_of(name: str, column: str) -> bool:
    """Whether a name in an expression may mean a column, its member, or its parent."""
    return name == column or name.startswith(f"{column}.") or column.startswith(f"{name}.")
