"""What DROP and DETACH have in common: files leave main, and the keys have the others left."""

from __future__ import annotations

from tableformat.operations.partition_files import PartitionFiles, held_of
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.which import Which

__all__ = ["taken_out"]


def taken_out(which: Which, there: PartitionFiles) -> Plan:
    """Return the plan that takes files out of main, which may be none.

    Raises:
        NotFoundError: there is no such part.
        RefusedError: a part of the source has no files of its own.
    """
    have = {one.key: one.files for one in there.keys}
    return Plan(
        tuple(
            KeyChange(
                gone.key,
                leaves=gone.files,
                holds=held_of(tuple(f for f in have[gone.key] if f not in gone.files)),
            )
            for gone in which.of(there.keys)
        )
    )
