"""Statements as the requirement documents write them, in stories that can be run.

A story has tables of ClickHouse, which are exported first, and statements in an order in which each
is about something. `text` is what stands in the document: a statement as it stands there, or a form
of several (`PARTITION|PART`, `[ON CLUSTER cluster]`), of which `runs` are statements. What a
document names and nobody has (a path of ZooKeeper, a disk, a query's id) is bound in `runs`, too;
`{detached 2}` and `{main 2}` stand for the name of a part of partition 2, on that branch.
Steps without an id are not of the documents: they bring the tables to where the next step begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

__all__ = [
    "CANCELLATION",
    "EXPORTS",
    "QUERIES",
    "STORIES",
    "TEMPORARY",
    "WITHOUT_MEANING",
    "Step",
    "Story",
    "exports_into",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One statement or form of a document, by the requirement's id.

    `ends` is what each of `runs` ends with: the statuses of its partitions without repetition, or
    ClickHouse's code of a refusal (0 for one that ClickHouse has no code for).
    """

    id: str
    text: str
    ends: str | int
    runs: tuple[str, ...] = ()

    @property
    def statements(self) -> tuple[str, ...]:
        """What is run."""
        return self.runs or (self.text,)


@dataclass(frozen=True, slots=True)
class Story:
    """Tables of ClickHouse's database `default`, those that are in the lake before, and steps."""

    clickhouse: tuple[str, ...]
    exported: tuple[str, ...]
    steps: tuple[Step, ...]


_RQ: Final = "RQ.ClickHouse.ExportPartition."
_EXPORT: Final = "ALTER TABLE source_table EXPORT PARTITION ID '2020' TO TABLE destination_table"
_GATE: Final = "SETTINGS allow_experimental_export_merge_tree_part = 1"
_DESTINATION: Final = re.compile(r"\b(default\.)?destination_table\b")
_SOURCE: Final = "(p UInt64, k String, d UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY k"
_ROWS: Final = "VALUES (2020, 'key1', 100), (2020, 'key2', 200), (2021, 'key3', 300)"

EXPORTS: Final = Story(
    (
        *(f"CREATE TABLE {name} {_SOURCE}" for name in ("source_table", "my_table", "local_table")),
        *(f"INSERT INTO {name} {_ROWS}" for name in ("source_table", "my_table")),
    ),
    (),
    (
        Step(f"{_RQ}Settings.AllowExperimental.Disabled", _EXPORT, 344),
        Step(
            f"{_RQ}Restrictions.SourcePartition",
            f"{_EXPORT.replace('2020', '2025')} {_GATE}",
            0,
        ),
        Step(
            f"{_RQ}Restrictions.SameTable",
            f"ALTER TABLE my_table EXPORT PARTITION ID '2020' TO TABLE my_table {_GATE}",
            36,
        ),
        Step(
            f"{_RQ}Restrictions.LocalTable",
            f"ALTER TABLE source_table EXPORT PARTITION ID '2020' TO TABLE local_table {_GATE}",
            48,
        ),
        Step(f"{_RQ}Settings.AllowExperimental", f"{_EXPORT} {_GATE}", "committed"),
        Step(f"{_RQ}Format", f"{_EXPORT} FORMAT JSON {_GATE}", "already_exported"),
        Step(
            f"{_RQ}IntoOutfile",
            f"{_EXPORT} INTO OUTFILE '/path/to/file' {_GATE}",
            "already_exported",
        ),
        Step(
            f"{_RQ}Settings.MaxRetries",
            f"{_EXPORT} {_GATE}, export_merge_tree_partition_max_retries = 5",
            "already_exported",
        ),
        Step(
            f"{_RQ}Settings.ManifestTTL",
            f"{_EXPORT} {_GATE}, export_merge_tree_partition_manifest_ttl = 360",
            "already_exported",
        ),
        Step(
            f"{_RQ}Settings.OverwriteFile",
            f"{_EXPORT} {_GATE}, export_merge_tree_part_overwrite_file_if_exists = 1",
            "already_exported",
        ),
        Step(
            f"{_RQ}Settings.ForceExport",
            f"{_EXPORT} {_GATE}, export_merge_tree_partition_force_export = 1",
            "replaced",
        ),
        Step(
            f"{_RQ}SQLCommand",
            "ALTER TABLE [database.]source_table_name EXPORT PARTITION ID 'partition_id' "
            f"TO TABLE [database.]destination_table_name {_GATE}",
            "already_exported",
            (
                (
                    f"ALTER TABLE default.source_table EXPORT PARTITION ID '2020' TO TABLE "
                    f"default.destination_table {_GATE}"
                ),
                (
                    f"ALTER TABLE source_table EXPORT PARTITION ID '2020' TO TABLE "
                    f"default.destination_table {_GATE}"
                ),
            ),
        ),
    ),
)

CANCELLATION: Final = (
    f"{_EXPORT} {_GATE}",
    Step(f"{_RQ}QueryCancellation", "KILL QUERY WHERE query_id = '<query_id>'", "finished"),
)
"""An export, and the statement that kills it while it runs, by its `<query_id>`."""


def exports_into(tree: str) -> tuple[Step, ...]:
    """Return the steps of `EXPORTS` with a tree of Hive directories as the destination.

    It has no rows that are replaced by the requirement's statement alone, which is `refused`: the
    next step is the statement that replaces them.
    """
    steps = []
    for step in EXPORTS.steps:
        runs = tuple(_DESTINATION.sub(f"hive.`{tree}`", one) for one in step.statements)
        forced = step.id.endswith(".ForceExport")
        steps.append(replace(step, ends="refused" if forced else step.ends, runs=runs))
        if forced:
            (one,) = runs
            both = f"{one}, export_merge_tree_partition_replace_partition = 1"
            steps.append(Step("", both, "replaced"))
    return tuple(steps)


_MONTHS: Final = (
    "(day Date, hour UInt8 DEFAULT 7) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY day"
)
_DAYS: Final = "(day Date, x UInt8) ENGINE = MergeTree PARTITION BY day ORDER BY x"
_PARTS: Final = "INSERT INTO {} VALUES ('2019-01-0{}', 1)"
_VISITS: Final = "lake.default.visits"
_KEEPER: Final = "/clickhouse/tables/01-01/visits"

_BY_MONTH: Final = Story(
    (
        *(f"CREATE TABLE {name} {_MONTHS}" for name in ("visits", "users")),
        *(_PARTS.format("visits", number) for number in (1, 2)),
        "INSERT INTO visits VALUES ('2019-02-01', 3)",
        "INSERT INTO users VALUES ('2019-03-01', 3)",
        "CREATE TABLE table_not_partitioned (x UInt8) ENGINE = MergeTree ORDER BY x",
        *("INSERT INTO table_not_partitioned VALUES (1)" for _ in range(2)),
    ),
    ("visits", "users", "table_not_partitioned"),
    (
        Step("P-52", f"ALTER TABLE users FETCH PARTITION 201902 FROM '{_KEEPER}'", "fetched",
             (f"ALTER TABLE users FETCH PARTITION 201902 FROM '{_VISITS}'",)),
        Step("P-55", "ALTER TABLE users ATTACH PARTITION 201902", "attached"),
        Step("P-53", f"ALTER TABLE users FETCH PART 201901_2_2_0 FROM '{_KEEPER}'", "fetched",
             (f"ALTER TABLE users FETCH PART 201901_2_2_0 FROM '{_VISITS}'",)),
        Step("P-55", "ALTER TABLE users ATTACH PART 201901_2_2_0", "attached",
             ("ALTER TABLE users ATTACH PART '{detached 201901}'",)),
        Step("P-70", "ALTER TABLE visits DETACH PARTITION 201901", "detached"),
        Step("P-12", "ALTER TABLE visits ATTACH PARTITION 201901", "attached"),
        Step("P-72",
             "ALTER TABLE visits DETACH PARTITION tuple(toYYYYMM(toDate('2019-01-25')))",
             "detached"),
        Step("P-71", "ALTER TABLE visits ATTACH PARTITION ALL", "attached"),
        Step("P-73", "ALTER TABLE visits DETACH PARTITION ID '201901'", "detached"),
        Step("P-12", "ALTER TABLE visits ATTACH PART 201901_2_2_0", "attached"),
        Step("P-74", "ALTER TABLE visits ATTACH PART '201901_1_1_0'", "attached"),
        Step("P-36", "ALTER TABLE visits CLEAR COLUMN hour in PARTITION 201902", "changed"),
        Step("P-76", "OPTIMIZE TABLE table_not_partitioned PARTITION tuple() FINAL", "optimized"),
    ),
)  # fmt: skip
_BY_DAY: Final = Story(
    (
        *(f"CREATE TABLE {name} {_DAYS}" for name in ("mt", "hits")),
        "INSERT INTO mt VALUES ('2020-11-21', 1), ('2020-11-22', 2)",
        "INSERT INTO hits VALUES ('2019-03-01', 1)",
        "INSERT INTO hits VALUES ('2019-09-01', 2)",
    ),
    ("mt", "hits"),
    (
        Step("P-01", "ALTER TABLE mt DETACH PARTITION '2020-11-21'", "detached"),
        Step("", "ALTER TABLE mt ATTACH PARTITION ALL", "attached"),
        Step("P-06", "ALTER TABLE mt DROP PARTITION '2020-11-21'", "dropped"),
        Step("P-10", "ALTER TABLE mt FORGET PARTITION '20201121'", "forgotten"),
        Step("P-60", "ALTER TABLE hits MOVE PART '20190301_14343_16206_438' TO VOLUME 'slow'",
             "moved", ("ALTER TABLE hits MOVE PART '20190301_1_1_0' TO VOLUME 'slow'",)),
        Step("P-60", "ALTER TABLE hits MOVE PARTITION '2019-09-01' TO DISK 'fast_ssd'", "moved"),
    ),
)  # fmt: skip
_BY_NUMBER: Final = Story(
    (
        "CREATE TABLE mt (p UInt8, x UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY p",
        "INSERT INTO mt VALUES (1, 1), (2, 2), (2, 3)",
    ),
    ("mt",),
    (
        Step("P-64", "ALTER TABLE mt UPDATE x = x + 1 IN PARTITION 2 WHERE p = 2", "changed"),
        Step("P-64", "ALTER TABLE mt UPDATE x = x + 1 IN PARTITION ID '2' WHERE p = 2", "changed"),
        Step("P-67", "ALTER TABLE mt DELETE IN PARTITION 2 WHERE p = 2", "changed"),
        Step("", "ALTER TABLE default.mt EXPORT PARTITION ID '2' TO TABLE mt "
             f"{_GATE}, export_merge_tree_partition_force_export = 1", "committed",
             (("ALTER TABLE ch.default.mt EXPORT PARTITION ID '2' TO TABLE lake.default.mt "
              f"{_GATE}, export_merge_tree_partition_force_export = 1"),)),
        Step("P-67", "ALTER TABLE mt DELETE IN PARTITION ID '2' WHERE p = 2", "changed"),
    ),
)  # fmt: skip
_IN_PARTS: Final = Story(
    (
        "CREATE TABLE mt (x UInt8) ENGINE = MergeTree ORDER BY x",
        *(f"INSERT INTO mt VALUES ({number})" for number in range(4)),
    ),
    ("mt",),
    (
        Step("P-03", "ALTER TABLE mt DETACH PART 'all_2_2_0'", "detached"),
        Step("P-06", "ALTER TABLE mt DROP PART 'all_4_4_0'", "dropped"),
    ),
)
_ON: Final = ("", " ON CLUSTER cluster")
_PAIR: Final = "(p UInt8, c UInt8 DEFAULT 7, INDEX i c TYPE minmax) ENGINE = MergeTree"


def _each(text: str) -> tuple[str, ...]:
    """Return a statement with and without a cluster."""
    return tuple(text.replace("{}", on) for on in _ON)


_034: Final = "RQ.SRS-034.ClickHouse.Alter.Table."
_FORMS: Final = Story(
    (
        *(
            f"CREATE TABLE {name} {_PAIR} PARTITION BY p ORDER BY p"
            for name in (
                *("table_name", "table1", "table2", "table_source", "table_dest"),
                *("dest_table", "src_table"),
            )
        ),
        *(
            f"INSERT INTO {name} VALUES ({partition}, {partition})"
            for name in ("table_name", "table1", "table_source", "src_table")
            for partition in (1, 2, 3, 4)
        ),
        *(f"INSERT INTO {name} VALUES (9, 9)" for name in ("table2", "table_dest", "dest_table")),
    ),
    ("table_name", "table1", "table2", "table_source", "table_dest", "dest_table", "src_table"),
    (
        Step("P-01", "ALTER TABLE table_name [ON CLUSTER cluster] DETACH PARTITION|PART "
             "partition_expr", "detached",
             ("ALTER TABLE table_name DETACH PARTITION 1",
              "ALTER TABLE table_name ON CLUSTER cluster DETACH PART '2_2_2_0'")),
        Step("P-12", "ALTER TABLE table_name [ON CLUSTER cluster] ATTACH PARTITION|PART "
             "partition_expr", "attached",
             ("ALTER TABLE table_name ATTACH PARTITION 1",
              "ALTER TABLE table_name ON CLUSTER cluster ATTACH PART '2_2_2_0'")),
        Step("", "ALTER TABLE table_name DETACH PARTITION 1", "detached"),
        Step(f"{_034}AttachPartitionOrPart", "ALTER TABLE table_name [ON CLUSTER cluster] ATTACH "
             "PARTITION|PART [partition_expr]", "attached",
             ("ALTER TABLE table_name ATTACH PARTITION 1",)),
        Step("P-64", "ALTER TABLE [db.]table [ON CLUSTER cluster] UPDATE column1 = expr1 [, ...] "
             "[IN PARTITION partition_expr] WHERE filter_expr", "changed",
             ("ALTER TABLE table_name UPDATE c = c + 1 WHERE p = 1",
              ("ALTER TABLE default.table_name ON CLUSTER cluster UPDATE c = 1 IN PARTITION 1 "
              "WHERE p = 1"))),
        Step("P-36", "ALTER TABLE table_name [ON CLUSTER cluster] CLEAR COLUMN column_name "
             "IN PARTITION partition_expr", "changed",
             tuple(one.replace("1", str(n)) for n, one in enumerate(
                 _each("ALTER TABLE table_name{} CLEAR COLUMN c IN PARTITION 1"), 1))),
        Step("P-51", "ALTER TABLE table_name [ON CLUSTER cluster] CLEAR INDEX index_name "
             "IN PARTITION partition_expr", "unchanged",
             _each("ALTER TABLE table_name{} CLEAR INDEX i IN PARTITION 1")),
        Step("P-37", "ALTER TABLE table_name [ON CLUSTER cluster] FREEZE [PARTITION "
             "partition_expr] [WITH NAME 'backup_name']", "frozen",
             ("ALTER TABLE table_name FREEZE",
              "ALTER TABLE table_name ON CLUSTER cluster FREEZE WITH NAME 'backup_name'",
              "ALTER TABLE table_name FREEZE PARTITION 1",
              "ALTER TABLE table_name FREEZE PARTITION 1 WITH NAME 'other_name'")),
        Step("P-50", "ALTER TABLE table_name [ON CLUSTER cluster] UNFREEZE [PARTITION 'part_expr'] "
             "WITH NAME 'backup_name'", "unfrozen",
             ("ALTER TABLE table_name UNFREEZE PARTITION '1' WITH NAME 'backup_name'",
              "ALTER TABLE table_name ON CLUSTER cluster UNFREEZE WITH NAME 'backup_name'")),
        Step("P-60", "ALTER TABLE table_name [ON CLUSTER cluster] MOVE PARTITION|PART "
             "partition_expr TO DISK|VOLUME 'disk_name'", "moved",
             ("ALTER TABLE table_name MOVE PARTITION 1 TO DISK 'fast_ssd'",
              "ALTER TABLE table_name ON CLUSTER cluster MOVE PARTITION 2 TO VOLUME 'slow'",
              "ALTER TABLE table_name MOVE PART '3_3_3_0' TO DISK 'fast_ssd'",
              "ALTER TABLE table_name MOVE PART '4_4_4_0' TO VOLUME 'slow'")),
        Step("P-67", "ALTER TABLE [db.]table [ON CLUSTER cluster] DELETE [IN PARTITION "
             "partition_expr] WHERE filter_expr", "changed",
             ("ALTER TABLE table_name DELETE WHERE p = 1",
              ("ALTER TABLE default.table_name ON CLUSTER cluster DELETE IN PARTITION 2 "
              "WHERE p = 2"))),
        Step("P-06", "ALTER TABLE table_name [ON CLUSTER cluster] DROP PARTITION|PART "
             "partition_expr", "dropped",
             ("ALTER TABLE table_name DROP PARTITION 3",
              "ALTER TABLE table_name ON CLUSTER cluster DROP PART '{main 4}'")),
        Step("P-10", "ALTER TABLE table_name FORGET PARTITION partition_expr", "forgotten",
             ("ALTER TABLE table_name FORGET PARTITION 3",)),
        Step("P-52", "ALTER TABLE table_name [ON CLUSTER cluster] FETCH PARTITION|PART "
             "partition_expr FROM 'path-in-zookeeper'", "fetched",
             ("ALTER TABLE table_name FETCH PARTITION 1 FROM 'lake.default.table1'",
              "ALTER TABLE table_name FETCH PART '2_2_2_0' FROM 'lake.default.table1'",
              ("ALTER TABLE table_name ON CLUSTER cluster FETCH PARTITION 3 "
              "FROM 'lake.default.table1'"))),
        Step("P-09", "ALTER TABLE table_name [ON CLUSTER cluster] DROP DETACHED PARTITION|PART "
             "ALL|partition_expr", "dropped",
             ("ALTER TABLE table_name DROP DETACHED PARTITION 1",
              "ALTER TABLE table_name ON CLUSTER cluster DROP DETACHED PART '{detached 2}'",
              "ALTER TABLE table_name DROP DETACHED PARTITION ALL")),
        Step("", "ALTER TABLE table_name FETCH PARTITION 1 FROM 'lake.default.table1'", "fetched"),
        Step("P-09", "ALTER TABLE table_name [ON CLUSTER cluster] DROP DETACHED PARTITION|PART "
             "partition_expr", "dropped",
             ("ALTER TABLE table_name ON CLUSTER cluster DROP DETACHED PART ALL",)),
        Step(f"{_034}AttachPartitionFrom", "ALTER TABLE dest_table [ON CLUSTER cluster] ATTACH "
             "PARTITION partition_expr FROM src_table", "attached",
             ("ALTER TABLE dest_table ATTACH PARTITION 1 FROM src_table",
              "ALTER TABLE dest_table ON CLUSTER cluster ATTACH PARTITION 2 FROM src_table")),
        Step("P-16", "ALTER TABLE table2 [ON CLUSTER cluster] ATTACH PARTITION partition_expr "
             "FROM table1", "attached",
             ("ALTER TABLE table2 ATTACH PARTITION 1 FROM table1",
              "ALTER TABLE table2 ON CLUSTER cluster ATTACH PARTITION 2 FROM table1")),
        Step("P-23", "ALTER TABLE table2 [ON CLUSTER cluster] REPLACE PARTITION partition_expr "
             "FROM table1", "replaced",
             ("ALTER TABLE table2 REPLACE PARTITION 3 FROM table1",
              "ALTER TABLE table2 ON CLUSTER cluster REPLACE PARTITION 4 FROM table1")),
        Step("P-30", "ALTER TABLE table_source [ON CLUSTER cluster] MOVE PARTITION partition_expr "
             "TO TABLE table_dest", "moved",
             ("ALTER TABLE table_source MOVE PARTITION 1 TO TABLE table_dest",
              "ALTER TABLE table_source ON CLUSTER cluster MOVE PARTITION 2 TO TABLE table_dest")),
    ),
)  # fmt: skip

STORIES: Final = {
    "by month": _BY_MONTH,
    "by day": _BY_DAY,
    "by number": _BY_NUMBER,
    "in parts": _IN_PARTS,
    "forms": _FORMS,
}
"""Statements on lake tables, whose destinations have the names that the documents give them."""

TEMPORARY: Final = (
    (
        "CREATE TEMPORARY TABLE temp_table (p UInt64, k String, d UInt64) ENGINE = "
        "ReplicatedMergeTree('/clickhouse/tables/{shard}/temp_table', '{replica}') "
        "PARTITION BY p ORDER BY k"
    ),
    "INSERT INTO temp_table VALUES (2020, 'key1', 100), (2020, 'key2', 200)",
    f"ALTER TABLE temp_table EXPORT PARTITION ID '2020' TO TABLE destination_table {_GATE}",
)
"""Those of RQ.ClickHouse.ExportPartition.TemporaryTable: ClickHouse refuses the first's engine."""

_EXPORTED: Final = "source_table, destination_table, partition_id, status, parts_total, "
QUERIES: Final = {
    f"{_RQ}PartialProgress": f"SELECT {_EXPORTED}parts_processed, parts_failed "
    "FROM system.replicated_partition_exports WHERE partition_id = '2020'",
    f"{_RQ}Logging": "SELECT event_time, event_type, table, partition, rows, bytes_read, "
    "bytes_written FROM system.part_log WHERE event_type = 'EXPORT_PARTITION' "
    "ORDER BY event_time DESC",
    f"{_RQ}SystemTables.Exports": f"SELECT {_EXPORTED}parts_processed, parts_failed, create_time, "
    "update_time FROM system.replicated_partition_exports WHERE status = 'IN_PROGRESS'",
}
"""What is asked of system tables, by the requirement's id: after `USE mergeberg` in Spark SQL."""

WITHOUT_MEANING: Final = (
    # How ClickHouse makes temporary tables.
    (
        "CREATE TEMPORARY TABLE [IF NOT EXISTS] table_name ( name1 [type1] "
        "[DEFAULT|MATERIALIZED|ALIAS expr1], name2 [type2] "
        "[DEFAULT|MATERIALIZED|ALIAS expr2], ... ) "
        "[ENGINE = engine]"
    ),
    # Sentences that begin with a statement's words.
    (
        "ALTER TABLE t FREEZE PARTITION copies only the data, not table metadata. To make a backup "
        "of table metadata, copy the file /var/lib/clickhouse/metadata/database/table.sql"
    ),
    "ALTER TABLE t ATTACH PARTITION queries to add the data to a table",
)
"""What else the documents have and is no statement of theirs to run here."""
