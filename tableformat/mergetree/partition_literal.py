"""Parses the text after PARTITION or PART in a statement: an id, ALL, a value of the key, a name.

The forms are those of ALTER … PARTITION (requirements, "How to set the partition expression"):
`ID '202401'`, `ALL`, `202401`, `'x'`, `('x', 3)`, `tuple(toYYYYMM(toDate('2024-01-25')))`. A value
consists of constants, functions and operators; operators need brackets, as in ClickHouse. A date
without quotes is always refused: it would be the number 2022. A call alone, which ClickHouse does
not read, means the same as in a tuple. The caller, who knows the table's
key, finds the partition of a value. A part's name may be in quotes or, as in ClickHouse's own
examples, without.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import (
    Call,
    Expression,
    columns_of,
    has_operator,
    render_expression,
)
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.sql_tokens import Token, TokenKind, TokenReader, tokenize
from tableformat.names import PartitionId, PartName, quote_string

__all__ = [
    "All",
    "ById",
    "ByValue",
    "PartitionLiteral",
    "date_in_quotes",
    "parse_part_literal",
    "parse_partition_literal",
    "read_part_literal",
    "read_partition_literal",
    "render_part_literal",
    "render_partition_literal",
]


@dataclass(frozen=True, slots=True)
class ById:
    """The partition with this id."""

    partition_id: PartitionId


@dataclass(frozen=True, slots=True)
class All:
    """Every partition."""


@dataclass(frozen=True, slots=True)
class ByValue:
    """The partition whose key has this value; a tuple if the key has several members."""

    value: Expression


PartitionLiteral = ById | All | ByValue

_BARE_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_NAMES: Final = (TokenKind.WORD, TokenKind.QUOTED)
_OPERATORS: Final = ("+", "-", "*", "/", "%", "||", "?", "->")
_BARE_CALLS: Final = frozenset({"tuple", "array", "CAST"})
"""The calls that ClickHouse takes alone; any other one it takes as the member of a tuple."""
_BARE_DATE: Final = re.compile(r"\d{4}-(?:0\d|\d{1,2}-\d)", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?)?", re.ASCII)


def parse_partition_literal(text: str) -> PartitionLiteral:
    """Parse the text after PARTITION.

    Raises:
        UsageError: it is malformed, names a column or has an operator outside brackets; the
            message names the token and its position.
        UnsupportedError: it has a subquery or something else that is no constant.
    """
    advice = "Columns, constants, operators, tuples and function calls can be read here."
    reader = TokenReader(text, "partition", unexpected=UnsupportedError, advice=advice)
    literal = read_partition_literal(reader)
    if isinstance(literal, ById) and reader.peek().kind is not TokenKind.END:
        raise _id_error(reader, reader.peek())
    reader.expect_end()
    return literal


def date_in_quotes(text: str) -> str:
    """Return the partition value of an option or argument; a date alone gets quotes.

    A shell removes the quotes, and a text in SQL is quoted already. Inside a statement a date
    without quotes stays refused, because it is a subtraction there.
    """
    alone = text.strip()
    return quote_string(alone) if _DATE.fullmatch(alone) else text


def read_partition_literal(reader: TokenReader) -> PartitionLiteral:
    """Parse a partition at the reader's position in a longer text.

    Raises:
        UsageError: as `parse_partition_literal`.
        UnsupportedError: as `parse_partition_literal`.
    """
    first, second = reader.peek(), reader.peek(1)
    if first.is_word("ALL") and not second.is_symbol("(", "."):
        reader.take()
        return All()
    if first.is_word("ID") and not second.is_symbol("(", "."):
        reader.take()
        return ById(_partition_id(reader))
    begin = reader.position
    value = ExpressionParser(reader).one()
    tokens = reader.tokens[begin : reader.position + 1]
    _check_constant(reader, tokens, columns_of(value))
    _check_dates(reader, tokens)
    if _calculates(value):
        bare = next((one for one in _outside_brackets(tokens) if one.is_symbol(*_OPERATORS)), None)
        raise _calculation_error(reader, bare or tokens[0])
    is_taken = not isinstance(value, Call) or value.function in _BARE_CALLS
    return ByValue(value if is_taken else Call("tuple", (value,)))


def render_partition_literal(literal: PartitionLiteral) -> str:
    """Return the literal as ClickHouse SQL, safe to embed in a statement."""
    match literal:
        case ById(partition_id):
            return f"ID {quote_string(partition_id.value)}"
        case All():
            return "ALL"
        case ByValue(value):
            return render_expression(value)
        case _:
            assert_never(literal)


def _partition_id(reader: TokenReader) -> PartitionId:
    token = reader.take()
    if token.kind is TokenKind.END or token.is_symbol("{"):
        raise reader.syntax_error("an id in quotes", token=token)
    if token.kind is not TokenKind.STRING:
        raise _id_error(reader, token)
    try:
        return PartitionId(token.value)
    except UsageError as error:
        raise reader.about(token, error) from error


def _id_error(reader: TokenReader, token: Token) -> UsageError:
    why = "where only a quoted id is allowed"
    return reader.wrong(token, f"found {token.text!r}", why, "Write ID '202401'.")


def _check_constant(reader: TokenReader, tokens: Sequence[Token], columns: frozenset[str]) -> None:
    """Check that a value names no column.

    Raises:
        UsageError: a token is a column's name.
    """
    for token, after in itertools.pairwise(tokens) if columns else ():
        if token.kind not in _NAMES or after.is_symbol("("):
            continue
        names = (name for name in columns if f"{name}.".startswith(f"{token.value}."))
        if next(names, None) is not None:
            raise reader.wrong(
                token,
                repr(token.text),
                "is the name of a column, where only constants are allowed",
                "Put text in single quotes, and an id after the word ID: ID '202401'.",
            )


def _check_dates(reader: TokenReader, tokens: Sequence[Token]) -> None:
    """Check that nothing looks like a date without quotes: 2024-01-31, or 2024-01.

    Raises:
        UsageError: there is such a date; as a number it would name another partition, or none.
    """
    for token in tokens:
        found = _BARE_DATE.match(reader.text, token.start)
        if found and token.kind is TokenKind.NUMBER:
            dash = next(one for one in tokens if one.start >= token.start and one.is_symbol("-"))
            raise _calculation_error(reader, dash)


def _outside_brackets(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens outside brackets, except a leading sign."""
    depth = 0
    for token in tokens[1:]:
        depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
        if depth <= 0:
            yield token


def _calculation_error(reader: TokenReader, token: Token) -> UsageError:
    why = "makes it an expression, where only a value is allowed"
    advice = "Put a date or a text in single quotes: '2024-01-31'."
    return reader.wrong(token, repr(token.text), why, advice)


def _calculates(value: Expression) -> bool:
    """Whether an operator is outside brackets, or in an array, where ClickHouse accepts none."""
    if not isinstance(value, Call):
        return False
    within = value.arguments if value.function == "array" else ()
    return has_operator(value) or any(_calculates(one) for one in within)


def parse_part_literal(text: str) -> PartName:
    """Parse the text after PART: the name of a part, in quotes or without, `201901_2_2_0`.

    Raises:
        UsageError: it is malformed, or not the name of a part.
    """
    bare = text.strip()
    if not bare.startswith(("'", '"', "`")):
        return PartName.parse(bare)
    name, end, *_ = tokenize(bare, "part")
    if name.kind is not TokenKind.STRING or end.kind is not TokenKind.END:
        message = (
            f"Cannot read the part {text!r}: it is not one text in quotes. Write the name of a "
            "part, for example 'all_1_1_0'."
        )
        raise UsageError(message)
    return PartName.parse(name.value)


def read_part_literal(reader: TokenReader) -> PartName:
    """Parse the name of a part at the reader's position in a longer text.

    Raises:
        UsageError: as `parse_part_literal`.
    """
    token = reader.peek()
    name = token.value
    if token.kind is TokenKind.STRING:
        reader.take()
    elif found := _BARE_PART.match(reader.text, token.start):
        # `20000101-1_1_3_1` is several tokens.
        name = found[0]
        reader.skip_to(found.end())
    else:
        raise reader.syntax_error("the name of a part, as in 'all_1_1_0',")
    try:
        return PartName.parse(name)
    except UsageError as error:
        raise reader.about(token, error) from error


def render_part_literal(part: PartName) -> str:
    """Return the name as ClickHouse SQL."""
    return quote_string(str(part))
