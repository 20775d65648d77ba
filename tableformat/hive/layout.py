"""Where things lie in a tree, and which partition keys have directories of their own.

Everything of ours is below `_mergeberg`, whose first character keeps Hive, Spark and PyArrow out of
it; readers that go by a pattern ask for `**/*.parquet` (docs/spec/hive.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

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

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError
from tableformat.hive.named import why_no_name
from tableformat.mergetree.expression import ColumnName, Expression
from tableformat.mergetree.expression_text import parse_partition_key, render_expression
from tableformat.mergetree.table import MergeTreeTable

__all__ = ["TreePaths", "check_directories"]

_OWN: Final = "_mergeberg"
_NUMBER_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class TreePaths:
    """The locations of a tree; `root` has no slash at its end."""

    root: str

    @property
    def own(self) -> str:
        """Below it is all that is not data."""
        return f"{self.root}/{_OWN}"

    @property
    def identity(self) -> str:
        """The document that makes a directory a tree."""
        return f"{self.own}/tree/identity.json"

    @property
    def commits(self) -> str:
        """The directory of commit files."""
        return f"{self.own}/commits"

    def commit(self, name: str) -> str:
        """Return where the commit file of a name is."""
        return f"{self.commits}/{name}"

    def log(self, uuid: str) -> str:
        """Return the directory of the log of the tree of an identity."""
        return f"{self.own}/log/{uuid}"

    def log_entry(self, uuid: str, number: int) -> str:
        """Return where an entry of the log is; entries are listed in their order."""
        return f"{self.log(uuid)}/{number:0{_NUMBER_DIGITS}}.json"

    def relative(self, location: str) -> str:
        """Return what stands after the root: a tree may be moved as a whole."""
        return location.removeprefix(f"{self.root}/")

    def absolute(self, path: str) -> str:
        """Return the location of a path of the tree."""
        return f"{self.root}/{path}"

    def is_data(self, location: str) -> bool:
        """Whether a location is that of a data file, whoever wrote it."""
        return location.endswith(".parquet") and not location.startswith(f"{self.own}/")


def check_directories(
    table: MergeTreeTable,
    types: Mapping[str, IcebergType],
    named: Mapping[Expression, str] = MappingProxyType({}),
    spelled: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a table whose partition key has no directories that every reader takes apart alike.

    A key is one member, a tuple of them, or none; of numbers, dates, times and texts. A member is a
    plain column, or an expression that the user has named (N-30, N-41, N-42).

    Args:
        table: the source.
        types: of its columns in the files, and of the directories that are named.
        named: the names of directories by their expressions.
        spelled: how times and fixed texts are spelled, by name (`levels.py`).

    Raises:
        UnsupportedError: the key has something else (code 48); all of it is named.
    """
    reasons = []
    for member in parse_partition_key(table.engine.partition_by):
        text = render_expression(member)
        name = member.name if isinstance(member, ColumnName) else named.get(member)
        if name is None:
            reasons.append(
                f"{text} is an expression, which has no directory name of its own; give it one "
                f"with --hive-column NAME={text}"
            )
        elif not _has_directories(types.get(name), spelled.get(name, "")):
            reasons.append(f"{text} is a {types.get(name)}, which readers spell differently")
        elif why := why_no_name(name):
            reasons.append(f"{text} {why}")
    if reasons:
        message = (
            f"Cannot export {table.name} to Hive directories: of its partition key "
            f"{'; '.join(reasons)}. Destination storage uses unsupported partitioning for it: "
            "export it to an Iceberg table, which knows such keys."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _has_directories(of: IcebergType | None, spelling: str) -> bool:
    match of:
        case TimestamptzType() | FixedType():
            return spelling != ""
        case BooleanType() | IntegerType() | LongType() | DecimalType() | DateType():
            return True
        case _:
            return isinstance(of, StringType)
