"""Finds row policies, which would hide rows from the user who exports the table.

A clone is another table and has no policies, so hidden rows would get into the lake. A user with
the right reads the policies in system.row_policies. For other users, and if a table has policies
for other users (older servers then hide every row from users without one), rows are counted by
part, as the user sees them, while nothing changes the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, flag, text, whole
from catalog.clickhouse.server.client import NOT_SHOWN
from catalog.clickhouse.snapshot.comparison import within
from catalog.clickhouse.table_description import list_parts
from tableformat.errors import RefusedError, SourceError, Unable
from tableformat.mergetree.table import Part
from tableformat.messages import Option
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName, quote_string

__all__ = ["Hidden", "Policies", "hidden_rows", "list_policies", "refuse_hidden"]

_ATTEMPTS: Final = 5
_NOTHING_KNOWN: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Policies:
    """The row policies of a table, by name; `are_seen` is False if they cannot be listed."""

    are_seen: bool
    of_user: tuple[str, ...] = ()
    of_others: tuple[str, ...] = ()

    @property
    def must_count(self) -> bool:
        """Whether only counting shows that no row is hidden."""
        return not self.are_seen or bool(self.of_user or self.of_others)


@dataclass(frozen=True, slots=True)
class Hidden:
    """The number of rows of a partition that the user sees, and their number in its parts."""

    shown: int
    held: int


def list_policies(connection: Connection, table: TableName, user: str) -> Policies:
    """Return the policies of a table and its database, by whether they apply to a user.

    Raises:
        SourceError: the server cannot be read.
    """
    places = f"table IN ({quote_string(table.name)}, '', '*')"
    try:
        rows = connection.rows(
            "SELECT name, toUInt8(apply_to_all), has(apply_to_list, me) OR"
            " hasAny(apply_to_list, roles), has(apply_to_except, me) OR"
            " hasAny(apply_to_except, roles) FROM (SELECT *, "
            f"{quote_string(user)} AS me, enabledRoles() AS roles FROM system.row_policies)"
            f" WHERE database = {quote_string(table.database)} AND {places} ORDER BY name"
        )
    except ClickHouseError as error:
        if error.code in NOT_SHOWN:
            return Policies(are_seen=False)
        raise
    mine: list[str] = []
    others: list[str] = []
    for name, to_all, to_me, not_to_me in rows:
        applies = flag(to_me) or (flag(to_all) and not flag(not_to_me))
        (mine if applies else others).append(text(name))
    return Policies(are_seen=True, of_user=tuple(mine), of_others=tuple(others))


def hidden_rows(
    connection: Connection,
    capabilities: Capabilities,
    table: TableName,
    partition_ids: tuple[PartitionId, ...],
    visible: Mapping[str, int] = _NOTHING_KNOWN,
) -> dict[PartitionId, Hidden]:
    """Return the partitions of which the user sees fewer rows than their parts have.

    Args:
        connection: of the user.
        capabilities: of the server.
        table: the source.
        partition_ids: the partitions to check.
        visible: the rows by part without deleted ones, as counted in a clone. A part with deleted
            rows that is not in it is not judged.

    Raises:
        SourceError: the source cannot be read, or its parts keep changing.
    """
    if not partition_ids:
        return {}
    for _ in range(_ATTEMPTS):
        before = list_parts(connection, capabilities, table, partition_ids)
        held = {part.name: rows for part in before if (rows := _rows(part, visible)) is not None}
        where = within(partition_ids)
        if len(held) == len(before) and _count(connection, table, where) == sum(held.values()):
            return {}
        shown = _count_by_part(connection, table, where)
        after = list_parts(connection, capabilities, table, partition_ids)
        if [part.name for part in before] == [part.name for part in after]:
            return _compared(before, held, shown)
    message = (
        f"Cannot see whether a row policy hides rows of {table}: in {_ATTEMPTS} attempts its parts "
        "changed while they were counted. Run again when the table is changed less, let the user "
        f"see the policies (GRANT SHOW ROW POLICIES), or give {Option.IGNORE_ROW_POLICIES}."
    )
    raise SourceError(message)


def refuse_hidden(table: TableName, one: PartitionId, hidden: Hidden, user: str) -> RefusedError:
    """Return the refusal of a partition of which the user does not see every row."""
    return RefusedError(
        Unable.of(
            f"partition {one} of {table}",
            f"the user {user!r} sees {hidden.shown} of its {hidden.held} rows, so a row policy "
            "hides the others, but an export must contain all rows. Use a user to whom no policy "
            f"applies, or give {Option.IGNORE_ROW_POLICIES}.",
        )
    )


def _compared(
    parts: tuple[Part, ...], held: Mapping[str, int], shown: Mapping[str, int]
) -> dict[PartitionId, Hidden]:
    found: dict[PartitionId, Hidden] = {}
    for part in parts:
        if part.name in held:
            so_far = found.get(part.partition_id, Hidden(0, 0))
            found[part.partition_id] = Hidden(
                so_far.shown + shown.get(part.name, 0), so_far.held + held[part.name]
            )
    return {one: hidden for one, hidden in found.items() if hidden.shown < hidden.held}


def _rows(part: Part, visible: Mapping[str, int]) -> int | None:
    if part.name in visible:
        return visible[part.name]
    return None if part.has_lightweight_delete else part.rows


def _count(connection: Connection, table: TableName, where: str) -> int:
    """Count rows; without a policy ClickHouse uses the row counts of the parts."""
    found = connection.rows(
        f"SELECT toInt64(count()) FROM {table.sql} AS {SOURCE_ALIAS} WHERE {where}"
    )
    return whole(found[0][0])


def _count_by_part(connection: Connection, table: TableName, where: str) -> dict[str, int]:
    rows = connection.rows(
        f"SELECT {SOURCE_ALIAS}._part, toInt64(count()) FROM {table.sql} AS {SOURCE_ALIAS}"
        f" WHERE {where} GROUP BY {SOURCE_ALIAS}._part"
    )
    return {text(row[0]): whole(row[1]) for row in rows}
