"""Partitions of a lake table that is divided otherwise: of which partition here their rows become.

ATTACH PARTITION … FROM takes a partition of a table with another partition key where all its rows
lie in one partition of this one: a day of a month, a month of a table that is not divided. That is
told by the rows, never by the keys. The copies are files of that partition here, under keys that
say which partition they come from (decision 0013): each goes there once, and beside its sisters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from tableformat.branches import BranchFile
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import RefusedError
from tableformat.names import PartitionId
from tableformat.operations.copying import OtherTable
from tableformat.operations.which import AllPartitions, OnePartition

__all__ = ["divided_here"]


def divided_here(
    what: str,
    which: OnePartition | AllPartitions,
    other: OtherTable,
    ids: Callable[[BranchFile], frozenset[PartitionId]],
) -> tuple[OnePartition | AllPartitions, OtherTable]:
    """Return the partitions here that rows of another table become, and what it has, by those.

    Args:
        what: begins errors: what cannot be run, and how the partition keys differ.
        which: the partitions there.
        other: what the other table has of them.
        ids: says in which partitions here the rows of a file would lie.

    Raises:
        RefusedError: rows of a partition there would lie in several here (code 36).
        DestinationError: a file cannot be read.
    """
    found: defaultdict[str, set[PartitionId]] = defaultdict(set)
    for one in other.keys:
        for file in one.files:
            found[one.key.partition_id] |= ids(file)
    here = {there: _only(what, there, lie) for there, lie in found.items()}
    # They are no export of the ClickHouse table here: it has no such partition.
    keys = tuple(
        replace(one, key=one.key.within(here[one.key.partition_id].value), record=None, row=None)
        for one in other.keys
    )
    # Where it comes to nothing is known of those that come to something.
    unsure = tuple(
        key.within(here[key.partition_id].value) for key in other.unsure if key.partition_id in here
    )
    if isinstance(which, OnePartition) and found:
        # Exports of a table that is divided in a third way have ids of that.
        which = OnePartition(_only(what, str(which.partition_id), set().union(*found.values())))
    return which, replace(other, keys=keys, unsure=unsure)


def _only(what: str, there: str, lie: set[PartitionId]) -> PartitionId:
    """Return the one partition that rows lie in.

    Raises:
        RefusedError: they lie in several.
    """
    first, *more = sorted(lie)
    if not more:
        return first
    told = f"{first} and {more[0]}" + (f" and {len(more) - 1:,} more" if len(more) > 1 else "")
    message = (
        f"{what}, and the rows of partition {there} would lie in partitions {told} here. INSERT "
        "SELECT brings them, or an export of its ClickHouse table."
    )
    raise RefusedError(message, code=BAD_ARGUMENTS)
