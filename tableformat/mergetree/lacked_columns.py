"""Columns that a part lacks: from which definitions ClickHouse computes their values when it reads.

A column that was added, or cleared, after a part was written is in none of its files. Its values
are those of its expression, or of its type, as the table says it now: they change with the table,
and nothing of the part does. So what decides them belongs to the content of the part. An expression
takes other columns by their names; those that the part has are in its files, of the others the
definitions count, too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from tableformat.mergetree.sql_tokens import TokenKind, scan
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import LowCardinality, Nullable
from tableformat.names import quote_identifier

__all__ = [
    "called_functions",
    "column_list",
    "columns_of_parts",
    "computed_text",
    "definitions",
    "is_constant",
    "is_null",
    "shown_definitions",
    "taken_from_elsewhere",
]

_NAMES: Final = (TokenKind.WORD, TokenKind.QUOTED)
_OPERATORS: Final = (
    *("AND", "AS", "BETWEEN", "CASE", "CAST", "DIV", "ELSE", "ILIKE", "IN", "INTERVAL", "IS"),
    *("LIKE", "MOD", "NOT", "OR", "THEN", "WHEN"),
)
"""Words that a bracket may follow, and that call no function by their name."""
_ELSEWHERE: Final = (
    *("authenticated", "catboostevaluate", "current", "default", "dict", "enabled", "file", "get"),
    *("initial", "joinget", "query", "server", "shard", "zookeeper"),
)
"""How the names of functions begin that tell of a server, or read what it keeps."""
_EXACTLY: Final = (
    *("buildid", "connection_id", "connectionid", "database", "displayname", "fqdn"),
    *("fullhostname", "generateserialid", "hascolumnintable", "hostname", "revision", "schema"),
    *("showcertificate", "tcpport", "uptime", "user", "version"),
)
_OF_THE_ROW: Final = (
    *("defaultvalueofargumenttype", "defaultvalueoftypename", "getsizeofenumtype", "getsubcolumn"),
    *("querystring", "querystringandfragment"),
)
"""Functions of names that begin as those of the server do, and that take nothing but the row."""


def definitions(
    columns: tuple[Column, ...], lacked: Collection[str], texts: Iterable[str] = ()
) -> tuple[Column, ...]:
    """Return the columns whose definitions decide the values of lacked ones, in declared order.

    These are the lacked columns, and what their expressions take that is in no file of the part
    either: other lacked columns, ALIAS and EPHEMERAL ones. A name that a lambda gives to its
    argument counts as the column of that name, which is one too many and never one too few.

    Args:
        columns: of the table, in declared order.
        lacked: names of stored columns.
        texts: other expressions that take columns.
    """
    absent = [c for c in columns if c.name in lacked or not c.stored]
    found: set[str] = set()
    taken = [name for text in texts for name in _names(text)]
    waiting = [c for c in absent if c.name in lacked or any(_is_of(name, c.name) for name in taken)]
    while waiting:
        column = waiting.pop()
        if column.name in found:
            continue
        found.add(column.name)
        names = _names(column.default_expression)
        waiting += [c for c in absent if any(_is_of(name, c.name) for name in names)]
    return tuple(c for c in columns if c.name in found)


def computed_text(columns: tuple[Column, ...], lacked: Collection[str]) -> str:
    """Return what decides the values of the lacked columns of a part, as one text.

    It is '' when all of them are NULL, as a reader of the lake answers for a column that a file
    does not have. A table that computes other values has another text.
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
    """Whether an expression is made of values alone: it comes to the same wherever it is asked."""
    names = {one.upper() for one in _names(expression)}
    return bool(expression) and names <= {"TRUE", "FALSE", "NULL"}


def shown_definitions(columns: tuple[Column, ...], lacked: Collection[str]) -> str:
    """Return how lacked columns that are not NULL come to their values, for a message."""
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
    """Return the columns of a table over parts that lack some: the stored ones, as the parts are.

    An expression stands only where one of the parts needs it, and an ALIAS or EPHEMERAL column only
    where such an expression, or one of `texts`, takes it: what computes the others may be gone, or
    nowhere but at the source, and an ALIAS that cannot be computed keeps all columns from being
    read.
    """
    needed = {c.name for c in definitions(columns, lacked, texts)}
    return tuple(
        c if c.name in needed else replace(c, default_kind="", default_expression="")
        for c in columns
        if c.stored or c.name in needed
    )


def column_list(columns: tuple[Column, ...]) -> str:
    """Return the text between the parentheses of CREATE TABLE for a table with these columns."""
    return ", ".join(
        f"{quote_identifier(column.name)} {column.type_text}"
        + (f" {column.default_kind} {column.default_expression}" if column.default_kind else "")
        for column in columns
    )


def taken_from_elsewhere(expression: str, known: Collection[str]) -> str:
    """Return what an expression takes that only the ClickHouse of its table has, '' for nothing.

    Args:
        expression: of a column.
        known: the functions of every ClickHouse of its version, in small letters.
    """
    for name in called_functions(expression):
        small = name.lower()
        of_server = small in _EXACTLY or small.startswith(_ELSEWHERE)
        if small not in known or (of_server and small not in _OF_THE_ROW):
            return f"the function {name}"
    tokens = tuple(scan(expression))
    for one, after, behind in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if one.is_word("IN") and after.kind in _NAMES and not behind.is_symbol("("):
            return f"the table {after.value}"
    return ""


def called_functions(expression: str) -> tuple[str, ...]:
    """Return the names that are called in an expression, as it writes them."""
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
    """Whether a name of an expression may mean a column, a part of it, or what it is a part of."""
    return name == column or name.startswith(f"{column}.") or column.startswith(f"{name}.")
