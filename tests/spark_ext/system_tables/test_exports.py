"""`mergeberg.system.replicated_partition_exports`: every export, also while it is under way.

RQ…SystemTables.Exports, RQ…QueryCancellation, RQ…Logging.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ledgers.sqlite import SqliteLedger
from spark_ext.actions.exports import ListedExport, in_ledger, list_exports
from spark_ext.system_tables import (
    REPLICATED_PARTITION_EXPORTS as TABLE,
)
from spark_ext.system_tables import export_row
from tableformat.effects import Effects, Step
from tableformat.errors import SourceError, StoppedError
from tableformat.export.request import ExportOptions
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.history import RUNNING_EXPORTS
from tableformat.ledger import Row, Standing, State
from tableformat.names import TableName
from tests.strategies.ledger import ledger_rows
from tests.support.lake_statements import detach, drop, in_files, running
from tests.support.lake_statements import partition as partition_of
from tests.support.real_export import RealExport
from tests.support.row_changes import change
from tests.support.row_merges import optimize
from tests.support.scenarios import ALL, AtStep, Partitions, parts_of, run
from tests.support.system_tables import asked, session_of, typed

REQUIRED = [
    "source_table",
    "destination_table",
    "partition_id",
    "status",
    "parts_total",
    "parts_processed",
    "parts_failed",
    "create_time",
    "update_time",
]


def rows_of(exports: RealExport, name: TableName) -> dict[str, dict[str, Any]]:
    """Return what the table says of the exports of a source table, by partition."""
    found = asked(TABLE, session_of(exports.warehouse))
    return {r["partition_id"]: r for r in found if r["source_table"] == str(name)}


def in_directory(directory: Path) -> dict[str, dict[str, Any]]:
    """Return what the table says of scripted exports, by partition."""
    conf = session_of(directory / "warehouse", directory / "ledger.db")
    return {r["partition_id"]: r for r in asked(TABLE, conf)}


def interrupt() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


def test_the_columns_of_the_requirement_come_first_and_by_their_names() -> None:
    """A monitoring query that was written for ClickHouse runs unchanged."""
    assert [column.name for column in TABLE.columns][: len(REQUIRED)] == REQUIRED


def test_before_any_export_the_table_is_empty_and_no_ledger_is_made(
    tmp_path: Path,
) -> None:
    """Harm prevented: looking makes a ledger that the next export takes for its own."""
    assert asked(TABLE, session_of(tmp_path / "warehouse")) == []
    assert asked(TABLE, session_of(tmp_path / "warehouse", tmp_path / "l.db")) == []
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_landed_says_what_when_and_in_which_snapshot(exports: RealExport) -> None:
    name = exports.clickhouse.filled()
    exports.clickhouse.insert(name, first=100)
    before = datetime.now(UTC) - timedelta(seconds=1)

    outcomes = {o.partition_id: o for o in exports.run(name)}

    found = rows_of(exports, name)
    assert found.keys() == {"0", "1"}
    for partition, row in found.items():
        outcome = outcomes[partition]
        assert row["destination_table"] == f"lake.n.{name.name}"
        assert (row["status"], row["last_error"]) == ("COMPLETED", "")
        assert (row["parts_total"], row["parts_processed"], row["parts_failed"]) == (2, 2, 0)
        assert (row["snapshot_id"], row["transaction_id"]) == (
            outcome.snapshot_id,
            outcome.transaction_id,
        )
        size = (outcome.rows, outcome.data_files, outcome.bytes)
        assert (row["rows"], row["data_files"], row["bytes"]) == size
        assert 0 not in size
        assert before < row["create_time"] <= row["update_time"] <= datetime.now(UTC)
    assert len({row["query_id"] for row in found.values()} - {""}) == 1


def test_the_query_is_the_one_that_worked_on_it_last(tmp_path: Path) -> None:
    """Harm prevented: KILL QUERY names a run that ended, and the one that goes on goes on."""
    source = Partitions(by_id={"p1": parts_of("p1", 7)})
    first, second = (replace(ALL, query_id=name) for name in ("first", "second"))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, source, request=first, effects=AtStep(Step.CHECK_FILES, interrupt))
    before = in_directory(tmp_path)["p1"]

    run(tmp_path, source, request=second)

    after = in_directory(tmp_path)["p1"]
    assert before["transaction_id"] == after["transaction_id"]
    assert (before["query_id"], after["query_id"]) == ("first", "second")
    assert (before["status"], after["status"]) == ("INTERRUPTED", "COMPLETED")


def test_an_export_is_there_while_its_files_are_being_written(exports: RealExport) -> None:
    """The table tracks operations before they complete."""
    name = exports.clickhouse.filled()
    seen: list[dict[str, dict[str, Any]]] = []

    def look(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        seen.append(rows_of(exports, name))

    exports.before = look
    try:
        exports.run(name)
    finally:
        exports.before = lambda *_: None

    (during,) = seen
    assert {(r["status"], r["parts_total"], r["snapshot_id"]) for r in during.values()} == {
        ("IN_PROGRESS", 1, None)
    }
    after = rows_of(exports, name)
    assert {r["query_id"] for r in during.values()} == {r["query_id"] for r in after.values()}
    assert {r["create_time"] for r in during.values()} == {r["create_time"] for r in after.values()}


def test_a_part_is_processed_once_its_files_are_there_before_all_are_visible(
    tmp_path: Path,
) -> None:
    """Harm prevented: nobody can tell a run that goes on for hours from one that hangs."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5, 3)})
    seen: list[int] = []

    def look() -> None:
        seen.append(in_directory(tmp_path)["p1"]["parts_processed"])

    run(tmp_path, source, effects=AtStep(Step.WRITE_FILES, look))
    shutil.rmtree(tmp_path)
    run(tmp_path, source, effects=AtStep(Step.NOTE_WRITTEN, look))

    assert seen == [0, 3]


def test_a_lake_that_does_not_respond_does_not_hide_its_exports(tmp_path: Path) -> None:
    """Harm prevented: the table that tells of failed exports fails for the same reason."""
    source = Partitions(by_id={"p1": parts_of("p1", 7)})

    def look() -> None:
        shutil.move(tmp_path / "warehouse", tmp_path / "elsewhere")
        (tmp_path / "warehouse").write_text("not a directory")
        seen.append(in_directory(tmp_path)["p1"])
        (tmp_path / "warehouse").unlink()
        shutil.move(tmp_path / "elsewhere", tmp_path / "warehouse")

    seen: list[dict[str, Any]] = []
    run(tmp_path, source, effects=AtStep(Step.NOTE_WRITTEN, look))

    assert [(r["parts_total"], r["parts_processed"]) for r in seen] == [(1, 0)]


@pytest.mark.parametrize(
    ("error", "status", "failed"),
    [
        (SourceError("Cannot read db.t: the disk is on fire. Call for help."), "FAILED", 2),
        (StoppedError("Cannot finish: the export was stopped. Run it again."), "INTERRUPTED", 0),
    ],
)
def test_an_export_that_ended_early_says_why_and_what_is_missing(
    exports: RealExport, error: Exception, status: str, failed: int
) -> None:
    """A failed export stays in the table until somebody exports the partition."""
    name = exports.clickhouse.filled()
    exports.clickhouse.insert(name, first=100)

    def fail(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise error

    exports.before = fail
    try:
        exports.run(name)
    finally:
        exports.before = lambda *_: None

    row = rows_of(exports, name)["0"]
    assert (row["status"], row["parts_failed"], row["parts_processed"]) == (status, failed, 0)
    assert (row["last_error"] == str(error)) == (status == "FAILED")

    exports.run(name)
    assert rows_of(exports, name)["0"]["status"] == "COMPLETED"


STATEMENTS: dict[str, Callable[[Path, Effects], object]] = {
    "DROP PARTITION": lambda at, effects: running(at, effects=effects).run(drop("p1")),
    "DETACH PARTITION": lambda at, effects: running(at, effects=effects).run(detach("p1")),
    "UPDATE": lambda at, effects: change(at, partition_of("p1"), effects=effects),
    "OPTIMIZE": lambda at, effects: optimize(at, partition_of("p1"), effects=effects),
}
LEFT = {"DROP PARTITION": 0, "DETACH PARTITION": 0, "UPDATE": 12, "OPTIMIZE": 12}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_on_the_lake_table_does_not_replace_the_shown_export(
    tmp_path: Path, statement: str
) -> None:
    """The export was begun when it was, and is done, whatever is done with its rows afterwards.

    Harm prevented: an alarm on exports that run, or that were begun today, goes off for an UPDATE;
    and what was dropped is COMPLETED with all of its rows.
    """
    in_files(tmp_path)
    before = in_directory(tmp_path)["p1"]
    during: list[dict[str, Any]] = []
    counted: list[int] = []

    def look() -> None:
        during.append(in_directory(tmp_path)["p1"])
        with contextlib.closing(SqliteLedger(tmp_path / "ledger.db", clock=lambda: 0)) as ledger:
            counted.append(ledger.counters()[RUNNING_EXPORTS])

    STATEMENTS[statement](tmp_path, AtStep(Step.SEND, look))

    (seen,), after = during, in_directory(tmp_path)["p1"]
    of_export = (
        "status",
        "parts_total",
        "parts_processed",
        "create_time",
        "query_id",
        "last_error",
    )
    assert before["status"] == "COMPLETED"
    for row in (seen, after):
        assert {name: row[name] for name in of_export} == {n: before[n] for n in of_export}
    assert (before["statement"], after["statement"]) == ("", "")
    assert seen["statement"].startswith(statement)
    assert seen["transaction_id"] == before["transaction_id"]
    assert (before["rows_in_main"], seen["rows_in_main"]) == (12, 12)
    assert after["rows_in_main"] == LEFT[statement]
    assert counted == [0]
    # Files that OPTIMIZE rewrites are the same export.
    assert after["changed_by"].startswith(statement if statement != "OPTIMIZE" else "")


@pytest.mark.parametrize(
    ("ttl", "passed", "expired"), [(180, 179_000, False), (180, 181_000, True), (0, 10**9, False)]
)
def test_a_completed_export_says_when_its_time_to_live_is_over(
    tmp_path: Path, ttl: int, passed: int, *, expired: bool
) -> None:
    """Completed exports are shown until they are cleaned up: `WHERE NOT expired` leaves those."""
    run(tmp_path, Partitions(), request=replace(ALL, options=ExportOptions(manifest_ttl=ttl)))
    with contextlib.closing(SqliteLedger(tmp_path / "ledger.db")) as ledger:
        completed = max(row.done.completed for row in ledger.rows() if row.done)
        found = [*list_exports(ledger, clock=lambda: completed + passed)]

    assert [one.expired for one in found] == [expired] * 2
    columns = [column.name for column in TABLE.columns]
    shown = dict(zip(columns, export_row(found[0], 2), strict=True))
    assert (shown["status"], shown["expired"]) == ("COMPLETED", expired)


def test_what_has_not_completed_is_not_expired(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Partitions(), effects=AtStep(Step.CHECK_FILES, interrupt))

    assert {row["expired"] for row in in_directory(tmp_path).values()} == {False}


@given(ledger_rows(), st.sampled_from(Standing), st.integers(0, 3))
def test_parts_add_up_in_every_state(row: Row, status: Standing, processed: int) -> None:
    """Harm prevented: more parts failed than there are, or a row that Spark cannot read."""
    claim = replace(
        row.claim, begun=row.claim.begun % 2**47, statement="", kind=None, gives_way=None
    )
    done = replace(row.done, begun=row.done.begun % 2**47) if row.done else None
    known = replace(row, claim=claim, done=done, updated=0, created=0)
    one = ListedExport(known, status)

    seen = typed(TABLE, export_row(one, min(processed, len(one.parts))))

    assert seen["parts_processed"] + seen["parts_failed"] <= seen["parts_total"]
    assert 0 <= len(in_ledger(one)) <= len(one.parts)
    assert (seen["snapshot_id"] is not None) == (row.state is State.COMPLETED)
    assert seen["create_time"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        milliseconds=one.export.begun
    )
