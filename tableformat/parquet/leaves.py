"""The leaf columns of an Arrow schema, in the order in which Parquet numbers them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tableformat.errors import InternalError

__all__ = ["FIELD_ID", "Leaf", "leaf_values", "leaves"]

FIELD_ID: Final = b"PARQUET:field_id"
_KEY, _ITEM = 0, 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf column.

    `path` leads to it by child positions, from the schema down; a list has one child, a map a key
    (0) and a value (1). `repeated` is true below a list or map.
    """

    index: int
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
        for leaf in _below(field, (position,), repeated=False)
    ]
    return tuple(
        Leaf(number, _field_id(field), field.type, path, repeated)
        for number, (field, path, repeated) in enumerate(found)
    )


def leaf_values(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """Return the values of one leaf; elements come without the lists around them."""
    first, *rest = leaf.path
    column = table.column(first)
    return pa.chunked_array([_descend(chunk, rest) for chunk in column.chunks], type=leaf.type)


def _below(
    field: pa.Field, path: tuple[int, ...], *, repeated: bool
) -> Iterator[tuple[pa.Field, tuple[int, ...], bool]]:
    if pa.types.is_struct(field.type):
        for position in range(field.type.num_fields):
            yield from _below(field.type.field(position), (*path, position), repeated=repeated)
    elif pa.types.is_map(field.type):
        yield from _below(field.type.key_field, (*path, _KEY), repeated=True)
        yield from _below(field.type.item_field, (*path, _ITEM), repeated=True)
    elif pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        yield from _below(field.type.value_field, (*path, 0), repeated=True)
    else:
        yield field, path, repeated


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
