"""What a statement says when not everything is exported: nothing is silent, nothing invented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.sources import SourcePlace
from spark_ext.sql.export import Ended, check_all_exported
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_exports import SessionExport
from tableformat.errors import (
    DestinationError,
    InternalError,
    LedgerError,
    NotFoundError,
    RefusedError,
    SourceError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.names import LakeName, TableName

TABLE = TableName("db", "t")
ASKED = SessionExport(
    SourceTable(SourcePlace("chdb:/x"), TABLE),
    ExportRequest(TABLE, LakeName("lake", ("n",), "t"), AllPartitions(), ExportOptions(), {}),
)
STATUSES = st.sampled_from([*Status])
GOOD = [one for one in Status if not one.exit_code]


def outcome(name: str, status: Status, message: str = "", code: int | None = None) -> Outcome:
    return Outcome(name, status, "lake.n.t", message, code=code)


@given(st.lists(STATUSES, max_size=8))
def test_it_is_an_error_exactly_when_a_partition_is_not_as_in_the_source(
    found: list[Status],
) -> None:
    ended = Ended(ASKED, tuple(outcome(str(n), one) for n, one in enumerate(found)), ())
    wrong = [str(n) for n, one in enumerate(found) if one not in GOOD]

    if not wrong:
        check_all_exported([ended])
        return
    with pytest.raises(TableFormatError, match="Cannot export everything") as refused:
        check_all_exported([ended])
    for name in wrong[:3]:
        assert f"partition {name} of db.t: " in refused.value.message
    assert (f"So are {len(wrong) - 3} more" in refused.value.message) is (len(wrong) > 3)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.REFUSED, RefusedError),
        (Status.IN_PROGRESS, DestinationError),
        (Status.KILLED, StoppedError),
        (Status.FAILED, SourceError),
        (Status.UNKNOWN, DestinationError),
        (Status.UNVERIFIED, DestinationError),
    ],
)
def test_the_kind_of_error_is_that_of_the_outcome(
    status: Status, kind: type[TableFormatError]
) -> None:
    ended = Ended(ASKED, (outcome("1", status, "why.", 7), outcome("2", Status.COMMITTED)), ())

    with pytest.raises(
        kind, match=r"partition 1 of db\.t: \w+: why\. In the lake: 2 of db\.t\."
    ) as refused:
        check_all_exported([ended])

    assert refused.value.code == 7


def test_an_error_alone_is_itself() -> None:
    error = NotFoundError("Cannot find it: there is none. Name another.", code=60)

    with pytest.raises(NotFoundError) as refused:
        check_all_exported([Ended(ASKED, (), (error,))])

    assert refused.value is error


def test_an_error_after_finished_exports_lists_them() -> None:
    """A shard that cannot be read, after another one was exported."""
    error = LedgerError("Cannot read the ledger: it is locked. Wait.")
    ended = Ended(ASKED, (outcome("1", Status.COMMITTED),), (error,))

    with pytest.raises(LedgerError, match=r"it is locked\. Wait\. In the lake: 1 of db\.t\."):
        check_all_exported([ended])


def test_a_bug_stays_a_bug_and_unbegun_exports_are_listed() -> None:
    stopped = Ended(ASKED, (), (), is_stopped=True)
    done = Ended(ASKED, (outcome("1", Status.UNCHANGED),), ())

    with pytest.raises(StoppedError, match=r"the export of db\.t to lake\.n\.t was not begun"):
        check_all_exported([done, stopped])
    with pytest.raises(InternalError, match="report it"):
        check_all_exported([done, stopped, Ended(ASKED, (), (InternalError("report it"),))])
