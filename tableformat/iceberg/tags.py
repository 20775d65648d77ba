"""Tags: what a change of them asks for, which outlives expiry; and that none is a branch."""

from __future__ import annotations

from typing import Final, cast
from uuid import UUID

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from tableformat.branches import MAIN_BRANCH, TagChange
from tableformat.committer import LakeTableState
from tableformat.errors import InternalError, RefusedError

__all__ = ["NEVER", "branch_head", "refuse_tag", "tag_request"]

_Asked = tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]

NEVER: Final = 2**63 - 1
"""Milliseconds: the age of a reference that no expiry reaches."""


def branch_head(table: Table, branch: str) -> Snapshot | None:
    """Return the snapshot of a branch; None where there is none, also where a tag has its name."""
    found = table.metadata.refs.get(branch)
    if found is None or found.snapshot_ref_type is not SnapshotRefType.BRANCH:
        return None
    return table.metadata.snapshot_by_id(found.snapshot_id)


def refuse_tag(table: Table, branch: str) -> None:
    """Refuse a tag where a branch has to be.

    Raises:
        RefusedError: somebody made one.
    """
    found = table.metadata.refs.get(branch)
    if found is not None and found.snapshot_ref_type is SnapshotRefType.TAG:
        message = (
            f"Cannot keep what is detached on the branch {branch}: the table has a tag of that "
            "name. Drop or rename the tag, and run the statement again."
        )
        raise RefusedError(message)


def tag_request(
    state: LakeTableState, change: TagChange
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of a change of tags: one request, all or nothing.

    Main must be as in `state` for what is added, a tag that is added must not be there, and one
    that goes or gets another snapshot must be as it was: so of two changes of a tag one alone
    applies.
    """
    updates: list[TableUpdate] = []
    required: list[TableRequirement] = [AssertTableUUID(uuid=UUID(state.layout.table_uuid))]
    for name in change.added:
        updates.append(_tag(name, state.main))
        required.append(_is_at(name, None))
    for one in change.pruned:
        staged, _ = cast("_Asked", one.staged.handle)
        updates.extend(update for update in staged if isinstance(update, AddSnapshotUpdate))
        updates.append(_tag(one.name, one.staged.snapshot_id))
        required.append(_is_at(one.name, one.before))
    if change.added or any(one.before is None for one in change.pruned):
        required.append(_is_at(MAIN_BRANCH, state.main))
    for name, snapshot_id in change.removed:
        updates.append(
            RemoveSnapshotRefUpdate.model_validate(
                {"action": "remove-snapshot-ref", "ref-name": name}
            )
        )
        required.append(_is_at(name, snapshot_id))
    if change.properties:
        updates.append(SetPropertiesUpdate(updates=dict(change.properties)))
    if change.removed_properties:
        updates.append(RemovePropertiesUpdate(removals=list(change.removed_properties)))
    return tuple(updates), tuple(required)


def _is_at(ref: str, snapshot_id: int | None) -> TableRequirement:
    return AssertRefSnapshotId.model_validate(
        {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_id}
    )


def _tag(name: str, snapshot_id: int | None) -> TableUpdate:
    if snapshot_id is None:
        message = "A tag of a table without a snapshot; this is a bug, please report it."
        raise InternalError(message)
    return SetSnapshotRefUpdate.model_validate(
        {
            "action": "set-snapshot-ref",
            "ref-name": name,
            "type": SnapshotRefType.TAG,
            "snapshot-id": snapshot_id,
            "max-ref-age-ms": NEVER,
        }
    )
