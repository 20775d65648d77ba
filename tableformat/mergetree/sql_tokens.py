"""Splits ClickHouse SQL into tokens, and provides the token reader for the package's parsers.

`scan` and `tokenize` define words, numbers, strings, quoted identifiers, symbols and comments,
and read the escapes: those of C for newline, tab, NUL and hexadecimal bytes. An unknown escape
keeps its backslash character; a doubled quote is one quote. Strings may also be `x'4142'`,
`b'0100'`, `$tag$...$tag$`, or in the typographic quotes of word processors. Comments begin with
`--`, `//`, `# ` or `#!`; comments between `/*` and `*/` nest.

`TokenReader` walks over the tokens, limits the nesting depth, and makes the error message with
its position. The parsers decide the meaning of tokens: `tableformat/mergetree/types.py`,
`tableformat/mergetree/expression_parser.py`, `tableformat/mergetree/engine_text.py` and the
grammar of statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tableformat.errors import UnsupportedError, UsageError

__all__ = ["BROKEN", "Token", "TokenKind", "TokenReader", "scan", "tokenize"]

# Invisible characters of copied text count as white space, as in ClickHouse.
_SPACE: Final = re.compile(
    r"(?:[\s\u180e\u200b-\u200d\u2060\ufeff]+|--[^\n]*|//[^\n]*|#[ !][^\n]*)+"
)
_COMMENT: Final = re.compile(r"/\*|\*/")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_NUMBER: Final = re.compile(
    r"0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
)
_DIGITS: Final = re.compile(r"[0-9]+")
_BYTES: Final = re.compile(r"[xX]'([0-9a-fA-F]*)'|[bB]'([01]*)'")
_HEREDOC: Final = re.compile(r"\$[A-Za-z0-9_]*\$")
_TYPOGRAPHIC: Final = {"‘": "’", "“": "”"}  # noqa: RUF001  they are meant
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


class TokenKind(Enum):
    """The kind of a token."""

    WORD = auto()
    QUOTED = auto()
    NUMBER = auto()
    STRING = auto()
    SYMBOL = auto()
    OPEN_QUOTE = auto()
    OPEN_COMMENT = auto()
    NOT_UTF8 = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token: `text` from `start` to `stop` as written, `value` without quotes and escapes."""

    kind: TokenKind
    text: str
    value: str
    start: int
    stop: int

    def is_symbol(self, *symbols: str) -> bool:
        """Whether this is one of these symbols."""
        return self.kind is TokenKind.SYMBOL and self.text in symbols

    def is_word(self, *words: str) -> bool:
        """Whether this is an unquoted word among these (given in capitals), in any case."""
        return self.kind is TokenKind.WORD and self.text.upper() in words


BROKEN: Final = (TokenKind.OPEN_QUOTE, TokenKind.OPEN_COMMENT, TokenKind.NOT_UTF8)
"""Kinds of the last token of a text that cannot be split further."""


def scan(text: str) -> Iterator[Token]:
    """Split a text into tokens, without comments and white space.

    The last token is END, or has one of the kinds OPEN_QUOTE, OPEN_COMMENT and NOT_UTF8 if the text
    cannot be split further.
    """
    at = 0
    before: Token | None = None
    while True:
        at = _after_space(text, at)
        if at == len(text):
            yield Token(TokenKind.END, "", "", at, at)
            return
        before = _token(text, at, before)
        yield before
        if before.kind in BROKEN:
            return
        at = before.stop


def _after_space(text: str, at: int) -> int:
    """Return the start of the next token; an unclosed comment is a token."""
    while True:
        if space := _SPACE.match(text, at):
            at = space.end()
        if not text.startswith("/*", at):
            return at
        depth = 0
        for mark in _COMMENT.finditer(text, at):
            depth += 1 if mark[0] == "/*" else -1
            if depth == 0:
                at = mark.end()
                break
        else:
            return at


def _token(text: str, at: int, before: Token | None) -> Token:
    first = text[at]
    if first in _QUOTED:
        found = _QUOTED[first].match(text, at)
        if not found:
            return Token(TokenKind.OPEN_QUOTE, first, first, at, len(text))
        kind = TokenKind.STRING if first == "'" else TokenKind.QUOTED
        return _decoded(kind, found[0], _unescape(found[0][1:-1], first), at)
    if text.startswith("/*", at):
        return Token(TokenKind.OPEN_COMMENT, "/*", "/*", at, len(text))
    if (special := _special_quotes(text, at)) is not None:
        return special
    if found := _WORD.match(text, at):
        return Token(TokenKind.WORD, found[0], found[0], at, found.end())
    # In `t.1.2` the digits after a dot are element numbers and not the number 1.2.
    number = _DIGITS if before is not None and before.is_symbol(".") else _NUMBER
    if found := number.match(text, at):
        return Token(TokenKind.NUMBER, found[0], found[0], at, found.end())
    found = _SYMBOL.match(text, at)
    symbol = found[0] if found else first
    return Token(TokenKind.SYMBOL, symbol, symbol, at, at + len(symbol))


def _special_quotes(text: str, at: int) -> Token | None:
    """Return the byte string, `$tag$` string or typographic quotes that start here, or None."""
    if found := _BYTES.match(text, at):
        if found[1] is not None:
            inner = bytes.fromhex("0" * (len(found[1]) % 2) + found[1])
        else:
            bits = "0" * (-len(found[2]) % 8) + found[2]
            inner = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
        return _decoded(TokenKind.STRING, found[0], inner, at)
    if (closing := _TYPOGRAPHIC.get(text[at])) is not None:
        kind = TokenKind.STRING if closing == "’" else TokenKind.QUOTED  # noqa: RUF001  as above
        return _verbatim(kind, text, at, text[at], closing)
    if found := _HEREDOC.match(text, at):
        return _verbatim(TokenKind.STRING, text, at, found[0], found[0])
    return None


def _verbatim(kind: TokenKind, text: str, at: int, opening: str, closing: str) -> Token:
    """Return the token of a text without escapes."""
    begin = at + len(opening)
    end = text.find(closing, begin)
    if end == -1:
        return Token(TokenKind.OPEN_QUOTE, opening, opening, at, len(text))
    stop = end + len(closing)
    return Token(kind, text[at:stop], text[begin:end], at, stop)


def _decoded(kind: TokenKind, written: str, inner: bytes | str, at: int) -> Token:
    """Return the token of a quoted text, or one of kind NOT_UTF8 with the bytes as its value."""
    stop = at + len(written)
    if isinstance(inner, str):
        return Token(kind, written, inner, at, stop)
    try:
        return Token(kind, written, inner.decode("utf-8", "surrogatepass"), at, stop)
    except UnicodeDecodeError:
        return Token(TokenKind.NOT_UTF8, written, repr(inner[:20]), at, stop)


def _unescape(inner: str, quote: str) -> bytes | str:
    """Return the text between quotes without escapes; bytes if there were any escapes."""
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
            # Unknown escapes such as '\d' and LIKE's '\%' keep the backslash.
            c = _ESCAPES.get(c, "\\" + c)
        out += c.encode("utf-8", "surrogatepass")
    return bytes(out)


_SHOWN: Final = 120
_AROUND: Final = 50
_DEEPEST: Final = 100


def tokenize(text: str, what: str) -> tuple[Token, ...]:
    """Split a text into tokens, without comments and white space; the last one is END.

    Args:
        text: ClickHouse SQL.
        what: the name of the text in messages, e.g. "type".

    Raises:
        UsageError: a quote or a comment is not closed.
        UnsupportedError: hexadecimal escapes give bytes that are not UTF-8.
    """
    return TokenReader(text, what, advice="").tokens


def _shown(text: str, at: int) -> str:
    """Return the text for a message; of a long text only the part around the position."""
    if len(text) <= _SHOWN:
        return repr(text)
    start, stop = max(0, at - _AROUND), min(len(text), at + _AROUND)
    head, tail = "…" if start else "", "…" if stop < len(text) else ""
    return repr(head + text[start:stop] + tail)


class TokenReader:
    """Walks over the tokens of one text and builds its error messages.

    A message says what was found, where, and what was expected. `unexpected` is the error for a
    token that does not fit; `advice` is the last sentence of its message. A text that ends too
    early is always a UsageError.
    """

    def __init__(
        self, text: str, what: str, *, unexpected: type[UsageError] = UsageError, advice: str
    ) -> None:
        self.text = text
        self._what = what
        self._at = 0
        self._depth = 0
        self._unexpected = unexpected
        self._advice = advice
        self.tokens = tuple(scan(text))
        if self.tokens[-1].kind in BROKEN:
            raise self._broken(self.tokens[-1])

    def peek(self, offset: int = 0) -> Token:
        """Return the next token, or the one `offset` after it, without taking it."""
        return self.tokens[min(self._at + offset, len(self.tokens) - 1)]

    @property
    def position(self) -> int:
        """How many tokens have been taken."""
        return self._at

    def take(self) -> Token:
        """Take the next token."""
        token = self.peek()
        self._at = min(self._at + 1, len(self.tokens) - 1)
        return token

    def accept(self, symbol: str) -> bool:
        """Take the next token if it is this symbol; return whether it was."""
        found = self.peek().is_symbol(symbol)
        if found:
            self.take()
        return found

    def accept_word(self, *words: str) -> bool:
        """Take the next token if it is one of these words (in capitals); return whether it was."""
        found = self.peek().is_word(*words)
        if found:
            self.take()
        return found

    def expect(self, symbol: str) -> Token:
        """Take the next token, which must be this symbol.

        Raises:
            UsageError: it is another token.
        """
        if not self.peek().is_symbol(symbol):
            raise self.syntax_error(f"'{symbol}'")
        return self.take()

    def expect_kind(self, kind: TokenKind, wanted: str) -> Token:
        """Take the next token, which must be of this kind.

        Raises:
            UsageError: it is another token.
        """
        if self.peek().kind is not kind:
            raise self.syntax_error(wanted)
        return self.take()

    def expect_end(self) -> None:
        """Check that no token is left.

        Raises:
            UsageError: a token is left.
        """
        if self.peek().kind is not TokenKind.END:
            raise self.syntax_error("the end")

    def skip_group(self) -> Token:
        """Take all tokens up to the bracket that closes the one just taken; return that bracket.

        Raises:
            UsageError: the text ends before it.
        """
        depth = 1
        while True:
            if self.peek().kind is TokenKind.END:
                raise self.syntax_error("a closing bracket")
            token = self.take()
            if token.is_symbol("(", "[", "{"):
                depth += 1
            elif token.is_symbol(")", "]", "}"):
                depth -= 1
                if depth == 0:
                    return token

    def enter_level(self) -> None:
        """Count one level of nesting; `leave_level` ends it.

        Raises:
            UsageError: the text is nested too deep.
        """
        self._depth += 1
        if self._depth > _DEEPEST:
            why = f"is nested deeper than {_DEEPEST} levels"
            raise self.wrong(self.peek(), "the text", why, "Simplify it.")

    def leave_level(self, levels: int = 1) -> None:
        """End this many levels of nesting."""
        self._depth -= levels

    def skip_to(self, position: int) -> None:
        """Take every token that begins before a position of the text."""
        while self.peek().start < position:
            self.take()

    def syntax_error(self, wanted: str, *, token: Token | None = None) -> UsageError:
        """Return the error for a token (default: the next one) where `wanted` was expected."""
        found = token or self.peek()
        if found.kind is TokenKind.END:
            where = f"Cannot read the {self._what} {_shown(self.text, found.start)}:"
            return UsageError(f"{where} it ends where {wanted} is expected. Complete it.")
        why = f"where {wanted} is expected"
        return self.wrong(found, f"found {found.text!r}", why, self._advice, kind=self._unexpected)

    def wrong(
        self,
        token: Token,
        subject: str,
        why: str,
        advice: str,
        *,
        kind: type[UsageError] = UsageError,
    ) -> UsageError:
        """Return the error for a token, with its position.

        Args:
            token: the token.
            subject: the subject of the sentence; the token's position follows it.
            why: what is wrong, beginning with a verb.
            advice: the advice for the user.
            kind: the class of the error.
        """
        where = f"Cannot read the {self._what} {_shown(self.text, token.start)}:"
        return kind(f"{where} {subject} at position {token.start + 1} {why}. {advice}")

    def about(self, token: Token, error: UsageError) -> UsageError:  # noqa: ARG002
        """Return the error about a token's meaning; subclasses add its position."""
        return error

    def _broken(self, token: Token) -> UsageError:
        match token.kind:
            case TokenKind.OPEN_QUOTE:
                subject, advice = f"the quote {token.text}", "Close it."
                return self.wrong(token, subject, "is not closed", advice)
            case TokenKind.OPEN_COMMENT:
                return self.wrong(token, "the comment", "is not closed", "End it with */.")
            case _:
                why = f"has bytes that are not UTF-8 ({token.value})"
                advice = "Write it as unhex('...')."
                return self.wrong(token, "the text", why, advice, kind=UnsupportedError)
