# The public names of `spark_ext/__init__.py` with their types. `sql` is a package that can be
# called, which a type checker does not see by itself.

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from spark_ext.python_actions import archive as archive
from spark_ext.python_actions import cancel as cancel
from spark_ext.python_actions import check as check
from spark_ext.python_actions import create_table_like as create_table_like
from spark_ext.python_actions import exports as exports
from spark_ext.python_actions import forget_export as forget_export
from spark_ext.python_actions import gc as gc
from spark_ext.python_actions import log as log
from spark_ext.python_actions import partitions as partitions
from spark_ext.python_actions import parts as parts
from spark_ext.python_actions import show_export as show_export
from spark_ext.python_actions import verify as verify
from spark_ext.python_api import ExportedPartition as ExportedPartition
from spark_ext.python_api import SessionTable as SessionTable
from spark_ext.python_values import ArchivedPartition as ArchivedPartition
from spark_ext.python_values import CancelledExport as CancelledExport
from spark_ext.python_values import CheckedTable as CheckedTable
from spark_ext.python_values import CreatedTable as CreatedTable
from spark_ext.python_values import ExportRecord as ExportRecord
from spark_ext.python_values import ForgottenExport as ForgottenExport
from spark_ext.python_values import Leftover as Leftover
from spark_ext.python_values import ListedPart as ListedPart
from spark_ext.python_values import ListedPartition as ListedPartition
from spark_ext.python_values import LoggedOutcome as LoggedOutcome
from spark_ext.python_values import ShownExport as ShownExport
from spark_ext.python_values import SourcePart as SourcePart
from spark_ext.python_values import VerifiedPartition as VerifiedPartition
from spark_ext.set_up import configure as configure
from spark_ext.set_up import enable as enable
from spark_ext.set_up import register as register

def sql(
    spark: SparkSession, text: str, *, tables: Mapping[str, SessionTable] = ...
) -> DataFrame: ...
def attach_partition(
    spark: SparkSession,
    table: str,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    part: str | None = ...,
    all_partitions: bool = ...,
    from_table: str | SessionTable | None = ...,
    overwrite_file_if_exists: bool = ...,
    fast: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def clear_column(
    spark: SparkSession,
    table: str,
    *,
    column: str,
    partition_id: str | None = ...,
    partition: str | None = ...,
    if_exists: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def clear_index(
    spark: SparkSession,
    table: str,
    *,
    index: str,
    partition_id: str | None = ...,
    partition: str | None = ...,
    if_exists: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def delete_rows(
    spark: SparkSession,
    table: str,
    *,
    where: str,
    partition_id: str | None = ...,
    partition: str | None = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def detach_partition(
    spark: SparkSession,
    table: str,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    part: str | None = ...,
    all_partitions: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def drop_detached_partition(
    spark: SparkSession,
    table: str,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    part: str | None = ...,
    all_partitions: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def drop_partition(
    spark: SparkSession,
    table: str,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    part: str | None = ...,
    all_partitions: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def export_partition(
    spark: SparkSession,
    table: str,
    source: str | SessionTable,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    force: bool = ...,
    manifest_ttl: int = ...,
    abandoned_ttl: int = ...,
    allow_empty: bool = ...,
    max_replace: int | None = ...,
    overwrite_file_if_exists: bool = ...,
    replace_partition: bool = ...,
    late_rows: str | None = ...,
    incremental: bool = ...,
    same_table: bool = ...,
    same_as: str | None = ...,
    verify: bool = ...,
    check_rows: bool = ...,
    strict: bool = ...,
    evolve_schema: bool = ...,
    backfill: bool = ...,
    convert: Mapping[str, str] = ...,
    partition_spec: str | None = ...,
    hive_columns: Mapping[str, str] = ...,
    max_bytes_per_file: int | None = ...,
    max_retries: int = ...,
    max_bandwidth: int | None = ...,
    max_slices: int | None = ...,
    parallel_formatting: bool | None = ...,
    cluster: str | None = ...,
    wait: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def export_partitions(
    spark: SparkSession,
    table: str,
    source: str | SessionTable,
    *,
    where: str | None = ...,
    commit_every: int = ...,
    force: bool = ...,
    manifest_ttl: int = ...,
    abandoned_ttl: int = ...,
    allow_empty: bool = ...,
    max_replace: int | None = ...,
    overwrite_file_if_exists: bool = ...,
    replace_partition: bool = ...,
    late_rows: str | None = ...,
    incremental: bool = ...,
    same_table: bool = ...,
    same_as: str | None = ...,
    verify: bool = ...,
    check_rows: bool = ...,
    strict: bool = ...,
    evolve_schema: bool = ...,
    backfill: bool = ...,
    convert: Mapping[str, str] = ...,
    partition_spec: str | None = ...,
    hive_columns: Mapping[str, str] = ...,
    max_bytes_per_file: int | None = ...,
    max_retries: int = ...,
    max_bandwidth: int | None = ...,
    max_slices: int | None = ...,
    parallel_formatting: bool | None = ...,
    cluster: str | None = ...,
    wait: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def fetch_partition(
    spark: SparkSession,
    table: str,
    *,
    path: str,
    partition_id: str | None = ...,
    partition: str | None = ...,
    part: str | None = ...,
    fast: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def forget_partition(
    spark: SparkSession,
    table: str,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def freeze(
    spark: SparkSession,
    table: str,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    name: str | None = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def move_partition(
    spark: SparkSession,
    table: str,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    part: str | None = ...,
    to_table: str | None = ...,
    to_disk: str | None = ...,
    to_volume: str | None = ...,
    fast: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def optimize(
    spark: SparkSession,
    table: str,
    *,
    partition_id: str | None = ...,
    partition: str | None = ...,
    final: bool = ...,
    deduplicate: bool = ...,
    deduplicate_by: str | None = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def replace_partition(
    spark: SparkSession,
    table: str,
    *,
    from_table: str | SessionTable,
    partition_id: str | None = ...,
    partition: str | None = ...,
    allow_empty: bool = ...,
    fast: bool = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def unfreeze(
    spark: SparkSession,
    table: str,
    *,
    name: str,
    partition_id: str | None = ...,
    partition: str | None = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
def update_rows(
    spark: SparkSession,
    table: str,
    *,
    assignments: str,
    where: str,
    partition_id: str | None = ...,
    partition: str | None = ...,
    dry_run: bool = ...,
) -> tuple[ExportedPartition, ...]: ...
