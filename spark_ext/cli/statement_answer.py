"""The rows of a statement's answer, in a format of ClickHouse's, and the file that they go to.

`INTO OUTFILE` and `FORMAT` of `mergeberg alter` (RQ...IntoOutfile, RQ...Format): they shape the
rows that say what became of each partition, never the data files. ClickHouse itself formats
them. A file that is there already is
left alone unless TRUNCATE or APPEND says else, as ClickHouse does it.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from catalog.clickhouse.row_format import Columns, check_format, formatted
from spark_ext.procedures.exporting import EXPORTED
from spark_ext.sql.statements import Ending, Outfile
from tableformat.clickhouse_codes import CANNOT_OPEN_FILE, NOT_IMPLEMENTED
from tableformat.errors import DestinationError, RefusedError, TableFormatError, UnsupportedError

__all__ = ["OF_EXPORTS", "check_ending", "rendered", "write_answer"]

_DEFAULT: Final = "TabSeparated"
_TYPES: Final = {"STRING": "String", "BIGINT": "Int64"}
# It has more digits than a number of JSON keeps in most programs that read it.
_TEXTS: Final = ("snapshot_id",)

OF_EXPORTS: Final[Columns] = tuple(
    (one.name, "String" if one.name in _TEXTS else _TYPES[one.type]) for one in EXPORTED
)
"""The columns of the answer about partitions, and their types."""


def check_ending(ending: Ending) -> None:
    """Check that the answer can be written as it is asked for, before anything is done.

    Raises:
        UnsupportedError: ClickHouse does not write it in that format (its code); the format is no
            text, and goes to no file (code 48); another compression (48).
        RefusedError: the file is there already, or cannot be made there (code 76).
    """
    form = ending.format
    is_text = form is None or check_format(form, OF_EXPORTS)
    to_screen = ending.outfile is None or ending.outfile.stdout
    if to_screen and not is_text:
        message = (
            f"Cannot print the answer in the format {form}: it is no text. Write it to a file: "
            f"INTO OUTFILE 'path' FORMAT {form}."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    outfile = ending.outfile
    if outfile is None:
        return
    compression = _compression(outfile)
    if compression not in ("none", "gzip"):
        message = (
            f"Cannot write {outfile.path} with the compression {compression}: the answer is a few "
            "rows. Write COMPRESSION 'gzip' or leave it out."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    refused = _refused(Path(outfile.path), keeps=not (outfile.truncate or outfile.append))
    if refused:
        message = f"Cannot write the answer to {outfile.path}: {refused}"
        raise RefusedError(message, code=CANNOT_OPEN_FILE)


def _refused(path: Path, *, keeps: bool) -> str:
    """Return why no file can be written there, and what to do, '' when it can.

    Args:
        path: of the file.
        keeps: whether one that is there is left alone.
    """
    if path.is_dir():
        return "it is a directory. Name a file."
    if not path.parent.is_dir():
        return f"{path.parent} is no directory. Make it, or write another name."
    if keeps and path.exists():
        return (
            "the file is there already. Write TRUNCATE or APPEND behind its name, or another name."
        )
    return ""


def rendered(ending: Ending, columns: Columns, rows: Sequence[Sequence[object]]) -> bytes:
    """Return the rows in the format of the statement.

    Raises:
        DestinationError: ClickHouse, which writes them, does not start.
    """
    form = ending.format or _DEFAULT
    try:
        return formatted(form, columns, rows)
    except TableFormatError as error:
        message = (
            f"Cannot write the answer in the format {form}: {error.message} What was done stays. "
            "The same statement again says what became of it."
        )
        raise DestinationError(message) from error


def write_answer(outfile: Outfile, content: bytes) -> None:
    """Write the rows to the file that the statement names.

    Raises:
        DestinationError: it cannot be written; what was exported stays.
    """
    if _compression(outfile) == "gzip":
        level = 9 if outfile.level is None else outfile.level
        content = gzip.compress(content, compresslevel=level)
    # "x": one that somebody else made since it was looked at is left alone, too.
    mode = "ab" if outfile.append else "wb" if outfile.truncate else "xb"
    try:
        with Path(outfile.path).open(mode) as file:
            file.write(content)
    except OSError as error:
        message = (
            f"Cannot write the answer to {outfile.path}: {error.strerror}. What was exported "
            "stays. The same statement again says what became of it."
        )
        raise DestinationError(message) from error


def _compression(outfile: Outfile) -> str:
    if outfile.compression is None:
        return "gzip" if outfile.path.endswith(".gz") else "none"
    named = outfile.compression.lower()
    return "gzip" if named == "gz" else named or "none"
