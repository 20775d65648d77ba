"""What a reader cannot read, loudly, of files that are right: the properties ask it for the rest.

PyIceberg 0.12: a list or map directly inside a list or map, and in it a struct with a member whose
name is escaped in files (`a b` is `a_x20b`): "struct fields don't match". Other readers read it.

DuckDB 1.5: a table whose partition spec has two fields of the same fixed length or of the same
decimal. PyIceberg then defines an Avro type twice in its manifests, and DuckDB ends the process;
`table_keys.py` draws no such key.
"""

from __future__ import annotations

from pyiceberg.schema import make_compatible_name

from tableformat.mergetree.types import Array, DataType, Map, Nested, Tuple
from tests.properties.promised_columns import inner_types

__all__ = ["pyiceberg_reads"]


def pyiceberg_reads(of: DataType) -> bool:
    """Whether PyIceberg reads a column of a type."""
    return not any(
        _is_repeated(inner) and any(map(_is_repeated, _repeated(inner))) and _is_escaped(inner)
        for inner in inner_types(of)
    )


def _is_repeated(of: DataType) -> bool:
    return isinstance(of, Array | Map | Nested)


def _repeated(of: DataType) -> list[DataType]:
    match of:
        case Array(inner):
            return [inner]
        case Map(_, inner):
            return [inner]
        case _:
            return []


def _is_escaped(of: DataType) -> bool:
    """Whether a struct anywhere inside has such a name."""
    names = [
        name
        for inner in inner_types(of)
        if isinstance(inner, Tuple | Nested)
        for name, _ in inner.elements
        if name is not None
    ]
    return any(make_compatible_name(name) != name for name in names)
