"""Statements on lake tables with arguments that have names: CALL, the command line, Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_ext
from catalog.iceberg.catalogs import open_catalog
from tableformat.errors import RefusedError, TableFormatError, UsageError
from tests.support.session_lake import export_all, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

Command = Callable[..., tuple[int, str, str]]
NAME = "typed"
TABLE = f"lake.n.{NAME}"


@pytest.fixture
def table(places: Places, session: NoSpark) -> Iterator[str]:
    """Return the lake table with the ids 0 in 202401, and 1 and 2 in 202402, in its namespace.

    It is exported once: every test leaves it with these rows.
    """
    if not open_catalog("lake", warehouse=places.warehouse).catalog.table_exists(f"n.{NAME}"):
        export_all(session, "events", NAME)
    yield f"n.{NAME}"
    assert rows_of(places, NAME) == 3


@pytest.fixture
def command(places: Places, table: str) -> Command:
    """Return what runs a command on the table; those that read a source get its address."""

    def run(name: str, *words: str) -> tuple[int, str, str]:
        source = ("--source", f"chdb:{places.clickhouse}") if name in ("attach", "replace") else ()
        where = ("--warehouse", str(places.warehouse))
        return places.run(name, f"lake.{table}", *words, *source, *where)

    return run


def test_calls_that_name_a_partition_in_their_catalog_detach_and_attach_it(
    places: Places, session: NoSpark, table: str
) -> None:
    (gone,) = session.call("detach_partition", table=table, partition_id="202402")

    assert (gone["partition_id"], gone["status"], gone["rows"]) == ("202402", "detached", 2)
    assert gone["snapshot_id"] == opened(places, NAME).metadata.current_snapshot_id
    assert rows_of(places, NAME) == 1
    (back,) = session.call("attach_partition", table=table, all_partitions=True)
    assert (back["status"], back["rows"]) == ("attached", 2)
    assert rows_of(places, NAME) == 3


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    places: Places, session: NoSpark, table: str, command: Command
) -> None:
    before = opened(places, NAME).metadata
    forecast = "would be dropped (2 rows, 1 file)"

    (row,) = session.call("drop_partition", table=table, partition="202402", dry_run=True)
    result = command("drop", "--partition", "202402", "--dry-run")

    message, _, change = str(row["message"]).partition("; ")
    assert (row["rows"], row["snapshot_id"], message) == (2, None, forecast)
    assert re.fullmatch(r"2 rows, [\d,]+ bytes, leave main; 0 rows, 0 bytes, come", change)
    assert result == (0, f"dry run: partition 202402 {forecast}\n  {change}\n", "")
    assert opened(places, NAME).metadata == before


def test_a_command_prints_what_its_statement_returns(places: Places, command: Command) -> None:
    where = ("--warehouse", str(places.warehouse))
    text = f"ALTER TABLE {TABLE} DETACH PARTITION 202402"

    code, out, err = command("detach", "--partition-id", "202402")

    assert code == 0, err
    assert out.startswith("partition 202402: detached · 2 rows · 1 file · ")
    again = command("detach", "--partition-id", "202402")
    assert again == places.run("alter", text, *where)
    assert again == (0, "partition 202402: empty: nothing to do: it is not in the table\n", "")
    code, out, err = command("attach", "--partition", "202402", "--json")
    (record,) = map(json.loads, out.splitlines())
    assert (code, record["status"], record["rows"]) == (0, "attached", 2), err


def test_what_is_refused_ends_with_3_and_names_the_way_round(command: Command) -> None:
    code, out, err = command("move", "--partition", "202402", "--to-disk", "nowhere")

    assert (code, out) == (3, "")
    assert "No such disk `nowhere`" in err
    assert "Name one of them, or set the table's property mergeberg.disk.nowhere" in err


@pytest.mark.soak
def test_rows_are_set_and_deleted_by_typed_statements(places: Places, session: NoSpark) -> None:
    """As by their texts, which make test shows."""
    places.reads_parts, table = True, "lake.n.typed_rows"
    export_all(session, "events", "typed_rows")
    where = ("--warehouse", str(places.warehouse))

    (row,) = session.call("update_rows", table=table, assignments="s = 'x'", where="id = 1")
    code, out, err = places.run(
        "delete", table, "--partition", "202402", "--where", "id = 2", *where
    )

    assert (row["status"], row["rows"]) == ("changed", 1)
    assert (code, out.split(" · ")[0]) == (0, "partition 202402: updated"), err
    there = opened(places, "typed_rows").scan().to_arrow().sort_by("id")
    assert there.select(["id", "s"]).to_pylist() == [{"id": 0, "s": "0"}, {"id": 1, "s": "x"}]


def test_a_setting_that_a_statement_lacks_is_named_as_its_argument(
    session: NoSpark, table: str, command: Command
) -> None:
    """Harm prevented: a message with an option that this interface lacks."""
    session.call("freeze", table=table, name="whole")
    given: dict[str, Any] = {
        "table": table,
        "from_table": f"{table}.tag_whole",
        "partition_id": "199901",
    }

    error = session.response(None, "replace_partition", **given)["error"]
    code, _, err = command("replace", "--partition-id", "199901", "--from", f"{TABLE}.tag_whole")
    named = {**given, "table": TABLE, "from_table": f"{TABLE}.tag_whole"}
    with pytest.raises(TableFormatError) as refused:
        spark_ext.replace_partition(session.session, **named)

    assert "Use `allow_empty => true`, or DROP PARTITION" in error["message"]
    assert (code, "Use --allow-empty, or DROP PARTITION" in err) == (3, True), err
    assert "Use `allow_empty=True`, or DROP PARTITION" in refused.value.message
    (row,) = session.call("replace_partition", **given, allow_empty=True)
    assert row["status"] == "empty"
    assert session.call("unfreeze", table=table, name="whole")[0]["status"] == "unfrozen"


def test_functions_do_what_the_procedures_do(places: Places, session: NoSpark, table: str) -> None:
    spark, session.current = session.session, ("lake", "n")

    (gone,) = spark_ext.detach_partition(spark, TABLE, partition="202402")
    left = rows_of(places, NAME)
    (back,) = spark_ext.attach_partition(spark, table, partition_id="202402", fast=True)

    assert isinstance(gone, spark_ext.ExportedPartition)
    assert (gone.status, gone.rows, left) == ("detached", 2, 1)
    assert (back.status, back.rows) == ("attached", 2)


def test_a_function_takes_its_arguments_by_name_and_type(session: NoSpark) -> None:
    drop: Callable[..., object] = spark_ext.drop_partition
    with pytest.raises(UsageError, match="partition_id is 202402, and STRING is expected"):
        drop(session.session, "lake.n.t", partition_id=202402)
    with pytest.raises(UsageError, match="all_partitions is 'yes', and BOOLEAN is expected"):
        drop(session.session, "lake.n.t", all_partitions="yes")
    with pytest.raises(TypeError):
        drop(session.session, "lake.n.t", "202402")


@pytest.mark.parametrize("table", ["ch.db.events", "hive.`/a/b`"])
def test_what_is_no_lake_table_is_refused(places: Places, session: NoSpark, table: str) -> None:
    """Harm prevented: a table of ClickHouse loses a partition by a statement on the lake."""
    error = session.response(None, "drop_partition", table=table, all_partitions=True)["error"]
    code, _, err = places.run("drop", table, "--all", "--warehouse", str(places.warehouse))

    assert error["kind"] in ("UsageError", "UnsupportedError"), error
    assert code in (2, 3), err
    assert len(session.call("partitions", table="ch.db.events")) == 2


def test_a_procedure_asks_for_the_rights_of_its_statement(
    places: Places, session: NoSpark, table: str, tmp_path: Path
) -> None:
    """Harm prevented: CALL does what ALTER TABLE is denied."""
    policy = tmp_path / "policy.sql"
    policy.write_text(
        f"GRANT ALTER DELETE ON {TABLE} TO bob; GRANT ALTER, CREATE ON lake.n.u TO bob, eve;"
        f" GRANT CREATE ON {TABLE} TO eve"
    )
    session.settings = {**session.settings, "spark.mergeberg.policy": str(policy)}
    before = opened(places, NAME).metadata
    asked: dict[str, Any] = {"table": table, "partition_id": "202402"}

    for dry_run in (True, False):
        error = session.response("eve", "detach_partition", **asked, dry_run=dry_run)["error"]
        assert (error["code"], error["sqlstate"]) == (497, "42501")
        assert f"it's necessary to have the grant ALTER DELETE ON {TABLE}." in error["message"]

    assert opened(places, NAME).metadata == before
    assert session.response("bob", "detach_partition", **asked)["rows"][0][1] == "detached"
    error = session.response("bob", "attach_partition", **asked)["error"]
    assert f"the grant CREATE ON {TABLE}." in error["message"]
    assert session.response("eve", "attach_partition", **asked)["rows"][0][1] == "attached"


@pytest.mark.usefixtures("table")
def test_an_error_of_a_function_is_the_statements(session: NoSpark) -> None:
    with pytest.raises(RefusedError, match="partition 202402 is not empty"):
        spark_ext.forget_partition(session.session, TABLE, partition_id="202402")
