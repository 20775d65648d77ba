"""What an export leaves in the history: part_log's rows and ClickHouse's counters, in source parts.

RQ…Logging, RQ…Metrics.Export.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ledgers.sqlite import SqliteLedger
from tableformat.effects import Step
from tableformat.errors import LedgerError, SourceError
from tableformat.export.outcome import Cause, Outcome, Status, events_of
from tableformat.export.ports import JobPorts, Silent, SliceWriter, Writing
from tableformat.export.request import ExportOptions
from tableformat.file_names import data_file_name
from tableformat.history import RUNNING_EXPORTS, Counter, Event
from tableformat.ledger import Held, Row, State
from tests.faults.test_operator_actions import append
from tests.strategies.ledger import ledger_rows
from tests.support.lake import make_table
from tests.support.scenarios import (
    ALL,
    CLOCK,
    AtStep,
    Partitions,
    parts_of,
    ports_of,
    run,
    statuses,
)


class Recording(Silent):
    """Hears the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class NoHistory:
    """A ledger that works and cannot keep its history."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def note(self, _events: tuple[Event, ...]) -> None:
        message = "Cannot use the ledger: the disk is full. Make room."
        raise LedgerError(message)


class Broken:
    """A writer whose tasks cannot run."""

    slots = 1

    def versions(self) -> tuple[tuple[str, str], ...]:
        return ()

    def write(self, *_: object, **__: object) -> Writing:
        message = "Cannot read db.t: the disk is on fire. Call for help."
        raise SourceError(message)


def broken_ports(directory: Path, source: Partitions) -> JobPorts:
    def writer() -> SliceWriter:
        return Broken()

    return replace(ports_of(directory, source), writer=writer)


def opened(directory: Path) -> contextlib.closing[SqliteLedger]:
    """Open the ledger with the clock of the runs."""
    return contextlib.closing(SqliteLedger(directory / "ledger.db", clock=CLOCK.__next__))


def history(directory: Path) -> tuple[Event, ...]:
    """Return all events, the first noted first."""
    with opened(directory) as ledger:
        return tuple(reversed(ledger.events(None, 1000)))


def counters(directory: Path) -> dict[str, int]:
    with opened(directory) as ledger:
        return dict(ledger.counters())


def test_an_export_is_one_row_for_each_source_part_and_one_for_the_partition(
    tmp_path: Path,
) -> None:
    run(tmp_path, Partitions(by_id={"p1": parts_of("p1", 7, 5)}))

    found = history(tmp_path)
    assert [(e.part_name, e.rows, e.bytes_read, e.status) for e in found] == [
        ("p1_1_1_0", 7, 70, "committed"),
        ("p1_2_2_0", 5, 50, "committed"),
        ("", 12, 120, "committed"),
    ]
    (whole,) = (e for e in found if not e.part_name)
    (outcome,) = run(tmp_path, Partitions(by_id={"p1": parts_of("p1", 7, 5)}))
    assert whole.bytes_written == outcome.bytes == sum(e.bytes_written for e in found[:2]) > 0
    assert {(e.kind.value, e.table, e.destination, e.partition_id, e.error) for e in found} == {
        ("EXPORT_PARTITION", "db.t", "lake.n.t", "p1", "")
    }
    assert {e.transaction_id for e in found} == {outcome.transaction_id}
    assert all(e.time >= 1_000_000 for e in found)


def test_parts_are_counted_not_files_or_partitions(tmp_path: Path) -> None:
    """Harm prevented: an alarm on a count that depends on how many cores there were."""
    source = Partitions()
    run(tmp_path, source)
    assert counters(tmp_path) == {
        Counter.EXPORTS: 3, Counter.FAILURES: 0, Counter.DUPLICATED: 0, RUNNING_EXPORTS: 0,
    }  # fmt: skip

    assert statuses(run(tmp_path, source)) == ["already_exported"] * 2
    run(tmp_path, source, request=replace(ALL, options=ExportOptions(force=True)))

    found = counters(tmp_path)
    assert (found[Counter.EXPORTS], found[Counter.DUPLICATED]) == (6, 3)


def test_a_failed_export_is_counted_and_says_why(tmp_path: Path) -> None:
    source = Partitions()
    outcomes = run(tmp_path, source, ports=broken_ports(tmp_path, source))

    assert statuses(outcomes) == ["failed", "failed"]
    assert counters(tmp_path)[Counter.FAILURES] == 3
    of_first = [e for e in history(tmp_path) if e.partition_id == "p1"]
    assert [(e.part_name, e.bytes_written) for e in of_first] == [
        ("p1_1_1_0", 0), ("p1_2_2_0", 0), ("", 0),
    ]  # fmt: skip
    assert all("the disk is on fire" in e.error for e in history(tmp_path))


def test_a_refused_replacement_is_a_duplicate(tmp_path: Path) -> None:
    """Inside the time to live other content is refused, because the partition was exported."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    run(tmp_path, source)
    source.by_id["p1"] = parts_of("p1", 7, 5, 3)

    assert statuses(run(tmp_path, source)) == ["refused"]

    assert counters(tmp_path)[Counter.DUPLICATED] == 2
    assert "differs from what was exported" in history(tmp_path)[-1].error


@pytest.mark.parametrize("step", [Step.DESCRIBE_SOURCE, Step.SEND])
def test_rows_of_others_in_the_partition_are_duplicates(tmp_path: Path, step: Step) -> None:
    """Found before anything is claimed, or with the request: the parts are counted either way."""
    make_table(tmp_path / "warehouse")
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    effects = AtStep(step, lambda: append(tmp_path))

    assert statuses(run(tmp_path, source, effects=effects)) == ["refused"]

    found = counters(tmp_path)
    assert (found[Counter.DUPLICATED], found[Counter.FAILURES]) == (2, 0)
    assert "no export of this ledger wrote" in history(tmp_path)[-1].error


def test_an_export_that_runs_now_is_counted(tmp_path: Path) -> None:
    source, seen = Partitions(), []
    visit = AtStep(Step.WRITE_FILES, lambda: seen.append(counters(tmp_path)[RUNNING_EXPORTS]))

    run(tmp_path, source, effects=visit)

    assert (seen, counters(tmp_path)[RUNNING_EXPORTS]) == ([2], 0)


def test_a_run_that_changes_nothing_logs_one_row_for_each_partition(
    tmp_path: Path,
) -> None:
    """Harm prevented: an audit that cannot tell whether the nightly export ran at all.

    Its parts have no rows: hourly runs over unchanged partitions would push out what happened.
    """
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5), "hollow": []})
    run(tmp_path, source, request=replace(ALL, options=ExportOptions(manifest_ttl=1)))
    before = history(tmp_path)
    later = ports_of(tmp_path, source, clock=lambda: 9_000_000)

    assert statuses(run(tmp_path, source, ports=later)) == ["empty", "unchanged"]

    noted = sorted(history(tmp_path)[len(before) :], key=lambda e: e.partition_id)
    assert [(e.partition_id, e.part_name, e.status, e.rows, e.error) for e in noted] == [
        ("hollow", "", "empty", 0, ""),
        ("p1", "", "unchanged", 12, ""),
    ]
    assert [(e.bytes_read, e.bytes_written) for e in noted] == [(0, 0), (0, 0)]
    assert counters(tmp_path)[Counter.DUPLICATED] == 2


def test_a_partition_that_another_run_exports_is_a_duplicate_and_in_the_log(
    tmp_path: Path,
) -> None:
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    second: list[list[str]] = []
    visit = AtStep(
        Step.WRITE_FILES,
        lambda: second.append(
            statuses(run(tmp_path, source, ports=ports_of(tmp_path, source, alive=True)))
        ),
    )

    run(tmp_path, source, effects=visit)

    assert second == [["in_progress"]]
    (noted,) = (e for e in history(tmp_path) if e.status == "in_progress")
    assert (noted.partition_id, noted.part_name) == ("p1", "")
    assert "process" in noted.error
    assert counters(tmp_path)[Counter.DUPLICATED] == 2


def test_a_history_that_cannot_be_kept_never_fails_an_export(tmp_path: Path) -> None:
    """Harm prevented: "failed" of rows that are in main, because a log was full."""
    source, heard = Partitions(), Recording()
    ports = ports_of(tmp_path, source)
    ports = replace(ports, ledger=NoHistory(ports.ledger), observer=heard)

    assert statuses(run(tmp_path, source, ports=ports)) == ["committed", "committed"]

    assert history(tmp_path) == ()
    assert "partition p1: it is not in the log: Cannot use the ledger" in " ".join(heard.notes)


def test_an_outcome_is_recorded_before_it_is_reported(tmp_path: Path) -> None:
    """A caller that stops after the first outcome finds it in the log."""
    order: list[str] = []
    note: Callable[[], None] = lambda: order.append("noted")  # noqa: E731  as short as what it does
    outcomes = run(tmp_path, Partitions(), effects=AtStep(Step.NOTE_HISTORY, note, after=True))

    assert order == ["noted"]
    assert len(outcomes) == 2


COUNTED = [
    (Status.COMMITTED, "", Counter.EXPORTS, None),
    (Status.REPLACED, "", Counter.EXPORTS, None),
    (Status.DIFFERS, "column a differs", Counter.EXPORTS, None),
    (Status.UNVERIFIED, "the digest is gone", Counter.EXPORTS, None),
    (Status.ALREADY_EXPORTED, "7 rows are in main", Counter.DUPLICATED, None),
    (Status.REFUSED, "Main holds 1 file that nobody knows.", Counter.DUPLICATED, None),
    (Status.REFUSED, "Cannot be told from an error by its text.", Counter.DUPLICATED, None),
    (Status.REFUSED, "a value is too large", Counter.FAILURES, Cause.ERROR),
    (Status.REFUSED, "Main has files of others.", Counter.DUPLICATED, Cause.ROWS_OF_OTHERS),
    (Status.FAILED, "Cannot read db.t: no disk. Look for it.", Counter.FAILURES, None),
    (Status.UNKNOWN, "it may have landed", Counter.FAILURES, None),
    (Status.KILLED, "killed", Counter.FAILURES, None),
    (Status.STOPPED, "stopped before it began", None, None),
    (Status.UNCHANGED, "7 rows are in main", Counter.DUPLICATED, None),
    (Status.EMPTY, "no rows", None, None),
    (Status.IN_PROGRESS, "another process exports it", Counter.DUPLICATED, None),
]


@pytest.mark.parametrize(("status", "message", "counter", "cause"), COUNTED)
def test_every_status_counts_as_it_is_documented(
    status: Status, message: str, counter: Counter | None, cause: Cause | None
) -> None:
    """Of a partition without a row the parts are not known: it counts once."""
    outcome = Outcome("p", status, "lake.n.t", message, cause=cause)
    found = events_of(outcome, None, "db.t", 1)

    assert [(e.counter, e.parts, e.part_name) for e in found] == [
        (counter, int(counter is not None), "")
    ]
    in_order = (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED, Status.EMPTY)
    assert [e.error for e in found] == ["" if status in in_order else message]


def test_every_status_that_an_export_ends_with_is_in_the_log() -> None:
    """Harm prevented: a new outcome that is neither noted nor counted, and nobody decided so."""
    of_exports = {status for status, *_ in COUNTED}
    of_statements = {
        Status.DROPPED, Status.DETACHED, Status.ATTACHED, Status.MOVED, Status.CHANGED,
        Status.OPTIMIZED, Status.FETCHED, Status.FROZEN, Status.UNFROZEN, Status.FORGOTTEN,
    }  # fmt: skip

    assert of_exports | of_statements == set(Status)


COMPLETED = ledger_rows(st.just(State.COMPLETED))
FILES = st.lists(st.sampled_from(["own", "older", "optimized"]), max_size=4)


@given(row=COMPLETED, seconds=st.floats(0, 1e6))
def test_all_that_was_written_is_reported_exactly_once(row: Row, seconds: float) -> None:
    """A file may hold several parts: its bytes are divided, and add up."""
    assert row.done is not None
    row = replace(row, done=replace(row.done, landed=replace(row.done.landed, holds=None)))

    *parts, whole = events_of(committed(row, seconds), row, "db.t", 1)

    assert row.done is not None
    assert [e.part_name for e in parts] == [p.name for p in row.done.parts]
    assert whole.bytes_written == row.done.bytes
    assert_adds_up(parts, whole)


@given(COMPLETED, FILES)
def test_an_export_of_new_parts_reports_those_alone(row: Row, files: list[str]) -> None:
    """Harm prevented: the log counts again what the exports before have written.

    OPTIMIZE leaves the older parts in files of its own, which no part names.
    """
    assert row.done is not None
    one, transaction = next(iter(row.done.parts), None), row.done.landed.transaction_id
    paths = {
        "own": (data_file_name(row.key.hash, transaction, 0, "a"),),
        "older": (data_file_name(row.key.hash, f"{transaction}0", 0, "a"),),
        "optimized": (),
    }
    parts = tuple(
        replace(one, name=f"p_{n}", remote_paths=paths[of], rows=n + 1)
        for n, of in enumerate(files)
        if one is not None
    )
    landed = replace(row.done.landed, kind=None, holds=(Held("7", 1, 5),))
    claim = replace(row.claim, transaction_id=transaction)
    row = replace(row, claim=claim, done=replace(row.done, landed=landed, parts=parts))

    *reported, whole = events_of(committed(row), row, "db.t", 1)

    own = [part for part, of in zip(parts, files, strict=False) if of == "own"]
    assert [(e.part_name, e.rows) for e in reported] == [(p.name, p.rows) for p in own]
    assert whole.bytes_written == row.claim.bytes
    assert_adds_up(reported, whole)


def committed(row: Row, seconds: float = 0.0) -> Outcome:
    """Return the outcome of the export that the record of a row is of."""
    assert row.done is not None
    return Outcome(
        row.key.partition_id, Status.COMMITTED, "lake.n.t",
        transaction_id=row.done.landed.transaction_id, seconds=seconds,
    )  # fmt: skip


def assert_adds_up(parts: list[Event], whole: Event) -> None:
    """Check that the events of the parts have together what that of the partition has."""
    if whole.rows:
        assert sum(e.bytes_written for e in parts) == whole.bytes_written
    assert sum(e.rows for e in parts) == whole.rows
    assert sum(e.bytes_read for e in parts) == whole.bytes_read
    assert all(e.bytes_written >= 0 for e in parts)
