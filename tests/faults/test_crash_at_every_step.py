"""The process dies before or after any of its effects; the same command again makes it right."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.iceberg import IcebergTable
from catalog.ledgers.embedded import SqliteLedger
from tableformat.effects import Effects, Step
from tableformat.export.claim import Wish
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.selection import ById
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import State
from tableformat.names import LakeName, PartitionId, TableName
from tests.dying import Dies, DiesAt
from tests.fakes import FakeSource, job_ports, part

_REQUEST = ExportRequest(
    TableName("db", "t"), LakeName("lake", ("n",), "t"), ById(PartitionId("all")), Wish(), {}
)
_ROWS = 12


def run(directory: Path, source: FakeSource, effects: Effects | None = None) -> list[Outcome]:
    """Run the command as a new process."""
    clock = itertools.count(1_000_000).__next__
    ports = job_ports(directory, source, effects=effects, clock=clock)
    return list(export(_REQUEST, ports, slots=1))


def rows_in_main(directory: Path) -> int:
    """Return the rows of main by its manifests."""
    ports = job_ports(directory, FakeSource(), clock=lambda: 1)
    table: IcebergTable | None = ports.lake.table(_REQUEST.to)  # type: ignore[assignment]
    assert table is not None
    state = table.load()
    scan = table_of(state).scan(snapshot_id=state.main)
    return sum(task.file.record_count for task in scan.plan_files())


def assert_exported_once(directory: Path, outcomes: list[Outcome]) -> None:
    """Check the promise: all rows once, and a ledger and an answer that say so."""
    assert [o.status for o in outcomes] in ([Status.COMMITTED], [Status.ALREADY_EXPORTED])
    assert rows_in_main(directory) == _ROWS
    row = next(SqliteLedger(directory / "ledger.db").rows())
    assert row.state is State.COMPLETED
    assert (row.last.rows, len(row.landed)) == (_ROWS, 1)


def _steps() -> list[Step]:
    recorder = DiesAt(10_000, after=False)
    with tempfile.TemporaryDirectory() as directory:
        assert_exported_once(Path(directory), run(Path(directory), FakeSource(), recorder))
    return recorder.steps


STEPS = _steps()


def test_the_enumeration_knows_the_steps_of_a_first_export() -> None:
    """Harm prevented: an enumeration that has become empty proves nothing."""
    assert {Step.CREATE_TABLE, Step.FIRST_SNAPSHOT, Step.CLAIM, Step.WRITE_FILES} <= set(STEPS)
    assert {Step.NOTE_WRITTEN, Step.STAGE, Step.SEND, Step.SETTLE, Step.RELEASE_SOURCE} <= set(
        STEPS
    )


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(len(STEPS)), ids=[f"{i}-{s}" for i, s in enumerate(STEPS)])
def test_a_crash_and_the_same_command_again_is_exactly_once(
    tmp_path: Path, number: int, *, after: bool
) -> None:
    """Harm prevented: rows lost or twice because the process died there."""
    source = FakeSource()
    with pytest.raises(Dies):
        run(tmp_path, source, DiesAt(number, after=after))

    assert_exported_once(tmp_path, run(tmp_path, source))
    assert [o.status for o in run(tmp_path, source)] == [Status.ALREADY_EXPORTED]


@settings(max_examples=15, deadline=None)
@given(
    deaths=st.lists(
        st.tuples(st.integers(0, len(STEPS) - 1), st.booleans()), min_size=2, max_size=4
    )
)
def test_several_crashes_in_a_row_are_exactly_once(deaths: list[tuple[int, bool]]) -> None:
    """Harm prevented: the recovery from one crash is itself not safe to crash in."""
    with tempfile.TemporaryDirectory() as name:
        directory, source = Path(name), FakeSource()
        for number, after in deaths:
            try:
                run(directory, source, DiesAt(number, after=after))
            except Dies:
                continue
        assert_exported_once(directory, run(directory, source))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(len(STEPS)), ids=[f"{i}-{s}" for i, s in enumerate(STEPS)])
def test_a_crash_and_other_content_afterwards_never_mixes_the_two(
    tmp_path: Path, number: int, *, after: bool
) -> None:
    """Harm prevented: old and new rows of one partition side by side, or a false answer."""
    source = FakeSource()
    with pytest.raises(Dies):
        run(tmp_path, source, DiesAt(number, after=after))
    source.held = [part("all_1_1_0", 7), part("all_2_2_0", 5), part("all_3_3_0", 3)]

    (outcome,) = run(tmp_path, source)

    rows = rows_in_main(tmp_path)
    assert (outcome.status, rows) in [
        (Status.COMMITTED, _ROWS + 3),
        (Status.COMMITTED, _ROWS),
        (Status.REFUSED, _ROWS),
    ]
    if (outcome.status, rows) == (Status.COMMITTED, _ROWS):
        assert "had frozen it with 12 rows" in outcome.message
        assert "the source has 15 now" in outcome.message
