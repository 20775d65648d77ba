"""Statements of ClickHouse's documentation and of the requirements, for tests that need real ones.

`KNOWN` are those that ClickHouse's own parser has, `OURS` those that only exist here. Where the two
parsers differ otherwise, REFUSED_HERE and REFUSED_THERE have an example each, and the reason.
"""

from __future__ import annotations

from typing import Final

__all__ = ["KNOWN", "OURS", "REFUSED_HERE", "REFUSED_THERE"]

_ALTER: Final = (
    "DETACH PARTITION '2020-11-21'",
    "DETACH PART 'all_2_2_0'",
    "DETACH PARTITION ALL",
    "DROP PARTITION '2020-11-21'",
    "DROP PART 'all_4_4_0'",
    "DROP DETACHED PARTITION ALL",
    "DROP DETACHED PART 'all_4_4_0'",
    "FORGET PARTITION '20201121'",
    "ATTACH PARTITION 201901",
    "ATTACH PARTITION ALL",
    "ATTACH PART '201901_1_1_0'",
    "ATTACH PARTITION tuple(toYYYYMM(toDate('2019-01-25'))) FROM db.table1",
    "ATTACH PARTITION ALL FROM table1",
    "REPLACE PARTITION (202401, 'x') FROM `db`.\"table 1\"",
    "MOVE PARTITION ID '201901' TO TABLE dest",
    "MOVE PART '20190301_14343_16206_438' TO VOLUME 'slow'",
    "MOVE PARTITION '2019-09-01' TO DISK 'fast_ssd'",
    "CLEAR COLUMN hour in PARTITION 201902",
    "CLEAR COLUMN IF EXISTS n.a",
    "CLEAR INDEX i IN PARTITION ID '201902'",
    "FREEZE",
    "FREEZE PARTITION -5 WITH NAME 'backup'",
    "UNFREEZE WITH NAME 'backup'",
    "UNFREEZE PARTITION tuple() WITH NAME 'backup'",
    "FETCH PARTITION 201902 FROM '/clickhouse/tables/01-01/visits'",
    "FETCH PART '201901_2_2_0' FROM '/clickhouse/tables/01-01/visits'",
    "UPDATE x = x + 1, s = 'it''s' IN PARTITION 2 WHERE p = 2",
    "UPDATE x = 1 WHERE p IN (1, 2) AND NOT s LIKE 'a%'",
    "DELETE IN PARTITION ID '2' WHERE p = 2",
    "DELETE WHERE p = 2 OR p IS NULL",
    "DELETE WHERE arrayExists(x -> x > p, a)",
    "DELETE IN PARTITION 2 WHERE CASE WHEN p = 1 THEN s = 'a' ELSE s = 'b' END",
    "UPDATE x = p = 2 ? 1 : x + 1, s = CASE s WHEN 'a' THEN 'b' ELSE s END WHERE 1",
    "DROP PARTITION tuple(toYYYYMM(toDate('2019-01-25') + 31))",
    "DROP PARTITION (1 + 1, 'x' || 'y')",
)
_GATE: Final = "SETTINGS allow_experimental_export_merge_tree_part = 1"
KNOWN: Final = (
    *(f"ALTER TABLE db.t {command}" for command in _ALTER),
    "ALTER TABLE t ON CLUSTER c DROP PARTITION 1, DROP PARTITION 2",
    "ALTER TEMPORARY TABLE t DROP PARTITION 1",
    "ALTER TABLE t ON CLUSTER '{cluster}' (FREEZE), (DROP PARTITION NULL)",
    "ALTER TABLE t DROP PARTITION 1 INTO OUTFILE '/a/file' FORMAT JSON SETTINGS alter_sync = 1",
    "ALTER TABLE t DROP PARTITION 1 INTO OUTFILE 'f' TRUNCATE COMPRESSION 'gzip' LEVEL 3",
    "ALTER TABLE t DROP PARTITION 1 SETTINGS a = 1, b = 'x', c = -2.5, d = DEFAULT FORMAT JSON",
    "-- a comment\nALTER /* nested /* one */ */ TABLE t DROP PARTITION x'41' # the end\n;;",
    "OPTIMIZE TABLE table_not_partitioned PARTITION tuple() FINAL",
    "OPTIMIZE TABLE db.t ON CLUSTER c PARTITION ID '1' DEDUPLICATE BY a, b SETTINGS x = 1",
    "OPTIMIZE TABLE t FINAL DEDUPLICATE BY * EXCEPT (a, b)",
    "KILL QUERY WHERE query_id = '2b7f' SYNC",
    "KILL QUERY ON CLUSTER c WHERE query_id IN ('a', 'b') TEST FORMAT JSON",
    "DELETE FROM db.t ON CLUSTER c IN PARTITION 1 WHERE p = 2 SETTINGS x = 1",
    "UPDATE t SET x = 1, y = 'a' IN PARTITION ID '1' WHERE p = 2",
)
OURS: Final = (
    "ALTER TABLE source_table EXPORT PARTITION ID '2020' TO TABLE destination_table",
    f"ALTER TABLE ch.db.events EXPORT PARTITION 202401 TO TABLE lake.analytics.events {_GATE}",
    f"ALTER TABLE db.t EXPORT PARTITION ALL TO TABLE lake.ns.t INTO OUTFILE 'f' {_GATE}",
    f"ALTER TABLE db.t EXPORT PARTITION ALL TO TABLE lake.ns.t FORMAT JSON {_GATE}",
    "ALTER TEMPORARY TABLE t EXPORT PARTITION 1 TO TABLE lake.ns.t",
    "ALTER TABLE db.t EXPORT PART 'all_1_1_0' TO TABLE hive.`s3://bucket/tree`",
    "ALTER TABLE db.t EXPORT PARTITION 1 TO TABLE a.b.c, EXPORT PARTITION 2 TO TABLE a.b.c",
    "ALTER TABLE lake.ns.t DROP PARTITION 1",
    "ALTER TABLE users ATTACH PART 201901_2_2_0",
    "ALTER TABLE users DROP DETACHED PART ALL",
    "ALTER TABLE users DROP PARTITION toYYYYMM(toDate('2024-01-25'))",
)

# What ClickHouse reads and we refuse: an example, what our message says, and why.
REFUSED_HERE: Final = (
    ("ALTER TABLE t DROP PARTITION tuple(a)", "is the name of a column",
     "ClickHouse refuses it when it runs; a name is mostly a text without its quotes"),
    ("ALTER TABLE t DROP PARTITION (2024-01-01, 1)", "calculates",
     "a date without quotes is the number 2022"),
    ("ALTER TABLE t DROP PARTITION tuple(2024-01-31)", "calculates",
     "a date without quotes is the number 1992"),
    ("ALTER TABLE t DROP PARTITION tuple((SELECT 1))", "a subquery",
     "the value of a partition is a constant"),
    ("ALTER TABLE t DELETE WHERE a IN (SELECT 1)", "a subquery",
     "a condition reads its own row, and no other"),
    ("ALTER TABLE t DELETE WHERE quantile(0.5)(a) = 1", r"found '\('",
     "a condition reads its own row: it has no aggregate function"),
    ("ALTER TABLE t DELETE WHERE (a AS b) = 1", "found 'AS'", "a value has no other name"),
    ("ALTER TABLE t DELETE WHERE CASE WHEN a b THEN 1 END", "THEN is expected",
     "a value has no other name"),
    ("ALTER TABLE t DELETE WHERE a IS DISTINCT FROM 1", "found 'DISTINCT'", "write a <=> 1"),
    ("ALTER TABLE t DELETE WHERE * = 1", r"found '\*'", "all columns are no value"),
    ("ALTER TABLE t DROP PARTITION {p:String}", "is a parameter",
     "parameters arrive as text, and nobody fills them in"),
    ("ALTER TABLE t DROP PARTITION ID 'a/b'", "cannot be used",
     "an id has letters, digits and '-' only"),
    ("ALTER TABLE t DROP PART 'all'", "cannot be used",
     "a part's name ends in three or four numbers"),
    ("ALTER TABLE t FREEZE PARTITION ALL", "'ALL' at .* cannot stand here",
     "ClickHouse refuses it when it runs, with the same words"),
    ("ALTER TABLE t MOVE PART 'all_1_1_0' TO SHARD '/x'", "is no place of a lake table",
     "a lake table has no shards"),
    ("ALTER TABLE t FREEZE WITH NAME ''", "the name at .* is empty",
     "a backup without a name cannot be found again"),
    ("ALTER TABLE t DROP PARTITION 1, ADD COLUMN x UInt8", "A command about partitions",
     "commands that are not about partitions are Spark's"),
    ("ALTER TABLE t DROP PARTITION 1 PARALLEL WITH ALTER TABLE t FREEZE", "found 'PARALLEL'",
     "one statement at a time"),
    ("ALTER TABLE t FREEZE INTO OUTFILE 'f' APPEND TRUNCATE", "is a second word",
     "the two contradict each other"),
    ("ALTER TABLE t FREEZE SETTINGS a = NULL", "found 'NULL'", "no setting is NULL"),
    ("ALTER TABLE t DROP PARTITION 0x1p3", "found 'p3'", "hexadecimal numbers are whole here"),
    ("ALTER TABLE t DROP PARTITION '\\xff'", "bytes that are not UTF-8",
     "text is UTF-8; such a partition is named by its id"),
    ("OPTIMIZE TABLE t FINAL CLEANUP", "has no meaning for a lake table",
     "it is about rows that ClickHouse marks as deleted"),
    ("OPTIMIZE TABLE t DEDUPLICATE BY COLUMNS('a')", "chooses columns by a pattern",
     "name the columns"),
    ("KILL QUERY WHERE user = 'x'", "not about query_id alone",
     "exports are known by their query_id"),
)  # fmt: skip

# What we read and ClickHouse refuses, and why we do.
REFUSED_THERE: Final = (
    ("ALTER TABLE t EXPORT PARTITION ID '1' TO TABLE d", "the requirement's statement"),
    ("ALTER TABLE a.b.c DROP PARTITION 1", "names of Spark have a catalog in front"),
    ("ALTER TABLE t ATTACH PART 201901_2_2_0", "ClickHouse's documentation writes it"),
    ("ALTER TABLE t DROP DETACHED PART ALL", "ClickHouse's documentation writes it"),
    ("ALTER TABLE t DROP PARTITION toYYYYMM(toDate('2024-01-25'))", "means one value, as in tuple"),
)
