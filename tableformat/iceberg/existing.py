"""An existing lake table: may these columns be exported to it? Every difference is found at once.

Columns are matched by name. Types must be equal, or the table's must hold every value of ours by
one of Iceberg's promotions (int to long, float to double, decimal of more digits). A column that
only the table has stays NULL and must be optional; a column of ours that may be NULL must be
optional there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from tableformat.errors import RefusedError, refuse_all
from tableformat.iceberg.partition_spec import DerivedSpec, spec_matches
from tableformat.iceberg.schema import MappedColumns

__all__ = ["check_existing", "existing_refusal"]

FORMAT_VERSION: Final = 2
_BAD_ARGUMENTS: Final = 36
_NOT_IMPLEMENTED: Final = 48
_INCOMPATIBLE_COLUMNS: Final = 122
# Ours, theirs, and the conversion that closes the difference.
_CONVERTIBLE: Final = (("string", "binary", "binary"), ("decimal(20, 0)", "long", "long"))


def check_existing(
    schema: Schema,
    spec: PartitionSpec,
    format_version: int,
    mapped: MappedColumns,
    derived: DerivedSpec,
) -> tuple[str, ...]:
    """Return every difference that forbids the export, one sentence each; empty when it may go on.

    Args:
        schema: the table's current schema.
        spec: its default partition spec.
        format_version: its format version.
        mapped: the columns to export.
        derived: the spec to export with.
    """
    return tuple(text for _, text in _differences(schema, spec, format_version, mapped, derived))


def existing_refusal(
    what: str,
    schema: Schema,
    spec: PartitionSpec,
    format_version: int,
    mapped: MappedColumns,
    derived: DerivedSpec,
) -> RefusedError | None:
    """Return the refusal to export to an existing table, or None when it fits.

    Its code is ClickHouse's for the first difference: 48 for the format, 122 for the structure, 36
    for the partition key.

    Args:
        what: what cannot be done, without the leading "Cannot".
        schema: the table's current schema.
        spec: its default partition spec.
        format_version: its format version.
        mapped: the columns to export.
        derived: the spec to export with.
    """
    found = tuple(_differences(schema, spec, format_version, mapped, derived))
    if not found:
        return None
    return refuse_all(what, tuple(text for _, text in found), code=found[0][0])


def _differences(
    schema: Schema,
    spec: PartitionSpec,
    format_version: int,
    mapped: MappedColumns,
    derived: DerivedSpec,
) -> Iterator[tuple[int, str]]:
    if format_version != FORMAT_VERSION:
        yield (
            _NOT_IMPLEMENTED,
            (
                f"Destination storage Iceberg of format version {format_version} does not support "
                "MergeTree parts or uses unsupported partitioning: only tables of format version "
                f"{FORMAT_VERSION} are written. Name one, or a name that nothing has: it is created"
            ),
        )
    for text in _members("", mapped.schema.fields, schema.fields):
        yield _INCOMPATIBLE_COLUMNS, f"Tables have different structure: column {text}"
    if different_key := spec_matches(derived, spec, schema):
        yield _BAD_ARGUMENTS, different_key


def _members(
    where: str, ours: tuple[NestedField, ...], theirs: tuple[NestedField, ...]
) -> Iterator[str]:
    have = {f.name: f for f in theirs}
    for f in ours:
        if f.name not in have:
            yield (
                f"{where}{f.name} ({f.field_type}) is missing in the destination; "
                "add it there as optional"
            )
        else:
            yield from _field(f"{where}{f.name}", f, have[f.name])
    known = {f.name for f in ours}
    for f in theirs:
        if f.name not in known and f.required:
            yield (
                f"{where}{f.name} is required in the destination, and the source has no such "
                "column; declare it optional there"
            )


def _field(where: str, ours: NestedField, theirs: NestedField) -> Iterator[str]:
    if theirs.required and not ours.required:
        yield (
            f"{where} may be NULL in the source and is required in the destination; "
            "declare it optional there"
        )
    yield from _type(where, ours.field_type, theirs.field_type)


def _type(where: str, ours: IcebergType, theirs: IcebergType) -> Iterator[str]:
    match ours, theirs:
        case StructType(), StructType():
            yield from _members(f"{where}.", ours.fields, theirs.fields)
        case ListType(), ListType():
            yield from _field(f"{where}.element", ours.element_field, theirs.element_field)
        case MapType(), MapType():
            yield from _field(f"{where}.key", ours.key_field, theirs.key_field)
            yield from _field(f"{where}.value", ours.value_field, theirs.value_field)
        case _ if ours == theirs or _promoted(ours, theirs):
            return
        case _:
            hint = next((h for a, b, h in _CONVERTIBLE if (a, b) == (str(ours), str(theirs))), "")
            tail = (
                f"; --convert {where}={hint} makes them equal" if hint and "." not in where else ""
            )
            yield f"{where} is {ours} for ClickHouse and {theirs} in the destination{tail}"


def _promoted(ours: IcebergType, theirs: IcebergType) -> bool:
    match ours, theirs:
        case IntegerType(), LongType():
            return True
        case FloatType(), DoubleType():
            return True
        case DecimalType(), DecimalType():
            return ours.scale == theirs.scale and ours.precision <= theirs.precision
        case _:
            return False
