"""Reads what may stand at the end of a statement: INTO OUTFILE, FORMAT, SETTINGS, and `;`.

The orders are ClickHouse's: INTO OUTFILE first, then FORMAT and SETTINGS in either order.
"""

from __future__ import annotations

from typing import Final

from spark_ext.sql.statement_reader import StatementReader, shown
from spark_ext.sql.statements import Ending, Outfile, Setting, SettingValue
from tableformat.errors import UnsupportedError
from tableformat.mergetree.expression import Literal
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.tokens import TokenKind

__all__ = ["read_end", "read_ending", "read_settings"]

_VALUES: Final = ("TRUE", "FALSE", "INF", "INFINITY", "NAN")
_LONGEST_LEVEL: Final = 9
_VALUE: Final = "a number, a text in single quotes, true, false or DEFAULT"


def read_ending(reader: StatementReader, *wanted: str) -> Ending:
    """Read everything after the commands of a statement, to the end of the text.

    Args:
        reader: the reader.
        wanted: what could have stood there instead, for messages.

    Raises:
        UsageError: it is malformed, or comes in another order.
        UnsupportedError: it has two contradicting words.
    """
    outfile = _outfile(reader) if reader.accept_words("INTO", "OUTFILE") else None
    settings = read_settings(reader)
    form = reader.identifier("the name of a format") if reader.accept_word("FORMAT") else None
    more = bool(settings) and form is None
    if form is not None and not settings:
        settings = read_settings(reader)
        more = bool(settings)
    words = [] if outfile or form or settings else [*wanted, "INTO OUTFILE"]
    words += ["FORMAT"] if form is None else []
    words += [] if settings else ["SETTINGS"]
    read_end(reader, *(["','", *words] if more else words))
    return Ending(outfile, form, settings)


def read_end(reader: StatementReader, *wanted: str) -> None:
    """Check that nothing is left but semicolons.

    Args:
        reader: the reader.
        wanted: what else could have followed, for messages.

    Raises:
        UsageError: something is left.
    """
    ended = reader.accept(";")
    while reader.accept(";"):
        pass
    token = reader.peek()
    if token.kind is TokenKind.END:
        return
    if ended:
        why = "begins a second statement"
        raise reader.wrong(token, shown(token), why, "Give one statement at a time.")
    raise reader.complaint(f"{', '.join(wanted)} or the end" if wanted else "the end")


def read_settings(reader: StatementReader) -> tuple[Setting, ...]:
    """Read SETTINGS and what follows, if it stands next.

    Raises:
        UsageError: a name or a value is missing or malformed.
    """
    if not reader.accept_word("SETTINGS"):
        return ()
    found = [_setting(reader)]
    while reader.accept(","):
        found.append(_setting(reader))
    return tuple(found)


def _setting(reader: StatementReader) -> Setting:
    first = reader.peek()
    name = ".".join(reader.name("the name of a setting").parts)
    if reader.peek().is_symbol("=", "=="):
        reader.take()
        return Setting(name, _value(reader))
    if reader.peek().is_word("PART", "PARTITION"):
        why = "begins another command"
        advice = "SETTINGS stands once, at the end of the statement, and holds for all commands."
        raise reader.wrong(first, shown(first), why, advice)
    return Setting(name, value=True)


def _value(reader: StatementReader) -> SettingValue:
    if reader.accept_word("DEFAULT"):
        return None
    signed = reader.peek().is_symbol("-", "+")
    token = reader.peek(int(signed))
    is_number = token.kind is TokenKind.NUMBER or token.is_word(*_VALUES)
    if not is_number and (signed or token.kind is not TokenKind.STRING):
        raise reader.complaint(_VALUE)
    after = reader.peek(1 + int(signed))
    if after.kind is TokenKind.SYMBOL and not after.is_symbol(",", ";"):
        raise reader.complaint("',', FORMAT or the end", token=after)
    read = ExpressionParser(reader).one()
    if not isinstance(read, Literal):
        raise reader.complaint(_VALUE, token=token)
    return read.value


def _outfile(reader: StatementReader) -> Outfile:
    path = reader.string("the path of a file in single quotes")
    truncate = append = False
    while (token := reader.peek()).is_word("TRUNCATE", "APPEND"):
        reader.take()
        if truncate or append:
            why = "is a second word for what happens to a file that is there"
            advice = "Give one of TRUNCATE and APPEND."
            raise reader.wrong(token, shown(token), why, advice, kind=UnsupportedError)
        truncate, append = token.is_word("TRUNCATE"), token.is_word("APPEND")
    stdout = reader.accept_words("AND", "STDOUT")
    compression, level = None, None
    if reader.accept_word("COMPRESSION"):
        compression = reader.string("the name of a compression in single quotes")
        level = _level(reader) if reader.accept_word("LEVEL") else None
    return Outfile(path, truncate, append, stdout, compression, level)


def _level(reader: StatementReader) -> int:
    sign = -1 if reader.accept("-") else 1
    token = reader.expect_kind(TokenKind.NUMBER, "a level, a whole number,")
    if not (token.text.isdecimal() and len(token.text) <= _LONGEST_LEVEL):
        raise reader.complaint("a level, a whole number,", token=token)
    return sign * int(token.text)
