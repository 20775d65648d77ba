"""The procedures `partitions`, `parts`, `create_table_like`, `verify_partition` and `gc`.

| procedure | does |
|---|---|
| `partitions`, `parts` | list the partitions and parts of a table; they only read |
| `create_table_like` | creates the lake table of a ClickHouse table, without rows |
| `verify_partition` | compares an exported partition with its source |
| `gc` | removes the garbage that abandoned exports left |

The page for users is docs/reference/procedures.md.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from catalog.ledgers.memory import milliseconds
from catalog.shards import LocalTable
from catalog.sources import open_source
from spark_ext.actions.export import each_table
from spark_ext.actions.export_ports import DigestSessions, Places, RunningSpark, open_ports
from spark_ext.actions.exports import partitions_of, parts_of
from spark_ext.actions.gc import sweep, sweep_sources
from spark_ext.actions.logs import log_note
from spark_ext.actions.verify import DigestsInTasks, Verifying, VerifyRequest
from spark_ext.procedures.declarations import Call, Column, Parameter, Procedure, Rows, Value
from spark_ext.procedures.export import (
    ALL_PARTITIONS,
    CLUSTER,
    CONVERT,
    DESTINATION,
    LAKE_TABLE,
    PARTITION,
    PARTITION_ID,
    PARTITION_SPEC,
    SAME_AS,
    SHARD,
    SOURCE,
    STRICT,
    selection,
)
from spark_ext.procedures.names import CallNames
from spark_ext.sql.catalogs import refresh, session_ledger
from spark_ext.sql.export import joined
from tableformat.errors import DestinationError, RefusedError, TableFormatError, UsageError
from tableformat.export.job import ExportRequest, create_table
from tableformat.export.ports import Silent
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.export.verification import Comparison, Verdict
from tableformat.iceberg.manifest_scan import LiveFile, live_files
from tableformat.iceberg.sort_order import SortedField
from tableformat.iceberg.spec_fields import render_spec
from tableformat.names import HiveName, LakeName, PartitionId
from tableformat.quantities import parse_duration

__all__ = ["CREATE_TABLE_LIKE", "GC", "PARTITIONS", "PARTS", "VERIFY_PARTITION"]


def _partitions(call: Call) -> Rows:
    names = CallNames.of(call)
    named = names.table("table")
    if isinstance(named, LakeName):
        return _in_lake(names, named)
    found: list[tuple[Value, ...]] = []

    def list_one(one: LocalTable) -> int:
        with contextlib.closing(open_source(one.place)) as source:
            found.extend(
                (
                    p.partition_id.value, p.partition, p.parts, None, p.rows, p.bytes_on_disk,
                    p.min_time or None, p.max_time or None, one.shard,
                )
                for p in partitions_of(source, one.table)
            )  # fmt: skip
        return 0

    each_table(named.tables(cluster=call.text_or_none("cluster")), list_one, log_note)
    return tuple(found)


def _in_lake(names: CallNames, name: LakeName) -> Rows:
    table = names.existing("table", name, f"list the partitions of {name}")
    held: defaultdict[str, list[LiveFile]] = defaultdict(list)
    for file in live_files(table.loaded):
        held[file.partition].append(file)
    return tuple(
        (
            None, partition, None, len(files), sum(f.rows for f in files),
            sum(f.bytes for f in files), None, None, None,
        )
        for partition, files in sorted(held.items())
    )  # fmt: skip


def _parts(call: Call) -> Rows:
    named = CallNames.of(call).source("table")
    text = call.text_or_none("partition_id")
    partition_id = PartitionId(text) if text is not None else None
    found: list[tuple[Value, ...]] = []

    def list_one(one: LocalTable) -> int:
        with contextlib.closing(open_source(one.place)) as source:
            found.extend(
                (
                    p.name, p.partition_id.value, p.part_type, p.rows, p.bytes_on_disk, p.disk,
                    p.hash_of_all_files, one.shard,
                )
                for p in parts_of(source, one.table, partition_id)
            )  # fmt: skip
        return 0

    each_table(named.tables(cluster=call.text_or_none("cluster")), list_one, log_note)
    return tuple(found)


PARTITIONS: Final = Procedure(
    name="partitions",
    description="Lists the partitions of a ClickHouse table that an export can name, or those that "
    "a lake table has in main.",
    parameters=(
        Parameter("table", "STRING", "source.database.table, or [catalog.]namespace.table"),
        CLUSTER,
    ),
    columns=(
        Column("partition_id", "STRING", "ClickHouse: the id, as in system.parts"),
        Column("partition", "STRING", "ClickHouse: the value of the key; lake: month=2024-01"),
        Column("parts", "BIGINT", "ClickHouse: active parts"),
        Column("files", "BIGINT", "lake: data files"),
        Column("rows", "BIGINT", "rows of parts or data files, including lightweight-deleted rows"),
        Column("bytes", "BIGINT", "compressed bytes of parts or data files"),
        Column("min_time", "STRING", "ClickHouse: the least time, if the key has a time"),
        Column("max_time", "STRING", "ClickHouse: the greatest time, if the key has a time"),
        SHARD,
    ),
    run=_partitions,
)
PARTS: Final = Procedure(
    name="parts",
    description="Lists the active parts of a ClickHouse table.",
    parameters=(
        Parameter("table", "STRING", "the ClickHouse table: source.database.table"),
        Parameter("partition_id", "STRING", "only of this partition; NULL for all", "NULL"),
        CLUSTER,
    ),
    columns=(
        Column("name", "STRING", "the part"),
        Column("partition_id", "STRING", "its partition"),
        Column("part_type", "STRING", "Wide or Compact"),
        Column("rows", "BIGINT", "its rows, including lightweight-deleted rows"),
        Column("bytes_on_disk", "BIGINT", "its compressed bytes"),
        Column("disk", "STRING", "the disk that it is on"),
        Column("hash_of_all_files", "STRING", "the hash of its files, as in system.parts"),
        SHARD,
    ),
    run=_parts,
)


@dataclass(slots=True)
class _Noting(Silent):
    """An observer that keeps the notices of the plan."""

    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a notice."""
        self.notes.append(text)


def _create(call: Call) -> Rows:
    names = CallNames.of(call)
    named, to = names.source("source"), names.lake("table")
    dry_run, noting = call.flag("dry_run"), _Noting()
    lake = names.open(to)
    # The tables of all shards have the same structure.
    like = named.tables()[0]
    places = Places(like.place, lake, session_ledger(names.names.settings, lake))
    request = ExportRequest(
        like.table,
        to,
        AllPartitions(),
        ExportOptions(),
        call.pairs("convert"),
        strict=call.flag("strict"),
        partition_spec=call.text_or_none("partition_spec"),
    )
    ports = open_ports(places, RunningSpark(call.spark), noting)
    with contextlib.closing(ports.ledger), contextlib.closing(ports.source):
        made = create_table(request, ports, dry_run=dry_run)
    refresh(call.spark, to)
    status = "exists" if not made.is_new else "create" if dry_run else "created"
    return (
        (
            str(to),
            status,
            len(made.plan.columns.columns),
            render_spec(made.plan.spec.fields),
            ", ".join(map(_shown, made.plan.order)) or None,
            " ".join(noting.notes) or None,
        ),
    )


def _shown(one: SortedField) -> str:
    nulls = "FIRST" if one.nulls_first else "LAST"
    return f"{one.field} {'DESC' if one.descending else 'ASC'} NULLS {nulls}"


CREATE_TABLE_LIKE: Final = Procedure(
    name="create_table_like",
    description="Creates the lake table for a ClickHouse table, without rows, as an export would. "
    "An existing table that fits stays as it is.",
    parameters=(
        LAKE_TABLE,
        SOURCE,
        CONVERT,
        replace(PARTITION_SPEC, comment="for example month(ts); NULL to derive it"),
        STRICT,
        Parameter("dry_run", "BOOLEAN", "only report what would be created", "false"),
    ),
    columns=(
        Column("destination_table", "STRING", "the lake table"),
        Column("status", "STRING", "created, create (it would be), or exists"),
        Column("columns", "INT", "its columns"),
        Column("partition_spec", "STRING", "the partition spec; unpartitioned if there is none"),
        Column("sort_order", "STRING", "the sort order of files; NULL if there is none"),
        Column("message", "STRING", "notes about the mapping"),
    ),
    run=_create,
)


def _verify(call: Call) -> Rows:
    names = CallNames.of(call)
    named, to = names.source("source"), names.destination("table")
    wanted = selection(call, with_where=False)
    same_as = call.text_or_none("same_as") or ""
    request = VerifyRequest(named.table, to, wanted, call.pairs("convert"), same_as)
    lake = names.existing_destination("table", to, f"verify {named.table} in {to}")
    sessions = DigestSessions(RunningSpark(call.spark), log_note)
    found: list[tuple[Comparison, int | None]] = []
    errors: list[TableFormatError] = []
    with contextlib.closing(names.open_ledger(to)) as ledger:
        tables = named.tables(cluster=call.text_or_none("cluster"))

        def verify_one(one: LocalTable) -> int:
            wanted = request.of_table(one.table, len(tables))
            with (
                open_source(one.place) as source,
                DigestsInTasks(lake.storages, sessions) as digests,
            ):
                compared = Verifying(wanted, source, lake, ledger, digests).run()
                found.extend((comparison, one.shard) for comparison in compared)
            return 0

        try:
            each_table(tables, verify_one, log_note, doing="verify")
        except TableFormatError as error:
            errors.append(error)
    _check_equal(request, found, errors)
    return tuple(
        (
            one.partition_id, one.verdict.value, one.compared_with or None, one.rows, one.columns,
            one.data_files, one.rows_per_second, one.message or None, shard,
        )
        for one, shard in found
    )  # fmt: skip


def _check_equal(
    request: VerifyRequest,
    found: list[tuple[Comparison, int | None]],
    errors: list[TableFormatError],
) -> None:
    """Check that all compared partitions are equal, so that a script stops if one is not.

    Raises:
        DestinationError: a partition differs, with all differences; or the lake cannot be read.
        RefusedError: a partition cannot be compared.
        TableFormatError: one of `errors`, joined after the differences.
    """
    # Among all partitions, some may not be exported yet.
    everything = request.selection == AllPartitions()
    verdicts = {one.verdict for one, _ in found}
    is_any = verdicts != {Verdict.NOT_EXPORTED}
    good = (Verdict.EQUAL, Verdict.NOT_EXPORTED) if everything and is_any else (Verdict.EQUAL,)
    unequal = [(one, shard) for one, shard in found if one.verdict not in good]
    wrong = [_unequal(request, unequal), *errors] if unequal else errors
    if wrong:
        raise joined(wrong, "")


def _unequal(
    request: VerifyRequest, wrong: list[tuple[Comparison, int | None]]
) -> TableFormatError:
    """Return the error for unequal partitions; differences count more than other verdicts."""
    differs = [one for one in wrong if one[0].verdict is Verdict.DIFFERS]
    worst = (differs or wrong)[0][0]
    what = f"find {request.table} equal in" if differs else f"compare {request.table} with"
    reasons = " ".join(_reason(one, shard) for one, shard in differs or wrong)
    is_outside = worst.verdict in (Verdict.DIFFERS, Verdict.FAILED)
    kind = DestinationError if is_outside else RefusedError
    message = f"Cannot {what} {request.to}: {reasons}"
    return kind(message, code=worst.code)


def _reason(one: Comparison, shard: int | None) -> str:
    at = "" if shard is None else f" of shard {shard}"
    reasons = [one.message.rstrip(".")] if one.message else []
    reasons += [str(difference) for difference in one.differences]
    return f"partition {one.partition_id}{at}: {one.verdict.value}: {'; '.join(reasons)}."


VERIFY_PARTITION: Final = Procedure(
    name="verify_partition",
    description="Compares exported partitions with their source: rows, and of each column NULLs, "
    "least, greatest and a checksum. It fails if they are not equal.",
    parameters=(
        DESTINATION,
        SOURCE,
        PARTITION_ID,
        replace(CONVERT, comment="conversions that the lake table has no record of"),
        CLUSTER,
        PARTITION,
        ALL_PARTITIONS,
        SAME_AS,
    ),
    columns=(
        Column("partition_id", "STRING", "the partition"),
        Column("status", "STRING", "equal; of all partitions also not_exported"),
        Column("compared_with", "STRING", "source, or the digest that the export kept"),
        Column("rows", "BIGINT", "rows that were compared"),
        Column("columns", "BIGINT", "columns that were compared"),
        Column("data_files", "BIGINT", "files that were read"),
        Column("rows_per_second", "BIGINT", "how fast the lake was read"),
        Column("message", "STRING", "changes of the source since then"),
        SHARD,
    ),
    run=_verify,
)


def _gc(call: Call) -> Rows:
    names = CallNames.of(call)
    if call.text_or_none("table") is None and call.text_or_none("source") is None:
        message = "Cannot clean up: name the lake table by `table`, or a `source`, or both."
        raise UsageError(message)
    age, removes = _age(call), not call.flag("dry_run")
    dropped = _duration(call, "expire_dropped")
    cluster = call.text_or_none("cluster")
    if cluster is not None and call.text_or_none("source") is None:
        message = (
            f"Cannot look on the hosts of {cluster}: no source is named that has it. Name one by "
            "`source`."
        )
        raise UsageError(message)
    places = names.hosts("source", cluster=cluster)
    if call.text_or_none("table") is None:
        _refuse_expiring("a source", dropped)
        with contextlib.closing(names.open_ledger()) as ledger:
            swept = sweep_sources(ledger, places, older_than=age, removes=removes)
    else:
        name = names.destination("table")
        if isinstance(name, HiveName):
            _refuse_expiring(str(name), dropped)
        kept = _duration(call, "keep_replaced")
        lake = names.existing_destination("table", name, f"clean up {name}", grace=kept)
        with contextlib.closing(names.open_ledger(name)) as ledger:
            swept = sweep(lake, ledger, places, older_than=age, removes=removes, dropped=dropped)
    swept.check_every_host()
    action = "removed" if removes else "remove"
    return tuple(
        (
            action if one.may_go else "keep",
            one.kind.value,
            one.partition_id or None,
            one.bytes,
            one.location,
            one.why,
        )
        for one in swept.garbage
    )


def _duration(call: Call, name: str) -> int | None:
    """Return an argument that is a duration, in milliseconds; None if it is NULL.

    Raises:
        UsageError: the text is not a duration.
    """
    text = call.text_or_none(name)
    return None if text is None else parse_duration(f"`{name}`", text)


def _refuse_expiring(what: str, dropped: int | None) -> None:
    """Refuse `expire_dropped` where there are no Iceberg snapshots.

    Raises:
        UsageError: `expire_dropped` is given.
    """
    if dropped is not None:
        message = (
            f"Cannot expire snapshots of {what}: only Iceberg tables have any. Name one by "
            "`table`, or leave `expire_dropped` out."
        )
        raise UsageError(message)


def _age(call: Call) -> int:
    """Return the minimum age of garbage in milliseconds, from `older_than`; 0 if it is NULL.

    Raises:
        UsageError: the time is not in the past.
    """
    text = call.text_or_none("older_than")
    if text is None:
        return 0
    age = milliseconds() - int(datetime.fromisoformat(text).timestamp() * 1000)
    if age <= 0:
        message = (
            f"Cannot clean up what is older than {text}: that time is not over. Give `older_than` "
            "one in the past, or leave it out."
        )
        raise UsageError(message)
    return age


GC: Final = Procedure(
    name="gc",
    description="Lists what abandoned exports left in a lake table and in a source, with the "
    "proof for each, and removes it with dry_run => false.",
    parameters=(
        Parameter(
            "table",
            "STRING",
            "the lake table: [catalog.]namespace.table, or hive.`uri`; NULL to examine only "
            "`source`",
            "NULL",
        ),
        Parameter(
            "source",
            "STRING",
            "also find staging tables there: a source, or a table of it",
            "NULL",
        ),
        Parameter("cluster", "STRING", "on every host of this cluster of the source", "NULL"),
        Parameter("older_than", "TIMESTAMP", "only garbage from before this time", "NULL"),
        Parameter("dry_run", "BOOLEAN", "only list it", "true"),
        Parameter(
            "expire_dropped",
            "STRING",
            "also expire the snapshots before DROP PARTITION of this age, e.g. 10m, and remove the "
            "files that only they had",
            "NULL",
        ),
        Parameter(
            "keep_replaced",
            "STRING",
            "of hive.`uri`: how long replaced files stay for readers that began before, e.g. 2h; "
            "NULL for 1d",
            "NULL",
        ),
    ),
    columns=(
        Column("action", "STRING", "remove (it would be), removed, or keep"),
        Column("kind", "STRING", "data file, receipt, manifest, staging table, ..."),
        Column("partition_id", "STRING", "the partition of the export"),
        Column("bytes", "BIGINT", "its size in bytes"),
        Column("location", "STRING", "where it is"),
        Column("why", "STRING", "why it may be removed, or is kept"),
    ),
    run=_gc,
)
