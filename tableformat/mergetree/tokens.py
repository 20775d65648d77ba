"""A reader over the tokens of ClickHouse SQL, for the text forms of this package.

Owns how a text is walked over, how deep it may be nested, and how a complaint tells what is wrong
where. What tokens are is decided by `scanner`, what they mean by `type_text`, `expression_parser`,
`engine_text` and the grammar of statements.
"""

from __future__ import annotations

from typing import Final

from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.scanner import BROKEN, Token, TokenKind, scan

__all__ = ["Token", "TokenKind", "TokenReader", "tokenize"]

_SHOWN: Final = 120
_AROUND: Final = 50
_DEEPEST: Final = 100


def tokenize(text: str, what: str) -> tuple[Token, ...]:
    """Cut a text into tokens; the last one is END. Comments and white space are left out.

    Args:
        text: ClickHouse SQL.
        what: what the text is, for messages, e.g. "type".

    Raises:
        UsageError: a quote or a comment is not closed.
        UnsupportedError: hexadecimal escapes give bytes that are not UTF-8.
    """
    return TokenReader(text, what, advice="").tokens


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
        self._at = 0
        self._depth = 0
        self._unexpected = unexpected
        self._advice = advice
        self.tokens = tuple(scan(text))
        if self.tokens[-1].kind in BROKEN:
            raise self._broken(self.tokens[-1])

    def peek(self, offset: int = 0) -> Token:
        """Return the token that comes next, or the one `offset` after it, without taking it."""
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
        """Take the next token if it is this symbol, and tell whether it was."""
        found = self.peek().is_symbol(symbol)
        if found:
            self.take()
        return found

    def accept_word(self, *words: str) -> bool:
        """Take the next token if it is one of these (in capitals), and tell whether it was."""
        found = self.peek().is_word(*words)
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
            why = f"is nested deeper than {_DEEPEST} levels"
            raise self.wrong(self.peek(), "what stands", why, "Simplify it.")

    def come_back(self, levels: int = 1) -> None:
        """End as many levels of nesting as `go_deeper` began."""
        self._depth -= levels

    def skip_to(self, position: int) -> None:
        """Take every token that begins before a position of the text."""
        while self.peek().start < position:
            self.take()

    def complaint(self, wanted: str, *, token: Token | None = None) -> UsageError:
        """Return the error about a token (default: the next one) where `wanted` was due."""
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
        """Return the error that says what is wrong with a token, and where it stands.

        Args:
            token: the token.
            subject: what the sentence is about; the token's position follows it.
            why: what is wrong, beginning with a verb.
            advice: what to do.
            kind: the class of the error.
        """
        where = f"Cannot read the {self._what} {_shown(self.text, token.start)}:"
        return kind(f"{where} {subject} at position {token.start + 1} {why}. {advice}")

    def about(self, token: Token, error: UsageError) -> UsageError:  # noqa: ARG002
        """Return the error about what a token means, told where it stands if that is not clear."""
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
