"""Branches and tags of a lake table: which names we use, their files, and how tags change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tableformat.committer import Staged

__all__ = ["DETACHED_BRANCH", "MAIN_BRANCH", "BranchFile", "PrunedTag", "TagChange"]

MAIN_BRANCH: Final = "main"
DETACHED_BRANCH: Final = "detached"
"""What DETACH takes out of main stays there, until ATTACH or DROP DETACHED."""


@dataclass(frozen=True, slots=True)
class BranchFile:
    """A data file of a branch: `deletes` tells that delete files may apply to it.

    `bytes` is its size, `spec_id` the partition spec that it was written with, `partition` its
    values by that spec. `sequence_number` is that of the snapshot that brought it to the branch, 0
    when nobody can tell.
    """

    path: str
    rows: int
    bytes: int
    spec_id: int
    deletes: bool = False
    sequence_number: int = 0
    partition: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class PrunedTag:
    """A tag of a snapshot that was staged for it: one that has fewer files than another one.

    `before` is the snapshot that the tag is of now, None where it is made.
    """

    name: str
    staged: Staged
    before: int | None = None


@dataclass(frozen=True, slots=True)
class TagChange:
    """A commit of tags and properties alone: tags of main that are made, and tags that go.

    `added` are their names; `removed` names with the snapshots that they are of. `pruned` are tags
    of snapshots of their own.
    """

    added: tuple[str, ...] = ()
    pruned: tuple[PrunedTag, ...] = ()
    removed: tuple[tuple[str, int], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    removed_properties: tuple[str, ...] = ()
