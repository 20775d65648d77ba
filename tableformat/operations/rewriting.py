"""How files of a key are written anew while its rows stay: main still has the same export."""

from __future__ import annotations

from tableformat.operations.partition_files import FilesOfKey, PartitionFiles, held_of
from tableformat.operations.planned import KeyChange, Rewrite

__all__ = ["rewritten"]


def rewritten(
    one: FilesOfKey, there: PartitionFiles, every: tuple[Rewrite, ...], worth: tuple[Rewrite, ...]
) -> KeyChange | None:
    """Return what changes of a key, None for nothing.

    An export's files are of one transaction. Where main has the whole export, and no row goes, all
    of its files are written anew, and it lands as that export again; else what is worth it is, and
    lands as a statement.

    Args:
        one: the key's files.
        there: the partition.
        every: what all files of the key become.
        worth: those of them that are to be done.
    """
    if not worth:
        return None
    at = there.in_main.get(one.key.hash)
    like = at.record if at is not None else None
    if like is not None and not any(r.changed for r in worth):
        return KeyChange(one.key, leaves=one.files, like=like, rewrites=every)
    leaves = tuple(f for r in worth for f in r.files)
    stays = tuple(f for f in one.files if f not in leaves)
    holds = held_of(stays) if there.knows(one.key) else None
    return KeyChange(one.key, leaves=leaves, holds=holds, rewrites=worth)
