"""The procedures `export_partition` and `export_partitions`, and the parameters that others share.

`export_partitions` exports all partitions, or those that a filter keeps.
Parameters and columns that several procedures share are declared here once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_ext.procedures.declarations import Call, Column, Parameter, Procedure, Rows, Value
from spark_ext.procedures.names import CallNames
from spark_ext.sql.export import begin_in_session, export_in_session, rehearse_in_session
from spark_ext.sql.statement_exports import SessionExport
from spark_ext.sql.statement_settings import limits_of_session
from tableformat.errors import UsageError
from tableformat.export.dry_run import Forecast
from tableformat.export.job import ExportRequest
from tableformat.export.options import EXPORT_OPTIONS, LateRows, OptionType
from tableformat.export.outcome import Outcome
from tableformat.export.request import (
    AllPartitions,
    ByExpression,
    ById,
    ExportOptions,
    Limits,
    Selection,
    check_options,
)
from tableformat.export.slices import FileFormat
from tableformat.mergetree.partition_literal import date_in_quotes
from tableformat.mergetree.summary_filter import parse_filter
from tableformat.names import PartitionId, quote_string

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
    "LATE_ROWS",
    "LIMITS",
    "MAX_BYTES_PER_FILE",
    "MAX_REPLACE",
    "PARTITION",
    "PARTITION_ID",
    "PARTITION_SPEC",
    "SAME_AS",
    "SHARD",
    "SOURCE",
    "STRICT",
    "exported_rows",
    "file_format",
    "late_rows",
    "limits",
    "number_or_none",
    "parameter_of",
    "report",
    "selection",
    "without_figures",
]


def parameter_of(name: str) -> Parameter:
    """Return an export option as a parameter."""
    option = EXPORT_OPTIONS[name]
    match option.default:
        case None:
            default = "map()" if option.type is OptionType.PAIRS else "NULL"
        case bool(is_set):
            default = str(is_set).lower()
        case number:
            default = str(number)
    return Parameter(name, option.type.value, option.comment, default)


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
CONVERT: Final = parameter_of("convert")
PARTITION_SPEC: Final = parameter_of("partition_spec")
HIVE_COLUMNS: Final = parameter_of("hive_columns")
CLUSTER: Final = parameter_of("cluster")
STRICT: Final = parameter_of("strict")
EVOLVE_SCHEMA: Final = parameter_of("evolve_schema")
MAX_BYTES_PER_FILE: Final = parameter_of("max_bytes_per_file")
LATE_ROWS: Final = parameter_of("late_rows")
MAX_REPLACE: Final = parameter_of("max_replace")
SAME_AS: Final = parameter_of("same_as")
LIMITS: Final = tuple(
    parameter_of(name) for name in ("max_bandwidth", "max_slices", "parallel_formatting")
)
"""The parameters that limit the rate and the parallelism of an export."""

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
"""The columns of results about exported partitions."""

_HOW: Final = tuple(parameter_of(name) for name in EXPORT_OPTIONS if name != "commit_every")


def without_figures(status: Value, message: str, partition_id: Value = None) -> tuple[Value, ...]:
    """Return a row of `EXPORTED` for an action that exported nothing."""
    return (partition_id, status, None, None, None, None, None, message)


def exported_rows(outcomes: tuple[Outcome, ...], *, dry_run: bool = False) -> Rows:
    """Return outcomes as rows of `EXPORTED`.

    Args:
        outcomes: the outcomes of partitions.
        dry_run: whether the outcomes are those of a dry run.
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
            report(one) or None,
        )
        for one in outcomes
    )


def forecast_rows(forecasts: Iterable[Forecast]) -> Rows:
    """Return the forecasts of an export as rows of `EXPORTED`; the status is what would be done."""
    return tuple(
        (f.partition_id, f.action, f.rows, f.files, f.bytes, None, None, f.message or None)
        for f in forecasts
    )


def report(one: Outcome) -> str:
    """Return the message of an outcome, with the rows that left main and the way to undo it."""
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
    """Return the selection by `partition_id`, `partition` or `all_partitions`.

    Args:
        call: a call with these arguments.
        with_where: whether the procedure has `where`, too.

    Raises:
        UsageError: none or several are given, or `where` is given without `all_partitions`.
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
    return _export(call, chosen, _number(call, "commit_every"))


def _export(call: Call, selection: Selection, commit_every: int) -> Rows:
    request = _session_export(call, selection, commit_every)
    if call.flag("dry_run"):
        return forecast_rows(rehearse_in_session(request, call.spark, call.conf))
    export = export_in_session if call.flag("wait") else begin_in_session
    return exported_rows(export((request,), call.spark, call.conf))


def _session_export(call: Call, selection: Selection, commit_every: int) -> SessionExport:
    names = CallNames.of(call)
    source = names.source("source")
    request = ExportRequest(
        table=source.table,
        to=names.destination("table"),
        selection=selection,
        options=ExportOptions(
            force=call.flag("force"),
            manifest_ttl=_number(call, "manifest_ttl"),
            allow_empty=call.flag("allow_empty"),
            overwrite_file_if_exists=call.flag("overwrite_file_if_exists"),
            replace_partition=call.flag("replace_partition"),
            same_table=call.flag("same_table"),
            same_as=call.text_or_none("same_as") or "",
            check_rows=call.flag("check_rows"),
            max_replace=number_or_none(call, "max_replace"),
            late_rows=late_rows(call),
            incremental=call.flag("incremental"),
        ),
        conversions=call.pairs("convert"),
        strict=call.flag("strict"),
        partition_spec=call.text_or_none("partition_spec"),
        directories=call.pairs("hive_columns"),
        evolve_schema=call.flag("evolve_schema"),
        backfill=call.flag("backfill"),
        commit_every=commit_every,
        max_retries=_number(call, "max_retries"),
        abandoned_ttl=_number(call, "abandoned_ttl"),
        limits=limits(call),
        format=file_format(call),
    )
    check_options(request.options)
    return SessionExport(
        source, request, cluster=call.text_or_none("cluster"), verify=call.flag("verify")
    )


def late_rows(call: Call) -> LateRows:
    """Return the argument `late_rows`.

    Raises:
        UsageError: it has no such value.
    """
    given = call.text_or_none("late_rows")
    if given is None:
        return LateRows.TABLE
    if given not in EXPORT_OPTIONS["late_rows"].choices:
        values = " or ".join(map(quote_string, EXPORT_OPTIONS["late_rows"].choices))
        message = f"Cannot export with late_rows => {given!r}. Write {values}."
        raise UsageError(message)
    return LateRows(given)


def file_format(call: Call) -> FileFormat:
    """Return the format of data files, with the argument `max_bytes_per_file`.

    Raises:
        UsageError: the value is too small.
    """
    if call.arguments["max_bytes_per_file"] is None:
        return FileFormat()
    return FileFormat(_number(call, "max_bytes_per_file"))


def limits(call: Call) -> Limits:
    """Return the limits of an export, from the arguments or else from the session.

    Raises:
        UsageError: an argument is too small, or a setting of the session is malformed.
    """
    of_session = limits_of_session(call.conf)
    bandwidth, slices = call.arguments["max_bandwidth"], call.arguments["max_slices"]
    parallel = call.arguments["parallel_formatting"]
    return Limits(
        of_session.bandwidth if bandwidth is None else _number(call, "max_bandwidth"),
        of_session.slices if slices is None else _number(call, "max_slices"),
        in_turn=of_session.in_turn if parallel is None else not parallel,
    )


def number_or_none(call: Call, name: str) -> int | None:
    """Return the value of a numeric option, None if it is not given.

    Raises:
        UsageError: the value is outside the bounds of the option.
    """
    return None if call.arguments[name] is None else _number(call, name)


def _number(call: Call, name: str) -> int:
    """Return the value of a numeric option.

    Raises:
        UsageError: the value is outside the bounds of the option.
    """
    number, option = call.number(name), EXPORT_OPTIONS[name]
    if number < option.least or (option.most is not None and number > option.most):
        to = "" if option.most is None else f" to {option.most}"
        message = f"Cannot export with {name} => {number}. Write a number from {option.least}{to}."
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
        parameter_of("commit_every"),
        *_HOW,
    ),
    columns=EXPORTED,
    run=_export_partitions,
)  # fmt: skip
