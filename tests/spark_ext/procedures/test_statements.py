"""ClickHouse's statements as Spark hands them over: EXPORT, what goes to ClickHouse, and the rest.

Without Spark: the session is only asked what its settings are.
"""

from __future__ import annotations

import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from spark_ext.sql import export as background
from spark_ext.system_tables import known_ledger
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    SourceError,
    StoppedError,
    TableFormatError,
    UnsupportedError,
    UsageError,
)
from tableformat.export.slices import Share, SliceTask, WritePlan
from tableformat.ledger import State
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

ALLOWED: Final = "SETTINGS allow_experimental_export_merge_tree_part = 1"


def partitions(places: Places, name: str) -> list[int]:
    """Return the partitions of a lake table that have files in main; none without a table."""
    catalog = open_catalog("lake", warehouse=places.warehouse).catalog
    if not catalog.table_exists(f"n.{name}"):
        return []
    table: Table = catalog.load_table(f"n.{name}")
    return sorted(task.file.partition[0] for task in table.scan().plan_files())


def rows(places: Places, sql: str) -> list[tuple[object, ...]]:
    with EmbeddedConnection(places.clickhouse) as connection:
        return [*connection.rows(sql)]


def alter(session: NoSpark, statement: str) -> list[Row]:
    return session.call("execute_alter", statement=statement)


@pytest.fixture
def many(places: Places) -> Iterator[Places]:
    """Return places whose `db.many` has the partitions 1, 2 and 3, and `db.log` has none."""
    with EmbeddedConnection(places.clickhouse) as connection:
        for name in ("many", "more"):
            connection.command(f"DROP TABLE IF EXISTS db.{name}")
            connection.command(
                f"CREATE TABLE db.{name} (p UInt8, k UInt64) ENGINE = MergeTree"
                " PARTITION BY p ORDER BY p"
            )
            connection.command(
                f"INSERT INTO db.{name} SELECT number % 3 + 1, number FROM numbers(30)"
            )
        connection.command("CREATE TABLE IF NOT EXISTS db.log (p UInt8) ENGINE = Log")
    yield places
    background.wait_for_all()


@pytest.mark.parametrize(
    ("partition", "there"),
    [("ID '2'", [2]), ("3", [3]), ("(1)", [1]), ("ALL", [1, 2, 3])],
)
def test_a_partition_is_named_in_every_form(
    many: Places, session: NoSpark, partition: str, there: list[int]
) -> None:
    table = f"form{len(partition)}_{len(there)}"
    found = alter(
        session,
        f"ALTER TABLE ch.db.many EXPORT PARTITION {partition} TO TABLE lake.n.{table} {ALLOWED}",
    )

    assert [int(row["partition_id"]) for row in found] == there
    assert {row["status"] for row in found} == {"committed"}
    assert partitions(many, table) == there


def test_without_the_setting_an_export_fails_with_the_requirements_error(
    many: Places, session: NoSpark
) -> None:
    """Only ALTER: a CALL needs no setting, and the session may give it for all statements."""
    statement = "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.gate"

    with pytest.raises(RefusedError, match="Exporting merge tree part is experimental") as refused:
        alter(session, statement)

    assert refused.value.code == 344
    assert partitions(many, "gate") == []
    name = "spark.mergeberg.allow_experimental_export_merge_tree_part"
    allowed = replace(session, settings=session.settings | {name: "1"})
    assert alter(allowed, statement)[0]["status"] == "committed"
    (called,) = session.call(
        "export_partition", table="n.gate", source="ch.db.many", partition_id="2"
    )
    assert called["status"] == "committed"


def test_several_exports_of_one_statement_are_all_done(many: Places, session: NoSpark) -> None:
    found = alter(
        session,
        "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.first, "
        f"EXPORT PARTITION ID '3' TO TABLE lake.n.second {ALLOWED}",
    )

    assert [(r["partition_id"], r["status"]) for r in found] == [
        ("1", "committed"),
        ("3", "committed"),
    ]
    assert (partitions(many, "first"), partitions(many, "second")) == ([1], [3])


def test_one_failed_export_of_several_keeps_none_back_and_says_what_is_there(
    many: Places, session: NoSpark
) -> None:
    with pytest.raises(NotFoundError) as refused:
        alter(
            session,
            "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.both, "
            "EXPORT PARTITION ID '77' TO TABLE lake.n.both, "
            f"EXPORT PARTITION ID '3' TO TABLE lake.n.both {ALLOWED}",
        )

    assert "'77'" in refused.value.message or "77" in refused.value.message
    assert "In the lake: 1 of db.many, 3 of db.many." in refused.value.message
    assert partitions(many, "both") == [1, 3]


def test_settings_act(many: Places, session: NoSpark) -> None:
    """A partition that changed is refused within its time, and replaced with force."""
    statement = "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.acts"
    alter(session, f"{statement} {ALLOWED}")
    with EmbeddedConnection(many.clickhouse) as connection:
        connection.command("INSERT INTO db.many VALUES (1, 100)")

    with pytest.raises(RefusedError, match=r"partition 1 of db\.many: refused"):
        alter(session, f"{statement} {ALLOWED}")
    (forced,) = alter(
        session, f"{statement} {ALLOWED}, export_merge_tree_partition_force_export = 1"
    )

    assert (forced["status"], forced["rows"]) == ("replaced", 11)


def test_settings_overwrite_what_others_wrote_into_the_partition(
    many: Places, session: NoSpark
) -> None:
    """Harm prevented: rows of a partition twice, and no statement that puts them right."""
    statement = "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.overwritten"
    alter(session, f"{statement} {ALLOWED}")
    table = open_catalog("lake", warehouse=many.warehouse).catalog.load_table("n.overwritten")
    table.append(pa.Table.from_pylist([{"p": 1, "k": 0}], table.schema().as_arrow()))

    (replaced,) = alter(
        session,
        f"{statement} {ALLOWED}, export_merge_tree_partition_force_export = 1, "
        "export_merge_tree_partition_replace_partition = 1",
    )

    assert (replaced["status"], replaced["rows"]) == ("replaced", 10)
    files = [task.file for task in table.refresh().scan().plan_files()]
    assert sum(file.record_count for file in files) == 10


def test_an_unknown_setting_is_refused_with_the_nearest_before_any_work(
    many: Places, session: NoSpark
) -> None:
    with pytest.raises(UsageError, match="Did you mean export_merge_tree_partition_max_retries"):
        alter(
            session,
            "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.unknown "
            f"{ALLOWED}, export_merge_tree_partition_max_retrys = 1",
        )

    assert partitions(many, "unknown") == []


@pytest.mark.parametrize(
    ("setting", "share"),
    [
        ("output_format_parallel_formatting = 1", Share(2)),
        ("output_format_parallel_formatting = 0", Share(1, in_turn=True)),
        ("background_move_pool_size = 1", Share(1)),
        ("max_exports_bandwidth_for_server = 100000000", Share(2, 100_000_000, limit=100_000_000)),
    ],
)
def test_settings_say_how_many_files_spark_may_write_at_a_time_and_how_fast(
    many: Places, session: NoSpark, setting: str, share: Share
) -> None:
    """Three partitions, and two slots of Spark."""
    seen: list[Share | None] = []
    many.before = lambda plan, _: seen.append(plan.share)
    name = f"turn{zlib.crc32(setting.encode())}"

    alter(
        session,
        f"ALTER TABLE ch.db.many EXPORT PARTITION ALL TO TABLE lake.n.{name} {ALLOWED}, {setting}",
    )

    assert seen == [share]
    assert partitions(many, name) == [1, 2, 3]


def test_without_waiting_every_transaction_is_returned_and_exports_end(
    many: Places, session: NoSpark
) -> None:
    going_on = threading.Event()
    many.before = lambda *_: _wait(going_on)

    found = alter(
        session,
        "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.now1, "
        "EXPORT PARTITION ID '2' TO TABLE lake.n.now2 "
        f"{ALLOWED}, export_merge_tree_partition_wait = 0",
    )

    assert [(r["partition_id"], r["status"]) for r in found] == [
        ("1", "in_progress"),
        ("2", "in_progress"),
    ]
    assert all(row["transaction_id"] for row in found)
    going_on.set()
    background.wait_for_all()
    assert (partitions(many, "now1"), partitions(many, "now2")) == ([1], [2])


def test_without_waiting_a_refused_export_is_reported_with_the_others(
    many: Places, session: NoSpark
) -> None:
    going_on = threading.Event()
    many.before = lambda *_: _wait(going_on)

    with pytest.raises(NotFoundError, match=r"still running: partition 1 \(transaction \d+"):
        alter(
            session,
            "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.goes, "
            "EXPORT PARTITION ID '77' TO TABLE lake.n.goes "
            f"{ALLOWED}, export_merge_tree_partition_wait = 0",
        )

    going_on.set()
    background.wait_for_all()
    assert partitions(many, "goes") == [1]


def killing(
    session: NoSpark, killed: list[Row]
) -> Callable[[WritePlan, tuple[SliceTask, ...]], None]:
    """Return what kills the statement that writes its first files, by the id in the ledger."""

    def kill(*_: object) -> None:
        if killed:
            return
        with known_ledger(session.settings) as ledger:
            assert ledger is not None
            running = [row for row in ledger.rows() if row.state is State.RUNNING]
        (query_id,) = {row.claim.query_id for row in running}
        killed.extend(alter(session, f"KILL QUERY WHERE query_id = '{query_id}' SYNC"))

    return kill


def test_a_killed_statement_begins_none_of_its_other_commands(
    many: Places, session: NoSpark
) -> None:
    """Harm prevented: "nothing else of it becomes visible", and the next command's rows do."""
    killed: list[Row] = []
    many.before = killing(session, killed)

    with pytest.raises(StoppedError, match="was killed") as stopped:
        alter(
            session,
            "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.killed, EXPORT "
            f"PARTITION ID '2' TO TABLE lake.n.killed, EXPORT PARTITION ID '3' TO TABLE "
            f"lake.n.killed {ALLOWED}",
        )

    assert [(row["partition_id"], row["status"]) for row in killed] == [("1", "finished")]
    assert "Nothing of it is in the lake" in stopped.value.message
    assert partitions(many, "killed") == []


def test_without_waiting_a_kill_gives_up_every_command_of_the_statement(
    many: Places, session: NoSpark
) -> None:
    """Both commands write, each in its thread, when the statement is killed."""
    killed: list[Row] = []
    kill, are_killed = killing(session, killed), threading.Event()
    writing: list[WritePlan] = []

    def before(plan: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        writing.append(plan)
        if len(writing) > 1:
            kill(plan, tasks)
            are_killed.set()
        _wait(are_killed)

    many.before = before

    alter(
        session,
        "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.given_up, "
        f"EXPORT PARTITION ID '2' TO TABLE lake.n.given_up {ALLOWED}, "
        "export_merge_tree_partition_wait = 0",
    )
    background.wait_for_all()

    assert sorted((row["partition_id"], row["status"]) for row in killed) == [
        ("1", "finished"),
        ("2", "finished"),
    ]
    assert partitions(many, "given_up") == []


def test_outfile_and_format_are_taken_with_one_warning_and_have_no_effect(
    many: Places, session: NoSpark
) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = alter(
            session,
            "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.outfile "
            f"INTO OUTFILE '{many.root}/answer.json' FORMAT JSONEachRow {ALLOWED}",
        )

    assert [str(w.message).partition(" in ")[0] for w in heard if w.category is UserWarning] == [
        "INTO OUTFILE and FORMAT has no effect"
    ]
    assert found[0]["status"] == "committed"
    assert not (many.root / "answer.json").exists()


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("to", "code", "message"),
    [
        ("ch.db.many", 36, "Exporting to the same table is not allowed"),
        ("ch.db.more", 48, "Destination storage MergeTree does not support MergeTree parts"),
        ("ch.db.log", 48, "Destination storage Log does not support MergeTree parts"),
        ("spark_catalog.ns.t", 48, "Destination storage of the catalog spark_catalog does not"),
        ("ns.t", 48, "Destination storage of the catalog spark_catalog does not"),
        ("hive.`s3:b/dir`", None, "is no scheme with a location"),
        ("ch.db.nowhere", None, "'ch' is a source, and a table of the lake is meant here"),
    ],
)
def test_a_destination_that_is_no_iceberg_table_is_refused_before_any_work(
    session: NoSpark, to: str, code: int | None, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        alter(session, f"ALTER TABLE ch.db.many EXPORT PARTITION ALL TO TABLE {to} {ALLOWED}")

    assert message in refused.value.message
    assert refused.value.code == code


def test_a_part_is_not_exported_and_the_message_says_what_is(session: NoSpark) -> None:
    with pytest.raises(UnsupportedError, match="Cannot export the part all_1_1_0") as refused:
        alter(
            session, f"ALTER TABLE ch.db.many EXPORT PART 'all_1_1_0' TO TABLE lake.n.t {ALLOWED}"
        )

    assert refused.value.code == 48


def test_an_export_cannot_be_combined_with_another_command(session: NoSpark) -> None:
    with pytest.raises(UnsupportedError, match="Write two statements"):
        alter(
            session,
            "ALTER TABLE ch.db.many EXPORT PARTITION 1 TO TABLE lake.n.t, DETACH PARTITION 2",
        )


def test_a_statement_about_a_clickhouse_table_is_run_by_its_clickhouse(
    many: Places, session: NoSpark
) -> None:
    found = alter(
        session, "ALTER TABLE ch.db.many REPLACE PARTITION 1 FROM ch.db.more, DROP PARTITION 3"
    )

    assert [row["status"] for row in found] == ["done"]
    assert found[0]["message"] == "run by ClickHouse on db.many"
    assert rows(many, "SELECT DISTINCT p FROM db.many ORDER BY p") == [(1,), (2,)]


def test_a_mutation_is_finished_when_its_statement_returns(many: Places, session: NoSpark) -> None:
    """An embedded ClickHouse is closed then, and nobody would finish it."""
    alter(session, "ALTER TABLE ch.db.many UPDATE k = 7 IN PARTITION 2 WHERE p = 2")

    assert rows(many, "SELECT count() FROM system.mutations WHERE NOT is_done") == [(0,)]


@pytest.mark.usefixtures("many")
def test_a_refusal_of_clickhouse_has_its_words_and_code(session: NoSpark) -> None:
    with pytest.raises(SourceError, match="doesn't support partitioning") as refused:
        alter(session, "ALTER TABLE ch.db.log DETACH PARTITION 1")
    assert refused.value.code == 48
    with pytest.raises(SourceError) as unknown:
        alter(session, "OPTIMIZE TABLE ch.db.many FINAL SETTINGS no_such_setting = 1")
    assert unknown.value.code == 115


def test_a_source_that_does_not_allow_it_is_not_changed(many: Places, session: NoSpark) -> None:
    with pytest.raises(RefusedError, match="its source does not allow that") as refused:
        alter(session, "ALTER TABLE fixed.db.many DROP PARTITION 1")

    assert "allow-alter" in str(refused.value)
    assert rows(many, "SELECT DISTINCT p FROM db.many ORDER BY p") == [(1,), (2,), (3,)]


def test_a_killed_query_that_nobody_knows_is_no_error(session: NoSpark) -> None:
    """As in ClickHouse; what is under way is in `test_killing`."""
    assert alter(session, "KILL QUERY WHERE query_id = 'nobody'") == []


@pytest.mark.parametrize(
    "statement",
    ["SELECT 1", "", "ALTER TABLE t DROP PARTITION (p = 'x')", "DELETE FROM t WHERE a = 1"],
)
def test_an_unknown_statement_is_reported_as_unknown(session: NoSpark, statement: str) -> None:
    with pytest.raises(UsageError, match="Cannot read the statement"):
        alter(session, statement)


def test_a_verb_that_is_misspelt_is_pointed_at(session: NoSpark) -> None:
    """As on the command line."""
    with pytest.raises(UsageError, match=r"Did you mean ALTER\?"):
        alter(session, "ALTR TABLE lake.n.t DROP PARTITION 1")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE ch.db.many EXPORT PARTITON ID '1' TO TABLE lake.n.t",
        "ALTER TABLE ch.db.many EXPORT PARTITION ID '1' TO TABLE nowhere.n.t " + ALLOWED,
        "ALTER TABLE nowhere.db.many EXPORT PARTITION ID '1' TO TABLE lake.n.t " + ALLOWED,
        "ALTER TABLE db.many EXPORT PARTITION ID '1' TO TABLE lake.n.t " + ALLOWED,
    ],
)
def test_a_name_or_a_word_that_is_wrong_is_pointed_at(session: NoSpark, statement: str) -> None:
    """Two sources: a bare name is of neither."""
    with pytest.raises(TableFormatError, match=r"Cannot (read the statement|tell what|find)"):
        alter(session, statement)


def _wait(going_on: threading.Event) -> None:
    assert going_on.wait(30)
