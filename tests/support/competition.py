"""Jobs, deaths, operators and a source that changes, all at once, in any order: one state machine.

Nothing runs concurrently: what another process or person does, it does within an effect of
the run that it disturbs (three deep at most), so that a failure can be made small and run again.
Every row of the source is a number of its own, so that a row that is twice in the lake is found
whatever file it is in. `python -m tests.support.competition --examples 500` is the long run.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from tableformat.committer import Sent
from tableformat.effects import Step
from tableformat.errors import InternalError, RefusedError, TableFormatError
from tableformat.export.job import export
from tableformat.export.outcome import Outcome
from tableformat.export.request import ExportOptions
from tableformat.export.slices import FileFormat
from tests.enumeration.faults import failure
from tests.enumeration.oracle import IN_MAIN, Seen, check_reachable, look
from tests.enumeration.scenarios import World
from tests.faults.test_operator_actions import (
    add_column,
    append,
    back_and_forth,
    change_spec,
    compact,
    delete_rows,
    drop_one_file,
    drop_table,
    expire,
    remove_ledger_property,
    roll_back,
    tag_and_branch,
)
from tests.support.dying import Dies
from tests.support.fakes import job_ports
from tests.support.numbered_rows import OF_PARTITION, Numbers, NumberWriter
from tests.support.scenarios import ALL

__all__ = ["Competition"]

T = TypeVar("T")
_FOREIGN: Final = range(100, 200)
_DEPTH: Final = 3
_SEAMS: Final = 60
_MOMENTS: Final = (Step.SEND, Step.SETTLE, Step.CLAIM, Step.WRITE_FILES, Step.NOTE_WRITTEN)
"""Where more is at stake than elsewhere; any other effect is found by its number."""
_ALL: Final = replace(ALL, format=FileFormat(target_file_bytes=80))
_REQUESTS: Final = {
    "all": replace(_ALL, options=ExportOptions(overwrite_file_if_exists=True)),
    "each in its own": replace(_ALL, commit_every=1),
    "force": replace(_ALL, options=ExportOptions(force=True)),
    "incremental": replace(_ALL, options=ExportOptions(incremental=True)),
}
"""None has both words: with both, rows that others have rewritten may double."""
# Not here: who takes our marks out of a table, or puts it back to older metadata, was warned
# that nothing protects from that (docs/spec/commit-protocol.md, requirements for writers).
_OPERATORS: Final = (
    append, roll_back, back_and_forth, expire, delete_rows, compact, tag_and_branch, add_column,
    change_spec, remove_ledger_property, drop_table, drop_one_file,
)  # fmt: skip
_REFUSED_BY_THE_ENGINE: Final = (ValueError, CommitFailedException, NoSuchTableError)


@dataclass(frozen=True, slots=True)
class Event:
    """What happens before or after an effect; `script` is what disturbs a run.

    `at` is the number of the effect, or a step of which it is the first.
    """

    at: int | Step
    after: bool
    what: str
    name: str = ""
    others_live: bool = False
    script: tuple[Event, ...] = ()


def events(depth: int) -> st.SearchStrategy[Event]:
    """Return what may disturb a run; runs within it are disturbed less deeply."""
    at = (moments, st.booleans())
    action = st.sampled_from([a.__name__ for a in _OPERATORS])
    kinds = [
        st.builds(Event, *at, st.just("die")),
        st.builds(Event, *at, st.just("fail")),
        st.builds(Event, *at, st.just("operate"), action),
        st.builds(Event, *at, st.sampled_from(("grow", "merge", "shrink")), partitions),
        st.builds(Event, *at, st.just("jump"), st.sampled_from(("61", "181", "-86400"))),
    ]
    if depth:
        runs = (st.just("run"), st.sampled_from(tuple(_REQUESTS)), st.booleans())
        kinds.append(st.builds(Event, *at, *runs, scripts(depth - 1)))
    return st.one_of(kinds)


def scripts(depth: int) -> st.SearchStrategy[tuple[Event, ...]]:
    """Return the events that disturb one run."""
    return st.lists(st.deferred(lambda: events(depth)), max_size=3).map(tuple)


moments: Final = st.one_of(st.sampled_from(_MOMENTS), st.integers(0, _SEAMS))
partitions: Final = st.sampled_from(("p1", "p2", "p3"))


class _Scripted:
    """Effects of a run that is disturbed; after its death nothing is performed any more."""

    def __init__(self, machine: Competition, script: tuple[Event, ...]) -> None:
        self._machine, self._script = machine, script
        self._number, self._dead = -1, False
        self._steps: set[Step] = set()

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        if self._dead:
            raise Dies
        self._number += 1
        firsts = () if step in self._steps else (step,)
        self._steps.add(step)
        due = [e for e in self._script if e.at == self._number or e.at in firsts]
        self._play(step, [e for e in due if not e.after])
        result: Any = act()
        if any(e.after and e.what == "fail" for e in due) and isinstance(result, Sent):
            self._machine.happened["fail"] += 1
            result = Sent(applied=False, error="the answer was lost")
            due = [e for e in due if e.what != "fail"]
        self._play(step, [e for e in due if e.after])
        changed: T = result
        return changed

    def _play(self, step: Step, due: list[Event]) -> None:
        for event in due:
            if event.what not in ("die", "fail"):
                self._machine.play(event)
                continue
            self._machine.happened[event.what] += 1
            if event.what == "fail":
                raise failure(step)
            self._dead = True
            raise Dies


class Competition(RuleBasedStateMachine):
    """Everything that may happen to one table and its lake table."""

    happened: ClassVar[Counter[str]] = Counter()
    """How often: events that were played, and outcomes of all runs but the last, quiet ones."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.source = Numbers()
        for partition, rows in (("p1", (7, 5)), ("p2", (3,)), ("p3", (4, 2))):
            for count in rows:
                self.source.grow(partition, count)
        self.world = World(self.directory, self.source)
        self.mains: list[Seen] = []
        """Main before and after everything that others did: an outcome was true of one of them."""
        self.operated, self.ending = False, False

    @rule(name=st.sampled_from(tuple(_REQUESTS)), script=scripts(_DEPTH - 1))
    def run(self, name: str, script: tuple[Event, ...]) -> None:
        """Run a command that is disturbed."""
        self.export(name, script=script)

    @rule(name=st.sampled_from(tuple(_REQUESTS)), at=moments, what=st.sampled_from(("die", "fail")))
    def run_in_trouble(self, name: str, at: int | Step, what: str) -> None:
        """Run a command that dies, or to which one effect fails; most scripts have neither."""
        self.export(name, script=(Event(at, after=False, what=what),))

    @rule(partition=partitions, rows=st.integers(1, 5))
    def grow(self, partition: str, rows: int) -> None:
        """Insert."""
        self.source.grow(partition, rows)

    @rule(partition=partitions, what=st.sampled_from(("merge", "shrink")))
    def change(self, partition: str, what: str) -> None:
        """Merge, or lose rows."""
        self.play(Event(0, after=False, what=what, name=partition))

    @precondition(lambda self: bool(self.seen()))
    @rule(name=st.sampled_from([a.__name__ for a in _OPERATORS]))
    def operate(self, name: str) -> None:
        """Do what operators and other engines do."""
        self.play(Event(0, after=False, what="operate", name=name))

    @rule(seconds=st.sampled_from(("61", "181")))
    def wait(self, seconds: str) -> None:
        """Wait until a lease, or a record's time, is over."""
        self.play(Event(0, after=False, what="jump", name=seconds))

    @invariant()
    def no_row_twice_and_nothing_dangling(self) -> None:
        """Read all of main, and look whether everything is there that a snapshot needs."""
        for seen in self.seen():
            twice = [n for n, times in self.in_main(seen).items() if times > 1]
            assert twice == [], f"rows are in main more than once: {twice}"
            check_reachable(self.world, seen)

    def teardown(self) -> None:
        """One quiet run exports everything, but what it refuses with a reason."""
        try:
            self._end()
        finally:
            shutil.rmtree(self.directory)

    def play(self, event: Event) -> None:
        """Let others do something now."""
        self.mains += self.seen()
        if event.what != "operate":
            self.happened[event.what] += 1
        if event.what == "run":
            self.export(event.name, script=event.script, others_live=event.others_live)
        elif event.what == "operate":
            self._operate(event.name)
        elif event.what == "jump":
            self.world.now += int(event.name) * 1000
        elif event.what == "grow":
            self.source.grow(event.name, 2)
        else:
            getattr(self.source, event.what)(event.name)
        self.mains += self.seen()

    def export(
        self, name: str, *, script: tuple[Event, ...] = (), others_live: bool = False
    ) -> list[Outcome]:
        """Run a command as a new process; check each outcome when it is given."""
        outcomes, since = list[Outcome](), len(self.mains)
        self.mains += self.seen()
        ports = job_ports(
            self.directory, self.source, effects=_Scripted(self, script), clock=self.world.clock
        )
        own = f"job{ports.owner.pid}"
        ports = replace(
            ports,
            job=own,
            job_is_alive=lambda job: others_live or job in ("job", own),
            writer=lambda: NumberWriter(self.source.ids),
        )
        if others_live:
            ports = replace(ports, is_alive=lambda _: True)
        with contextlib.suppress(Dies), contextlib.closing(ports.ledger):
            try:
                for outcome in export(_REQUESTS[name], ports, slots=1):
                    if not self.ending:
                        self.happened[outcome.status.value] += 1
                    self._check_outcome(outcome, since)
                    outcomes.append(outcome)
            except InternalError:
                raise
            except RefusedError:
                if not self.operated:
                    raise
            except TableFormatError:
                if not script:
                    raise
        return outcomes

    def seen(self) -> list[Seen]:
        """Return the lake as it is now, nothing before it has rows."""
        with contextlib.suppress(AssertionError):
            return [look(self.world)]
        return []

    def in_main(self, seen: Seen) -> Counter[int]:
        """Return the rows of main, those of others left out."""
        if seen.state.main is None:
            return Counter()
        found = seen.table.scan(snapshot_id=seen.state.main, selected_fields=("n",)).to_arrow()["n"]
        return Counter(n for n in found.to_pylist() if n not in _FOREIGN)

    def _operate(self, name: str) -> None:
        action = next(a for a in _OPERATORS if a.__name__ == name)
        seen = self.seen()
        if not seen or not seen[0].main:
            return
        self.operated = True
        with contextlib.suppress(*_REFUSED_BY_THE_ENGINE):
            action(self.directory)
            self.happened["operate"] += 1

    def _check_outcome(self, outcome: Outcome, since: int) -> None:
        assert "bug" not in outcome.message, outcome
        if outcome.status not in IN_MAIN:
            return
        held = [
            seen.held[row.key.hash]
            for seen in (*self.mains[since:], *self.seen())
            for row in seen.here
            if row.key.partition_id == outcome.partition_id
        ]
        assert outcome.rows in held, f"{outcome}; main held {held} rows of it"

    def _end(self) -> None:
        self.ending = True
        outcomes = self.export("all")
        assert {o.status.value for o in outcomes} <= {*(s.value for s in IN_MAIN), "refused"}
        self.no_row_twice_and_nothing_dangling()
        self._check_complete(outcomes)
        if not self.operated:
            # The first may go on with what an interrupted run had frozen, and says so.
            self.export("force")
            outcomes = self.export("force")
            assert {o.status for o in outcomes} <= {*IN_MAIN}, outcomes
            assert len(outcomes) == len(self.source.by_id)
            self._check_complete(outcomes)
            assert {*self.in_main(look(self.world))} == {
                n for p in self.source.by_id for n in self.source.numbers(p)
            }

    def _check_complete(self, outcomes: list[Outcome]) -> None:
        """What is called exported is what the ledger says, row by row."""
        for seen in self.seen():
            main = self.in_main(seen)
            for outcome in (o for o in outcomes if o.status in IN_MAIN):
                (row,) = (r for r in seen.here if r.key.partition_id == outcome.partition_id)
                assert row.done is not None
                wanted = {i for p in row.done.parts for i in self.source.ids[p.hash_of_all_files]}
                low = OF_PARTITION * (int(outcome.partition_id[1:]) - 1)
                assert {n for n in main if low <= n < low + OF_PARTITION} == wanted, outcome


def compete(examples: int, steps: int, number: int | None = None) -> Counter[str]:
    """Try so many examples of at most so many steps each; return what happened, how often.

    Args:
        examples: how many.
        steps: of each, at most.
        number: of the seed, for examples of its own; None leaves that to Hypothesis.
    """

    class Counted(Competition):
        happened: ClassVar[Counter[str]] = Counter()

    run_state_machine_as_test(
        Counted if number is None else seed(number)(Counted),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return Counted.happened


def main() -> int:
    """Run for long; return 0, or fail with the smallest example that was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    happened = compete(given.examples, given.steps)
    counts = ", ".join(f"{what} {times}" for what, times in happened.most_common())
    sys.stdout.write(f"{given.examples} competitions of {given.steps} steps: {counts}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
