"""Trees of Hive directories in SQL: hive.`uri` in statements and calls, and what they then tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest
from pyspark.sql import SparkSession

from spark_ext.procedures.declarations import Call
from spark_ext.sql.messages import in_call, in_statement
from spark_ext.system_tables import REPLICATED_PARTITION_EXPORTS
from tableformat.errors import RefusedError, UnsupportedError, UsageError
from tableformat.export.slices import SliceTask, WritePlan
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

ALLOWED: Final = "allow_experimental_export_merge_tree_part = 1"
NAMED: Final = "export_merge_tree_partition_hive_columns = 'month=toYYYYMM(d), odd=(k % 2 = 1)'"


@pytest.fixture
def keyed(places: Places) -> Places:
    """Return places whose db.keyed has two partitions, written by real tasks."""
    places.clickhouse_run(
        "CREATE OR REPLACE TABLE db.keyed (d Date, k UInt8) ENGINE = MergeTree "
        "PARTITION BY (toYYYYMM(d), k % 2 = 1) ORDER BY k",
        "INSERT INTO db.keyed VALUES ('2024-01-31', 1), ('2024-03-01', 2)",
    )
    places.reads_parts = True
    return places


def alter(session: NoSpark, tree: Path, what: str, settings: str) -> list[tuple[str, str]]:
    statement = f"ALTER TABLE ch.db.keyed EXPORT PARTITION {what} TO TABLE hive.`{tree}` SETTINGS "
    found = session.call("execute_alter", statement=statement + settings)
    return [(row["partition_id"], row["status"]) for row in found]


@pytest.mark.representative
def test_a_statement_and_the_command_line_export_to_one_tree_by_one_ledger(
    keyed: Places, session: NoSpark, tmp_path: Path
) -> None:
    """SQLCommand: the same export from every interface."""
    tree = tmp_path / "tree"
    first = alter(session, tree, "(202401, 1)", f"{ALLOWED}, {NAMED}")

    code, out, err = keyed.run("export", "db.keyed", "--all", "--to", f"hive:{tree}", "--json")
    again = alter(session, tree, "ALL", ALLOWED)

    *records, _ = [json.loads(line) for line in out.splitlines()]
    assert code == 0, err
    assert first == [("202401-1", "committed")]
    assert sorted((s["partition_id"], s["status"]) for s in records) == [
        ("202401-1", "already_exported"),
        ("202403-0", "committed"),
    ]
    assert sorted(again) == [("202401-1", "already_exported"), ("202403-0", "already_exported")]
    assert {str(p.parent.relative_to(tree)) for p in tree.rglob("*.parquet")} == {
        "month=202401/odd=1",
        "month=202403/odd=0",
    }


def test_a_changed_partition_of_a_tree_is_replaced_by_two_settings(
    keyed: Places, session: NoSpark, tmp_path: Path
) -> None:
    """ForceExport: what the SQL of the requirement says, and one word more; `read` sees one."""
    tree, force = tmp_path / "tree", "export_merge_tree_partition_force_export = 1"
    also = "export_merge_tree_partition_replace_partition"
    assert alter(session, tree, "(202401, 1)", f"{ALLOWED}, {NAMED}")[0][1] == "committed"
    keyed.clickhouse_run("INSERT INTO db.keyed VALUES ('2024-01-31', 3)")

    with pytest.raises(RefusedError) as refused:
        alter(session, tree, "(202401, 1)", f"{ALLOWED}, {force}")
    assert f"Use `{force}`, `{also} = 1` to replace" in in_statement(refused.value.message)
    with pytest.raises(UsageError, match=r"it says what .* replaces"):
        alter(session, tree, "(202401, 1)", f"{ALLOWED}, {also} = 1")
    forced = alter(session, tree, "(202401, 1)", f"{ALLOWED}, {force}, {also} = 1")
    compared = session.call(
        "verify_partition", table=f"hive.`{tree}`", source="ch.db.keyed", partition_id="202401-1"
    )

    code, out, _ = keyed.run("read", f"hive:{tree}", "--rows")
    assert forced == [("202401-1", "replaced")]
    assert (code, sorted(json.loads(line)["k"] for line in out.splitlines())) == (0, [1, 3])
    assert [(r["status"], r["rows"]) for r in compared] == [("equal", 2)]
    assert len(list(tree.rglob("*.parquet"))) == 2


@pytest.mark.parametrize(
    "names", ["", ", export_merge_tree_partition_hive_columns = 'month=toYYYYMMDD(d)'"]
)
def test_a_tree_of_another_partition_key_is_refused_as_such(
    keyed: Places, session: NoSpark, tmp_path: Path, names: str
) -> None:
    """Restrictions.PartitionKey: the requirement's example, with named directories."""
    tree, month = tmp_path / "tree", NAMED.split(", odd", maxsplit=1)[0] + "'"
    create = "CREATE OR REPLACE TABLE db.keyed (d Date) ENGINE = MergeTree ORDER BY d PARTITION BY"
    insert = "INSERT INTO db.keyed VALUES ('2024-01-31')"
    keyed.clickhouse_run(f"{create} toYYYYMM(d)", insert)
    assert alter(session, tree, "ALL", f"{ALLOWED}, {month}") == [("202401", "committed")]
    keyed.clickhouse_run(f"{create} toYYYYMMDD(d)", insert)

    with pytest.raises(RefusedError) as refused:
        alter(session, tree, "ALL", f"{ALLOWED}{names}")

    assert refused.value.code == 36
    assert in_statement(refused.value.message) == (
        f"Cannot export db.keyed to hive:file://{tree}: Tables have different partition key: "
        "PARTITION BY toYYYYMMDD(d), and the directories of the tree are named by "
        "month=toYYYYMM(d). Export to another tree, or to an Iceberg table."
    )
    assert len(list(tree.rglob("*.parquet"))) == 1


def test_a_tree_of_columns_refuses_a_key_with_an_expression_as_another(
    keyed: Places, session: NoSpark, tmp_path: Path
) -> None:
    create = "CREATE OR REPLACE TABLE db.keyed (k UInt8) ENGINE = MergeTree ORDER BY k PARTITION BY"
    keyed.clickhouse_run(f"{create} k", "INSERT INTO db.keyed VALUES (1)")
    assert alter(session, tmp_path / "tree", "ALL", ALLOWED) == [("1", "committed")]
    keyed.clickhouse_run(f"{create} k % 2", "INSERT INTO db.keyed VALUES (1)")

    with pytest.raises(RefusedError, match="Tables have different partition key") as refused:
        alter(session, tmp_path / "tree", "ALL", ALLOWED)

    assert refused.value.code == 36
    assert "PARTITION BY k % 2, and the directories of the tree are plain columns only" in (
        in_statement(refused.value.message)
    )


def test_the_advice_for_a_tree_of_other_columns_can_be_followed(
    keyed: Places, session: NoSpark, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    create = "CREATE OR REPLACE TABLE db.keyed ({}) ENGINE = MergeTree ORDER BY k PARTITION BY k"
    keyed.clickhouse_run(create.format("k UInt8, d Date, n Int64"))
    keyed.clickhouse_run("INSERT INTO db.keyed VALUES (1, '2024-01-31', 7)")
    assert alter(session, tree, "ALL", ALLOWED) == [("1", "committed")]
    keyed.clickhouse_run(create.format("k UInt8, e String, n UInt64"))
    keyed.clickhouse_run("INSERT INTO db.keyed VALUES (1, 'x', 7)")
    other = "; export to another tree, or to an Iceberg table."

    with pytest.raises(RefusedError) as refused:
        alter(session, tree, "ALL", ALLOWED)

    assert refused.value.code == 122
    assert in_statement(refused.value.message).splitlines() == [
        f"Cannot export db.keyed to hive:file://{tree}: 3 reasons.",
        *(
            f"  - Tables have different structure: column {what}{other}"
            for what in (
                "e (string) is missing in the destination",
                "n is decimal(20, 0) for ClickHouse and long in the destination",
                "d is required in the destination, and the source has no such column",
            )
        ),
    ]
    assert alter(session, tmp_path / "other", "ALL", ALLOWED) == [("1", "committed")]


def test_the_command_alter_exports_to_a_tree(keyed: Places, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    statement = f"ALTER TABLE db.keyed EXPORT PARTITION ALL TO TABLE hive.`{tree}` SETTINGS "
    where = ("--source", f"chdb:{keyed.clickhouse}", "--warehouse", str(keyed.warehouse))

    code, out, err = keyed.run("alter", f"{statement}{ALLOWED}, {NAMED}", *where, "--dry-run")
    assert (code, tree.exists()) == (0, False), err
    code, out, err = keyed.run("alter", f"{statement}{ALLOWED}, {NAMED}", *where)
    assert (code, out.count("exported · 1 row")) == (0, 2), err
    code, out, _ = keyed.run("export", "db.keyed", "--all", "--to", f"hive:{tree}")

    assert (code, out.count(": already exported")) == (0, 2)


@pytest.mark.usefixtures("keyed")
def test_calls_export_verify_list_forget_and_clean_up_a_tree(
    session: NoSpark, tmp_path: Path
) -> None:
    tree = f"hive.`{tmp_path}/tree`"
    both = {"table": tree, "source": "ch.db.keyed"}
    names = {"month": "toYYYYMM(d)", "odd": "k % 2 = 1"}
    one = {**both, "partition_id": "202401-1"}

    made = session.call("export_partition", **one, hive_columns=names)
    rest = session.call("export_partitions", **both, where="partition_id != '202401-1'")
    compared = session.call("verify_partition", **one)
    listed = session.call("exports", table=tree)
    forgotten = session.call("forget_export", **one)
    again = session.call("export_partition", **one)
    data = next((tmp_path / "tree").rglob("*.parquet"))
    twice = data.with_name(f"{data.stem}b.parquet")
    twice.write_bytes(data.read_bytes())
    swept = session.call("gc", table=tree, dry_run=False)

    assert [r["status"] for r in (*made, *rest)] == ["committed"] * 2
    assert [(r["status"], r["rows"]) for r in compared] == [("equal", 1)]
    assert {(r["destination_table"], r["status"]) for r in listed} == {
        (f"hive:file://{tmp_path}/tree", "COMPLETED")
    }
    assert len(listed) == len(rest) + len(made)
    assert [r["partition_id"] for r in forgotten] == ["202401-1"]
    assert [r["status"] for r in again] == ["unchanged"]
    assert [r["action"] for r in swept] == ["removed"]
    assert (data.exists(), twice.exists()) == (True, False)
    assert session.refreshed == []


def test_an_export_into_a_tree_is_cancelled_and_shown_in_the_system_table(
    keyed: Places, session: NoSpark, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"

    def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise KeyboardInterrupt

    keyed.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        alter(session, tree, "ID '202401-1'", f"{ALLOWED}, {NAMED}")
    keyed.before = lambda *_: None
    one = {"table": f"hive.`{tree}`", "source": "ch.db.keyed", "partition_id": "202401-1"}

    def shown() -> list[tuple[object, ...]]:
        call = Call(cast("SparkSession", session), "lake", {}, session.settings)
        rows = REPLICATED_PARTITION_EXPORTS.run(call)
        return [(r[2], r[3], r[4]) for r in rows if r[1] == f"hive:file://{tree}"]

    assert shown() == [("202401-1", "INTERRUPTED", 1)]
    (cancelled,) = session.call("cancel_export", **one)
    assert (cancelled["status"], cancelled["destination_table"]) == (
        "killed",
        f"hive:file://{tree}",
    )
    assert shown() == [("202401-1", "KILLED", 1)]
    assert alter(session, tree, "ID '202401-1'", ALLOWED) == [("202401-1", "committed")]
    assert shown() == [("202401-1", "COMPLETED", 1)]


@pytest.mark.usefixtures("keyed")
def test_what_no_tree_can_do_is_refused_by_name(session: NoSpark, tmp_path: Path) -> None:
    tree = f"hive.`{tmp_path}/tree`"

    with pytest.raises(UnsupportedError, match="no other statement supports them") as refused:
        session.call("execute_alter", statement=f"ALTER TABLE {tree} DETACH PARTITION 1")
    assert refused.value.code == 48
    with pytest.raises(UnsupportedError, match="no other statement supports them"):
        session.call("create_table_like", table=tree, source="ch.db.keyed")
    with pytest.raises(UnsupportedError, match="is an expression") as refused:
        alter(session, tmp_path / "tree", "ALL", ALLOWED)
    assert "give it one with `export_merge_tree_partition_hive_columns`" in in_statement(
        refused.value.message
    )
    assert "give it one with `hive_columns`" in in_call(refused.value.message)
    with pytest.raises(RefusedError, match="names no member"):
        alter(session, tmp_path / "tree", "ALL", f"{ALLOWED}, {NAMED[:-1]}, w=toISOWeek(d)'")
    with pytest.raises(UsageError, match="is not NAME=EXPRESSION"):
        alter(session, tmp_path / "tree", "ALL", f"{ALLOWED}, {NAMED[:-1]}, odd'")
    far = replace(session, settings=dict(session.settings))
    with pytest.raises(UsageError, match="is no scheme with a location"):
        far.call("export_partitions", table="hive.`s3:bucket/dir`", source="ch.db.keyed")
    assert list(tmp_path.iterdir()) == []
