"""The rows of a statement's answer, in a format of ClickHouse's, and the file that they go to.

`INTO OUTFILE` and `FORMAT` of `mergeberg alter` (RQ...IntoOutfile, RQ...Format): they shape the
rows that say what became of each partition, never the data files. A file that is there already is
left alone unless TRUNCATE or APPEND says else, as ClickHouse does it.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from spark_ext.cli.output import TextOutput
from spark_ext.sql.statements import Ending, Outfile
from tableformat.clickhouse_codes import CANNOT_OPEN_FILE, NOT_IMPLEMENTED, UNKNOWN_FORMAT
from tableformat.errors import DestinationError, RefusedError, UnsupportedError

__all__ = ["FORMATS", "check_ending", "rendered", "write_answer"]

Rows: TypeAlias = Sequence[Sequence[object]]

_DEFAULT: Final = "TabSeparated"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0"})


def _tab_separated(_: Sequence[str], rows: Rows) -> str:
    return "".join("\t".join(_tsv(value) for value in row) + "\n" for row in rows)


def _tsv(value: object) -> str:
    return "\\N" if value is None else str(value).translate(_ESCAPES)


def _csv(_: Sequence[str], rows: Rows) -> str:
    return "".join(",".join(_quoted(value) for value in row) + "\n" for row in rows)


def _quoted(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return "\\N" if value is None else str(value)


def _json_each_row(columns: Sequence[str], rows: Rows) -> str:
    lines = (json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _pretty(columns: Sequence[str], rows: Rows) -> str:
    out = io.StringIO()
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    TextOutput(out, io.StringIO()).table(columns, records)
    return out.getvalue()


def _with_names(
    form: Callable[[Sequence[str], Rows], str],
) -> Callable[[Sequence[str], Rows], str]:
    return lambda columns, rows: form(columns, [columns, *rows])


FORMATS: Final[Mapping[str, Callable[[Sequence[str], Rows], str]]] = {
    "TabSeparated": _tab_separated,
    "TSV": _tab_separated,
    "TabSeparatedWithNames": _with_names(_tab_separated),
    "TSVWithNames": _with_names(_tab_separated),
    "CSV": _csv,
    "CSVWithNames": _with_names(_csv),
    "JSONEachRow": _json_each_row,
    "Pretty": _pretty,
}
"""The formats that an answer can have, by ClickHouse's names."""


def check_ending(ending: Ending) -> None:
    """Check that the answer can be written as it is asked for, before anything is done.

    Raises:
        UnsupportedError: another format (code 73), or another compression (48).
        RefusedError: the file is there already, or cannot be made there (code 76).
    """
    form = ending.format or _DEFAULT
    if form not in FORMATS:
        message = (
            f"Cannot write the answer in the format {form}: it has {', '.join(FORMATS)}. The data "
            "files are Parquet in any case."
        )
        raise UnsupportedError(message, code=UNKNOWN_FORMAT)
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


def rendered(ending: Ending, columns: Sequence[str], rows: Rows) -> str:
    """Return the rows in the format of the statement."""
    return FORMATS[ending.format or _DEFAULT](columns, rows)


def write_answer(outfile: Outfile, text: str) -> None:
    """Write the rows to the file that the statement names.

    Raises:
        DestinationError: it cannot be written; what was exported stays.
    """
    content = text.encode()
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
