"""Snapshots that are expired by one request, and which of a table's snapshots a ledger made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from tableformat.committer import MAIN_BRANCH, LakeTableState
from tableformat.iceberg.snapshot import table_of

__all__ = ["expiry_request", "made_by"]

_LEDGER: Final = "mergeberg.ledger"
_EMPTY: Final = ("mergeberg.first", "mergeberg.fence", "mergeberg.rebuilt")
"""What summaries of commits without files have, which do not name the ledger."""


def expiry_request(
    state: LakeTableState, snapshot_ids: frozenset[int]
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of an expiry: one request, all or nothing.

    Main must be as in `state`, so that nobody has moved it to one of them.
    """
    main = AssertRefSnapshotId.model_validate(
        {"type": "assert-ref-snapshot-id", "ref": MAIN_BRANCH, "snapshot-id": state.main}
    )
    expired = RemoveSnapshotsUpdate.model_validate(
        {"action": "remove-snapshots", "snapshot-ids": sorted(snapshot_ids)}
    )
    return (
        (expired,),
        (AssertTableUUID(uuid=UUID(state.layout.table_uuid)), main),
    )


def made_by(state: LakeTableState, ledger: str) -> frozenset[int]:
    """Return the snapshots whose summaries say that a commit of a ledger made them."""
    return frozenset(
        one.snapshot_id
        for one in table_of(state).metadata.snapshots
        if one.summary is not None and _is_of(one.summary.additional_properties, ledger)
    )


def _is_of(summary: Mapping[str, str], ledger: str) -> bool:
    if _LEDGER in summary:
        return summary[_LEDGER] == ledger
    return any(name in summary for name in _EMPTY)
