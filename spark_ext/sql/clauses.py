"""Parses and renders the clauses that several statements share.

A clause is a target (PARTITION, PART), a condition, assignments, DEDUPLICATE, or the ending of a
statement: INTO OUTFILE first, then FORMAT and SETTINGS in either order, then `;`.

ALL is accepted where ClickHouse executes it, and after EXPORT. In the other commands ClickHouse
parses ALL and refuses to run it (P-71), so it is refused here with the same message and code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from spark_ext.sql.statement_reader import DottedName, StatementReader, shown
from tableformat.clickhouse_codes import SUPPORT_IS_DISABLED
from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import Expression, Literal, render_expression
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.partition_literal import (
    All,
    ById,
    ByValue,
    PartitionLiteral,
    read_part_literal,
    read_partition_literal,
    render_part_literal,
    render_partition_literal,
)
from tableformat.mergetree.sql_tokens import Token, TokenKind
from tableformat.names import PartName, quote_string

__all__ = [
    "TABLE",
    "Deduplicate",
    "Ending",
    "Outfile",
    "Setting",
    "SettingValue",
    "Target",
    "Written",
    "read_assignments",
    "read_backup",
    "read_deduplicate_by",
    "read_end",
    "read_ending",
    "read_in_partition",
    "read_only_partition",
    "read_partition",
    "read_settings",
    "read_target",
    "read_to_table",
    "read_where",
    "render_clause",
    "without_meaning",
]

TABLE: Final = "the name of a table"
"""The description of a table name in syntax errors."""
_TARGET: Final = "PARTITION or PART"


Target: TypeAlias = PartitionLiteral | PartName
"""The value after PARTITION or PART."""


SettingValue: TypeAlias = int | float | str | bool | None
"""The value of a setting; None for the word DEFAULT."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of SETTINGS; without a value it is true. Dots are part of the name."""

    name: str
    value: SettingValue


@dataclass(frozen=True, slots=True)
class Outfile:
    """INTO OUTFILE '…' [TRUNCATE|APPEND] [AND STDOUT] [COMPRESSION '…' [LEVEL n]]."""

    path: str
    truncate: bool = False
    append: bool = False
    stdout: bool = False
    compression: str | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a statement: INTO OUTFILE, FORMAT and SETTINGS, each optional."""

    outfile: Outfile | None = None
    format: str | None = None
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """DEDUPLICATE [BY …]: by columns, by all columns (`star`) except some, or by whole rows."""

    columns: tuple[str, ...] = ()
    star: bool = False
    without: tuple[str, ...] = ()


_PIECE: Final = re.compile(r"(?:\[([^\]{]*))?\{(\w+)\}\]?|(\S+)")


@dataclass(frozen=True, slots=True)
class Written:
    """A command that is rendered from `form`, a template of words and `{fields}`.

    A field in brackets is omitted with the word before it if it has no value.
    """

    form: ClassVar[str]

    def __str__(self) -> str:
        """Return the command as SQL, which parses to an equal value."""
        found: list[str] = []
        for before, name, word in _PIECE.findall(self.form):
            text = word or render_clause(getattr(self, name))
            found.append(f"{before}{text}" if text else "")
        return " ".join(piece for piece in found if piece)


Clause: TypeAlias = (
    Target | DottedName | str | bool | Expression | tuple[tuple[str, Expression], ...] | None
)
"""The value of a command's field; a bool is IF EXISTS."""


def render_clause(value: Clause) -> str:
    """Return a clause as SQL; '' for a clause without a value."""
    match value:
        case None | False:
            return ""
        case True:
            return "IF EXISTS"
        case All() | ById() | ByValue():
            return f"PARTITION {render_partition_literal(value)}"
        case PartName():
            return f"PART {render_part_literal(value)}"
        case DottedName():
            return str(value)
        case str():
            return quote_string(value)
        case tuple():
            each = (f"{DottedName((c,))} = {render_expression(v)}" for c, v in value)
            return ", ".join(each)
        case _:
            return render_expression(value)


def read_partition(reader: StatementReader, *, every: bool = False) -> PartitionLiteral:
    """Read the partition after PARTITION.

    Args:
        reader: the reader.
        every: whether ALL is allowed.

    Raises:
        UsageError: the next tokens are not a partition.
        UnsupportedError: it is ALL, which is not allowed here.
    """
    token = reader.peek()
    literal = read_partition_literal(reader)
    if isinstance(literal, All) and not every:
        why = "is not allowed here"
        advice = (
            "Only support DROP/DETACH/ATTACH PARTITION ALL currently, and EXPORT PARTITION ALL. "
            "Name one partition, and repeat the command for others."
        )
        error = reader.wrong(token, "'ALL'", why, advice)
        raise UnsupportedError(error.message, code=SUPPORT_IS_DISABLED)
    return literal


def read_in_partition(reader: StatementReader) -> PartitionLiteral | None:
    """Read IN PARTITION and a partition, if they come next.

    Raises:
        UsageError: as for `read_partition`.
        UnsupportedError: as for `read_partition`.
    """
    return read_partition(reader) if reader.accept_words("IN", "PARTITION") else None


def read_target(reader: StatementReader, *, every: bool = False) -> Target:
    """Read PART and a part, or PARTITION and a partition.

    Raises:
        UsageError: neither comes next, or the value is malformed.
        UnsupportedError: as for `read_partition`.
    """
    if reader.accept_word("PART"):
        return read_part_literal(reader)
    if reader.accept_word("PARTITION"):
        return read_partition(reader, every=every)
    raise reader.syntax_error(_TARGET)


def read_only_partition(reader: StatementReader, *, every: bool = False) -> PartitionLiteral:
    """Read PARTITION and a partition, which must come next.

    Raises:
        UsageError: as for `read_partition`, or PARTITION does not come next.
        UnsupportedError: as for `read_partition`.
    """
    reader.expect_word("PARTITION")
    return read_partition(reader, every=every)


def read_to_table(reader: StatementReader) -> DottedName:
    """Read TABLE and a name.

    Raises:
        UsageError: they do not come next.
        UnsupportedError: it is a table function.
    """
    reader.expect_word("TABLE")
    function = reader.peek()
    if function.is_word("FUNCTION") and reader.peek(2).is_symbol("("):
        advice = "Name a table, with its catalog and namespace: TO TABLE lake.analytics.events."
        raise without_meaning(reader, function, "is a table function, and no table", advice)
    return reader.name(TABLE)


def read_backup(reader: StatementReader) -> str:
    """Read WITH NAME and the name of a backup.

    Raises:
        UsageError: they do not come next, or the name is empty.
    """
    reader.expect_word("WITH")
    reader.expect_word("NAME")
    return reader.filled("the name of a backup in single quotes")


def read_where(reader: StatementReader) -> Expression:
    """Read WHERE and the condition, which must come next.

    Raises:
        UsageError: WHERE does not come next, or the condition is malformed.
    """
    reader.expect_word("WHERE")
    return ExpressionParser(reader).one()


def read_assignments(reader: StatementReader) -> tuple[tuple[str, Expression], ...]:
    """Read `column = value, …`.

    Raises:
        UsageError: an assignment is malformed.
    """
    found = [_assignment(reader)]
    while reader.accept(","):
        found.append(_assignment(reader))
    return tuple(found)


def _assignment(reader: StatementReader) -> tuple[str, Expression]:
    column = reader.identifier("the name of a column")
    if not reader.peek().is_symbol("=", "=="):
        raise reader.syntax_error("'='")
    reader.take()
    return column, ExpressionParser(reader).one()


def without_meaning(reader: StatementReader, token: Token, why: str, advice: str) -> UsageError:
    """Return the error for a token that ClickHouse accepts and mergeberg does not support."""
    return reader.wrong(token, shown(token), why, advice, kind=UnsupportedError)


def read_deduplicate_by(reader: StatementReader) -> Deduplicate:
    """Read the columns after DEDUPLICATE BY.

    Raises:
        UsageError: the next tokens are not a list of columns.
        UnsupportedError: columns are selected by a pattern.
    """
    if reader.accept("*"):
        return Deduplicate(star=True, without=_without(reader))
    columns = [_column(reader)]
    while reader.accept(","):
        columns.append(_column(reader))
    return Deduplicate(tuple(columns))


def _without(reader: StatementReader) -> tuple[str, ...]:
    if not reader.accept_word("EXCEPT"):
        return ()
    if not reader.accept("("):
        return (_column(reader),)
    columns = [_column(reader)]
    while reader.accept(","):
        columns.append(_column(reader))
    reader.expect(")")
    return tuple(columns)


def _column(reader: StatementReader) -> str:
    token = reader.peek()
    if token.is_symbol("*") or (token.is_word("COLUMNS") and reader.peek(1).is_symbol("(")):
        advice = "Name the columns, or write * EXCEPT (the others)."
        why = "chooses columns by a pattern"
        raise reader.wrong(token, shown(token), why, advice, kind=UnsupportedError)
    return reader.identifier("the name of a column")


_VALUES: Final = ("TRUE", "FALSE", "INF", "INFINITY", "NAN")
_LONGEST_LEVEL: Final = 9
_VALUE: Final = "a number, a text in single quotes, true, false or DEFAULT"


def read_ending(reader: StatementReader, *wanted: str) -> Ending:
    """Read INTO OUTFILE, FORMAT and SETTINGS, to the end of the text.

    Args:
        reader: the reader.
        wanted: other words that could have come here, for error messages.

    Raises:
        UsageError: a clause is malformed, or the order is wrong.
        UnsupportedError: INTO OUTFILE has both TRUNCATE and APPEND.
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
    """Check that only semicolons are left.

    Args:
        reader: the reader.
        wanted: words that could have come here, for error messages.

    Raises:
        UsageError: other tokens are left.
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
    raise reader.syntax_error(f"{', '.join(wanted)} or the end" if wanted else "the end")


def read_settings(reader: StatementReader) -> tuple[Setting, ...]:
    """Read SETTINGS and its list, if it comes next.

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
        advice = "Write SETTINGS once, at the end of the statement: it applies to all commands."
        raise reader.wrong(first, shown(first), why, advice)
    return Setting(name, value=True)


def _value(reader: StatementReader) -> SettingValue:
    if reader.accept_word("DEFAULT"):
        return None
    signed = reader.peek().is_symbol("-", "+")
    token = reader.peek(int(signed))
    is_number = token.kind is TokenKind.NUMBER or token.is_word(*_VALUES)
    if not is_number and (signed or token.kind is not TokenKind.STRING):
        raise reader.syntax_error(_VALUE)
    after = reader.peek(1 + int(signed))
    if after.kind is TokenKind.SYMBOL and not after.is_symbol(",", ";"):
        raise reader.syntax_error("',', FORMAT or the end", token=after)
    read = ExpressionParser(reader).one()
    if not isinstance(read, Literal):
        raise reader.syntax_error(_VALUE, token=token)
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
        raise reader.syntax_error("a level, a whole number,", token=token)
    return sign * int(token.text)
