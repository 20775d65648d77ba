"""A private directory of exactly the parts of some slices, as hard links beside the originals.

Symbolic links silently give a table without rows, so there are only hard links; where those cannot
be made (another device, no permission) the original directory is used and the part list is checked
instead (DESIGN 5.3). Names carry job and process, so that the leftovers of the dead can be swept.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tableformat.errors import SourceError
from tableformat.export.slices import Slice

__all__ = ["PartsDirectory", "parts_directory", "sweep"]

_PRIVATE: Final = re.compile(r"mergeberg-(?P<job>.+)-(?P<pid>\d+)-(?P<number>\d+)\Z")
_NUMBERS: Final = itertools.count(1)
# What a file system answers when it cannot or may not link here; anything else is a broken source.
_NO_LINKS: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}
)


@dataclass(frozen=True, slots=True)
class PartsDirectory:
    """A directory of part folders; `private` when it holds the slices' parts and nothing else."""

    path: Path
    private: bool


@contextlib.contextmanager
def parts_directory(job: str, slices: tuple[Slice, ...]) -> Iterator[PartsDirectory]:
    """Make the private directory of slices of one disk and remove it afterwards.

    Of parts without a place, beside which nothing may be written, it is their own directory.

    Raises:
        SourceError: a part's files are not there or cannot be read.
    """
    first = slices[0]
    if not first.place:
        yield PartsDirectory(_original(slices), private=False)
        return
    private: Path | None = None
    try:
        try:
            private = _make(Path(first.place), job)
            # Several slices may be ranges of one part.
            for name, path in sorted({(r.name, r.path) for s in slices for r in s.ranges}):
                _link(Path(path), private / name)
            directory = PartsDirectory(private, private=True)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                message = (
                    f"Cannot link the parts of partition {first.partition_id} below "
                    f"{first.place}: {error}. Check that the source's files are on this host "
                    "and readable."
                )
                raise SourceError(message) from error
            directory = PartsDirectory(_original(slices), private=False)
        yield directory
    finally:
        if private is not None:
            shutil.rmtree(private)


def sweep(disk_root: Path, job_alive: Callable[[str], bool]) -> tuple[Path, ...]:
    """Remove the private directories below `disk_root` that a dead process of a dead job left.

    Args:
        disk_root: a disk of the source.
        job_alive: whether the job of that name may still have running tasks, here or elsewhere.

    Returns:
        What was removed.
    """
    removed: list[Path] = []
    for path in sorted(disk_root.glob("mergeberg-*-*-*")):
        found = _PRIVATE.match(path.name)
        if found and not job_alive(found["job"]) and not _process_alive(int(found["pid"])):
            # Another task may sweep the same directory at this moment, and goes on with it.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)
                removed.append(path)
    return tuple(removed)


def _make(disk: Path, job: str) -> Path:
    while True:
        path = disk / f"mergeberg-{job}-{os.getpid()}-{next(_NUMBERS)}"
        # A process with this number may have died here before.
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path


def _link(source: Path, target: Path) -> None:
    """Link a part's files, projections included (they are directories inside the part)."""
    target.mkdir()
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _link(Path(entry.path), target / entry.name)
            else:
                os.link(entry.path, target / entry.name, follow_symlinks=False)


def _original(slices: tuple[Slice, ...]) -> Path:
    first = slices[0]
    parents = sorted({str(Path(part.path).parent) for s in slices for part in s.ranges})
    if len(parents) != 1:
        message = (
            f"Cannot read partition {first.partition_id} below {first.place}: hard links are not "
            f"possible there and its parts lie in {len(parents)} directories: "
            f"{', '.join(parents)}. Allow the exporter to write on the source's disk."
        )
        raise SourceError(message)
    return Path(parents[0])


def _process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
