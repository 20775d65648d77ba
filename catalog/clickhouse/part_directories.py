"""The directories of parts that a task opens: private hard links, as a read-only disk.

A private directory holds exactly the parts of some slices, as hard links to the originals. Symbolic
links give a table without rows and no error, so only hard links are used. Where they cannot be made
(another device, no permission) the original directory is used, and the task compares the list of
parts instead. Names carry job and process, so that the next run can sweep the directories of
processes that ended.

ClickHouse opens parts under settings that may differ from those of their writer, and reports
nothing: a column whose file it looks for under another name is empty in every row. The names of the
files in the part and the number of its marks show such a column without these settings.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tableformat.errors import SourceError
from tableformat.export.slices import Slice
from tableformat.mergetree.table_settings import SETTINGS, SettingUse
from tableformat.names import quote_string

__all__ = [
    "PartFiles",
    "PartsDirectory",
    "files_sql",
    "parts_directory",
    "plain_disk_sql",
    "sweep",
    "unread",
]

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


def plain_disk_sql(directory: Path) -> str:
    """Return the disk, as it stands in the settings of a table that has table_disk."""
    return (
        "disk(readonly = 1, type = 'object_storage', object_storage_type = 'local', "
        f"metadata_type = 'plain', path = {quote_string(f'{directory}/')})"
    )


_DATA: Final = ".bin"
# Marks of parts without adaptive granularity: they do not say how many rows they are of.
_FIXED_MARKS: Final = (".mrk", ".cmrk")
_GRANULARITY: Final = 8192
"""ClickHouse's own index_granularity."""


@dataclass(frozen=True, slots=True)
class PartFiles:
    """A part as an open table has it: rows, marks, and the files in which it reads columns."""

    name: str
    rows: int
    marks: int
    read: frozenset[str]

    @classmethod
    def of(cls, name: str, rows: int, marks: int, read: str) -> PartFiles:
        """Return a part from a row of `files_sql`."""
        return cls(name, rows, marks, frozenset(read.split("/")))


def files_sql(of_table: str) -> str:
    """Return the query for name, rows, marks and read files of each active wide part of a table.

    Of a compact part all columns are in one file, which names them itself.

    Args:
        of_table: the condition that leaves the rows of the table in a system table.
    """
    return (
        "SELECT name, any(rows), any(marks), arrayStringConcat(groupUniqArrayArray(filenames), '/')"
        f" FROM system.parts_columns WHERE active AND part_type = 'Wide' AND {of_table}"
        " GROUP BY name ORDER BY name"
    )


def unread(
    directory: Path, opened: Iterable[PartFiles], settings: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return why parts are read otherwise than they were written, by the name of the part.

    Args:
        directory: has the folders of the parts.
        opened: the wide parts in it, as a table over it has them.
        settings: of that table.

    Raises:
        OSError: a folder cannot be read.
    """
    granularity = int(dict(settings).get("index_granularity", "").strip("'") or _GRANULARITY)
    return {
        part.name: why for part in opened if (why := _why(directory / part.name, part, granularity))
    }


def _why(folder: Path, part: PartFiles, granularity: int) -> str:
    files = [file for file in folder.iterdir() if file.is_file()]
    written = {file.name.removesuffix(_DATA) for file in files if file.suffix == _DATA}
    if others := sorted(written - part.read):
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if others[5:] else "")
        named = ", ".join(sorted(n for n, use in SETTINGS.items() if use is SettingUse.READS))
        return (
            f"no column of the table is read from its files {shown}: the part was written under "
            f"other settings of the table, which are one or more of {named}"
        )
    fixed = any(file.suffix in _FIXED_MARKS for file in files)
    if fixed and part.marks != -(-part.rows // granularity):
        return (
            f"it has {part.marks} marks for {part.rows} rows, which does not fit "
            f"index_granularity = {granularity}: the part was written under another one"
        )
    return ""
