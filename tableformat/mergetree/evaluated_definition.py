"""The definition of a table as a ClickHouse of our own gets it: read, checked, written out again.

What a lake table remembers of its source are properties, which anybody may write who may alter the
lake table. None of their text becomes SQL as it stands: each is read by our own parsers, may call
no function but those of `row_functions.py`, and what is run is written from what was read. Only
what a statement needs is looked at, so that an expression that nothing asks for is in nobody's way.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tableformat.errors import RefusedError, UsageError
from tableformat.mergetree.expression import Call, Expression
from tableformat.mergetree.expression_text import (
    parse_expression,
    parse_sorting_key,
    render_expression,
)
from tableformat.mergetree.row_functions import refuse_outside
from tableformat.mergetree.sql_tokens import Token, TokenKind, scan
from tableformat.mergetree.table import Column, Engine
from tableformat.mergetree.type_text import render_type
from tableformat.mergetree.types import DataType, DateTime, DateTime64, contains

__all__ = ["evaluated_columns", "evaluated_engine", "evaluated_key", "evaluated_zone"]

_KINDS: Final = frozenset(("", "DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL"))
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*\Z")
# What ClickHouse's parser of types reads as ours does; comments and other quotes are not among it.
_OF_TYPES: Final = frozenset("(),=.+-")
_ADVICE: Final = (
    "Run it in ClickHouse, and export the partition again; or correct what the lake table remembers"
    " in its properties mergeberg.source.*."
)


def evaluated_columns(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return columns with types and defaults that may be made SQL.

    Raises:
        RefusedError: a default calls what reads more than its row, or cannot be read.
    """
    return tuple(map(_column, columns))


def evaluated_key(text: str, what: str = "partition key") -> str:
    """Return the text of PARTITION BY as it may be made SQL, '' for none.

    Raises:
        RefusedError: as `evaluated_columns`.
    """
    return render_expression(_read(text, what)) if text.strip() else ""


def evaluated_engine(engine: Engine) -> Engine:
    """Return the keys and arguments of an engine as they may be made SQL; no other clause.

    Raises:
        RefusedError: as `evaluated_columns`.
    """
    given = _read(f"tuple({engine.arguments})", "arguments of the engine")
    arguments = given.arguments if isinstance(given, Call) else ()
    return replace(
        engine,
        arguments=", ".join(map(render_expression, arguments)),
        partition_by=evaluated_key(engine.partition_by),
        primary_key=_sorting_key(engine.primary_key, "primary key"),
        order_by=_sorting_key(engine.order_by, "sorting key"),
        sample_by="",
        ttl="",
        settings=(),
    )


def evaluated_zone(zone: str) -> str:
    """Return the name of a time zone, which is no path.

    Raises:
        RefusedError: it may be the name of a file.
    """
    if zone and not _ZONE.match(zone):
        message = (
            f"Cannot compute with the time zone {zone!r}: it is no name of a time zone. Correct "
            "mergeberg.source.server-zone or the type of the column in mergeberg.source.columns, "
            "properties of the lake table."
        )
        raise RefusedError(message)
    return zone


def _column(column: Column) -> Column:
    kind, text = column.default_kind, column.default_expression
    if kind not in _KINDS:
        message = (
            f"Cannot compute the column {column.name}: {kind!r} is no kind of default. {_ADVICE}"
        )
        raise RefusedError(message)
    needed = bool(kind and text.strip())
    default = render_expression(_read(text, f"{kind} of column {column.name}")) if needed else ""
    return replace(column, type_text=_type(column), default_expression=default)


def _type(column: Column) -> str:
    """Return the text of a column's type, in which nothing but a type can stand."""
    text, at = render_type(column.type), 0
    for token in scan(text):
        if not _is_plain(token) or text[at : token.start].strip(" "):
            message = f"Cannot make the column {column.name}: {text} is no type. {_ADVICE}"
            raise RefusedError(message)
        at = token.stop
    contains(column.type, _has_odd_zone)
    return text


def _is_plain(token: Token) -> bool:
    """Whether ClickHouse's lexer makes the same of a token: comments and rare quotes it may not."""
    match token.kind:
        case TokenKind.WORD | TokenKind.NUMBER | TokenKind.END:
            return True
        case TokenKind.STRING:
            return token.text.startswith("'")
        case TokenKind.QUOTED:
            return token.text.startswith(("`", '"'))
        case TokenKind.SYMBOL:
            return token.text in _OF_TYPES
        case _:
            return False


def _has_odd_zone(of: DataType) -> bool:
    """Look at the zone of a type of times.

    Raises:
        RefusedError: it is no name of one.
    """
    if isinstance(of, DateTime | DateTime64):
        evaluated_zone(of.zone or "")
    return False


def _sorting_key(text: str, what: str) -> str:
    """Return the text of ORDER BY or PRIMARY KEY as it may be made SQL, '' for none."""
    if not text.strip():
        return ""
    try:
        keys = parse_sorting_key(text)
    except UsageError as error:
        raise _unread(error) from error
    for key in keys:
        refuse_outside(f"compute the {what}, {text}", key.expression, _ADVICE)
    elements = ", ".join(
        f"{render_expression(key.expression)}{' DESC' if key.descending else ''}" for key in keys
    )
    # One key that is a tuple would be taken apart in brackets alone.
    return f"({elements})" if any(key.descending for key in keys) else f"tuple({elements})"


def _read(text: str, what: str) -> Expression:
    """Read an expression that may be evaluated.

    Raises:
        RefusedError: it calls what reads more than its row, or cannot be read.
    """
    try:
        found = parse_expression(text, what=what)
    except UsageError as error:
        raise _unread(error) from error
    refuse_outside(f"compute the {what}, {text}", found, _ADVICE)
    return found


def _unread(error: UsageError) -> RefusedError:
    return RefusedError(f"{error.message} {_ADVICE}", code=error.code)
