"""Sources whose rows have values, files that hold them, and digests of both.

The text of a part's hash names its values, so that a part that is written again may have the rows
that it had. A column `later` is one more than `n`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from tableformat.digest import ColumnDigest, Digest, KeptDigest
from tableformat.errors import MissingError
from tableformat.export.slices import Slice, WritePlan
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import Column, MergeTreeTable, Part
from tableformat.mergetree.types import Simple
from tableformat.names import PartitionId
from tableformat.receipt import PartRange
from tableformat.source import FrozenPartition, LeftSnapshot, Probe, SourceSnapshot
from tableformat.storage import Storage
from tests.support.digest_reference import column_checksum, row_checksum
from tests.support.fakes import TABLE
from tests.support.scenarios import Partitions, parts_of

__all__ = [
    "NARROW",
    "WIDE",
    "ReadDigests",
    "ValuedParts",
    "in_one",
    "parquet",
    "partition_of",
    "rewritten",
    "valued",
]  # fmt: skip

NARROW: Final = replace(TABLE, columns=(Column("n", Simple("Int32"), "Int32"),))
WIDE: Final = replace(TABLE, columns=(*TABLE.columns, Column("later", Simple("Int64"), "Int64")))
_PARTITION: Final = 1_000
_LATE: Final = 3_000_000_000
"""Values from here on need a long."""


def valued(partition: str, *rows: int, late: int = 0) -> list[Part]:
    """Return parts of a partition, one for each number of rows; `late` rows need a long."""
    first = int(partition.removeprefix("p")) * _PARTITION
    made: list[Part] = []
    for part in parts_of(partition, *rows, *((late,) if late else ())):
        begins = first if not late or len(made) < len(rows) else first + _LATE
        made.append(_holding(part, begins))
        first += part.rows
    return made


def rewritten(parts: Sequence[Part], *, other_rows: bool = False) -> list[Part]:
    """Return the parts that a mutation leaves: the same rows in other files, or as many others."""
    return [
        replace(
            _holding(part, _values(part).start + other_rows * _PARTITION // 2, mutated=True),
            name=f"{part.name}_99",
            data_version=99,
        )
        for part in parts
    ]


def in_one(parts: Sequence[Part], *, other_rows: bool = False) -> list[Part]:
    """Return the part that a merge makes of parts, or one of its name and size with other rows."""
    first, rows = parts[0], sum(part.rows for part in parts)
    name = f"{first.partition_id}_{first.min_block}_{parts[-1].max_block}_1"
    made = replace(first, name=name, rows=rows, max_block=parts[-1].max_block, level=1)
    return [_holding(made, _values(first).start + other_rows * _PARTITION // 2, mutated=True)]


def partition_of(value: int) -> str:
    """Return the partition that has a value of `n`."""
    return f"p{value % _LATE // _PARTITION}"


def _holding(part: Part, begins: int, *, mutated: bool = False) -> Part:
    """Return a part with the numbers from one on."""
    text = f"{begins} to {begins + part.rows}{', mutated' if mutated else ''}"
    return replace(part, hash_of_all_files=text)


def _values(part: Part | PartRange) -> range:
    """Return the values of `n` in a part, or in a range of it."""
    first, _, end = part.hash_of_all_files.partition(",")[0].partition(" to ")
    whole = range(int(first), int(end))
    return whole[part.start : part.stop] if isinstance(part, PartRange) else whole


def _column(name: str, values: Sequence[int]) -> list[int]:
    return [value + (name == "later") for value in values]


@dataclass
class ValuedParts(Partitions):
    """A source with several partitions, that digests what it froze."""

    def numbers_of(self, partition: str) -> list[int]:
        """Return the values of `n` in a partition."""
        return [value for part in self.by_id[partition] for value in _values(part)]

    def snapshot(
        self,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        made = super().snapshot(table, partition_ids, job=job, probes=probes)
        return _digested(made, digest)

    def find_snapshot(
        self,
        table: MergeTreeTable,
        wanted: Mapping[PartitionId, LeftSnapshot],
        *,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        return _digested(super().find_snapshot(table, wanted, probes=probes), digest)


def _digested(made: SourceSnapshot, columns: Sequence[DigestColumn]) -> SourceSnapshot:
    def of(one: FrozenPartition) -> FrozenPartition:
        values = [value for frozen in one.parts for value in _values(frozen.part)]
        held = {c.name: _column(c.name, values) for c in columns}
        return replace(one, digest=_digest(len(values), held, columns))

    return replace(made, partitions=tuple(map(of, made.partitions))) if columns else made


def _digest(
    rows: int, held: Mapping[str, Sequence[int | None]], columns: Sequence[DigestColumn]
) -> Digest:
    """Return the digest of rows, as docs/spec/digest.md has it."""
    ordered = sorted(columns, key=lambda c: c.name.encode())
    found = []
    for column in ordered:
        values = held[column.name]
        there = [value for value in values if value is not None]
        checksum = column_checksum(values, column.canonical)
        least, greatest = min(there, default=None), max(there, default=None)
        nulls = len(values) - len(there)
        found.append(ColumnDigest(column.name, column.canonical, nulls, least, greatest, checksum))
    by_column, types = [held[c.name] for c in ordered], [c.canonical for c in ordered]
    return Digest(rows, row_checksum(by_column, types), tuple(found))


def parquet(plan: WritePlan, piece: Slice) -> bytes:
    """Return the file of a slice."""
    schema = schema_to_pyarrow(Schema.model_validate_json(plan.schema_json))
    values = [value for part in piece.ranges for value in _values(part)]
    columns = [pa.array(_column(f.name, values), f.type) for f in schema]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema), sink)
    return bytes(sink.getvalue())


@dataclass(slots=True)
class ReadDigests:
    """Digests of such files, which are read; those that are kept are in the lake's storage."""

    storage: Callable[[str], Storage]
    seconds: float = 0.0

    def read_ahead(self, wanted: Iterable[FilesToDigest]) -> None: ...

    def digest(self, wanted: FilesToDigest) -> Digest:
        rows, held = 0, dict[str, list[int | None]]()
        for file in wanted.files:
            table = pq.read_table(pa.BufferReader(self.storage(file.path).read(file.path)))
            rows += table.num_rows
            of = {int(f.metadata[b"PARQUET:field_id"]): f.name for f in table.schema}
            for column in wanted.columns:
                name = of.get(wanted.schema.find_field(column.name).field_id)
                none: list[int | None] = [None] * table.num_rows
                values = none if name is None else table[name].to_pylist()
                held.setdefault(column.name, []).extend(values)
        figures = {c.name: held.get(c.name, []) for c in wanted.columns}
        return _digest(rows, figures, wanted.columns)

    def keep(self, location: str, kept: KeptDigest) -> None:
        self.storage(location).put(location, kept.to_json().encode())

    def kept(self, location: str) -> KeptDigest | None:
        try:
            return KeptDigest.from_json(self.storage(location).read(location).decode())
        except MissingError:
            return None

    def close(self) -> None: ...
