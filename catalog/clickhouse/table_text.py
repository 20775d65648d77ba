"""The list between the parentheses of a CREATE TABLE statement as ClickHouse prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["definitions", "ttl_columns"]

_QUOTES: Final = "'`\""
_COLUMN: Final = re.compile(r"`(?P<name>(?:[^`\\]|\\.)*)`\s+(?P<rest>.*)\Z", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}
_TTL: Final = re.compile(r"\bTTL\b")


def definitions(create_query: str) -> tuple[str, ...]:
    """Return the definitions of columns, indices, projections and constraints, each as its text.

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
    """Return the columns whose definition may carry a TTL.

    A column that only reads another one called TTL is among them; ClickHouse itself knows better.
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
    """Cut SQL into quoted texts (whole) and single characters."""
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
