"""Probes the features of a ClickHouse by names in its system tables, never by its version.

Builds of one version differ, so the version number proves nothing. The snapshot protocol and the
readers follow the result.

- `Offer` declares one optional feature: its sign (a column, function, setting or table setting),
  its use, and the fallback without it.
- `probe_capabilities` queries the connected ClickHouse and returns `Capabilities`. Every choice
  that depends on the version is a member of that class.

The table of offers is documented in docs/reference/versions.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from catalog.clickhouse.connection import (
    PLAIN_SETTINGS,
    ClickHouseError,
    Connection,
    text,
    texts,
)
from tableformat.clickhouse_codes import ACCESS_DENIED
from tableformat.errors import UnsupportedError
from tableformat.mergetree.wire_types import WIRE_PAIRS
from tableformat.names import quote_string

__all__ = [
    "ALWAYS_NEEDED",
    "PERMISSIONS",
    "READING_SETTINGS",
    "Capabilities",
    "Offer",
    "Sign",
    "SignKind",
    "probe_capabilities",
]


class SignKind(Enum):
    """The kind of name by which a feature is recognized."""

    COLUMN = "system.columns"
    FUNCTION = "system.functions"
    SETTING = "system.settings"
    TABLE_SETTING = "system.merge_tree_settings"


@dataclass(frozen=True, slots=True)
class Sign:
    """The name that shows a feature; a column has its system table, as in `parts.disk_name`."""

    kind: SignKind
    name: str


def _column(name: str) -> Sign:
    return Sign(SignKind.COLUMN, name)


def _setting(name: str) -> Sign:
    return Sign(SignKind.SETTING, name)


def _table_setting(name: str) -> Sign:
    return Sign(SignKind.TABLE_SETTING, name)


class Offer(Enum):
    """A feature that not every ClickHouse has: its sign, its use, and the fallback without it."""

    PART_HASHES = (
        _column("parts.hash_of_all_files"),
        "the hash of a part identifies its content",
        "name, rows and sizes identify a part; a copy is compared by rows and sizes",
    )
    PART_TYPES = (
        _column("parts.part_type"),
        "wide and compact parts are distinguished",
        "every part is wide",
    )
    DELETED_ROWS = (
        _column("parts.has_lightweight_delete"),
        "parts with rows deleted by DELETE FROM are recognized",
        "no part has any",
    )
    PART_DISKS = (
        _column("parts.disk_name"),
        "the disk of each part is known",
        "it is unknown; the server reads the parts on any disk",
    )
    DISKS = (
        _column("disks.path"),
        "parts on disks whose files cannot be opened directly are copied",
        "as above",
    )
    DISK_ENCRYPTION = (
        _column("disks.is_encrypted"),
        "encrypted disks are recognized",
        "no disk is encrypted",
    )
    DETACHED_PARTS = (
        _column("detached_parts.reason"),
        (
            "a partition of which ClickHouse set broken parts aside is refused; `archive` compares "
            "what it detached"
        ),
        "broken parts are not noticed; `archive` is refused",
    )
    DETACHED_TIMES = (
        _column("detached_parts.modification_time"),
        "`archive` frees what an earlier `archive` detached",
        "it is refused, because a detached part may be another one now",
    )
    TABLE_IDS = (
        _column("tables.uuid"),
        "the UUID identifies a table; the staging database is Atomic",
        "server and name identify a table; the staging database has the default engine",
    )
    STORAGE_POLICIES = (
        _column("tables.storage_policy"),
        "the storage policy is shown",
        "there is one, `default`",
    )
    DATA_PATHS = (
        _column("tables.data_paths"),
        "the directory of a table is the first one of its disks",
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
            "the comment of a staging table names the table and the job of its parts, and the "
            "next run can use it again"
        ),
        "only its name contains the job; the next run takes a new snapshot and drops it",
    )
    COLUMN_POSITIONS = (
        _column("columns.position"),
        "columns have the order of their declaration",
        "they have the order of `system.columns`: MATERIALIZED and ALIAS columns come last",
    )
    MUTATED_PARTS = (
        _column("mutations.parts_to_do_names"),
        "only the partitions that an unfinished mutation still has to change are refused",
        "an unfinished mutation refuses every partition of its table",
    )
    MUTATION_FAILURES = (
        _column("mutations.latest_fail_reason"),
        "the message says why a mutation failed last, and how to kill it",
        "it says neither",
    )
    SKIP_INDICES = (
        _column("data_skipping_indices.type_full"),
        "the skip indices of a table are shown",
        "they are not; the staging table has them anyway",
    )
    PROJECTIONS = (
        _column("projections.query"),
        "the projections of a table are shown",
        "they are not; the staging table has them anyway",
    )
    KEEPER_NAMES = (
        _column("replicas.zookeeper_name"),
        "a table in an auxiliary Keeper is looked up there",
        "there is one Keeper",
    )
    ROW_POLICIES = (
        _column("row_policies.name"),
        "row policies, which an export does not apply, are shown",
        "whether there are any is unknown",
    )
    SERVER_ID = (
        Sign(SignKind.FUNCTION, "serverUUID"),
        "the server's UUID and the name identify a table without a UUID",
        "host, data directory and name identify it",
    )
    SYNCHRONOUS_DROP = (
        _setting("database_atomic_wait_for_drop_and_detach_synchronously"),
        "`DROP TABLE ... SYNC` frees the disk at once",
        "`DROP TABLE`",
    )
    DROP_LIMIT = (
        _setting("max_table_size_to_drop"),
        "a staging table of more than 50 GB can be dropped",
        "only if the server's own limit allows it; otherwise the message names the file to create",
    )
    CHECK_BY_PART = (
        _setting("check_query_single_value_result"),
        "`CHECK TABLE` is set to report each part",
        "it always reports each part",
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
        "a filled staging table becomes read-only, and the next run can use it again",
        "it does not, and the next run takes a new snapshot",
    )

    def __init__(self, sign: Sign, use: str, otherwise: str) -> None:
        """Keep the texts for the page."""
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


# Settings block merges of the clone, because a restart undoes SYSTEM STOP MERGES. The space limits
# do not stop TTL merges, which have their own limit.
_MERGE_BLOCKERS: Final = (
    ("max_bytes_to_merge_at_max_space_in_pool", "1"),
    ("max_bytes_to_merge_at_min_space_in_pool", "1"),
    ("max_number_of_merges_with_ttl_in_pool", "0"),
    ("min_age_to_force_merge_seconds", "0"),
)
# One thread returns the rows of a part in order, and leaves the server's other users their share.
READING_SETTINGS: Final = (
    ("max_threads", "1"),
    ("optimize_read_in_order", "1"),
    ("max_block_size", "16384"),
    ("prefer_column_name_to_alias", "1"),
    ("output_format_arrow_compression_method", "none"),
    ("output_format_arrow_use_native_writer", "1"),
    ("output_format_native_write_json_as_string", "0"),
    ("output_format_native_encode_types_in_binary_format", "0"),
    ("max_bytes_before_external_sort", "1073741824"),
    *WIRE_PAIRS,
    *PLAIN_SETTINGS,
)
# Counting the rows reveals row policies that the user cannot see.
_MAY_BE_HIDDEN: Final = frozenset({"row_policies"})
# Only replicated tables have rows in these.
_OF_REPLICAS: Final = frozenset({"replicas", "replication_queue", "zookeeper"})
# The copy needs the permissions with which its table was once created.
PERMISSIONS: Final = (
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
    """The features of the connected ClickHouse, and the names of its settings.

    `server_uuid` is '' if the server has none. `configured` are the settings of MergeTree tables
    that the configuration of an embedded ClickHouse changes, each with its value as SQL. They are
    empty for a server, which reads its parts itself. `assumes_zone`: `server_zone` is that of this
    host, because nobody has named the zone of the server that wrote the parts.
    """

    version: str
    address: str
    host_name: str
    server_zone: str
    server_uuid: str
    query_settings: frozenset[str]
    table_settings: frozenset[str]
    offers: frozenset[Offer]
    configured: tuple[tuple[str, str], ...] = ()
    assumes_zone: bool = False

    def has(self, offer: Offer) -> bool:
        """Whether the ClickHouse has a feature."""
        return offer in self.offers

    @property
    def blockers(self) -> tuple[tuple[str, str], ...]:
        """Table settings that keep the parts of a clone unchanged."""
        return tuple(pair for pair in _MERGE_BLOCKERS if pair[0] in self.table_settings)

    @property
    def permissions(self) -> tuple[tuple[str, str], ...]:
        """Query settings with which any existing table can be created again from its columns.

        They also keep a Nested column as one column, which ClickHouse would otherwise split.
        """
        wanted = (("flatten_nested", "0"), *((name, "1") for name in PERMISSIONS))
        return tuple(pair for pair in wanted if pair[0] in self.query_settings)

    @property
    def makes_wire_values(self) -> bool:
        """Whether its casts and Arrow output return the values that are written to the lake."""
        return all(name in self.query_settings for name, _ in WIRE_PAIRS)

    @property
    def reading_settings(self) -> tuple[tuple[str, str], ...]:
        """Query settings for streaming rows in order and with little memory."""
        return tuple(pair for pair in READING_SETTINGS if pair[0] in self.query_settings)

    @property
    def drop_suffix(self) -> str:
        """The end of a DROP TABLE that frees the disk immediately, also of more than 50 GB."""
        synchronous = " SYNC" if self.has(Offer.SYNCHRONOUS_DROP) else ""
        limit = " SETTINGS max_table_size_to_drop = 0" if self.has(Offer.DROP_LIMIT) else ""
        return f"{synchronous}{limit}"


def probe_capabilities(connection: Connection) -> Capabilities:
    """Query the features of the connected ClickHouse.

    Raises:
        UnsupportedError: it lacks features that a snapshot needs.
        SourceError: it cannot be read.
    """
    signs = {kind: _names(connection, kind) for kind in SignKind}
    missing = [sign for sign in ALWAYS_NEEDED if sign.name not in signs[sign.kind]]
    offers = frozenset(o for o in Offer if o.sign.name in signs[o.sign.kind])
    server_id = "toString(serverUUID())" if Offer.SERVER_ID in offers else "''"
    (row,) = connection.rows(f"SELECT version(), hostName(), timezone(), {server_id}")
    version, host, zone, server = (text(value) for value in row)
    if missing:
        message = (
            f"Cannot read from ClickHouse {version}: it has no {_shown(missing)}, without which "
            "a snapshot cannot be proved complete. Use a newer version."
        )
        raise UnsupportedError(message)
    return Capabilities(
        version,
        connection.address,
        host,
        zone,
        server,
        signs[SignKind.SETTING],
        signs[SignKind.TABLE_SETTING],
        offers,
        () if connection.address else _configured(connection),
    )


def _configured(connection: Connection) -> tuple[tuple[str, str], ...]:
    found = connection.rows(
        "SELECT name, value FROM system.merge_tree_settings WHERE changed ORDER BY name"
    )
    return tuple((text(row[0]), quote_string(text(row[1]))) for row in found)


def _names(connection: Connection, kind: SignKind) -> frozenset[str]:
    """Return the names of one kind that exist; of columns and functions only those of signs."""
    wanted = [s.name for s in (*(o.sign for o in Offer), *ALWAYS_NEEDED) if s.kind is kind]
    match kind:
        case SignKind.SETTING | SignKind.TABLE_SETTING:
            sql = f"SELECT name FROM {kind.value}"
        case SignKind.FUNCTION:
            sql = f"SELECT name FROM {kind.value} WHERE name IN ({_listed(wanted)})"
        case SignKind.COLUMN:
            tables = sorted({name.partition(".")[0] for name in wanted})
            sql = (
                f"SELECT concat(table, '.', name) FROM {kind.value}"
                f" WHERE database = 'system' AND table IN ({_listed(tables)})"
            )
            found = frozenset(texts(connection, sql))
            return found | _unlisted(connection, tuple(n for n in wanted if n not in found))
        case unexpected:
            assert_never(unexpected)
    return frozenset(texts(connection, sql))


def _unlisted(connection: Connection, wanted: tuple[str, ...]) -> frozenset[str]:
    """Return the wanted columns that a server has, but does not list for its user.

    A server lists columns on which the user has a grant, and lets every user read further ones. If
    they counted as missing, a table without `tables.uuid` would have another identity for each
    user.
    """
    if not connection.address:
        return frozenset()
    found: set[str] = set()
    for table in sorted({name.partition(".")[0] for name in wanted} - _MAY_BE_HIDDEN):
        try:
            columns = texts(connection, f"DESCRIBE TABLE (SELECT * FROM system.{table})")
        except ClickHouseError as error:
            is_closed = error.code == ACCESS_DENIED and _is_closed(connection, table)
            if error.code == ACCESS_DENIED and not is_closed:
                raise
            # The table does not exist, or the version has no DESCRIBE for queries, and then no such
            # rights.
            continue
        found |= {f"{table}.{column}" for column in columns}
    return frozenset(found)


def _is_closed(connection: Connection, table: str) -> bool:
    """Whether a user may not read a system table at all that only replicated tables have rows in.

    The right is needed only for such tables, whose query is then refused with the name of the
    right. A user who may read only some of its columns is refused here, because the others would
    seem missing.
    """
    if table not in _OF_REPLICAS:
        return False
    try:
        connection.rows(f"SELECT 1 FROM system.{table} WHERE 0")
    except ClickHouseError as error:
        return error.code == ACCESS_DENIED
    return False


def _listed(names: Iterable[str]) -> str:
    return ", ".join(quote_string(name) for name in names)


def _shown(missing: Iterable[Sign]) -> str:
    return ", ".join(
        f"system.{s.name}" if s.kind is SignKind.COLUMN else f"setting {s.name}" for s in missing
    )
