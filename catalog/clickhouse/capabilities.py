"""What the ClickHouse at hand offers: the snapshot protocol follows it (source.md section 7).

Only names are probed, never version numbers: builds differ in what they carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.connection import Connection, text, texts
from tableformat.errors import UnsupportedError
from tableformat.mergetree.wire_types import WIRE_PAIRS
from tableformat.names import quote_string

__all__ = ["Capabilities", "probe_capabilities"]

# Without these a clone cannot be proved to be the source's parts.
_NEEDED_COLUMNS: Final = (
    "disk_name",
    "has_lightweight_delete",
    "hash_of_all_files",
    "part_type",
    "partition_id",
)
_NEEDED_TABLES: Final = ("detached_parts", "disks", "mutations", "parts", "parts_columns")
# Merges of the clone are blocked by settings, because SYSTEM STOP MERGES is lost on a restart; the
# space limits do not stop TTL merges, those have their own limit.
_MERGE_BLOCKERS: Final = (
    ("max_bytes_to_merge_at_max_space_in_pool", "1"),
    ("max_bytes_to_merge_at_min_space_in_pool", "1"),
    ("max_number_of_merges_with_ttl_in_pool", "0"),
    ("min_age_to_force_merge_seconds", "0"),
)
# One thread gives the rows of a part in their order; the server has other users too.
_READING: Final = (
    ("max_threads", "1"),
    ("optimize_read_in_order", "1"),
    ("max_block_size", "16384"),
    ("prefer_column_name_to_alias", "1"),
    ("output_format_arrow_compression_method", "none"),
    ("output_format_arrow_use_native_writer", "1"),
    ("output_format_native_write_json_as_string", "0"),
    ("output_format_native_encode_types_in_binary_format", "0"),
    *WIRE_PAIRS,
)
# What a table was once created with must be allowed for its copy too.
_PERMISSIONS: Final = (
    "allow_create_index_without_type",
    "allow_dynamic_type_in_join_keys",
    "allow_experimental_codecs",
    "allow_experimental_dynamic_type",
    "allow_experimental_full_text_index",
    "allow_experimental_inverted_index",
    "allow_experimental_json_type",
    "allow_experimental_nullable_tuple_type",
    "allow_experimental_object_type",
    "allow_experimental_qbit_type",
    "allow_experimental_statistics",
    "allow_experimental_time_time64_type",
    "allow_experimental_variant_type",
    "allow_experimental_vector_similarity_index",
    "allow_statistics",
    "allow_suspicious_codecs",
    "allow_suspicious_fixed_string_types",
    "allow_suspicious_low_cardinality_types",
    "allow_suspicious_primary_key",
    "allow_suspicious_ttl_expressions",
    "allow_suspicious_types_in_group_by",
    "allow_suspicious_types_in_order_by",
    "allow_suspicious_variant_types",
    "enable_dynamic_type",
    "enable_full_text_index",
    "enable_json_type",
    "enable_nullable_tuple_type",
    "enable_qbit_type",
    "enable_time_time64_type",
    "enable_variant_type",
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The version at hand: the names of its settings, system tables and columns of system.parts."""

    version: str
    address: str
    server_zone: str
    server_uuid: str
    query_settings: frozenset[str]
    table_settings: frozenset[str]
    part_columns: frozenset[str]
    system_tables: frozenset[str]

    @property
    def blockers(self) -> tuple[tuple[str, str], ...]:
        """Table settings that keep the parts of a clone as they are."""
        return tuple(pair for pair in _MERGE_BLOCKERS if pair[0] in self.table_settings)

    @property
    def permissions(self) -> tuple[tuple[str, str], ...]:
        """Query settings under which any table that exists may be created again."""
        return tuple((name, "1") for name in _PERMISSIONS if name in self.query_settings)

    @property
    def makes_wire_values(self) -> bool:
        """Whether its own casts and Arrow give the values that the lake is written from."""
        return all(name in self.query_settings for name, _ in WIRE_PAIRS)

    @property
    def reading_settings(self) -> tuple[tuple[str, str], ...]:
        """Query settings under which rows are streamed: in order, and in little memory."""
        return tuple(pair for pair in _READING if pair[0] in self.query_settings)

    @property
    def can_be_readonly(self) -> bool:
        """Whether a table can be made read-only once it is filled (from 26.3)."""
        return "table_readonly" in self.table_settings

    @property
    def drop_suffix(self) -> str:
        """What lets a DROP TABLE of more than 50 GB pass."""
        known = "max_table_size_to_drop" in self.query_settings
        return " SYNC SETTINGS max_table_size_to_drop = 0" if known else " SYNC"


def probe_capabilities(connection: Connection) -> Capabilities:
    """Ask the ClickHouse at hand what it offers.

    Raises:
        UnsupportedError: it lacks what a snapshot needs.
        SourceError: it cannot be read.
    """
    tables = frozenset(
        texts(connection, "SELECT name FROM system.tables WHERE database = 'system'")
    )
    part_columns = frozenset(_columns(connection, "parts"))
    (row,) = connection.rows("SELECT version(), timezone(), toString(serverUUID())")
    version, zone, server = (text(value) for value in row)
    lacking = [f"system.{name}" for name in _NEEDED_TABLES if name not in tables]
    lacking += [f"system.parts.{name}" for name in _NEEDED_COLUMNS if name not in part_columns]
    if lacking:
        message = (
            f"Cannot read from ClickHouse {version}: it has no {', '.join(lacking)}, without which "
            "a snapshot cannot be proved complete. Use a newer version."
        )
        raise UnsupportedError(message)
    return Capabilities(
        version,
        connection.address,
        zone,
        server,
        frozenset(texts(connection, "SELECT name FROM system.settings")),
        frozenset(texts(connection, "SELECT name FROM system.merge_tree_settings")),
        part_columns,
        tables,
    )


def _columns(connection: Connection, table: str) -> tuple[str, ...]:
    return texts(
        connection,
        "SELECT name FROM system.columns"
        f" WHERE database = 'system' AND table = {quote_string(table)}",
    )
