"""Statements, exports and other engines at once: what is seen afterwards has some serial order.

Two of them run at once on two tables, the second whole inside the first, which takes the second's
process for a dead one and goes on: the hardest way. What the orders give, one after the other, is
asked of the same statements in tables of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.iceberg_table import IcebergTable
from tableformat.branches import DETACHED_BRANCH, MAIN_BRANCH
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Status
from tableformat.file_names import key_in
from tableformat.operations.statement import Statement
from tests.lake_statements import (
    IN_FILES,
    LATER,
    SaidOfRows,
    add_foreign,
    attach,
    detach,
    drop,
    drop_detached,
    running,
)
from tests.other_engines import rewrite
from tests.row_changes import change, numbers_in
from tests.row_merges import optimize
from tests.scenarios import (
    AtStep,
    Partitions,
    lake,
    ledger_rows,
    parts_of,
    ports_of,
    row_of,
)
from tests.two_lake_tables import OTHER, P1, TO_OTHER, copy, moving, other, prepared

SAID = SaidOfRows(rest="p1")
NOT_DONE = (Status.REFUSED, Status.IN_PROGRESS, Status.FAILED, Status.UNKNOWN)

Act = Callable[[Path, Partitions, Effects | None], Status]
"""What somebody does, as a new process."""


def _export(request: ExportRequest, at: Path, source: Partitions, by: Effects | None) -> Status:
    ports = ports_of(at, source, clock=LATER.__next__, effects=by)
    with contextlib.closing(ports.ledger):
        ended = {o.partition_id: o.status for o in export(request, ports, slots=1)}
    return ended["p1"]


def _statement(
    of: Callable[[str], Statement], where: str, at: Path, _: Partitions, by: Effects | None
) -> Status:
    there = {"table": other(at), "name": OTHER} if where == "there" else {}
    return running(at, effects=by, rows=SAID, **there).run(of("p1")).status  # type: ignore[arg-type]


def _copy(at: Path, _: Partitions, by: Effects | None, *, replaces: bool) -> Status:
    return copy(at, P1, replaces=replaces, effects=by, rows=SAID).status


def _move(at: Path, _: Partitions, by: Effects | None) -> Status:
    return moving(at, effects=by, rows=SAID).run(P1).status


def _drop_detached(at: Path, _: Partitions, by: Effects | None) -> Status:
    return drop_detached(at, P1, effects=by, rows=SAID).status


def _change(at: Path, _: Partitions, by: Effects | None, *, deletes: bool) -> Status:
    return change(at, P1, deletes=deletes, effects=by, rows=SAID).status


def _optimize(at: Path, _: Partitions, by: Effects | None, *, deduplicates: bool) -> Status:
    return optimize(at, P1, deduplicates=deduplicates, effects=by, rows=SAID).status


def _grow(_: Path, source: Partitions, _by: Effects | None) -> Status:
    source.by_id["p1"] = parts_of("p1", 20, len(source.by_id["p1"]))
    return Status.COMMITTED


def _rewrite(at: Path, _: Partitions, _by: Effects | None) -> Status:
    rewrite(at, lambda path: row_of(at, "p1").key.hash in path)
    return Status.COMMITTED


def _append(at: Path, _: Partitions, _by: Effects | None) -> Status:
    add_foreign(at, 100)
    return Status.COMMITTED


ACTS: dict[str, Act] = {
    "export": partial(_export, IN_FILES),
    "export there": partial(_export, TO_OTHER),
    "drop": partial(_statement, drop, "here"),
    "drop there": partial(_statement, drop, "there"),
    "detach": partial(_statement, detach, "here"),
    "attach": partial(_statement, attach, "here"),
    "drop detached": _drop_detached,
    "attach from": partial(_copy, replaces=False),
    "replace from": partial(_copy, replaces=True),
    "move": _move,
    "update": partial(_change, deletes=False),
    "delete": partial(_change, deletes=True),
    "optimize": partial(_optimize, deduplicates=False),
    "deduplicate": partial(_optimize, deduplicates=True),
    "the source grows": _grow,
    "others rewrite": _rewrite,
    "others append": _append,
}
OURS = tuple(ACTS)[:14]
STEPS = (Step.LOAD_METADATA, Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND, Step.SETTLE)


def done(name: str, at: Path, source: Partitions, by: Effects | None = None) -> Status:
    """Do it; what is refused has changed nothing."""
    try:
        return ACTS[name](at, source, by)
    except RefusedError:
        return Status.REFUSED


Seen = Counter[tuple[str, ...]]


def seen(at: Path) -> Seen:
    """Return rows, and the sum of them, by table, branch and partition.

    Of what others wrote there is one.
    """
    named = {row.key.hash: row.key.partition_id for row in ledger_rows(at) if row.key.is_of_export}
    found: Seen = Counter()
    tables: tuple[tuple[str, IcebergTable], ...] = (("here", lake(at)), ("there", other(at)))
    for where, table in tables:
        state = table.load()
        for branch in (MAIN_BRANCH, DETACHED_BRANCH):
            for file in table.files_on(state, branch):
                place = where, branch, named.get(key_in(file.path), "others")
                found[place] += file.rows
                found[(*place, "sum")] += sum(numbers_in(file.path))
    return +found


def of_this_table(rows: Seen) -> Seen:
    """Return what is here of what is in both tables."""
    return Counter({at: number for at, number in rows.items() if at[0] == "here"})


@dataclass(frozen=True)
class History:
    """What was done before, and two acts at once: the second at a step of the first."""

    before: tuple[str, ...]
    first: str
    second: str
    step: Step
    nth: int

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
        told: list[Status] = []
        visit = AtStep(self.step, lambda: told.append(done(self.second, at, source)), nth=self.nth)
        first = done(self.first, at, source, visit)
        if self.first == "move" and first in NOT_DONE:
            # As its answer says: the statement again finishes it, or begins anew.
            first = done(self.first, at, source)
        second = told[0] if told else None
        if (self.first, self.second, first) == ("move", "others rewrite", Status.REFUSED):
            # It is in both, and that was said: what others rewrote is never taken away.
            alone = directory / "alone"
            done(self.second, alone, self.begun(alone))
            assert of_this_table(seen(at)) == of_this_table(seen(alone)), self
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
        self.answers_are_true(at, source)

    def answers_are_true(self, at: Path, source: Partitions) -> None:
        """An export afterwards says that the partition is there only where it is, once."""
        said = done("export", at, source)
        if said not in NOT_DONE:
            found = seen(at)["here", MAIN_BRANCH, "p1"]
            deleted = {"delete", "deduplicate"} & {*self.before, self.first, self.second}
            whole = found <= source.rows["p1"] if deleted else found == source.rows["p1"]
            assert whole, (self, said)


histories = st.builds(
    History,
    before=st.lists(st.sampled_from(tuple(ACTS)), max_size=3).map(tuple),
    first=st.sampled_from(OURS),
    second=st.sampled_from(tuple(name for name in ACTS if name != "the source grows")),
    step=st.sampled_from(STEPS),
    nth=st.integers(1, 2),
)
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
_NUMBERS = itertools.count()


def _in(directory: Path, history: History) -> None:
    place = directory / str(next(_NUMBERS))
    try:
        history.is_serial(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@settings(max_examples=12, deadline=None, suppress_health_check=SLOW)
@given(history=histories)
@example(History((), "move", "export there", Step.SEND, 1))
@example(History(("export there", "drop"), "attach from", "export", Step.SEND, 1))
@example(History(("detach",), "attach", "export", Step.CLAIM, 1))
def test_two_at_once_have_a_serial_order(tmp_path: Path, history: History) -> None:
    """Harm prevented: rows that are lost, or twice, only because somebody came between."""
    _in(tmp_path, history)


@pytest.mark.soak
@settings(max_examples=600, deadline=None, suppress_health_check=SLOW)
@given(history=histories)
def test_many_pairs_at_once_have_a_serial_order(tmp_path: Path, history: History) -> None:
    """The same, longer."""
    _in(tmp_path, history)
