"""The procedures `export_partition` and `export_partitions`, and the parameters that others share.

`export_partitions` exports all partitions, or those that a filter keeps.
The parameters and the `shard` column are declared once, so every procedure describes them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_ext.procedures.declared import Call, Column, Parameter, Procedure, Rows, Value
from spark_ext.procedures.names import CallNames
from spark_ext.sql.asked import SessionExport
from spark_ext.sql.export import begin_in_session, export_in_session, rehearse_in_session
from spark_ext.sql.statement_settings import limits_of_session
from spark_ext.sql.wording import in_call
from tableformat.errors import UsageError
from tableformat.export.cleanup import ABANDONED_TTL
from tableformat.export.decision import Wish, check_wish
from tableformat.export.job import MOST_PARTITIONS, ExportRequest
from tableformat.export.outcome import Outcome
from tableformat.export.request import AllPartitions, ByExpression, ById, Limits, Selection
from tableformat.export.slices import FileFormat
from tableformat.export.writers import MAX_RETRIES
from tableformat.ledger import MANIFEST_TTL
from tableformat.mergetree.partition_literal import date_in_quotes
from tableformat.mergetree.summary_filter import parse_filter
from tableformat.names import PartitionId

__all__ = [
    "ALL_PARTITIONS",
    "CLUSTER",
    "CONVERT",
    "DESTINATION",
    "EVOLVE_SCHEMA",
    "EXPORTED",
    "EXPORT_PARTITION",
    "EXPORT_PARTITIONS",
    "HIVE_COLUMNS",
    "LAKE_TABLE",
    "LIMITS",
    "MAX_BYTES_PER_FILE",
    "PARTITION",
    "PARTITION_ID",
    "PARTITION_SPEC",
    "SHARD",
    "SOURCE",
    "STRICT",
    "exported_rows",
    "file_format",
    "limits",
    "selection",
    "without_figures",
]

LAKE_TABLE: Final = Parameter("table", "STRING", "the lake table: [catalog.]namespace.table")
DESTINATION: Final = Parameter(
    "table", "STRING", "the lake table: [catalog.]namespace.table, or hive.`uri` for a tree"
)
SOURCE: Final = Parameter("source", "STRING", "the ClickHouse table: source.database.table")
PARTITION_ID: Final = Parameter(
    "partition_id", "STRING", "the partition's id, as in system.parts", "NULL"
)
PARTITION: Final = Parameter(
    "partition", "STRING", "or a value of its key: 202401, ('x', 3)", "NULL"
)
ALL_PARTITIONS: Final = Parameter("all_partitions", "BOOLEAN", "or every partition", "false")
CONVERT: Final = Parameter("convert", "MAP<STRING, STRING>", "column to conversion", "map()")
PARTITION_SPEC: Final = Parameter(
    "partition_spec", "STRING", "of a new table; NULL to derive it", "NULL"
)
HIVE_COLUMNS: Final = Parameter(
    "hive_columns", "MAP<STRING, STRING>",
    "of hive.`uri`: directory to the member of the partition key that it is of", "map()",
)  # fmt: skip
CLUSTER: Final = Parameter(
    "cluster", "STRING", "the source is a table of every shard of this cluster", "NULL"
)
STRICT: Final = Parameter(
    "strict", "BOOLEAN", "refuse other kinds of values, columns, and orders", "false"
)
EVOLVE_SCHEMA: Final = Parameter(
    "evolve_schema", "BOOLEAN", "add columns that the lake table lacks, widen its types", "false"
)
MAX_BYTES_PER_FILE: Final = Parameter(
    "max_bytes_per_file", "BIGINT", "bytes of a data file; NULL for 512 MiB", "NULL"
)
LIMITS: Final = (
    Parameter(
        "max_bandwidth", "BIGINT",
        "bytes per second of all tasks, 0 for no limit; NULL for the session's setting", "NULL",
    ),
    Parameter(
        "max_slices", "INT", "files that are written at a time; NULL for the session's setting",
        "NULL",
    ),
    Parameter(
        "parallel_formatting", "BOOLEAN",
        "false: one file at a time, read before it is written; NULL for the session's setting",
        "NULL",
    ),
)  # fmt: skip
"""The parameters that bound how much is read and written at a time."""

SHARD: Final = Column("shard", "INT", "the number of the shard; NULL if there are none")


EXPORTED: Final = (
    Column("partition_id", "STRING", "the partition"),
    Column("status", "STRING", "committed, replaced, unchanged, already_exported, empty, ..."),
    Column("rows", "BIGINT", "rows of the partition in the lake"),
    Column("data_files", "BIGINT", "its data files there"),
    Column("bytes", "BIGINT", "their bytes"),
    Column("snapshot_id", "BIGINT", "the snapshot that made them visible"),
    Column("transaction_id", "STRING", "the export that wrote them"),
    Column("message", "STRING", "one sentence, or empty"),
)
"""The columns of every answer about exported partitions."""

_HOW: Final = (
    Parameter("force", "BOOLEAN", "export again, and replace, also with fewer rows", "false"),
    Parameter(
        "manifest_ttl", "INT", "seconds until it may be exported again; 0 never", str(MANIFEST_TTL)
    ),
    Parameter(
        "abandoned_ttl", "INT",
        "seconds after which an interrupted export is given up; 0 never", str(ABANDONED_TTL),
    ),
    Parameter("allow_empty", "BOOLEAN", "with force: also when no rows are left", "false"),
    Parameter(
        "overwrite_file_if_exists", "BOOLEAN",
        "continue although there are files of other writers", "false",
    ),
    Parameter("replace_partition", "BOOLEAN", "with force: also replace files of others", "false"),
    Parameter("same_table", "BOOLEAN", "the same table after its Keeper was restored", "false"),
    Parameter("same_as", "STRING", "the identity that it was exported under before", "NULL"),
    Parameter("verify", "BOOLEAN", "compare with the source after the commit", "false"),
    Parameter(
        "check_rows", "BOOLEAN",
        "compare the rows where only parts are known to differ, and write none that are equal",
        "false",
    ),
    STRICT,
    EVOLVE_SCHEMA,
    Parameter(
        "backfill", "BOOLEAN",
        "also partitions that lack values of columns which the source got later", "false",
    ),
    CONVERT,
    PARTITION_SPEC,
    HIVE_COLUMNS,
    MAX_BYTES_PER_FILE,
    Parameter("max_retries", "INT", "how often a file is tried again", str(MAX_RETRIES)),
    *LIMITS,
    CLUSTER,
    Parameter("wait", "BOOLEAN", "false: return when it has begun, with transaction ids", "true"),
    Parameter("dry_run", "BOOLEAN", "only report what would be done", "false"),
)  # fmt: skip


def without_figures(status: Value, message: str, partition_id: Value = None) -> tuple[Value, ...]:
    """Return a row of `EXPORTED` for what was done without an export."""
    return (partition_id, status, None, None, None, None, None, message)


def exported_rows(
    outcomes: tuple[Outcome, ...], said: Callable[[str], str], *, dry_run: bool = False
) -> Rows:
    """Return outcomes as rows of `EXPORTED`.

    Args:
        outcomes: of partitions.
        said: a message in the words of who asked (`spark_ext.sql.wording`).
        dry_run: whether they are what would be done, and nothing was.
    """
    return tuple(
        (
            one.partition_id,
            one.status.planned if dry_run else one.status.value,
            one.rows,
            one.data_files,
            one.bytes,
            one.snapshot_id,
            one.transaction_id,
            said(_message(one)) or None,
        )
        for one in outcomes
    )


def _message(one: Outcome) -> str:
    """Return what is said of an outcome, with what left main and how that is undone."""
    undone = f"undone by {one.undo}, as long as that snapshot is kept" if one.undo else ""
    return "; ".join(filter(None, (one.message.rstrip("."), one.change, undone)))


def _export_partition(call: Call) -> Rows:
    partition_id, expression = call.text_or_none("partition_id"), call.text_or_none("partition")
    if (partition_id is None) == (expression is None):
        message = (
            "Cannot choose a partition: give either partition_id => '202401', or partition => "
            "'202401' with a value of the partition key. All of them: export_partitions."
        )
        raise UsageError(message)
    if partition_id is not None:
        return _export(call, ById(PartitionId(partition_id)), 1)
    return _export(call, ByExpression(date_in_quotes(call.text("partition"))), 1)


def selection(call: Call, *, with_where: bool) -> Selection:
    """Return the partitions that `partition_id`, `partition` or `all_partitions` choose.

    Args:
        call: that has these arguments.
        with_where: whether it has `where`, too.

    Raises:
        UsageError: none or several of them choose, or `where` is without `all_partitions`.
    """
    partition_id, expression = call.text_or_none("partition_id"), call.text_or_none("partition")
    everything = call.flag("all_partitions")
    where = call.text_or_none("where") if with_where else None
    given = [partition_id is not None, expression is not None, everything]
    if sum(given) != 1 or (where is not None and not everything):
        also = ", and `where` only with `all_partitions`" if with_where else ""
        message = (
            "Cannot choose partitions: give exactly one of `partition_id`, `partition` and "
            f"`all_partitions => true`{also}."
        )
        raise UsageError(message)
    if partition_id is not None:
        return ById(PartitionId(partition_id))
    if expression is not None:
        return ByExpression(date_in_quotes(expression))
    return AllPartitions(parse_filter(where) if where is not None else None)


def _export_partitions(call: Call) -> Rows:
    where = call.text_or_none("where")
    chosen = AllPartitions(parse_filter(where) if where is not None else None)
    return _export(call, chosen, _least(call, "commit_every", 1, MOST_PARTITIONS))


def _export(call: Call, selection: Selection, commit_every: int) -> Rows:
    asked = _asked(call, selection, commit_every)
    if call.flag("dry_run"):
        return tuple(
            (
                one.partition_id, one.action, one.rows, one.files, one.bytes, None, None,
                in_call(one.message) or None,
            )
            for one in rehearse_in_session(asked, call.spark, call.conf)
        )  # fmt: skip
    export = export_in_session if call.flag("wait") else begin_in_session
    return exported_rows(export((asked,), call.spark, call.conf), in_call)


def _asked(call: Call, selection: Selection, commit_every: int) -> SessionExport:
    names = CallNames.of(call)
    source = names.source("source")
    request = ExportRequest(
        table=source.table,
        to=names.destination("table"),
        selection=selection,
        wish=Wish(
            force=call.flag("force"),
            ttl=_least(call, "manifest_ttl", 0),
            allow_empty=call.flag("allow_empty"),
            beside=call.flag("overwrite_file_if_exists"),
            whole=call.flag("replace_partition"),
            same_table=call.flag("same_table"),
            same_as=call.text_or_none("same_as") or "",
            check_rows=call.flag("check_rows"),
        ),
        conversions=call.pairs("convert"),
        strict=call.flag("strict"),
        partition_spec=call.text_or_none("partition_spec"),
        directories=call.pairs("hive_columns"),
        evolve_schema=call.flag("evolve_schema"),
        backfill=call.flag("backfill"),
        commit_every=commit_every,
        max_retries=_least(call, "max_retries", 0),
        abandoned_ttl=_least(call, "abandoned_ttl", 0),
        limits=limits(call),
        format=file_format(call),
    )
    check_wish(request.wish)
    return SessionExport(
        source, request, cluster=call.text_or_none("cluster"), verify=call.flag("verify")
    )


def file_format(call: Call) -> FileFormat:
    """Return how data files are made, by `max_bytes_per_file`.

    Raises:
        UsageError: it is too small.
    """
    if call.arguments["max_bytes_per_file"] is None:
        return FileFormat()
    return FileFormat(_least(call, "max_bytes_per_file", 1))


def limits(call: Call) -> Limits:
    """Return what the arguments `LIMITS` say, and for the rest the session.

    Raises:
        UsageError: an argument is too small, or a setting of the session malformed.
    """
    of_session = limits_of_session(call.conf)
    bandwidth, slices = call.arguments["max_bandwidth"], call.arguments["max_slices"]
    parallel = call.arguments["parallel_formatting"]
    return Limits(
        of_session.bandwidth if bandwidth is None else _least(call, "max_bandwidth", 0),
        of_session.slices if slices is None else _least(call, "max_slices", 1),
        in_turn=of_session.in_turn if parallel is None else not parallel,
    )


def _least(call: Call, name: str, least: int, most: int | None = None) -> int:
    """Return a number that is not too small, and not too large.

    Raises:
        UsageError: it is.
    """
    number = call.number(name)
    if number < least or (most is not None and number > most):
        bounds = f"from {least}" if most is None else f"from {least} to {most}"
        message = f"Cannot export with {name} => {number}. Write a number {bounds}."
        raise UsageError(message)
    return number


EXPORT_PARTITION: Final = Procedure(
    name="export_partition",
    description="Exports one partition of a ClickHouse table into a lake table, exactly once.",
    parameters=(
        DESTINATION,
        SOURCE,
        PARTITION_ID,
        PARTITION,
        *_HOW,
    ),
    columns=EXPORTED,
    run=_export_partition,
)  # fmt: skip
EXPORT_PARTITIONS: Final = Procedure(
    name="export_partitions",
    description="Exports all partitions of a ClickHouse table, or those that a filter selects.",
    parameters=(
        DESTINATION,
        SOURCE,
        Parameter("where", "STRING", "filter over partition_id, rows, ...; NULL for all", "NULL"),
        Parameter("commit_every", "INT", "most partitions of a snapshot", str(MOST_PARTITIONS)),
        *_HOW,
    ),
    columns=EXPORTED,
    run=_export_partitions,
)  # fmt: skip
