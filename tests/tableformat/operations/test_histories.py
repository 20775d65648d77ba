"""Statements, exports and other engines at once: what is seen afterwards has some serial order.

Two of them run at once on two tables, the second whole inside the first, which takes the second's
process for a dead one and goes on, the hardest way, or for a living one. Others act as PyIceberg
does: INSERT, compaction, DELETE, columns, DROP TABLE, main moved back. What the orders give, one
after the other, is asked of the same statements in tables of their own.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tableformat.committer import MAIN_BRANCH
from tableformat.effects import Step
from tableformat.export.outcome import Status
from tests.support.history_acts import (
    ACTS,
    FOREIGN,
    GROWS,
    OURS,
    PARTS,
    Seat,
    done,
    of_this_table,
    seen,
)
from tests.support.scenarios import AtStep, Partitions
from tests.support.two_lake_tables import prepared

NOT_DONE = (Status.REFUSED, Status.IN_PROGRESS, Status.FAILED, Status.UNKNOWN, Status.KILLED)
STEPS = (
    Step.LOAD_METADATA,
    Step.READ_LEDGER,
    Step.CLAIM,
    Step.WRITE_FILES,
    Step.NOTE_WRITTEN,
    Step.STAGE,
    Step.SEND,
    Step.SETTLE,
)


@dataclass(frozen=True)
class History:
    """What was done before, and two acts at once: the second at a step of the first."""

    before: tuple[str, ...]
    first: str
    second: str
    step: Step
    nth: int
    alive: bool = False

    def begun(self, at: Path) -> Partitions:
        """Do what was done before, in a new place."""
        source = prepared(at)
        for name in self.before:
            done(name, at, source)
        return source

    def orders(self, first: Status, second: Status | None) -> Iterator[tuple[str, ...]]:
        """Yield the serial orders that may have been: what was not done may have done nothing."""
        one, two = self.first, self.second
        if second is not None:
            yield one, two
            yield two, one
            if one == "move":
                yield one, two, one
        if second is None or second in NOT_DONE:
            yield (one,)
        if first in NOT_DONE:
            if second is not None:
                yield (two,)
            if second is None or second in NOT_DONE:
                yield ()

    def is_serial(self, directory: Path) -> None:
        """Do them at once, and find the order that gives the same."""
        at = directory / "at-once"
        source = self.begun(at)
        statuses: list[Status] = []
        seat = Seat(alive=self.alive)
        visit = AtStep(
            self.step, lambda: statuses.append(done(self.second, at, source, seat)), nth=self.nth
        )
        first = done(self.first, at, source, Seat(visit, self.alive))
        if self.first == "move" and first in NOT_DONE:
            # As its outcome says: the statement again finishes it, or begins again.
            first = done(self.first, at, source)
        second = statuses[0] if statuses else None
        if self.first == "move" and self.second in FOREIGN and first is Status.REFUSED:
            # It may be in both, and that was reported: what others changed is never taken away.
            alone = directory / "alone"
            done(self.second, alone, self.begun(alone))
            if of_this_table(seen(at)) == of_this_table(seen(alone)):
                return
        result = seen(at)
        others = {}
        for number, order in enumerate(self.orders(first, second)):
            alone = directory / str(number)
            again = self.begun(alone)
            for name in order:
                done(name, alone, again)
            others[order] = seen(alone)
            if others[order] == result:
                break
        assert result in others.values(), (self, first, second, result, others)
        self.export_status_is_true(at, source)

    def export_status_is_true(self, at: Path, source: Partitions) -> None:
        """An export afterwards says that the partition is there only where it is, once."""
        status = done("export", at, source)
        if status not in NOT_DONE:
            found = sum(n for of, n in seen(at).items() if of[:3] == ("here", MAIN_BRANCH, "p1"))
            deleted = {"delete", "deduplicate"} & {*self.before, self.first, self.second}
            whole = found <= source.rows["p1"] if deleted else found == source.rows["p1"]
            assert whole, (self, status)


histories = st.builds(
    History,
    before=st.lists(st.sampled_from(tuple(ACTS)), max_size=3).map(tuple),
    first=st.sampled_from((*OURS, *PARTS)),
    second=st.sampled_from(tuple(name for name in ACTS if name != GROWS)),
    step=st.sampled_from(STEPS),
    nth=st.integers(1, 3),
    alive=st.booleans(),
)
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
_NUMBERS = itertools.count()


def _in(directory: Path, history: History) -> None:
    place = directory / str(next(_NUMBERS))
    try:
        history.is_serial(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@settings(max_examples=8, deadline=None, suppress_health_check=SLOW)
@given(history=histories)
@example(History((), "update", "drop", Step.WRITE_FILES, 1, alive=True))
@example(History((), "replace from", "others compact", Step.SEND, 1))
@example(History((), "detach", "others rename n", Step.STAGE, 1))
@example(History((), "drop", "others make the table anew", Step.CLAIM, 1))
@example(History((), "move", "export there", Step.SEND, 1))
@example(History(("export there", "drop"), "attach from", "export", Step.SEND, 1))
@example(History(("detach",), "attach", "export", Step.CLAIM, 1))
@example(History((), "move", "others move main back", Step.STAGE, 1))
def test_two_at_once_have_a_serial_order(tmp_path: Path, history: History) -> None:
    """Harm prevented: rows that are lost, or twice, only because somebody came between."""
    _in(tmp_path, history)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@settings(max_examples=1_000, deadline=None, suppress_health_check=SLOW)
@given(history=histories)
def test_many_pairs_at_once_have_a_serial_order(tmp_path: Path, history: History) -> None:
    """The same, longer."""
    _in(tmp_path, history)
