"""Parses ClickHouse's statements about partitions, and renders them as SQL.

`parse_statement(render_statement(s))` equals `s` for every statement. It parses ALTER TABLE,
OPTIMIZE TABLE, KILL QUERY, UPDATE and DELETE FROM, with the commands of ALTER TABLE on partitions,
parts and their rows. The accepted forms are those of ClickHouse's own parser, and tests compare the
two; docs/reference/statements/parser.md lists the differences and reasons.

`statements.READERS` has the functions that read commands; `clauses` reads shared clauses.

`is_partition_statement` recognizes the statements by their first words, and splits only the
necessary part of a text into tokens. Statements that Spark or Iceberg accept are left to them
(docs/reference/spark-sql.md): `DROP PARTITION (p = 1)`, `DROP PARTITION FIELD`, and UPDATE and
DELETE FROM without IN PARTITION.

A rendered statement is one line. ClickHouse's own parser reads it as the same statement, except for
forms that only mergeberg has (EXPORT, names of three parts).
"""

from __future__ import annotations

import difflib
from typing import Final, assert_never

from spark_ext.sql.clauses import (
    TABLE,
    Deduplicate,
    Ending,
    Outfile,
    Setting,
    read_assignments,
    read_deduplicate_by,
    read_end,
    read_ending,
    read_in_partition,
    read_partition,
    read_settings,
    read_where,
    render_clause,
)
from spark_ext.sql.statement_reader import DottedName, StatementReader, name_stop, shown
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
from tableformat.mergetree.expression import (
    Call,
    ColumnName,
    Expression,
    Literal,
    render_expression,
)
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.sql_tokens import BROKEN, Token, TokenKind, scan
from tableformat.names import quote_identifier, quote_string

__all__ = [
    "SHARED",
    "is_partition_statement",
    "parse_statement",
    "render_deduplicate",
    "render_statement",
    "syntax_error_of",
]


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


def render_statement(statement: Statement) -> str:
    """Return the statement as SQL, on one line."""
    match statement:
        case Alter(table, commands, cluster, ending, is_temporary):
            # Brackets keep the commas of one command from those between commands.
            each = [str(command) for command in commands]
            body = ", ".join(f"({one})" for one in each) if len(each) > 1 else each[0]
            verb = "ALTER TEMPORARY TABLE" if is_temporary else "ALTER TABLE"
            return _joined(verb, str(table), _cluster(cluster), body, _ending(ending))
        case ChangeRows(table, command, cluster, settings):
            return _rendered_change(table, command, cluster, settings)
        case Optimize():
            return _rendered_optimize(statement)
        case KillQuery(query_ids, mode, cluster, ending):
            ids = [quote_string(one) for one in query_ids]
            where = f"= {ids[0]}" if len(ids) == 1 else f"IN ({', '.join(ids)})"
            how = f"WHERE query_id {where} {mode.value}"
            return _joined("KILL QUERY", _cluster(cluster), how, _ending(ending))
        case _:
            assert_never(statement)


def _joined(*pieces: str) -> str:
    return " ".join(piece for piece in pieces if piece)


def _cluster(cluster: str | None) -> str:
    return "" if cluster is None else f"ON CLUSTER {quote_string(cluster)}"


def _rows(command: Update | Delete) -> str:
    where = f"WHERE {render_expression(command.where)}"
    return where if command.partition is None else f"IN {render_clause(command.partition)} {where}"


def _rendered_change(
    table: DottedName,
    command: Update | Delete,
    cluster: str | None,
    settings: tuple[Setting, ...],
) -> str:
    rows, given = _rows(command), _settings(settings)
    if isinstance(command, Delete):
        return _joined("DELETE FROM", str(table), _cluster(cluster), rows, given)
    assigned = f"SET {render_clause(command.assignments)}"
    return _joined("UPDATE", str(table), _cluster(cluster), assigned, rows, given)


def _rendered_optimize(statement: Optimize) -> str:
    return _joined(
        "OPTIMIZE TABLE",
        str(statement.table),
        _cluster(statement.cluster),
        render_clause(statement.partition),
        "FINAL" if statement.final else "",
        "" if statement.deduplicate is None else render_deduplicate(statement.deduplicate),
        _ending(statement.ending),
    )


def render_deduplicate(by: Deduplicate) -> str:
    """Return the DEDUPLICATE clause of OPTIMIZE TABLE."""
    if by.star:
        names = ", ".join(_name(column) for column in by.without)
        return f"DEDUPLICATE BY * EXCEPT ({names})" if names else "DEDUPLICATE BY *"
    names = ", ".join(_name(column) for column in by.columns)
    return f"DEDUPLICATE BY {names}" if names else "DEDUPLICATE"


def _ending(ending: Ending) -> str:
    outfile = "" if ending.outfile is None else _outfile(ending.outfile)
    form = "" if ending.format is None else f"FORMAT {_name(ending.format)}"
    return _joined(outfile, form, _settings(ending.settings))


def _outfile(outfile: Outfile) -> str:
    compression = outfile.compression
    return _joined(
        f"INTO OUTFILE {quote_string(outfile.path)}",
        "TRUNCATE" if outfile.truncate else "",
        "APPEND" if outfile.append else "",
        "AND STDOUT" if outfile.stdout else "",
        "" if compression is None else f"COMPRESSION {quote_string(compression)}",
        "" if outfile.level is None else f"LEVEL {outfile.level}",
    )


def _settings(settings: tuple[Setting, ...]) -> str:
    each = ", ".join(f"{_setting_name(setting)} = {_value(setting)}" for setting in settings)
    return f"SETTINGS {each}" if each else ""


def _setting_name(setting: Setting) -> str:
    plain = all(_name(part) == part for part in setting.name.split("."))
    return setting.name if plain else quote_identifier(setting.name)


def _value(setting: Setting) -> str:
    return "DEFAULT" if setting.value is None else render_expression(Literal(setting.value))


def _name(name: str) -> str:
    return str(DottedName((name,)))
