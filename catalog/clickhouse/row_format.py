"""Writes a few rows in any of ClickHouse's output formats, with a temporary empty ClickHouse.

ClickHouse also compresses them: a file has the bytes that its own INTO OUTFILE writes.
"""

from __future__ import annotations

import bz2
import difflib
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from catalog.clickhouse.connection import ClickHouseError, flag, text
from catalog.clickhouse.embedded import OwnClickHouse
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_FORMAT
from tableformat.errors import UnsupportedError
from tableformat.names import quote_identifier, quote_string

__all__ = ["Columns", "check_format", "compressed", "compression_of", "formatted"]

Columns: TypeAlias = Sequence[tuple[str, str]]
"""Names and ClickHouse types, not Nullable: any value may be None."""


_AUTO: Final = ("", "auto")
_NONE: Final = "none"
_BZ2: Final = "bz2"
_DEFAULT_LEVEL: Final = 3
_BY_SUFFIX: Final[Mapping[str, str]] = {
    **{name: name for name in ("deflate", "lz4", _BZ2, "snappy")},
    **dict.fromkeys(("gz", "gzip"), "gzip"),
    **dict.fromkeys(("br", "brotli"), "br"),
    **dict.fromkeys(("xz", "lzma"), "xz"),
    **dict.fromkeys(("zst", "zstd"), "zstd"),
}
"""ClickHouse's compressions, by the last suffix of a file's name."""


def check_format(form: str, columns: Columns) -> bool:
    """Return whether a format is text for people; other formats may be binary.

    Raises:
        UnsupportedError: ClickHouse cannot write such rows in it (its code and reason).
        SourceError: ClickHouse does not start.
    """
    with OwnClickHouse("format") as clickhouse:
        known = {
            text(name).lower(): (text(name), flag(of_people))
            for name, of_people in clickhouse.rows(
                "SELECT name, is_tty_friendly FROM system.formats WHERE is_output"
            )
        }
        if form.lower() not in known:
            near = difflib.get_close_matches(form.lower(), known, n=1)
            advice = f"Did you mean {known[near[0]][0]}?" if near else "Leave FORMAT out."
            message = (
                f"Cannot write the result in the format {form}: ClickHouse has no such format for "
                f"output. {advice}"
            )
            raise UnsupportedError(message, code=UNKNOWN_FORMAT)
        # Two rows, because some formats can write only one.
        _written(clickhouse, form, columns, [[None] * len(columns)] * 2)
        return known[form.lower()][1]


def formatted(form: str, columns: Columns, rows: Sequence[Sequence[object]]) -> bytes:
    """Return rows of texts and integers in a format.

    Raises:
        UnsupportedError: ClickHouse cannot write such rows in it (its code and reason).
        SourceError: ClickHouse does not start.
    """
    with OwnClickHouse("format") as clickhouse:
        return _written(clickhouse, form, columns, rows)


def compression_of(path: str, named: str | None) -> str | None:
    """Return the compression of a file, as ClickHouse chooses it; None for no compression.

    Args:
        path: the path of the file, whose suffix decides if no compression is named.
        named: the name in COMPRESSION, None without the clause. It may be unknown to ClickHouse.
    """
    name = (named or "").lower()
    if name in _AUTO:
        return _BY_SUFFIX.get(path.rpartition(".")[2].lower()) if "." in path else None
    return None if name == _NONE else name


def compressed(content: bytes, compression: str | None, level: int | None) -> bytes:
    """Return a file's content as ClickHouse compresses it.

    Args:
        content: the content.
        compression: as `compression_of` returned it.
        level: the level, None for ClickHouse's default.

    Raises:
        UnsupportedError: ClickHouse does not know the compression or the level (its code and
            reason).
        SourceError: ClickHouse does not start.
    """
    if compression is None and level is None:
        return content
    name = compression or _NONE
    with OwnClickHouse("format") as clickhouse:
        plain, packed = clickhouse.directory / "plain", clickhouse.directory / "packed"
        plain.write_bytes(content)
        of_level = "" if level is None else f" LEVEL {level}"
        try:
            clickhouse.command(
                f"SELECT * FROM file({quote_string(str(plain))}, 'RawBLOB', 'raw String') INTO "
                f"OUTFILE {quote_string(str(packed))} COMPRESSION {quote_string(name)}{of_level} "
                "FORMAT RawBLOB"
            )
        except ClickHouseError as error:
            if name == _BZ2 and error.code == NOT_IMPLEMENTED:
                # A server has it, and the ClickHouse of the Python package is built without.
                return bz2.compress(content, level or _DEFAULT_LEVEL)
            # INTO OUTFILE repeats the code in front of the reason.
            reason = ClickHouseError(error.reason).reason
            message = (
                f"Cannot write the result with the compression {name}: {reason}. Write another "
                "compression or level, or leave the clause out."
            )
            raise UnsupportedError(message, code=error.code) from error
        return packed.read_bytes()


def _written(
    clickhouse: OwnClickHouse, form: str, columns: Columns, rows: Sequence[Sequence[object]]
) -> bytes:
    path = clickhouse.directory / "rows"
    structure = ", ".join(f"{quote_identifier(name)} Nullable({of})" for name, of in columns)
    # Without rows, one is written and filtered out.
    each = rows or [[None] * len(columns)]
    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in each)
    given = f"values({quote_string(structure)}, {values})"
    try:
        clickhouse.command(
            f"INSERT INTO FUNCTION file({quote_string(str(path))}, {quote_string(form)},"
            f" {quote_string(structure)}) SELECT * FROM {given}{'' if rows else ' WHERE 0'}"
        )
    except ClickHouseError as error:
        message = (
            f"Cannot write the result in the format {form}: {error.reason.rstrip('.')}. Write "
            "another format."
        )
        raise UnsupportedError(message, code=error.code) from error
    return path.read_bytes() if path.exists() else b""


def _literal(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case int():
            return str(value)
        case _:
            return quote_string(str(value))
