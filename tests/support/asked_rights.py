"""Calls of every procedure, statements among them, and the rights that each asks for."""

from __future__ import annotations

from spark_ext.procedures.declarations import Value
from tests.support.session_lake import ALLOWED

__all__ = ["CALLS", "EXPORT"]

EXPORT = (
    "SELECT ON ch.db.t, INSERT ON lake.n.t, SHOW ON ch.db.*, SHOW ON lake.n.*,"
    " SELECT ON system.tables, SELECT ON system.replicated_partition_exports"
)
ENDS: dict[str, Value] = {"table": "lake.n.t", "source": "ch.db.t"}
ONE: dict[str, Value] = {**ENDS, "partition_id": "1"}
DELETE = "ALTER DELETE ON lake.n.t"
REPLACING = "export_merge_tree_partition_replace_partition = 1"
STATEMENTS = {
    f"ALTER TABLE ch.db.t EXPORT PARTITION ID '1' TO TABLE lake.n.t {ALLOWED}": EXPORT,
    f"ALTER TABLE db.t EXPORT PARTITION ALL TO TABLE lake.n.t {ALLOWED}": EXPORT,
    # Rows of others go, as by REPLACE.
    f"ALTER TABLE ch.db.t EXPORT PARTITION ALL TO TABLE lake.n.t {ALLOWED}, {REPLACING}": (
        f"{EXPORT}, {DELETE}"
    ),
    f"ALTER TABLE ch.db.t EXPORT PART 'all_1_1_0' TO TABLE lake.n.t {ALLOWED}": EXPORT,
    f"ALTER TABLE ch.db.t EXPORT PARTITION ALL TO TABLE hive.`/a/b` {ALLOWED}": EXPORT.replace(
        "lake.n.t", "hive.`file:///a/b`"
    ).replace("lake.n", "hive"),
    f"ALTER TABLE ch.db.t EXPORT PARTITION ALL TO TABLE ch.db.s3 {ALLOWED}": EXPORT.replace(
        "INSERT ON lake.n.t", "INSERT ON ch.db.s3"
    ).replace(", SHOW ON lake.n.*", ""),
    "ALTER TABLE lake.n.t ATTACH PARTITION 1": "CREATE ON lake.n.t",
    "ALTER TABLE lake.n.t ATTACH PART 'a_1_1_0'": "CREATE ON lake.n.t",
    "ALTER TABLE lake.n.t ATTACH PARTITION 1 FROM lake.n.u": (
        "CREATE ON lake.n.t, SELECT ON lake.n.u"
    ),
    "ALTER TABLE lake.n.t ATTACH PARTITION 1 FROM lake.n.t.tag_a": (
        "CREATE ON lake.n.t, SELECT ON lake.n.t.tag_a"
    ),
    "ALTER TABLE lake.n.t ATTACH PARTITION 1 FROM ch.db.t": "CREATE ON lake.n.t, SELECT ON ch.db.t",
    "ALTER TABLE lake.n.t REPLACE PARTITION 1 FROM lake.n.u": (
        f"INSERT ON lake.n.t, {DELETE}, SELECT ON lake.n.u"
    ),
    "ALTER TABLE lake.n.t MOVE PARTITION 1 TO TABLE lake.n.u": (
        f"SELECT ON lake.n.t, {DELETE}, INSERT ON lake.n.u"
    ),
    "ALTER TABLE lake.n.t MOVE PARTITION 1 TO DISK 'd'": "ALTER MOVE PARTITION ON lake.n.t",
    "ALTER TABLE lake.n.t MOVE PART 'a_1_1_0' TO VOLUME 'd'": "ALTER MOVE PARTITION ON lake.n.t",
    "ALTER TABLE lake.n.t DETACH PARTITION 1": DELETE,
    "ALTER TABLE lake.n.t DROP PARTITION 1, DROP DETACHED PARTITION ALL, FREEZE": (
        f"{DELETE}, ALTER FREEZE PARTITION ON lake.n.t"
    ),
    "ALTER TABLE lake.n.t FORGET PARTITION 1": DELETE,
    "ALTER TABLE lake.n.t UNFREEZE WITH NAME 'a'": "ALTER FREEZE PARTITION ON lake.n.t",
    "ALTER TABLE lake.n.t FETCH PARTITION 1 FROM 'lake.n.u'": (
        "ALTER FETCH PARTITION ON lake.n.t, SELECT ON lake.n.u"
    ),
    "ALTER TABLE lake.n.t FETCH PARTITION 1 FROM 'lake.n.`u.v`'": (
        "ALTER FETCH PARTITION ON lake.n.t, SELECT ON lake.n.`u.v`"
    ),
    "ALTER TABLE lake.n.t FETCH PARTITION 1 FROM '/clickhouse/tables/1/u'": (
        "ALTER FETCH PARTITION ON lake.n.t, SELECT ON *.*"
    ),
    "ALTER TABLE lake.n.t CLEAR COLUMN c IN PARTITION 1": "ALTER CLEAR COLUMN ON lake.n.t",
    "ALTER TABLE lake.n.t CLEAR INDEX i": "ALTER CLEAR INDEX ON lake.n.t",
    "ALTER TABLE lake.n.t UPDATE c = 1 WHERE c = 2": "ALTER UPDATE ON lake.n.t",
    "ALTER TABLE lake.n.t DELETE IN PARTITION 1 WHERE c = 2": DELETE,
    "UPDATE lake.n.t SET c = 1 IN PARTITION 1 WHERE c = 2": "ALTER UPDATE ON lake.n.t",
    "DELETE FROM lake.n.t IN PARTITION 1 WHERE c = 2": DELETE,
    "OPTIMIZE TABLE lake.n.t FINAL": "OPTIMIZE ON lake.n.t",
    "OPTIMIZE TABLE ch.db.t": "OPTIMIZE ON ch.db.t",
    "ALTER TABLE ch.db.t DROP PARTITION 1": "ALTER DELETE ON ch.db.t",
    "ALTER TABLE ch.db.t REPLACE PARTITION 1 FROM db.u": (
        "INSERT ON ch.db.t, ALTER DELETE ON ch.db.t, SELECT ON ch.db.u"
    ),
    "ALTER TABLE ch.db.t MOVE PARTITION 1 TO TABLE ch.db.u": (
        "SELECT ON ch.db.t, ALTER DELETE ON ch.db.t, INSERT ON ch.db.u"
    ),
    "ALTER TABLE ch.db.t DELETE WHERE a IN (1, 2)": "ALTER DELETE ON ch.db.t",
    # A ClickHouse that runs the statement reads other tables for these.
    "ALTER TABLE ch.db.t DELETE WHERE NOT (a IN db.u)": "ALTER DELETE ON ch.db.t, SELECT ON ch.*",
    "ALTER TABLE ch.db.t UPDATE a = joinGet('db.u', 'v', b), b = 1 WHERE 1": (
        "ALTER UPDATE ON ch.db.t, SELECT ON ch.*"
    ),
    "DELETE FROM ch.db.t IN PARTITION 1 WHERE notIn(a, u)": (
        "ALTER DELETE ON ch.db.t, SELECT ON ch.*"
    ),
    "KILL QUERY WHERE query_id = 'a' TEST": "KILL QUERY ON *.*",
}
LAKE: dict[str, Value] = {"table": "n.t"}
PARTITION: dict[str, Value] = {**LAKE, "partition_id": "1"}
ROWS: dict[str, Value] = {**LAKE, "where": "c = 2"}
FROM: dict[str, Value] = {**PARTITION, "from_table": "n.u"}
CALLS: dict[str, list[tuple[dict[str, Value], str]]] = {
    "archive_partition": [(ONE, f"{EXPORT}, ALTER DELETE ON ch.db.t")],
    "cancel_export": [
        (
            ONE,
            "SELECT ON ch.db.t, INSERT ON lake.n.t, SELECT ON system.replicated_partition_exports",
        )
    ],
    "create_table_like": [(ENDS, "CREATE TABLE ON lake.n.t, SHOW ON ch.db.t")],
    "execute_alter": [({"statement": text}, needs) for text, needs in STATEMENTS.items()],
    "export_partition": [
        (ONE, EXPORT),
        ({**ONE, "dry_run": True}, EXPORT),
        # Rows of others go, as by REPLACE.
        ({**ONE, "force": True, "replace_partition": True}, f"{EXPORT}, {DELETE}"),
    ],
    "export_partitions": [
        (ENDS, EXPORT),
        ({**ENDS, "table": "n.t", "source": "db.t"}, EXPORT),
        ({**ENDS, "force": True, "replace_partition": True}, f"{EXPORT}, {DELETE}"),
    ],
    "exports": [({}, "SELECT ON system.replicated_partition_exports")],
    "forget_export": [(ONE, DELETE)],
    "gc": [
        ({"table": "lake.n.t"}, DELETE),
        ({"source": "ch"}, "DROP TABLE ON ch.*"),
        ({**ENDS, "dry_run": False}, f"{DELETE}, DROP TABLE ON ch.*"),
    ],
    "partitions": [
        ({"table": "ch.db.t"}, "SELECT ON ch.db.t"),
        ({"table": "lake.n.t"}, "SELECT ON lake.n.t"),
    ],
    "parts": [({"table": "ch.db.t"}, "SELECT ON ch.db.t")],
    "verify_partition": [(ONE, "SELECT ON ch.db.t, SELECT ON lake.n.t")],
    "attach_partition": [
        (PARTITION, "CREATE ON lake.n.t"),
        (FROM, "CREATE ON lake.n.t, SELECT ON lake.n.u"),
        ({**PARTITION, "from_table": "ch.db.t"}, "CREATE ON lake.n.t, SELECT ON ch.db.t"),
    ],
    "clear_column": [({**LAKE, "column": "c"}, "ALTER CLEAR COLUMN ON lake.n.t")],
    "clear_index": [({**LAKE, "index": "i"}, "ALTER CLEAR INDEX ON lake.n.t")],
    "delete_rows": [(ROWS, DELETE)],
    "detach_partition": [(PARTITION, DELETE), ({**PARTITION, "dry_run": True}, DELETE)],
    "drop_detached_partition": [({**LAKE, "all_partitions": True}, DELETE)],
    "drop_partition": [({**PARTITION, "table": "lake.n.t"}, DELETE)],
    "fetch_partition": [
        (
            {**PARTITION, "path": "lake.n.u"},
            "ALTER FETCH PARTITION ON lake.n.t, SELECT ON lake.n.u",
        ),
        ({**PARTITION, "path": "/a/b"}, "ALTER FETCH PARTITION ON lake.n.t, SELECT ON *.*"),
    ],
    "forget_partition": [(PARTITION, DELETE)],
    "freeze": [(LAKE, "ALTER FREEZE PARTITION ON lake.n.t")],
    "move_partition": [
        (
            {**PARTITION, "to_table": "n.u"},
            f"SELECT ON lake.n.t, {DELETE}, INSERT ON lake.n.u",
        ),
        ({**PARTITION, "to_disk": "d"}, "ALTER MOVE PARTITION ON lake.n.t"),
    ],
    "optimize": [(LAKE, "OPTIMIZE ON lake.n.t")],
    "replace_partition": [(FROM, f"INSERT ON lake.n.t, {DELETE}, SELECT ON lake.n.u")],
    "unfreeze": [({**LAKE, "name": "a"}, "ALTER FREEZE PARTITION ON lake.n.t")],
    "update_rows": [({**ROWS, "assignments": "c = 1"}, "ALTER UPDATE ON lake.n.t")],
}
