"""CALL export_partition and export_partitions: their results, and that nothing is silent."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from pyiceberg.table import Table

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from spark_ext import python_api
from spark_ext.procedures.declarations import Value
from spark_ext.sql import export as background
from spark_ext.sql.dispatch import respond
from tableformat.errors import NotFoundError, RefusedError, SourceError, StoppedError, UsageError
from tableformat.export.slices import Share, SliceTask, WritePlan
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

MANY: Final = "ch.db.many"
Before = Callable[[WritePlan, tuple[SliceTask, ...]], None]


def lake_table(places: Places, name: str) -> Table:
    return open_catalog("lake", warehouse=places.warehouse).catalog.load_table(f"n.{name}")


def partitions(places: Places, name: str) -> list[int]:
    """Return the partitions that have files in main."""
    return sorted(task.file.partition[0] for task in lake_table(places, name).scan().plan_files())


@pytest.fixture
def many(places: Places) -> Iterator[Places]:
    """Return places whose `db.many` has the partitions 1, 2 and 3, ten rows each."""
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command("DROP TABLE IF EXISTS db.many")
        connection.command(
            "CREATE TABLE db.many (p UInt8, k UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY k"
        )
        connection.command("INSERT INTO db.many SELECT number % 3 + 1, number FROM numbers(30)")
    yield places
    background.wait_for_all()


def insert(places: Places, partition: int) -> None:
    """Change a partition of the source."""
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command(f"INSERT INTO db.many VALUES ({partition}, 100)")


def test_a_partition_is_exported_by_its_id_or_by_a_value_of_its_key(
    many: Places, session: NoSpark
) -> None:
    """And the result says what is in the lake now."""
    (by_id,) = session.call("export_partition", table="n.one", source=MANY, partition_id="2")
    (by_value,) = session.call("export_partition", table="n.one", source=MANY, partition="3")

    assert (by_id["partition_id"], by_id["status"], by_id["rows"]) == ("2", "committed", 10)
    assert by_id["snapshot_id"] is not None
    assert by_id["transaction_id"]
    assert (by_value["partition_id"], by_value["status"]) == ("3", "committed")
    assert partitions(many, "one") == [2, 3]


@pytest.mark.parametrize("by_statement", [False, True], ids=["CALL", "SETTINGS"])
def test_equal_rows_in_other_parts_are_not_exported_again(
    many: Places, session: NoSpark, *, by_statement: bool
) -> None:
    many.reads_parts = True
    name, source = f"equal_{by_statement:d}", "ch.db.equal"
    many.clickhouse_run(
        "CREATE OR REPLACE TABLE db.equal (p UInt8, v UInt8) ENGINE = MergeTree PARTITION BY p"
        " ORDER BY tuple()",
        "INSERT INTO db.equal VALUES (1, 1), (1, 2), (2, 3)",
    )
    session.call("export_partitions", table=f"n.{name}", source=source)
    there_and_back = (
        f"ALTER TABLE db.equal MODIFY COLUMN v {of} SETTINGS alter_sync = 2, mutations_sync = 2"
        for of in ("UInt32", "UInt8")
    )
    many.clickhouse_run(*there_and_back)

    if by_statement:
        settings = "allow_experimental_export_merge_tree_part = 1"
        checks = "export_merge_tree_partition_check_rows = 1"
        statement = (
            f"ALTER TABLE {source} EXPORT PARTITION ALL TO TABLE lake.n.{name} SETTINGS {settings},"
            f" {checks}"
        )
        found = session.call("execute_alter", statement=statement)
    else:
        found = session.call("export_partitions", table=f"n.{name}", source=source, check_rows=True)

    # The manifest TTL refuses only what has other rows.
    assert {row["status"] for row in found} == {"already_exported"}
    assert all("its parts changed, its rows are the same" in row["message"] for row in found)


@pytest.mark.parametrize("by_statement", [False, True], ids=["CALL", "SETTINGS"])
def test_more_replacements_than_allowed_are_refused_before_the_first(
    many: Places, session: NoSpark, *, by_statement: bool
) -> None:
    """Harm prevented: the limit holds on the command line, and a statement rewrites the lake."""
    name = f"limited_{by_statement:d}"
    session.call("export_partitions", table=f"n.{name}", source=MANY, manifest_ttl=1)
    before = lake_table(many, name).metadata_location
    limited: dict[str, Value] = {
        "table": f"n.{name}",
        "source": MANY,
        "force": True,
        "max_replace": 2,
    }
    statement = (
        f"ALTER TABLE {MANY} EXPORT PARTITION ALL TO TABLE lake.n.{name} SETTINGS "
        "allow_experimental_export_merge_tree_part = 1, "
        "export_merge_tree_partition_force_export = 1, "
        "export_merge_tree_partition_max_replace = 2"
    )
    call = "execute_alter" if by_statement else "export_partitions"
    given: dict[str, Value] = {"statement": statement} if by_statement else limited

    with pytest.raises(RefusedError) as refused:
        session.call(call, **given)
    with pytest.raises(RefusedError, match="3 would be replaced"):
        session.call("export_partitions", **limited, dry_run=True)

    assert "of the exported partitions 3 would be replaced (1, 2, 3)" in refused.value.message
    assert lake_table(many, name).metadata_location == before


def test_all_partitions_or_those_that_a_filter_keeps_are_exported(
    many: Places, session: NoSpark
) -> None:
    kept = session.call(
        "export_partitions", table="n.kept", source=MANY, where="partition_id < '3'"
    )
    rest = session.call("export_partitions", table="n.kept", source=MANY)

    assert [one["partition_id"] for one in kept] == ["1", "2"]
    assert [one["status"] for one in rest] == ["already_exported", "already_exported", "committed"]
    assert partitions(many, "kept") == [1, 2, 3]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(many: Places, session: NoSpark) -> None:
    rows = session.call("export_partitions", table="n.dry", source=MANY, dry_run=True)

    assert [(r["partition_id"], r["status"], r["rows"]) for r in rows] == [
        ("1", "export", 10),
        ("2", "export", 10),
        ("3", "export", 10),
    ]
    assert not open_catalog("lake", warehouse=many.warehouse).catalog.table_exists("n.dry")


def test_one_refused_partition_is_an_error_that_says_what_is_in_the_lake(
    many: Places, session: NoSpark
) -> None:
    session.call("export_partition", table="n.some", source=MANY, partition_id="2")
    insert(many, 2)

    with pytest.raises(RefusedError) as refused:
        session.call("export_partitions", table="n.some", source=MANY)

    assert "partition 2 of db.many: refused: " in refused.value.message
    assert "In the lake: 1 of db.many, 3 of db.many." in refused.value.message
    assert partitions(many, "some") == [1, 2, 3]


def test_a_failure_is_an_error_that_says_why_and_that_nothing_is_in_the_lake(
    many: Places, session: NoSpark
) -> None:
    def fail(_: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        message = "Cannot read the parts: the disk is gone. Mount it."
        raise SourceError(message, code=499)

    many.before = fail

    with pytest.raises(SourceError, match="the disk is gone") as failed:
        session.call("export_partitions", table="n.failed", source=MANY, max_retries=0)

    assert failed.value.code == 499
    assert "partition 3 of db.many: failed" in failed.value.message
    assert "Nothing of it is in the lake" in failed.value.message


def test_a_session_sees_the_table_as_it_is_also_when_a_partition_was_refused(
    many: Places, session: NoSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("spark_ext.sql.catalogs.refresh", lambda _, name: shown.append(str(name)))
    session.call("export_partition", table="n.seen", source=MANY, partition_id="1")
    insert(many, 1)
    with pytest.raises(RefusedError):
        session.call("export_partitions", table="n.seen", source=MANY)
    with pytest.raises(RefusedError):
        session.call("export_partition", table="n.seen", source=MANY, partition_id="1")

    assert shown == ["lake.n.seen", "lake.n.seen"]


@pytest.mark.parametrize(
    ("given", "of_session", "share"),
    [
        ({}, {}, Share(2)),
        ({"max_slices": 1}, {}, Share(1)),
        ({"max_bandwidth": 10_000_000}, {}, Share(2, 10_000_000, limit=10_000_000)),
        ({}, {"background_move_pool_size": "1"}, Share(1)),
        ({"max_slices": 2}, {"background_move_pool_size": "1"}, Share(2)),
        ({}, {"max_exports_bandwidth_for_server": "8000000"}, Share(2, 8_000_000, limit=8_000_000)),
        ({"max_bandwidth": 0}, {"max_exports_bandwidth_for_server": "8000000"}, Share(2)),
        ({"parallel_formatting": False}, {}, Share(1, in_turn=True)),
        ({}, {"output_format_parallel_formatting": "0"}, Share(1, in_turn=True)),
        ({"parallel_formatting": True}, {"output_format_parallel_formatting": "0"}, Share(2)),
    ],
)
def test_limits_are_those_of_the_call_else_of_the_session(
    many: Places,
    session: NoSpark,
    given: dict[str, int],
    of_session: dict[str, str],
    share: Share,
) -> None:
    """Of three small partitions, where Spark has two slots: each has a task of short work."""
    seen: list[Share | None] = []
    many.before = lambda plan, _: seen.append(plan.share)
    session.settings.update({f"spark.mergeberg.{n}": text for n, text in of_session.items()})
    name = f"n.limits{zlib.crc32(repr((given, of_session)).encode())}"

    session.call("export_partitions", table=name, source=MANY, **given)

    assert seen == [share]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"commit_every": 0}, "commit_every => 0. Write a number from 1 to 100"),
        ({"commit_every": 101}, "commit_every => 101"),
        ({"max_retries": -1}, "max_retries => -1"),
        ({"max_replace": -1}, "max_replace => -1. Write a number from 0"),
        ({"max_bandwidth": -1}, "max_bandwidth => -1. Write a number from 0"),
        ({"max_slices": 0}, "max_slices => 0. Write a number from 1"),
        ({"manifest_ttl": -1}, "manifest_ttl => -1"),
        ({"max_bytes_per_file": 0}, "max_bytes_per_file => 0"),
        ({"allow_empty": True}, "--allow-empty alone"),
        ({"replace_partition": True}, "--replace-partition alone"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    many: Places, session: NoSpark, given: dict[str, int], message: str
) -> None:
    """As on the command line; `commit_every => 0` would never commit anything."""
    with pytest.raises(UsageError) as refused:
        session.call("export_partitions", table="n.nothing", source=MANY, **given)

    assert message in str(refused.value)
    assert not open_catalog("lake", warehouse=many.warehouse).catalog.table_exists("n.nothing")


@pytest.mark.parametrize("given", [{}, {"partition_id": "1", "partition": "1"}])
def test_a_partition_is_chosen_once(session: NoSpark, given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="give either partition_id"):
        session.call("export_partition", table="n.one", source=MANY, **given)


@pytest.mark.usefixtures("many")
def test_a_missing_partition_is_reported_as_missing(session: NoSpark) -> None:
    with pytest.raises(NotFoundError, match="77"):
        session.call("export_partition", table="n.one", source=MANY, partition_id="77")


def test_without_waiting_the_transaction_is_returned_and_the_export_ends(
    many: Places, session: NoSpark
) -> None:
    """RQ...wait = 0: the statement has returned, and the files are still being written."""
    going_on = threading.Event()
    many.before = lambda *_: _wait(going_on)

    rows = session.call("export_partitions", table="n.later", source=MANY, wait=False)

    assert [r["status"] for r in rows] == ["in_progress"] * 3
    assert len({r["transaction_id"] for r in rows}) == 3
    assert background.are_running()
    assert partitions(many, "later") == []
    going_on.set()
    background.wait_for_all()
    assert partitions(many, "later") == [1, 2, 3]
    assert not background.are_running()


@pytest.mark.usefixtures("many")
def test_without_waiting_what_cannot_begin_is_an_error(session: NoSpark) -> None:
    with pytest.raises(NotFoundError, match="77"):
        session.call("export_partition", table="n.x", source=MANY, partition_id="77", wait=False)


@pytest.mark.usefixtures("many")
def test_without_waiting_a_bug_is_reported_and_is_no_running_export(
    session: NoSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        message = "nobody thought of this"
        raise ZeroDivisionError(message)

    monkeypatch.setattr("spark_ext.actions.export.export_from_any", broken)

    with pytest.raises(ZeroDivisionError, match="nobody thought of this"):
        session.call("export_partitions", table="n.x", source=MANY, wait=False)


def test_a_cancelled_spark_job_ends_the_export_as_stopped_without_a_retry(
    many: Places, session: NoSpark
) -> None:
    tries: list[int] = []

    def cancelled(_: WritePlan, tasks: tuple[SliceTask, ...]) -> None:
        tries.append(len(tasks))
        message = "Cannot export db.many: its Spark job was cancelled: Job 1 cancelled."
        raise StoppedError(message)

    many.before = cancelled

    with pytest.raises(StoppedError, match="its Spark job was cancelled") as stopped:
        session.call("export_partitions", table="n.stopped", source=MANY)

    assert len(tries) == 1
    assert "Nothing of it is in the lake" in stopped.value.message
    many.before = lambda *_: None
    again = session.call("export_partitions", table="n.stopped", source=MANY)
    assert [one["status"] for one in again] == ["committed"] * 3


def test_a_row_has_the_words_of_its_interface(
    many: Places, session: NoSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: the message names an option that the user cannot give."""
    session.call("export_partitions", table="n.worded", source=MANY)
    many.clickhouse_run("INSERT INTO db.many VALUES (1, 99)")

    ready, *_ = session.call("export_partitions", table="n.unworded", source=MANY, dry_run=True)
    rows = session.call("export_partitions", table="n.worded", source=MANY, dry_run=True)
    messages = " ".join(row["message"] or "" for row in rows)

    assert ready["message"] is None
    monkeypatch.setattr(python_api, "settings_of", lambda _: session.settings)
    of_python = python_api.export_partitions(session.session, "lake.n.worded", MANY, dry_run=True)

    assert "`force => true`" in messages
    assert "--force" not in messages
    assert "`force=True`" in " ".join(one.message or "" for one in of_python)


def test_in_sql_a_cancelled_job_has_the_state_of_what_is_cancelled(
    many: Places, session: NoSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_ext.sql.dispatch.settings_of", lambda _: session.settings)

    def cancelled(_: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise StoppedError("Cannot export db.many: its Spark job was cancelled.")

    many.before = cancelled
    arguments: dict[str, object] = {
        "table": "n.state", "source": MANY, "partition_id": "1", "partition": None,
        "force": False, "manifest_ttl": 180, "abandoned_ttl": 604_800, "allow_empty": False,
        "overwrite_file_if_exists": False, "replace_partition": False, "same_table": False,
        "same_as": None, "max_replace": None, "late_rows": None, "incremental": False,
        "verify": False, "check_rows": False, "strict": False, "evolve_schema": False,
        "backfill": False, "convert": {}, "partition_spec": None, "hive_columns": {},
        "max_bytes_per_file": None, "max_retries": 3,
        "max_bandwidth": None, "max_slices": None, "parallel_formatting": None, "cluster": None,
        "wait": True, "dry_run": False,
    }  # fmt: skip
    request = {"call": "export_partition", "catalog": "lake", "arguments": arguments}

    error = json.loads(respond(json.dumps(request), session.session))["error"]

    assert (error["kind"], error["sqlstate"]) == ("StoppedError", "57014")


@pytest.mark.parametrize("arguments", [{}, {"table": "ch.db.many", "cluster": None, "more": 1}])
def test_a_jar_with_other_parameters_is_another_mergebergs(
    session: NoSpark, arguments: dict[str, object]
) -> None:
    """Harm prevented: "this is a bug" about an installation that the user can mend."""
    request = {"call": "partitions", "catalog": "lake", "arguments": arguments}

    error = json.loads(respond(json.dumps(request), session.session))["error"]

    assert error["kind"] == "UsageError"
    assert error["message"].startswith(
        "Cannot run partitions: the jar in this Spark is of another version of mergeberg than the"
    )


def test_null_is_refused_where_it_is_no_default(
    session: NoSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a traceback, or a guess of what NULL was to mean."""
    monkeypatch.setattr("spark_ext.sql.dispatch.settings_of", lambda _: session.settings)
    request = {
        "call": "partitions",
        "catalog": "lake",
        "arguments": {"table": None, "cluster": None},
    }

    error = json.loads(respond(json.dumps(request), session.session))["error"]

    assert (error["kind"], error["sqlstate"]) == ("UsageError", "42000")
    assert error["message"] == "Cannot call partitions: `table` is NULL. Give it a value."


def _wait(going_on: threading.Event) -> None:
    assert going_on.wait(30)


def test_a_date_alone_names_the_partition_of_that_date(places: Places, session: NoSpark) -> None:
    """Harm prevented: quotes inside quotes, which nobody thinks of; here the key is a month."""
    asked = {"table": "lake.n.date", "source": "ch.db.events", "partition": "2024-01-31"}

    error = session.response(None, "export_partition", **asked)["error"]
    _, _, err = places.run(
        "export", "db.events", "--partition", "2024-01-31", "--to", "lake.n.date"
    )

    for text in (error["message"], err):
        assert "Cannot convert string '2024-01-31' to type UInt32" in text
