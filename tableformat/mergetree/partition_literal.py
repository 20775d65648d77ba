"""What stands after PARTITION or PART in a statement: an id, ALL, a value of the key, a name.

The forms are those of ALTER … PARTITION (requirements, "How to set the partition expression"):
`ID '202401'`, `ALL`, `202401`, `'x'`, `('x', 3)`, `tuple(toYYYYMM(toDate('2024-01-25')))`. A value
is made of constants and of functions called with them. Operators are refused: a date without quotes
would be the number 2022. Which partition a value names is decided by whoever knows the table's key.
A part is named in quotes or, as ClickHouse's own examples do, without.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final, assert_never

from tableformat.errors import UsageError
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.expression_text import columns_of, parse_expression, render_expression
from tableformat.mergetree.tokens import Token, TokenKind, tokenize
from tableformat.names import PartitionId, PartName, quote_string

__all__ = [
    "All",
    "ById",
    "ByValue",
    "PartitionLiteral",
    "parse_part_literal",
    "parse_partition_literal",
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

_WHAT: Final = "partition"
_NAMES: Final = (TokenKind.WORD, TokenKind.QUOTED)


def parse_partition_literal(text: str) -> PartitionLiteral:
    """Read what stands after PARTITION.

    Raises:
        UsageError: it is malformed, names a column or calculates; the message names the token and
            its position.
        UnsupportedError: it holds a subquery or another thing that is no constant.
    """
    tokens = tokenize(text, _WHAT)
    match tokens:
        case (word, end) if word.is_word("ALL") and end.kind is TokenKind.END:
            return All()
        case (word, quoted, after, *_) if word.is_word("ID") and not quoted.is_symbol("(", "."):
            return ById(_partition_id(text, quoted, after))
    value = parse_expression(text, what=_WHAT)
    for before, token in itertools.pairwise(tokens):
        _check_constant(text, before, token, columns_of(value))
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


def _partition_id(text: str, quoted: Token, after: Token) -> PartitionId:
    wrong = quoted if quoted.kind is not TokenKind.STRING else after
    if wrong.kind is not TokenKind.END:
        message = (
            f"Cannot read the partition {text!r}: found {wrong.text!r} at position "
            f"{wrong.start + 1} where only an id in quotes can stand. Write ID '202401'."
        )
        raise UsageError(message)
    return PartitionId(quoted.value)


def _check_constant(text: str, token: Token, after: Token, columns: frozenset[str]) -> None:
    """Check one token of a value, and the one after it.

    Raises:
        UsageError: the token is the name of a column, or an operator comes after it.
    """
    where = f"Cannot read the partition {text!r}:"
    if token.kind in _NAMES and not after.is_symbol("("):
        names = (name for name in columns if f"{name}.".startswith(f"{token.value}."))
        if next(names, None) is not None:
            raise UsageError(
                f"{where} {token.text!r} at position {token.start + 1} is the name of a column, "
                "where only constants can stand. Put text in single quotes, and an id behind the "
                "word ID: ID '202401'."
            )
    ended = token.kind is not TokenKind.SYMBOL or token.is_symbol(")", "]")
    if ended and after.is_symbol("+", "-", "*", "/", "%", "||"):
        raise UsageError(
            f"{where} {after.text!r} at position {after.start + 1} calculates, where only "
            "constants can stand. Put a date or a text in single quotes: '2024-01-31'."
        )


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


def render_part_literal(part: PartName) -> str:
    """Return the name as ClickHouse SQL."""
    return quote_string(str(part))
