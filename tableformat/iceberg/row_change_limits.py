"""Refuses statements that change rows but cannot keep ClickHouse's meaning on a lake table.

A condition cannot use differences between values that the files lost. A row must not get values of
another lake partition, because its file belongs to one partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tableformat.clickhouse_codes import CANNOT_UPDATE_COLUMN, NOT_IMPLEMENTED
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.final_merge import RowMerge, columns_of_merge, deciding_columns
from tableformat.mergetree.row_change import RowChange, columns_read
from tableformat.mergetree.sql_tokens import TokenKind, scan
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import DataType, DateTime64, Json, Nullable, Tuple, contains

__all__ = ["fields_within", "refuse_change", "refuse_merged_columns"]

_MICROSECONDS: Final = 6
_OF_SEVERAL_TYPES: Final = ("JSON", "Dynamic", "Variant", "Object", "Geometry")


def refuse_change(
    change: RowChange,
    columns: tuple[Column, ...],
    sets: tuple[str, ...],
    source: RememberedSource,
    table: Table,
) -> None:
    """Refuse a statement that cannot keep its meaning on the lake table.

    Args:
        change: the statement.
        columns: the columns that it needs.
        sets: those of them that may change.
        source: the ClickHouse table, as the lake table stores it.
        table: the lake table.

    Raises:
        UnsupportedError: it needs something that the lake table does not have.
        RefusedError: it sets a column of a partition field (code 420).
    """
    _refuse_names(change, source.table.columns)
    _refuse_missing(change.command, tuple(c for c in columns if c.stored), table.schema())
    read = columns_read(change, columns)
    read -= {c.name for c in columns if _is_read_by_declared_paths(c, change, columns)}
    _refuse_what_files_lost(change.command, read, columns, source)
    _refuse_lost_members(change.command, sets, source, table.schema())
    _refuse_other_partitions(change.command, sets, table)


def refuse_merged_columns(
    merge: RowMerge, computed: tuple[Column, ...], source: RememberedSource, table: Table
) -> None:
    """Refuse a merge if the lake table does not have its columns as ClickHouse has them.

    Args:
        merge: how rows are merged.
        computed: the columns whose values a merge computes.
        source: the ClickHouse table, as the lake table stores it.
        table: the lake table.

    Raises:
        UnsupportedError: a column is missing, the files lost differences between its values, or the
            lake table has more columns or members, for which a merge is not defined.
        RefusedError: the merge computes a column of a partition field (code 420).
    """
    given = columns_of_merge(merge, source.table)
    _refuse_missing(merge.command, given, table.schema())
    if not merge.leaves_all:
        # The other columns only have to be equal, and the lake's values are compared.
        compared = (*deciding_columns(merge, source.table), *computed)
        _refuse_what_files_lost(
            merge.command, frozenset(c.name for c in compared), compared, source
        )
    if computed:
        _refuse_more(merge.command, source, table.schema())
        _refuse_other_partitions(merge.command, tuple(c.name for c in computed), table)


def fields_within(schema: Schema, names: tuple[str, ...] | frozenset[str]) -> frozenset[int]:
    """Return the field ids of columns and of everything nested in them."""
    return frozenset(index_by_id(Schema(*(schema.find_field(name) for name in names))))


def _refuse_names(change: RowChange, columns: tuple[Column, ...]) -> None:
    """Refuse names that are no column of the table but would resolve to something else."""
    names = {c.name for c in columns}
    # Virtual columns such as `_part` would be those of the table that executes the statement.
    if virtual := sorted(n for n in change.reads - names if n.startswith("_")):
        message = (
            f"Cannot run {change.command}: {virtual[0]} is no column of the table, and parts of a "
            "lake table are its files. Name a partition with IN PARTITION."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    for name in sorted(change.sets - names):
        if members := sorted(n for n in names if n.startswith(f"{name}.")):
            # ClickHouse clears them in compact parts, and does nothing in wide ones.
            message = (
                f"Cannot run {change.command}: {name} is a Nested structure. Name its columns: "
                f"{', '.join(members)}."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _refuse_missing(what: str, columns: tuple[Column, ...], schema: Schema) -> None:
    if missing := {c.name for c in columns} - {f.name for f in schema.fields}:
        message = (
            f"Cannot run {what}: the lake table has no column {', '.join(sorted(missing))}, which "
            "it has in ClickHouse. Use the statements of Spark for columns that were renamed or "
            "dropped."
        )
        raise UnsupportedError(message)


def _refuse_more(what: str, source: RememberedSource, schema: Schema) -> None:
    if more := _only_in_lake(source, schema):
        message = (
            f"Cannot run {what}: the lake table has the column {', '.join(more)}, which its "
            "ClickHouse table does not have, and a merge does not define which of its values "
            "remains. Drop it, or leave FINAL out."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _refuse_lost_members(
    what: str, sets: tuple[str, ...], source: RememberedSource, schema: Schema
) -> None:
    """Refuse to set structs with members that the values of ClickHouse do not have."""
    if more := _only_in_lake(source, Schema(*(schema.find_field(name) for name in sets))):
        message = (
            f"Cannot run {what}: the lake table has {', '.join(more)}, which its ClickHouse table "
            "does not have, and the statement sets the column around it, so that it would become "
            "NULL in all rows of the rewritten files. Drop it, or set the column with UPDATE of "
            "Spark."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _only_in_lake(source: RememberedSource, schema: Schema) -> list[str]:
    """Return the columns and members of a schema that the ClickHouse table lacks, by full name."""
    ours = map_columns(source.table, source.conversions).schema
    return sorted(_more("", schema.as_struct(), ours.as_struct()))


def _more(path: str, theirs: IcebergType, ours: IcebergType) -> Iterator[str]:
    match theirs, ours:
        case StructType(), StructType():
            known = {f.name: f.field_type for f in ours.fields}
            for f in theirs.fields:
                if f.name in known:
                    yield from _more(f"{path}{f.name}.", f.field_type, known[f.name])
                else:
                    yield f"{path}{f.name}"
        case ListType(), ListType():
            yield from _more(f"{path}element.", theirs.element_type, ours.element_type)
        case MapType(), MapType():
            yield from _more(f"{path}key.", theirs.key_type, ours.key_type)
            yield from _more(f"{path}value.", theirs.value_type, ours.value_type)
        case _:
            return


def _refuse_what_files_lost(
    what: str, read: frozenset[str], columns: tuple[Column, ...], source: RememberedSource
) -> None:
    """Refuse columns for which two values of ClickHouse are one value in a file.

    NULLs matter in all columns; cut digits, and the types that ClickHouse infers for values of JSON
    a second time, only in columns whose values are `read`.
    """
    for column in columns:
        if not column.stored:
            continue
        if contains(column.type, _is_nullable_tuple):
            raise _lost(what, column, "a NULL and a tuple of NULLs are one in its files")
        cut = source.conversions.get(column.name, "") in ("", "truncate")
        if cut and column.name in read and contains(column.type, _is_finer):
            # A later export may cut digits although the first did not (`existing_table.py`).
            raise _lost(what, column, "its files hold microseconds, and may have been cut off")
        if column.name in read and contains(column.type, lambda of: isinstance(of, Json)):
            # A text may be inferred to be a date, and 1.0 to be an integer.
            raise _lost(what, column, "its files hold text, which lost the types of the values")


def _is_read_by_declared_paths(
    column: Column, change: RowChange, columns: tuple[Column, ...]
) -> bool:
    """Whether a change reads only paths of a JSON column for which the column declares a type."""
    if not isinstance(column.type, Json) or any(
        column.name in c.default_expression for c in columns
    ):
        return False
    declared = {f"{column.name}.{path}" for path in _declared_paths(column.type)}
    of_column = {n for n in change.reads if n == column.name or n.startswith(f"{column.name}.")}
    return of_column <= declared


def _declared_paths(of: Json) -> Iterator[str]:
    """Yield the paths of a JSON type that have a type: `a.b UInt8`, not `SKIP a` or settings.

    None, if any of the types has values of several types itself.
    """
    tokens = tuple(scan(of.arguments))
    if any(token.value in _OF_SEVERAL_TYPES for token in tokens):
        return
    path, depth, begins, stop = "", 0, True, 0
    for token in tokens:
        is_name = token.kind in (TokenKind.WORD, TokenKind.QUOTED)
        depth += token.is_symbol("(") - token.is_symbol(")")
        if token.is_symbol(",") and not depth:
            path, begins = "", True
        elif begins and path and is_name and token.start > stop:
            # A blank ends the path; its type, or what to skip, follows.
            if path.upper() != "SKIP":
                yield path
            begins = False
        elif begins:
            path += token.value
        stop = token.stop


def _lost(what: str, column: Column, why: str) -> UnsupportedError:
    message = (
        f"Cannot run {what}: of column {column.name}, {column.type_text}, {why}. Use the "
        "statements of Spark, which see what the lake table holds."
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)


def _is_nullable_tuple(of: DataType) -> bool:
    return isinstance(of, Nullable) and isinstance(of.of, Tuple)


def _is_finer(of: DataType) -> bool:
    return isinstance(of, DateTime64) and of.precision > _MICROSECONDS


def _refuse_other_partitions(what: str, sets: tuple[str, ...], table: Table) -> None:
    """Refuse values that would move rows to another partition of the lake table."""
    ids = fields_within(table.schema(), sets)
    made_of = [f.name for f in table.spec().fields if f.source_id in ids]
    if made_of:
        message = (
            f"Cannot run {what}: the partition field {made_of[0]} of the lake table is made of a "
            "column that gets other values, and rows would belong to other partitions. Use UPDATE "
            "of Spark."
        )
        raise RefusedError(message, code=CANNOT_UPDATE_COLUMN)
