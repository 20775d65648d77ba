"""Maps a MergeTree table's columns to an Iceberg schema (docs/reference/types.md).

It decides which columns are exported, with which names and types, and collects all refusals. The
type of a single value is in `column_types.py`; its SELECT expression in `mergetree/wire_types.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyiceberg.schema import Schema, assign_fresh_schema_ids, make_compatible_name
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import RefusedError, Unable
from tableformat.iceberg.column_types import TypeMapping, conversions_in
from tableformat.mergetree.conversions import Faithfulness, parse_conversion
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.names import SOURCE_ALIAS, option_name

__all__ = ["MappedColumn", "MappedColumns", "map_columns"]

_NO_CONVERSIONS: Final[Mapping[str, str]] = MappingProxyType({})
# Iceberg's metadata columns, which readers resolve to the file or position, and our own alias.
_RESERVED: Final = frozenset(
    (
        "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id",
        "_last_updated_sequence_number", "_change_type", "_change_ordinal", "_commit_snapshot_id",
        SOURCE_ALIAS,
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """One exported column. `doc` has the comment, and facts that the Iceberg type does not show.

    `conversion` is the user's choice, '' for the default. Nested ids in `type` are those of the
    unassigned schema; a created table has its own.
    """

    source: Column
    conversion: str
    type: IcebergType
    required: bool
    doc: str
    faithfulness: Faithfulness

    @property
    def name(self) -> str:
        """The column's name, equal on both sides."""
        return self.source.name


@dataclass(frozen=True, slots=True)
class MappedColumns:
    """The exported columns in declared order, and the schema of a new table."""

    columns: tuple[MappedColumn, ...]
    schema: Schema

    def find(self, name: str) -> MappedColumn | None:
        """Return the column of that name, or None."""
        return next((c for c in self.columns if c.name == name), None)

    @property
    def conversions(self) -> dict[str, str]:
        """The conversions in force, by column."""
        return {c.name: c.conversion for c in self.columns if c.conversion}


def map_columns(
    table: MergeTreeTable,
    conversions: Mapping[str, str] = _NO_CONVERSIONS,
    *,
    strict: bool = False,
) -> MappedColumns:
    """Map every stored column of `table`.

    Args:
        table: as the source describes it.
        conversions: `--convert` by column name; a conversion applies to every value of a fitting
            type inside the column, also in arrays, tuples and maps.
        strict: refuse columns whose values would change kind (class B) without a conversion.

    Raises:
        RefusedError: one or more columns cannot be exported; every reason is listed (code 48).
    """
    known = {c.name for c in table.stored_columns}
    reasons = [
        f"--convert names the column {name}, which {table.name} does not store; its columns are "
        f"{', '.join(c.name for c in table.stored_columns)}"
        for name in conversions
        if name not in known
    ]
    drafts = [
        _draft(column, conversions.get(column.name, ""), table.server_zone, reasons, strict=strict)
        for column in table.stored_columns
    ]
    reasons.extend(_text_refusals(table))
    if not drafts:
        reasons.append(f"{table.name} has no stored columns")
    fields = [
        NestedField(i, d.name, d.type, doc=d.doc or None, required=d.required)
        for i, d in enumerate(drafts, start=1)
    ]
    reasons.extend(_name_refusals(fields))
    if reasons:
        raise RefusedError(Unable(str(table.name), tuple(reasons)), code=NOT_IMPLEMENTED)
    schema = assign_fresh_schema_ids(Schema(*fields))
    return MappedColumns(
        tuple(
            MappedColumn(d.source, d.conversion, f.field_type, d.required, d.doc, d.faithfulness)
            for d, f in zip(drafts, schema.fields, strict=True)
        ),
        schema,
    )


def _draft(
    column: Column, conversion: str, server_zone: str, reasons: list[str], *, strict: bool
) -> MappedColumn:
    conversion = str(parse_conversion(conversion))
    mapping = TypeMapping(conversion, server_zone)
    mapped, required = mapping.map(column.type)
    where = f"column {column.name}: "
    reasons.extend(
        f"{where}{refusal.why} (its type is {column.type_text}); "
        f"{refusal.way_round.replace('{column}', option_name(column.name))}"
        for refusal in mapping.refused
    )
    if conversion and not mapping.converted:
        reasons.append(f"{where}{_wrong_conversion(column, conversion)}")
    if strict and mapping.changed and not mapping.refused:
        reasons.append(
            f"{where}ClickHouse type {column.type_text} would change kind to {mapped} "
            f"({'; '.join(mapping.notes)}), which --strict refuses; leave --strict out to allow it"
        )
    doc = " ".join(
        part
        for part in (column.comment, f"({'; '.join(mapping.notes)})" if mapping.notes else "")
        if part
    )
    return MappedColumn(column, conversion, mapped, required, doc, mapping.faithfulness)


def _wrong_conversion(column: Column, conversion: str) -> str:
    offered = conversions_in(column.type)
    takes = "; ".join(f"{of}: {', '.join(ways)}" for of, ways in offered.items())
    return (
        f"--convert {option_name(column.name)}={conversion} does not apply to the ClickHouse type "
        f"{column.type_text}; "
        + (f"available are, by ClickHouse type, {takes}" if takes else "it takes no conversion")
    )


def _text_refusals(table: MergeTreeTable) -> Iterator[str]:
    """Yield a reason for each definition that is not UTF-8; lake tables cannot store it."""
    keys = (table.engine.partition_by, table.engine.order_by, table.engine.primary_key)
    texts = {"the table's keys": "".join(keys)}
    for column in table.columns:
        words = (column.name, column.type_text, column.default_expression, column.comment)
        texts[f"column {column.name}"] = "".join(words)
    for what, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            shown = what.encode(errors="surrogateescape").decode(errors="backslashreplace")
            yield (
                f"{shown}: the definition (name, type, default, comment) holds bytes that "
                "are not UTF-8; write it in UTF-8 with ALTER TABLE"
            )


def _name_refusals(fields: list[NestedField]) -> Iterator[str]:
    """Yield why names cannot be in one table (docs/reference/types.md, Names)."""
    for column in fields:
        if column.name in _RESERVED:
            yield (
                f"column {column.name}: that name is taken by Iceberg or by mergeberg itself; "
                "rename the column with ALTER TABLE … RENAME COLUMN"
            )
    paths = list(_paths(fields, ""))
    for path in paths:
        if "\0" in path:
            yield (
                f"column {path!r}: the name holds a NUL character, which Arrow ends names with; "
                "rename the column or the member"
            )
    for path, count in Counter(paths).items():
        if count > 1:
            yield (
                f"column {path}: the name stands for two fields, a column and a member of a "
                "column; rename one of them"
            )
    folded: dict[str, set[str]] = {}
    for path in paths:
        folded.setdefault(path.lower(), set()).add(path)
    for same in folded.values():
        if len(same) > 1:
            names = " and ".join(sorted(same))
            yield (
                f"columns {names}: the names differ only in case, which Spark cannot distinguish; "
                "rename one of them"
            )
    yield from _written_clashes(fields)


def _written_clashes(fields: tuple[NestedField, ...] | list[NestedField]) -> Iterator[str]:
    """Yield names that Iceberg's escaping makes equal inside a Parquet file."""
    written: dict[str, str] = {}
    for f in fields:
        other = written.setdefault(make_compatible_name(f.name), f.name)
        if other != f.name:
            yield (
                f"columns {other} and {f.name}: both are written as "
                f"{make_compatible_name(f.name)}; rename one of them"
            )
        yield from _written_clashes(_members(f.field_type))


def _paths(fields: tuple[NestedField, ...] | list[NestedField], prefix: str) -> Iterator[str]:
    for f in fields:
        yield f"{prefix}{f.name}"
        yield from _paths(_members(f.field_type), f"{prefix}{f.name}.")


def _members(of: IcebergType) -> tuple[NestedField, ...]:
    match of:
        case StructType():
            return of.fields
        case ListType():
            return (of.element_field,)
        case MapType():
            return (of.key_field, of.value_field)
        case _:
            return ()
