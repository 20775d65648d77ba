"""What stands after PARTITION or PART in a statement: an id, ALL, a value of the key, a name.

The forms are those of ALTER … PARTITION (requirements, "How to set the partition expression"):
`ID '202401'`, `ALL`, `202401`, `'x'`, `('x', 3)`, `tuple(toYYYYMM(toDate('2024-01-25')))`. A value
is made of constants, and of functions and operators with them. An operator stands inside of
brackets: ClickHouse reads none bare. What looks like a date without quotes is refused everywhere:
it would be the number 2022. Which partition a value names is decided by whoever knows the table's
key. A part is named in quotes or, as ClickHouse's own examples do, without.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import Call, Expression
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.expression_text import columns_of, has_operator, render_expression
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
    """The partition whose key has this value; a tuple where the key has several members."""

    value: Expression


PartitionLiteral = ById | All | ByValue

_BARE_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_NAMES: Final = (TokenKind.WORD, TokenKind.QUOTED)
_OPERATORS: Final = ("+", "-", "*", "/", "%", "||", "?", "->")
_BARE_DATE: Final = re.compile(r"\d{4}-(?:0\d|\d{1,2}-\d)", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?)?", re.ASCII)


def parse_partition_literal(text: str) -> PartitionLiteral:
    """Read what stands after PARTITION.

    Raises:
        UsageError: it is malformed, names a column or calculates bare; the message names the
            token and its position.
        UnsupportedError: it holds a subquery or another thing that is no constant.
    """
    advice = "Columns, constants, operators, tuples and function calls can be read here."
    reader = TokenReader(text, "partition", unexpected=UnsupportedError, advice=advice)
    literal = read_partition_literal(reader)
    if isinstance(literal, ById) and reader.peek().kind is not TokenKind.END:
        raise _no_id(reader, reader.peek())
    reader.expect_end()
    return literal


def date_in_quotes(text: str) -> str:
    """Return the value of a partition that an option or argument has; a date alone gets quotes.

    A shell takes them off, and a text in SQL is in quotes already. Inside a statement the same
    stays refused: there it calculates.
    """
    alone = text.strip()
    return quote_string(alone) if _DATE.fullmatch(alone) else text


def read_partition_literal(reader: TokenReader) -> PartitionLiteral:
    """Read a partition that stands next in a longer text, and take its tokens.

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
        raise _calculating(reader, bare or tokens[0])
    return ByValue(value)


def render_partition_literal(literal: PartitionLiteral) -> str:
    """Return the literal as ClickHouse SQL; it can neither end a statement nor begin another."""
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
        raise reader.complaint("an id in quotes", token=token)
    if token.kind is not TokenKind.STRING:
        raise _no_id(reader, token)
    try:
        return PartitionId(token.value)
    except UsageError as error:
        raise reader.about(token, error) from error


def _no_id(reader: TokenReader, token: Token) -> UsageError:
    why = "where only an id in quotes can stand"
    return reader.wrong(token, f"found {token.text!r}", why, "Write ID '202401'.")


def _check_constant(reader: TokenReader, tokens: Sequence[Token], columns: frozenset[str]) -> None:
    """Check that a value names no column.

    Raises:
        UsageError: a token is the name of one.
    """
    for token, after in itertools.pairwise(tokens) if columns else ():
        if token.kind not in _NAMES or after.is_symbol("("):
            continue
        names = (name for name in columns if f"{name}.".startswith(f"{token.value}."))
        if next(names, None) is not None:
            raise reader.wrong(
                token,
                repr(token.text),
                "is the name of a column, where only constants can stand",
                "Put text in single quotes, and an id behind the word ID: ID '202401'.",
            )


def _check_dates(reader: TokenReader, tokens: Sequence[Token]) -> None:
    """Check that nothing looks like a date without quotes: 2024-01-31, or 2024-01.

    Raises:
        UsageError: it does; the number that it stands for would name another partition, or none.
    """
    for token in tokens:
        found = _BARE_DATE.match(reader.text, token.start)
        if found and token.kind is TokenKind.NUMBER:
            dash = next(one for one in tokens if one.start >= token.start and one.is_symbol("-"))
            raise _calculating(reader, dash)


def _outside_brackets(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens that stand in no bracket, without one that begins the value as its sign."""
    depth = 0
    for token in tokens[1:]:
        depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
        if depth <= 0:
            yield token


def _calculating(reader: TokenReader, token: Token) -> UsageError:
    why = "makes it an expression, where only a value can stand"
    advice = "Put a date or a text in single quotes: '2024-01-31'."
    return reader.wrong(token, repr(token.text), why, advice)


def _calculates(value: Expression) -> bool:
    """Whether an operator stands bare, or in an array, where ClickHouse reads none."""
    if not isinstance(value, Call):
        return False
    within = value.arguments if value.function == "array" else ()
    return has_operator(value) or any(_calculates(one) for one in within)


def parse_part_literal(text: str) -> PartName:
    """Read what stands after PART: the name of a part, in quotes or bare, `201901_2_2_0`.

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
    """Read the name of a part that stands next in a longer text, and take its tokens.

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
        raise reader.complaint("the name of a part, as in 'all_1_1_0',")
    try:
        return PartName.parse(name)
    except UsageError as error:
        raise reader.about(token, error) from error


def render_part_literal(part: PartName) -> str:
    """Return the name as ClickHouse SQL."""
    return quote_string(str(part))
