"""What DROP and DETACH have in common: files leave main, and the keys have the others left."""

from __future__ import annotations

from tableformat.operations.partition_files import PartitionFiles, held_of
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.which import OnePart, Which

__all__ = ["taken_out"]


def taken_out(which: Which, there: PartitionFiles) -> Plan:
    """Return the plan that takes files out of main, which may be none.

    Raises:
        NotFoundError: there is no such part.
        RefusedError: a part of the source has no files of its own.
    """
    have = {one.key: one.files for one in there.keys}
    changes = []
    for gone in which.of(there.keys):
        leave = frozenset(f.path for f in gone.files)
        left = tuple(f for f in have[gone.key] if f.path not in leave)
        # Of a partition that goes whole nothing is left, wherever others had put its rows.
        known = not isinstance(which, OnePart) or there.knows(gone.key)
        holds = held_of(left) if known else None
        changes.append(KeyChange(gone.key, leaves=gone.files, holds=holds))
    return Plan(tuple(changes))
