"""The tables that every reader is asked for, as values. `lake.py` makes them.

everything               a column of every type (`columns.py`), in three partitions
nested_uuid              a column that some readers cannot pass by
texts, numbers, times    each partition transform with NULL, nasty texts, and before 1970
grown                    two exports, and columns added between them
empty                    no row
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tests.readers.columns import COLUMNS, NESTED_UUID, Column, rows

__all__ = ["ADDED", "DIVIDED", "EMPTY", "EVERYTHING", "GROWN", "NESTED", "TABLES", "SourceTable"]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source table: the number of the row `id`, its columns, its rows as SQL, and its keys."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[str, ...]
    partition_by: str
    partition_spec: str | None = None


_ROWS: Final = 12
EVERYTHING: Final = SourceTable(
    "everything", COLUMNS, rows(COLUMNS, _ROWS), "intDiv(id, 4)", "truncate(4, id)"
)
NESTED: Final = SourceTable(
    "nested_uuid", (NESTED_UUID,), rows((NESTED_UUID,), 2), "tuple()", "unpartitioned"
)
EMPTY: Final = SourceTable("empty", COLUMNS[:8], rows(COLUMNS[:8], 2), "id", "id")

_NASTY = (
    "NULL", "''", "'a b'", "'a/b'", "'a=b'", "'ü-ñ🦆'", "'50%'", "'a+b'", "'it\\'s'", "'a:b'",
    "'../x'", "'a?b#c'", "'a%20b'", "'2024-01-01'", "'007'", "'null'", "'.'", "'back\\\\slash'",
    "'__HIVE_DEFAULT_PARTITION__'", "'a\\nb'",
)  # fmt: skip
_TIMES = (
    "NULL",
    "'1969-12-31 23:59:59.999999'",
    "'1969-12-31 00:00:00'",
    "'1970-01-01 00:00:00'",
    "'1900-01-01 00:00:00'",
    "'1969-01-31 05:00:00'",
    "'2024-02-29 12:34:56.789012'",
    "'2299-12-31 23:59:59.999999'",
)
_DAYS = "NULL", "'1969-12-31'", "'1970-01-01'", "'1900-02-28'", "'2024-02-29'", "'2299-12-31'"
_NUMBERS = "NULL", "0", "-1", "-10", "9", "10", "-11", "2147483647"


def _divided(name: str, *keys: tuple[str, str, tuple[str, ...]]) -> SourceTable:
    """Make a table with a key column of each transform, and one row a partition.

    The spec has all of them, so a filter of one column prunes by that column's transform alone.
    """
    columns = tuple(
        Column(f"{transform.partition('(')[0]}_{of.partition('(')[0].lower()}", of, values)
        for transform, of, values in keys
    )
    spec = [
        transform.format(column.name) for (transform, *_), column in zip(keys, columns, strict=True)
    ]
    nullable = tuple(replace(column, type=f"Nullable({column.type})") for column in columns)
    count = max(len(values) for *_, values in keys)
    return SourceTable(name, nullable, rows(nullable, count), "id", ", ".join(spec))


_INSTANT: Final = "DateTime64(6, 'UTC')"
DIVIDED: Final = (
    _divided(
        "texts",
        ("identity({})", "String", _NASTY),
        ("truncate(2, {})", "String", _NASTY),
        ("bucket(4, {})", "String", _NASTY),
    ),
    _divided(
        "numbers",
        ("identity({})", "Int32", (*_NUMBERS, "-2147483648")),
        ("identity({})", "Bool", ("NULL", "true", "false")),
        ("identity({})", "Decimal(9, 2)", ("NULL", "'-1.5'", "'0'", "'9999999.99'")),
        ("truncate(10, {})", "Int64", _NUMBERS),
        ("truncate(50, {})", "Decimal(18, 4)", ("NULL", "'-0.0001'", "'0'", "'1.2345'")),
        ("bucket(4, {})", "Int64", _NUMBERS),
    ),
    _divided(
        "times",
        ("identity({})", "Date32", _DAYS),
        ("identity({})", _INSTANT, _TIMES),
        *((f"{unit}({{}})", _INSTANT, _TIMES) for unit in ("year", "month", "day", "hour")),
        *((f"{unit}({{}})", "Date32", _DAYS) for unit in ("year", "month", "day")),
        ("bucket(4, {})", _INSTANT, _TIMES),
    ),
)

GROWN: Final = SourceTable(
    "grown", COLUMNS[:4], rows(COLUMNS[:4], 8), "intDiv(id, 4)", "truncate(4, id)"
)
"""The first half is exported, then `ADDED` is added on both sides, then the second half."""
ADDED: Final = tuple(
    c for c in COLUMNS
    if c.name in ("null_string", "uint64", "micros", "list", "map", "struct", "Größe🦆")
)  # fmt: skip

TABLES: Final = (EVERYTHING, NESTED, *DIVIDED, GROWN, EMPTY)
