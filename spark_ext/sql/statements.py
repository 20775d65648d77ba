"""ClickHouse's statements about partitions, as values.

Covers what the requirements write (srs-016 section 3, srs-032, srs-034, "Manipulating Partitions
and Parts"): ALTER TABLE with one or several commands, OPTIMIZE TABLE, KILL QUERY, and UPDATE and
DELETE FROM of a partition. `grammar` reads their text, `statement_text` writes it; what a statement
does is decided elsewhere. `act` says which privileges it needs (`tableformat.access.privileges`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, TypeAlias

from tableformat.access.privileges import Act
from tableformat.mergetree.expression import Expression
from tableformat.mergetree.partition_literal import PartitionLiteral
from tableformat.names import PartName, quote_identifier

__all__ = [
    "Alter",
    "Attach",
    "AttachFrom",
    "ChangeRows",
    "ClearColumn",
    "ClearIndex",
    "Command",
    "Deduplicate",
    "Delete",
    "Detach",
    "DottedName",
    "Drop",
    "DropDetached",
    "Ending",
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
    "Outfile",
    "ReplaceFrom",
    "Setting",
    "SettingValue",
    "Statement",
    "Target",
    "Unfreeze",
    "Update",
]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class DottedName:
    """A name as it stands, unquoted: `t`, `db.t`, `ch.db.t`, `lake.ns.t`, a column `n.a`.

    The session decides which table it names (`spark_ext.sql.names`).
    """

    parts: tuple[str, ...]

    def __str__(self) -> str:
        """Return the name as SQL."""
        return ".".join(p if _PLAIN.match(p) else quote_identifier(p) for p in self.parts)


Target: TypeAlias = PartitionLiteral | PartName
"""What stands after PARTITION, or after PART."""


@dataclass(frozen=True, slots=True)
class Export:
    """EXPORT PARTITION|PART … TO TABLE …."""

    of: Target
    to: DottedName
    act: ClassVar[Act] = Act.EXPORT


@dataclass(frozen=True, slots=True)
class Detach:
    """DETACH PARTITION|PART …."""

    of: Target
    act: ClassVar[Act] = Act.DETACH


@dataclass(frozen=True, slots=True)
class Attach:
    """ATTACH PARTITION|PART …, from what is detached."""

    of: Target
    act: ClassVar[Act] = Act.ATTACH


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP PARTITION|PART …."""

    of: Target
    act: ClassVar[Act] = Act.DROP


@dataclass(frozen=True, slots=True)
class DropDetached:
    """DROP DETACHED PARTITION|PART …."""

    of: Target
    act: ClassVar[Act] = Act.DROP_DETACHED


@dataclass(frozen=True, slots=True)
class AttachFrom:
    """ATTACH PARTITION … FROM …."""

    partition: PartitionLiteral
    table: DottedName
    act: ClassVar[Act] = Act.ATTACH_FROM


@dataclass(frozen=True, slots=True)
class ReplaceFrom:
    """REPLACE PARTITION … FROM …."""

    partition: PartitionLiteral
    table: DottedName
    act: ClassVar[Act] = Act.REPLACE_FROM


@dataclass(frozen=True, slots=True)
class MoveToTable:
    """MOVE PARTITION … TO TABLE …."""

    partition: PartitionLiteral
    table: DottedName
    act: ClassVar[Act] = Act.MOVE_TO_TABLE


@dataclass(frozen=True, slots=True)
class MoveToDisk:
    """MOVE PARTITION|PART … TO DISK '…'."""

    of: Target
    disk: str
    act: ClassVar[Act] = Act.MOVE_TO_DISK


@dataclass(frozen=True, slots=True)
class MoveToVolume:
    """MOVE PARTITION|PART … TO VOLUME '…'."""

    of: Target
    volume: str
    act: ClassVar[Act] = Act.MOVE_TO_DISK


@dataclass(frozen=True, slots=True)
class Forget:
    """FORGET PARTITION …."""

    partition: PartitionLiteral
    act: ClassVar[Act] = Act.FORGET


@dataclass(frozen=True, slots=True)
class Freeze:
    """FREEZE [PARTITION …] [WITH NAME '…']; every partition without one."""

    partition: PartitionLiteral | None = None
    name: str | None = None
    act: ClassVar[Act] = Act.FREEZE


@dataclass(frozen=True, slots=True)
class Unfreeze:
    """UNFREEZE [PARTITION …] WITH NAME '…'; every partition without one."""

    name: str
    partition: PartitionLiteral | None = None
    act: ClassVar[Act] = Act.FREEZE


@dataclass(frozen=True, slots=True)
class Fetch:
    """FETCH PARTITION|PART … FROM '…'."""

    of: Target
    path: str
    act: ClassVar[Act] = Act.FETCH


@dataclass(frozen=True, slots=True)
class ClearColumn:
    """CLEAR COLUMN [IF EXISTS] … [IN PARTITION …]; in every partition without one."""

    column: DottedName
    partition: PartitionLiteral | None = None
    if_exists: bool = False
    act: ClassVar[Act] = Act.CLEAR_COLUMN


@dataclass(frozen=True, slots=True)
class ClearIndex:
    """CLEAR INDEX [IF EXISTS] … [IN PARTITION …]; in every partition without one."""

    index: DottedName
    partition: PartitionLiteral | None = None
    if_exists: bool = False
    act: ClassVar[Act] = Act.CLEAR_INDEX


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE column = value, … [IN PARTITION …] WHERE …; in every partition without one."""

    assignments: tuple[tuple[str, Expression], ...]
    where: Expression
    partition: PartitionLiteral | None = None
    act: ClassVar[Act] = Act.UPDATE


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE [IN PARTITION …] WHERE …; in every partition without one."""

    where: Expression
    partition: PartitionLiteral | None = None
    act: ClassVar[Act] = Act.DELETE


Command: TypeAlias = (
    Export | Detach | Attach | Drop | DropDetached | AttachFrom | ReplaceFrom | MoveToTable
    | MoveToDisk | MoveToVolume | Forget | Freeze | Unfreeze | Fetch | ClearColumn | ClearIndex
    | Update | Delete
)  # fmt: skip
"""One command of ALTER TABLE."""

SettingValue: TypeAlias = int | float | str | bool | None
"""The value of a setting as it stands; None is the word DEFAULT."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One of SETTINGS; a name without a value is true, and one with dots is one name."""

    name: str
    value: SettingValue


@dataclass(frozen=True, slots=True)
class Outfile:
    """INTO OUTFILE '…' [TRUNCATE|APPEND] [AND STDOUT] [COMPRESSION '…' [LEVEL n]]."""

    path: str
    truncate: bool = False
    append: bool = False
    stdout: bool = False
    compression: str | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """What may stand at the end of a statement: where its answer goes, how, and settings."""

    outfile: Outfile | None = None
    format: str | None = None
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER [TEMPORARY] TABLE … [ON CLUSTER …] with its commands, in their order."""

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
        """Its settings; ClickHouse has nothing else at its end."""
        return Ending(settings=self.settings)


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """DEDUPLICATE [BY …]: by these columns, by all (`star`) but some, or as whole rows."""

    columns: tuple[str, ...] = ()
    star: bool = False
    without: tuple[str, ...] = ()


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
