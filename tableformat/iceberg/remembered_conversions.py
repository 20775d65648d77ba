"""Which conversions an export uses: what the user says, and what the lake table remembers.

All files of a table must be converted alike, or one column holds values of two meanings. So what
the table was made with holds when `--convert` is left out, and another word of the user is refused.
Only `truncate` may come later, export by export: what the column holds until then, whole
microseconds, it leaves as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import refuse_all
from tableformat.iceberg.column_types import TypeMapping
from tableformat.iceberg.properties import RememberedSource
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.names import option_name

__all__ = ["conversions_in_force"]


def conversions_in_force(
    what: str,
    table: MergeTreeTable,
    given: Mapping[str, str],
    remembered: RememberedSource | None,
) -> Mapping[str, str]:
    """Return the conversions to map with, by column.

    A remembered conversion of a column whose type it does not fit any more is left out; what the
    column is now is compared with the table like everything else.

    Args:
        what: what cannot be done, without the leading "Cannot", when it is refused.
        table: the source.
        given: what the user said.
        remembered: what the destination remembers, None for a new table or a stranger's.

    Raises:
        RefusedError: the user said something else than the table was made with (code 36).
    """
    if remembered is None:
        return given
    made_with = remembered.conversions
    known = {column.name for column in remembered.table.stored_columns}
    used, reasons = dict(given), []
    for column in table.stored_columns:
        before = made_with.get(column.name, "")
        option = f"--convert {option_name(column.name)}"
        chosen = given.get(column.name)
        if chosen is None and before and _applies(column, before):
            used[column.name] = before
        elif chosen is not None and column.name in known and not _same(column, chosen, before):
            was = f"with {option}={before}" if before else "without a conversion"
            reasons.append(
                f"{option}={chosen} was given, and the destination's column "
                f"{column.name} was made {was}; leave it out, or export to another table"
            )
    if reasons:
        raise refuse_all(what, tuple(reasons), code=BAD_ARGUMENTS)
    return used


def _applies(column: Column, conversion: str) -> bool:
    mapping = TypeMapping(conversion)
    mapping.map(column.type)
    return mapping.converted


def _same(column: Column, one: str, other: str) -> bool:
    """Whether `one` makes the values that `other` made: a default may be said by name."""
    if one == other or (one, other) == ("truncate", ""):
        return True
    mappings = [TypeMapping(way) for way in (one, other)]
    types = [str(mapping.map(column.type)) for mapping in mappings]
    return types[0] == types[1] and mappings[0].notes == mappings[1].notes
