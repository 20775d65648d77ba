"""Checks whether an export would succeed, and collects all reasons and warnings in one value.

The check starts no Spark and creates nothing. A reason means that the export would be refused. A
warning does not stop the export. `cli/commands/check.py` prints the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from catalog.clickhouse.server.access_report import ServerReport
from catalog.clickhouse.server.source import ServerSource
from catalog.clickhouse.source import ClickHouseSource
from catalog.secret_variables import harmless_environment
from catalog.storages.schemes import is_local, open_storage
from spark_ext.engine.java import find_java
from tableformat.errors import NotFoundError, RefusedError, UsageError
from tableformat.export.commit import check_table_of_ledger
from tableformat.export.destination import change_text, fit, renewal, schema_change
from tableformat.export.plan import TablePlan, remembered_conversions
from tableformat.export.ports import Lake
from tableformat.export.slices import FileFormat
from tableformat.iceberg.partition_spec import DerivedSpec, chosen_spec, derive_spec
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.iceberg.sort_order import sort_prefix
from tableformat.iceberg.spec_fields import parse_spec
from tableformat.ledger import Ledger
from tableformat.mergetree.table import Column, MergeTreeTable, PartitionSummary
from tableformat.mergetree.table_settings import check_readable
from tableformat.mergetree.types import type_matcher
from tableformat.messages import convert
from tableformat.names import LakeName, TableName, check_new_table, option_name
from tableformat.quantities import human_bytes

__all__ = [
    "Check",
    "CheckRequest",
    "CheckedColumn",
    "Space",
    "check_export",
    "checked_spaces",
    "lacking",
    "measured_space",
]

_WITHOUT_LEDGER: Final = (
    "no ledger is named, so it is not checked whether the lake table belongs to another one; the "
    "export needs one"
)
_PACKAGES: Final = ("chdb-core", "pyspark", "pyarrow", "pyiceberg")


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The export to check; `to` is None if only the source is to be checked."""

    table: TableName
    to: LakeName | None
    conversions: Mapping[str, str]
    strict: bool
    partition_spec: str | None
    evolve_schema: bool = False


@dataclass(frozen=True, slots=True)
class CheckedColumn:
    """The Iceberg column of a source column.

    `kind` is A, B or C as in docs/reference/types.md, or '-' if the column is refused.
    """

    column: str
    clickhouse: str
    iceberg: str
    kind: str
    note: str


@dataclass(slots=True)
class Check:
    """The result of a check; `server` is None if the source is not a ClickHouse server."""

    columns: list[CheckedColumn] = field(default_factory=list)
    partition_key: str = ""
    spec: str = ""
    sorting_key: str = ""
    sort_order: str = ""
    destination: str = ""
    location: str | None = None
    partitions: tuple[PartitionSummary, ...] = ()
    disks: dict[str, int] = field(default_factory=dict)
    free_at_server: dict[str, int] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    server: ServerReport | None = None


def check_export(
    request: CheckRequest, source: ClickHouseSource, lake: Lake | None, ledger: Ledger | None
) -> Check:
    """Check an export, and collect its mapping, its reasons and its warnings.

    Args:
        request: the export to check.
        source: the source that has the table.
        lake: the catalog of the destination; None without a destination.
        ledger: the ledger of that catalog's exports; None if none is named.

    Raises:
        TableFormatError: the table does not exist, or source, catalog or ledger cannot be read.
    """
    found = Check()
    if isinstance(source, ServerSource):
        found.server = source.report(request.table)
        found.reasons.extend(found.server.reasons)
        found.warnings.extend(found.server.notes)
        if not found.server.is_readable:
            return found
    of_server = len(found.reasons)
    table = source.describe(request.table)
    found.partition_key = table.engine.partition_by or "tuple()"
    found.sorting_key = table.engine.order_by or table.engine.primary_key or "tuple()"
    found.reasons.extend(_unreadable(table))
    request = _as_remembered(request, table, lake, found)
    mapped = _check_columns(request, table, found)
    spec = _check_spec(request, table, mapped, found) if mapped else None
    if mapped:
        prefix = sort_prefix(table, mapped)
        shown = (f"{f.field}{' DESC' if f.descending else ''}" for f in prefix)
        found.sort_order = ", ".join(shown) or "none"
    if mapped and spec and lake and request.to and len(found.reasons) == of_server:
        plan = TablePlan(table, mapped, spec, sort_prefix(table, mapped), strict=request.strict)
        _check_destination(request, plan, lake, ledger, found)
    if found.location is None:
        found.warnings.extend(_hints(table, found.columns))
    _check_source(source, table, found)
    _check_versions(table, found)
    return found


def _unreadable(table: MergeTreeTable) -> list[str]:
    try:
        check_readable(table)
    except RefusedError as error:
        return [*error.reasons]
    return []


def _as_remembered(
    request: CheckRequest, table: MergeTreeTable, lake: Lake | None, found: Check
) -> CheckRequest:
    """Return the request with a conversion for each column, also of an existing destination."""
    to = request.to if lake is not None else None
    try:
        existing = lake.table(to) if lake is not None and to is not None else None
        state = existing.load() if existing is not None else None
        used = remembered_conversions(to, table, request.conversions, state)
    except RefusedError as error:
        if to is not None:
            found.destination = f"{to}: cannot be used"
        found.reasons.extend(error.reasons)
        known = {column.name for column in table.stored_columns}
        of_columns = {
            name: how
            for name, how in request.conversions.items()
            if name in known or type_matcher(name) is None
        }
        return replace(request, conversions=of_columns)
    return replace(request, conversions=used)


def _check_columns(
    request: CheckRequest, table: MergeTreeTable, found: Check
) -> MappedColumns | None:
    """Map each column alone for the list of columns, and all together for the reasons."""
    good = []
    for column in table.stored_columns:
        made = _column(request, table, column)
        found.columns.append(made)
        if made.kind != "-":
            good.append(column)
    try:
        return map_columns(table, request.conversions, strict=request.strict)
    except RefusedError as error:
        found.reasons.extend(error.reasons)
    known = {c.name for c in good}
    conversions = {k: v for k, v in request.conversions.items() if k in known}
    try:
        return map_columns(replace(table, columns=tuple(good)), conversions) if good else None
    except RefusedError:
        # The call above has added conflicts between columns, such as equal names, to the reasons.
        return None


def _hints(table: MergeTreeTable, columns: Sequence[CheckedColumn]) -> Iterator[str]:
    """Yield advice on conversions, which cannot be changed after the lake table is created.

    The advice uses column types only: finding the greatest value of a column would need a scan.
    """
    whole = [one.column for one in columns if one.clickhouse == "UInt64" and one.kind == "A"]
    if whole:
        of_column = convert(option_name(whole[0]), "long")
        options = of_column if len(whole) == 1 else convert("UInt64", "long")
        yield (
            f"{', '.join(whole)}: UInt64 becomes decimal(20, 0), a Decimal in Python. Where no "
            f"value is above 9,223,372,036,854,775,807, {options} makes it a long; every export "
            "checks that, and the choice cannot be changed once the lake table is there"
        )
    nested = [one.name for one in table.stored_columns if "." in one.name]
    if nested:
        yield (
            f"{', '.join(nested)}: a name with a point is quoted in queries, `{nested[0]}` in "
            f'Spark, "{nested[0]}" elsewhere'
        )


def _column(request: CheckRequest, table: MergeTreeTable, column: Column) -> CheckedColumn:
    alone = replace(table, columns=(column,))
    chosen = request.conversions.get(column.name)
    conversions = {column.name: chosen} if chosen is not None else {}
    try:
        (mapped,) = map_columns(alone, conversions, strict=request.strict).columns
    except RefusedError:
        return CheckedColumn(column.name, column.type_text, "-", "-", "refused, see below")
    iceberg = f"{mapped.type}{'' if mapped.required else ', optional'}"
    kind = mapped.faithfulness.value
    note = mapped.doc.removeprefix(column.comment).strip().strip("()")
    if kind == "C":
        note = "; ".join(text for text in (note, "checked on the data") if text)
    return CheckedColumn(column.name, column.type_text, iceberg, kind, note)


def _check_spec(
    request: CheckRequest, table: MergeTreeTable, mapped: MappedColumns, found: Check
) -> DerivedSpec | None:
    try:
        spec = (
            derive_spec(table, mapped)
            if request.partition_spec is None
            else chosen_spec(table, parse_spec(request.partition_spec, mapped))
        )
    except UsageError as error:
        found.reasons.extend(error.reasons)
        found.spec = "none, see below"
        return None
    found.spec = str(spec)
    found.warnings.extend(spec.notes)
    return spec


def _check_destination(
    request: CheckRequest, plan: TablePlan, lake: Lake, ledger: Ledger | None, found: Check
) -> None:
    name = request.to
    if name is None:
        return
    if ledger is None:
        found.warnings.append(_WITHOUT_LEDGER)
    try:
        existing = lake.table(name)
        if existing is None:
            check_new_table(name)
            found.destination = f"{name}: does not exist yet, it will be created"
            return
        state = existing.load()
        found.location = state.location
        found.destination = f"{name}: there, at {state.location}"
        if ledger is not None:
            check_table_of_ledger(state, ledger)
        wanted = schema_change if request.evolve_schema else partial(renewal, is_of_statement=False)
        change = wanted(plan, name, state)
        if change is not None:
            found.warnings.append(change_text(change, name, would=True))
        if change is not None and change.is_of_schema:
            return
        fit(plan, name, existing, state, FileFormat())
    except RefusedError as error:
        found.destination = found.destination or f"{name}: cannot be used"
        found.reasons.extend(error.reasons)


def _check_source(source: ClickHouseSource, table: MergeTreeTable, found: Check) -> None:
    """Add what a snapshot of the source would refuse as reasons, and what it omits as warnings."""
    found.partitions = source.partitions(table.name)
    ids = tuple(p.partition_id for p in found.partitions)
    found.reasons.extend(error.message for error in source.refusals(table.name, ids).values())
    copied = source.copied_to(table.name)
    for part in source.all_parts(table.name):
        disk = copied.get(part.partition_id, part.disk)
        found.disks[disk] = found.disks.get(disk, 0) + part.bytes_on_disk
    found.free_at_server = source.free_bytes()
    if others := source.passed_over(table.name):
        found.warnings.append(f"not read, because it is no part: {', '.join(others)}")
    # The report of a server lists its row policies already.
    policies = source.row_policies(table.name) if found.server is None else None
    if policies:
        found.warnings.append(
            f"row policies are not applied, all rows are exported: {', '.join(policies)}"
        )
    if table.has_ttl_columns or table.engine.ttl:
        found.warnings.append(
            "the table has a TTL: rows that expired and are still in the parts are exported"
        )


def _check_versions(table: MergeTreeTable, found: Check) -> None:
    found.versions["ClickHouse"] = table.server_version
    found.versions |= {name: version(name) for name in _PACKAGES}
    try:
        java = find_java(harmless_environment())
        found.versions["Java"] = f"{java.version}, from {java.origin}"
    except NotFoundError as error:
        found.versions["Java"] = "none, see below"
        found.reasons.append(error.message)


@dataclass(frozen=True, slots=True)
class Space:
    """Needed and free bytes in one place; `free` is None if unlimited or unknown."""

    side: str
    path: str
    needed: int
    free: int | None

    @property
    def enough(self) -> bool:
        """Whether the needed space is free; True if the free space is unknown."""
        return self.free is None or self.needed <= self.free

    def __str__(self) -> str:
        """Return needed and free space in words."""
        free = "free space unknown" if self.free is None else f"{human_bytes(self.free)} free"
        size = human_bytes(self.needed)
        if self.side == "source":
            what = f"up to {size} of old parts and copies are kept while the export runs"
            return f"source disk {self.path}: {what}; {free}"
        return f"{f'destination {self.path}'.rstrip()}: about {size} needed; {free}"


def measured_space(
    source: Mapping[str, int],
    *,
    destination: int | None,
    location: str | None,
    warehouse: Path | None,
    at_server: Mapping[str, int] | None = None,
) -> tuple[Space, ...]:
    """Return needed and free bytes for every disk of the source and for the destination.

    Args:
        source: needed bytes by the root directory of a disk.
        destination: expected bytes of the data files; None without a destination.
        location: location of the lake table; None if the table does not exist yet.
        warehouse: the local warehouse; None for every other catalog.
        at_server: free bytes by disk, as the source's server reports them; None if the disks are
            on this machine.

    Raises:
        DestinationError: the free space of a place cannot be read.
    """
    # Frozen parts are on no disk of a ClickHouse server, and an export keeps no old copies of them.
    disks = [(disk, size) for disk, size in sorted(source.items()) if disk]
    spaces = [
        Space("source", disk, size, _free(disk) if at_server is None else at_server.get(disk))
        for disk, size in disks
    ]
    if destination is None:
        return tuple(spaces)
    at = location or (str(warehouse) if warehouse is not None else "")
    return (*spaces, Space("destination", at, destination, _free(at)))


def lacking(table: TableName, spaces: tuple[Space, ...]) -> tuple[str, ...]:
    """Return the reasons to refuse an export because its destination lacks space.

    Lack of space at the source is no reason: the need there depends on the merges that ClickHouse
    makes while the export runs.
    """
    return tuple(
        f"Cannot export {table}: not enough space: {s}. Free some, or export fewer partitions."
        for s in spaces
        if s.side == "destination" and not s.enough
    )


def checked_spaces(
    request: CheckRequest, found: Check, warehouse: Path | None
) -> tuple[Space, ...]:
    """Measure the space at source and destination, and add reasons where it is not enough.

    Args:
        request: the export that was checked.
        found: the result of the check, which gets the reasons.
        warehouse: the local warehouse; None for every other catalog.

    Raises:
        DestinationError: the free space of a place cannot be read.
    """
    spaces = measured_space(
        found.disks,
        destination=sum(found.disks.values()) if request.to else None,
        location=found.location,
        warehouse=warehouse,
        at_server=found.free_at_server,
    )
    found.reasons.extend(lacking(request.table, spaces))
    return spaces


def _free(location: str) -> int | None:
    # An object store has no limit.
    if not location or not is_local(location):
        return None
    return open_storage(location).free_bytes(location)
