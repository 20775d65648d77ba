"""FETCH PARTITION and PART on a lake table, and ATTACH and REPLACE from a temporary view.

FETCH … FROM '…' accepts:
- the name of another lake table;
- the address of Parquet files: a path, or a location in a storage;
- the address of frozen parts (`parts:DIR?ddl=FILE`);
- a path in ZooKeeper under which a table of the session's sources is replicated.

FETCH from a ClickHouse table exports to the branch `detached`. Its parts are frozen and checked
as in an export, from part folders or from a server. The code of export tasks writes the files,
but no Spark is started for it.

ATTACH and REPLACE PARTITION … FROM read a temporary view of the caller's Spark session.
The order of checks: names, structure, partition. Only then the view is evaluated, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from catalog.clickhouse.frozen.definition import is_parts, parse_parts
from catalog.clickhouse.frozen.source import FrozenPartsSource
from catalog.clickhouse.rows.partitions import RowPartitions
from catalog.clickhouse.server.settings import ServerSettings
from catalog.clickhouse.source import ClickHouseSource
from catalog.processes import ScratchDirectory, new_job
from catalog.rewriting.foreign_files import ForeignFile, ForeignFiles, ParquetDirectory, ViewRows
from catalog.rewriting.new_files import list_files
from catalog.sources import SourcePlace, open_source, replica_at, server_of, tables_under
from catalog.storages.schemes import Storages
from spark_ext.engine.slice_process import written_slices
from spark_ext.engine.tasks import installed_versions
from spark_ext.operations.copy_from import copying, fetched_from
from spark_ext.operations.spark_views import View
from spark_ext.operations.tables import OtherTables, RememberingTable
from tableformat.clickhouse_codes import BAD_ARGUMENTS, KEEPER_EXCEPTION, NO_REPLICA_HAS_PART
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import Action, NotFoundError, RefusedError, SourceError, UsageError, during
from tableformat.export.destination import Destination, fit, plan_slices
from tableformat.export.plan import TablePlan, plan_table, remembered_conversions
from tableformat.export.slices import FileFormat
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema_evolution import divided_by
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.spec_fields import UNPARTITIONED
from tableformat.ledger import Key, Row, StatementKind
from tableformat.mergetree.compatibility import differences
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import (
    PartitionId,
    TableName,
    quote_identifier,
    quote_string,
    secret_in,
    shown_location,
    split_identifiers,
)
from tableformat.operations.copy_from import CopyFromView, Fetch, OtherKey, files_in
from tableformat.operations.run import Running
from tableformat.operations.statement import AllPartitions, FileCopier, OnePart, OnePartition
from tableformat.receipt import Receipt
from tableformat.source import FrozenPartition, SourceSnapshot

_OUTSIDE: Final = StatementKind.FETCH_FROM_OUTSIDE

__all__ = ["PartsOrigin", "copying_from_view", "fetching", "fetching_parts", "key_of_unowned"]


@dataclass(frozen=True, slots=True)
class PartsOrigin:
    """A ClickHouse table for FETCH: the quoted path, its source, and its server if it has one."""

    quoted: str
    source: ClickHouseSource
    table: TableName
    server: ServerSettings | None = None


@dataclass(frozen=True, slots=True)
class _WrittenParts:
    """Writes lake files from frozen parts; a `tableformat.operations.statement.Copies`."""

    to: Destination
    snapshot: SourceSnapshot
    frozen: FrozenPartition
    storages: Storages
    server: ServerSettings | None

    @during(Action.FETCH)
    def __call__(self, row: Row, _files: tuple[BranchFile, ...]) -> tuple[Receipt, ...]:
        """Write the files of the parts for the claim of a row; return their receipts.

        Raises:
            TableFormatError: a part cannot be read, the lake table cannot hold a value, or a
                storage failed.
        """
        ranges = self.snapshot.layout.ranges
        slices = plan_slices(self.to, self.frozen, row.key.hash, row.claim, ranges=ranges)
        plan = self.to.write_plan(self.snapshot, new_job(), installed_versions(), Action.FETCH)
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


@during(Action.FETCH)
def fetching_parts(
    what: str,
    origin: PartsOrigin,
    which: OnePartition | OnePart,
    running: Running,
    to: RememberingTable,
    key_of: Callable[[str], Key],
    stack: ExitStack,
) -> tuple[Running, Fetch]:
    """Prepare FETCH from a ClickHouse table: snapshot its parts and check them.

    Args:
        what: the beginning of error messages, "Cannot run ...".
        origin: the ClickHouse table.
        which: the partition or part to fetch.
        running: runs statements on the lake table.
        to: the lake table.
        key_of: returns the ledger key for rows of a table with this identity.
        stack: releases the snapshot at its end.

    Returns:
        The statement, and `running` with a function that writes its files.

    Raises:
        NotFoundError: there is no such table, or no such part (code 234).
        RefusedError: rows of this table cannot come to the lake table, or a check of its parts
            failed.
        TableFormatError: the parts cannot be read.
    """
    state, source, one = to.found.load(), origin.source, which.partition_id
    table = source.describe(origin.table)
    if found := differences(table, to.source.table):
        reasons = "; ".join(one.text for one in found)
        raise RefusedError(f"{what}: {reasons}.", code=found[0].code)
    destination = fit(_plan(table, to, state), to.name, to.found, state, FileFormat())
    schema_id = state.layout.schema_id
    if one not in (p.partition_id for p in source.partitions(table.name)):
        return running, Fetch(which, origin.quoted, _OUTSIDE, (), schema_id)
    snapshot = source.snapshot(table, (one,), job=new_job(), probes=destination.plan.probes)
    stack.callback(source.release, snapshot)
    for _, error in snapshot.refused:
        raise error
    (frozen,) = snapshot.partitions
    if isinstance(which, OnePart):
        frozen = _with_one_part(what, which, frozen)
    files = tuple(
        BranchFile(p.part.path, p.visible_rows, p.part.bytes_on_disk, state.layout.spec_id)
        for p in frozen.parts
        if p.visible_rows
    )
    keys = (OtherKey(key_of(table.key_source), files),) if files else ()
    copy = _WrittenParts(destination, snapshot, frozen, to.found.storages, origin.server)
    ready = replace(running, ports=replace(running.ports, writer=FileCopier(copy)))
    return ready, Fetch(which, origin.quoted, _OUTSIDE, keys, schema_id)


def _plan(table: MergeTreeTable, to: RememberingTable, state: LakeTableState) -> TablePlan:
    """Return the plan of an export into the lake table, with the table's own partition spec."""
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
    """Return a field of a partition spec in the notation of --partition-spec."""
    kind, _, argument = transform.rstrip("]").partition("[")
    name = quote_identifier(column)
    if kind == "identity":
        return name
    return f"{kind}({argument}, {name})" if argument else f"{kind}({name})"


def _with_one_part(what: str, which: OnePart, frozen: FrozenPartition) -> FrozenPartition:
    """Return a frozen partition with only one of its parts.

    Raises:
        NotFoundError: it has no part of that name (code 234).
    """
    parts = tuple(p for p in frozen.parts if p.source_name == str(which.part))
    if not parts:
        there = ", ".join(p.source_name for p in frozen.parts[:5])
        message = f"{what}: there is no part of that name; here are {there}."
        raise NotFoundError(message, code=NO_REPLICA_HAS_PART)
    return replace(frozen, parts=parts, digest=None)


_A_NAME: Final = re.compile(r"[^/:]+\.[^/:]+")
_A_LOCATION: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_SHOWN: Final = 5


def fetching(
    path: str,
    which: OnePartition | OnePart,
    running: Running,
    to: RememberingTable,
    others: OtherTables,
    stack: ExitStack,
) -> tuple[Running, Fetch]:
    """Prepare FETCH of a partition or part: open its origin and check it.

    Args:
        path: the quoted text after FROM.
        which: the partition or part to fetch.
        running: runs statements on the lake table.
        to: the lake table.
        others: resolves names of lake tables, and has the session's sources.
        stack: closes the origin at its end.

    Returns:
        The statement, and `running` with a function that copies or writes its files.

    Raises:
        UsageError: the path is neither the name of a lake table nor a location, or has a secret.
        NotFoundError: there is no such table (code 60), location (257) or part (234).
        RefusedError: the rows of the origin cannot be rows of the table.
        TableFormatError: a catalog, a storage or the ledger failed.
    """
    what = f"Cannot run FETCH {which} FROM {quote_string(shown_location(path))} on {to.name}"
    if secret := secret_in(path):
        message = (
            f"{what}: the location has {secret}, which messages, the ledger and lists of "
            "processes would show. Leave it out, and give the keys of the store in the "
            "configuration of the catalog."
        )
        raise UsageError(message, code=BAD_ARGUMENTS)
    key_of = partial(key_of_unowned, what, which.partition_id, running, to)
    if _A_NAME.fullmatch(path):
        other, copy = fetched_from(what, split_identifiers(path), which, to, others)
        fetch = Fetch(which, str(other.name), StatementKind.FETCH, other.keys)
        return copying(running, copy), fetch
    if is_parts(path):
        parts = stack.enter_context(FrozenPartsSource(parse_parts(path)))
        named = parts.named(to.source.table.name)
        origin = PartsOrigin(quote_string(path), parts, named)
        return fetching_parts(what, origin, which, running, to, key_of, stack)
    if path.startswith("/") and not Path(path).exists():
        origin = _replicated(what, path, others, stack)
        return fetching_parts(what, origin, which, running, to, key_of, stack)
    if _A_LOCATION.match(path):
        return _from_files(what, path, which, running, to)
    message = (
        f"{what}: it is neither the name of a lake table ('lake.ns.t') nor the address of Parquet "
        "files ('/directory', 'file:///directory', 's3://bucket/directory') or of frozen parts "
        "('parts:/directory?ddl=/file.sql')."
    )
    raise UsageError(message, code=BAD_ARGUMENTS)


def _from_files(
    what: str,
    path: str,
    which: OnePartition | OnePart,
    running: Running,
    to: RememberingTable,
) -> tuple[Running, Fetch]:
    state, storages = to.found.load(), to.found.storages
    with RowPartitions(to.source, storages) as rows:
        files = ParquetDirectory(what, path, storages, state, rows).files(which.partition_id)
    wanted = _part(what, which, files) if isinstance(which, OnePart) else files
    keys: tuple[OtherKey, ...] = ()
    if wanted:
        key = key_of_unowned(what, which.partition_id, running, to)
        keys = (OtherKey(key, tuple(one.file for one in wanted)),)
    seen = {one.file.path: one for one in wanted}
    copy = ForeignFiles(seen, state, storages)
    ready = replace(running, ports=replace(running.ports, writer=FileCopier(copy)))
    schema_id = state.layout.schema_id
    return ready, Fetch(which, quote_string(path), _OUTSIDE, keys, schema_id)


def _replicated(what: str, path: str, others: OtherTables, stack: ExitStack) -> PartsOrigin:
    """Find the table of the session's sources that is replicated under a path in ZooKeeper.

    Raises:
        NotFoundError: no source has such a table (code 999, as in ClickHouse).
        RefusedError: several sources have one, and they are not replicas of one table: the same
            path in another ZooKeeper can belong to another table.
        SourceError: a source cannot be read.
    """
    found = [
        (name, place, table)
        for name, place in sorted(others.sources.items())
        for table in tables_under(place, path)
    ]
    if not found:
        sources = ", ".join(sorted(others.sources)) or "none"
        message = (
            f"{what}: there is no such directory on this host, and no source of the session "
            f"({sources}) has a table that is replicated under this path in ZooKeeper. Name the "
            "server of one as a source, or its part folders: 'parts:/directory?ddl=/file.sql'."
        )
        raise NotFoundError(message, code=KEEPER_EXCEPTION)
    best = _best(found, path)
    if best is None:
        several = ", ".join(f"{name}.{table}" for name, _, table in found)
        message = (
            f"{what}: {several} are replicated under this path, which may be of different "
            "ZooKeepers. Run it in a session with one of these sources."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
    _, place, table = best
    source = stack.enter_context(open_source(place, is_exporting=True))
    return PartsOrigin(quote_string(path), source, table, server_of(place))


def _best(
    found: list[tuple[str, SourcePlace, TableName]], path: str
) -> tuple[str, SourcePlace, TableName] | None:
    """Return the replica with the least lag; None if the tables are not replicas of one table.

    They are replicas of one table if their Keepers have the same node under the path. A replica
    that is read-only or has lost its Keeper is not chosen, because it may lack parts.

    Raises:
        SourceError: a source cannot be read.
    """
    if len(found) == 1:
        return found[0]
    replicas = [replica_at(place, table, path) for _, place, table in found]
    nodes = {one.node for one in replicas}
    if None in nodes or len(nodes) > 1:
        return None
    ranked = [
        (one.lag.rank, number)
        for number, one in enumerate(replicas)
        if one.lag is not None and not one.lag.read_only
    ]
    return found[min(ranked)[1]] if ranked else None


def _part(what: str, which: OnePart, files: tuple[ForeignFile, ...]) -> tuple[ForeignFile, ...]:
    """Return the file of a part, by file name or by the part name that a lake file would have.

    Raises:
        NotFoundError: no file has that name (code 234).
        RefusedError: several files in different directories have it.
    """
    names = {one.file.path: _name_of(which.partition_id, one) for one in files}
    found = tuple(f for f in files if str(which.part) in (f.stem, names[f.file.path]))
    if len(found) > 1:
        several = " and ".join(sorted(one.file.path for one in found)[:2])
        message = f"{what}: {several} are both named so. Name the directory of one of them."
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if found:
        return found
    there = ", ".join(sorted(names.values())[:_SHOWN])
    more = " …" if len(names) > _SHOWN else ""
    message = (
        f"{what}: there is no part of that name. A file is named as a part by its name without "
        f"{'.parquet'!r}, where that is one"
        + (f"; here are {there}{more}." if names else f"; of {which.partition_id} there is none.")
    )
    raise NotFoundError(message, code=NO_REPLICA_HAS_PART)


def _name_of(partition_id: PartitionId, one: ForeignFile) -> str:
    return str(lake_part_name(partition_id, one.file.path))


def key_of_unowned(
    what: str,
    partition_id: PartitionId,
    running: Running,
    to: RememberingTable,
    identity: str = "",
) -> Key:
    """Return the ledger key for rows from a place that no ledger records.

    It is the key of the partition's exports, so that a later export replaces these rows instead of
    adding the same rows a second time. A restored table has another identity, so the identity alone
    does not show that the rows are the same.

    Args:
        what: the beginning of error messages, "Cannot run ...".
        partition_id: the partition of the rows.
        running: runs statements on the lake table.
        to: the lake table.
        identity: the identity of the rows' ClickHouse table, '' if it is unknown.

    Raises:
        RefusedError: the partition was exported from several sources, or has rows of a table with
            another partition key.
    """
    state = to.found.load()
    rows = running.partitions.rows_of(state, partition_id)
    keys = [row.key for row in rows if row.key.is_of_export]
    if own := next((key for key in keys if key.source == identity), None):
        return own
    if odd := next((row for row in rows if not running.partitions.membership.is_own(row)), None):
        message = (
            f"{what}: the partition has rows of {odd.source_table}, which has another partition "
            "key, and it is unknown to which table these rows belong. Export it again, or append "
            "the rows with another engine."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if len(keys) > 1:
        message = (
            f"{what}: the partition was exported from {len(keys)} sources (shards), and it is "
            "unknown to which of them these rows belong. Export it again, or append the rows with "
            "another engine."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if keys:
        return keys[0]
    return Key(to.source.table.key_source, str(partition_id), state.layout.table_uuid)


def copying_from_view(
    what: str,
    view: tuple[str, View],
    named: Callable[[RememberedSource], OnePartition | AllPartitions],
    running: Running,
    to: RememberingTable,
    stack: ExitStack,
    *,
    replaces: bool,
    allow_empty: bool,
) -> tuple[Running, CopyFromView]:
    """Prepare ATTACH or REPLACE of a partition from a temporary view: check and evaluate it.

    Args:
        what: the beginning of error messages, "Cannot run ...".
        view: the name after FROM, and the view.
        named: returns the partition of the statement, by a table's partition key.
        running: runs statements on the lake table.
        to: the lake table.
        stack: removes the evaluated rows at its end.
        replaces: whether the rows replace those of the partition (REPLACE).
        allow_empty: whether a view without rows may replace the partition.

    Returns:
        The statement, and `running` with a function that copies its files.

    Raises:
        RefusedError: the columns differ (code 122), all partitions are named (code 36), or rows
            of the view do not fit the table.
        UsageError: the value is not one of the partition key.
        SourceError: the view cannot be evaluated.
        DestinationError: a storage failed.
        LedgerError: the ledger cannot be read.
    """
    name, means = view
    state, storages = to.found.load(), to.found.storages
    with RowPartitions(to.source, storages) as rows:
        looks = ViewRows(what, storages, state, rows)
        looks.refuse_unlike(means.schema)
        which = named(to.source)
        if isinstance(which, AllPartitions):
            message = (
                f"{what}: {name} is a temporary view, which has no partitions of its own. "
                "Name one partition after the other."
            )
            raise RefusedError(message, code=BAD_ARGUMENTS)
        key = key_of_unowned(what, which.partition_id, running, to)
        before = files_in(running.partitions.files(state, which.partition_id))
        into = stack.enter_context(ScratchDirectory("fetch")).path
        with means.written(state.location, storages) as files:
            wanted = looks.of_partition(files, which.partition_id, into)
    keys = (OtherKey(key, tuple(one.file for one in wanted)),) if wanted else ()
    copy = ForeignFiles({one.file.path: one for one in wanted}, state, storages)
    ready = replace(running, ports=replace(running.ports, writer=FileCopier(copy)))
    schema_id = state.layout.schema_id
    return ready, CopyFromView(which, name, replaces, allow_empty, keys, schema_id, before)
