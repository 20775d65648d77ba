"""What stands after PARTITION in a statement: an id, ALL, or the value of the partition key.

The forms are those of ALTER … PARTITION (requirements, "How to set the partition expression"): `ID
'202401'`, `ALL`, `202401`, `'x'`, `('x', 3)`, `tuple(toYYYYMM(toDate('2024-01-25')))`. A value is made
of constants only; which partition it names is decided by whoever knows the table's key and types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from tableformat.errors import UsageError
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.expression_text import columns_of, parse_expression, render_expression
from tableformat.mergetree.tokens import Token, TokenKind, tokenize
from tableformat.names import PartitionId, quote_string

__all__ = [
    "All",
    "ById",
    "ByValue",
    "PartitionLiteral",
    "parse_partition_literal",
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

_WHAT = "partition"


def parse_partition_literal(text: str) -> PartitionLiteral:
    """Read what stands after PARTITION.

    Raises:
        UsageError: it is malformed, or names a column; the message names the token and its position.
        UnsupportedError: it holds a subquery or another thing that is no constant.
    """
    tokens = tokenize(text, _WHAT)
    match tokens:
        case (word, end) if word.is_word("ALL") and end.kind is TokenKind.END:
            return All()
        case (word, value, *rest) if word.is_word("ID") and value.kind is TokenKind.STRING:
            return ById(_partition_id(text, value, rest[0]))
    value = parse_expression(text, what=_WHAT)
    columns = columns_of(value)
    if columns:
        raise _not_constant(text, tokens, columns)
    return ByValue(value)


def render_partition_literal(literal: PartitionLiteral) -> str:
    """Return the literal as ClickHouse SQL; nothing in it can end the statement or begin another."""
    match literal:
        case ById(partition_id):
            return f"ID {quote_string(partition_id.value)}"
        case All():
            return "ALL"
        case ByValue(value):
            return render_expression(value)
        case _:
            assert_never(literal)


def _partition_id(text: str, value: Token, after: Token) -> PartitionId:
    if after.kind is not TokenKind.END:
        message = (
            f"Cannot read the partition {text!r}: found {after.text!r} at position "
            f"{after.start + 1} behind the id. Write only ID 'the id'."
        )
        raise UsageError(message)
    return PartitionId(value.value)


def _not_constant(text: str, tokens: tuple[Token, ...], columns: frozenset[str]) -> UsageError:
    """Return the error that points at the first token that names a column."""
    firsts = {name: name.partition(".")[0] for name in columns}
    named = (TokenKind.WORD, TokenKind.QUOTED)
    found = next(
        token
        for token, after in zip(tokens, tokens[1:], strict=False)
        if token.kind in named
        and not after.is_symbol("(")
        and (token.value in columns or token.value in firsts.values())
    )
    advice = "Put text in single quotes, and an id behind the word ID."
    if found.is_word("ID"):
        advice = "Put the id in single quotes: ID '202401'."
    return UsageError(
        f"Cannot read the partition {text!r}: {found.text!r} at position {found.start + 1} is the "
        f"name of a column, where only constants can stand. {advice}"
    )
