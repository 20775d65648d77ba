"""Parses system.tables.engine_full to `Engine`, and renders the engine of a staging table.

engine_full is `Name(arguments)`, then PARTITION BY, PRIMARY KEY, ORDER BY, SAMPLE BY, TTL and
SETTINGS, in this order. Column names have no quotes in it even if they are words like TTL, so a
clause begins only outside brackets and after the end of an expression. A table of the old syntax
has no clauses: `(date, [sampling,] key, granularity, ...)` follow the arguments of a replica, and
it is partitioned by toYYYYMM(date).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError
from tableformat.mergetree.sql_tokens import Token, TokenKind, TokenReader
from tableformat.mergetree.table import Engine
from tableformat.mergetree.table_settings import staging_settings

__all__ = ["old_staging_engine", "parse_engine", "staging_engine", "stored_engine"]

# In ClickHouse's order.
_CLAUSES: Final = (
    ("PARTITION", "BY"),
    ("PRIMARY", "KEY"),
    ("ORDER", "BY"),
    ("UNIQUE", "KEY"),
    ("SAMPLE", "BY"),
    ("TTL",),
    ("SETTINGS",),
)
# An operand follows these words, so the next word is a column and no clause.
_INFIX: Final = frozenset(
    ("AND", "OR", "IN", "LIKE", "ILIKE", "IS", "NOT", "BETWEEN", "DIV", "MOD", "WHERE", "SET", "BY")
)
_HIDDEN: Final = "[HIDDEN]"
# The path in Keeper and the replica's name.
_REPLICA_ARGUMENTS: Final = 2
# A date, a key and a granularity; an expression for sampling may follow the date.
_OLD_ARGUMENTS: Final = 3


def parse_engine(engine_full: str) -> Engine:
    """Parse the engine of a table.

    Args:
        engine_full: as in system.tables, without the escapes of the output format.

    Raises:
        UsageError: a quote or bracket is open, or the settings are not pairs.
        UnsupportedError: the table has a UNIQUE KEY.
    """
    reader = TokenReader(
        engine_full, "engine", advice="Pass engine_full as system.tables shows it."
    )
    name = reader.expect_kind(TokenKind.WORD, "the name of an engine").text
    arguments = ""
    if reader.accept("("):
        start = reader.peek().start
        arguments = engine_full[start : reader.skip_group().start].strip()
    clauses: dict[str, str] = {}
    settings: tuple[tuple[str, str], ...] = ()
    last = -1
    if reader.peek().kind is not TokenKind.END and _clause(reader, last) is None:
        raise reader.syntax_error("a clause such as ORDER BY")
    while (found := _clause(reader, last)) is not None:
        last = found
        key = " ".join(_CLAUSES[found])
        for _ in _CLAUSES[found]:
            reader.take()
        if key == "UNIQUE KEY":
            message = (
                f"Cannot read the engine {name}: tables with a UNIQUE KEY are not supported, "
                "because it is not known whether a copy of their parts keeps the rows they hide. "
                "Copy the rows into a table without it."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
        if key == "SETTINGS":
            settings = _settings(reader)
        else:
            clauses[key] = _body(reader, last)
    if not clauses:
        return _of_old_syntax(name, arguments) or Engine(name, arguments, settings=settings)
    return Engine(
        name,
        arguments,
        clauses.get("PARTITION BY", ""),
        clauses.get("PRIMARY KEY", ""),
        clauses.get("ORDER BY", ""),
        clauses.get("SAMPLE BY", ""),
        clauses.get("TTL", ""),
        settings,
    )


def stored_engine(engine: Engine) -> Engine:
    """Return an engine whose text a lake table stores, without the keys in its arguments.

    Of a table of the old syntax, `ReplacingMergeTree(d, k, 8192, version)`, the keys are stored as
    clauses of their own. Its arguments become those of the new syntax, `version`, and
    `old_arguments` has the others. Any other engine stays as it is.

    Raises:
        UsageError: a quote or bracket is open in the arguments.
    """
    found = _old_arguments(engine.name, engine.arguments)
    if found is None:
        return engine
    held, others = found
    return replace(engine, arguments=", ".join(others), old_arguments=", ".join(held))


def _of_old_syntax(name: str, arguments: str) -> Engine | None:
    """Return the engine of a table of the old syntax; None for other arguments."""
    found = _old_arguments(name, arguments)
    if found is None:
        return None
    (date, *sampling, key, _), _ = found
    return Engine(
        name,
        arguments,
        partition_by=f"toYYYYMM({date})",
        order_by=key,
        sample_by="".join(sampling),
        old_arguments=", ".join(found[0]),
    )


def _old_arguments(name: str, arguments: str) -> tuple[list[str], list[str]] | None:
    """Return the arguments of the old syntax, and all others; None if there are none of it."""
    given = _split(arguments)
    replica = _REPLICA_ARGUMENTS if name.startswith("Replicated") else 0
    granularity = next((at for at, one in enumerate(given[replica:]) if one.isdecimal()), -1)
    held = given[replica : replica + granularity + 1]
    if len(held) not in (_OLD_ARGUMENTS, _OLD_ARGUMENTS + 1):
        return None
    return held, given[:replica] + given[replica + granularity + 1 :]


def _split(arguments: str) -> list[str]:
    """Return the arguments of an engine, each as its text."""
    reader = TokenReader(arguments, "engine", advice="Pass engine_full as system.tables shows it.")
    found, start = [], 0
    while reader.peek().kind is not TokenKind.END:
        token = reader.take()
        if token.is_symbol("(", "[", "{"):
            reader.skip_group()
        elif token.is_symbol(","):
            found.append(arguments[start : token.start].strip())
            start = token.stop
    return [*found, arguments[start:].strip()]


def _clause(reader: TokenReader, last: int) -> int | None:
    """Return the index of the clause that begins here, if it is after the `last` one."""
    for index, words in enumerate(_CLAUSES[last + 1 :], last + 1):
        tokens = (reader.peek(i) for i in range(len(words)))
        # The keywords are always in capitals; a column `ttl` is not one.
        if all(
            t.kind is TokenKind.WORD and t.text == w for t, w in zip(tokens, words, strict=True)
        ):
            return index
    return None


def _body(reader: TokenReader, last: int) -> str:
    """Return the text of a clause, up to the next one."""
    start = stop = reader.peek().start
    ended = False
    while reader.peek().kind is not TokenKind.END and not (
        ended and _clause(reader, last) is not None
    ):
        token = reader.take()
        if token.is_symbol("(", "[", "{"):
            token = reader.skip_group()
        ended = _ends_operand(token, after_operand=ended)
        stop = token.stop
    if stop == start:
        raise reader.syntax_error("an expression")
    return reader.text[start:stop]


def _ends_operand(token: Token, *, after_operand: bool) -> bool:
    """Whether an expression may end with this token."""
    if token.kind is TokenKind.SYMBOL:
        return token.text in (")", "]", "}")
    if token.kind is TokenKind.WORD:
        return token.text not in _INFIX if after_operand else token.text != "NOT"
    return True


def _settings(reader: TokenReader) -> tuple[tuple[str, str], ...]:
    """Parse `name = value, …` to the end; each value is its SQL text."""
    found: list[tuple[str, str]] = []
    while True:
        name = reader.expect_kind(TokenKind.WORD, "the name of a setting").text
        reader.expect("=")
        start = stop = reader.peek().start
        while not reader.peek().is_symbol(",") and reader.peek().kind is not TokenKind.END:
            token = reader.take()
            stop = (reader.skip_group() if token.is_symbol("(", "[", "{") else token).stop
        if stop == start:
            raise reader.syntax_error(f"the value of {name}")
        found.append((name, reader.text[start:stop]))
        if not reader.accept(","):
            return tuple(found)


def staging_engine(engine: Engine, extra_settings: tuple[tuple[str, str], ...]) -> str:
    """Return the ENGINE clause of a staging table into which parts of a table can be cloned.

    It is a plain MergeTree with the same keys: no replication, no collapsing of rows, no TTL.
    `table_settings.py` selects the source's settings.

    Args:
        engine: the source's.
        extra_settings: names and values (SQL text) that replace the source's, to stop merges.

    Raises:
        UnsupportedError: the table has the old syntax, or its disk definition has secrets that
            ClickHouse does not show.
    """
    if engine.old_arguments or not engine.order_by:
        message = (
            f"Cannot create a staging table for {engine.name}({engine.arguments}): it has no ORDER "
            "BY, as tables of the old syntax have none, and their parts cannot be opened as files. "
            "Export it from a server, or copy the rows into a table with PARTITION BY and ORDER BY."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    replaced = {name for name, _ in extra_settings}
    kept = [pair for pair in staging_settings(engine.settings) if pair[0] not in replaced]
    for name, value in kept:
        if _HIDDEN in value:
            message = (
                f"Cannot create a staging table: ClickHouse hides a secret in the setting {name} = "
                f"{value}. Define the disk in the server's configuration and name it by "
                "storage_policy."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    clauses = (
        ("PARTITION BY", engine.partition_by),
        ("PRIMARY KEY", engine.primary_key),
        ("ORDER BY", engine.order_by),
        ("SAMPLE BY", engine.sample_by),
        ("SETTINGS", ", ".join(f"{name} = {value}" for name, value in (*kept, *extra_settings))),
    )
    return " ".join(("ENGINE = MergeTree", *(f"{key} {text}" for key, text in clauses if text)))


def old_staging_engine(engine: Engine, allowed: tuple[tuple[str, str], ...]) -> str:
    """Return the ENGINE clause of a staging table for a table of the old syntax.

    Such a table has no settings, so the clause cannot stop merges.

    Args:
        engine: the source's, with `old_arguments`.
        allowed: names and values of query settings that allow the syntax.
    """
    settings = ", ".join(f"{name} = {value}" for name, value in allowed)
    return f"ENGINE = MergeTree({engine.old_arguments}){f' SETTINGS {settings}' * bool(settings)}"
