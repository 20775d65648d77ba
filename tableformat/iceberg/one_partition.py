"""The one Iceberg partition that all rows of a file lie in, by the table's partition spec.

For rows that no export proved it of (`partition_proof`): by PyIceberg's own transforms. All but
buckets keep the order of their columns, so that least and greatest value tell for all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError
from tableformat.hive_names import escape, partition_directory
from tableformat.iceberg.values import Value, to_text

__all__ = ["OnePartition", "SeveralPartitionsError", "internal_values"]

# File systems take 255 bytes per name.
_LONGEST_NAME: Final = 200


class SeveralPartitionsError(ValueError):
    """The rows lie in several Iceberg partitions, or in none that Iceberg can name."""


def internal_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return Iceberg's own values: days and microseconds since 1970 as integers, a UUID's bytes."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    # Arrow finds no least and no distinct values of an extension type.
    return column.cast(pa.binary(16)) if column.type == pa.uuid() else column


@dataclass(slots=True)
class OnePartition:
    """Collects the values that the fields of a spec have, batch after batch."""

    spec: PartitionSpec
    schema: Schema
    _seen: dict[int, set[Value | None]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of the table that the spec is made of, by their numbers.

        Raises:
            UnsupportedError: a field is made of what is inside of a column.
        """
        ids = [one.field_id for one in self.schema.fields]
        if odd := next((f.name for f in self.spec.fields if f.source_id not in ids), None):
            message = (
                f"Cannot tell the partition of rows: the partition field {odd} is made of what is "
                "inside of a column. Write the rows with an engine that knows such fields."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
        return tuple(sorted({ids.index(one.source_id) for one in self.spec.fields}))

    def add(self, table: pa.Table) -> None:
        """Look at rows in the form of the table's data files; only these columns need be there.

        Raises:
            SeveralPartitionsError: they lie in several partitions, or in none.
        """
        for one in self.spec.fields:
            of = self.schema.find_field(one.source_id)
            numbers = [f.field_id for f in self.schema.fields]
            at = self.columns.index(numbers.index(one.source_id))
            found = self._values(one, table.column(at), of.field_type)
            seen = self._seen.setdefault(one.field_id, set())
            seen |= found
            if len(seen) > 1:
                several = " and ".join(sorted(repr(value) for value in seen)[:2])
                message = f"its rows have several values of {one.name}, among them {several}"
                raise SeveralPartitionsError(message)

    def texts(self) -> tuple[str | None, ...]:
        """Return the values as receipts carry them.

        Raises:
            UnsupportedError: a date lies outside the years 1 to 9999.
        """
        types = [f.field_type for f in self.spec.partition_type(self.schema).fields]
        return tuple(to_text(value, of) for value, of in zip(self._only(), types, strict=True))

    def directory(self) -> str:
        """Return the directory of the partition below the data location, '' for none.

        It is for people: Iceberg reads the values from its metadata.
        """
        pairs = zip(self.spec.fields, self._only(), strict=True)
        try:
            shown = [None if value is None else self._shown(one, value) for one, value in pairs]
        except OverflowError:
            # A time beyond Python's calendar.
            return ""
        if any(len(escape(text or "").encode()) > _LONGEST_NAME for text in shown):
            return ""
        return partition_directory([one.name for one in self.spec.fields], shown)

    def _shown(self, one: PartitionField, value: Value) -> str:
        of = self.schema.find_field(one.source_id).field_type
        return str(one.transform.to_human_string(of, value))

    def _only(self) -> list[Value | None]:
        return [next(iter(self._seen[one.field_id])) for one in self.spec.fields]

    def _values(self, one: PartitionField, column: pa.ChunkedArray, of: Any) -> set[Value | None]:
        inner = internal_values(column)
        found: set[Value | None] = {None} if column.null_count else set()
        if isinstance(one.transform, BucketTransform):
            ends = pc.unique(inner).drop_null().to_pylist()
        else:
            ends = [v for v in pc.min_max(inner).as_py().values() if v is not None]
        transform = one.transform.transform(of)
        try:
            return found | {transform(value) for value in ends}
        except (OverflowError, ValueError) as error:
            message = f"Iceberg has no {one.name} for a value of it: {error}"
            raise SeveralPartitionsError(message) from error
