"""`exports cancel`: what the person who cancels sees, and the run that is cancelled."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.cli.commands.exports import Cancellations
from spark_ext.cli.main import invoke
from spark_ext.cli.output import JsonOutput
from tableformat.errors import LedgerError, NotFoundError, TableFormatError
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import Owner, Row, State
from tests.support.big_export import fill, start, until_it_writes
from tests.wrong.places import Places

REFUSED = NotFoundError("Cannot cancel it: there is none.")
FAILED = LedgerError("Cannot cancel it: the ledger is away.")
JANUARY = ("export", "db.events", "--partition-id", "202401")


def cancel(places: Places, *words: str) -> tuple[int, str, str]:
    return places.run("exports", "cancel", "202401", "--table", "db.events", *words)


def row_in(places: Places, table: str) -> Row:
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    (row,) = (r for r in ledger.rows() if r.destination_table == table)
    return row


def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
    raise KeyboardInterrupt


def data_files(places: Places, table: str) -> list[str]:
    return [name for name in places.files() if f"{table}/data/" in name]


def test_an_interrupted_export_is_cancelled_and_exported_again_later(places: Places) -> None:
    """Retry possible after a kill: the next export begins a transaction of its own."""
    places.before = interrupt
    assert places.run(*JANUARY, "--to", "lake.n.first")[0] == 130
    before = row_in(places, "lake.n.first")

    code, out, err = cancel(places, "--to", "lake.n.first")

    assert (code, out) == (0, "partition 202401: KILLED\n")
    assert "taken over" in err
    row = row_in(places, "lake.n.first")
    assert (row.state, row.claim.transaction_id) == (State.KILLED, before.claim.transaction_id)
    again, out, _ = cancel(places, "--to", "lake.n.first")
    assert (again, out) == (0, "partition 202401: KILLED already\n")

    places.before = lambda *_: None
    code, out, _ = places.run(*JANUARY, "--to", "lake.n.first")

    assert (code, "exported" in out) == (0, True)
    assert row_in(places, "lake.n.first").claim.transaction_id != before.claim.transaction_id


def test_a_run_that_is_cancelled_while_it_writes_says_so_and_exports_nothing(
    places: Places,
) -> None:
    """Harm prevented: a cancelled export that becomes visible, or claims to be another's."""
    results: list[tuple[int, str, str]] = []

    def cancelled(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        results.append(cancel(places, "--to", "lake.n.running"))

    places.before = cancelled
    code, out, err = places.run(*JANUARY, "--to", "lake.n.running")

    assert [s[0] for s in results] == [0]
    assert code == 4
    assert out.startswith("partition 202401: killed: it was cancelled.")
    assert "mergeberg export db.events" in err
    assert row_in(places, "lake.n.running").state is State.KILLED
    snapshots = list((places.warehouse / "n" / "running" / "metadata").glob("snap-*"))
    assert len(snapshots) == 2, "the first, empty one, and the fence"


def test_files_that_a_run_has_finished_are_removed(places: Places) -> None:
    """The writer goes on after the cancel; `gc` takes what it still writes."""
    places.before = interrupt
    places.run(*JANUARY, "--to", "lake.n.finished")
    row = row_in(places, "lake.n.finished")
    location = places.warehouse / "n" / "finished"
    name = f"{row.key.hash}-{row.claim.transaction_id}-0-x.parquet"
    (location / "data").mkdir(exist_ok=True)
    (location / "data" / name).write_bytes(b"rows")

    code, out, _ = cancel(places, "--to", "lake.n.finished", "--json")

    assert code == 0
    assert json.loads(out) == {
        "partition_id": "202401",
        "table": "lake.n.finished",
        "status": "killed",
        "message": "KILLED; 1 file removed, 4 B",
    }
    assert data_files(places, "finished") == []


def test_what_is_exported_cannot_be_cancelled(places: Places) -> None:
    """Harm prevented: KILLED is reported for rows that are in main."""
    places.run(*JANUARY, "--to", "lake.n.done")

    code, out, _ = cancel(places, "--to", "lake.n.done")

    assert code == 3
    assert out.startswith("partition 202401: nothing to cancel: it is in snapshot ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--table", "db.nothing"), "Cannot cancel the export of partition 202401 of db.nothing"),
        (("--table", "db.events", "--to", "lake.n.never"), "List what it has"),
    ],
)
def test_what_the_ledger_does_not_know_cannot_be_cancelled(
    places: Places, words: tuple[str, ...], message: str
) -> None:
    """The message says where to look."""
    places.run(*JANUARY, "--to", "lake.n.known")

    code, out, err = places.run("exports", "cancel", "202401", *words)

    assert (code, out) == (3, "")
    assert message in err


def test_each_error_of_several_cancellations_is_an_object(places: Places) -> None:
    """Harm prevented: a program does not see that one of them was not found."""
    words = ("exports", "cancel", "209901", "209902", "--table", "db.events", "--json")
    places.run(*JANUARY, "--to", "lake.n.there")

    code, out, err = places.run(*words)

    assert (code, out) == (3, "")
    first, second = (json.loads(line) for line in err.splitlines())
    assert {"209901", "209902"} <= {*f"{first} {second}".split()}
    assert {first["code"], second["code"]} == {None}


@pytest.mark.parametrize(
    ("codes", "errors", "expected", "raised"),
    [
        ((5,), (REFUSED,), 5, None),
        ((6,), (REFUSED,), 6, None),
        ((3, 0), (REFUSED,), None, REFUSED),
        ((0,), (REFUSED, FAILED), None, FAILED),
        ((3,), (FAILED, REFUSED), None, FAILED),
        ((5, 3), (), 5, None),
    ],
)
def test_the_exit_code_is_that_of_the_worst_cancellation(
    codes: tuple[int, ...],
    errors: tuple[TableFormatError, ...],
    expected: int | None,
    raised: TableFormatError | None,
) -> None:
    """Harm prevented: "refused, nothing changed" although one is not known to have landed."""
    output = JsonOutput(io.StringIO(), err := io.StringIO())
    found = Cancellations(codes=[*codes], errors=[*errors])

    if raised is None:
        assert found.ended(output) == expected
    else:
        with pytest.raises(type(raised)) as error:
            found.ended(output)
        assert error.value is raised
    printed = [json.loads(line)["error"] for line in err.getvalue().splitlines()]
    assert printed == [one.message for one in errors if one is not raised]


def test_one_of_two_destinations_has_to_be_named(places: Places) -> None:
    """Harm prevented: the export into another table is cancelled."""
    places.before = interrupt
    for name in ("twice", "again"):
        places.run(*JANUARY, "--to", f"lake.n.{name}")

    code, _, err = cancel(places)

    assert code == 2
    assert "lake.n.again" in err
    assert "--to" in err


def test_a_run_on_another_host_is_taken_over_too(places: Places) -> None:
    """Harm prevented: an export that hangs elsewhere cannot be cancelled from here."""
    places.before = interrupt
    places.run(*JANUARY, "--to", "lake.n.elsewhere")
    row = row_in(places, "lake.n.elsewhere")
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    ledger.take_lease(row.key.hash, Owner("elsewhere", 1, "now"), 600)

    code, out, _ = cancel(places, "--to", "lake.n.elsewhere")

    assert (code, out) == (0, "partition 202401: KILLED\n")
    assert ledger.holder(row.key.hash) is None


def test_several_exports_are_cancelled_by_one_command(places: Places) -> None:
    """Harm prevented: after Ctrl-C of many partitions a command is typed for each."""
    places.before = interrupt
    assert places.run("export", "db.events", "--all", "--to", "lake.n.several")[0] == 130
    words = ("--table", "db.events", "--to", "lake.n.several")

    code, out, err = places.run("exports", "cancel", "202401", "209901", "202402", *words)

    assert (code, sorted(out.splitlines())) == (
        3,
        ["partition 202401: KILLED", "partition 202402: KILLED"],
    )
    assert "Cannot cancel the export of partition 209901 of db.events" in err


def test_all_that_is_under_way_is_cancelled_wherever_it_goes(
    places: Places, tmp_path: Path
) -> None:
    ledger = ("--ledger", f"sqlite:{tmp_path}/ledger.db")
    places.run(*JANUARY, "--to", "lake.n.alldone", *ledger)
    places.before = interrupt
    places.run("export", "db.events", "--all", "--to", "lake.n.allone", *ledger)
    places.run("export", "db.other", "--all", "--to", "lake.n.alltwo", *ledger)

    one = places.outcomes("exports", "cancel", "--all", "--table", "db.other", *ledger)
    code, out, _ = places.run("exports", "cancel", "--all", *ledger)
    again, stdout, _ = places.run("exports", "cancel", "--all", *ledger)

    assert {(r["table"], r["status"]) for r in one} == {("lake.n.alltwo", "killed")}
    assert (code, sorted(out.splitlines())) == (
        0,
        ["partition 202401: KILLED", "partition 202402: KILLED"],
    )
    assert (again, stdout) == (0, "nothing to cancel: no export is under way\n")
    listed = places.outcomes("exports", "list", *ledger)
    (kept,) = (r["status"] for r in listed if r["destination_table"] == "lake.n.alldone")
    assert kept == "COMPLETED"


@pytest.mark.parametrize(
    "words", [(), ("--all", "202401", "--table", "db.events"), ("202401",)], ids=str
)
def test_what_is_to_be_cancelled_is_named_in_one_way(
    places: Places, words: tuple[str, ...]
) -> None:
    code, out, err = places.run("exports", "cancel", *words)

    assert (code, out) == (2, "")
    assert "give partition ids and --table, or --all" in err


@pytest.mark.representative
@pytest.mark.spark
def test_a_run_of_another_process_stops_soon_and_nothing_of_it_is_visible(tmp_path: Path) -> None:
    """Harm prevented: a cancelled export that goes on working, or one that lands afterwards."""
    fill(tmp_path / "clickhouse")
    export = start(tmp_path)
    until_it_writes(export)
    warehouse = str(tmp_path / "warehouse")
    words = ["cancel", "all", "--table", "db.big", "--warehouse", warehouse]
    out, err = io.StringIO(), io.StringIO()

    began = time.monotonic()
    code = invoke(["exports", *words], out, err)
    cancelling = time.monotonic() - began
    stdout, stderr = export.communicate()
    stopping = time.monotonic() - began

    assert (code, "KILLED" in out.getvalue()) == (0, True)
    assert "taken over" in err.getvalue()
    assert cancelling < 10
    assert stopping < 20
    assert export.returncode == 4, stderr
    assert stdout.startswith("partition all: killed: it was cancelled.")
    ledger = SqliteLedger(tmp_path / "warehouse" / LEDGER_FILE)
    (row,) = ledger.rows()
    assert row.state is State.KILLED

    out = io.StringIO()
    assert invoke(["gc", "--to", "lake.n.big", "--warehouse", warehouse, "--yes"], out, err) == 0
    out = io.StringIO()
    assert invoke(["gc", "--to", "lake.n.big", "--warehouse", warehouse], out, err) == 0
    assert out.getvalue() == "nothing to remove, 0 kept\n"
