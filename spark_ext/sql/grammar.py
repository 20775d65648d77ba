"""Parses ClickHouse's statements about partitions: `parse_statement`.

It parses ALTER TABLE, OPTIMIZE TABLE, KILL QUERY, UPDATE and DELETE FROM, with the commands of
ALTER TABLE on partitions, parts and their rows. The accepted forms are those of ClickHouse's own
parser, and tests compare the two; docs/reference/statements/parser.md lists the differences and
reasons.

`statements.READERS` has the functions that read commands; `clauses` reads shared clauses.
"""

from __future__ import annotations

import difflib
from typing import Final

from spark_ext.sql.clauses import (
    TABLE,
    Deduplicate,
    read_assignments,
    read_deduplicate_by,
    read_end,
    read_ending,
    read_in_partition,
    read_partition,
    read_settings,
    read_where,
)
from spark_ext.sql.recognition import is_partition_statement
from spark_ext.sql.statement_reader import StatementReader, shown
from spark_ext.sql.statements import (
    READERS,
    Alter,
    ChangeRows,
    Command,
    Delete,
    KillMode,
    KillQuery,
    Optimize,
    Statement,
    Update,
)
from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.sql_tokens import Token

__all__ = ["parse_statement", "syntax_error_of"]


def _command(reader: StatementReader) -> Command:
    """Read one command.

    Raises:
        UsageError: it is not a command about partitions, or is malformed.
        UnsupportedError: ClickHouse accepts it, and mergeberg does not support it.
    """
    verb = reader.peek()
    read = READERS.get(verb.text.upper()) if verb.is_word(*READERS) else None
    if read is None:
        raise reader.syntax_error(f"a command about partitions ({', '.join(READERS)})")
    reader.take()
    return read(reader)


_VERBS: Final = ("ALTER", "OPTIMIZE", "KILL", "UPDATE", "DELETE")
_OF_OPTIMIZE: Final = ("PARTITION", "FINAL", "DEDUPLICATE")


def parse_statement(text: str) -> Statement | None:
    """Parse one statement; return None if it does not begin like one that mergeberg runs.

    Raises:
        UsageError: the statement is malformed; the message points at the token.
        UnsupportedError: ClickHouse accepts the statement, and mergeberg does not support it.
    """
    return _read(StatementReader(text)) if is_partition_statement(text) else None


def syntax_error_of(text: str) -> UsageError | None:
    """Return the syntax error of a text that `parse_statement` does not recognize, if there is one.

    For interfaces without another SQL parser. A first word that resembles a verb counts as a typing
    error. None if the first word is another one, or if the text can be parsed.
    """
    try:
        reader = StatementReader(text)
        first = reader.peek()
        if not first.is_word(*_VERBS):
            is_near = difflib.get_close_matches(first.text.upper(), _VERBS, n=1, cutoff=0.7)
            return reader.syntax_error(", ".join(_VERBS)) if is_near else None
        _read(reader)
    except UsageError as error:
        return error
    return None


def _read(reader: StatementReader) -> Statement:
    first = reader.take()
    if first.is_word("ALTER"):
        return _alter(reader)
    if first.is_word("OPTIMIZE"):
        return _optimize(reader)
    if first.is_word("KILL"):
        return _kill(reader)
    return _change_rows(reader, is_update=first.is_word("UPDATE"))


def _alter(reader: StatementReader) -> Alter:
    is_temporary = reader.accept_word("TEMPORARY")
    reader.expect_word("TABLE")
    table = reader.name(TABLE)
    cluster = reader.cluster()
    commands = _commands(reader)
    return Alter(table, commands, cluster, read_ending(reader, "','"), is_temporary)


def _commands(reader: StatementReader) -> tuple[Command, ...]:
    """Read commands with commas between them, all of them in brackets or none."""
    in_brackets = reader.peek().is_symbol("(")
    found: list[Command] = []
    while True:
        if in_brackets:
            reader.expect("(")
        found.append(_command(reader))
        if in_brackets:
            reader.expect(")")
        if not reader.accept(","):
            return tuple(found)


def _change_rows(reader: StatementReader, *, is_update: bool) -> ChangeRows:
    if not is_update:
        reader.expect_word("FROM")
    table = reader.name(TABLE)
    cluster = reader.cluster()
    if is_update:
        reader.expect_word("SET")
    assignments = read_assignments(reader) if is_update else ()
    partition = read_in_partition(reader)
    where = read_where(reader)
    settings = read_settings(reader)
    read_end(reader, "','" if settings else "SETTINGS")
    command = Update(assignments, where, partition) if is_update else Delete(where, partition)
    return ChangeRows(table, command, cluster, settings)


def _optimize(reader: StatementReader) -> Optimize:
    reader.expect_word("TABLE")
    table = reader.name(TABLE)
    cluster = reader.cluster()
    partition = read_partition(reader) if reader.accept_word("PARTITION") else None
    final = reader.accept_word("FINAL") or reader.accept_word("FORCE")
    deduplicate = _deduplicate(reader) if reader.accept_word("DEDUPLICATE") else None
    if reader.peek().is_word("CLEANUP", "MANIFEST"):
        token = reader.peek()
        why = "has no meaning for a lake table"
        raise reader.wrong(token, shown(token), why, "Leave it out.", kind=UnsupportedError)
    given = (partition is not None, final, deduplicate is not None)
    # The clauses have a fixed order, so that only those after the last one can still come.
    last = max((i + 1 for i, there in enumerate(given) if there), default=0)
    ending = read_ending(reader, *_OF_OPTIMIZE[last:])
    return Optimize(table, partition, final, deduplicate, cluster, ending)


def _deduplicate(reader: StatementReader) -> Deduplicate:
    return read_deduplicate_by(reader) if reader.accept_word("BY") else Deduplicate()


def _kill(reader: StatementReader) -> KillQuery:
    reader.expect_word("QUERY")
    cluster = reader.cluster()
    reader.expect_word("WHERE")
    first = reader.peek()
    query_ids = _query_ids(reader, first, ExpressionParser(reader).one())
    mode, missing = None, tuple(each.value for each in KillMode)
    if reader.peek().is_word(*missing):
        mode, missing = KillMode(reader.take().text.upper()), ()
    return KillQuery(query_ids, mode or KillMode.ASYNC, cluster, read_ending(reader, *missing))


def _query_ids(reader: StatementReader, first: Token, where: Expression) -> tuple[str, ...]:
    """Return the query ids of a condition.

    Raises:
        UnsupportedError: the condition tests anything else than the query id.
    """
    column = ColumnName("query_id")
    match where:
        case Call("equals", (of, Literal(str(one)))) if of == column:
            return (one,)
        case Call("equals", (Literal(str(one)), of)) if of == column:
            return (one,)
        case Call("in", (of, Literal(str(one)))) if of == column:
            return (one,)
        case Call("in", (of, Call("tuple", members))) if of == column and members:
            ids = tuple(m.value for m in members if isinstance(m, Literal))
            texts = tuple(one for one in ids if isinstance(one, str))
            if len(texts) == len(members):
                return texts
        case Call("or", of_these):
            return tuple(one for each in of_these for one in _query_ids(reader, first, each))
        case _:
            pass
    raise _not_by_id(reader, first)


def _not_by_id(reader: StatementReader, token: Token) -> UsageError:
    why = "begins a condition that is not about query_id alone"
    advice = "Write WHERE query_id = '…', or WHERE query_id IN ('…', '…')."
    return reader.wrong(token, shown(token), why, advice, kind=UnsupportedError)
