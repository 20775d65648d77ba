"""Step 1 of 3 of the job (plan -> write -> commit), its values: slices, tasks, the write plan.

A slice is the rows of exactly one data file: whole parts, or a `_part_offset` range of a large
part. It belongs to one key and one Iceberg partition. Small slices share a task (DESIGN 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.parquet.file_format import FileFormat
from tableformat.receipt import PartRange
from tableformat.source import PartsLayout, ServedLayout

__all__ = ["DataCheck", "FileFormat", "Share", "Slice", "SliceTask", "WritePlan"]


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of one file.

    `rows` is what must come out (None: lightweight deletes inside a range). `place` is where the
    parts are, as in `FrozenPart`. `directory` is the file's directory below the table's data
    location, `partition` the Iceberg values as in `Receipt`; `estimated_bytes` is the expected file
    size.
    """

    number: int
    key: str
    partition_id: str
    epoch: int
    transaction_id: str
    place: str
    ranges: tuple[PartRange, ...]
    rows: int | None
    estimated_bytes: int
    directory: str
    partition: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class SliceTask:
    """The slices that one Spark task writes, one after the other."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What a job may take of its application: `slices` at a time, and a rate for all of them.

    `bandwidth` is bytes per second of all slices together, 0 where nothing bounds it. With
    `in_turn` a slice is read whole before it is written.
    """

    slices: int
    bandwidth: int = 0
    in_turn: bool = False

    @property
    def bytes_per_second(self) -> int | None:
        """What each slice may read and write; None where nothing bounds it. Together never more."""
        return self.bandwidth // self.slices if self.bandwidth else None


@dataclass(frozen=True, slots=True)
class DataCheck:
    """A condition on the data that Iceberg needs and ClickHouse does not hold (types.md, class C).

    `bad_sql` is true for an offending row, over columns qualified by `SOURCE_ALIAS`; `sample_sql`
    shows one. `always` asks for the check before a slice is written; the others only explain a
    failed validation.
    """

    column: str
    what: str
    bad_sql: str
    sample_sql: str
    way_round: str
    always: bool


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Everything that is the same for all slices of a job; plain values, so that it pickles.

    `select` is the SELECT list (`expression AS column, ...`), `order_by` the source's key with
    columns qualified by `SOURCE_ALIAS` ('' for none), `schema_json` the Iceberg schema of the
    destination, `sort_fields` its declared order as (field id, descending, nulls first), empty when
    none is declared. `receipts` is the location under which receipts are stored; `versions` must be
    those of the executor. With a `share` no more than that is written at a time. Files of a `tree`
    have names that begin with the transaction, and columns named as in the table.
    """

    table: str
    layout: PartsLayout | ServedLayout
    select: str
    order_by: str
    schema_json: str
    spec_id: int
    sort_order_id: int | None
    sort_fields: tuple[tuple[int, bool, bool], ...]
    checks: tuple[DataCheck, ...]
    data_location: str
    receipts_location: str
    format: FileFormat
    job: str
    versions: tuple[tuple[str, str], ...]
    storage: tuple[tuple[str, str], ...] = ()
    tree: bool = False
    share: Share | None = None
