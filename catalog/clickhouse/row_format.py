"""Writes a few rows in any of ClickHouse's output formats, with a temporary empty ClickHouse."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TypeAlias

from catalog.clickhouse.connection import ClickHouseError, flag, text
from catalog.clickhouse.embedded import OwnClickHouse
from tableformat.clickhouse_codes import UNKNOWN_FORMAT
from tableformat.errors import UnsupportedError
from tableformat.names import quote_identifier, quote_string

__all__ = ["Columns", "check_format", "formatted"]

Columns: TypeAlias = Sequence[tuple[str, str]]
"""Names and ClickHouse types, not Nullable: any value may be None."""


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
