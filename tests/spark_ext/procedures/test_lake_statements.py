"""Statements on lake tables as Spark and the command line hand them over."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.catalogs import open_catalog
from spark_ext.procedures.declarations import SystemTable
from spark_ext.system_tables import DETACHED_PARTS, PARTS
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    TableFormatError,
    UnsupportedError,
    UsageError,
)
from tests.support.session_lake import ALLOWED, alter, export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.support.system_tables import asked
from tests.wrong.places import Places


@pytest.mark.parametrize(
    "literal",
    [
        *("202402", "'202402'", "(202402)", "ID '202402'", "'202402'::UInt32"),
        *("toYYYYMM(toDate('2024-02-25'))", "tuple(toYYYYMM(toDate('2024-01-25') + 7))"),
    ],
)
def test_a_partition_is_dropped_by_any_form_of_its_name(
    places: Places, session: NoSpark, dropped_from: str, literal: str
) -> None:
    (row,) = alter(session, f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION {literal}")

    assert (row["partition_id"], row["status"], row["rows"]) == ("202402", "dropped", 2)
    assert row["snapshot_id"] == opened(places, dropped_from).metadata.current_snapshot_id
    assert rows_of(places, dropped_from) == 1


def test_several_are_dropped_one_after_the_other(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    rows = alter(
        session,
        f"ALTER TABLE lake.n.{dropped_from} ON CLUSTER '{{cluster}}' DROP PARTITION 202401,"
        " DROP PARTITION 199901, DROP PARTITION 202402",
    )

    assert [row["status"] for row in rows] == ["dropped", "empty", "dropped"]
    assert rows_of(places, dropped_from) == 0


def test_a_snapshot_before_it_has_the_rows(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    before = opened(places, dropped_from).current_snapshot()
    assert before is not None

    alter(session, f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION 202402")

    assert rows_of(places, dropped_from, before.snapshot_id) == 3
    after = opened(places, dropped_from).current_snapshot()
    assert after is not None
    assert after.summary is not None
    assert after.summary["mergeberg.statement"] == "DROP PARTITION ID '202402'"


def test_rows_that_others_added_to_the_partition_go_too(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    """Harm prevented: a partition that is dropped, of which a part is still there."""
    for day, number in (("2024-02-10T00:00:00+00:00", 7), ("2024-03-10T00:00:00+00:00", 8)):
        table = opened(places, dropped_from)
        arrow = table.schema().as_arrow()
        moment = pa.scalar(day).cast(arrow.field("ts").type)
        columns = [pa.array([moment.as_py()], arrow.field("ts").type), [number], [""]]
        table.append(pa.table(columns, schema=arrow))

    (row,) = alter(session, f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION 202402")

    assert (row["rows"], row["data_files"]) == (3, 2)
    assert rows_of(places, dropped_from) == 2


def test_a_value_of_another_type_changes_nothing(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    """Nor does what stands before it in the statement."""
    with pytest.raises(UsageError, match=r"Cannot find the partition 'x' of db\.events"):
        alter(
            session,
            f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION 202402, DROP PARTITION 'x'",
        )

    assert rows_of(places, dropped_from) == 3


def test_a_table_that_no_export_made_is_refused(places: Places, session: NoSpark) -> None:
    catalog = open_catalog("lake", warehouse=places.warehouse).catalog
    catalog.create_namespace_if_not_exists("n")
    catalog.create_table_if_not_exists("n.stranger", Schema(NestedField(1, "id", LongType())))

    with pytest.raises(RefusedError, match="it records no partition key of ClickHouse"):
        alter(session, "ALTER TABLE lake.n.stranger DROP PARTITION 1")


def test_a_missing_table_is_reported(session: NoSpark) -> None:
    with pytest.raises(
        NotFoundError, match=r"Cannot find the lake table lake\.n\.nothing"
    ) as refused:
        alter(session, "ALTER TABLE lake.n.nothing DROP PARTITION 1")

    assert refused.value.code == 60


@pytest.mark.parametrize("how", ["PARTITION 202402", "PARTITION ALL"])
def test_what_is_detached_comes_back(
    places: Places, session: NoSpark, dropped_from: str, how: str
) -> None:
    (gone,) = alter(session, f"ALTER TABLE lake.n.{dropped_from} DETACH {how}")
    left = rows_of(places, dropped_from)
    (back,) = alter(session, f"ALTER TABLE lake.n.{dropped_from} ATTACH {how}")

    assert (gone["status"], back["status"]) == ("detached", "attached")
    assert left + gone["rows"] == rows_of(places, dropped_from) == 3
    assert back["rows"] == gone["rows"]


def test_what_is_detached_is_dropped(places: Places, session: NoSpark, dropped_from: str) -> None:
    rows = alter(
        session,
        f"ALTER TABLE lake.n.{dropped_from} DETACH PARTITION ALL,"
        " DROP DETACHED PARTITION 202402, ATTACH PARTITION ALL, DROP DETACHED PART ALL",
    )

    assert [row["status"] for row in rows] == ["detached", "dropped", "attached", "empty"]
    assert [row["partition_id"] for row in rows] == ["*", "202402", "*", "*"]
    assert rows_of(places, dropped_from) == 1


def listed(session: NoSpark, table: SystemTable, name: str) -> dict[str, str]:
    """Return the part of each partition of a lake table, of what a system table lists."""
    rows = (r for r in asked(table, session.settings) if r["table"] == f"lake.n.{name}")
    return {row["partition_id"]: row["name"] for row in rows}


def test_a_part_is_named_as_the_lake_or_as_the_source_names_it(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    parts = listed(session, PARTS, dropped_from)

    alter(session, f"ALTER TABLE lake.n.{dropped_from} DETACH PART '{parts['202402']}'")
    assert rows_of(places, dropped_from) == 1
    assert listed(session, DETACHED_PARTS, dropped_from) == {"202402": parts["202402"]}
    alter(session, f"ALTER TABLE lake.n.{dropped_from} ATTACH PART '{parts['202402']}'")
    assert rows_of(places, dropped_from) == 3
    assert listed(session, PARTS, dropped_from) == parts
    (source,) = (
        part["name"]
        for part in session.call("parts", table="ch.db.events")
        if part["partition_id"] == "202401"
    )
    alter(session, f"ALTER TABLE lake.n.{dropped_from} DROP PART '{source}'")
    assert rows_of(places, dropped_from) == 2


def test_small_source_parts_that_are_kept_apart_go_and_come_back_by_name(
    places: Places, session: NoSpark
) -> None:
    """As the page has it: DETACH PART 'name' of one part of several, and ATTACH PART of that."""
    places.reads_parts = True
    filled = [f"INSERT INTO db.small SELECT 1, {n} * 10 + number FROM numbers(3)" for n in range(3)]
    created = (
        "CREATE TABLE db.small (p UInt8, id Int64) ENGINE = MergeTree PARTITION BY p ORDER BY id"
    )
    stop = "SYSTEM STOP MERGES db.small"
    places.clickhouse_run("DROP TABLE IF EXISTS db.small SYNC", created, stop, *filled)
    name = "lake.n.small"
    export_all(session, "small", "small")
    with pytest.raises(RefusedError, match=r"table property mergeberg\.parts-apart"):
        alter(session, f"ALTER TABLE {name} DETACH PART '1_2_2_0'")
    with opened(places, "small").transaction() as change:
        change.set_properties({"mergeberg.parts-apart": "3"})
    alter(session, f"ALTER TABLE {name} DROP PARTITION ALL")
    forced = f"{ALLOWED}, export_merge_tree_partition_force_export = 1"
    alter(session, f"ALTER TABLE ch.db.small EXPORT PARTITION ALL TO TABLE {name} {forced}")

    (gone,) = alter(session, f"ALTER TABLE {name} DETACH PART '1_2_2_0'")

    def ids() -> list[int]:
        return sorted(opened(places, "small").scan().to_arrow().column("id").to_pylist())

    assert (gone["status"], gone["rows"]) == ("detached", 3)
    assert ids() == [0, 1, 2, 20, 21, 22]
    alter(session, f"ALTER TABLE {name} ATTACH PART '1_2_2_0'")
    assert ids() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert {r["status"] for r in export_all(session, "small", "small")} == {"already_exported"}
    alter(session, f"ALTER TABLE {name} DROP PART '1_1_1_0'")
    assert ids() == [10, 11, 12, 20, 21, 22]


def test_a_missing_part_is_reported(session: NoSpark, dropped_from: str) -> None:
    with pytest.raises(NotFoundError, match="Cannot find part 202402_7_7_0") as refused:
        alter(session, f"ALTER TABLE lake.n.{dropped_from} DROP PART '202402_7_7_0'")

    assert refused.value.code == 232


def test_what_is_frozen_is_read_by_its_name(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    rows = alter(
        session,
        f"ALTER TABLE lake.n.{dropped_from} FREEZE PARTITION 202402 WITH NAME 'before',"
        " FREEZE, DROP PARTITION ALL, UNFREEZE WITH NAME '1'",
    )

    assert [row["status"] for row in rows] == ["frozen", "frozen", "dropped", "unfrozen"]
    assert [row["rows"] for row in rows] == [2, 3, 3, 0]
    refs = opened(places, dropped_from).metadata.refs
    assert refs.keys() == {"main", "before"}
    assert rows_of(places, dropped_from, refs["before"].snapshot_id) == 2


@pytest.mark.parametrize("literal", ["'2024'", "2024", "ID '2024'", "tuple(20240)"])
def test_the_prefix_of_months_is_refused_where_the_source_has_the_new_syntax(
    session: NoSpark, dropped_from: str, literal: str
) -> None:
    """ClickHouse takes it for tables of the old syntax; elsewhere it would freeze nothing."""
    with pytest.raises(RefusedError, match="it is the prefix of months") as refused:
        alter(session, f"ALTER TABLE lake.n.{dropped_from} FREEZE PARTITION {literal}")

    assert refused.value.code == 36


@pytest.fixture
def of_old_syntax(places: Places, dropped_from: str) -> str:
    """Return the name of a lake table that remembers a source of the old syntax."""
    with opened(places, dropped_from).transaction() as change:
        change.set_properties({"mergeberg.source.engine": "MergeTree(ts, id, 8192)"})
    return dropped_from


@pytest.mark.parametrize(
    ("literal", "partition", "rows"),
    [
        ("2024", "2024*", 3),
        ("'2024'", "2024*", 3),
        ("20240", "20240*", 3),
        ("202402", "202402", 2),
        ("'202402'", "202402", 2),
        ("ID '202402'", "202402", 2),
        ("tuple(202402)", "202402", 2),
        ("tuple(2024)", "2024", None),
        ("20242", "20242*", None),
        ("2024020", "2024020", None),
    ],
)
def test_a_number_or_a_text_is_the_prefix_of_months_of_the_old_syntax(
    session: NoSpark, of_old_syntax: str, literal: str, partition: str, rows: int | None
) -> None:
    """As ClickHouse does (test_a_prefix_freezes_the_months_that_it_freezes_in_clickhouse)."""
    (row,) = alter(
        session, f"ALTER TABLE lake.n.{of_old_syntax} FREEZE PARTITION {literal} WITH NAME 'y'"
    )

    assert (row["partition_id"], row["rows"]) == (partition, rows or 0)
    assert row["status"] == ("empty" if rows is None else "frozen")


@pytest.mark.parametrize("literal", ["ID '2024'", "''", "'x'", "'2024-01-31'", "'2024010'"])
@pytest.mark.parametrize("command", ["FREEZE", "UNFREEZE"])
def test_a_text_that_no_month_begins_with_is_refused(
    session: NoSpark, of_old_syntax: str, command: str, literal: str
) -> None:
    statement = f"{command} PARTITION {literal} WITH NAME 'y'"
    with pytest.raises(RefusedError, match="its partitions are months of 6 digits") as refused:
        alter(session, f"ALTER TABLE lake.n.{of_old_syntax} {statement}")

    assert refused.value.code == 248


def test_a_prefix_is_given_to_the_command_and_to_call(
    places: Places, session: NoSpark, of_old_syntax: str
) -> None:
    table, where = f"lake.n.{of_old_syntax}", ("--warehouse", str(places.warehouse))

    code, out, err = places.run("freeze", table, "--partition", "2024", "--name", "y", *where)
    assert (code, out.partition(" · snapshot")[0]) == (
        0, "partition 2024*: frozen · 3 rows · 2 files",
    ), err  # fmt: skip
    month = session.call("unfreeze", table=table, partition="202401", name="y")
    tag = opened(places, of_old_syntax).metadata.refs["y"]
    assert rows_of(places, of_old_syntax, tag.snapshot_id) == 2
    rest = session.call("unfreeze", table=table, partition="'2024'", name="y")

    assert [row["status"] for row in (*month, *rest)] == ["unfrozen"] * 2
    assert opened(places, of_old_syntax).metadata.refs.keys() == {"main"}


def test_a_dropped_partition_is_forgotten(session: NoSpark, dropped_from: str) -> None:
    with pytest.raises(RefusedError, match="partition 202402 is not empty") as refused:
        alter(session, f"ALTER TABLE lake.n.{dropped_from} FORGET PARTITION 202402")
    assert refused.value.code == 716

    (_, row) = alter(
        session,
        f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION 202402, FORGET PARTITION 202402",
    )

    assert row["status"] == "forgotten"


def test_a_setting_of_exports_is_refused(session: NoSpark, dropped_from: str) -> None:
    with pytest.raises(UnsupportedError, match="it is one of exports, and has no effect there"):
        alter(
            session,
            f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION 202401"
            " SETTINGS export_merge_tree_partition_force_export = 1",
        )


@pytest.mark.parametrize(
    "command", ["MOVE PARTITION 202401 TO DISK 'd'", "FREEZE PARTITION ID '2024'"]
)
def test_a_command_that_cannot_run_holds_back_all_others_of_its_statement(
    places: Places, session: NoSpark, dropped_from: str, command: str
) -> None:
    with pytest.raises(TableFormatError):
        alter(session, f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION 202401, {command}")

    assert rows_of(places, dropped_from) == 3


def test_the_command_line_says_what_it_would_do_and_does_it(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    statement = f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION 202402"
    where = ("--warehouse", str(places.warehouse))

    would = places.run("alter", statement, *where, "--dry-run")
    first, second = would[1].splitlines()
    assert (would[0], first) == (0, "dry run: partition 202402 would be dropped (2 rows, 1 file)")
    assert second.startswith("  2 rows, ")
    assert second.endswith(" bytes, leave main; 0 rows, 0 bytes, come")
    assert rows_of(places, dropped_from) == 3

    code, out, err = places.run("alter", statement, *where)
    assert code == 0, err
    assert out.startswith("partition 202402: dropped · 2 rows · 1 file · ")
    assert rows_of(places, dropped_from) == 1
    assert places.run("alter", statement, *where)[1] == (
        "partition 202402: empty: nothing to do: it is not in the table\n"
    )
    assert alter(session, statement)[0]["status"] == "empty"


def test_on_cluster_is_taken_by_every_statement_and_there_is_one_table(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: scripts for a cluster that have to be rewritten for the lake."""
    places.reads_parts = True
    name, other = "on_cluster", "on_cluster_other"
    for to in (name, other):
        export_all(session, "events", to)
    table = f"lake.n.{name} ON CLUSTER '{{cluster}}'"
    statements = (
        f"ALTER TABLE {table} DETACH PARTITION 202401, ATTACH PARTITION 202401",
        f"ALTER TABLE {table} FREEZE PARTITION 202401 WITH NAME 'x', UNFREEZE WITH NAME 'x'",
        f"ALTER TABLE {table} REPLACE PARTITION 202402 FROM lake.n.{other}",
        f"ALTER TABLE {table} FETCH PARTITION 202401 FROM 'lake.n.{other}'",
        f"ALTER TABLE {table} DROP DETACHED PARTITION ALL",
        f"UPDATE {table} SET s = 'x' IN PARTITION 202402 WHERE 1",
        f"DELETE FROM {table} IN PARTITION 202402 WHERE s = 'nobody'",
        f"ALTER TABLE {table} CLEAR COLUMN s IN PARTITION 202402",
        f"OPTIMIZE TABLE {table} PARTITION 202402 FINAL",
        f"ALTER TABLE {table} CLEAR INDEX IF EXISTS i",
        f"ALTER TABLE {table} MOVE PARTITION 202401 TO TABLE lake.n.{other}",
        f"ALTER TABLE {table} ATTACH PARTITION 202401 FROM lake.n.{other}",
        f"ALTER TABLE {table} DROP PARTITION ALL, FORGET PARTITION 202401",
    )

    statuses = [row["status"] for one in statements for row in alter(session, one)]

    assert statuses == [
        *("detached", "attached", "frozen", "unfrozen", "unchanged", "fetched", "dropped"),
        *("changed", "unchanged", "changed", "unchanged", "unchanged", "moved", "attached"),
        *("dropped", "forgotten"),
    ]
    assert rows_of(places, name) == 0
