"""Makes receipts for data files made from existing files: copies, and rewritten files.

* A copy has the same bytes, so its statistics and partition values stay valid. Both tables need
  the same columns under the same field ids and the same partition spec (`column_differences`), and
  the copy no columns whose ids the other table may give to new ones (`has_dropped`).
* A file without field ids is read by the name mapping of its table. It is rewritten with ids for a
  table with another mapping (`reads_names_alike`).
* A file that is not a plain Parquet file is not copied: a receipt has no format and no encryption
  key, and its file is committed as Parquet (`originals`).
* A rewritten file of the same table stays in its partition and gets its own statistics.
* Iceberg finds columns by field id, and the ids depend on the order in which the columns were
  added. So a file for a table with other field ids is rewritten with the ids of the destination.
  Names match the columns. Names and types must be equal at every level; no value is converted
  (`form_differences`, `with_ids_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.committer import LakeTableState
from tableformat.errors import InternalError, UnsupportedError
from tableformat.iceberg.arrow_schema import columns_of_file, to_file
from tableformat.iceberg.row_change_limits import fields_within
from tableformat.iceberg.snapshot import data_files, table_of
from tableformat.iceberg.values import other_form, to_text
from tableformat.ledger import Row
from tableformat.receipt import ColumnStatistics, Receipt

__all__ = [
    "Copy",
    "Originals",
    "Rewritten",
    "column_differences",
    "copied_receipts",
    "form_differences",
    "has_dropped",
    "originals",
    "reads_names_alike",
    "receipts_for_other_table",
    "refuse_other_form",
    "rewritten_receipts",
    "with_ids_of",
]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a file: its path, the attempt in its name, and the SHA-256 of its bytes."""

    path: str
    attempt: str
    sha256: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Originals:
    """Files of a table that are to be copied: their manifest entries by path."""

    table: Table
    entries: Mapping[str, DataFile]


Partitions = Mapping[str, tuple[str | None, ...]]
"""Partition values of files under another spec, by path, as in `Receipt`."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file that was written in place of another: its path, attempt and contents."""

    path: str
    attempt: str
    rows: int
    bytes: int
    sha256: str
    split_offsets: tuple[int, ...]
    columns: tuple[ColumnStatistics, ...]
    seconds: float


def column_differences(
    source: LakeTableState, destination: LakeTableState, *, divides: bool = True
) -> str:
    """Describe the columns or partition fields that differ between two tables, '' for none.

    A table can read files of another only if all field ids, types and partition fields are equal,
    and what it requires is not optional there. Partition fields do not matter without `divides`.
    """
    there, here = table_of(source), table_of(destination)
    columns = _columns(there.schema()), _columns(here.schema())
    differences = [
        name
        for name in {**columns[0], **columns[1]}
        if columns[0].get(name) != columns[1].get(name)
    ]
    if differences:
        return f"columns {', '.join(differences)} have another field id or type"
    optional = {f.name for f in there.schema().fields if f.optional}
    if required := [f.name for f in here.schema().fields if f.required and f.name in optional]:
        # A file may lack such a column, or have NULLs in it.
        return f"columns {', '.join(required)} are required here, and optional there"
    if divides and _fields(there) != _fields(here):
        return "their partition specs are made of other fields"
    return ""


def has_dropped(source: LakeTableState, destination: LakeTableState) -> bool:
    """Whether files of a table may have dropped columns whose field ids are free in another one.

    A column that the other table gets later would show their values.
    """
    ids = (table_of(one).metadata.last_column_id for one in (source, destination))
    return next(ids) > next(ids)


def reads_names_alike(source: LakeTableState, destination: LakeTableState) -> bool:
    """Whether two tables have one name mapping, by which files without field ids are read."""
    named = TableProperties.DEFAULT_NAME_MAPPING
    return source.properties.get(named) == destination.properties.get(named)


def originals(state: LakeTableState, paths: Collection[str]) -> Originals:
    """Return files of a snapshot that are to be copied or rewritten; called before anything is.

    Args:
        state: of the table; its `main` is the snapshot.
        paths: of the files.

    Raises:
        InternalError: a file is not in the snapshot.
        UnsupportedError: a file is not a plain Parquet file (code 48).
    """
    table = table_of(state)
    snapshot = table.metadata.snapshot_by_id(state.main) if state.main is not None else None
    wanted = frozenset(paths)
    entries = {f.file_path: f for f in data_files(table, snapshot) if f.file_path in wanted}
    if missing := [path for path in paths if path not in entries]:
        message = f"{missing[0]} is to be copied and is not there; this is a bug, please report it."
        raise InternalError(message)
    for path, file in entries.items():
        refuse_other_form(path, other_form(file))
    return Originals(table, entries)


def refuse_other_form(path: str, form: str) -> None:
    """Refuse to copy a file that is not a plain Parquet file.

    Args:
        path: of the file.
        form: what it is, as `values.other_form` returns it; '' if it is a plain Parquet file.

    Raises:
        UnsupportedError: it is not one (code 48).
    """
    if form:
        message = (
            f"Cannot copy {path}: it is {form}, and only plain Parquet files are copied. "
            "Rewrite it as Parquet with the engine that wrote it, as Spark's "
            "rewrite_data_files with rewrite-all once the table's property "
            "'write.format.default' is 'parquet', and run it again. Nothing was changed."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def copied_receipts(
    of: Originals,
    row: Row,
    copies: Mapping[str, Copy],
    layout: LakeTableState,
    partitions: Partitions | None = None,
) -> tuple[Receipt, ...]:
    """Return the receipts of copies, in the order of `copies`.

    Args:
        of: the original files.
        row: of the key that the copies belong to.
        copies: each copy, by the path of its original.
        layout: the state of the destination table.
        partitions: the partition of those copies whose originals have another spec than the
            destination.
    """
    spec_id, known = layout.layout.spec_id, partitions or {}
    receipts = (
        _receipt(of.entries[path], of.table, row, number, copy, spec_id, known.get(path))
        for number, (path, copy) in enumerate(copies.items())
    )
    orders = _orders(of.table, table_of(layout))
    return tuple(
        replace(one, sort_order_id=None if (id_ := one.sort_order_id) is None else orders.get(id_))
        for one in receipts
    )


def rewritten_receipts(
    state: LakeTableState,
    row: Row,
    made: Sequence[tuple[str, Rewritten]],
    sets: frozenset[str] = frozenset(),
    partitions: Partitions | None = None,
) -> tuple[Receipt, ...]:
    """Return the receipts of files that were rewritten in their table, in the order of `made`.

    Args:
        state: of the table.
        row: of the key that the files belong to.
        made: each rewritten file, after the path of the file that it replaces, whose partition it
            keeps.
        sets: columns whose values may have changed.
        partitions: for files of an earlier partition spec, their partition in the current one.

    Raises:
        InternalError: a file is not in the snapshot.
        UnsupportedError: a file is not a plain Parquet file (code 48).
    """
    table = table_of(state)
    ids = fields_within(table.schema(), sets)
    entries = originals(state, [path for path, _ in made]).entries
    # A file may have a sort order that is no longer the table's.
    ordered = {
        number: not any(f.source_id in ids for f in order.fields)
        for number, order in table.sort_orders().items()
    }
    return tuple(
        _rewritten(entries[path], table, row, number, new, ordered, (partitions or {}).get(path))
        for number, (path, new) in enumerate(made)
    )


def _rewritten(
    file: DataFile,
    table: Table,
    row: Row,
    number: int,
    new: Rewritten,
    ordered: Mapping[int, bool],
    partition: tuple[str | None, ...] | None,
) -> Receipt:
    """Return the receipt of a replaced file; a `partition` of None keeps that of the original."""
    copy, of = Copy(new.path, new.attempt, new.sha256, new.seconds), file.sort_order_id
    return replace(
        _receipt(file, table, row, number, copy, table.spec().spec_id, partition),
        file_bytes=new.bytes,
        rows=new.rows,
        rows_expected=new.rows,
        sort_order_id=of if of is not None and ordered.get(of) else None,
        split_offsets=new.split_offsets,
        columns=new.columns,
    )


def _receipt(
    file: DataFile,
    table: Table,
    row: Row,
    number: int,
    copy: Copy,
    spec_id: int,
    partition: tuple[str | None, ...] | None = None,
) -> Receipt:
    if partition is None:
        partition = tuple(_partition(file, table.spec(), table.schema()))
    return Receipt(
        key=row.key.hash,
        transaction_id=row.claim.transaction_id,
        epoch=row.claim.epoch,
        slice_number=number,
        attempt=copy.attempt,
        ranges=(),
        file_path=copy.path,
        file_bytes=file.file_size_in_bytes,
        sha256=copy.sha256,
        rows=file.record_count,
        rows_expected=file.record_count,
        partition=partition,
        spec_id=spec_id,
        sort_order_id=file.sort_order_id,
        split_offsets=tuple(file.split_offsets or ()),
        columns=tuple(_statistics(file)),
        seconds=copy.seconds,
        peak_memory=0,
    )


def _partition(file: DataFile, spec: PartitionSpec, schema: Schema) -> Iterator[str | None]:
    for at, field in enumerate(spec.partition_type(schema).fields):
        yield to_text(file.partition[at], field.field_type)


def _statistics(file: DataFile) -> Iterator[ColumnStatistics]:
    # Each of them is optional (Iceberg spec, `data_file`).
    sizes, values = file.column_sizes or {}, file.value_counts or {}
    nulls, nans = file.null_value_counts or {}, file.nan_value_counts or {}
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    for field_id in sorted({*sizes, *values, *nulls, *nans, *lower, *upper}):
        yield ColumnStatistics(
            field_id,
            sizes.get(field_id),
            values.get(field_id),
            nulls.get(field_id),
            nans.get(field_id),
            lower[field_id].hex() if field_id in lower else None,
            upper[field_id].hex() if field_id in upper else None,
        )


def _columns(schema: Schema) -> dict[str, tuple[int, str]]:
    """Return the id and type of each leaf and nested column, by full name."""
    return {
        name: (field_id, str(schema.find_type(field_id)))
        for field_id in schema.field_ids
        if (name := schema.find_column_name(field_id)) is not None
    }


def _fields(table: Table) -> list[tuple[int, str, str]]:
    return [(f.source_id, str(f.transform), f.name) for f in table.spec().fields]


def form_differences(
    source: LakeTableState, destination: LakeTableState, *, divides: bool = True
) -> str:
    """Describe why files of one table cannot be rewritten for another, '' if they can.

    `divides`: the partition fields must be equal, too.
    """
    there, here = table_of(source), table_of(destination)
    one, other = _forms(there.schema()), _forms(here.schema())
    differences = [
        f"column {name} is {form} there and {other[name]} here"
        if name in other
        else f"column {name} is only there"
        for name, form in one.items()
        if other.get(name) != form
    ]
    differences += [f"column {name} is only here" for name in other if name not in one]
    if differences:
        return "; ".join(differences)
    if divides and _fields_of_table(there) != _fields_of_table(here):
        return "their partition specs are made of other fields"
    return ""


def with_ids_of(rows: pa.Table, source: Schema, destination: Schema) -> pa.Table:
    """Convert rows of a file of one table to rows of a file of another.

    Raises:
        UnsupportedError: another engine wrote a column in a form that cannot be kept, or a column
            has NULLs and is required in the other table.
        pa.ArrowInvalid: a value does not fit its column's type.
    """
    held = columns_of_file(rows, source)
    for at, field in enumerate(held.schema):
        if not field.nullable or not destination.find_field(field.name).required:
            continue
        if held.column(at).null_count:
            message = (
                f"Cannot rewrite the column {field.name}: it has NULLs, and is required in the "
                "other table. Allow NULL there, with ALTER COLUMN … DROP NOT NULL."
            )
            raise UnsupportedError(message)
        held = held.set_column(at, field.with_nullable(nullable=False), held.column(at))
    return to_file(held, destination)


def receipts_for_other_table(
    of: Originals,
    row: Row,
    made: Mapping[str, Rewritten],
    destination: LakeTableState,
    partitions: Partitions | None = None,
) -> tuple[Receipt, ...]:
    """Return the receipts of files that were rewritten for another table, in the order of `made`.

    Args:
        of: the original files.
        row: of the key that the new files belong to.
        made: each rewritten file, by the path of its original.
        destination: of the table that gets the files.
        partitions: each file's partition, if the destination has another spec.
    """
    copies = {
        path: Copy(new.path, new.attempt, new.sha256, new.seconds) for path, new in made.items()
    }
    receipts = copied_receipts(of, row, copies, destination, partitions)
    return tuple(
        replace(
            receipt,
            file_bytes=new.bytes,
            rows=new.rows,
            split_offsets=new.split_offsets,
            columns=new.columns,
        )
        for receipt, new in zip(receipts, made.values(), strict=True)
    )


def _forms(schema: Schema) -> dict[str, str]:
    """Return each column's type without field ids, by name."""
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


def _fields_of_table(table: Table) -> Sequence[tuple[str | None, str, str]]:
    return _named(table.spec(), table.schema())


def _named(spec: PartitionSpec, schema: Schema) -> Sequence[tuple[str | None, str, str]]:
    return [(schema.find_column_name(f.source_id), str(f.transform), f.name) for f in spec.fields]


def _orders(there: Table, here: Table) -> Mapping[int, int]:
    """Return the ids of the sort orders of one table that another has, too, with its own ids.

    Each table numbers its orders itself, so that one id may mean two orders.
    """
    if there.metadata.table_uuid == here.metadata.table_uuid:
        return {number: number for number in there.sort_orders()}
    now = here.sort_order()
    # The present order wins over an equal one of earlier.
    known = [*here.sort_orders().items(), (now.order_id, now)]
    of_here = {_order(order, here.schema()): number for number, order in known}
    return {
        number: of_here[form]
        for number, order in there.sort_orders().items()
        if (form := _order(order, there.schema())) in of_here
        # Nothing is known of a column that was dropped.
        and all(name is not None for name, *_ in form)
    }


def _order(order: SortOrder, schema: Schema) -> tuple[tuple[str | None, str, str, str], ...]:
    return tuple(
        (
            schema.find_column_name(f.source_id),
            str(f.transform),
            f.direction.value,
            f.null_order.value,
        )
        for f in order.fields
    )
