"""Parses ClickHouse's statements about partitions: `parse_statement`.

It parses ALTER TABLE, OPTIMIZE TABLE, KILL QUERY, UPDATE and DELETE FROM, with the commands of
ALTER TABLE on partitions, parts and their rows. The accepted forms are those of ClickHouse's own
parser, and tests compare the two; docs/reference/statements/parser.md lists the differences and
reasons.

ALL is accepted where ClickHouse executes it, and after EXPORT. In the other commands ClickHouse
parses ALL and refuses to run it (P-71), so it is refused here with the same message and code.

A statement ends as in ClickHouse: INTO OUTFILE first, then FORMAT and SETTINGS in either order,
then `;`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Final

from spark_ext.sql.recognition import is_ours
from spark_ext.sql.statement_reader import StatementReader, shown
from spark_ext.sql.statements import (
    Alter,
    Attach,
    AttachFrom,
    ChangeRows,
    ClearColumn,
    ClearIndex,
    Command,
    Deduplicate,
    Delete,
    Detach,
    DottedName,
    Drop,
    DropDetached,
    Ending,
    Export,
    Fetch,
    Forget,
    Freeze,
    KillMode,
    KillQuery,
    MoveToDisk,
    MoveToTable,
    MoveToVolume,
    Optimize,
    Outfile,
    ReplaceFrom,
    Setting,
    SettingValue,
    Statement,
    Target,
    Unfreeze,
    Update,
)
from tableformat.clickhouse_codes import SUPPORT_IS_DISABLED
from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.partition_literal import (
    All,
    PartitionLiteral,
    read_part_literal,
    read_partition_literal,
)
from tableformat.mergetree.sql_tokens import Token, TokenKind
from tableformat.names import PartName

__all__ = [
    "parse_statement",
    "read_assignments",
    "read_command",
    "read_deduplicate_by",
    "read_end",
    "read_ending",
    "read_in_partition",
    "read_partition",
    "read_settings",
    "read_where",
    "what_is_wrong",
]

_TARGET: Final = "PARTITION or PART"


def read_command(reader: StatementReader) -> Command:
    """Read one command.

    Raises:
        UsageError: it is none of those about partitions, or malformed.
        UnsupportedError: ClickHouse has it and it has no meaning here.
    """
    verb = reader.peek()
    read = _COMMANDS.get(verb.text.upper()) if verb.is_word(*_COMMANDS) else None
    if read is None:
        raise reader.syntax_error(f"a command about partitions ({', '.join(_COMMANDS)})")
    reader.take()
    return read(reader)


def read_partition(reader: StatementReader, *, every: bool = False) -> PartitionLiteral:
    """Read what stands after PARTITION.

    Args:
        reader: the reader.
        every: whether ALL may stand there.

    Raises:
        UsageError: it names no partition.
        UnsupportedError: it is ALL, and may not be.
    """
    token = reader.peek()
    literal = read_partition_literal(reader)
    if isinstance(literal, All) and not every:
        why = "cannot stand here"
        advice = (
            "Only support DROP/DETACH/ATTACH PARTITION ALL currently, and EXPORT PARTITION ALL. "
            "Name one partition, and repeat the command for others."
        )
        error = reader.wrong(token, "'ALL'", why, advice)
        raise UnsupportedError(error.message, code=SUPPORT_IS_DISABLED)
    return literal


def read_in_partition(reader: StatementReader) -> PartitionLiteral | None:
    """Read IN PARTITION and the partition, if they stand next.

    Raises:
        UsageError: as `read_partition`.
        UnsupportedError: as `read_partition`.
    """
    return read_partition(reader) if reader.accept_words("IN", "PARTITION") else None


def read_where(reader: StatementReader) -> Expression:
    """Read WHERE and the condition, which must stand next.

    Raises:
        UsageError: they do not, or the condition cannot be read.
    """
    reader.expect_word("WHERE")
    return ExpressionParser(reader).one()


def read_assignments(reader: StatementReader) -> tuple[tuple[str, Expression], ...]:
    """Read `column = value, …`.

    Raises:
        UsageError: one of them is malformed.
    """
    found = [_assignment(reader)]
    while reader.accept(","):
        found.append(_assignment(reader))
    return tuple(found)


def _assignment(reader: StatementReader) -> tuple[str, Expression]:
    column = reader.identifier("the name of a column")
    if not reader.peek().is_symbol("=", "=="):
        raise reader.syntax_error("'='")
    reader.take()
    return column, ExpressionParser(reader).one()


def _target(reader: StatementReader, *, every: bool = False) -> Target:
    if reader.accept_word("PART"):
        return read_part_literal(reader)
    if reader.accept_word("PARTITION"):
        return read_partition(reader, every=every)
    raise reader.syntax_error(_TARGET)


def _only_partition(reader: StatementReader, *, every: bool = False) -> PartitionLiteral:
    reader.expect_word("PARTITION")
    return read_partition(reader, every=every)


def _export(reader: StatementReader) -> Export:
    of = _target(reader, every=True)
    reader.expect_word("TO")
    return Export(of, _to_table(reader))


def _to_table(reader: StatementReader) -> DottedName:
    reader.expect_word("TABLE")
    function = reader.peek()
    if function.is_word("FUNCTION") and reader.peek(2).is_symbol("("):
        advice = "Name a table, with its catalog and namespace: TO TABLE lake.analytics.events."
        raise _without_meaning(reader, function, "is a table function, and no table", advice)
    return reader.name(_TABLE)


def _attach(reader: StatementReader) -> Attach | AttachFrom:
    of = _target(reader, every=True)
    if isinstance(of, PartName) or not reader.accept_word("FROM"):
        return Attach(of)
    return AttachFrom(of, reader.name(_TABLE))


def _drop(reader: StatementReader) -> Drop | DropDetached:
    if not reader.accept_word("DETACHED"):
        return Drop(_target(reader, every=True))
    # ClickHouse's page writes `DROP DETACHED PARTITION|PART ALL|partition_expr`.
    if reader.accept_words("PART", "ALL"):
        return DropDetached(All())
    return DropDetached(_target(reader, every=True))


def _replace(reader: StatementReader) -> ReplaceFrom:
    partition = _only_partition(reader)
    reader.expect_word("FROM")
    return ReplaceFrom(partition, reader.name(_TABLE))


def _move(reader: StatementReader) -> MoveToTable | MoveToDisk | MoveToVolume:
    of = _target(reader)
    reader.expect_word("TO")
    if reader.accept_word("DISK"):
        return MoveToDisk(of, reader.string("the name of a disk in single quotes"))
    if reader.accept_word("VOLUME"):
        return MoveToVolume(of, reader.string("the name of a volume in single quotes"))
    if reader.peek().is_word("SHARD"):
        advice = "Name a table, a disk or a volume."
        raise _without_meaning(reader, reader.peek(), "is no place of a lake table", advice)
    if isinstance(of, PartName):
        raise reader.syntax_error("DISK or VOLUME")
    if not reader.peek().is_word("TABLE"):
        raise reader.syntax_error("TABLE, DISK or VOLUME")
    return MoveToTable(of, _to_table(reader))


def _freeze(reader: StatementReader) -> Freeze:
    partition = read_partition(reader) if reader.accept_word("PARTITION") else None
    return Freeze(partition, _backup(reader) if reader.peek().is_word("WITH") else None)


def _unfreeze(reader: StatementReader) -> Unfreeze:
    partition = read_partition(reader) if reader.accept_word("PARTITION") else None
    return Unfreeze(_backup(reader), partition)


def _backup(reader: StatementReader) -> str:
    reader.expect_word("WITH")
    reader.expect_word("NAME")
    return reader.filled("the name of a backup in single quotes")


def _fetch(reader: StatementReader) -> Fetch:
    of = _target(reader)
    reader.expect_word("FROM")
    return Fetch(of, reader.string("a path in single quotes"))


def _clear(reader: StatementReader) -> ClearColumn | ClearIndex:
    is_column = reader.accept_word("COLUMN")
    if not (is_column or reader.accept_word("INDEX")):
        raise reader.syntax_error("COLUMN or INDEX")
    if_exists = reader.accept_words("IF", "EXISTS")
    name = reader.name("the name of a column" if is_column else "the name of an index")
    partition = read_in_partition(reader)
    if is_column:
        return ClearColumn(name, partition, if_exists)
    return ClearIndex(name, partition, if_exists)


def _update(reader: StatementReader) -> Update:
    assignments = read_assignments(reader)
    partition = read_in_partition(reader)
    return Update(assignments, read_where(reader), partition)


def _delete(reader: StatementReader) -> Delete:
    partition = read_in_partition(reader)
    return Delete(read_where(reader), partition)


def _without_meaning(reader: StatementReader, token: Token, why: str, advice: str) -> UsageError:
    return reader.wrong(token, shown(token), why, advice, kind=UnsupportedError)


_COMMANDS: Final[Mapping[str, Callable[[StatementReader], Command]]] = {
    "EXPORT": _export,
    "DETACH": lambda reader: Detach(_target(reader, every=True)),
    "ATTACH": _attach,
    "DROP": _drop,
    "REPLACE": _replace,
    "MOVE": _move,
    "FORGET": lambda reader: Forget(_only_partition(reader)),
    "FREEZE": _freeze,
    "UNFREEZE": _unfreeze,
    "FETCH": _fetch,
    "CLEAR": _clear,
    "UPDATE": _update,
    "DELETE": _delete,
}


_VALUES: Final = ("TRUE", "FALSE", "INF", "INFINITY", "NAN")
_LONGEST_LEVEL: Final = 9
_VALUE: Final = "a number, a text in single quotes, true, false or DEFAULT"


def read_ending(reader: StatementReader, *wanted: str) -> Ending:
    """Read everything after the commands of a statement, to the end of the text.

    Args:
        reader: the reader.
        wanted: what could have stood there instead, for messages.

    Raises:
        UsageError: it is malformed, or comes in another order.
        UnsupportedError: it has two contradicting words.
    """
    outfile = _outfile(reader) if reader.accept_words("INTO", "OUTFILE") else None
    settings = read_settings(reader)
    form = reader.identifier("the name of a format") if reader.accept_word("FORMAT") else None
    more = bool(settings) and form is None
    if form is not None and not settings:
        settings = read_settings(reader)
        more = bool(settings)
    words = [] if outfile or form or settings else [*wanted, "INTO OUTFILE"]
    words += ["FORMAT"] if form is None else []
    words += [] if settings else ["SETTINGS"]
    read_end(reader, *(["','", *words] if more else words))
    return Ending(outfile, form, settings)


def read_end(reader: StatementReader, *wanted: str) -> None:
    """Check that nothing is left but semicolons.

    Args:
        reader: the reader.
        wanted: what else could have followed, for messages.

    Raises:
        UsageError: something is left.
    """
    ended = reader.accept(";")
    while reader.accept(";"):
        pass
    token = reader.peek()
    if token.kind is TokenKind.END:
        return
    if ended:
        why = "begins a second statement"
        raise reader.wrong(token, shown(token), why, "Give one statement at a time.")
    raise reader.syntax_error(f"{', '.join(wanted)} or the end" if wanted else "the end")


def read_settings(reader: StatementReader) -> tuple[Setting, ...]:
    """Read SETTINGS and what follows, if it stands next.

    Raises:
        UsageError: a name or a value is missing or malformed.
    """
    if not reader.accept_word("SETTINGS"):
        return ()
    found = [_setting(reader)]
    while reader.accept(","):
        found.append(_setting(reader))
    return tuple(found)


def _setting(reader: StatementReader) -> Setting:
    first = reader.peek()
    name = ".".join(reader.name("the name of a setting").parts)
    if reader.peek().is_symbol("=", "=="):
        reader.take()
        return Setting(name, _value(reader))
    if reader.peek().is_word("PART", "PARTITION"):
        why = "begins another command"
        advice = "SETTINGS stands once, at the end of the statement, and holds for all commands."
        raise reader.wrong(first, shown(first), why, advice)
    return Setting(name, value=True)


def _value(reader: StatementReader) -> SettingValue:
    if reader.accept_word("DEFAULT"):
        return None
    signed = reader.peek().is_symbol("-", "+")
    token = reader.peek(int(signed))
    is_number = token.kind is TokenKind.NUMBER or token.is_word(*_VALUES)
    if not is_number and (signed or token.kind is not TokenKind.STRING):
        raise reader.syntax_error(_VALUE)
    after = reader.peek(1 + int(signed))
    if after.kind is TokenKind.SYMBOL and not after.is_symbol(",", ";"):
        raise reader.syntax_error("',', FORMAT or the end", token=after)
    read = ExpressionParser(reader).one()
    if not isinstance(read, Literal):
        raise reader.syntax_error(_VALUE, token=token)
    return read.value


def _outfile(reader: StatementReader) -> Outfile:
    path = reader.string("the path of a file in single quotes")
    truncate = append = False
    while (token := reader.peek()).is_word("TRUNCATE", "APPEND"):
        reader.take()
        if truncate or append:
            why = "is a second word for what happens to a file that is there"
            advice = "Give one of TRUNCATE and APPEND."
            raise reader.wrong(token, shown(token), why, advice, kind=UnsupportedError)
        truncate, append = token.is_word("TRUNCATE"), token.is_word("APPEND")
    stdout = reader.accept_words("AND", "STDOUT")
    compression, level = None, None
    if reader.accept_word("COMPRESSION"):
        compression = reader.string("the name of a compression in single quotes")
        level = _level(reader) if reader.accept_word("LEVEL") else None
    return Outfile(path, truncate, append, stdout, compression, level)


def _level(reader: StatementReader) -> int:
    sign = -1 if reader.accept("-") else 1
    token = reader.expect_kind(TokenKind.NUMBER, "a level, a whole number,")
    if not (token.text.isdecimal() and len(token.text) <= _LONGEST_LEVEL):
        raise reader.syntax_error("a level, a whole number,", token=token)
    return sign * int(token.text)


_TABLE: Final = "the name of a table"
_VERBS: Final = ("ALTER", "OPTIMIZE", "KILL", "UPDATE", "DELETE")
_OF_OPTIMIZE: Final = ("PARTITION", "FINAL", "DEDUPLICATE")


def parse_statement(text: str) -> Statement | None:
    """Read one statement; None when it does not begin like one of ClickHouse's that are answered.

    Raises:
        UsageError: it begins like one and cannot be read; the message points at the token.
        UnsupportedError: ClickHouse would read it, and something in it has no meaning here.
    """
    return _read(StatementReader(text)) if is_ours(text) else None


def what_is_wrong(text: str) -> UsageError | None:
    """Return the error about a text that no statement begins like; None when its words are right.

    Nobody else reads it where this is asked, so that a slip of the hand in a verb is pointed at.
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
    table = reader.name(_TABLE)
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
        found.append(read_command(reader))
        if in_brackets:
            reader.expect(")")
        if not reader.accept(","):
            return tuple(found)


def _change_rows(reader: StatementReader, *, is_update: bool) -> ChangeRows:
    if not is_update:
        reader.expect_word("FROM")
    table = reader.name(_TABLE)
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
    table = reader.name(_TABLE)
    cluster = reader.cluster()
    partition = read_partition(reader) if reader.accept_word("PARTITION") else None
    final = reader.accept_word("FINAL") or reader.accept_word("FORCE")
    deduplicate = _deduplicate(reader) if reader.accept_word("DEDUPLICATE") else None
    if reader.peek().is_word("CLEANUP", "MANIFEST"):
        token = reader.peek()
        why = "has no meaning for a lake table"
        raise reader.wrong(token, shown(token), why, "Leave it out.", kind=UnsupportedError)
    given = (partition is not None, final, deduplicate is not None)
    # Each of them may only come before those that stand behind it.
    last = max((i + 1 for i, there in enumerate(given) if there), default=0)
    ending = read_ending(reader, *_OF_OPTIMIZE[last:])
    return Optimize(table, partition, final, deduplicate, cluster, ending)


def _deduplicate(reader: StatementReader) -> Deduplicate:
    return read_deduplicate_by(reader) if reader.accept_word("BY") else Deduplicate()


def read_deduplicate_by(reader: StatementReader) -> Deduplicate:
    """Read what stands after DEDUPLICATE BY.

    Raises:
        UsageError: it names no column.
        UnsupportedError: it chooses columns by a pattern.
    """
    if reader.accept("*"):
        return Deduplicate(star=True, without=_without(reader))
    columns = [_column(reader)]
    while reader.accept(","):
        columns.append(_column(reader))
    return Deduplicate(tuple(columns))


def _without(reader: StatementReader) -> tuple[str, ...]:
    if not reader.accept_word("EXCEPT"):
        return ()
    if not reader.accept("("):
        return (_column(reader),)
    columns = [_column(reader)]
    while reader.accept(","):
        columns.append(_column(reader))
    reader.expect(")")
    return tuple(columns)


def _column(reader: StatementReader) -> str:
    token = reader.peek()
    if token.is_symbol("*") or (token.is_word("COLUMNS") and reader.peek(1).is_symbol("(")):
        advice = "Name the columns, or write * EXCEPT (the others)."
        why = "chooses columns by a pattern"
        raise reader.wrong(token, shown(token), why, advice, kind=UnsupportedError)
    return reader.identifier("the name of a column")


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
    """Return the ids that a condition names.

    Raises:
        UnsupportedError: it is about anything but the id.
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
