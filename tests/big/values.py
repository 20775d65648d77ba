"""Whether every value arrived: ClickHouse compares its own table with the files of the lake.

Both sides are asked the same: for each column the sum and the exclusive or of a hash of each
value's text, and the number of NULLs; the same of whole rows. A lost or doubled value changes the
sum, two changes that cancel out in one do not in the other, and values that moved to another row
change the rows' hash. Files are read by ClickHouse's own Parquet reader in a ClickHouse that never
saw the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from catalog.clickhouse.connection import Connection, Row
from tableformat.names import quote_string
from tests.big.check import Check
from tests.big.lake import Lake
from tests.big.table import COLUMNS, TABLE, Column, Partition

__all__ = ["Sums", "lake_sums", "source_sums", "value_checks"]

Sums = dict[str, tuple[int, ...]]
"""By partition id: rows, then sum, exclusive or and NULLs of every column, then of whole rows."""

_FIGURES = 3


def source_sums(
    source: Connection, partitions: Sequence[Partition], columns: Sequence[Column] = COLUMNS
) -> Sums:
    """Ask ClickHouse's own table.

    Raises:
        SourceError: ClickHouse cannot read it.
    """
    return {
        p.id: _figures(
            source,
            f"FROM {TABLE} WHERE _partition_id = {quote_string(p.id)}",
            _source_text,
            columns,
        )
        for p in partitions
    }


def lake_sums(
    reader: Connection,
    lake: Lake,
    partitions: Sequence[Partition],
    columns: Sequence[Column] = COLUMNS,
) -> Sums:
    """Ask another ClickHouse about the files that are in main.

    Raises:
        SourceError: ClickHouse cannot read them.
    """
    sums = {}
    for partition in partitions:
        files = ",".join(file.path.lstrip("/") for file in lake.of(partition.id))
        table = f"file({quote_string(f'/{{{files}}}')}, Parquet)"
        sums[partition.id] = (
            _figures(reader, f"FROM {table}", _lake_text, columns) if files else (0,)
        )
    return sums


def value_checks(source: Sums, lake: Sums, columns: Sequence[Column] = COLUMNS) -> Iterator[Check]:
    """Compare the two."""
    for partition_id, here in source.items():
        there = lake[partition_id]
        counts = f"{partition_id}: {here[0]:,}"
        if here[0] != there[0]:
            counts += f" in ClickHouse, {there[0]:,} in the lake"
        yield Check("rows", partition_id, here[0] == there[0] > 0, counts)
    for partition_id, here in source.items():
        there = lake[partition_id]
        for number, name in enumerate([*(c.name for c in columns), "whole rows"]):
            one, other = (_of_column(figures, number) for figures in (here, there))
            place = f"{name}, partition {partition_id}"
            seen = f"{len(columns)} columns and whole rows, sum and exclusive or"
            differs = f"ClickHouse {one}, lake {other}"
            same = one[:2] == other[:2]
            yield Check("checksums", place, same, seen if same else differs)
            if name != "whole rows":
                same = one[2:] == other[2:]
                yield Check("NULLs", place, same, "as many as in ClickHouse" if same else differs)


def _of_column(figures: tuple[int, ...], number: int) -> tuple[int, ...]:
    start = 1 + number * _FIGURES
    return figures[start : start + _FIGURES]


def _figures(
    clickhouse: Connection, from_sql: str, text: Callable[[Column], str], columns: Sequence[Column]
) -> tuple[int, ...]:
    # NULL is no text, so that it differs from a string that reads like it.
    texts = [f"ifNull(concat('=', {text(c)}), 'NULL')" for c in columns]
    hashes = [f"sipHash64({t})" for t in texts] + [f"sipHash64({', '.join(texts)})"]
    nulls = [f"countIf({c.name} IS NULL)" for c in columns] + ["0"]
    asked = ", ".join(
        f"sum({hashed}), groupBitXor({hashed}), {null}"
        for hashed, null in zip(hashes, nulls, strict=True)
    )
    row: Row = clickhouse.rows(f"SELECT count(), {asked} {from_sql} SETTINGS max_threads = 2")[0]
    return tuple(int(str(figure)) for figure in row)


def _source_text(column: Column) -> str:
    """Return the text of a value, with instants as the lake keeps them: microseconds, UTC."""
    if column.type.startswith("DateTime"):
        return f"toString(toUnixTimestamp64Micro(toDateTime64({column.name}, 6, 'UTC')))"
    return f"toString({column.name})"


def _lake_text(column: Column) -> str:
    if column.type.startswith("DateTime"):
        return f"toString(toUnixTimestamp64Micro({column.name}))"
    return f"toString({column.name})"
