"""Tells network file systems, on which SQLite's locks cannot be trusted (docs/spec/ledger.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["network_file_system"]

_NETWORK: Final = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.glusterfs",
        "glusterfs",
        "ceph",
        "lustre",
        "afs",
        "gpfs",
        "beegfs",
    )
)


def network_file_system(path: Path, mounts: Path) -> str:
    """Return the kind of network file system that a path is on, '' when it is on none.

    Args:
        path: absolute.
        mounts: the table of mounts; where there is none, nothing is known to be on a network.
    """
    kind = _file_system(path, mounts)
    return kind if kind in _NETWORK else ""


def _file_system(path: Path, mounts: Path) -> str:
    if not mounts.exists():
        return ""
    best, kind = "", ""
    for line in mounts.read_text().splitlines():
        point, found = line.split()[1:3]
        point = point.replace("\\040", " ")
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
