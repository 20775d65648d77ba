"""Whether a table over the files of parts reads every file of them, as the writer wrote them.

ClickHouse opens parts under settings that they were not written with, and says nothing: a column
whose file it looks for under another name is empty or zero in every row. The names of the files in
the part, and the number of its marks, are witnesses that do not depend on those settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tableformat.mergetree.table_settings import SETTINGS, SettingUse

__all__ = ["PartFiles", "files_sql", "unread"]

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
