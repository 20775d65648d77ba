"""Parses the named arguments of statements, for CALL, Python and the command line.

An argument is declared once: `partition_id` of CALL and Python is `--partition-id` of the CLI.
An argument that is SQL in the statement (a key value, WHERE, SET) is SQL here, and the same code
parses it. Names of tables and columns, disks and paths are taken literally.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from spark_ext.sql.clauses import (
    Deduplicate,
    Target,
    read_assignments,
    read_deduplicate_by,
    read_end,
    read_partition,
)
from spark_ext.sql.statement_reader import DottedName, StatementReader
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
    "Argument",
    "Given",
    "GivenValue",
]

T = TypeVar("T")

GivenValue: TypeAlias = str | bool | tuple[str, ...] | None
"""A text, the texts of a repeated argument, or a flag; None for an argument that is not given."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name in CALL and Python, its description, and its CLI option.

    `description` is a phrase that fits every interface. With `several`, the option may be
    repeated, and all of its values count.
    """

    name: str
    description: str
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

    `table` is the table of the statement. `declared` are the statement's arguments, and `values`
    has the value of each by name. `spelled` returns an argument in the notation of the interface,
    for error messages.
    """

    table: DottedName
    declared: tuple[Argument, ...]
    values: Mapping[str, GivenValue]
    spelled: Callable[[Argument], str]

    def target(self) -> Target:
        """Return the target of the statement: a partition, a part, or all partitions.

        Raises:
            UsageError: none or several are given, or the value cannot be parsed.
        """
        chosen = self._chosen()
        if chosen is None:
            raise self._unclear()
        return chosen

    def partition(self) -> PartitionLiteral:
        """Return the partition of the statement, or all partitions.

        Raises:
            UsageError: as for `target`, or a part is given.
        """
        chosen = self.target()
        if isinstance(chosen, PartName):
            message = (
                f"Cannot use the part {chosen} here: only whole partitions are copied between "
                f"tables. Choose one by {self.spelled(PARTITION_ID)}."
            )
            raise UsageError(message)
        return chosen

    def maybe_partition(self) -> PartitionLiteral | None:
        """Return the partition of the statement; None for the whole table.

        Raises:
            UsageError: several are given, or the value cannot be parsed.
        """
        return None if self._chosen() is None else self.partition()

    def flag(self, name: str) -> bool:
        """Whether a flag is given."""
        return bool(self.values[name])

    def text(self, name: str) -> str | None:
        """Return the text of an argument; None if it is not given.

        Raises:
            TypeError: the value is not a text.
        """
        value = self.values[name]
        if value is None or isinstance(value, str):
            return value
        raise TypeError(name)

    def needed(self, name: str) -> str:
        """Return the text of a required argument.

        Raises:
            UsageError: the text is missing or empty.
        """
        text = self.text(name)
        if not text:
            message = f"Cannot run it: {self._named(name)} is empty. Give it a value."
            raise UsageError(message)
        return text

    def name(self, name: str) -> DottedName:
        """Return the name of a table, a column or an index.

        Raises:
            UsageError: the text is not a valid name.
        """
        return DottedName(split_identifiers(self.needed(name)))

    def maybe_name(self, name: str) -> DottedName | None:
        """Return a name; None if it is not given.

        Raises:
            UsageError: the text is not a valid name.
        """
        return None if self.text(name) is None else self.name(name)

    def condition(self, name: str) -> Expression:
        """Return a condition on rows.

        Raises:
            UsageError: the text is not a valid condition.
        """
        return _whole(self.needed(name), "condition", lambda r: ExpressionParser(r).one())

    def assignments(self, name: str) -> tuple[tuple[str, Expression], ...]:
        """Return columns with the expressions that they are set to.

        Raises:
            UsageError: a text is not a valid list of assignments.
        """
        value = self.values[name]
        texts = value if isinstance(value, tuple) else (self.needed(name),)
        return tuple(one for text in texts for one in _whole(text, "assignment", read_assignments))

    def deduplicate(self, flag: str, by: str) -> Deduplicate | None:
        """Return the columns by which rows are deduplicated; None for no deduplication.

        Raises:
            UsageError: the text is not a valid list of columns.
        """
        if self.text(by) is None:
            return Deduplicate() if self.flag(flag) else None
        return _whole(self.needed(by), "list of columns", read_deduplicate_by)

    def one_of(self, *names: str) -> str:
        """Return the name of the one argument that is given.

        Raises:
            UsageError: none or several are given.
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
        """Check that an argument without effect is not given.

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
                # The grammar would take a dash for a number, and two dashes for a comment.
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
    """Parse a whole text as one piece of a statement.

    Raises:
        UsageError: the text is malformed; the message points at the token.
    """
    reader = StatementReader(text, what)
    found = read(reader)
    read_end(reader)
    return found
