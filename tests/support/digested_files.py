"""Data files of any types, as an export writes them, and what their digest must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from catalog.clickhouse.connection import Connection
from tableformat.committer import FileInMain
from tableformat.digest import Digest
from tableformat.export.slice_sql import select_list
from tableformat.iceberg.arrow_schema import file_schema, to_file
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.digest_sql import digest_sql, read_digest, source_columns
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tests.strategies.mapping import Sample, column_of, table_of
from tests.support.embedded_clickhouse import EmbeddedClickHouse

__all__ = ["ALLOWED", "SAMPLE_ROWS", "digested", "in_main"]

ALLOWED = ("allow_suspicious_low_cardinality_types", "enable_time_time64_type")
"""Settings of a ClickHouse that has values of every type."""
SAMPLE_ROWS = 4


def in_main(location: str) -> FileInMain:
    """Return what main says of a file on this host, which need not be there."""
    path = Path(location.removeprefix("file://"))
    if not path.exists():
        return FileInMain(location, 0, deletes=False)
    rows = pq.read_metadata(path).num_rows
    return FileInMain(location, rows, deletes=False, bytes=path.stat().st_size)


def digested(
    clickhouse: EmbeddedClickHouse,
    connection: Connection,
    columns: Sequence[Sample],
    cuts: int,
    directory: Path,
) -> tuple[FilesToDigest, Digest]:
    """Write values of some types to so many files; return these, and the digest of the values."""
    table = table_of(*(column_of(f"c{i}", s.type) for i, s in enumerate(columns)))
    inner = ", ".join(
        f"arrayElement([{', '.join(s.sql)}], number + 1) AS c{i}" for i, s in enumerate(columns)
    )
    values = f"(SELECT {inner} FROM numbers({SAMPLE_ROWS})) AS __src"
    wanted = source_columns(table.columns, {})
    sql = digest_sql(wanted, values, group="0", tallies=False)
    (row,) = connection.rows(f"{sql} SETTINGS {WIRE_SETTINGS}")
    expected, _ = read_digest(wanted, row[1:], tallies=False)

    schema = map_columns(table).schema
    wire = f"SELECT {select_list(table.columns)} FROM {values} SETTINGS {WIRE_SETTINGS}"
    written = to_file(clickhouse.arrow(wire), schema)
    paths = []
    for i in range(cuts):
        paths.append(str(directory / f"{i}.parquet"))
        piece = written.take(list(range(i, SAMPLE_ROWS, cuts)))
        pq.write_table(piece.cast(file_schema(schema)), paths[-1], store_schema=False)
    return FilesToDigest(tuple(map(in_main, paths)), schema, wanted), expected
