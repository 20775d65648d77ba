"""Parses the expressions with their own syntax: lambdas, CASE, CAST and INTERVAL.

`expression_parser` calls it, and parses the expressions inside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.sql_tokens import Token, TokenKind, TokenReader
from tableformat.mergetree.type_text import read_type, render_type

__all__ = ["is_case", "lambda_arguments", "read_case", "read_cast", "read_interval"]

_UNITS: Final = {
    name: f"toInterval{unit}"
    for unit in (
        *("Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"),
        *("Day", "Week", "Month", "Quarter", "Year"),
    )
    for name in (unit.upper(), unit.upper() + "S")
}
_AMOUNT: Final = re.compile(r"(-?[0-9]{1,18}) ([A-Za-z]+)\Z")


def lambda_arguments(reader: TokenReader) -> tuple[ColumnName, ...] | None:
    """Parse `x ->` or `(x, y) ->`; return None and take no token if no lambda follows.

    Raises:
        UsageError: a name has a dot.
    """
    in_brackets = reader.peek().is_symbol("(")
    names, offset = list[Token](), int(in_brackets)
    while reader.peek(offset).kind in (TokenKind.WORD, TokenKind.QUOTED):
        names.append(reader.peek(offset))
        offset += 1
        if not in_brackets or not reader.peek(offset).is_symbol(","):
            break
        offset += 1
    if in_brackets and not reader.peek(offset).is_symbol(")"):
        return None
    if not in_brackets and not names:
        return None
    offset += int(in_brackets)
    if not reader.peek(offset).is_symbol("->"):
        return None
    for token in names:
        if "." in token.value:
            raise reader.syntax_error("a name without a dot", token=token)
    for _ in range(offset + 1):
        reader.take()
    return tuple(ColumnName(token.value) for token in names)


def read_interval(reader: TokenReader, value: Callable[[], Expression]) -> Expression | None:
    """Parse `INTERVAL 1 DAY` or `INTERVAL '1 day'`; None if it is a column of that name.

    Raises:
        UsageError: the amount or its unit is malformed.
    """
    negative = reader.peek(1).is_symbol("-")
    amount, unit = reader.peek(1 + negative), reader.peek(2 + negative)
    if amount.kind is TokenKind.STRING and unit.text.upper() not in _UNITS and not negative:
        found = _AMOUNT.match(amount.value)
        if found is None or found[2].upper() not in _UNITS:
            raise reader.syntax_error("an amount and a unit, as in '1 day'", token=amount)
        reader.take()
        reader.take()
        return Call(_UNITS[found[2].upper()], (Literal(int(found[1])),))
    counted = amount.kind is TokenKind.NUMBER or (amount.kind is TokenKind.STRING and not negative)
    if not counted or unit.text.upper() not in _UNITS:
        return None
    reader.take()
    of = value()
    return Call(_UNITS[reader.take().text.upper()], (of,))


def is_case(reader: TokenReader) -> bool:
    """Whether the next CASE has a WHEN; otherwise it is a name."""
    depth, offset = 0, 1
    first = reader.peek(offset)
    if first.kind is TokenKind.SYMBOL and not first.is_symbol("("):
        return False
    while (token := reader.peek(offset)).kind is not TokenKind.END:
        depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
        if depth < 0 or (depth == 0 and token.is_symbol(",", ";")):
            return False
        if depth == 0 and token.is_word("WHEN"):
            return True
        offset += 1
    return False


def read_case(reader: TokenReader, one: Callable[[], Expression]) -> Expression:
    """Parse `CASE [of] WHEN a THEN b … [ELSE c] END`; without ELSE the value is NULL.

    Raises:
        UsageError: a word is missing.
    """
    reader.take()
    of = () if reader.peek().is_word("WHEN") else (one(),)
    arms = list[Expression]()
    while reader.accept_word("WHEN"):
        arms.append(one())
        if not reader.accept_word("THEN"):
            raise reader.syntax_error("THEN")
        arms.append(one())
    other = one() if reader.accept_word("ELSE") else Literal(None)
    if not arms or not reader.accept_word("END"):
        raise reader.syntax_error("WHEN, ELSE or END")
    return Call("caseWithExpression" if of else "multiIf", (*of, *arms, other))


def read_cast(
    reader: TokenReader,
    one: Callable[[], Expression],
    arguments_to: Callable[[str], tuple[Expression, ...]],
) -> Expression:
    """Parse `CAST(x AS T)` or `CAST(x, 'T')`, which are equal in ClickHouse.

    Raises:
        UsageError: it is malformed.
    """
    reader.take()
    reader.take()
    of = one()
    if reader.accept_word("AS"):
        arguments: tuple[Expression, ...] = (of, Literal(render_type(read_type(reader))))
        reader.expect(")")
    else:
        reader.expect(",")
        arguments = (of, *arguments_to(")"))
    return Call("CAST", arguments)
