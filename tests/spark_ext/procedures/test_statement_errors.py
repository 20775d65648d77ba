"""A statement of several commands fails: the error has its class, and what was done before it."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from catalog.iceberg.table import IcebergTable
from catalog.ledgers.uris import open_ledger
from spark_ext.procedures.statements import check_all_done
from tableformat.committer import Sent
from tableformat.errors import (
    DestinationError,
    InternalError,
    NotFoundError,
    RefusedError,
    SourceError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import Owner
from tableformat.names import LakeName
from tests.support.session_lake import alter, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

TABLE = LakeName("lake", ("n",), "t")
DROPPED = Outcome(
    "1", Status.DROPPED, str(TABLE), left_files=1, left_rows=2, left_bytes=3, undo="ALTER TABLE x"
)
DONE = (
    "The statement has changed lake.n.t: partition 1: dropped: 2 rows, 3 bytes, leave main; 0 "
    "rows, 0 bytes, come; undone by ALTER TABLE x, as long as that snapshot is kept."
)


def error_of(session: NoSpark, statement: str) -> dict[str, Any]:
    """Run a statement as the server's JVM does; return its error."""
    found: dict[str, Any] = session.response(None, "execute_alter", statement=statement)["error"]
    return found


def test_an_error_names_what_was_done_before_it_and_what_undoes_it(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    """Harm prevented: all rows of a partition have left, and the answer says "cannot find"."""
    table = f"ALTER TABLE lake.n.{dropped_from}"

    error = error_of(session, f"{table} DETACH PARTITION 202402, DROP DETACHED PART '202402_7_7_0'")

    assert (error["sqlstate"], error["code"]) == ("42P01", 233)
    assert rows_of(places, dropped_from) == 1
    assert f"changed lake.n.{dropped_from}: partition 202402: detached: 2 rows" in error["message"]
    (undo,) = re.findall(r"undone by (ALTER .*), as long as", error["message"])
    alter(session, undo)
    assert rows_of(places, dropped_from) == 3


def test_an_error_of_a_dry_run_claims_no_change() -> None:
    check_all_done(TABLE, (DROPPED,), (), dry_run=True)
    with pytest.raises(NotFoundError) as refused:
        check_all_done(TABLE, (DROPPED,), (NotFoundError("Cannot find it."),), dry_run=True)
    assert refused.value.message == "Cannot find it."


def test_a_commit_without_a_response_is_no_refusal(
    session: NoSpark, dropped_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a program does not run a statement again that may have landed."""
    sent = IcebergTable.send

    def send(table: IcebergTable, *given: Any) -> Sent:
        if "'202401'" in str(given):
            return Sent(applied=False, error="ReadTimeout: no answer")
        return sent(table, *given)

    monkeypatch.setattr(IcebergTable, "send", send)
    error = error_of(
        session,
        f"ALTER TABLE lake.n.{dropped_from} DROP PARTITION 202402, DROP PARTITION 202401",
    )

    assert error["sqlstate"] == "58000", error
    assert "Cannot change partition 202401 of" in error["message"]
    assert "unknown: it may have landed" in error["message"]
    assert "partition 202402: dropped: 2 rows" in error["message"]


def test_a_partition_that_another_process_works_on_is_no_refusal(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    with contextlib.closing(open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        name = f"lake.n.{dropped_from}"
        (row,) = (
            one
            for one in ledger.rows()
            if (one.destination_table, one.key.partition_id) == (name, "202401")
        )
        ledger.take_lease(row.key.hash, Owner("other-host", 7, "1"), 60.0)

    error = error_of(session, f"ALTER TABLE {name} DROP PARTITION 202401")

    assert (error["kind"], error["sqlstate"]) == ("DestinationError", "58000")
    assert "in_progress: process 7 on other-host works on it" in error["message"]
    assert rows_of(places, dropped_from) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.REFUSED, RefusedError),
        (Status.IN_PROGRESS, DestinationError),
        (Status.KILLED, StoppedError),
        (Status.STOPPED, StoppedError),
        (Status.FAILED, DestinationError),
        (Status.UNKNOWN, DestinationError),
        (Status.UNVERIFIED, DestinationError),
    ],
)
def test_the_error_of_a_statement_has_the_class_of_its_outcome(
    status: Status, kind: type[TableFormatError]
) -> None:
    wrong = Outcome("2", status, str(TABLE), "why.", code=7)

    with pytest.raises(TableFormatError) as refused:
        check_all_done(TABLE, (DROPPED, wrong), ())

    assert type(refused.value) is kind
    assert refused.value.code == 7
    what = f"Cannot change partition 2 of lake.n.t: {status.value}: why."
    assert refused.value.message == f"{what} {DONE}"


def test_the_worst_of_several_errors_is_the_class_of_all() -> None:
    """Harm prevented: an unknown commit is reported as a name that does not exist."""
    missing = NotFoundError("Cannot find part x.", code=233)
    unknown = Outcome("2", Status.UNKNOWN, str(TABLE), "it may have landed")

    with pytest.raises(DestinationError, match=r"it may have landed\. Cannot find part x\."):
        check_all_done(TABLE, (unknown,), (missing,))
    refused = Outcome("3", Status.REFUSED, str(TABLE), "other")
    with pytest.raises(SourceError, match=r"no server.* refused: other"):
        check_all_done(TABLE, (refused,), (SourceError("no server."),))
    with pytest.raises(InternalError):
        check_all_done(TABLE, (unknown,), (InternalError("This is a bug."),))


def test_an_error_before_any_change_is_as_it_is() -> None:
    missing = NotFoundError("Cannot find part x.", code=233)
    empty = Outcome("1", Status.EMPTY, str(TABLE))

    with pytest.raises(NotFoundError) as refused:
        check_all_done(TABLE, (empty,), (missing,))

    assert refused.value is missing


def test_several_changes_are_undone_from_the_last_one() -> None:
    other = Outcome("2", Status.ATTACHED, str(TABLE))

    with pytest.raises(NotFoundError) as refused:
        check_all_done(TABLE, (DROPPED, DROPPED, other), (NotFoundError("Cannot find it."),))

    assert refused.value.message.endswith("kept. partition 2: attached. Undo the last one first.")
