"""Defines the paths of a Hive tree and checks which partition keys can become directories.

All files that mergeberg adds for itself are below `_mergeberg`. Hive, Spark and PyArrow skip a
directory with that first character; readers with a glob use `**/*.parquet`.

A plain column of the key gets a directory with its own name. An expression such as `toYYYYMM(d)`
has no generally accepted name. The user names it (`--hive-column month=toYYYYMM(d)`), and the
tree stores the name: all partitions of a tree use the same directory names.

`rules_of` and `check_rules` handle the rules by which a tree was created, a permanent number in its
identity. Trees without a number follow rules 1: their files have column names as Iceberg escapes
them (`n_x2Ea`). Under rules 2 files have the table's own names. A tree never mixes both. Trees that
are partitioned by times or fixed texts follow rules 3 (`levels.py`). All other new trees follow
rules 2, which earlier releases know, too.

Source: docs/spec/hive.md, "Directories and data files".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pyiceberg.schema import Schema, index_by_id, make_compatible_name
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED
from tableformat.errors import (
    DestinationError,
    RefusedError,
    Unable,
    UnsupportedError,
    UsageError,
)
from tableformat.file_names import spelled_name
from tableformat.mergetree.expression import Call, ColumnName, Expression, render_expression
from tableformat.mergetree.expression_parser import parse_expression, parse_partition_key
from tableformat.mergetree.table import MergeTreeTable
from tableformat.messages import Option
from tableformat.names import HiveName, LakeName

__all__ = [
    "NamedDirectory",
    "TreePaths",
    "check_directories",
    "check_names",
    "check_rules",
    "listed_names",
    "names_in_force",
    "remembered_names",
    "remembering",
    "rules_of",
    "why_no_name",
]

_PROPERTY: Final = "mergeberg.tree.directories"


@dataclass(frozen=True, slots=True)
class NamedDirectory:
    """The user's name for a directory of a key expression; `in_tree`: a tree stores it."""

    name: str
    expression: Expression
    in_tree: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        """Return it in the syntax of `--hive-column`."""
        return f"{self.name}={render_expression(self.expression)}"


def names_in_force(
    subject: str, to: LakeName, given: Mapping[str, str], properties: Mapping[str, str] | None
) -> tuple[NamedDirectory, ...]:
    """Return the directory names to export with: those that the tree stores, or the user's.

    For an existing tree, the user's other names follow, which `check_names` refuses.

    Args:
        subject: what cannot be exported, as it follows the verb in the message.
        to: the destination.
        given: the user's names, with their expressions.
        properties: of the existing tree, None without one.

    Raises:
        UsageError: an expression cannot be parsed, or the destination has no directories to name.
        DestinationError: the tree's stored names cannot be read.
    """
    given_names = tuple(_read(name, text) for name, text in given.items())
    if not isinstance(to, HiveName):
        if not given_names:
            return ()
        message = (
            f"Cannot use {Option.HIVE_COLUMN} for {to}: it names directories, and only trees of "
            "Hive directories have such. Leave it out, or export to hive:URI."
        )
        raise UsageError(message)
    if properties is None:
        return given_names
    made_with = _read_remembered(subject, properties)
    return (*made_with, *(one for one in given_names if one not in made_with))


def listed_names(text: str, what: str) -> dict[str, str]:
    """Parse a list of names in one text: `month=toYYYYMM(d), part=k % 10`; an empty text has none.

    Args:
        text: as given.
        what: the name of the text in messages.

    Raises:
        UsageError: the text is not such a list, or a name is repeated.
    """
    if not text.strip():
        return {}
    whole = parse_expression(f"tuple({text})", what=what)
    found: dict[str, str] = {}
    for one in whole.arguments if isinstance(whole, Call) and whole.function == "tuple" else ():
        match one:
            case Call("equals", (ColumnName(name), expression)) if name not in found:
                found[name] = render_expression(expression)
            case _:
                message = (
                    f"Cannot read the {what} {text!r}: {render_expression(one)} is not "
                    "NAME=EXPRESSION with a name of its own. Write for example "
                    "month=toYYYYMM(d), part=(k % 10)."
                )
                raise UsageError(message)
    return found


def remembering(named: Sequence[NamedDirectory]) -> dict[str, str]:
    """Return the property that stores a tree's directory names; none without names."""
    if not named:
        return {}
    return {_PROPERTY: json.dumps({n.name: render_expression(n.expression) for n in named})}


def remembered_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the expressions of a tree's named directories, by name."""
    found: dict[str, str] = json.loads(properties.get(_PROPERTY, "{}"))
    return found


def check_names(
    subject: str, table: MergeTreeTable, named: Sequence[NamedDirectory], *, has_tree: bool = False
) -> None:
    """Refuse names that fit no member of the key, or that readers would confuse.

    Args:
        subject: what cannot be exported, as it follows the verb in the message.
        table: the source.
        named: the names, from `names_in_force`.
        has_tree: the tree exists, and its key and names are compared, too.

    Raises:
        RefusedError: the existing tree has another partition key or other names, or one or more
            names cannot be used; all reasons of a kind are listed (code 36).
    """
    key = parse_partition_key(table.engine.partition_by)
    if has_tree and (why := _why_not_of_tree(table, key, named)):
        raise RefusedError(Unable.of(subject, why), code=BAD_ARGUMENTS)
    columns = {c.name.casefold(): c.name for c in table.columns}
    reasons = []
    for number, one in enumerate(named):
        before = named[:number]
        folded = one.name.casefold()
        if isinstance(one.expression, ColumnName):
            why = "is a column, and its directory has the column's name"
            reasons.append(f"{render_expression(one.expression)} {why}")
        elif one.expression not in key:
            members = ", ".join(map(render_expression, key)) or "tuple()"
            reasons.append(f"{one} names no member of the partition key, which is {members}")
        if folded in columns:
            reasons.append(f"{one.name} is the name of the table's column {columns[folded]}")
        elif why := why_no_name(one.name):
            reasons.append(f"{one.name} {why}")
        if folded in (other.name.casefold() for other in before):
            reasons.append(f"{one.name} is given twice, and some readers ignore case")
        if one.expression in (other.expression for other in before):
            reasons.append(f"{render_expression(one.expression)} is named twice")
    if reasons:
        raise RefusedError(Unable(subject, tuple(dict.fromkeys(reasons))), code=BAD_ARGUMENTS)


def _why_not_of_tree(
    table: MergeTreeTable, key: Sequence[Expression], named: Sequence[NamedDirectory]
) -> str:
    """Return why an existing tree is not of a key and of the names, '' if it is.

    The keys are compared before the names: with another key, no names are right.
    """
    stored = [one for one in named if one.in_tree]
    others = [one for one in named if not one.in_tree]
    has = {one.expression for one in stored}
    were = f"named by {', '.join(map(str, stored))}" if stored else "plain columns only"
    needs = {member for member in key if not isinstance(member, ColumnName)}
    if has != needs:
        return (
            "Tables have different partition key: PARTITION BY "
            f"{table.engine.partition_by or 'tuple()'}, and the directories of the tree are "
            f"{were}. Export to another tree, or to an Iceberg table."
        )
    if not others:
        return ""
    return (
        f"the directories of the tree are {were}, and {Option.HIVE_COLUMN} "
        f"{', '.join(map(str, others))} was given. Leave it out, or export to another tree."
    )


def why_no_name(name: str) -> str:
    """Return '' if readers accept a directory's column name, else the reason why not."""
    if name.startswith(("_", ".")):
        return f"begins with {name[0]}, and readers ignore such directories"
    if changed := sorted({c for c in name if c not in spelled_name(c)}):
        return f"has {' '.join(changed)} in its name, which DuckDB and ClickHouse would read as %XX"
    return ""


def _read(name: str, text: str) -> NamedDirectory:
    return NamedDirectory(name, parse_expression(text, what=f"{Option.HIVE_COLUMN} {name}"))


def _read_remembered(subject: str, properties: Mapping[str, str]) -> tuple[NamedDirectory, ...]:
    try:
        names = remembered_names(properties)
        return tuple(replace(_read(name, of), in_tree=True) for name, of in names.items())
    except (ValueError, TypeError, AttributeError, UsageError) as error:
        why = (
            f"the property {_PROPERTY} of the tree cannot be read: {error!r} in "
            f"{properties[_PROPERTY]!r}. Use the release that made the tree, or a newer one."
        )
        raise DestinationError(Unable.of(subject, why)) from error


_OWN: Final = "_mergeberg"
_NUMBER_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class TreePaths:
    """The locations of a tree; `root` has no trailing slash."""

    root: str

    @property
    def own(self) -> str:
        """The directory of everything that is not data."""
        return f"{self.root}/{_OWN}"

    @property
    def identity(self) -> str:
        """The document whose existence makes a directory a tree."""
        return f"{self.own}/tree/identity.json"

    @property
    def commits(self) -> str:
        """The directory of commit files."""
        return f"{self.own}/commits"

    def commit(self, name: str) -> str:
        """Return the location of the commit file of this name."""
        return f"{self.commits}/{name}"

    def log(self, uuid: str) -> str:
        """Return the directory of the log of the tree with this identity."""
        return f"{self.own}/log/{uuid}"

    def log_entry(self, uuid: str, number: int) -> str:
        """Return the location of a log entry; locations sort by number."""
        return f"{self.log(uuid)}/{number:0{_NUMBER_DIGITS}}.json"

    def relative(self, location: str) -> str:
        """Return the path below the root, which stays valid if the whole tree is moved."""
        return location.removeprefix(f"{self.root}/")

    def absolute(self, path: str) -> str:
        """Return the location of a path below the root."""
        return f"{self.root}/{path}"

    def is_data(self, location: str) -> bool:
        """Whether a location is a data file, of any writer."""
        return location.endswith(".parquet") and not location.startswith(f"{self.own}/")


def check_directories(
    table: MergeTreeTable,
    types: Mapping[str, IcebergType],
    named: Mapping[Expression, str] = MappingProxyType({}),
    spelled: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a table whose partition key has no directories that every reader parses alike.

    A key is one member, a tuple of them, or none; of numbers, dates, times and texts. A member is a
    plain column, or an expression that the user has named (N-30, N-41, N-42).

    Args:
        table: the source.
        types: of its columns in the files, and of the named directories.
        named: the names of directories by their expressions.
        spelled: the spelling of times and fixed texts, by name (`levels.py`).

    Raises:
        UnsupportedError: the key has something else (code 48); all of it is listed.
    """
    reasons = []
    for member in parse_partition_key(table.engine.partition_by):
        text = render_expression(member)
        name = member.name if isinstance(member, ColumnName) else named.get(member)
        if name is None:
            reasons.append(
                f"{text} is an expression, which has no directory name of its own; give it one "
                f"with {Option.HIVE_COLUMN} NAME={text} in a new tree"
            )
        elif not _has_directories(types.get(name), spelled.get(name, "")):
            reasons.append(f"{text} is a {types.get(name)}, which readers spell differently")
        elif why := why_no_name(name):
            reasons.append(f"{text} {why}")
    if reasons:
        why = (
            f"of its partition key {'; '.join(reasons)}. Destination storage uses unsupported "
            "partitioning for it: export it to an Iceberg table, which supports such keys."
        )
        message = Unable.of(f"{table.name} to Hive directories", why)
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _has_directories(of: IcebergType | None, spelling: str) -> bool:
    match of:
        case TimestamptzType() | FixedType():
            return spelling != ""
        case BooleanType() | IntegerType() | LongType() | DecimalType() | DateType():
            return True
        case _:
            return isinstance(of, StringType)


_RULES_PROPERTY: Final = "mergeberg.tree.rules"
_RULES_1: Final = "1"
_RULES_2: Final = "2"
_RULES_3: Final = "3"


def rules_of(spelled: Mapping[str, str]) -> dict[str, str]:
    """Return the property of a new tree.

    Args:
        spelled: the spelling of its times and fixed texts, by level.
    """
    return {_RULES_PROPERTY: _RULES_3 if spelled else _RULES_2}


def check_rules(subject: str, to: LakeName, schema: Schema, properties: Mapping[str, str]) -> None:
    """Refuse to write files into a tree whose files have other column names.

    Args:
        subject: what cannot be exported, as it follows the verb in the message.
        to: the tree.
        schema: of the tree.
        properties: of the tree.

    Raises:
        UnsupportedError: its files have escaped names (code 48).
        DestinationError: a newer release created it.
    """
    rules = properties.get(_RULES_PROPERTY, _RULES_1)
    if rules not in (_RULES_1, _RULES_2, _RULES_3):
        why = (
            f"the tree {to} was made by the rules {rules}, and this release has {_RULES_3}. Use "
            "the release that made the tree, or a newer one."
        )
        raise DestinationError(Unable.of(subject, why))
    names = [f.name for f in index_by_id(schema).values()] if rules == _RULES_1 else []
    escaped = [f"{n} as {make_compatible_name(n)}" for n in names if make_compatible_name(n) != n]
    if escaped:
        why = (
            f"the files of {to} were written by an earlier release, which escaped names "
            f"({', '.join(dict.fromkeys(escaped))}). New files have the table's own, and readers "
            "would see both. The tree can be read and verified as it is; export to another tree."
        )
        raise UnsupportedError(Unable.of(subject, why), code=NOT_IMPLEMENTED)
