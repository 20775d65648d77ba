"""Step 1 of 3 of the job (plan -> write -> commit): a table and its place in the lake, decided.

`plan_table` decides what the lake table must be, from the source alone; `fit` meets it with the
table that is really there; `plan_slices` cuts a frozen partition into files. Nothing here opens
anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from tableformat.committer import (
    Commit,
    KeyCommit,
    LakeTable,
    LakeTableState,
    Layout,
    SchemaChange,
)
from tableformat.errors import InternalError, RefusedError
from tableformat.export.claim import Content, content_of
from tableformat.export.data_checks import data_checks
from tableformat.export.ports import SliceFailure
from tableformat.export.slices import FileFormat, Slice, WritePlan
from tableformat.export.slicing import SliceTarget, slices
from tableformat.file_names import RECEIPTS
from tableformat.iceberg.evolution import evolve
from tableformat.iceberg.existing import (
    ExistingTable,
    divided_by,
    existing_refusal,
    written_schema,
)
from tableformat.iceberg.partition_proof import directory, partition_values, probe, value_texts
from tableformat.iceberg.partition_spec import DerivedSpec, chosen_spec, derive_spec
from tableformat.iceberg.properties import (
    grown_properties,
    remembered_source,
    table_properties,
)
from tableformat.iceberg.remembered_conversions import conversions_in_force
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.sort_order import (
    SortedField,
    file_order,
    same_order,
    sort_order,
    sort_prefix,
)
from tableformat.iceberg.spec_fields import parse_spec, partition_spec
from tableformat.ledger import ExportedPart, Key, Ledger, Row
from tableformat.mergetree.digest_sql import DigestColumn, source_columns
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import LakeName, PartName
from tableformat.parquet.wire import order_by, select_list
from tableformat.receipt import Receipt
from tableformat.source import FrozenPartition, Probe, SourceSnapshot

__all__ = [
    "Destination",
    "SizeRatio",
    "TablePlan",
    "fit",
    "frozen_content",
    "plan_slices",
    "plan_table",
    "remembered_conversions",
    "schema_change",
]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What the lake table must be: it follows from the source and the user's words alone."""

    table: MergeTreeTable
    columns: MappedColumns
    spec: DerivedSpec
    order: tuple[SortedField, ...]

    @property
    def schema(self) -> Schema:
        """The schema to create a table with; the catalog gives it its own ids."""
        return self.columns.schema

    @property
    def partition_spec(self) -> PartitionSpec:
        """The partition spec to create a table with."""
        return partition_spec(self.spec.fields, self.schema)

    @property
    def sort_order(self) -> SortOrder:
        """The sort order to create a table with."""
        return sort_order(self.order, self.schema)

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties to create a table with."""
        return table_properties(self.table, self.columns)

    @property
    def probes(self) -> tuple[Probe, ...]:
        """What every partition is asked, one probe for each partition field."""
        return tuple(probe(f, self.columns) for f in self.spec.fields)

    @property
    def digest_columns(self) -> tuple[DigestColumn, ...]:
        """What is digested of every partition, where a digest is asked for."""
        return source_columns([c.source for c in self.columns.columns], self.columns.conversions)


@dataclass(slots=True)
class SizeRatio:
    """File bytes per byte on the source's disks, as measured so far; 1 before the first file."""

    source_bytes: int = field(default=0)
    file_bytes: int = field(default=0)

    @property
    def value(self) -> float:
        """The ratio to plan with."""
        return max(0.01, self.file_bytes / self.source_bytes) if self.source_bytes else 1.0

    def measured(self, planned: Iterable[Slice], results: Iterable[Receipt | SliceFailure]) -> None:
        """Learn from finished files; what was planned at ratio r is bytes / r at the source."""
        ratio = self.value
        estimates = {s.number: s.estimated_bytes / ratio for s in planned}
        for result in results:
            size = getattr(result, "file_bytes", None)
            if size is not None:
                self.source_bytes += int(estimates[result.slice_number])
                self.file_bytes += size


@dataclass(frozen=True, slots=True)
class Destination:
    """A lake table that a plan fits: its real ids, and everything that the group job asks for.

    `schema` is what files hold of the table's own.
    """

    name: LakeName
    lake: LakeTable
    plan: TablePlan
    layout: Layout
    location: str
    schema: Schema
    spec: PartitionSpec
    sort_order_id: int | None
    format: FileFormat

    @property
    def table(self) -> MergeTreeTable:
        """The source table."""
        return self.plan.table

    def key(self, partition_id: object) -> Key:
        """Return the ledger key of a partition in this destination."""
        return Key(self.table.identity, str(partition_id), self.layout.table_uuid)

    def write_plan(
        self, snapshot: SourceSnapshot, job: str, versions: tuple[tuple[str, str], ...]
    ) -> WritePlan:
        """Return what all slices of a job share."""
        by_name = {c.name: c.source for c in self.plan.columns.columns}
        columns = [by_name[f.name] for f in self.schema.fields]
        location = self.location.rstrip("/")
        return WritePlan(
            table=str(self.table.name),
            layout=snapshot.layout,
            select=select_list(columns, self.plan.columns.conversions),
            order_by=order_by(self.table.engine),
            schema_json=self.schema.model_dump_json(),
            spec_id=self.layout.spec_id,
            sort_order_id=self.sort_order_id,
            # True of the rows whatever order the table declares.
            sort_fields=file_order(self.plan.order, self.schema),
            checks=data_checks(self.plan.columns),
            data_location=f"{location}/data",
            receipts_location=f"{location}/{RECEIPTS}",
            format=self.format,
            job=job,
            versions=versions,
        )

    def commit(self, row: Row, receipts: tuple[Receipt, ...], ledger: Ledger) -> Commit:
        """Return what a claimed and written partition makes visible."""
        summary = {
            "mergeberg.source-table": str(self.table.name),
            "mergeberg.partition-id": row.key.partition_id,
            "mergeberg.transaction-id": row.transaction_id,
            "mergeberg.fingerprint": row.fingerprint,
            "mergeberg.ledger": ledger.identity,
        }
        key = KeyCommit(row.key.hash, row.epoch, row.transaction_id, row.fingerprint, receipts)
        return Commit((key,), self.layout, ledger.identity, tuple(summary.items()))


def remembered_conversions(
    name: LakeName,
    table: MergeTreeTable,
    given: Mapping[str, str],
    state: LakeTableState | None,
) -> Mapping[str, str]:
    """Return the conversions to plan with: the user's, and what an existing table remembers.

    Args:
        name: the destination.
        table: the source.
        given: what the user said.
        state: of the destination, None when it is not there yet.

    Raises:
        RefusedError: the user said something else than the table was made with (code 36).
        DestinationError: what the table remembers cannot be read.
    """
    remembered = remembered_source(state.properties) if state is not None else None
    return conversions_in_force(f"export {table.name} to {name}", table, given, remembered)


def plan_table(
    table: MergeTreeTable,
    *,
    conversions: Mapping[str, str],
    strict: bool,
    partition_spec: str | None,
) -> TablePlan:
    """Decide what the lake table must be.

    Args:
        table: the source.
        conversions: column to conversion, as the user said.
        strict: refuse what changes kind.
        partition_spec: the spec that the user named instead of the derived one.

    Raises:
        RefusedError: a column or the partition key cannot be mapped; all reasons of the kind at
            once.
        UsageError: the spec's text cannot be read.
    """
    columns = map_columns(table, conversions, strict=strict)
    spec = (
        derive_spec(table, columns)
        if partition_spec is None
        else chosen_spec(table, parse_spec(partition_spec, columns))
    )
    return TablePlan(table, columns, spec, sort_prefix(table, columns))


def fit(
    plan: TablePlan, name: LakeName, lake: LakeTable, state: LakeTableState, fmt: FileFormat
) -> Destination:
    """Meet a plan with the table that is really there, by name.

    Raises:
        RefusedError: the table differs in what matters; every difference is listed.
    """
    loaded = table_of(state)
    refusal = _refusal(plan, name, state, loaded.schema())
    if refusal is not None:
        raise refusal
    order = loaded.sort_order()
    return Destination(
        name=name,
        lake=lake,
        plan=plan,
        layout=state.layout,
        location=state.location,
        schema=written_schema(loaded.schema(), plan.columns),
        spec=loaded.spec(),
        sort_order_id=order.order_id if same_order(plan.order, order, loaded.schema()) else None,
        format=fmt,
    )


def schema_change(plan: TablePlan, name: LakeName, state: LakeTableState) -> SchemaChange | None:
    """Return what the table must get so that the plan fits (`--evolve-schema`), None for nothing.

    Raises:
        RefusedError: it would not fit even then; every other difference is listed.
    """
    loaded = table_of(state)
    grown = evolve(loaded.schema(), loaded.spec(), plan.columns, loaded.metadata.last_column_id)
    if grown is None:
        return None
    refusal = _refusal(plan, name, state, grown.schema)
    if refusal is not None:
        raise refusal
    properties = grown_properties(state.properties, plan.columns, grown.changed)
    return SchemaChange(grown.schema.model_dump_json(), grown.added, tuple(properties.items()))


def _refusal(
    plan: TablePlan, name: LakeName, state: LakeTableState, schema: Schema
) -> RefusedError | None:
    existing = ExistingTable(str(name), schema, table_of(state).spec(), state.format_version)
    what = f"export {plan.table.name} to {name}"
    return existing_refusal(what, existing, plan.columns, plan.spec)


def frozen_content(table: MergeTreeTable, frozen: FrozenPartition) -> Content:
    """Return the content identity of what was frozen, under the parts' names in the source."""
    content = content_of(table, tuple(p.part for p in frozen.parts))
    parts = []
    for frozen_part in frozen.parts:
        name, part = PartName.parse(frozen_part.source_name), frozen_part.part
        parts.append(
            ExportedPart(
                frozen_part.source_name,
                part.hash_of_all_files,
                part.rows,
                name.low,
                name.high,
                name.mutation or name.low,
            )
        )
    return replace(content, parts=tuple(parts))


def _in_spec(spec: PartitionSpec, values: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return the values by the fields of a table's spec, of which some may divide nothing."""
    given = dict(zip((f.field_id for f in divided_by(spec)), values, strict=True))
    return tuple(given.get(f.field_id) for f in spec.fields)


def plan_slices(
    to: Destination,
    frozen: FrozenPartition,
    row: Row,
    ratio: SizeRatio,
    *,
    slots: int,
) -> tuple[Slice, ...]:
    """Cut a frozen and claimed partition into slices, one for each file.

    Raises:
        RefusedError: the partition does not lie in one Iceberg partition (code 36).
        InternalError: the slices do not hold exactly the partition's parts.
    """
    values = partition_values(to.plan.spec, to.plan.columns, frozen.probed, frozen.partition_id)
    target = SliceTarget(
        key=row.key.hash,
        epoch=row.epoch,
        transaction_id=row.transaction_id,
        directory=directory(to.plan.spec, to.plan.columns, values),
        partition=_in_spec(to.spec, value_texts(to.plan.spec, to.plan.columns, values)),
    )
    cut = slices(
        frozen,
        target,
        fmt=to.format,
        bytes_ratio=ratio.value,
        columns=len(to.plan.columns.columns),
        slots=slots,
    )
    wanted = {p.part.name for p in frozen.parts if p.visible_rows}
    if {r.name for s in cut for r in s.ranges} != wanted:
        message = (
            f"The slices of partition {frozen.partition_id} do not hold its parts; this is a bug, "
            "please report it."
        )
        raise InternalError(message)
    return cut
