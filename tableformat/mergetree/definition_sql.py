"""Checks the stored definition of a table and renders it as SQL for our own ClickHouse.

The properties of a lake table can be changed by any user who may alter it, so their text never
becomes SQL directly. Our parsers read each definition, `row_functions.py` limits the functions,
and the SQL is rendered from the parsed tree. Only the definitions that a statement needs are
checked, so an unused expression never causes an error.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tableformat.errors import RefusedError, UsageError
from tableformat.mergetree.expression import Call, Expression, render_expression
from tableformat.mergetree.expression_parser import parse_expression, parse_sorting_key
from tableformat.mergetree.row_functions import refuse_outside
from tableformat.mergetree.sql_tokens import Token, TokenKind, scan
from tableformat.mergetree.table import Column, Engine
from tableformat.mergetree.types import DataType, DateTime, DateTime64, contains, render_type

__all__ = ["evaluated_columns", "evaluated_engine", "evaluated_key", "evaluated_zone"]

_KINDS: Final = frozenset(("", "DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL"))
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*\Z")
# Symbols that ClickHouse's type parser reads as ours does, unlike comments and other quotes.
_TYPE_SYMBOLS: Final = frozenset("(),=.+-")
_ADVICE: Final = (
    "Run it in ClickHouse, and export the partition again; or correct the lake table's properties "
    "mergeberg.source.*."
)


def evaluated_columns(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return columns whose types and defaults are safe as SQL.

    Raises:
        RefusedError: a default calls a function that reads more than its row, or cannot be parsed.
    """
    return tuple(map(_column, columns))


def evaluated_key(text: str, what: str = "partition key") -> str:
    """Return PARTITION BY as safe SQL, '' for none.

    Raises:
        RefusedError: as `evaluated_columns`.
    """
    return render_expression(_read(text, what)) if text.strip() else ""


def evaluated_engine(engine: Engine) -> Engine:
    """Return an engine with keys and arguments that are safe as SQL, without its other clauses.

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
    """Check that a time zone is a name and not a path.

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
    """Return the text of a column's type, checked token by token."""
    text, at = render_type(column.type), 0
    for token in scan(text):
        if not _is_plain(token) or text[at : token.start].strip(" "):
            message = f"Cannot create the column {column.name}: {text} is no type. {_ADVICE}"
            raise RefusedError(message)
        at = token.stop
    contains(column.type, _has_odd_zone)
    return text


def _is_plain(token: Token) -> bool:
    """Whether ClickHouse's lexer reads a token as ours does; not comments or rare quotes."""
    match token.kind:
        case TokenKind.WORD | TokenKind.NUMBER | TokenKind.END:
            return True
        case TokenKind.STRING:
            return token.text.startswith("'")
        case TokenKind.QUOTED:
            return token.text.startswith(("`", '"'))
        case TokenKind.SYMBOL:
            return token.text in _TYPE_SYMBOLS
        case _:
            return False


def _has_odd_zone(of: DataType) -> bool:
    """Check the time zone of a type.

    Raises:
        RefusedError: it is no name of a zone.
    """
    if isinstance(of, DateTime | DateTime64):
        evaluated_zone(of.zone or "")
    return False


def _sorting_key(text: str, what: str) -> str:
    """Return ORDER BY or PRIMARY KEY as safe SQL, '' for none."""
    if not text.strip():
        return ""
    try:
        keys = parse_sorting_key(text)
    except UsageError as error:
        raise _unreadable(error) from error
    for key in keys:
        refuse_outside(f"compute the {what}, {text}", key.expression, _ADVICE)
    elements = ", ".join(
        f"{render_expression(key.expression)}{' DESC' if key.descending else ''}" for key in keys
    )
    # In plain brackets a single key that is a tuple would become several keys.
    return f"({elements})" if any(key.descending for key in keys) else f"tuple({elements})"


def _read(text: str, what: str) -> Expression:
    """Parse an expression, and check that it may be evaluated.

    Raises:
        RefusedError: it calls a function that reads more than its row, or cannot be parsed.
    """
    try:
        found = parse_expression(text, what=what)
    except UsageError as error:
        raise _unreadable(error) from error
    refuse_outside(f"compute the {what}, {text}", found, _ADVICE)
    return found


def _unreadable(error: UsageError) -> RefusedError:
    return RefusedError(f"{error.message} {_ADVICE}", code=error.code)
