"""Statements on lake tables: which there are, and everything they need opened.

The command line, Spark SQL and Python hand over the statement as it was read, and the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeAlias, assert_never

from catalog.clickhouse.rows.partitions import partition_id_of
from catalog.iceberg.catalogs import OpenedCatalog
from spark_ext.operations.copy_from import copied_from, copying
from spark_ext.operations.fetch import copying_from_view, fetching
from spark_ext.operations.from_clickhouse import FromClickHouse, from_clickhouse
from spark_ext.operations.move import moved_to, moving_to_disk
from spark_ext.operations.rewrite import ChangesRows, changing, clearing_index, optimizing
from spark_ext.operations.tables import OtherTables, RememberingTable, Runners, source_of
from spark_ext.sql import statements as commands
from spark_ext.sql.clauses import Target
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statements import Alter, ChangeRows, Command, Optimize
from tableformat.clickhouse_codes import (
    BAD_ARGUMENTS,
    INVALID_PARTITION_VALUE,
    UNKNOWN_TABLE,
)
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.outcome import Outcome
from tableformat.iceberg.properties import RememberedSource
from tableformat.ledger import Ledger
from tableformat.mergetree.expression import Literal
from tableformat.mergetree.partition_literal import (
    All,
    ById,
    ByValue,
    PartitionLiteral,
    render_partition_literal,
)
from tableformat.names import (
    LakeName,
    PartitionId,
    PartName,
    quote_string,
)
from tableformat.operations.attach import Attach
from tableformat.operations.copy_from import CopyFrom, CopyFromView, Fetch
from tableformat.operations.forget import Forget
from tableformat.operations.freeze import Freeze, Months, Unfreeze
from tableformat.operations.rewrite import ChangeRows as ChangesOfRows
from tableformat.operations.rewrite import ClearIndex as Clearing
from tableformat.operations.rewrite import MoveToDisk as MovingToDisk
from tableformat.operations.rewrite import Optimize as Optimizing
from tableformat.operations.run import Running
from tableformat.operations.statement import AllPartitions, Alone, OnePart, OnePartition, Which
from tableformat.operations.take_out import Detach, Drop, DropDetached

__all__ = ["Operation", "operate", "operation_of"]

Operation: TypeAlias = Alter | Optimize
"""A statement that changes a lake table."""


def operation_of(statement: Alter | Optimize | ChangeRows) -> Operation:
    """Return a statement as commands: those of SQL that change rows are ALTER TABLE's."""
    if not isinstance(statement, ChangeRows):
        return statement
    of = statement.table, (statement.command,), statement.cluster, statement.ending
    return Alter(*of)


def operate(
    statement: Operation,
    table: LakeName,
    lake: OpenedCatalog,
    ledger: Ledger,
    note: Callable[[str], None],
    others: OtherTables,
    *,
    dry_run: bool = False,
) -> Iterator[Outcome]:
    """Run the commands of a statement one after the other; yield the outcome of each partition.

    Args:
        statement: as `operation_of` returned it.
        table: the lake table.
        lake: its catalog.
        ledger: of the exports to it.
        note: called with each note for the user.
        others: finds the tables after FROM.
        dry_run: change nothing, and report what would be done.

    Raises:
        NotFoundError: there is no such table (code 60), or no such part (code 232).
        RefusedError: it cannot be done to this table.
        TableFormatError: the catalog, the storage or the ledger failed.
    """
    found = lake.table(table)
    if found is None:
        message = f"Cannot find the lake table {table}: its catalog has none of that name."
        raise NotFoundError(message, code=UNKNOWN_TABLE)
    source = source_of(f"Cannot find partitions of {table}", found.load())
    to = RememberingTable(table, found, source, ledger)
    with ExitStack() as stack:
        runners = Runners(ledger, note, stack, others.checks)
        running = runners.on(to, lake.storages)
        # One that cannot be read keeps those before it back, too.
        every = (statement,) if isinstance(statement, Optimize) else statement.commands
        wanted = [_prepared(one, (running, lake), to, others, runners) for one in every]
        for ready, one in wanted:
            if isinstance(one, FromClickHouse):
                yield from one.outcomes(dry_run=dry_run)
            else:
                yield _ended(ready, one, dry_run=dry_run)


_Simple: TypeAlias = (
    commands.Drop
    | commands.Detach
    | commands.Attach
    | commands.DropDetached
    | commands.Freeze
    | commands.Unfreeze
    | commands.Forget
)
"""What needs nothing opened but its table; a statement that is run nowhere fails in mypy."""


def _prepared(
    command: Command | Optimize,
    on: tuple[Running, OpenedCatalog],
    to: RememberingTable,
    others: OtherTables,
    runners: Runners,
) -> tuple[Running, _OfKeys | Alone | FromClickHouse]:
    """Return a statement, and what runs it."""
    running = on[0]
    if isinstance(command, commands.MoveToTable):
        which = _partition(command.partition, to.source)
        move = moved_to(command.table.parts, which, to, running, others, runners)
        return running, move
    if isinstance(command, commands.MoveToDisk | commands.MoveToVolume):
        return moving_to_disk(command, _which(command.of, to.source), running, to, runners.checks)
    if isinstance(command, commands.Fetch):
        of = _one(command.of, to.source)
        return fetching(command.path, of, running, to, others, runners.stack)
    if isinstance(command, ChangesRows | Optimize | commands.ClearIndex):
        which = _partition(command.partition, to.source)
        which = AllPartitions(each=True) if isinstance(which, AllPartitions) else which
        if isinstance(command, Optimize):
            return optimizing(command, which, running, to, runners.stack, others.spark)
        if isinstance(command, commands.ClearIndex):
            return clearing_index(command, which, running, to)
        return changing(command, which, running, to, runners.stack, others.spark)
    if isinstance(command, commands.AttachFrom | commands.ReplaceFrom):
        return _copying(command, on, to, others, runners)
    if isinstance(command, commands.Export):
        # An EXPORT never comes here.
        raise TypeError(command)
    return running, _without_others(command, to.source)


def _copying(
    command: commands.AttachFrom | commands.ReplaceFrom,
    on: tuple[Running, OpenedCatalog],
    to: RememberingTable,
    others: OtherTables,
    runners: Runners,
) -> tuple[Running, _OfKeys | FromClickHouse]:
    """Return a statement that brings rows of another table, and what runs it."""
    running = on[0]
    replaces = isinstance(command, commands.ReplaceFrom)
    named = partial(_partition, command.partition)
    what = f"Cannot run {command} on {to.name}"
    if (view := others.view(command.table.parts)) is not None:
        return copying_from_view(
            what, (str(command.table), view), named, running, to, runners.stack,
            replaces=replaces, allow_empty=others.allow_empty,
        )  # fmt: skip
    name = others.table(command.table.parts)
    if isinstance(name, SourceTable):
        return running, from_clickhouse(
            what, name, named(to.source), to, on, others,
            named=str(command.table), replaces=replaces,
        )  # fmt: skip
    made = copied_from(what, command.table.parts, named, to, others, divides=replaces)
    wanted = CopyFrom(made.which, made.other, replaces, others.allow_empty, made.named)
    return copying(running, made.copies), wanted


def _ended(running: Running, wanted: _OfKeys | Alone, *, dry_run: bool) -> Outcome:
    """Run a statement, or say what it would do."""
    if isinstance(wanted, _OfKeys):
        return running.forecast(wanted) if dry_run else running.run(wanted)
    return wanted.run(running.ports, running.partitions, dry_run=dry_run)


_BY_MONTH: Final = "toYYYYMM("
_DIGITS_OF_A_MONTH: Final = 6
_MONTH: Final = re.compile(r"[0-9]{6}")
_MONTHS: Final = re.compile(r"[0-9]{1,6}")
_OfKeys = (
    Drop
    | Detach
    | Attach
    | CopyFrom
    | CopyFromView
    | Fetch
    | ChangesOfRows
    | Optimizing
    | Clearing
    | MovingToDisk
)
"""What changes main, and with it what the ledger knows of keys."""


def _without_others(command: _Simple, source: RememberedSource) -> _OfKeys | Alone:
    """Return a statement that needs nothing but the table opened."""
    match command:
        case commands.Drop(of):
            return Drop(_which(of, source))
        case commands.Detach(of):
            return Detach(_which(of, source))
        case commands.Attach(of):
            return Attach(_which(of, source))
        case commands.DropDetached(of):
            return DropDetached(_which(of, source))
        case commands.Freeze(partition, name):
            which = _frozen(partition, source)
            _refuse_prefix(which, source)
            return Freeze(which, name or None)
        case commands.Unfreeze(name, partition):
            return Unfreeze(_frozen(partition, source), name)
        case commands.Forget(partition):
            return Forget(OnePartition(_id(partition, source)))
        case _:
            assert_never(command)


def _frozen(
    of: PartitionLiteral | None, source: RememberedSource
) -> OnePartition | Months | AllPartitions:
    """Return the partitions that FREEZE or UNFREEZE names.

    In a table of the old syntax a number or a text after PARTITION is the prefix of months. An id
    is never one, and neither is the result of a function.

    Raises:
        RefusedError: it is a text or an id that no month begins with (code 248).
        UsageError: it does not fit the partition key.
    """
    if not source.table.engine.old_arguments:
        return _partition(of, source)
    match of:
        case ById(PartitionId(text)):
            if not _MONTH.fullmatch(text):
                raise _no_month(source, text, "Give their first digits as a value, not as an id")
        case ByValue(Literal(str(text))):
            if not _MONTHS.fullmatch(text):
                raise _no_month(source, text, "Give their first digits")
            return _beginning(text)
        case ByValue(Literal(int(number))) if _MONTHS.fullmatch(str(number)):
            return _beginning(str(number))
        case _:
            pass
    return _partition(of, source)


def _beginning(digits: str) -> OnePartition | Months:
    """Return the month with these digits, or the months that begin with them."""
    return OnePartition(PartitionId(digits)) if _MONTH.fullmatch(digits) else Months(digits)


def _no_month(source: RememberedSource, text: str, advice: str) -> RefusedError:
    message = (
        f"Cannot find partition {quote_string(text)} of {source.table.name}: its partitions are "
        f"months of 6 digits, YYYYMM. {advice}, or name a month, as in 202401."
    )
    return RefusedError(message, code=INVALID_PARTITION_VALUE)


def _refuse_prefix(which: OnePartition | Months | AllPartitions, source: RememberedSource) -> None:
    """Refuse a prefix of months for a table that has not the old syntax.

    Raises:
        RefusedError: it is one; as a partition it would never be there.
    """
    engine = source.table.engine
    if not isinstance(which, OnePartition) or engine.old_arguments:
        return
    prefix = which.partition_id.value
    if engine.partition_by.startswith(_BY_MONTH) and len(prefix) < _DIGITS_OF_A_MONTH:
        message = (
            f"Cannot freeze partition {prefix}: it is the prefix of months, which ClickHouse "
            "accepts for tables of the old syntax only. Name each month, or no partition for all "
            "of them."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)


def _which(of: Target, source: RememberedSource) -> Which:
    return OnePart(of) if isinstance(of, PartName) else _partition(of, source)


def _one(of: Target, source: RememberedSource) -> OnePartition | OnePart:
    which = _which(of, source)
    if isinstance(which, AllPartitions):
        # The grammar has refused it, as ClickHouse's does.
        raise TypeError(of)
    return which


def _partition(
    of: PartitionLiteral | None, source: RememberedSource
) -> OnePartition | AllPartitions:
    if of is None or isinstance(of, All):
        return AllPartitions()
    return OnePartition(_id(of, source))


def _id(of: PartitionLiteral, source: RememberedSource) -> PartitionId:
    """Return the id of a partition; ClickHouse says which a value names."""
    match of:
        case ById(partition_id):
            return partition_id
        case ByValue():
            return partition_id_of(source.table, render_partition_literal(of))
        case All():
            raise TypeError(of)
