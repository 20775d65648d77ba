"""Reads the tokens of a statement, and builds syntax errors that point at a token.

It reads names, strings and sequences of words. A syntax error has the token, its line and column,
the line itself with a caret below, and the expected words.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from catalog.network import without_secret
from tableformat.clickhouse_codes import SYNTAX_ERROR
from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.sql_tokens import Token, TokenKind, TokenReader
from tableformat.names import names_secret, quote_identifier, shown_location

__all__ = ["DottedName", "StatementReader", "name_stop", "shown", "shown_statement"]

_SHOWN: Final = 100
_BEFORE: Final = 60
_LONGEST_TOKEN: Final = 40
_NUMBER_LED: Final = re.compile(r"[0-9][A-Za-z0-9_$]*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# After these a `?` stands for a value; elsewhere it is the operator `? :`.
_BEFORE_VALUE: Final = ("PARTITION", "PART", "ID", "WHERE", "TABLE", "FROM", "NAME")
_IN_QUOTES: Final = (TokenKind.STRING, TokenKind.QUOTED)
_KEYWORD: Final = re.compile(r"\b[A-Z]{3,}\b")
_UNREAD: Final = ("SELECT",)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

# Parts of a statement of any form, also one that cannot be read, which may have a secret. None
# begins inside of a word, so that a long text is searched once.
_MAY_BE_SECRET: Final = re.compile(
    r"""(?P<quoted>(?<=')(?:hive:)?[a-z][a-z0-9+.-]*://[^']*)"""
    r"""|(?P<address>(?<![a-z0-9+.-])(?:hive:)?[a-z][a-z0-9+.-]*://[^\s'"`]*)"""
    r"""|(?P<call>\b(?:s3|gcs|oss|cosn|azureBlobStorage|hdfs|url|iceberg|deltaLake|remote|mysql"""
    r"""|postgresql)\w*\s*\()(?P<arguments>[^()]*)"""
    r"""|(?<![\w.-])(?P<name>[\w.-]+)(?P<equals>\s*=\s*)(?P<value>'(?:[^'\\]|\\.)*'?|[^\s,;()'"=]+)""",
    re.DOTALL | re.IGNORECASE,
)
_OF_WEB: Final = ("http://", "https://")
_HIDDEN: Final = "'…'"
_QUOTES: Final = 2
"""The quotes of one text."""
_SETTINGS: Final = re.compile(r"\bSETTINGS\b", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class DottedName:
    """The unquoted parts of a name: `t`, `db.t`, `ch.db.t`, `lake.ns.t`, a column `n.a`.

    `spark_ext.sql.names` resolves it to a table.
    """

    parts: tuple[str, ...]

    def __str__(self) -> str:
        """Return the name as SQL."""
        return ".".join(p if _PLAIN.match(p) else quote_identifier(p) for p in self.parts)


def shown_statement(text: str) -> str:
    """Return a statement, or a part of one, as messages show it: without secrets.

    It works for texts that cannot be read. Addresses lose their logins and signatures, and settings
    whose names are those of secrets their values.
    """
    return _masked(text)[0]


def _masked(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a text without secrets, and where it is shorter: each end, and by how much."""
    begun = _SETTINGS.search(text)
    settings = len(text) if begun is None else begun.end()
    pieces, shorter, at, position = list[str](), list[tuple[int, int]](), 0, 0
    while found := _MAY_BE_SECRET.search(text, position):
        new = _without_secrets(found, is_setting=found.start() >= settings)
        if new is None:
            # An address may be inside.
            position = found.start("value" if found["name"] else "arguments")
            continue
        position = found.end()
        if new != found[0]:
            pieces += (text[at : found.start()], new)
            shorter.append((position, len(found[0]) - len(new)))
            at = position
    return "".join((*pieces, text[at:])), tuple(shorter)


def _without_secrets(found: re.Match[str], *, is_setting: bool) -> str | None:
    """Return a part of a statement without its secrets; None if it is no such part as a whole."""
    if found["call"] is not None:
        # Arguments of a table function have no names, and keys follow the address.
        has_keys = found["arguments"].count("'") > _QUOTES
        return f"{found['call']}…" if has_keys else None
    if found["name"] is not None:
        is_secret = is_setting and names_secret(found["name"])
        return f"{found['name']}{found['equals']}{_HIDDEN}" if is_secret else None
    address = found["quoted"] or found["address"]
    is_of_web = address.lower().startswith(_OF_WEB)
    return without_secret(address) if is_of_web else shown_location(address)


def name_stop(text: str, token: Token) -> int | None:
    """Return the end of the name part that begins with a token; None if none begins there.

    As in ClickHouse, an unquoted name may begin with a digit, if it is not a number.
    """
    if token.kind in (TokenKind.WORD, TokenKind.QUOTED):
        return token.stop
    if token.kind is not TokenKind.NUMBER:
        return None
    found = _NUMBER_LED.match(text, token.start)
    return found.end() if found and found.end() > token.stop else None


class StatementReader(TokenReader):
    """A reader over the tokens of one statement, or of another text that `what` names."""

    def __init__(self, text: str, what: str = "statement") -> None:
        super().__init__(text, what, advice="")

    def accept_words(self, *words: str) -> bool:
        """Take the next tokens if they are these words; return whether they are.

        The words are in upper case. If one is missing, no token is taken.
        """
        found = all(self.peek(i).is_word(word) for i, word in enumerate(words))
        for _ in words if found else ():
            self.take()
        return found

    def expect_word(self, word: str) -> Token:
        """Take the next token, which must be this word.

        Raises:
            UsageError: it is another token.
        """
        if not self.peek().is_word(word):
            raise self.syntax_error(word)
        return self.take()

    def identifier(self, wanted: str) -> str:
        """Take one part of a name: in backticks, in double quotes or unquoted.

        Raises:
            UsageError: no name comes next, or it is empty.
        """
        token = self.peek()
        stop = name_stop(self.text, token)
        if stop is None:
            raise self.syntax_error(wanted)
        self.skip_to(stop)
        if token.kind is not TokenKind.QUOTED:
            return self.text[token.start : stop]
        if not token.value:
            raise self.wrong(token, "the name", "is empty", "Write a name between the quotes.")
        return token.value

    def name(self, wanted: str) -> DottedName:
        """Take a name of one or several parts with dots between them.

        Raises:
            UsageError: no name comes next, or a part is missing or empty.
        """
        parts = [self.identifier(wanted)]
        while self.accept("."):
            parts.append(self.identifier("the next part of the name"))
        return DottedName(tuple(parts))

    def string(self, wanted: str) -> str:
        """Take a text in single quotes.

        Raises:
            UsageError: no such text comes next.
        """
        return self.expect_kind(TokenKind.STRING, wanted).value

    def filled(self, wanted: str) -> str:
        """Take a text in single quotes that is not empty.

        Raises:
            UsageError: no such text comes next, or it is empty.
        """
        token = self.expect_kind(TokenKind.STRING, wanted)
        if not token.value:
            raise self.wrong(token, "the name", "is empty", "Write a name between the quotes.")
        return token.value

    def cluster(self) -> str | None:
        """Take ON CLUSTER and the name of the cluster, if they come next.

        Raises:
            UsageError: the name is missing or empty.
        """
        if not self.accept_words("ON", "CLUSTER"):
            return None
        if self.peek().kind is TokenKind.STRING:
            return self.filled("the name of a cluster")
        return self.identifier("the name of a cluster")

    def syntax_error(self, wanted: str, *, token: Token | None = None) -> UsageError:
        """Return the error for a token (default: the next one) where `wanted` is expected."""
        found = token or self.peek()
        expected = f"{wanted[:1].upper()}{wanted[1:]} is expected."
        if found.kind is TokenKind.END:
            return self.wrong(found, "it ends", "", expected)
        before = self.tokens[max(0, self.position - 1)]
        if before.is_word(*_UNREAD):
            why = "begins what cannot be read here, a subquery"
            advice = "Write values, columns, operators and functions."
            return self.wrong(before, shown(before), why, advice, kind=UnsupportedError)
        if (parameter := self._parameter(found)) is not None:
            why = "is a query parameter, which is not supported here"
            return self.wrong(found, f"{_shortened(parameter)!r}", why, "Write the value itself.")
        return self.wrong(found, f"found {shown(found)}", "", _meant(found, wanted) + expected)

    def wrong(
        self,
        token: Token,
        subject: str,
        why: str,
        advice: str,
        *,
        kind: type[UsageError] = UsageError,
    ) -> UsageError:
        """Return the error for a token, with its line and a caret.

        Args:
            token: the token.
            subject: the subject of the sentence; line and column follow it.
            why: the fault, beginning with a verb; empty if `subject` describes it already.
            advice: a sentence on what to do, or on what is expected.
            kind: the class of the error.
        """
        begin = self.text.rfind("\n", 0, token.start) + 1
        end = self.text.find("\n", token.start)
        column = token.start - begin
        where = f"line {self.text.count(chr(10), 0, begin) + 1}, column {column + 1}"
        line, shorter = _masked(self.text[begin : len(self.text) if end == -1 else end])
        column = max(0, column - sum(by for stop, by in shorter if begin + stop <= token.start))
        first = max(0, column - _BEFORE) if len(line) > _SHOWN else 0
        seen = _CONTROL.sub(" ", line[first : first + _SHOWN])
        head, tail = "…" if first else "", "…" if len(line) > first + _SHOWN else ""
        caret = " " * (len(head) + column - first) + "^"
        fault = f"Cannot read the {self._what}: {subject} at {where}{why and ' '}{why}:"
        code = SYNTAX_ERROR if kind is UsageError else None
        return kind(f"{fault}\n  {head}{seen}{tail}\n  {caret}\n{advice}", code=code)

    def about(self, token: Token, error: UsageError) -> UsageError:
        """Return an error about the meaning of a token, with the token's position."""
        return self.wrong(token, shown(token), "cannot be used", error.message, kind=type(error))

    def _parameter(self, token: Token) -> str | None:
        """Return the query parameter that begins with a token: `{name:Type}`, `:name` or `?`."""
        if token.is_symbol("{"):
            return self.text[token.start : self.text.find("}", token.start) + 1] or token.text
        if token.is_symbol(":"):
            found = _NAME.match(self.text, token.stop)
            return f":{found[0]}" if found else None
        before = self.tokens[self.position - 1] if self.position else None
        is_marker = (
            before is None or before.is_symbol("(", ",", "=") or before.is_word(*_BEFORE_VALUE)
        )
        return token.text if token.is_symbol("?") and is_marker else None


def _meant(found: Token, wanted: str) -> str:
    """Return "Did you mean PARTITION? " if the word resembles an expected one, else ''."""
    if found.kind is not TokenKind.WORD:
        return ""
    near = difflib.get_close_matches(found.text.upper(), _KEYWORD.findall(wanted), n=1, cutoff=0.7)
    return f"Did you mean {near[0]}? " if near else ""


def shown(token: Token) -> str:
    """Return a token for a message, in quotes and shortened."""
    text = _shortened(shown_statement(token.text))
    return text if token.kind in _IN_QUOTES and text.isprintable() else repr(text)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TOKEN else text[: _LONGEST_TOKEN - 1] + "…"
