r"""Tokens of ClickHouse SQL, and a reader over them, for the text forms of this package.

Owns what a word, number, string, quoted identifier and comment is, and how escapes are read:
`\n \t \0 \xHH ...` as in C, an unknown escape keeps its backslash, a doubled quote is one quote.
What the tokens mean is decided by `type_text`, `expression_parser` and `engine_text`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tableformat.errors import UnsupportedError, UsageError

__all__ = ["Token", "TokenKind", "TokenReader", "tokenize"]

_SPACE: Final = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]+|0[bB][01]+|\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?")
_DIGITS: Final = re.compile(r"\d+")
_SYMBOL: Final = re.compile(r"<=>|::|\|\||<=|>=|!=|<>|==|->|.", re.DOTALL)
_QUOTED: Final = {
    quote: re.compile(rf"{quote}(?:[^{quote}\\]|\\.|{quote}{quote})*{quote}", re.DOTALL)
    for quote in "'`\""
}
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
    "N": "",
    **{c: c for c in "\\'\"`/"},
}
_HEX: Final = re.compile(r"[0-9a-fA-F]{2}")
_SHOWN: Final = 120
_AROUND: Final = 50
_DEEPEST: Final = 100


class TokenKind(Enum):
    """What a token is."""

    WORD = auto()
    QUOTED = auto()
    NUMBER = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token: `text` as it stands from `start` to `stop`, `value` without quotes and escapes."""

    kind: TokenKind
    text: str
    value: str
    start: int
    stop: int

    def is_symbol(self, *symbols: str) -> bool:
        """Whether this is one of these symbols."""
        return self.kind is TokenKind.SYMBOL and self.text in symbols

    def is_word(self, *words: str) -> bool:
        """Whether this is one of these words (given in capitals), in any case, not in quotes."""
        return self.kind is TokenKind.WORD and self.text.upper() in words


def tokenize(text: str, what: str) -> tuple[Token, ...]:
    """Cut a text into tokens; the last one is END. Comments and white space are left out.

    Args:
        text: ClickHouse SQL.
        what: what the text is, for messages, e.g. "type".

    Raises:
        UsageError: a quote or a comment is not closed.
        UnsupportedError: hexadecimal escapes give bytes that are not UTF-8.
    """
    tokens: list[Token] = []
    at = 0
    while True:
        if space := _SPACE.match(text, at):
            at = space.end()
        if at == len(text):
            return (*tokens, Token(TokenKind.END, "", "", at, at))
        token = _token(text, at, tokens[-1] if tokens else None, what)
        tokens.append(token)
        at = token.stop


def _token(text: str, at: int, before: Token | None, what: str) -> Token:
    first = text[at]
    if first in _QUOTED:
        found = _QUOTED[first].match(text, at)
        if not found:
            message = (
                f"Cannot read the {what} {_shown(text, at)}: the quote {first} at position "
                f"{at + 1} is not closed. Close it."
            )
            raise UsageError(message)
        kind = TokenKind.STRING if first == "'" else TokenKind.QUOTED
        value = _unescape(found[0][1:-1], first, at, what)
        return Token(kind, found[0], value, at, found.end())
    if text.startswith("/*", at):
        message = (
            f"Cannot read the {what} {_shown(text, at)}: the comment at position {at + 1} is not "
            "closed. End it with */."
        )
        raise UsageError(message)
    if found := _WORD.match(text, at):
        return Token(TokenKind.WORD, found[0], found[0], at, found.end())
    # In `t.1.2` the digits after a dot are element numbers, not the number 1.2.
    number = _DIGITS if before is not None and before.is_symbol(".") else _NUMBER
    if found := number.match(text, at):
        return Token(TokenKind.NUMBER, found[0], found[0], at, found.end())
    found = _SYMBOL.match(text, at)
    symbol = found[0] if found else first
    return Token(TokenKind.SYMBOL, symbol, symbol, at, at + len(symbol))


def _unescape(inner: str, quote: str, at: int, what: str) -> str:
    """Return what stands between the quotes, without escapes."""
    if "\\" not in inner:
        return inner.replace(quote * 2, quote)
    out = bytearray()
    i = 0
    while i < len(inner):
        c = inner[i]
        i += 1
        if c == quote:
            i += 1
        elif c == "\\":
            c = inner[i]
            i += 1
            if c == "x" and _HEX.match(inner, i):
                out.append(int(inner[i : i + 2], 16))
                i += 2
                continue
            # An unknown escape is no escape: '\d' and the '\%' of LIKE keep the backslash.
            c = _ESCAPES.get(c, "\\" + c)
        out += c.encode("utf-8", "surrogatepass")
    try:
        return out.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        message = (
            f"Cannot read the {what}: the text at position {at + 1} has bytes that are not UTF-8 "
            f"({bytes(out)[:20]!r}). Write it as unhex('...')."
        )
        raise UnsupportedError(message) from error


def _shown(text: str, at: int) -> str:
    """Return the text for a message, only what is near the position when it is long."""
    if len(text) <= _SHOWN:
        return repr(text)
    start, stop = max(0, at - _AROUND), min(len(text), at + _AROUND)
    head, tail = "…" if start else "", "…" if stop < len(text) else ""
    return repr(head + text[start:stop] + tail)


class TokenReader:
    """Walks over the tokens of one text; a complaint says what was found, where, and what was due.

    `unexpected` is the error for a token that is out of place; `advice` is the last sentence of its
    message. A text that ends too early is always a UsageError.
    """

    def __init__(
        self, text: str, what: str, *, unexpected: type[UsageError] = UsageError, advice: str
    ) -> None:
        self.text = text
        self._what = what
        self._tokens = tokenize(text, what)
        self._at = 0
        self._depth = 0
        self._unexpected = unexpected
        self._advice = advice

    def peek(self, offset: int = 0) -> Token:
        """Return the token that comes next, or the one `offset` after it, without taking it."""
        return self._tokens[min(self._at + offset, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Take the next token."""
        token = self.peek()
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def accept(self, symbol: str) -> bool:
        """Take the next token if it is this symbol, and tell whether it was."""
        found = self.peek().is_symbol(symbol)
        if found:
            self.take()
        return found

    def accept_word(self, word: str) -> bool:
        """Take the next token if it is this word (in capitals), and tell whether it was."""
        found = self.peek().is_word(word)
        if found:
            self.take()
        return found

    def expect(self, symbol: str) -> Token:
        """Take the next token, which must be this symbol.

        Raises:
            UsageError: it is something else.
        """
        if not self.peek().is_symbol(symbol):
            raise self.complaint(f"'{symbol}'")
        return self.take()

    def expect_kind(self, kind: TokenKind, wanted: str) -> Token:
        """Take the next token, which must be of this kind.

        Raises:
            UsageError: it is something else.
        """
        if self.peek().kind is not kind:
            raise self.complaint(wanted)
        return self.take()

    def expect_end(self) -> None:
        """Check that nothing is left.

        Raises:
            UsageError: something is.
        """
        if self.peek().kind is not TokenKind.END:
            raise self.complaint("the end")

    def skip_group(self) -> Token:
        """Take everything up to the bracket that closes the one just taken; return that bracket.

        Raises:
            UsageError: the text ends before it.
        """
        depth = 1
        while True:
            if self.peek().kind is TokenKind.END:
                raise self.complaint("a closing bracket")
            token = self.take()
            if token.is_symbol("(", "[", "{"):
                depth += 1
            elif token.is_symbol(")", "]", "}"):
                depth -= 1
                if depth == 0:
                    return token

    def go_deeper(self) -> None:
        """Count one level of nesting; `come_back` ends it.

        Raises:
            UsageError: the text is nested too deep to be read.
        """
        self._depth += 1
        if self._depth > _DEEPEST:
            at = self.peek().start
            message = (
                f"Cannot read the {self._what} {_shown(self.text, at)}: it is nested deeper than "
                f"{_DEEPEST} levels at position {at + 1}. Simplify it."
            )
            raise UsageError(message)

    def come_back(self, levels: int = 1) -> None:
        """End as many levels of nesting as `go_deeper` began."""
        self._depth -= levels

    def complaint(self, wanted: str, *, token: Token | None = None) -> UsageError:
        """Return the error about a token (default: the next one) where `wanted` was due."""
        found = token or self.peek()
        where = f"Cannot read the {self._what} {_shown(self.text, found.start)}:"
        if found.kind is TokenKind.END:
            return UsageError(f"{where} it ends where {wanted} is expected. Complete it.")
        return self._unexpected(
            f"{where} found {found.text!r} at position {found.start + 1} where {wanted} is "
            f"expected. {self._advice}"
        )
