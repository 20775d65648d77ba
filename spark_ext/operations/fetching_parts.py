"""FETCH PARTITION|PART … FROM a table of ClickHouse: an export of it to what is detached.

Its parts are frozen and proved as by an export, from part folders (`parts:DIR?ddl=FILE`) or from a
server, and an export's tasks write the files; no Spark is started for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from catalog.clickhouse.server.settings import ServerSettings
from catalog.clickhouse.source import ClickHouseSource
from catalog.processes import new_job
from catalog.storages.opening import Storages
from catalog.stored_receipts import list_files
from spark_ext.operations.other_tables import RememberingTable
from spark_ext.slice_process import written_slices
from spark_ext.tasks import installed_versions
from tableformat.branches import BranchFile
from tableformat.clickhouse_codes import NO_REPLICA_HAS_PART
from tableformat.committer import LakeTableState
from tableformat.errors import NotFoundError, RefusedError, SourceError
from tableformat.export.destination import Destination, fit, plan_slices
from tableformat.export.plan import TablePlan, plan_table, remembered_conversions
from tableformat.export.slices import FileFormat
from tableformat.iceberg.existing import divided_by
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.spec_fields import UNPARTITIONED
from tableformat.ledger import Key, Row
from tableformat.mergetree.alike import differences
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import TableName, quote_identifier
from tableformat.operations.copying import OtherKey
from tableformat.operations.fetching import Fetch
from tableformat.operations.running import Running
from tableformat.operations.which import OnePart, OnePartition
from tableformat.receipt import Receipt
from tableformat.source import FrozenPartition, SourceSnapshot

__all__ = ["PartsOrigin", "fetching_parts"]


@dataclass(frozen=True, slots=True)
class PartsOrigin:
    """A table of ClickHouse: what stands in quotes, its source, and its server if it has one."""

    quoted: str
    source: ClickHouseSource
    table: TableName
    server: ServerSettings | None = None


@dataclass(frozen=True, slots=True)
class _WrittenParts:
    """A `tableformat.operations.statement.Copies` of frozen parts that were proved."""

    to: Destination
    snapshot: SourceSnapshot
    frozen: FrozenPartition
    storages: Storages
    server: ServerSettings | None

    def __call__(self, row: Row, _files: tuple[BranchFile, ...]) -> tuple[Receipt, ...]:
        """Write the files of the parts for the claim of a row; return their receipts.

        Raises:
            TableFormatError: a part cannot be read, a value has no place in the lake, or a storage
                failed.
        """
        ranges = self.snapshot.layout.ranges
        slices = plan_slices(self.to, self.frozen, row.key.hash, row.claim, ranges=ranges)
        plan = self.to.write_plan(self.snapshot, new_job(), installed_versions())
        access = self.storages.access(plan.receipts_location)
        receipts = written_slices(plan, slices, access, self.server)
        rows, wanted = sum(r.rows for r in receipts), self.frozen.visible_rows
        if rows != wanted:
            message = (
                f"Cannot fetch partition {self.frozen.partition_id} of {self.to.table.name}: it "
                f"shows {wanted:,} rows, its files hold {rows:,}. Nothing became visible; please "
                "report it with the table's definition."
            )
            raise SourceError(message)
        list_files(row, receipts, self.to.location, self.storages)
        return receipts


def fetching_parts(
    what: str,
    origin: PartsOrigin,
    which: OnePartition | OnePart,
    running: Running,
    to: RememberingTable,
    key_of: Callable[[str], Key],
    stack: ExitStack,
) -> tuple[Running, Fetch]:
    """Return FETCH from a table of ClickHouse, and what runs it; its parts are proved.

    Args:
        what: begins errors: what cannot be run.
        origin: the table.
        which: what is fetched.
        running: what runs statements on the lake table.
        to: the lake table.
        key_of: says of which key rows are that come from a table of an identity.
        stack: lets go of what is frozen.

    Raises:
        NotFoundError: there is no such table, or not this part (code 234).
        RefusedError: it is no table of which rows can come, or its parts cannot be proved.
        TableFormatError: the parts cannot be read.
    """
    state, source, one = to.found.load(), origin.source, which.partition_id
    table = source.describe(origin.table)
    if found := differences(table, to.source.table):
        told = "; ".join(one.text for one in found)
        raise RefusedError(f"{what}: {told}.", code=found[0].code)
    destination = fit(_plan(table, to, state), to.name, to.found, state, FileFormat())
    schema_id = state.layout.schema_id
    if one not in (p.partition_id for p in source.partitions(table.name)):
        return running, Fetch(which, origin.quoted, (), schema_id)
    snapshot = source.snapshot(table, (one,), job=new_job(), probes=destination.plan.probes)
    stack.callback(source.release, snapshot)
    for _, error in snapshot.refused:
        raise error
    (frozen,) = snapshot.partitions
    if isinstance(which, OnePart):
        frozen = _part(what, which, frozen)
    files = tuple(
        BranchFile(p.part.path, p.visible_rows, p.part.bytes_on_disk, state.layout.spec_id)
        for p in frozen.parts
        if p.visible_rows
    )
    keys = (OtherKey(key_of(table.key_source), files),) if files else ()
    copy = _WrittenParts(destination, snapshot, frozen, to.found.storages, origin.server)
    ready = replace(running, ports=replace(running.ports, copy=copy))
    return ready, Fetch(which, origin.quoted, keys, schema_id)


def _plan(table: MergeTreeTable, to: RememberingTable, state: LakeTableState) -> TablePlan:
    """Return what the lake table must be for the rows of the parts: as it is divided."""
    iceberg = table_of(state)
    spec = ", ".join(
        _spec_field(str(f.transform), iceberg.schema().find_column_name(f.source_id) or "")
        for f in divided_by(iceberg.spec())
    )
    return plan_table(
        table,
        conversions=remembered_conversions(to.name, table, {}, state),
        strict=False,
        partition_spec=spec or UNPARTITIONED,
        to=to.name,
    )


def _spec_field(transform: str, column: str) -> str:
    """Return a field of a partition spec as --partition-spec has it."""
    kind, _, argument = transform.rstrip("]").partition("[")
    name = quote_identifier(column)
    if kind == "identity":
        return name
    return f"{kind}({argument}, {name})" if argument else f"{kind}({name})"


def _part(what: str, which: OnePart, frozen: FrozenPartition) -> FrozenPartition:
    """Return a frozen partition with one of its parts alone.

    Raises:
        NotFoundError: it has none of that name (code 234).
    """
    parts = tuple(p for p in frozen.parts if p.source_name == str(which.part))
    if not parts:
        there = ", ".join(p.source_name for p in frozen.parts[:5])
        message = f"{what}: there is no part of that name; here are {there}."
        raise NotFoundError(message, code=NO_REPLICA_HAS_PART)
    return replace(frozen, parts=parts, digest=None)
