"""Computes Iceberg's column statistics of a written file from the writer's own Parquet footer.

Bounds are Iceberg's single-value bytes (spec, appendix D), for every leaf column that is not
below a list or map. Struct members and names with dots are included, which libraries leave out.

* A column has counts and bounds by its metrics mode (Iceberg's configuration, "Write properties").
* Text and binary bounds are cut to 16 code points or bytes, or what the mode says; a cut upper
  bound is rounded up.
* An uncertain bound is left out: a missing bound costs time, a wrong bound costs rows.
* UUID columns have no bounds, in the manifest or in the footer: Iceberg's Java library compares
  their halves as signed numbers and skips files that hold the rows (docs/reference/readers.md).

`leaves` lists the leaf columns of an Arrow schema in Parquet's order. `filtered_columns` and
`filters_kept` return the columns of a file that have bloom filters.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableformat.errors import InternalError
from tableformat.receipt import ColumnStatistics

__all__ = [
    "COUNTS",
    "FIELD_ID",
    "FULL",
    "NO_METRICS",
    "TRUNCATE_16",
    "GroupFacts",
    "Leaf",
    "MetricsMode",
    "column_statistics",
    "filtered_columns",
    "filters_kept",
    "group_facts",
    "in_footer",
    "leaf_values",
    "leaves",
]

FIELD_ID: Final = b"PARQUET:field_id"
_KEY, _ITEM = 0, 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf column.

    `name` is Iceberg's full name: the names from the schema down, with dots between; the child of a
    list is `element`. `path` are the child positions; a list has one child, a map a key (0) and a
    value (1). `repeated` is true below a list or map.
    """

    index: int
    name: str
    field_id: int
    type: pa.DataType
    path: tuple[int, ...]
    repeated: bool


def leaves(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Return the leaf columns of a file schema.

    Raises:
        InternalError: a leaf has no field id.
    """
    found = [
        leaf
        for position, field in enumerate(schema)
        for leaf in _below(field, field.name, (position,), repeated=False)
    ]
    return tuple(
        Leaf(number, name, _field_id(field), field.type, path, repeated)
        for number, (field, name, path, repeated) in enumerate(found)
    )


def leaf_values(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """Return the values of one leaf, without the lists around them."""
    first, *rest = leaf.path
    column = table.column(first)
    return pa.chunked_array([_descend(chunk, rest) for chunk in column.chunks], type=leaf.type)


def _below(
    field: pa.Field, name: str, path: tuple[int, ...], *, repeated: bool
) -> Iterator[tuple[pa.Field, str, tuple[int, ...], bool]]:
    kind = field.type
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            inner = kind.field(at)
            yield from _below(inner, f"{name}.{inner.name}", (*path, at), repeated=repeated)
    elif pa.types.is_map(kind):
        yield from _below(kind.key_field, f"{name}.key", (*path, _KEY), repeated=True)
        yield from _below(kind.item_field, f"{name}.value", (*path, _ITEM), repeated=True)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _below(kind.value_field, f"{name}.element", (*path, 0), repeated=True)
    else:
        yield field, name, path, repeated


def _descend(array: pa.Array, path: list[int]) -> pa.Array:
    if not path:
        return array
    step, *rest = path
    if pa.types.is_struct(array.type):
        # Unlike `array.field`, this honours the struct's own nulls and slice.
        return _descend(pc.struct_field(array, [step]), rest)
    if pa.types.is_map(array.type):
        entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
        return _descend(pc.struct_field(pc.list_flatten(entries), [step]), rest)
    return _descend(pc.list_flatten(array), rest)


def _field_id(field: pa.Field) -> int:
    text = (field.metadata or {}).get(FIELD_ID)
    if text is None:
        message = f"Cannot write the column {field.name!r}: its schema has no field id."
        raise InternalError(f"{message} This is a bug, please report it.")
    return int(text)


MetricsMode = int
"""`NO_METRICS`, `COUNTS`, or the greatest length of a column's bounds if it is text or binary."""
NO_METRICS: Final[MetricsMode] = -1
COUNTS: Final[MetricsMode] = 0
"""Counts and size, no bounds."""
TRUNCATE_16: Final[MetricsMode] = 16
FULL: Final[MetricsMode] = sys.maxsize
# Parquet omits limits above 4096 bytes; below this it always has them.
_LIMIT_LENGTH: Final = 4000
_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_LAST_BYTE: Final = 0xFF


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Facts about a row group that the footer lacks, by leaf index.

    `nans` is for every float leaf. `limits` is for text and binary leaves with values so long that
    Parquet omits the least and the greatest. `nulls` is for leaves without footer statistics,
    except below lists and maps.
    """

    rows: int
    nans: dict[int, int]
    limits: dict[int, tuple[bytes, bytes]]
    nulls: dict[int, int]


def group_facts(table: pa.Table, file_leaves: Sequence[Leaf]) -> GroupFacts:
    """Compute the facts of one row group that Parquet does not write."""
    nans: dict[int, int] = {}
    limits: dict[int, tuple[bytes, bytes]] = {}
    nulls: dict[int, int] = {}
    for leaf in file_leaves:
        if not in_footer(leaf) and not leaf.repeated:
            nulls[leaf.index] = leaf_values(table, leaf).null_count
        elif pa.types.is_floating(leaf.type):
            found = pc.sum(pc.is_nan(leaf_values(table, leaf)), min_count=0)
            nans[leaf.index] = found.as_py()
        elif not leaf.repeated and (pa.types.is_string(leaf.type) or pa.types.is_binary(leaf.type)):
            values = leaf_values(table, leaf)
            longest = pc.max(pc.binary_length(values)).as_py()
            if longest is not None and longest > _LIMIT_LENGTH:
                # Bytes compare as UTF-8 code points do.
                both = pc.min_max(values.cast(pa.binary())).as_py()
                limits[leaf.index] = (both["min"], both["max"])
    return GroupFacts(table.num_rows, nans, limits, nulls)


def in_footer(leaf: Leaf) -> bool:
    """Whether the footer has Parquet's statistics of a leaf."""
    return not isinstance(leaf.type, pa.UuidType)


def column_statistics(
    footer: pq.FileMetaData,
    file_leaves: Sequence[Leaf],
    facts: Sequence[GroupFacts],
    mode: Callable[[Leaf], MetricsMode] = lambda _: TRUNCATE_16,
) -> tuple[ColumnStatistics, ...]:
    """Return the statistics of every leaf column with metrics; `facts` are of the row groups."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return tuple(
        _of_leaf(leaf, [group.column(leaf.index) for group in groups], facts, mode(leaf))
        for leaf in file_leaves
        if mode(leaf) != NO_METRICS
    )


def _of_leaf(
    leaf: Leaf,
    chunks: Sequence[pq.ColumnChunkMetaData],
    facts: Sequence[GroupFacts],
    mode: MetricsMode,
) -> ColumnStatistics:
    nulls = [_nulls(leaf, *of) for of in zip(chunks, facts, strict=True)]
    nans = sum(fact.nans.get(leaf.index, 0) for fact in facts)
    lower, upper = (None, None)
    if mode > COUNTS:
        lower, upper = _bounds(leaf, chunks, nulls, facts, mode)
    return ColumnStatistics(
        field_id=leaf.field_id,
        size=sum(chunk.total_compressed_size for chunk in chunks),
        values=sum(chunk.num_values for chunk in chunks),
        nulls=None if None in nulls else sum(n for n in nulls if n is not None),
        nans=nans if pa.types.is_floating(leaf.type) else None,
        lower=None if lower is None else lower.hex(),
        upper=None if upper is None else upper.hex(),
    )


def _nulls(leaf: Leaf, chunk: pq.ColumnChunkMetaData, fact: GroupFacts) -> int | None:
    if leaf.index in fact.nulls:
        return fact.nulls[leaf.index]
    found = chunk.statistics
    return int(found.null_count) if found is not None and found.has_null_count else None


def _bounds(
    leaf: Leaf,
    chunks: Sequence[pq.ColumnChunkMetaData],
    nulls: Sequence[int | None],
    facts: Sequence[GroupFacts],
    length: int,
) -> tuple[bytes | None, bytes | None]:
    """Return both bounds of a leaf, None if there is no value or a bound is uncertain."""
    if leaf.repeated:
        return None, None
    limits: list[tuple[Any, Any]] = []
    for chunk, null, fact in zip(chunks, nulls, facts, strict=True):
        found = chunk.statistics
        if leaf.index in fact.limits:
            limits.append(fact.limits[leaf.index])
        elif found is not None and found.has_min_max:
            limits.append((found.min_raw, found.max_raw))
        elif null is None or chunk.num_values > null + fact.nans.get(leaf.index, 0):
            # Some values have no known limit.
            return None, None
    if not limits:
        return None, None
    order, lower, upper = _encoding(leaf.type, length)
    return (
        lower(min((low for low, _ in limits), key=order)),
        upper(max((high for _, high in limits), key=order)),
    )


_Order = Callable[[Any], Any]
_Bound = Callable[[Any], bytes | None]


def _encoding(kind: pa.DataType, length: int) -> tuple[_Order, _Bound, _Bound]:
    """Return how a type's raw limits are sorted, and converted to a lower and an upper bound.

    `length` is the greatest number of code points or bytes of a bound of text or binary.
    """
    if pa.types.is_decimal(kind):
        return _unscaled, _decimal, _decimal
    if pa.types.is_floating(kind):
        code = "<f" if pa.types.is_float32(kind) else "<d"
        # Iceberg sorts -0 before +0, and readers may treat them as equal or not.
        return (
            _same,
            lambda v: struct.pack(code, -0.0 if v == 0 else v),
            lambda v: struct.pack(code, 0.0 if v == 0 else v),
        )
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (
            _same,
            lambda v: v.decode()[:length].encode(),
            lambda v: _upper_text(v, length),
        )
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return _same, lambda v: v[:length], lambda v: _upper_binary(v, length)
    if pa.types.is_boolean(kind):
        return _same, lambda v: bytes([v]), lambda v: bytes([v])
    if kind.bit_width in (32, 64) and not pa.types.is_nested(kind):
        code = "<i" if kind.bit_width == 32 else "<q"  # noqa: PLR2004  bits of int, date, time
        return _same, lambda v: struct.pack(code, v), lambda v: struct.pack(code, v)
    return _same, _unknown, _unknown


def _same(value: Any) -> Any:
    return value


def _unknown(_: Any) -> None:
    return None


def _unscaled(raw: int | bytes) -> int:
    return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)


def _decimal(raw: int | bytes) -> bytes:
    """Return the unscaled value in the fewest big-endian two's complement bytes."""
    value = _unscaled(raw)
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def _upper_text(raw: bytes, most: int) -> bytes | None:
    """Return the text, or the least text of `most` code points above all texts with its prefix."""
    text = raw.decode()
    if len(text) <= most:
        return raw
    for length in range(most, 0, -1):
        following = ord(text[length - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return (text[: length - 1] + chr(following)).encode()
    return None


def _upper_binary(raw: bytes, most: int) -> bytes | None:
    if len(raw) <= most:
        return raw
    for length in range(most, 0, -1):
        if raw[length - 1] < _LAST_BYTE:
            return raw[: length - 1] + bytes([raw[length - 1] + 1])
    return None


def filtered_columns(parquet: pq.ParquetFile) -> frozenset[int]:
    """Return the field ids of the columns with bloom filters in any row group.

    Members of nested columns are not included, and a file without field ids has none.
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
    """Return the columns of a new file that have bloom filters in its source files.

    Args:
        files: the source files.
        schema: of the new file, with field ids.
        without: columns, by field id, whose filters are dropped.
    """
    wanted = frozenset[int]().union(*(filtered_columns(one) for one in files)) - without
    return tuple(field.name for field in schema if _id_of(field) in wanted)


def _id_of(field: pa.Field) -> int:
    """Return the field id, 0 for none: Iceberg's ids begin at 1."""
    return int((field.metadata or {}).get(FIELD_ID, 0))
