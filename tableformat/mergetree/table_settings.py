"""Lists the settings of MergeTree tables by their effect, and refuses tables that are not readable.

ClickHouse opens parts without an error under other settings than they were written with: arrays of
a Nested whose offsets are not shared are read as empty. So every setting of every ClickHouse
version is listed here by its effect, and `check_readable` refuses a table that sets an unlisted
one. A copy gets only settings that the table sets itself: an old ClickHouse does not know the
others.

`check_readable` also refuses a column with the name of a virtual column that has the part or the
partition of a row. Both reasons are independent of the types of columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import Enum
from typing import Final

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import RefusedError, Unable
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import quote_identifier, quote_string

__all__ = [
    "PART_OFFSET",
    "SETTINGS",
    "SettingUse",
    "check_readable",
    "has_column",
    "is_on",
    "on_disk",
    "staging_settings",
    "unknown_settings",
    "why_unreadable",
    "with_files",
]

Settings = tuple[tuple[str, str], ...]
_IN_WORDS: Final = {"true": True, "false": False}


class SettingUse(Enum):
    """The effect of a setting: whether a staging table and a task's table get it, and why."""

    READS = (True, True, "it changes how the files of a part are found or read")
    ALLOWS = (True, True, "a table with such keys, columns or indices cannot be created without it")
    CLONES = (True, False, "a table takes parts over only from one with the same indices")
    PLACES = (True, False, "it determines where parts are and how they get there")
    OURS = (False, False, "the staging table sets it itself, or must not have it")
    WRITES = (False, False, "it changes parts that are written, and a copy is only read")
    MERGES = (False, False, "it concerns merges and mutations, and a copy has none")
    REPLICAS = (False, False, "it concerns replicas, and a copy has none")
    UPKEEP = (False, False, "it concerns loading, caching and removing parts, not what they hold")
    LIMITS = (False, False, "it limits the users of the table, and would refuse the export")

    def __init__(self, staging: bool, tasks: bool, why: str) -> None:  # noqa: FBT001  a table's row
        """Keep a member's row."""
        self.staging = staging
        self.tasks = tasks
        self.why = why


_READS: Final = """
enable_block_number_column enable_block_offset_column enable_mixed_granularity_parts
escape_variant_subcolumn_filenames index_granularity index_granularity_bytes
max_file_name_length replace_long_file_name_to_hash share_nested_offsets
"""
_ALLOWS: Final = """
allow_coalescing_columns_in_partition_or_order_key allow_commit_order_projection
allow_dimensions_outside_sorting_key allow_experimental_replacing_merge_with_cleanup
allow_experimental_reverse_key allow_experimental_text_index_phrase_search
allow_floating_point_partition_key allow_minmax_index_for_json allow_nullable_key
allow_part_offset_column_in_projections allow_summing_columns_in_partition_or_order_key
allow_suspicious_indices allow_tuple_element_aggregation check_sample_column_is_correct
compatibility_allow_sampling_expression_not_in_primary_key max_projections
"""
_CLONES: Final = """
add_implicit_sign_column_constraint_for_collapsing_engine
add_minmax_index_for_block_number_column add_minmax_index_for_block_offset_column
add_minmax_index_for_numeric_columns add_minmax_index_for_string_columns
add_minmax_index_for_temporal_columns auto_statistics_types
enforce_index_structure_match_on_partition_manipulation escape_index_filenames
part_minmax_index_columns
"""
_PLACES: Final = """
always_use_copy_instead_of_hardlinks disk storage_policy
"""
_OURS: Final = """
max_bytes_to_merge_at_max_space_in_pool max_bytes_to_merge_at_min_space_in_pool
max_number_of_merges_with_ttl_in_pool min_age_to_force_merge_seconds table_disk table_readonly
"""
_WRITES: Final = """
adaptive_write_buffer_initial_size assign_part_uuids async_insert
compact_parts_max_bytes_to_buffer compact_parts_max_granules_to_buffer compress_marks
compress_per_column_in_compact_parts compress_primary_key
compute_exact_num_defaults_for_sparse_columns default_compression_codec
dynamic_serialization_version enable_adaptive_codec_selection enable_index_granularity_compression
fsync_after_insert fsync_part_directory in_memory_parts_enable_wal in_memory_parts_insert_sync
map_buckets_coefficient map_buckets_min_avg_size map_buckets_strategy map_serialization_version
map_serialization_version_for_zero_level_parts marks_compress_block_size marks_compression_codec
materialize_projections_on_insert max_buckets_in_map max_compress_block_size
max_digestion_size_per_segment min_bytes_for_compact_part min_bytes_for_full_part_storage
min_bytes_for_wide_part min_columns_to_activate_adaptive_write_buffer min_compress_block_size
min_compressed_bytes_to_fsync_after_fetch min_compressed_bytes_to_fsync_after_merge
min_index_granularity_bytes min_level_for_full_part_storage min_level_for_wide_part
min_rows_for_compact_part min_rows_for_full_part_storage min_rows_for_wide_part
min_rows_to_fsync_after_merge non_replicated_deduplication_window nullable_serialization_version
object_serialization_version object_shared_data_buckets_for_compact_part
object_shared_data_buckets_for_wide_part object_shared_data_serialization_version
object_shared_data_serialization_version_for_zero_level_parts object_shared_data_target_chunk_rows
optimize_row_order packed_skip_index_max_bytes primary_key_compress_block_size
primary_key_compression_codec propagate_types_serialization_versions_to_nested_types
ratio_of_defaults_for_sparse_serialization
serialization_info_version skip_empty_columns_on_insert string_serialization_version
text_index_dictionary_block_frontcoding_compression text_index_dictionary_block_size
text_index_max_memory_usage_before_flush text_index_max_processed_tokens_before_flush
text_index_posting_list_block_size text_index_posting_list_codec text_index_serialization_version
use_adaptive_write_buffer_for_dynamic_subcolumns
use_compact_variant_discriminators_serialization use_const_adaptive_granularity
write_ahead_log_bytes_to_fsync write_ahead_log_interval_ms_to_fsync write_ahead_log_max_bytes
write_final_mark write_marks_for_substreams_in_compact_parts
"""
_MERGES: Final = """
allow_reduce_blocking_parts_task allow_vertical_merges_from_compact_to_wide_parts
alter_column_secondary_index_mode apply_patches_on_merge
background_task_preferred_step_execution_time_ms clean_deleted_rows
compact_parts_merge_max_bytes_to_prefetch_part deduplicate_merge_projection_mode
enable_max_bytes_limit_for_min_age_to_force_merge
enable_replacing_merge_with_cleanup_for_min_age_to_force_merge enable_vertical_merge_algorithm
exclude_deleted_rows_for_part_size_in_merge exclude_materialize_skip_indexes_on_merge
force_read_through_cache_for_merges lightweight_mutation_projection_mode
lock_acquire_timeout_for_background_operations materialize_projections_on_merge
materialize_skip_indexes_on_merge materialize_statistics_on_merge materialize_ttl_recalculate_only
max_files_to_modify_in_alter_columns max_files_to_remove_in_alter_columns
max_merge_delayed_streams_for_parallel_write max_merge_selecting_sleep_ms
max_parts_to_merge_at_once max_postpone_time_for_failed_mutations_ms
max_uncompressed_bytes_in_patches merge_max_block_size merge_max_block_size_bytes
merge_max_bytes_to_prewarm_cache merge_max_dynamic_subcolumns_in_compact_part
merge_max_dynamic_subcolumns_in_wide_part merge_selecting_sleep_ms
merge_selecting_sleep_slowdown_factor merge_selector_algorithm merge_selector_base
merge_selector_blurry_base_scale_factor
merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once
merge_selector_enable_heuristic_to_remove_small_parts_at_right
merge_selector_heuristic_to_lower_max_parts_to_merge_at_once_exponent merge_selector_window_size
merge_total_max_bytes_to_prewarm_cache merge_use_batch_sorting_queue
merge_with_recompression_ttl_timeout merge_with_ttl_timeout merge_workload
min_age_to_force_merge_on_partition_only min_merge_bytes_to_use_direct_io
min_partition_age_to_force_merge_seconds min_parts_to_merge_at_once mutation_workload
number_of_free_entries_in_pool_to_execute_mutation
number_of_free_entries_in_pool_to_execute_optimize_entire_partition
number_of_free_entries_in_pool_to_lower_max_size_of_merge number_of_mutations_to_delay
number_of_partitions_to_consider_for_merge patch_parts_version reduce_blocking_parts_sleep_ms
remove_unused_patch_parts ttl_only_drop_parts vertical_merge_algorithm_min_bytes_to_activate
vertical_merge_algorithm_min_columns_to_activate vertical_merge_algorithm_min_rows_to_activate
vertical_merge_optimize_lightweight_delete vertical_merge_optimize_ttl_delete
vertical_merge_remote_filesystem_prefetch
"""
_REPLICAS: Final = """
allow_remote_fs_zero_copy_replication always_fetch_merged_part always_fetch_mutated_part
async_block_ids_cache_update_wait_ms check_delay_period
clone_replica_zookeeper_create_get_part_batch_size deduplication_hashes_cache_update_wait_ms
detach_not_byte_identical_parts detach_old_local_parts_when_cloning_replica
disable_detach_partition_for_zero_copy_replication
disable_fetch_partition_for_zero_copy_replication
disable_freeze_partition_for_zero_copy_replication
enable_the_endpoint_id_with_zookeeper_name_prefix execute_merges_on_single_replica_time_threshold
fault_probability_after_part_commit fault_probability_before_part_commit
finished_mutations_to_keep initialization_retry_period kill_delay_period
kill_delay_period_random_add kill_threads max_number_of_mutations_for_replica
max_postpone_time_for_failed_replicated_fetches_ms
max_postpone_time_for_failed_replicated_merges_ms
max_postpone_time_for_failed_replicated_tasks_ms max_replicated_fetches_network_bandwidth
max_replicated_logs_to_keep max_replicated_merges_in_queue
max_replicated_merges_with_ttl_in_queue max_replicated_mutations_in_queue
max_replicated_sends_network_bandwidth min_absolute_delay_to_close min_relative_delay_to_close
min_relative_delay_to_measure min_relative_delay_to_yield_leadership min_replicated_logs_to_keep
notify_newest_block_number part_moves_between_shards_delay_seconds
part_moves_between_shards_enable prefer_fetch_merged_part_size_threshold
prefer_fetch_merged_part_time_threshold remote_fs_execute_merges_on_single_replica_time_threshold
remote_fs_zero_copy_path_compatible_mode remote_fs_zero_copy_zookeeper_path
sleep_before_commit_local_part_in_replicated_table_ms try_fetch_recompressed_part_timeout
use_async_block_ids_cache use_minimalistic_checksums_in_zookeeper
use_minimalistic_part_header_in_zookeeper wait_for_unique_parts_send_before_shutdown_ms
zero_copy_concurrent_part_removal_max_postpone_ratio
zero_copy_concurrent_part_removal_max_split_times
zero_copy_merge_mutation_min_parts_size_sleep_before_lock
zero_copy_merge_mutation_min_parts_size_sleep_no_scale_before_lock
zookeeper_session_expiration_check_period
"""
_UPKEEP: Final = """
cache_populated_by_fetch cache_populated_by_fetch_filename_regexp cleanup_delay_period
cleanup_delay_period_random_add cleanup_thread_preferred_points_per_iteration cleanup_threads
columns_and_secondary_indices_sizes_lazy_calculation columns_to_prewarm_mark_cache
concurrent_part_removal_threshold concurrent_part_removal_threshold_for_remote_disk
distributed_index_analysis_min_indexes_bytes_to_activate
distributed_index_analysis_min_parts_to_activate load_existing_rows_count_for_old_parts
max_cleanup_delay_period
max_part_loading_threads max_part_removal_threads max_suspicious_broken_parts
max_suspicious_broken_parts_bytes merge_tree_clear_old_broken_detached_parts_ttl_timeout_seconds
merge_tree_clear_old_parts_interval_seconds
merge_tree_clear_old_temporary_directories_interval_seconds
merge_tree_enable_clear_old_broken_detached min_bytes_to_prewarm_caches
min_bytes_to_rebalance_partition_over_jbod old_parts_lifetime prewarm_mark_cache
prewarm_primary_key_cache primary_key_lazy_load
primary_key_ratio_of_unique_prefix_values_to_skip_suffix_columns refresh_parts_interval
refresh_statistics_interval remove_empty_parts remove_rolled_back_parts_immediately
search_orphaned_parts_disks simultaneous_parts_removal_limit sleep_before_loading_outdated_parts_ms
temporary_directories_lifetime use_metadata_cache use_primary_key_cache
"""
_LIMITS: Final = """
dead_blobs_to_delay_insert dead_blobs_to_throw_insert inactive_parts_to_delay_insert
inactive_parts_to_throw_insert max_avg_part_size_for_too_many_parts max_concurrent_queries
max_delay_to_insert max_delay_to_mutate_ms max_partitions_to_read max_parts_in_total
max_table_size_bytes_compressed max_table_size_bytes_uncompressed max_table_size_rows
min_delay_to_insert_ms min_delay_to_mutate_ms min_free_disk_bytes_to_perform_insert
min_free_disk_ratio_to_perform_insert min_marks_to_honor_max_concurrent_queries
number_of_mutations_to_throw parts_to_delay_insert parts_to_throw_insert
"""
_TABLE: Final = (
    (SettingUse.READS, _READS),
    (SettingUse.ALLOWS, _ALLOWS),
    (SettingUse.CLONES, _CLONES),
    (SettingUse.PLACES, _PLACES),
    (SettingUse.OURS, _OURS),
    (SettingUse.WRITES, _WRITES),
    (SettingUse.MERGES, _MERGES),
    (SettingUse.REPLICAS, _REPLICAS),
    (SettingUse.UPKEEP, _UPKEEP),
    (SettingUse.LIMITS, _LIMITS),
)
# Names of old versions, and aliases, which newer versions do not list.
_OTHER_NAMES: Final[Mapping[str, SettingUse]] = {
    "allow_experimental_block_number_column": SettingUse.READS,
    "allow_experimental_optimized_row_order": SettingUse.WRITES,
    "allow_s3_zero_copy_replication": SettingUse.REPLICAS,
    "async_block_ids_cache_min_update_interval_ms": SettingUse.REPLICAS,
    "s3_execute_merges_on_single_replica_time_threshold": SettingUse.REPLICAS,
}
# All settings with these prefixes concern replicas, and a copy has none.
_FAMILIES: Final = ("replicated_", "shared_merge_tree_")

SETTINGS: Final[Mapping[str, SettingUse]] = {
    **_OTHER_NAMES,
    **{name: use for use, names in _TABLE for name in names.split()},
}
"""The effect of each setting, by name; `unknown_settings` also knows the prefixes."""


def unknown_settings(settings: Settings) -> tuple[str, ...]:
    """Return the names of settings that are not listed."""
    return tuple(name for name, _ in settings if _use(name) is None)


def staging_settings(settings: Settings) -> Settings:
    """Return the table's settings that its staging table must have."""
    return tuple((name, v) for name, v in settings if (use := _use(name)) and use.staging)


def with_files(settings: Settings) -> Settings:
    """Return the table's settings that a table over the files of its parts must have."""
    return tuple((name, v) for name, v in settings if (use := _use(name)) and use.tasks)


def on_disk(settings: Settings, disk: str) -> Settings:
    """Return the table's settings for a table whose parts are on another disk."""
    kept = tuple((name, v) for name, v in settings if _use(name) is not SettingUse.PLACES)
    return (*kept, ("disk", quote_string(disk)))


def is_on(settings: Settings, name: str) -> bool:
    """Whether a Boolean setting is on, in any form that ClickHouse accepts; False if it is not set.

    ClickHouse keeps the text of CREATE TABLE: `1`, `1.`, `true`, `'1'` or `'TRUE'`.
    """
    text = dict(settings).get(name, "0").strip("'").lower()
    if text in _IN_WORDS:
        return _IN_WORDS[text]
    with contextlib.suppress(ValueError):
        return float(text) != 0
    return False


def _use(name: str) -> SettingUse | None:
    of_family = SettingUse.REPLICAS if name.startswith(_FAMILIES) else None
    return SETTINGS.get(name, of_family)


PART_OFFSET: Final = "_part_offset"
"""The virtual column with a row's position in its part; without it parts are read as a whole."""
# The part and the partition of a row, and the value of the partition key.
_REQUIRED_VIRTUAL: Final = ("_part", "_partition_id", "_partition_value")


def check_readable(table: MergeTreeTable) -> None:
    """Refuse a table that cannot be read reliably.

    Raises:
        RefusedError: every reason is listed (code 48).
    """
    if reasons := why_unreadable(table):
        raise RefusedError(Unable(str(table.name), reasons), code=NOT_IMPLEMENTED)


def why_unreadable(table: MergeTreeTable) -> tuple[str, ...]:
    """Return the reasons why a table cannot be exported, each with its remedy."""
    settings = (
        f"its setting {name} is not known here, and may change how its parts are read; reset it "
        f"(ALTER TABLE {table.name.sql} RESET SETTING {name}), or copy the rows into a table "
        "without it, or use a newer mergeberg"
        for name in unknown_settings(table.engine.settings)
    )
    columns = (
        f"column {name}: ClickHouse has a virtual column of that name, which says where a row is, "
        f"and the table hides it; rename the column (ALTER TABLE {table.name.sql} RENAME COLUMN "
        f"{quote_identifier(name)} TO another_name)"
        for name in _REQUIRED_VIRTUAL
        if has_column(table, name)
    )
    return (*settings, *columns)


def has_column(table: MergeTreeTable, name: str) -> bool:
    """Whether a table has a column of a name; also an alias hides a virtual column."""
    return any(column.name == name for column in table.columns)
