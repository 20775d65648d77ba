"""What one ClickHouse offers and another does not, and what is done without it.

Every choice that depends on the ClickHouse at hand is a member here. `capabilities.py` finds out
which are there, by names in the system tables and never by version numbers. The page
docs/reference/versions.md shows the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["ALWAYS_NEEDED", "Offer", "Sign", "SignKind"]


class SignKind(Enum):
    """Where it stands that ClickHouse offers something."""

    COLUMN = "system.columns"
    FUNCTION = "system.functions"
    SETTING = "system.settings"
    TABLE_SETTING = "system.merge_tree_settings"


@dataclass(frozen=True, slots=True)
class Sign:
    """The name by which an offer is seen; of a column with its system table, `parts.disk_name`."""

    kind: SignKind
    name: str


def _column(name: str) -> Sign:
    return Sign(SignKind.COLUMN, name)


def _setting(name: str) -> Sign:
    return Sign(SignKind.SETTING, name)


def _table_setting(name: str) -> Sign:
    return Sign(SignKind.TABLE_SETTING, name)


class Offer(Enum):
    """Something that not every ClickHouse has: its sign, what it is used for, and what else."""

    PART_HASHES = (
        _column("parts.hash_of_all_files"),
        "the content of a part is known by its hash",
        "a part is known by its name, rows and sizes; a clone is compared by rows and sizes",
    )
    PART_TYPES = (
        _column("parts.part_type"),
        "wide and compact parts are told apart",
        "every part is wide",
    )
    DELETED_ROWS = (
        _column("parts.has_lightweight_delete"),
        "parts with rows deleted by DELETE FROM are told apart",
        "no part has any",
    )
    PART_DISKS = (
        _column("parts.disk_name"),
        "the disk of each part is known",
        "it is not; the server reads the parts, whatever they lie on",
    )
    DISKS = (
        _column("disks.path"),
        "parts on disks whose files cannot be opened as they are are refused",
        "as above",
    )
    DISK_ENCRYPTION = (
        _column("disks.is_encrypted"),
        "encrypted disks are told apart",
        "no disk is encrypted",
    )
    DETACHED_PARTS = (
        _column("detached_parts.reason"),
        (
            "a partition of which ClickHouse set broken parts aside is refused; `archive` compares "
            "what it detached"
        ),
        "broken parts are not seen; `archive` is refused",
    )
    DETACHED_TIMES = (
        _column("detached_parts.modification_time"),
        "`archive --drop` frees what an earlier `archive` detached",
        "it is refused: nobody can tell whether a detached part is still the same",
    )
    TABLE_IDS = (
        _column("tables.uuid"),
        "a table is known by its UUID; the staging database is Atomic",
        "a table is known by its server and name; the staging database has the default engine",
    )
    STORAGE_POLICIES = (
        _column("tables.storage_policy"),
        "the storage policy is shown",
        "there is one, `default`",
    )
    DATA_PATHS = (
        _column("tables.data_paths"),
        "the directory of a table is the first of those on its disks",
        "it is `tables.data_path`",
    )
    DATA_PATH = (
        _column("tables.data_path"),
        "old versions have this in place of `data_paths`",
        "as above",
    )
    TABLE_COMMENTS = (
        _column("tables.comment"),
        (
            "a staging table says of which table and job its parts are, and can be used again by "
            "the next run"
        ),
        "the job stands in its name only; the next run freezes anew and drops it",
    )
    COLUMN_POSITIONS = (
        _column("columns.position"),
        "columns are in the order of their declaration",
        "in the order of `system.columns`: MATERIALIZED and ALIAS columns come last",
    )
    MUTATED_PARTS = (
        _column("mutations.parts_to_do_names"),
        "only the partitions that an unfinished mutation still has to change are refused",
        "an unfinished mutation refuses every partition of its table",
    )
    MUTATION_FAILURES = (
        _column("mutations.latest_fail_reason"),
        "the refusal says why a mutation failed last, and how to kill it",
        "it says neither",
    )
    SKIP_INDICES = (
        _column("data_skipping_indices.type_full"),
        "the skip indices of a table are shown",
        "they are not; the staging table has them all the same",
    )
    PROJECTIONS = (
        _column("projections.query"),
        "the projections of a table are shown",
        "they are not; the staging table has them all the same",
    )
    KEEPER_NAMES = (
        _column("replicas.zookeeper_name"),
        "a table of an auxiliary Keeper is looked up there",
        "there is one Keeper",
    )
    ROW_POLICIES = (
        _column("row_policies.name"),
        "row policies, which an export does not apply, are shown",
        "nobody can say whether there are any",
    )
    SERVER_ID = (
        Sign(SignKind.FUNCTION, "serverUUID"),
        "a table without a UUID is known by its server's UUID and its name",
        "by its host, data directory and name",
    )
    SYNCHRONOUS_DROP = (
        _setting("database_atomic_wait_for_drop_and_detach_synchronously"),
        "`DROP TABLE ... SYNC` frees the disk at once",
        "`DROP TABLE`",
    )
    DROP_LIMIT = (
        _setting("max_table_size_to_drop"),
        "a staging table of more than 50 GB is dropped all the same",
        "only where the server's own limit allows it; else the answer says which file to make",
    )
    CHECK_BY_PART = (
        _setting("check_query_single_value_result"),
        "`CHECK TABLE` is told to answer for each part",
        "it does so without being told",
    )
    OLD_SYNTAX_SETTING = (
        _setting("allow_deprecated_syntax_for_merge_tree"),
        "a staging table of the old syntax, `MergeTree(date, (k), 8192)`, is allowed",
        "it is always allowed",
    )
    TTL_MERGES = (
        _table_setting("merge_with_ttl_timeout"),
        "`SYSTEM STOP TTL MERGES`",
        "there is no TTL",
    )
    READONLY_TABLES = (
        _table_setting("table_readonly"),
        "a filled staging table is made read-only, and can be used again by the next run",
        "it is not, and the next run freezes anew",
    )

    def __init__(self, sign: Sign, use: str, otherwise: str) -> None:
        """Keep what the page shows."""
        self.sign = sign
        self.use = use
        self.otherwise = otherwise


ALWAYS_NEEDED: Final = (
    _column("mutations.is_done"),
    _column("mutations.mutation_id"),
    _column("parts.bytes_on_disk"),
    _column("parts.data_uncompressed_bytes"),
    _column("parts.partition_id"),
    _column("parts_columns.column"),
    _table_setting("max_bytes_to_merge_at_max_space_in_pool"),
    _table_setting("max_bytes_to_merge_at_min_space_in_pool"),
)
"""Without these a clone cannot be proved to be the source's parts, or does not stay so."""
