"""What a commit changes in the properties of a table, whatever its destination is.

The marks of its keys, the ledger's identity and the highest number of its counter, the watermark
(docs/spec/commit-protocol.md, step 7; docs/spec/table-properties.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tableformat.committer import Commit, LakeTableState, Staged
from tableformat.lake_marks import EPOCH_PROPERTY, LEDGER_PROPERTY, MARK_PREFIX, Mark

__all__ = ["PropertyChange", "property_change"]


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """Properties that are set, and names of those that go."""

    set: Mapping[str, str]
    removed: tuple[str, ...]


def property_change(
    state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
) -> PropertyChange:
    """Return what an attempt changes.

    Args:
        state: M, on which it was staged.
        staged: the attempt.
        commit: what is to become visible.
        remove_marks: keys whose mark has done its duty.
    """
    epochs = [state.highest_epoch, commit.number, *(k.epoch for k in commit.keys)]
    properties = {LEDGER_PROPERTY: commit.ledger, EPOCH_PROPERTY: str(max(epochs))}
    for key in commit.keys:
        mark = Mark(key.epoch, key.transaction_id, key.fingerprint, staged.snapshot_id)
        properties[MARK_PREFIX + key.key] = mark.text
    removed = [MARK_PREFIX + k for k in remove_marks]
    if commit.watermark is not None:
        name, value = commit.watermark
        if value:
            properties[name] = f"{staged.snapshot_id}:{value}"
        elif name in state.properties:
            removed.append(name)
    return PropertyChange(properties, tuple(removed))
