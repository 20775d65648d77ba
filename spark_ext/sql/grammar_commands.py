"""Reads the commands of ALTER TABLE that are about partitions, parts and their rows.

ALL is read where ClickHouse executes it, and after EXPORT; in the other commands ClickHouse reads
it and refuses to run it (P-71), so it is refused here at once, with the same words and code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from spark_ext.sql.statement_reader import StatementReader, shown
from spark_ext.sql.statements import (
    Attach,
    AttachFrom,
    ClearColumn,
    ClearIndex,
    Command,
    Delete,
    Detach,
    DottedName,
    Drop,
    DropDetached,
    Export,
    Fetch,
    Forget,
    Freeze,
    MoveToDisk,
    MoveToTable,
    MoveToVolume,
    ReplaceFrom,
    Target,
    Unfreeze,
    Update,
)
from tableformat.clickhouse_codes import SUPPORT_IS_DISABLED
from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.partition_literal import (
    All,
    PartitionLiteral,
    read_part_literal,
    read_partition_literal,
)
from tableformat.mergetree.tokens import Token
from tableformat.names import PartName

__all__ = ["read_assignments", "read_command", "read_in_partition", "read_partition", "read_where"]

_TABLE: Final = "the name of a table"
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
        raise reader.complaint(f"a command about partitions ({', '.join(_COMMANDS)})")
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
        raise reader.complaint("'='")
    reader.take()
    return column, ExpressionParser(reader).one()


def _target(reader: StatementReader, *, every: bool = False) -> Target:
    if reader.accept_word("PART"):
        return read_part_literal(reader)
    if reader.accept_word("PARTITION"):
        return read_partition(reader, every=every)
    raise reader.complaint(_TARGET)


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
        raise reader.complaint("DISK or VOLUME")
    if not reader.peek().is_word("TABLE"):
        raise reader.complaint("TABLE, DISK or VOLUME")
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
        raise reader.complaint("COLUMN or INDEX")
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
