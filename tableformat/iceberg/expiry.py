"""Builds the request that expires snapshots, and finds the snapshots that a ledger has made."""

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
"""Summary keys of commits without files, whose summaries do not name the ledger."""


def expiry_request(
    state: LakeTableState, snapshot_ids: frozenset[int]
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates and requirements of an expiry: one request, all or nothing.

    It requires main as in `state`, so that main cannot have moved to an expired snapshot.
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
    """Return the snapshots whose summaries name a ledger, or a commit without files."""
    return frozenset(
        one.snapshot_id
        for one in table_of(state).metadata.snapshots
        if one.summary is not None and _is_of(one.summary.additional_properties, ledger)
    )


def _is_of(summary: Mapping[str, str], ledger: str) -> bool:
    if _LEDGER in summary:
        return summary[_LEDGER] == ledger
    return any(name in summary for name in _EMPTY)
