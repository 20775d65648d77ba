"""Whether every file is as promised: order, ids, statistics, size, and what writing it took.

Files are read with pyarrow, apart from the code that wrote them: least and greatest are computed
from the values, not taken from the footer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, PrimitiveType, StructType

from spark_ext.engine.session import TASK_MEMORY
from tests.big.check import Check
from tests.big.lake import Lake, LakeFile
from tests.big.table import KEY

__all__ = ["BOUNDED", "file_checks", "rows_out_of_order"]

_FIELD_ID: Final = b"PARQUET:field_id"
_BATCH_ROWS: Final = 65_536
_CUT: Final = 16
_MIB: Final = 1024 * 1024
# The planner estimates; a file may be that much larger than what was asked for.
_SIZE_MARGIN: Final = 1.25
BOUNDED: Final = ("id", "account", "kind", "day", "seen", "amount", "balance", "score", "text",
                   "note", "age")  # fmt: skip


def file_checks(lake: Lake, *, target_bytes: int) -> Iterator[Check]:
    """Check every file of main, and that they are what receipts speak of."""
    schema = lake.table.schema()
    order = lake.table.sort_order()
    declared = tuple(schema.find_column_name(f.source_id) for f in order.fields)
    yield Check("declared order", "the table", declared == KEY, ", ".join(map(str, declared)))
    yield Check("files", "main", bool(lake.files), f"{len(lake.files)} files")
    for file in lake.files:
        where = file.path.rpartition("/")[2]
        footer = pq.read_metadata(file.path)
        yield from _order_checks(file, where, footer, order.order_id)
        yield from _schema_checks(file, where, schema)
        yield from _statistics_checks(file, where, footer, schema)
        yield from _cost_checks(file, where, target_bytes)


def _order_checks(
    file: LakeFile, where: str, footer: pq.FileMetaData, order_id: int
) -> Iterator[Check]:
    unsorted = rows_out_of_order(file.path, KEY)
    yield Check(
        "rows in order",
        where,
        unsorted == 0,
        f"by {', '.join(KEY)}" if unsorted == 0 else f"{unsorted} rows before a smaller one",
    )
    found = file.entry.sort_order_id
    yield Check("sort_order_id", where, found == order_id, str(found))
    columns = [footer.schema.column(i).path for i in range(footer.num_columns)]
    for number in range(footer.num_row_groups):
        declared = tuple(columns[s.column_index] for s in footer.row_group(number).sorting_columns)
        yield Check(
            "sorting columns", f"{where}, group {number}", declared == KEY, ", ".join(declared)
        )


def rows_out_of_order(path: str, key: tuple[str, ...]) -> int:
    """Return how many rows are greater than the row after them, by an ascending key."""
    found = 0
    last: pa.Table | None = None
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(key)):
            table = pa.Table.from_batches([batch])
            rows = table if last is None else pa.concat_tables([last, table])
            found += _descents(rows, key)
            last = table.slice(table.num_rows - 1)
    return found


def _descents(rows: pa.Table, key: tuple[str, ...]) -> int:
    """Return how many neighbours are out of order: the last column of the key decides last."""
    steps: int = rows.num_rows - 1
    in_order = pa.chunked_array([pa.repeat(pa.scalar(value=True), steps)])
    for name in reversed(key):
        column = rows.column(name).combine_chunks()
        here, following = column.slice(0, steps), column.slice(1)
        equal = pc.and_(pc.equal(here, following), in_order)
        in_order = pc.or_(pc.less(here, following), equal)
    kept: int = pc.sum(in_order, min_count=0).as_py()
    return steps - kept


def _schema_checks(file: LakeFile, where: str, schema: Schema) -> Iterator[Check]:
    with pq.ParquetFile(file.path) as opened:
        found = dict(_ids_in_file("", opened.schema_arrow))
    wanted = dict(_ids_in_table("", schema.fields))
    same = found == wanted
    seen = f"{len(wanted)} ids" if same else f"{found}, not {wanted}"
    yield Check("field ids", where, same, seen)


def _ids_in_file(prefix: str, fields: Any) -> Iterator[tuple[str, int | None]]:
    for number, field in enumerate(fields):
        # What the elements of a list are called in a file is of no meaning.
        name = f"{prefix}.{number}" if prefix else field.name
        text = (field.metadata or {}).get(_FIELD_ID)
        yield name, None if text is None else int(text)
        children = [field.type.field(i) for i in range(field.type.num_fields)]
        yield from _ids_in_file(name, children)


def _ids_in_table(prefix: str, fields: Any) -> Iterator[tuple[str, int]]:
    for number, field in enumerate(fields):
        name = f"{prefix}.{number}" if prefix else field.name
        yield name, field.field_id
        yield from _ids_in_table(name, _children(field))


def _children(field: NestedField) -> tuple[NestedField, ...]:
    match field.field_type:
        case StructType() as struct:
            return tuple(struct.fields)
        case ListType() as array:
            return (array.element_field,)
        case MapType() as of:
            return (of.key_field, of.value_field)
        case _:
            return ()


def _statistics_checks(
    file: LakeFile, where: str, footer: pq.FileMetaData, schema: Schema
) -> Iterator[Check]:
    entry = file.entry
    yield Check(
        "rows and bytes in the manifest",
        where,
        (entry.record_count, entry.file_size_in_bytes) == (footer.num_rows, _size(file.path)),
        "as the files have them",
    )
    leaves = {i for n, i in _ids_in_table("", schema.fields) if _is_leaf(schema, i)}
    counted = (entry.column_sizes, entry.value_counts, entry.null_value_counts)
    complete = all(set(counts or {}) == leaves for counts in counted)
    yield Check("counts present", where, complete, f"{len(leaves)} columns: sizes, values, NULLs")
    table = pq.read_table(file.path, columns=list(BOUNDED), partitioning=None)
    for name in BOUNDED:
        column, field = table.column(name), schema.find_field(name)
        yield _null_check(file, where, field, column)
        yield _bounds_check(file, where, field, column)


def _null_check(file: LakeFile, where: str, field: NestedField, column: pa.ChunkedArray) -> Check:
    nulls = (file.entry.null_value_counts or {}).get(field.field_id)
    nans = (file.entry.nan_value_counts or {}).get(field.field_id)
    wanted = None
    if pa.types.is_floating(column.type):
        wanted = pc.sum(pc.is_nan(column), min_count=0).as_py()
    right = nulls == column.null_count and nans == wanted
    seen = f"{nulls} NULLs, {nans} NaN, values have {column.null_count} and {wanted}"
    return Check(
        "NULL and NaN counts", f"{field.name} of {where}", right, "as the values" if right else seen
    )


def _bounds_check(file: LakeFile, where: str, field: NestedField, column: pa.ChunkedArray) -> Check:
    """Compare bounds with the values: equal, or for long text around them and not far away."""
    assert isinstance(field.field_type, PrimitiveType)
    place = f"{field.name} of {where}"
    both = (file.entry.lower_bounds or {}, file.entry.upper_bounds or {})
    if not all(field.field_id in bounds for bounds in both):
        return Check("bounds", place, passed=False, seen="no bounds")
    lower, upper = (from_bytes(field.field_type, bounds[field.field_id]) for bounds in both)
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    if pa.types.is_temporal(column.type):
        # Iceberg's single values are days and microseconds since 1970.
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    least, greatest = pc.min_max(column).as_py().values()
    if isinstance(least, str):
        near = upper[: _CUT - 1] == greatest[: _CUT - 1]
        right = lower == least[:_CUT] and upper >= greatest and near
    else:
        right = (lower, upper) == (least, greatest)
    seen = f"{lower!r} to {upper!r}, values {least!r} to {greatest!r}"
    seen_bounds = f"{', '.join(BOUNDED)}: as the values" if right else seen
    return Check("bounds", place, right, seen_bounds)


def _cost_checks(file: LakeFile, where: str, target_bytes: int) -> Iterator[Check]:
    size = file.entry.file_size_in_bytes
    bound = f"none above {_SIZE_MARGIN} x {target_bytes / _MIB:.0f} MiB"
    small = size <= target_bytes * _SIZE_MARGIN
    yield Check("file size", where, small, bound if small else f"{size / _MIB:.1f} MiB")
    receipt = file.receipt
    fits = receipt is not None and (receipt.rows, receipt.file_bytes) == (
        file.entry.record_count, size
    )  # fmt: skip
    yield Check("receipts", where, fits, "one for each file, with its rows and bytes")
    peak = 0 if receipt is None else receipt.peak_memory
    kept = 0 < peak <= TASK_MEMORY
    bound = f"none above the planned {TASK_MEMORY / _MIB:.0f} MiB"
    yield Check("peak memory", where, kept, bound if kept else f"{peak / _MIB:.0f} MiB")


def _is_leaf(schema: Schema, field_id: int) -> bool:
    return isinstance(schema.find_type(field_id), PrimitiveType)


def _size(path: str) -> int:
    with open(path, "rb") as file:  # noqa: PTH123  the path comes from the lake, as text
        return file.seek(0, 2)
