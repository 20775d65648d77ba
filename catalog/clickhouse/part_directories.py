"""Creates the directories of parts that a task opens: private hard links, as a read-only disk.

A private directory holds exactly the parts of some slices, as hard links to the originals. With
symbolic links a table would have no rows and report no error, so only hard links are used. If they
cannot be created (another device, no permission), the original directory is used, and the task
compares the list of parts instead. Names have the job and the process, so that the next run can
remove the directories of ended processes.

ClickHouse may open parts under other settings than those of their writer, and reports nothing: a
column whose file it looks for under another name is empty in every row. The names of the part's
files and the number of its marks reveal such a column without these settings.
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
# Errors of file systems that cannot or may not link here; any other error is of the source.
_NO_LINKS: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}
)


@dataclass(frozen=True, slots=True)
class PartsDirectory:
    """A directory of part folders; `private` if it has the parts of the slices and no others."""

    path: Path
    private: bool


@contextlib.contextmanager
def parts_directory(job: str, slices: tuple[Slice, ...]) -> Iterator[PartsDirectory]:
    """Create the private directory for slices of one disk; remove it afterwards.

    For parts without a place, where nothing may be written, it is their own directory.

    Raises:
        SourceError: a part's files do not exist or cannot be read.
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
    """Remove the private directories of ended processes of ended jobs below `disk_root`.

    Args:
        disk_root: the root of a disk of the source.
        job_alive: whether the job of a name may still have running tasks, here or on other hosts.

    Returns:
        The removed directories.
    """
    removed: list[Path] = []
    for path in sorted(disk_root.glob("mergeberg-*-*-*")):
        found = _PRIVATE.match(path.name)
        if found and not job_alive(found["job"]) and not _process_alive(int(found["pid"])):
            # Another task may be removing the same directory.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)
                removed.append(path)
    return tuple(removed)


def _make(disk: Path, job: str) -> Path:
    while True:
        path = disk / f"mergeberg-{job}-{os.getpid()}-{next(_NUMBERS)}"
        # An earlier process with this number may have left one.
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path


def _link(source: Path, target: Path) -> None:
    """Link the files of a part, including those of its projections, which are subdirectories."""
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
            f"possible there and its parts are in {len(parents)} directories: "
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
    """Return the disk expression for the settings of a table with table_disk."""
    return (
        "disk(readonly = 1, type = 'object_storage', object_storage_type = 'local', "
        f"metadata_type = 'plain', path = {quote_string(f'{directory}/')})"
    )


_DATA: Final = ".bin"
# Marks of parts without adaptive granularity, which do not have the number of their rows.
_FIXED_MARKS: Final = (".mrk", ".cmrk")
_GRANULARITY: Final = 8192
"""ClickHouse's default index_granularity."""


@dataclass(frozen=True, slots=True)
class PartFiles:
    """A part as an open table has it: rows, marks, and the files from which it reads columns."""

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

    Compact parts have all columns in one file, which names them.

    Args:
        of_table: the condition that selects the table in a system table.
    """
    return (
        "SELECT name, any(rows), any(marks), arrayStringConcat(groupUniqArrayArray(filenames), '/')"
        f" FROM system.parts_columns WHERE active AND part_type = 'Wide' AND {of_table}"
        " GROUP BY name ORDER BY name"
    )


def unread(
    directory: Path, opened: Iterable[PartFiles], settings: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return, by part name, why parts are not read as they were written.

    Args:
        directory: the directory of the part folders.
        opened: the wide parts in it, as a table over it has them.
        settings: the settings of that table.

    Raises:
        OSError: a folder cannot be read.
    """
    granularity = int(dict(settings).get("index_granularity", "").strip("'") or _GRANULARITY)
    return {
        part.name: why
        for part in opened
        if (why := _why_unread(directory / part.name, part, granularity))
    }


def _why_unread(folder: Path, part: PartFiles, granularity: int) -> str:
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
