"""Recognizes ClickHouse's statements about partitions by their first words.

Statements that Spark or Iceberg accept are left to them (docs/reference/spark-sql.md):
`DROP PARTITION (p = 1)`, `DROP PARTITION FIELD`, and UPDATE and DELETE FROM without IN PARTITION.
Only the necessary part of the text is split into tokens.
"""

from __future__ import annotations

from typing import Final

from spark_ext.sql.statement_reader import name_stop
from spark_ext.sql.statements import READERS
from tableformat.mergetree.sql_tokens import BROKEN, Token, TokenKind, scan

__all__ = ["SHARED", "is_partition_statement"]

SHARED: Final = frozenset(("DROP", "REPLACE"))
"""The first words of commands that Spark and Iceberg have too, followed by other words."""

_OURS_ALONE: Final = tuple(verb for verb in READERS if verb not in SHARED)
_ENDS: Final = (TokenKind.END, *BROKEN)


def is_partition_statement(text: str) -> bool:
    """Whether a text begins like one of ClickHouse's statements about partitions.

    This includes malformed statements, so that the user gets mergeberg's syntax error and not
    Spark's.
    """
    ahead = _Lookahead(text)
    if ahead.words("ALTER"):
        ahead.words("TEMPORARY")
        return ahead.words("TABLE") and ahead.table() and _is_command(ahead)
    if ahead.words("OPTIMIZE", "TABLE") or ahead.words("KILL", "QUERY"):
        return True
    if ahead.words("DELETE"):
        return ahead.words("FROM") and ahead.table() and ahead.words("IN", "PARTITION")
    return ahead.words("UPDATE") and ahead.table() and ahead.words("SET") and ahead.partition()


def _is_command(ahead: _Lookahead) -> bool:
    ahead.symbol("(")
    if ahead.peek().is_word(*_OURS_ALONE):
        return True
    if not ahead.peek().is_word(*SHARED):
        return False
    is_drop = ahead.take().is_word("DROP")
    if ahead.peek().is_word("PART", "DETACHED"):
        return True
    if not ahead.words("PARTITION") or ahead.peek().is_word("FIELD"):
        return False
    return not (is_drop and _is_spec(ahead))


def _is_spec(ahead: _Lookahead) -> bool:
    """Whether `(column = ` comes next, which is Spark's notation of a partition."""
    column, after = ahead.peek(1), ahead.peek(2)
    named = column.kind in (TokenKind.WORD, TokenKind.QUOTED)
    return ahead.peek().is_symbol("(") and named and after.is_symbol("=")


class _Lookahead:
    """The tokens of a text, scanned only as far as they are needed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = scan(text)
        self._cut: list[Token] = []

    def peek(self, offset: int = 0) -> Token:
        while len(self._cut) <= offset:
            token = next(self._tokens, None)
            if token is None:
                return self._cut[-1]
            self._cut.append(token)
        return self._cut[offset]

    def take(self) -> Token:
        token = self.peek()
        if token.kind not in _ENDS:
            del self._cut[0]
        return token

    def words(self, *words: str) -> bool:
        found = all(self.peek(i).is_word(word) for i, word in enumerate(words))
        for _ in words if found else ():
            self.take()
        return found

    def symbol(self, symbol: str) -> bool:
        found = self.peek().is_symbol(symbol)
        if found:
            self.take()
        return found

    def table(self) -> bool:
        """Take a table's name and ON CLUSTER; a parameter in their place is refused later."""
        if not self._part():
            return False
        while self.symbol("."):
            if not self._part():
                return False
        if not self.words("ON", "CLUSTER"):
            return True
        if self.peek().kind is TokenKind.STRING:
            self.take()
            return True
        return self._part()

    def partition(self) -> bool:
        """Whether IN PARTITION occurs in the rest, outside of brackets."""
        depth = 0
        while (token := self.take()).kind not in _ENDS:
            depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
            if depth == 0 and token.is_word("IN") and self.peek().is_word("PARTITION"):
                return True
        return False

    def _part(self) -> bool:
        if self.symbol("{"):
            while (token := self.take()).kind not in _ENDS:
                if token.is_symbol("}"):
                    return True
            return False
        stop = name_stop(self._text, self.peek())
        while stop is not None and self.peek().start < stop:
            self.take()
        return stop is not None
