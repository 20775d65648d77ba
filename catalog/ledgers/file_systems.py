"""Tells network file systems, on which SQLite's locks cannot be trusted (docs/spec/ledger.md)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
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
        "afpfs",
        "webdav",
    )
)
_MOUNT: Final = Path("/sbin/mount")
"""Prints the table of mounts on systems that have no file with it, such as macOS."""
_MOUNTED: Final = re.compile(r".* on (?P<point>/.*) \((?P<kind>[\w.]+)")


def network_file_system(path: Path, mounts: Path) -> str:
    """Return the kind of network file system that a path is on, '' when it is on none.

    Args:
        path: absolute.
        mounts: the table of mounts; where there is none, `mount` is asked, and where that says
            nothing, nothing is known to be on a network.
    """
    kind = _file_system(path, mounts)
    return kind if kind in _NETWORK else ""


def _file_system(path: Path, mounts: Path) -> str:
    best, kind = "", ""
    for point, found in _listed(mounts) if mounts.exists() else _told():
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def _listed(mounts: Path) -> Iterator[tuple[str, str]]:
    """Yield where each file system is and its kind, from a file as Linux has it."""
    for line in mounts.read_text().splitlines():
        point, kind = line.split()[1:3]
        yield point.replace("\\040", " "), kind


def _told() -> Iterator[tuple[str, str]]:
    """Yield the same from what `mount` prints."""
    try:
        said = subprocess.run([_MOUNT], env={}, capture_output=True, text=True, check=False)
    except OSError:
        return
    for line in said.stdout.splitlines():
        if found := _MOUNTED.match(line):
            yield found["point"], found["kind"]
