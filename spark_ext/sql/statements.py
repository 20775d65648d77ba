"""Defines ClickHouse's statements about partitions; all other lists are derived from this one.

Each statement has here:
- a class, with its SQL text (`form`) and the privileges that it needs (`act`, of
  `tableformat.access`),
- a function that reads it, in `READERS` by its first word. Grammar and recognition use these words,
- its named arguments, in `TYPED`. CLI commands, procedures, Python functions and pages are made
  from them.

`spark_ext.operations.operate` runs the statements. They are those of the requirements (srs-016
section 3, srs-032, srs-034, "Manipulating Partitions and Parts").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, Final, TypeAlias

from spark_ext.sql.arguments import (
    EVERY,
    PART,
    PARTITION_ID,
    PARTITION_VALUE,
    Argument,
    Given,
    GivenValue,
)
from spark_ext.sql.clauses import (
    TABLE,
    Deduplicate,
    Ending,
    Setting,
    Target,
    Written,
    read_assignments,
    read_backup,
    read_in_partition,
    read_only_partition,
    read_partition,
    read_target,
    read_to_table,
    read_where,
    without_meaning,
)
from spark_ext.sql.statement_reader import DottedName, StatementReader
from tableformat.access import Act
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.partition_literal import All, PartitionLiteral
from tableformat.names import PartName

__all__ = [
    "FAST",
    "READERS",
    "TYPED",
    "Alter",
    "Attach",
    "AttachFrom",
    "ChangeRows",
    "ClearColumn",
    "ClearIndex",
    "Command",
    "Delete",
    "Detach",
    "Drop",
    "DropDetached",
    "Export",
    "Fetch",
    "Forget",
    "Freeze",
    "KillMode",
    "KillQuery",
    "MoveToDisk",
    "MoveToTable",
    "MoveToVolume",
    "Optimize",
    "ReplaceFrom",
    "Statement",
    "TypedStatement",
    "Unfreeze",
    "Update",
]


@dataclass(frozen=True, slots=True)
class Export(Written):
    """EXPORT PARTITION|PART … TO TABLE …."""

    of: Target
    to: DottedName
    form: ClassVar[str] = "EXPORT {of} TO TABLE {to}"
    act: ClassVar[Act] = Act.EXPORT


@dataclass(frozen=True, slots=True)
class Detach(Written):
    """DETACH PARTITION|PART …."""

    of: Target
    form: ClassVar[str] = "DETACH {of}"
    act: ClassVar[Act] = Act.DETACH


@dataclass(frozen=True, slots=True)
class Attach(Written):
    """ATTACH PARTITION|PART …, from the branch `detached`."""

    of: Target
    form: ClassVar[str] = "ATTACH {of}"
    act: ClassVar[Act] = Act.ATTACH


@dataclass(frozen=True, slots=True)
class Drop(Written):
    """DROP PARTITION|PART …."""

    of: Target
    form: ClassVar[str] = "DROP {of}"
    act: ClassVar[Act] = Act.DROP


@dataclass(frozen=True, slots=True)
class DropDetached(Written):
    """DROP DETACHED PARTITION|PART …."""

    of: Target
    form: ClassVar[str] = "DROP DETACHED {of}"
    act: ClassVar[Act] = Act.DROP_DETACHED


@dataclass(frozen=True, slots=True)
class AttachFrom(Written):
    """ATTACH PARTITION … FROM …."""

    partition: PartitionLiteral
    table: DottedName
    form: ClassVar[str] = "ATTACH {partition} FROM {table}"
    act: ClassVar[Act] = Act.ATTACH_FROM


@dataclass(frozen=True, slots=True)
class ReplaceFrom(Written):
    """REPLACE PARTITION … FROM …."""

    partition: PartitionLiteral
    table: DottedName
    form: ClassVar[str] = "REPLACE {partition} FROM {table}"
    act: ClassVar[Act] = Act.REPLACE_FROM


@dataclass(frozen=True, slots=True)
class MoveToTable(Written):
    """MOVE PARTITION … TO TABLE …."""

    partition: PartitionLiteral
    table: DottedName
    form: ClassVar[str] = "MOVE {partition} TO TABLE {table}"
    act: ClassVar[Act] = Act.MOVE_TO_TABLE


@dataclass(frozen=True, slots=True)
class MoveToDisk(Written):
    """MOVE PARTITION|PART … TO DISK '…'."""

    of: Target
    disk: str
    form: ClassVar[str] = "MOVE {of} TO DISK {disk}"
    act: ClassVar[Act] = Act.MOVE_TO_DISK


@dataclass(frozen=True, slots=True)
class MoveToVolume(Written):
    """MOVE PARTITION|PART … TO VOLUME '…'."""

    of: Target
    volume: str
    form: ClassVar[str] = "MOVE {of} TO VOLUME {volume}"
    act: ClassVar[Act] = Act.MOVE_TO_DISK


@dataclass(frozen=True, slots=True)
class Forget(Written):
    """FORGET PARTITION …."""

    partition: PartitionLiteral
    form: ClassVar[str] = "FORGET {partition}"
    act: ClassVar[Act] = Act.FORGET


@dataclass(frozen=True, slots=True)
class Freeze(Written):
    """FREEZE [PARTITION …] [WITH NAME '…']; all partitions if none is named."""

    partition: PartitionLiteral | None = None
    name: str | None = None
    form: ClassVar[str] = "FREEZE {partition} [WITH NAME {name}]"
    act: ClassVar[Act] = Act.FREEZE


@dataclass(frozen=True, slots=True)
class Unfreeze(Written):
    """UNFREEZE [PARTITION …] WITH NAME '…'; all partitions if none is named."""

    name: str
    partition: PartitionLiteral | None = None
    form: ClassVar[str] = "UNFREEZE {partition} WITH NAME {name}"
    act: ClassVar[Act] = Act.FREEZE


@dataclass(frozen=True, slots=True)
class Fetch(Written):
    """FETCH PARTITION|PART … FROM '…'."""

    of: Target
    path: str
    form: ClassVar[str] = "FETCH {of} FROM {path}"
    act: ClassVar[Act] = Act.FETCH


@dataclass(frozen=True, slots=True)
class ClearColumn(Written):
    """CLEAR COLUMN [IF EXISTS] … [IN PARTITION …]; in all partitions if none is named."""

    column: DottedName
    partition: PartitionLiteral | None = None
    if_exists: bool = False
    form: ClassVar[str] = "CLEAR COLUMN {if_exists} {column} [IN {partition}]"
    act: ClassVar[Act] = Act.CLEAR_COLUMN


@dataclass(frozen=True, slots=True)
class ClearIndex(Written):
    """CLEAR INDEX [IF EXISTS] … [IN PARTITION …]; in all partitions if none is named."""

    index: DottedName
    partition: PartitionLiteral | None = None
    if_exists: bool = False
    form: ClassVar[str] = "CLEAR INDEX {if_exists} {index} [IN {partition}]"
    act: ClassVar[Act] = Act.CLEAR_INDEX


@dataclass(frozen=True, slots=True)
class Update(Written):
    """UPDATE column = value, … [IN PARTITION …] WHERE …; in all partitions if none is named."""

    assignments: tuple[tuple[str, Expression], ...]
    where: Expression
    partition: PartitionLiteral | None = None
    form: ClassVar[str] = "UPDATE {assignments} [IN {partition}] WHERE {where}"
    act: ClassVar[Act] = Act.UPDATE


@dataclass(frozen=True, slots=True)
class Delete(Written):
    """DELETE [IN PARTITION …] WHERE …; in all partitions if none is named."""

    where: Expression
    partition: PartitionLiteral | None = None
    form: ClassVar[str] = "DELETE [IN {partition}] WHERE {where}"
    act: ClassVar[Act] = Act.DELETE


Command: TypeAlias = (
    Export | Detach | Attach | Drop | DropDetached | AttachFrom | ReplaceFrom | MoveToTable
    | MoveToDisk | MoveToVolume | Forget | Freeze | Unfreeze | Fetch | ClearColumn | ClearIndex
    | Update | Delete
)  # fmt: skip
"""One command of ALTER TABLE."""


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER [TEMPORARY] TABLE … [ON CLUSTER …] with its commands in order."""

    table: DottedName
    commands: tuple[Command, ...]
    cluster: str | None = None
    ending: Ending = field(default_factory=Ending)
    is_temporary: bool = False


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """UPDATE … SET …, or DELETE FROM …, with IN PARTITION: ClickHouse's lightweight forms."""

    table: DottedName
    command: Update | Delete
    cluster: str | None = None
    settings: tuple[Setting, ...] = ()

    @property
    def ending(self) -> Ending:
        """The settings; ClickHouse allows no other clause at the end."""
        return Ending(settings=self.settings)


@dataclass(frozen=True, slots=True)
class Optimize:
    """OPTIMIZE TABLE … [PARTITION …] [FINAL] [DEDUPLICATE …]."""

    table: DottedName
    partition: PartitionLiteral | None = None
    final: bool = False
    deduplicate: Deduplicate | None = None
    cluster: str | None = None
    ending: Ending = field(default_factory=Ending)
    act: ClassVar[Act] = Act.OPTIMIZE


class KillMode(Enum):
    """Whether KILL QUERY waits; TEST only lists."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    TEST = "TEST"


@dataclass(frozen=True, slots=True)
class KillQuery:
    """KILL QUERY WHERE query_id = '…' [SYNC|ASYNC|TEST]."""

    query_ids: tuple[str, ...]
    mode: KillMode = KillMode.ASYNC
    cluster: str | None = None
    ending: Ending = field(default_factory=Ending)
    act: ClassVar[Act] = Act.KILL_QUERY


Statement: TypeAlias = Alter | ChangeRows | Optimize | KillQuery
"""One statement: ALTER TABLE with commands, or another statement."""


def _export(reader: StatementReader) -> Export:
    of = read_target(reader, every=True)
    reader.expect_word("TO")
    return Export(of, read_to_table(reader))


def _attach(reader: StatementReader) -> Attach | AttachFrom:
    of = read_target(reader, every=True)
    if isinstance(of, PartName) or not reader.accept_word("FROM"):
        return Attach(of)
    return AttachFrom(of, reader.name(TABLE))


def _drop(reader: StatementReader) -> Drop | DropDetached:
    if not reader.accept_word("DETACHED"):
        return Drop(read_target(reader, every=True))
    # ClickHouse documents `DROP DETACHED PARTITION|PART ALL|partition_expr`.
    if reader.accept_words("PART", "ALL"):
        return DropDetached(All())
    return DropDetached(read_target(reader, every=True))


def _replace(reader: StatementReader) -> ReplaceFrom:
    partition = read_only_partition(reader)
    reader.expect_word("FROM")
    return ReplaceFrom(partition, reader.name(TABLE))


def _move(reader: StatementReader) -> MoveToTable | MoveToDisk | MoveToVolume:
    of = read_target(reader)
    reader.expect_word("TO")
    if reader.accept_word("DISK"):
        return MoveToDisk(of, reader.string("the name of a disk in single quotes"))
    if reader.accept_word("VOLUME"):
        return MoveToVolume(of, reader.string("the name of a volume in single quotes"))
    if reader.peek().is_word("SHARD"):
        advice = "Name a table, a disk or a volume."
        raise without_meaning(reader, reader.peek(), "is no place of a lake table", advice)
    if isinstance(of, PartName):
        raise reader.syntax_error("DISK or VOLUME")
    if not reader.peek().is_word("TABLE"):
        raise reader.syntax_error("TABLE, DISK or VOLUME")
    return MoveToTable(of, read_to_table(reader))


def _freeze(reader: StatementReader) -> Freeze:
    partition = read_partition(reader) if reader.accept_word("PARTITION") else None
    return Freeze(partition, read_backup(reader) if reader.peek().is_word("WITH") else None)


def _unfreeze(reader: StatementReader) -> Unfreeze:
    partition = read_partition(reader) if reader.accept_word("PARTITION") else None
    return Unfreeze(read_backup(reader), partition)


def _fetch(reader: StatementReader) -> Fetch:
    of = read_target(reader)
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


READERS: Final[Mapping[str, Callable[[StatementReader], Command]]] = {
    "EXPORT": _export,
    "DETACH": lambda reader: Detach(read_target(reader, every=True)),
    "ATTACH": _attach,
    "DROP": _drop,
    "REPLACE": _replace,
    "MOVE": _move,
    "FORGET": lambda reader: Forget(read_only_partition(reader)),
    "FREEZE": _freeze,
    "UNFREEZE": _unfreeze,
    "FETCH": _fetch,
    "CLEAR": _clear,
    "UPDATE": _update,
    "DELETE": _delete,
}
"""The functions that read a command, by its first word; in the order of error messages."""


FAST: Final = "mergeberg_attach_fast"
"""The setting to compare files that are added to a table by size only."""

_SETTINGS: Final[Mapping[str, str]] = {
    "fast": FAST,
    "allow_empty": "allow_replace_partition_from_empty_source",
    "overwrite_file_if_exists": "export_merge_tree_part_overwrite_file_if_exists",
}
"""The settings of the statement that named arguments stand for."""


@dataclass(frozen=True, slots=True)
class TypedStatement:
    """A statement with named arguments, for CALL, Python and the command line.

    `name` is the name of the procedure and the function, `command` that of the CLI command. `verb`
    and `what` form the description, as an imperative or in the third person. `examples` are example
    arguments. With `reads_others`, the statement names another table or files, which can be in a
    ClickHouse source.
    """

    name: str
    command: str
    verb: str
    what: str
    arguments: tuple[Argument, ...]
    build: Callable[[Given], Command | Optimize]
    examples: tuple[Mapping[str, GivenValue], ...]
    reads_others: bool = False

    @property
    def help(self) -> str:
        """The description as an imperative, for CLI help."""
        return f"{self.verb} {self.what}"

    @property
    def description(self) -> str:
        """The description in the third person, for procedures."""
        return f"{self.verb}s {self.what}"

    def of(
        self,
        table: DottedName,
        values: Mapping[str, GivenValue],
        spelled: Callable[[Argument], str],
    ) -> Alter | Optimize:
        """Return the statement on a table.

        Args:
            table: the name of the table.
            values: the values of all arguments by name.
            spelled: returns an argument in the notation of the interface, for error messages.

        Raises:
            UsageError: an argument is malformed, or arguments contradict each other.
        """
        given = Given(table, self.arguments, values, spelled)
        built = self.build(given)
        ending = Ending(
            settings=tuple(
                Setting(setting, 1)
                for name, setting in _SETTINGS.items()
                if name in values and given.flag(name)
            )
        )
        if isinstance(built, Optimize):
            return replace(built, ending=ending)
        return Alter(table, (built,), ending=ending)


_OF_MONTH: Final[Mapping[str, GivenValue]] = {"partition_id": "202401"}
_ONE: Final = (PARTITION_ID, PARTITION_VALUE)
_OR_PART: Final = (*_ONE, PART)
_ANY: Final = (*_OR_PART, EVERY)
_FAST: Final = Argument("fast", "compare files by size alone", "--fast", is_flag=True)
_IF_EXISTS: Final = Argument(
    "if_exists", "do nothing if there is none of that name", "--if-exists", is_flag=True
)
_WHERE: Final = Argument(
    "where", "the condition on rows, as after WHERE", "--where", is_required=True
)
_WITHOUT_FROM: Final = "it is about rows that come from another table"


def _build_attach(given: Given) -> Attach | AttachFrom:
    table = given.maybe_name("from_table")
    if table is not None:
        return AttachFrom(given.partition(), table)
    given.refuse("overwrite_file_if_exists", _WITHOUT_FROM)
    return Attach(given.target())


def _build_move(given: Given) -> MoveToTable | MoveToDisk | MoveToVolume:
    where = given.one_of("to_table", "to_disk", "to_volume")
    if where == "to_disk":
        return MoveToDisk(given.target(), given.needed(where))
    if where == "to_volume":
        return MoveToVolume(given.target(), given.needed(where))
    return MoveToTable(given.partition(), given.name(where))


def _build_freeze(given: Given) -> Freeze:
    name = None if given.text("name") is None else given.needed("name")
    return Freeze(given.maybe_partition(), name)


def _build_optimize(given: Given) -> Optimize:
    by = given.deduplicate("deduplicate", "deduplicate_by")
    return Optimize(given.table, given.maybe_partition(), given.flag("final"), by)


_ALL: Final = (
    TypedStatement(
        "attach_partition",
        "attach",
        "Bring",
        "detached rows back, or a partition of another table.",
        (
            *_ANY,
            Argument(
                "from_table",
                "copy it from this lake table, a tag or branch of one, or a ClickHouse table",
                "--from",
            ),
            Argument(
                "overwrite_file_if_exists",
                "from a ClickHouse table: continue although there are rows of another table of "
                "its name",
                "--overwrite-file-if-exists",
                is_flag=True,
            ),
            _FAST,
        ),
        _build_attach,
        (
            _OF_MONTH,
            {**_OF_MONTH, "from_table": "lake.archive.events"},
            {"partition": "202401", "from_table": "ch.db.events"},
        ),
        reads_others=True,
    ),
    TypedStatement(
        "clear_column",
        "clear-column",
        "Set",
        "a column to its default, in a partition or the whole table.",
        (
            Argument("column", "the column", "--column", is_required=True),
            *_ONE,
            _IF_EXISTS,
        ),
        lambda given: ClearColumn(
            given.name("column"), given.maybe_partition(), given.flag("if_exists")
        ),
        ({"column": "coupon", **_OF_MONTH},),
    ),
    TypedStatement(
        "clear_index",
        "clear-index",
        "Remove",
        "the bloom filters of an index from data files.",
        (
            Argument("index", "the index", "--index", is_required=True),
            *_ONE,
            _IF_EXISTS,
        ),
        lambda given: ClearIndex(
            given.name("index"), given.maybe_partition(), given.flag("if_exists")
        ),
        ({"index": "by_user", **_OF_MONTH},),
    ),
    TypedStatement(
        "delete_rows",
        "delete",
        "Delete",
        "rows, in a partition or the whole table.",
        (_WHERE, *_ONE),
        lambda given: Delete(given.condition("where"), given.maybe_partition()),
        ({"where": "user_id = 7", **_OF_MONTH},),
    ),
    TypedStatement(
        "detach_partition",
        "detach",
        "Take",
        "a partition or part out of the table; it can be attached again.",
        _ANY,
        lambda given: Detach(given.target()),
        (_OF_MONTH, {"partition": "2024-01-31"}),
    ),
    TypedStatement(
        "drop_detached_partition",
        "drop-detached",
        "Drop",
        "detached rows.",
        _ANY,
        lambda given: DropDetached(given.target()),
        ({"all_partitions": True},),
    ),
    TypedStatement(
        "drop_partition",
        "drop",
        "Drop",
        "a partition or part; earlier snapshots keep its rows until they expire.",
        _ANY,
        lambda given: Drop(given.target()),
        (_OF_MONTH,),
    ),
    TypedStatement(
        "fetch_partition",
        "fetch",
        "Bring",
        "a partition or part from elsewhere to the detached rows.",
        (
            Argument(
                "path",
                "a lake table, a directory of Parquet files, parts:DIR?ddl=FILE, or a table's path "
                "in ZooKeeper",
                "--from",
                is_required=True,
            ),
            *_OR_PART,
            _FAST,
        ),
        lambda given: Fetch(given.target(), given.needed("path")),
        ({"path": "s3://bucket/events", **_OF_MONTH},),
        reads_others=True,
    ),
    TypedStatement(
        "forget_partition",
        "forget",
        "Forget",
        "an empty partition: its record is removed once no snapshot has its rows.",
        _ONE,
        lambda given: Forget(given.partition()),
        (_OF_MONTH,),
    ),
    TypedStatement(
        "freeze",
        "freeze",
        "Keep",
        "a partition, or the whole table, as it is now, under a tag.",
        (*_ONE, Argument("name", "the tag; without it the next number", "--name")),
        _build_freeze,
        ({**_OF_MONTH, "name": "before_cleaning"},),
    ),
    TypedStatement(
        "move_partition",
        "move",
        "Move",
        "a partition to another table, or a partition or part to a disk or volume.",
        (
            *_OR_PART,
            Argument("to_table", "the lake table that gets it", "--to"),
            Argument("to_disk", "the disk, as the table's properties name it", "--to-disk"),
            Argument("to_volume", "the volume, as the table's properties name it", "--to-volume"),
            _FAST,
        ),
        _build_move,
        ({**_OF_MONTH, "to_table": "lake.archive.events"}, {**_OF_MONTH, "to_disk": "cold"}),
    ),
    TypedStatement(
        "optimize",
        "optimize",
        "Rewrite",
        "the files of a partition, or of each partition, as few sorted ones.",
        (
            *_ONE,
            Argument("final", "merge rows as the engine does", "--final", is_flag=True),
            Argument("deduplicate", "keep one of equal rows", "--deduplicate", is_flag=True),
            Argument(
                "deduplicate_by",
                "equal in these columns: id, ts or * EXCEPT (version)",
                "--deduplicate-by",
            ),
        ),
        _build_optimize,
        ({**_OF_MONTH, "final": True},),
    ),
    TypedStatement(
        "replace_partition",
        "replace",
        "Replace",
        "a partition with that of another table, in one snapshot.",
        (
            Argument(
                "from_table",
                "the lake table, a tag or branch of one, or the ClickHouse table that has it",
                "--from",
                is_required=True,
            ),
            *_ONE,
            Argument(
                "allow_empty", "also by a partition without rows", "--allow-empty", is_flag=True
            ),
            _FAST,
        ),
        lambda given: ReplaceFrom(given.partition(), given.name("from_table")),
        (
            {"from_table": "lake.staging.events", **_OF_MONTH},
            {"from_table": "ch.db.events", "partition": "202401"},
        ),
        reads_others=True,
    ),
    TypedStatement(
        "unfreeze",
        "unfreeze",
        "Remove",
        "the tag of a FREEZE, for one partition or for all.",
        (Argument("name", "the tag", "--name", is_required=True), *_ONE),
        lambda given: Unfreeze(given.needed("name"), given.maybe_partition()),
        ({"name": "before_cleaning"},),
    ),
    TypedStatement(
        "update_rows",
        "update",
        "Set",
        "columns of rows, in a partition or the whole table.",
        (
            Argument(
                "assignments",
                "the assignments, as after SET: price = price * 2, coupon = 'x'",
                "--set",
                is_required=True,
                several=True,
            ),
            _WHERE,
            *_ONE,
        ),
        lambda given: Update(
            given.assignments("assignments"), given.condition("where"), given.maybe_partition()
        ),
        ({"assignments": "price = 0", "where": "coupon = 'free'", **_OF_MONTH},),
    ),
)

TYPED: Final[Mapping[str, TypedStatement]] = {one.name: one for one in _ALL}
"""The typed statements by the names of their procedures."""
