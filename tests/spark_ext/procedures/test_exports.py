"""What becomes of exports is listed, cancelled and forgotten in SQL, in the words of SQL."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from spark_ext.actions.cancel import KilledPartition, KillStatus
from spark_ext.procedures import statements
from tableformat.errors import NotFoundError, RefusedError, UsageError
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import State
from tableformat.messages import Option
from tests.support.session_without_spark import NoSpark, Row
from tests.wrong.places import Places

JANUARY = ("export", "db.events", "--partition-id", "202401")


def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
    raise KeyboardInterrupt


def exported(places: Places, name: str) -> None:
    code, _, err = places.run(*JANUARY, "--to", f"lake.n.{name}")
    assert code == 0, err


def interrupted(places: Places, name: str) -> None:
    places.before = interrupt
    assert places.run(*JANUARY, "--to", f"lake.n.{name}")[0] == 130
    places.before = lambda *_: None


def listed(session: NoSpark, **given: str) -> list[tuple[str, str]]:
    """Return destination and status of what is listed, by destination."""
    rows = session.call("exports", **given)
    return sorted((row["destination_table"], row["status"]) for row in rows)


def test_an_export_is_listed_with_where_and_when_it_landed(
    places: Places, session: NoSpark
) -> None:
    exported(places, "listed")

    rows = session.call("exports", table="lake.n.listed")

    assert len(rows) == 1
    (row,) = rows
    assert (row["source_table"], row["partition_id"]) == ("db.events", "202401")
    assert (row["status"], row["rows"], row["data_files"]) == ("COMPLETED", 1, 1)
    assert row["snapshot_id"] > 0
    assert row["last_error"] is None
    ago = datetime.now(UTC) - datetime.fromisoformat(row["update_time"])
    assert timedelta(0) <= ago < timedelta(minutes=5)


def test_what_a_statement_did_to_an_export_since_is_listed(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: a partition that was dropped is listed as if its rows were there."""
    exported(places, "taken")
    (before,) = session.call("exports", table="lake.n.taken")

    session.call("execute_alter", statement="ALTER TABLE lake.n.taken DROP PARTITION 202401")

    (row,) = session.call("exports", table="lake.n.taken")
    assert before["changed_by"] is None
    assert row["status"] == "COMPLETED"
    assert re.fullmatch(r"DROP PARTITION ID '202401' \(snapshot \d+\)", row["changed_by"])
    on_the_line = places.outcomes("exports", "list")
    changed_by = {r["changed_by"] for r in on_the_line if r["destination_table"] == "lake.n.taken"}
    assert changed_by == {row["changed_by"]}


def test_exports_are_chosen_by_either_table_and_by_status(places: Places, session: NoSpark) -> None:
    """A lake table may stand without its catalog: the call says which."""
    exported(places, "chosen")
    interrupted(places, "left")

    assert listed(session, table="n.chosen") == [("lake.n.chosen", "COMPLETED")]
    assert ("lake.n.left", "INTERRUPTED") in listed(session, table="ch.db.events")
    assert ("lake.n.left", "INTERRUPTED") in listed(session, status="interrupted")
    assert ("lake.n.chosen", "COMPLETED") not in listed(session, status="interrupted")
    assert listed(session, table="ch.db.others") == []


def test_a_status_that_there_is_not_is_refused_with_those_that_there_are(session: NoSpark) -> None:
    """Harm prevented: an empty list, because of a slip, that reads as if nothing failed."""
    with pytest.raises(UsageError, match=r"'DONE' is no status.*FAILED, KILLED, COMPLETED"):
        session.call("exports", status="DONE")


def cancel(session: NoSpark, name: str) -> Row:
    (row,) = session.call(
        "cancel_export", source="ch.db.events", partition_id="202401", table=name, wait=5
    )
    return row


def under_way_twice(places: Places, name: str) -> None:
    """Leave two exports of a partition, as two shards have them, that did not end."""
    interrupted(places, name)
    with contextlib.closing(SqliteLedger(places.warehouse / LEDGER_FILE)) as ledger:
        (row,) = (r for r in ledger.rows() if r.destination_table == f"lake.n.{name}")
        other = replace(row.key, source="the other shard")
        ledger.write(replace(row, key=other, version=0))


def test_exports_of_shards_into_one_table_are_cancelled_together(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: "it is exported to t, t. Name one of them", and nobody can cancel it."""
    under_way_twice(places, "by_call")

    rows = session.call(
        "cancel_export", source="ch.db.events", partition_id="202401", table="n.by_call"
    )

    assert [row["status"] for row in rows] == ["killed", "killed"]
    under_way_twice(places, "by_command")
    code, out, err = places.run(
        "exports", "cancel", "202401", "--table", "db.events", "--to", "lake.n.by_command"
    )
    assert (code, out) == (0, "partition 202401: KILLED\n" * 2), err


def test_an_export_into_a_table_of_before_keeps_none_of_the_others_back(
    places: Places, session: NoSpark
) -> None:
    """The table was recreated: its name is that of the one that exists."""
    interrupted(places, "anew")
    with contextlib.closing(SqliteLedger(places.warehouse / LEDGER_FILE)) as ledger:
        (row,) = (r for r in ledger.rows() if r.destination_table == "lake.n.anew")
        ledger.write(replace(row, key=replace(row.key, destination="gone"), version=0))

    found = cancel(session, "n.anew")

    assert (found["status"], found["transaction_id"]) == ("killed", row.last.transaction_id)
    assert set(listed(session, table="n.anew")) == {("lake.n.anew", "KILLED")}
    with contextlib.closing(SqliteLedger(places.warehouse / LEDGER_FILE)) as ledger:
        (before,) = (r for r in ledger.rows() if r.key.destination == "gone")
    assert before.state is State.RUNNING


def test_an_interrupted_export_is_cancelled_and_stays_cancelled(
    places: Places, session: NoSpark
) -> None:
    interrupted(places, "cancelled")
    (before,) = session.call("exports", table="n.cancelled")

    row = cancel(session, "n.cancelled")

    assert (row["status"], row["destination_table"]) == ("killed", "lake.n.cancelled")
    assert row["transaction_id"] == before["transaction_id"]
    assert listed(session, table="n.cancelled") == [("lake.n.cancelled", "KILLED")]
    assert cancel(session, "lake.n.cancelled")["status"] == "killed"


def test_what_landed_cannot_be_cancelled_and_that_is_an_error(
    places: Places, session: NoSpark
) -> None:
    """Harm prevented: a script goes on as if nothing of it were visible."""
    exported(places, "landed")

    with pytest.raises(RefusedError, match=r"202401 of db\.events to lake\.n\.landed: nothing to"):
        cancel(session, "n.landed")


def test_a_missing_export_is_reported_as_missing(session: NoSpark) -> None:
    with pytest.raises(NotFoundError, match=r"Cannot cancel .* of partition 1 of db\.events"):
        session.call("cancel_export", table="n.none", source="ch.db.events", partition_id="1")


def test_a_time_to_wait_is_a_number_of_seconds(session: NoSpark) -> None:
    with pytest.raises(UsageError, match=r"Cannot wait .* seconds"):
        session.call(
            "cancel_export", table="n.none", source="ch.db.events", partition_id="1", wait=-1
        )


def test_what_was_forgotten_is_exported_again_without_being_refused(
    places: Places, session: NoSpark
) -> None:
    exported(places, "forgotten")

    (row,) = session.call(
        "forget_export", source="ch.db.events", partition_id="202401", table="n.forgotten"
    )

    assert (row["partition_id"], row["destination_table"]) == ("202401", "lake.n.forgotten")
    assert "exporting it again is no longer refused" in row["message"]
    code, out, _ = places.run(*JANUARY, "--to", "lake.n.forgotten")
    assert (code, "unchanged" in out) == (0, True)


def test_a_killed_export_is_reported_in_the_words_of_the_statement(
    places: Places, session: NoSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: the message for a statement names an option that only commands have."""
    places.run("export", "db.events", "--all", "--to", "lake.n.told")
    with contextlib.closing(SqliteLedger(places.warehouse / LEDGER_FILE)) as ledger:
        row = next(one for one in ledger.rows() if one.destination_table == "lake.n.told")
    why = f"Cannot do it. Give another {Option.LEDGER}."
    found = KilledPartition(row, KillStatus.CANT_CANCEL, why)
    monkeypatch.setattr(statements, "kill_in_session", lambda *_: (found,))

    (killed,) = session.call("execute_alter", statement="KILL QUERY WHERE query_id = 'q'")

    assert killed["status"] == "cant_cancel"
    assert killed["message"].endswith(
        ": db.events to lake.n.told: Cannot do it. Give another spark.mergeberg.ledger."
    )
