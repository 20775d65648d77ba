"""Defines the typed statements on lake tables: their names, arguments and parsed values.

CLI commands, procedures, Python functions and their pages are generated from this list.
An argument is declared once: `partition_id` of CALL and Python is `--partition-id` of the CLI.
An argument that is SQL in the statement (a key value, WHERE, SET) is SQL here, and the same code
parses it. Names of tables and columns, disks and paths are taken literally.

The value is the one that the parser makes of the statement's text (`spark_ext.sql.statements`).
So a typed statement and its text run alike, need the same privileges and report the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from spark_ext.sql.grammar import read_assignments, read_deduplicate_by, read_end, read_partition
from spark_ext.sql.statement_reader import StatementReader
from spark_ext.sql.statement_settings import FAST
from spark_ext.sql.statements import (
    Alter,
    Attach,
    AttachFrom,
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
    Fetch,
    Forget,
    Freeze,
    MoveToDisk,
    MoveToTable,
    MoveToVolume,
    Optimize,
    ReplaceFrom,
    Setting,
    Target,
    Unfreeze,
    Update,
)
from tableformat.errors import UsageError
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.expression_parser import ExpressionParser
from tableformat.mergetree.partition_literal import (
    All,
    ById,
    PartitionLiteral,
    date_in_quotes,
    read_part_literal,
)
from tableformat.names import PartitionId, PartName, split_identifiers

__all__ = [
    "EVERY",
    "PART",
    "PARTITION_ID",
    "PARTITION_VALUE",
    "TYPED",
    "Argument",
    "Given",
    "GivenValue",
    "TypedStatement",
]

T = TypeVar("T")

GivenValue: TypeAlias = str | bool | tuple[str, ...] | None
"""A text, several of an argument that may be repeated, a flag; None for what is not given."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name in CALL and Python, what it says, and its option.

    `says` is a piece of a sentence that is true at every door. `several`: the option may be given
    again, and its texts belong together.
    """

    name: str
    says: str
    option: str
    is_flag: bool = False
    is_required: bool = False
    several: bool = False


PARTITION_ID: Final = Argument(
    "partition_id", "the partition's id, as in system.parts", "--partition-id"
)
PARTITION_VALUE: Final = Argument(
    "partition", "or a value of its key: 202401, 2024-01-31, ('x', 3)", "--partition"
)
PART: Final = Argument("part", "or one part, by its name in the system table parts", "--part")
EVERY: Final = Argument("all_partitions", "or every partition", "--all", is_flag=True)
_TARGETS: Final = (PARTITION_ID, PARTITION_VALUE, PART, EVERY)


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of one statement.

    `table` is what it is about; `declared` are the arguments that it has, `values` has each by its
    name; `spelled` is how who gave them writes one.
    """

    table: DottedName
    declared: tuple[Argument, ...]
    values: Mapping[str, GivenValue]
    spelled: Callable[[Argument], str]

    def target(self) -> Target:
        """Return what the statement is about: a partition, a part, or every partition.

        Raises:
            UsageError: none is chosen, or several; or what chooses it cannot be read.
        """
        chosen = self._chosen()
        if chosen is None:
            raise self._unclear()
        return chosen

    def partition(self) -> PartitionLiteral:
        """Return the partition that the statement is about, or every one.

        Raises:
            UsageError: as `target`; or a part is chosen.
        """
        chosen = self.target()
        if isinstance(chosen, PartName):
            message = (
                f"Cannot use the part {chosen} here: another table gets or gives whole partitions. "
                f"Choose one by {self.spelled(PARTITION_ID)}."
            )
            raise UsageError(message)
        return chosen

    def maybe_partition(self) -> PartitionLiteral | None:
        """Return the partition that the statement is about; None for the whole table.

        Raises:
            UsageError: two are chosen, or it cannot be read.
        """
        return None if self._chosen() is None else self.partition()

    def flag(self, name: str) -> bool:
        """Whether a flag is given."""
        return bool(self.values[name])

    def text(self, name: str) -> str | None:
        """Return a text as it stands; None when it is not given.

        Raises:
            TypeError: it is no text.
        """
        value = self.values[name]
        if value is None or isinstance(value, str):
            return value
        raise TypeError(name)

    def needed(self, name: str) -> str:
        """Return a text that has to be there.

        Raises:
            UsageError: it is empty.
        """
        text = self.text(name)
        if not text:
            message = f"Cannot run it: {self._named(name)} is empty. Give it a value."
            raise UsageError(message)
        return text

    def name(self, name: str) -> DottedName:
        """Return the name of a table, a column or an index.

        Raises:
            UsageError: it is none.
        """
        return DottedName(split_identifiers(self.needed(name)))

    def maybe_name(self, name: str) -> DottedName | None:
        """Return a name, None when it is not given.

        Raises:
            UsageError: it is none.
        """
        return None if self.text(name) is None else self.name(name)

    def condition(self, name: str) -> Expression:
        """Return a condition on rows.

        Raises:
            UsageError: it cannot be read.
        """
        return _whole(self.needed(name), "condition", lambda r: ExpressionParser(r).one())

    def assignments(self, name: str) -> tuple[tuple[str, Expression], ...]:
        """Return what columns are set to.

        Raises:
            UsageError: it cannot be read.
        """
        value = self.values[name]
        texts = value if isinstance(value, tuple) else (self.needed(name),)
        return tuple(one for text in texts for one in _whole(text, "assignment", read_assignments))

    def deduplicate(self, flag: str, by: str) -> Deduplicate | None:
        """Return by what rows are compared; None when they are not.

        Raises:
            UsageError: it cannot be read.
        """
        if self.text(by) is None:
            return Deduplicate() if self.flag(flag) else None
        return _whole(self.needed(by), "list of columns", read_deduplicate_by)

    def one_of(self, *names: str) -> str:
        """Return which of these arguments is given.

        Raises:
            UsageError: none is, or several are.
        """
        given = [name for name in names if self.values[name] is not None]
        if len(given) != 1:
            named = " and ".join(
                (", ".join(self._named(one) for one in names[:-1]), self._named(names[-1]))
            )
            message = f"Cannot run it: {len(given)} of {named} are given. Give exactly one."
            raise UsageError(message)
        return given[0]

    def refuse(self, name: str, why: str) -> None:
        """Refuse an argument where it has no effect.

        Raises:
            UsageError: it is given.
        """
        if self.values[name] not in (None, False):
            message = f"Cannot use {self._named(name)} here: {why}. Leave it out."
            raise UsageError(message)

    def _chosen(self) -> Target | None:
        has = [one for one in _TARGETS if one in self.declared]
        given = [one for one in has if self.values[one.name] not in (None, False)]
        if len(given) > 1:
            raise self._unclear()
        match given:
            case [one] if one is PARTITION_ID:
                return ById(PartitionId(self.needed(one.name)))
            case [one] if one is PARTITION_VALUE:
                text, every = date_in_quotes(self.needed(one.name)), EVERY in has
                return _whole(text, "partition", lambda r: read_partition(r, every=every))
            case [one] if one is PART:
                text = self.needed(one.name)
                # To the grammar a dash begins a number, or two of them a comment.
                if text.startswith("-"):
                    return PartName.parse(text)
                return _whole(text, "part", read_part_literal)
            case [one] if one is EVERY:
                return All()
            case _:
                return None

    def _unclear(self) -> UsageError:
        named = [self.spelled(one) for one in _TARGETS if one in self.declared]
        message = (
            "Cannot choose the partition: give exactly one of "
            f"{', '.join(named[:-1])} and {named[-1]}."
        )
        return UsageError(message)

    def _named(self, name: str) -> str:
        return next(self.spelled(one) for one in self.declared if one.name == name)


def _whole(text: str, what: str, read: Callable[[StatementReader], T]) -> T:
    """Read a piece of a statement that stands alone, to its end.

    Raises:
        UsageError: it cannot be read; the message points at the token.
    """
    reader = StatementReader(text, what)
    found = read(reader)
    read_end(reader)
    return found


_SETTINGS: Final[Mapping[str, str]] = {
    "fast": FAST,
    "allow_empty": "allow_replace_partition_from_empty_source",
    "overwrite_file_if_exists": "export_merge_tree_part_overwrite_file_if_exists",
}
"""The settings that an argument is, behind SETTINGS in the statement."""


@dataclass(frozen=True, slots=True)
class TypedStatement:
    """One statement: `name` of the procedure and function, `command` of the command line.

    `verb` and `what` are one sentence, with an imperative or a third person. `examples` are
    arguments as somebody gives them. `reads_others`: another table or files are named, which may
    be those of a ClickHouse.
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
        """What it does, as a command is told."""
        return f"{self.verb} {self.what}"

    @property
    def description(self) -> str:
        """What it does, as somebody tells it."""
        return f"{self.verb}s {self.what}"

    def told(self, text: str, spelled: Callable[[Argument], str]) -> str:
        """Return a message that names arguments where it names the settings that they are."""
        for one in self.arguments:
            if one.name in _SETTINGS:
                text = text.replace(f"Set {_SETTINGS[one.name]} = 1", f"Give {spelled(one)}")
        return text

    def of(
        self,
        table: DottedName,
        values: Mapping[str, GivenValue],
        spelled: Callable[[Argument], str],
    ) -> Alter | Optimize:
        """Return the statement on a table.

        Args:
            table: its name, as `DottedName` has it.
            values: every argument by its name.
            spelled: how who gave them writes an argument.

        Raises:
            UsageError: an argument cannot be read, or they contradict each other.
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


def _attach(given: Given) -> Attach | AttachFrom:
    table = given.maybe_name("from_table")
    if table is not None:
        return AttachFrom(given.partition(), table)
    given.refuse("overwrite_file_if_exists", _WITHOUT_FROM)
    return Attach(given.target())


def _move(given: Given) -> MoveToTable | MoveToDisk | MoveToVolume:
    where = given.one_of("to_table", "to_disk", "to_volume")
    if where == "to_disk":
        return MoveToDisk(given.target(), given.needed(where))
    if where == "to_volume":
        return MoveToVolume(given.target(), given.needed(where))
    return MoveToTable(given.partition(), given.name(where))


def _freeze(given: Given) -> Freeze:
    name = None if given.text("name") is None else given.needed("name")
    return Freeze(given.maybe_partition(), name)


def _optimize(given: Given) -> Optimize:
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
        _attach,
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
        _freeze,
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
        _move,
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
        _optimize,
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
