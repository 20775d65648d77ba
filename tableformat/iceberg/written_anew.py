"""Files that go to a table whose columns have other field ids: between which tables they can.

Iceberg finds the columns of a file by field id, and the ids of a table depend on the order in which
its columns came. So a file of another table is written anew with the ids of this one; names tell
which column is which. The names and types of all columns are the same at every level: nothing is
converted on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tableformat.committer import LakeTableState
from tableformat.errors import UnsupportedError
from tableformat.iceberg.arrow_schema import columns_of_file, to_file
from tableformat.iceberg.copies import Copy, Partitions, Rewritten, copied_receipts
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.receipt import Receipt

__all__ = ["other_form", "receipts_of_rewritten", "with_other_ids"]


def other_form(source: LakeTableState, destination: LakeTableState, *, divides: bool = True) -> str:
    """Say why files of one table cannot be written as those of another, '' when they can.

    `divides`: their partition fields are the same, too.
    """
    there, here = table_of(source), table_of(destination)
    one, other = _forms(there.schema()), _forms(here.schema())
    told = [
        f"column {name} is {form} there and {other[name]} here"
        if name in other
        else f"column {name} is only there"
        for name, form in one.items()
        if other.get(name) != form
    ]
    told += [f"column {name} is only here" for name in other if name not in one]
    if told:
        return "; ".join(told)
    if divides and _fields(there) != _fields(here):
        return "their partition specs are made of other fields"
    return ""


def with_other_ids(rows: pa.Table, source: Schema, destination: Schema) -> pa.Table:
    """Return rows of a file of one table as rows of a file of another.

    Raises:
        UnsupportedError: another engine wrote a column in a form that cannot be kept, or it has
            NULLs, and is required in the other table.
        pa.ArrowInvalid: a value does not fit its column's type.
    """
    held = columns_of_file(rows, source)
    for at, field in enumerate(held.schema):
        if not field.nullable or not destination.find_field(field.name).required:
            continue
        if held.column(at).null_count:
            message = (
                f"Cannot write the column {field.name} anew: it has NULLs, and is required in the "
                "other table. Allow NULL there, with ALTER COLUMN … DROP NOT NULL."
            )
            raise UnsupportedError(message)
        held = held.set_column(at, field.with_nullable(nullable=False), held.column(at))
    return to_file(held, destination)


def receipts_of_rewritten(
    source: LakeTableState,
    row: Row,
    made: Mapping[str, Rewritten],
    destination: LakeTableState,
    partitions: Partitions | None = None,
) -> tuple[Receipt, ...]:
    """Return the receipts of files that were written anew for another table, in their order.

    Args:
        source: of the table that has the files, by whose paths `made` are.
        row: of the key that they become files of.
        made: what was written of each file.
        destination: the table that gets them.
        partitions: where that is divided otherwise, where each of them lies.

    Raises:
        InternalError: a file is not in the snapshot.
    """
    there, here = table_of(source), table_of(destination)
    same = _order(there.sort_order(), there.schema()) == _order(here.sort_order(), here.schema())
    copies = {
        path: Copy(new.path, new.attempt, new.sha256, new.seconds) for path, new in made.items()
    }
    receipts = copied_receipts(source, row, copies, destination, partitions)
    sorted_there = there.sort_order().order_id
    return tuple(
        replace(
            receipt,
            file_bytes=new.bytes,
            rows=new.rows,
            sort_order_id=(
                here.sort_order().order_id
                if same and receipt.sort_order_id == sorted_there
                else None
            ),
            split_offsets=new.split_offsets,
            columns=new.columns,
        )
        for receipt, new in zip(receipts, made.values(), strict=True)
    )


def _forms(schema: Schema) -> dict[str, str]:
    """Return the columns by name, each with its type without field ids."""
    return {field.name: _form(field.field_type) for field in schema.fields}


def _form(of: IcebergType) -> str:
    match of:
        case StructType():
            return f"struct<{', '.join(_members(of))}>"
        case ListType():
            return f"list<{_form(of.element_type)}{_null(required=of.element_required)}>"
        case MapType():
            value = f"{_form(of.value_type)}{_null(required=of.value_required)}"
            return f"map<{_form(of.key_type)}, {value}>"
        case _:
            return str(of)


def _members(of: StructType) -> Iterator[str]:
    for field in of.fields:
        yield f"{field.name} {_form(field.field_type)}{_null(required=field.required)}"


def _null(*, required: bool) -> str:
    return "" if required else " or NULL"


def _fields(table: Table) -> Sequence[tuple[str | None, str, str]]:
    return _named(table.spec(), table.schema())


def _named(spec: PartitionSpec, schema: Schema) -> Sequence[tuple[str | None, str, str]]:
    return [(schema.find_column_name(f.source_id), str(f.transform), f.name) for f in spec.fields]


def _order(order: SortOrder, schema: Schema) -> Sequence[tuple[str | None, str, str, str]]:
    return [
        (
            schema.find_column_name(f.source_id),
            str(f.transform),
            f.direction.value,
            f.null_order.value,
        )
        for f in order.fields
    ]
