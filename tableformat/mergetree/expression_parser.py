"""Parses ClickHouse expressions to the tree that ClickHouse's own parser builds.

The precedences are ClickHouse's, lowest first: lambdas, `? :`, OR, AND, NOT, IS, BETWEEN,
comparisons with IN and LIKE, `||`, `+ -`, `* / % DIV MOD`, signs, then `::`, `[...]` and `.1`.
Operators become their functions, `? :` becomes `if`, CASE becomes `multiIf` or
`caseWithExpression`, a lambda becomes `lambda(tuple(x), body)`. Subqueries, aliases and parametric
functions are refused. The texts come from system.tables.engine_full and from users.
`expression` has the rendering to text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Self

from tableformat.errors import UnsupportedError
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal, SortKey
from tableformat.mergetree.sql_tokens import Token, TokenKind, TokenReader
from tableformat.mergetree.types import read_type, render_type

__all__ = ["ExpressionParser", "parse_expression", "parse_partition_key", "parse_sorting_key"]

_ANY, _CHOICE, _OR, _AND, _NOT, _IS, _BETWEEN, _COMPARE, _CONCAT, _ADD, _MULTIPLY, _NEGATE = range(
    12
)
_SYMBOLS: Final = {
    "=": ("equals", _COMPARE),
    "==": ("equals", _COMPARE),
    "!=": ("notEquals", _COMPARE),
    "<>": ("notEquals", _COMPARE),
    "<=>": ("isNotDistinctFrom", _COMPARE),
    "<": ("less", _COMPARE),
    ">": ("greater", _COMPARE),
    "<=": ("lessOrEquals", _COMPARE),
    ">=": ("greaterOrEquals", _COMPARE),
    "+": ("plus", _ADD),
    "-": ("minus", _ADD),
    "*": ("multiply", _MULTIPLY),
    "/": ("divide", _MULTIPLY),
    "%": ("modulo", _MULTIPLY),
    "||": ("concat", _CONCAT),
}
_WORDS: Final = {
    "DIV": ("intDiv", _MULTIPLY),
    "MOD": ("modulo", _MULTIPLY),
    "IN": ("in", _COMPARE),
    "LIKE": ("like", _COMPARE),
    "ILIKE": ("ilike", _COMPARE),
    "OR": ("or", _OR),
    "AND": ("and", _AND),
    "BETWEEN": ("between", _BETWEEN),
    "IS": ("is", _IS),
}
_NEGATED: Final = {"IN": "notIn", "LIKE": "notLike", "ILIKE": "notILike"}
# A chain of one of these is one call with many arguments, unless it has brackets.
_CHAINS: Final = {"or": _OR, "and": _AND, "concat": _CONCAT}
_VALUES: Final[dict[str, float | bool | None]] = {
    "NULL": None,
    "TRUE": True,
    "FALSE": False,
    "INF": float("inf"),
    "INFINITY": float("inf"),
    "NAN": float("nan"),
}
_INFINITE: Final = float("inf")
_NAMED_NUMBERS: Final = ("INF", "INFINITY", "NAN")
_TYPED_STRINGS: Final = {"DATE": "toDate", "TIMESTAMP": "toDateTime"}
# Python limits longer numbers; no number of ClickHouse is as long.
_MOST_DIGITS: Final = 1000

_UNITS: Final = {
    name: f"toInterval{unit}"
    for unit in (
        *("Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"),
        *("Day", "Week", "Month", "Quarter", "Year"),
    )
    for name in (unit.upper(), unit.upper() + "S")
}
_AMOUNT: Final = re.compile(r"(-?[0-9]{1,18}) ([A-Za-z]+)\Z")


class ExpressionParser:
    """Parses the expressions of one text from a token reader."""

    def __init__(self, reader: TokenReader) -> None:
        self.reader = reader

    @classmethod
    def of(cls, text: str, what: str) -> Self:
        """Return a parser of one text; `what` names it in messages, e.g. "sorting key".

        Raises:
            UsageError: a quote or a comment is not closed.
            UnsupportedError: the bytes of a text in quotes are not UTF-8.
        """
        advice = "Columns, constants, operators, tuples and function calls can be read here."
        return cls(TokenReader(text, what, unexpected=UnsupportedError, advice=advice))

    def one(self) -> Expression:
        """Parse one expression at the reader's position in a longer text.

        Raises:
            UsageError: as `whole`.
            UnsupportedError: as `whole`.
        """
        return self._binary(_ANY)

    def whole(self) -> Expression:
        """Parse the whole text as one expression.

        Raises:
            UsageError: a quote is open, or the text ends too early.
            UnsupportedError: the text has a construct that is not supported here.
        """
        found = self._binary(_ANY)
        self.reader.expect_end()
        return found

    def sort_keys(self) -> tuple[SortKey, ...]:
        """Parse the whole text as the elements of ORDER BY, with or without brackets.

        Raises:
            UsageError: as `whole`.
            UnsupportedError: as `whole`.
        """
        reader = self.reader
        named = reader.peek().is_word("TUPLE")
        if not self._is_in_brackets(int(named)):
            return self._without_brackets(self._sort_list(wrapped=False), named=False)
        if named:
            reader.take()
        reader.take()
        return self._without_brackets(self._sort_list(wrapped=True), named=named)

    def _is_in_brackets(self, opening: int) -> bool:
        """Whether the bracket at this offset encloses the rest of the text."""
        depth, offset = 0, opening
        while (token := self.reader.peek(offset)).kind is not TokenKind.END:
            depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
            offset += 1
            if depth == 0:
                break
        last = self.reader.peek(offset).kind is TokenKind.END
        return last and self.reader.peek(opening).is_symbol("(")

    def _sort_list(self, *, wrapped: bool) -> list[SortKey]:
        reader, keys = self.reader, list[SortKey]()
        while not (wrapped and reader.peek().is_symbol(")")):
            expression = self._binary(_ANY)
            descending = reader.accept_word("DESC")
            if not descending:
                reader.accept_word("ASC")
            keys.append(SortKey(expression, descending))
            if not reader.accept(","):
                break
        if wrapped:
            reader.expect(")")
        reader.expect_end()
        return keys

    @staticmethod
    def _without_brackets(keys: list[SortKey], *, named: bool) -> tuple[SortKey, ...]:
        """Remove the brackets of `((a, b))`; `tuple((a, b))` stays one element that is a tuple."""
        match keys:
            case [SortKey(Call("tuple", elements), descending=False)] if not named:
                return tuple(SortKey(element) for element in elements)
            case _:
                return tuple(keys)

    def _binary(self, lowest: int) -> Expression:
        """Parse operands joined by operators of at least the precedence `lowest`."""
        reader = self.reader
        levels = 1
        reader.enter_level()
        names = _lambda_arguments(self.reader) if lowest == _ANY else None
        if names is not None:
            body = self._binary(_CHOICE)
            reader.leave_level(levels)
            return Call("lambda", (Call("tuple", names), body))
        left = self._unary()
        while (operator := self._operator()) is not None and operator[1] >= lowest:
            left = self._operator_call(left, *operator)
            # Each operator of a chain puts its left operand one level deeper in the tree.
            levels += 1
            reader.enter_level()
        if lowest <= _CHOICE and reader.accept("?"):
            left = self._conditional(left)
        reader.leave_level(levels)
        return left

    def _conditional(self, condition: Expression) -> Expression:
        """Parse the branches after `?`; as in ClickHouse, a nested `?` needs brackets."""
        chosen = self._binary(_OR)
        self.reader.expect(":")
        return Call("if", (condition, chosen, self._binary(_AND)))

    def _operator(self) -> tuple[str, int] | None:
        """Return the function and the precedence of the next token, None if it is no operator."""
        token = self.reader.peek()
        if token.kind is TokenKind.SYMBOL:
            return _SYMBOLS.get(token.text)
        if token.kind is not TokenKind.WORD:
            return None
        word = token.text.upper()
        if word == "IN" and self.reader.peek(1).is_word("PARTITION"):
            # UPDATE a = b IN PARTITION 1: as in ClickHouse, a column named PARTITION needs quotes.
            return None
        if word == "NOT":
            word = self.reader.peek(1).text.upper()
            if word in _NEGATED:
                return _NEGATED[word], _COMPARE
            return ("notBetween", _BETWEEN) if word == "BETWEEN" else None
        return _WORDS.get(word)

    def _operator_call(self, left: Expression, function: str, precedence: int) -> Expression:
        reader = self.reader
        if reader.take().is_word("NOT"):
            reader.take()
        if function == "is":
            return self._is_test(left)
        if function in ("between", "notBetween"):
            return self._between(left, negated=function == "notBetween")
        operands = [left, self._binary(precedence + 1)]
        if function in _CHAINS:
            while (operator := self._operator()) is not None and operator[0] == function:
                reader.take()
                operands.append(self._binary(precedence + 1))
        return Call(function, tuple(operands))

    def _is_test(self, left: Expression) -> Expression:
        """Parse the text after IS; UNKNOWN is NULL, TRUE and FALSE become comparisons."""
        reader = self.reader
        negated = reader.accept_word("NOT")
        if reader.accept_word("NULL", "UNKNOWN"):
            return Call("isNotNull" if negated else "isNull", (left,))
        other: Expression
        if reader.peek().is_word("TRUE", "FALSE"):
            distinct, other = negated, Literal(reader.take().is_word("TRUE"))
        elif reader.accept_word("DISTINCT"):
            if not reader.accept_word("FROM"):
                raise reader.syntax_error("FROM")
            distinct, other = not negated, self._binary(_IS + 1)
        else:
            raise reader.syntax_error("NULL, UNKNOWN, TRUE, FALSE or DISTINCT FROM")
        return Call("isDistinctFrom" if distinct else "isNotDistinctFrom", (left, other))

    def _between(self, left: Expression, *, negated: bool) -> Expression:
        low = self._binary(_BETWEEN + 1)
        if not self.reader.accept_word("AND"):
            raise self.reader.syntax_error("AND")
        high = self._binary(_BETWEEN + 1)
        if negated:
            return Call("or", (Call("less", (left, low)), Call("greater", (left, high))))
        return Call(
            "and", (Call("greaterOrEquals", (left, low)), Call("lessOrEquals", (left, high)))
        )

    def _unary(self) -> Expression:
        reader = self.reader
        if reader.peek().is_word("NOT"):
            reader.take()
            return Call("not", (self._binary(_NOT + 1),))
        if reader.peek().is_symbol("-", "+") and not self._is_signed():
            plus = reader.take().is_symbol("+")
            operand = self._binary(_NEGATE)
            return operand if plus else Call("negate", (operand,))
        return self._postfix(self._primary())

    def _is_signed(self) -> bool:
        sign, after = self.reader.peek(), self.reader.peek(1)
        number = after.kind is TokenKind.NUMBER or after.is_word(*_NAMED_NUMBERS)
        return number and sign.is_symbol("-", "+")

    def _postfix(self, left: Expression) -> Expression:
        reader = self.reader
        levels = 0
        while reader.peek().is_symbol("[", "::", "."):
            levels += 1
            reader.enter_level()
            if reader.accept("["):
                left = Call("arrayElement", (left, self._binary(_ANY)))
                reader.expect("]")
            elif reader.accept("::"):
                left = Call("CAST", (left, Literal(render_type(read_type(reader)))))
            else:
                reader.take()
                left = Call("tupleElement", (left, self._element()))
        reader.leave_level(levels)
        return left

    def _element(self) -> Literal:
        token = self.reader.peek()
        if token.kind is TokenKind.NUMBER and token.text.isdecimal():
            return Literal(int(self._number_text()))
        if token.kind in (TokenKind.WORD, TokenKind.QUOTED):
            return Literal(self.reader.take().value)
        raise self.reader.syntax_error("the number or name of a tuple's element")

    def _primary(self) -> Expression:
        reader, token = self.reader, self.reader.peek()
        match token.kind:
            case TokenKind.STRING:
                return Literal(reader.take().value)
            case TokenKind.NUMBER:
                return self._number()
            case TokenKind.QUOTED:
                return self._named()
            case TokenKind.WORD:
                return self._word(token)
            case _ if self._is_signed():
                return self._number()
            case _ if reader.accept("("):
                return self._brackets()
            case _ if reader.accept("["):
                return Call("array", self._arguments("]"))
            case _:
                raise reader.syntax_error("a column, a constant or a function")

    def _number(self) -> Literal:
        negative = self.reader.take().is_symbol("-") if self._is_signed() else False
        token = self.reader.peek()
        self._number_text()
        if self.reader.peek().is_symbol("::"):
            # ClickHouse casts the number's text, so a decimal keeps every digit.
            return Literal(("-" if negative else "") + token.text)
        value = _number_value(token)
        if token.kind is TokenKind.NUMBER and value == _INFINITE:
            raise self.reader.syntax_error("a number within the range of Float64", token=token)
        return Literal(-value if negative else value)

    def _number_text(self) -> str:
        token = self.reader.take()
        if len(token.text) > _MOST_DIGITS:
            raise self.reader.syntax_error(
                f"a number of at most {_MOST_DIGITS} digits", token=token
            )
        return token.text

    def _brackets(self) -> Expression:
        if self.reader.accept(")"):
            return Call("tuple", ())
        first = self._binary(_ANY)
        if self.reader.accept(")"):
            return first
        self.reader.expect(",")
        if self.reader.accept(")"):
            return Call("tuple", (first,))
        return Call("tuple", (first, *self._arguments(")")))

    def _arguments(self, closing: str) -> tuple[Expression, ...]:
        """Parse expressions up to the closing bracket, and take the bracket."""
        if self.reader.accept(closing):
            return ()
        found = [self._binary(_ANY)]
        while self.reader.accept(","):
            found.append(self._binary(_ANY))
        self.reader.expect(closing)
        return tuple(found)

    def _word(self, token: Token) -> Expression:
        reader, word, after = self.reader, token.text.upper(), self.reader.peek(1)
        if word in _VALUES and not after.is_symbol("(", "."):
            reader.take()
            return Literal(_VALUES[word])
        if word in _TYPED_STRINGS and after.kind is TokenKind.STRING:
            reader.take()
            return Call(_TYPED_STRINGS[word], (Literal(reader.take().value),))
        if word == "INTERVAL" and (interval := _read_interval(reader, self._primary)) is not None:
            return interval
        if word == "CAST" and after.is_symbol("("):
            return _read_cast(reader, self.one, self._arguments)
        if word == "CASE" and _is_case(reader):
            return _read_case(reader, self.one)
        return self._named()

    def _named(self) -> Expression:
        """Parse a column or a call. Dots join names, but not a name and an element's number."""
        reader = self.reader
        name = reader.take().value
        if reader.accept("("):
            call = Call(name, self._arguments(")"))
            if reader.peek().is_symbol("("):
                raise reader.syntax_error("an operator or the end")
            return call
        while reader.peek().is_symbol(".") and reader.peek(1).kind in (
            TokenKind.WORD,
            TokenKind.QUOTED,
        ):
            reader.take()
            name += "." + reader.take().value
        return ColumnName(name)


def _number_value(token: Token) -> int | float:
    if token.kind is TokenKind.WORD:
        return float(token.text)
    text = token.text.replace("_", "").lower()
    if text.startswith(("0x", "0b")):
        return int(text, 0)
    return int(text) if text.isdecimal() else float(text)


def _lambda_arguments(reader: TokenReader) -> tuple[ColumnName, ...] | None:
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


def _read_interval(reader: TokenReader, value: Callable[[], Expression]) -> Expression | None:
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


def _is_case(reader: TokenReader) -> bool:
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


def _read_case(reader: TokenReader, one: Callable[[], Expression]) -> Expression:
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


def _read_cast(
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


def parse_expression(text: str, *, what: str = "expression") -> Expression:
    """Parse one expression.

    Args:
        text: ClickHouse SQL.
        what: the name of the text in messages.

    Raises:
        UsageError: a quote is open, or the text ends too early.
        UnsupportedError: the text has a subquery, an alias, a parametric function or another token
            that is not supported; the message names it and its position.
    """
    return ExpressionParser.of(text, what).whole()


def parse_sorting_key(text: str) -> tuple[SortKey, ...]:
    """Parse the text of ORDER BY or PRIMARY KEY: `a`, `(a, b)`, `tuple(a, b DESC)`.

    `tuple()` and an empty text have no keys.

    Raises:
        UsageError: as `parse_expression`.
        UnsupportedError: as `parse_expression`.
    """
    return ExpressionParser.of(text, "sorting key").sort_keys() if text.strip() else ()


def parse_partition_key(text: str) -> tuple[Expression, ...]:
    """Parse the text of PARTITION BY: the members of a tuple, or one expression; none for ''.

    Raises:
        UsageError: as `parse_expression`.
        UnsupportedError: as `parse_expression`.
    """
    if not text.strip():
        return ()
    found = ExpressionParser.of(text, "partition key").whole()
    if isinstance(found, Call) and found.function == "tuple":
        return found.arguments
    return (found,)
