"""Which columns of a Parquet file have bloom filters."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from tableformat.parquet.leaves import FIELD_ID

__all__ = ["filtered_columns", "filters_kept"]


def filtered_columns(parquet: pq.ParquetFile) -> frozenset[int]:
    """Return the field ids of the columns that have bloom filters in any row group.

    Those of members of nested columns are not told, and a file without field ids has none.
    """
    metadata = parquet.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    filtered = {
        group.column(i).path_in_schema
        for group in groups
        for i in range(group.num_columns)
        if group.column(i).bloom_filter_offset is not None
    }
    return frozenset(_id_of(f) for f in parquet.schema_arrow if f.name in filtered and _id_of(f))


def filters_kept(
    files: Collection[pq.ParquetFile], schema: pa.Schema, without: frozenset[int] = frozenset()
) -> tuple[str, ...]:
    """Return the columns of a new file that have bloom filters in the files that it is made of.

    Args:
        files: those files.
        schema: of the new one, with field ids.
        without: columns, by field id, whose filters do not go over.
    """
    wanted = frozenset[int]().union(*(filtered_columns(one) for one in files)) - without
    return tuple(field.name for field in schema if _id_of(field) in wanted)


def _id_of(field: pa.Field) -> int:
    """Return the field id, 0 for none: Iceberg's begin at 1."""
    return int((field.metadata or {}).get(FIELD_ID, 0))
