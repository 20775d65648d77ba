"""Which statement undoes what took rows out of main, as long as the snapshot before it is there."""

from __future__ import annotations

from typing import Final

from tableformat.export.outcome import Status
from tableformat.names import HiveName, LakeName

__all__ = ["undo_statement"]

# Others bring rows, or write the same rows to other files.
_TAKES_ROWS: Final = (Status.DROPPED, Status.REPLACED, Status.CHANGED)


def undo_statement(
    table: LakeName, did: Status, which: str, partition_id: str | None, before: int | None
) -> str:
    """Return the statement; '' where there is no single one.

    What DETACH took out comes back from the branch `detached`. Everything else is copied from the
    snapshot that main was: beside what is there by now after a DROP of a partition, and in the
    place of it otherwise.

    Args:
        table: the lake table.
        did: what was done.
        which: it was done to, as a statement has it.
        partition_id: the partition that this is, or lies in; None for all.
        before: the snapshot that main was.
    """
    if isinstance(table, HiveName):
        return ""
    if did is Status.DETACHED:
        return f"ALTER TABLE {table} ATTACH {which}"
    if before is None or did not in _TAKES_ROWS:
        return ""
    earlier = LakeName(table.catalog, table.identifier, f"snapshot_id_{before}")
    if did is Status.DROPPED and which.startswith("PARTITION "):
        return f"ALTER TABLE {table} ATTACH {which} FROM {earlier}"
    if partition_id is None:
        return ""
    return f"ALTER TABLE {table} REPLACE PARTITION ID '{partition_id}' FROM {earlier}"
