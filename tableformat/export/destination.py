"""Matches an export's plan with the existing lake table (job step 1 of plan, write, commit).

`fit` compares the plan with the table and returns a `Destination` with the table's real ids and
everything that the group job needs. `plan_slices` cuts a frozen partition into files for it.
Neither opens anything.

`evolve_schema` (`--evolve-schema`) adds missing columns, and widens types that are too narrow,
before any file is written:

* the change is a commit of its own. It requires the schema and the last column id of the loaded
  state, so it applies at most once and never over another writer's change;
* after any response except a success, mergeberg loads the table again and checks what is missing;
* after a crash the new columns stay, filled with NULL, and the next run has nothing to add;
* the commit of a partition requires the schema for which its files were written.

`renewal` finds the default expressions that ALTER TABLE has changed in the source. They are stored
by every export, because they change no row, and statements on the lake table evaluate them.

Source: docs/spec/commit-protocol.md, "Added columns".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED
from tableformat.committer import (
    Commit,
    KeyCommit,
    LakeTable,
    LakeTableState,
    Layout,
    MainChange,
    SchemaChange,
)
from tableformat.effects import Step
from tableformat.errors import Action, InternalError, RefusedError, Unable, UnsupportedError
from tableformat.export.commit import check_table_of_ledger
from tableformat.export.plan import TablePlan, check_values
from tableformat.export.ports import JobPorts
from tableformat.export.slice_sql import data_checks, order_by, select_list
from tableformat.export.slices import (
    FileFormat,
    Slice,
    SliceTarget,
    WritePlan,
    receipts_below,
    slices,
)
from tableformat.file_names import RECEIPTS, PathLayout
from tableformat.hive.layout import check_rules
from tableformat.hive.levels import Level, levels_of, tree_directory
from tableformat.iceberg.existing_table import (
    ExistingTable,
    existing_refusal,
    written_schema,
)
from tableformat.iceberg.partition_proof import directory, partition_values, value_texts
from tableformat.iceberg.properties import (
    filters_of,
    parts_apart,
    remembered_source,
    renewed_properties,
)
from tableformat.iceberg.schema_evolution import divided_by, evolve
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.sort_order import file_order, same_order
from tableformat.ledger import Claim, Key, Ledger, Row
from tableformat.mergetree.compatibility import other_expressions
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.messages import Option
from tableformat.names import LakeName
from tableformat.parquet.writer import file_format
from tableformat.receipt import Receipt
from tableformat.source import FrozenPartition, SourceSnapshot

__all__ = [
    "Destination",
    "Group",
    "WrittenClaim",
    "change_text",
    "evolve_schema",
    "fit",
    "in_spec",
    "plan_slices",
    "renewal",
    "schema_change",
]


@dataclass(frozen=True, slots=True)
class WrittenClaim:
    """A claimed partition whose files are finished, and how they enter main."""

    row: Row
    receipts: tuple[Receipt, ...]
    change: MainChange

    @property
    def key_commit(self) -> KeyCommit:
        """Its part of the commit."""
        claim = self.row.claim
        return KeyCommit(
            self.row.key.hash,
            claim.epoch,
            claim.transaction_id,
            claim.fingerprint,
            self.receipts,
            self.change,
            self.row.key.partition_id,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Where the list of the exports of one snapshot is stored, and the digest of that file."""

    name: str
    location: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Destination:
    """An existing lake table that fits a plan, with its ids and the values for the group job.

    `schema` has the columns of the table that the files contain. `location`, `data_location` and
    `tree` are as in the table's state. `levels` are those of a tree, empty for other tables.
    `paths` is the layout of the paths of new files.
    """

    name: LakeName
    lake: LakeTable
    plan: TablePlan
    layout: Layout
    location: str
    data_location: str
    schema: Schema
    spec: PartitionSpec
    sort_order_id: int | None
    format: FileFormat
    tree: str
    levels: tuple[Level, ...]
    paths: PathLayout

    @property
    def table(self) -> MergeTreeTable:
        """The source table."""
        return self.plan.table

    def key(self, partition_id: object) -> Key:
        """Return the ledger key of a partition in this destination."""
        return Key(self.table.key_source, str(partition_id), self.layout.table_uuid)

    def write_plan(
        self,
        snapshot: SourceSnapshot,
        job: str,
        versions: tuple[tuple[str, str], ...],
        action: Action = Action.EXPORT,
    ) -> WritePlan:
        """Return the values that all slices of a job share."""
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
            # The order of the rows in the files, also if the table declares another one.
            sort_fields=file_order(self.plan.order, self.schema),
            checks=data_checks(self.plan.columns),
            data_location=self.data_location,
            receipts_location=f"{location}/{RECEIPTS}",
            format=self.format,
            job=job,
            versions=versions,
            tree=bool(self.tree),
            paths=self.paths,
            action=action,
        )

    def receipts_of(self, row: Row) -> str:
        """Return the location of the receipts of a row's claim."""
        return receipts_below(self.location, row)

    def commit(self, written: tuple[WrittenClaim, ...], ledger: Ledger, group: Group) -> Commit:
        """Return the commit of claimed and written partitions.

        Its summary has the location of their list, and the ids of a single partition.
        """
        keys = tuple(w.key_commit for w in written)
        summary = {"mergeberg.source-table": str(self.table.name)}
        if len(written) == 1:
            row = written[0].row
            summary |= {
                "mergeberg.partition-id": row.key.partition_id,
                "mergeberg.transaction-id": row.claim.transaction_id,
                "mergeberg.fingerprint": row.claim.fingerprint,
            }
        summary |= {
            "mergeberg.group": group.name,
            "mergeberg.exports": str(len(written)),
            "mergeberg.receipts": group.location,
            "mergeberg.receipts-sha256": group.sha256,
            "mergeberg.ledger": ledger.identity,
        }
        return Commit(keys, self.layout, ledger.identity, tuple(summary.items()))


def fit(
    plan: TablePlan, name: LakeName, lake: LakeTable, state: LakeTableState, fmt: FileFormat
) -> Destination:
    """Match a plan with the existing table, column by column by name.

    Raises:
        RefusedError: the table does not fit the plan; the message lists every difference. Or a
            property about its files has a value that it cannot have.
    """
    loaded = table_of(state)
    refusal = _refusal(plan, name, state, loaded.schema())
    if refusal is not None:
        raise refusal
    if state.tree:
        subject = f"{plan.table.name} to {name}"
        check_rules(subject, name, loaded.schema(), state.properties)
    order = loaded.sort_order()
    written = written_schema(loaded.schema(), plan.columns)
    return Destination(
        name=name,
        lake=lake,
        plan=plan,
        layout=state.layout,
        location=state.location,
        data_location=state.data_location,
        schema=written,
        spec=loaded.spec(),
        sort_order_id=order.order_id if same_order(plan.order, order, loaded.schema()) else None,
        format=replace(
            file_format(fmt, state.properties, name),
            bloom_columns=filters_of(state.properties, written),
            parts_apart=parts_apart(state.properties),
        ),
        tree=state.tree,
        levels=levels_of(loaded.schema(), loaded.spec(), state.properties) if state.tree else (),
        paths=PathLayout.of(state.properties, state.tree),
    )


def schema_change(plan: TablePlan, name: LakeName, state: LakeTableState) -> SchemaChange | None:
    """Return the schema change after which the plan fits (`--evolve-schema`), None if it fits now.

    The change adds missing columns, widens types that are too narrow, and updates the table's
    properties about its source.

    Raises:
        RefusedError: the table would not fit even then; the message lists every other difference.
        UnsupportedError: the destination is a Hive tree, whose columns never change (code 48).
    """
    loaded = table_of(state)
    grown = evolve(loaded.schema(), loaded.spec(), plan.columns, loaded.metadata.last_column_id)
    if state.tree and grown is None:
        return None
    if state.tree and grown is not None:
        what = (
            f"add {', '.join(grown.added)} to {name}"
            if grown.added
            else f"widen {', '.join(grown.widened)} in {name}"
        )
        message = (
            f"Cannot {what}: the columns of a tree of Hive directories never change. Export to "
            "another tree, or to an Iceberg table."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    schema = loaded.schema() if grown is None else grown.schema
    refusal = _refusal(plan, name, state, schema)
    if refusal is not None:
        raise refusal
    properties = renewed_properties(
        state.properties,
        plan.table,
        plan.columns,
        tuple(f.name for f in schema.fields),
        frozenset() if grown is None else grown.changed,
    )
    if grown is None and not properties:
        return None
    added, widened = ((), ()) if grown is None else (grown.added, grown.widened)
    return SchemaChange(schema.model_dump_json(), added, tuple(properties.items()), widened)


def renewal(
    plan: TablePlan, name: LakeName, state: LakeTableState, *, is_of_statement: bool
) -> SchemaChange | None:
    """Return the change of properties after which the expressions of columns are the source's.

    Statements on the lake table evaluate the stored expressions: DEFAULT, MATERIALIZED and ALIAS.
    None if the table has them already, or has no stored source. ATTACH and REPLACE … FROM another
    table (`is_of_statement`) bring rows under the table's own expressions, as in ClickHouse.

    Raises:
        RefusedError: the table does not fit the plan, or it stores another source, which has other
            expressions (code 36).
    """
    remembered = None if state.tree else remembered_source(state.properties)
    others = other_expressions(remembered.table, plan.table) if remembered is not None else ()
    if remembered is None or not others:
        return None
    if is_of_statement and not remembered.is_of(plan.table):
        return None
    schema = table_of(state).schema()
    refusal = _refusal(plan, name, state, schema)
    if refusal is not None:
        raise refusal
    if not remembered.is_of(plan.table):
        raise _other_expressions(plan.table, name, remembered.table, others)
    names = tuple(f.name for f in schema.fields)
    properties = renewed_properties(state.properties, plan.table, plan.columns, names, frozenset())
    return SchemaChange(schema.model_dump_json(), (), tuple(properties.items()))


def _other_expressions(
    table: MergeTreeTable,
    name: LakeName,
    remembered: MergeTreeTable,
    others: tuple[tuple[Column | None, Column], ...],
) -> RefusedError:
    reasons = tuple(
        f"column {column.name} is {_defined(column)} here and {_defined(before)} in "
        f"{remembered.name} ({remembered.identity}), whose expressions the statements on {name} "
        "evaluate. Nothing was changed. Give both tables one expression (ALTER TABLE … MODIFY "
        f"COLUMN), or use {Option.EVOLVE_SCHEMA}, and the statements evaluate that of this table."
        for before, column in others
    )
    return RefusedError(Unable.of(f"{table.name} to {name}", *reasons), code=BAD_ARGUMENTS)


def _defined(column: Column | None) -> str:
    """Return the definition of a column's values."""
    if column is None:
        return "missing"
    if not column.default_kind:
        return f"{column.type_text} without a default"
    return f"{column.type_text} {column.default_kind} {column.default_expression}".rstrip()


def _refusal(
    plan: TablePlan, name: LakeName, state: LakeTableState, schema: Schema
) -> RefusedError | None:
    loaded, remembered = table_of(state), remembered_source(state.properties)
    existing = ExistingTable(
        str(name),
        schema,
        loaded.spec(),
        state.format_version,
        key=None if remembered is None or state.tree else remembered.table.engine.partition_by,
        remembered=remembered,
        new_fields=frozenset(schema.field_ids) - frozenset(loaded.schema().field_ids),
        tree=bool(state.tree),
    )
    subject = f"{plan.table.name} to {name}"
    return existing_refusal(subject, existing, plan.all_columns, plan.spec, strict=plan.strict)


def in_spec(spec: PartitionSpec, values: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return partition values by the fields of a table's spec, None for void fields."""
    given = dict(zip((f.field_id for f in divided_by(spec)), values, strict=True))
    return tuple(given.get(f.field_id) for f in spec.fields)


def plan_slices(
    to: Destination, frozen: FrozenPartition, key: str, claim: Claim, *, ranges: bool
) -> tuple[Slice, ...]:
    """Cut a partition snapshot into slices, one for each file, numbered from 0; none without rows.

    Args:
        to: the destination of the files.
        frozen: the partition.
        key: the hash of its ledger key.
        claim: the claim for which the files are written.
        ranges: whether a part can be read in ranges.

    Raises:
        RefusedError: the rows belong to several Iceberg partitions (code 36); or the name of the
            tree's directory is too long, or readers would parse another value from it (code 48).
        InternalError: the slices do not hold exactly the partition's parts.
    """
    if frozen.visible_rows == 0:
        return ()
    columns = to.plan.all_columns
    values = partition_values(to.plan.spec, columns, frozen.probed, frozen.partition_id)
    partition = in_spec(to.spec, value_texts(to.plan.spec, columns, values))
    if to.tree:
        check_values(to.table, frozen.partition_id, to.levels, partition)
    target = SliceTarget(
        key=key,
        epoch=claim.epoch,
        transaction_id=claim.transaction_id,
        directory=tree_directory(to.levels, partition)
        if to.tree
        else directory(to.plan.spec, columns, values),
        partition=partition,
    )
    cut = slices(
        frozen,
        target,
        fmt=to.format,
        bytes_ratio=claim.bytes_ratio,
        columns=len(to.plan.columns.columns),
        slots=claim.slots,
        ranges=ranges,
    )
    wanted = {p.part.name for p in frozen.parts if p.visible_rows}
    if {r.name for s in cut for r in s.ranges} != wanted:
        message = (
            f"The slices of partition {frozen.partition_id} do not hold its parts; this is a bug, "
            "please report it."
        )
        raise InternalError(message)
    return cut


_MOST_TURNS: Final = 10
_SOURCE: Final = "mergeberg.source."


def evolve_schema(
    ports: JobPorts,
    plan: TablePlan,
    name: LakeName,
    lake: LakeTable,
    state: LakeTableState,
    needed: Callable[[TablePlan, LakeName, LakeTableState], SchemaChange | None] = schema_change,
) -> LakeTableState:
    """Change the table's schema until the plan fits; return the state with the new schema.

    Args:
        ports: the ports of the job.
        plan: the plan of the export.
        name: the name of the destination.
        lake: the destination.
        state: its last loaded state.
        needed: returns the change that a state needs, as `schema_change` and `renewal` do.

    Raises:
        RefusedError: the table would not fit in another way, and nothing was changed; or the
            catalog confirmed none of the requests.
        DestinationError: the table cannot be loaded.
    """
    evidence = what = ""
    for attempt in range(1, _MOST_TURNS + 1):
        change = needed(plan, name, state)
        if change is None:
            return state
        what = "add columns to" if change.is_of_schema else "note the columns of the source in"
        sent = ports.effects(Step.EVOLVE_SCHEMA, partial(lake.evolve, state, change))
        if sent.applied:
            ports.observer.note(change_text(change, name))
        else:
            evidence = sent.error
            ports.pause(attempt)
        state = ports.effects(Step.LOAD_METADATA, lake.load)
        check_table_of_ledger(state, ports.ledger)
    message = (
        f"Cannot {what} {name}: {_MOST_TURNS} requests were sent, and the table still "
        f"lacks some; the last response: {evidence or 'success'}. Run it again."
    )
    raise RefusedError(message)


def change_text(change: SchemaChange, name: LakeName, *, would: bool = False) -> str:
    """Return the text on a schema change; `would` for a dry run."""
    notes = (
        f"{'would be ' if would else ''}{did} {name}: {', '.join(fields)}"
        for did, fields in (("added to", change.added), ("widened in", change.widened))
        if fields
    )
    if change.is_of_schema:
        return "; ".join(notes)
    noted = ", ".join(key.removeprefix(_SOURCE) for key, _ in change.properties)
    return f"{'would be noted' if would else 'noted'} in {name} as the source has it now: {noted}"
