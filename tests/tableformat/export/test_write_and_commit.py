"""What is complete becomes visible while the rest is still being written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.effects import Step
from tableformat.errors import DestinationError
from tableformat.export.give_up import standing
from tableformat.export.job import export
from tableformat.export.outcome import Status
from tableformat.export.ports import JobPorts, Silent
from tableformat.export.slices import Slice, just_written
from tableformat.ledger import Standing
from tableformat.receipt import PartRange, Receipt
from tests.support.dying import Dies, KilledAt
from tests.support.scenarios import (
    ALL,
    AtStep,
    Partitions,
    RealFiles,
    assert_exported_once,
    parts_of,
    ports_of,
    row_of,
    rows_in_main,
    run,
    state,
    statuses,
)

AT_ONCE = replace(ALL, commit_after=0)
"""What is complete is committed after every file."""


def three() -> Partitions:
    return Partitions(
        by_id={"p1": parts_of("p1", 7, 5), "p2": parts_of("p2", 3), "p3": parts_of("p3", 4)}
    )


def with_writer(directory: Path, source: Partitions, writer: RealFiles) -> JobPorts:
    return replace(ports_of(directory, source), writer=lambda: writer)


def test_a_partition_is_visible_before_the_others_are_written(tmp_path: Path) -> None:
    """Harm prevented: ten hours of work become visible only when they end."""
    source, writer = three(), RealFiles(slots=1)

    seen = [
        (o.status.value, writer.written, rows_in_main(tmp_path))
        for o in export(AT_ONCE, with_writer(tmp_path, source, writer), slots=1)
    ]

    assert [s for s, _, _ in seen] == ["committed"] * 3
    assert [written for _, written, _ in seen] == [1, 2, 3]
    assert [rows for _, _, rows in seen] == sorted(rows for _, _, rows in seen)
    assert_exported_once(tmp_path, source)


def test_what_takes_less_than_a_minute_is_one_snapshot(tmp_path: Path) -> None:
    """Small snapshots are many, and every reader pays for each."""
    before_it = 1

    run(tmp_path, three())

    assert len(state(tmp_path).snapshots) == before_it + 1


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_death_between_two_commits_loses_and_doubles_nothing(tmp_path: Path, nth: int) -> None:
    """Harm prevented: rows twice, because what was visible already is exported again."""
    source = three()
    with pytest.raises(Dies):
        run(
            tmp_path,
            source,
            request=AT_ONCE,
            effects=KilledAt(Step.WRITE_FILES, after=True, nth=nth),
        )

    again = run(tmp_path, source, request=AT_ONCE)

    assert statuses(again).count("already_exported") == nth - 1
    assert_exported_once(tmp_path, source)


class Heard(Silent):
    """Keeps the notes that it got."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_look_that_fails_only_makes_the_commit_later(tmp_path: Path) -> None:
    """Harm prevented: an hour of writing is given up for one listing that failed."""
    source, heard = three(), Heard()

    def fail() -> None:
        message = "Cannot list the receipts: the store is busy. Try again."
        raise DestinationError(message)

    # What a run may go on with is looked for by the same step, of a key with a row: there is none.
    ports = ports_of(tmp_path, source, effects=AtStep(Step.FIND_FILES, fail))

    found = run(tmp_path, source, request=AT_ONCE, ports=replace(ports, observer=heard))

    assert statuses(found) == ["committed"] * 3
    assert [n for n in heard.notes if "the store is busy" in n] != []
    assert_exported_once(tmp_path, source)


def test_a_stopped_run_begins_no_file_and_commits_what_is_complete(
    tmp_path: Path,
) -> None:
    """Harm prevented: a host that is shut down writes on for hours, or throws away what is done."""
    source, writer = three(), RealFiles(slots=1)
    ports = replace(with_writer(tmp_path, source, writer), should_stop=lambda: writer.written == 1)

    first = run(tmp_path, source, ports=ports)

    assert (sorted(statuses(first)), writer.written) == (["committed", "stopped", "stopped"], 1)
    left = [row_of(tmp_path, o.partition_id) for o in first if o.status is Status.STOPPED]
    assert {standing(row, worked_on=False) for row in left} == {Standing.INTERRUPTED}
    assert sorted(statuses(run(tmp_path, source))) == ["already_exported", "committed", "committed"]
    assert_exported_once(tmp_path, source)


receipt_numbers = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.sampled_from("ab")))


@given(receipt_numbers, st.integers(0, 3), st.integers(1, 3))
def test_only_receipts_of_this_run_and_these_slices_count(
    stored: list[tuple[int, int, str]], count: int, epoch: int
) -> None:
    """Harm prevented: a file of an earlier attempt, of other rows, is taken for the new one."""

    def ranges(content: str) -> tuple[PartRange, ...]:
        return (PartRange("p", "p", "/p", 1, content),)

    slices = [Slice(n, "k", "p", epoch, "t", "/", ranges("a"), 1, 1, "", ()) for n in range(count)]
    receipts = [
        Receipt(
            "k", "t", e, n, "x", ranges(c), f"/{e}{n}{c}", 1, "", 1, 1, (), 0, None, (), (), 0.0, 0
        )
        for e, n, c in stored
    ]

    found = just_written(slices, receipts)

    wanted = {n for e, n, c in stored if (e, c) == (epoch, "a") and n < count}
    assert {r.slice_number for r in found} == wanted
    assert len(found) == len(wanted)
    assert all(r.file_path == f"/{epoch}{r.slice_number}a" for r in found)
