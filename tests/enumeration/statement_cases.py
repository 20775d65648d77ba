"""Runs the cases of statements: a fault meets an effect; then the same again, at most twice."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from tableformat.effects import Effects, Step
from tableformat.errors import InternalError, NotFoundError, RefusedError, TableFormatError
from tableformat.export.job import export
from tableformat.export.outcome import Status
from tableformat.ledger import Key
from tests.enumeration.faults import PAUSES, Fault, Recorder, struck
from tests.enumeration.oracle import IN_MAIN, check_cleaned_up
from tests.enumeration.prepared_cases import PreparedCases
from tests.enumeration.scenarios import World
from tests.enumeration.statement_oracle import (
    Seen,
    Visible,
    Watched,
    check_end,
    check_found,
    look,
)
from tests.enumeration.statements import StatementScenario
from tests.support.dying import Dies
from tests.support.history_acts import Seat
from tests.support.lake_statements import IN_FILES, LATER
from tests.support.scenarios import CLOCK, TO, lake, parts_of, ports_of, rows_by_key
from tests.support.two_lake_tables import OTHER

__all__ = ["StatementCases"]

_MOST_RUNS: Final = 2
_NOTHING: Final = (Status.EMPTY, Status.UNCHANGED, Status.ALREADY_EXPORTED)
"""Statuses of a run that finds it done."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """The status of a run, None where it died; and the error that ended it."""

    status: Status | None
    error: TableFormatError | None = None


class StatementCases(PreparedCases[StatementScenario]):
    """The cases of one statement."""

    def _record(self) -> None:
        world = self._prepared.world()
        world.effects = watched = Watched(world)
        self.at_first = look(world)
        # What FETCH freezes of a source it does before there is a statement.
        outside = world.place.outside if self.scenario.name == "fetch parts" else world.outside
        recorder = Recorder(world.effects, outside, around=(Step.WRITE_FILES,))
        ended = self._run(world, recorder)
        assert ended == _Ended(self.scenario.did)
        self.steps = recorder.steps
        self.undisturbed, self._on_the_way = look(world), {*watched.seen}
        check_end(world, self.undisturbed, self.undisturbed, repeats=False)

    def _check(self, fault: Fault, number: int) -> None:
        world = self._prepared.world()
        watched = Watched(world)
        world.effects = watched
        effects = struck(
            watched, number, fault, lambda: self._run(world, watched, alive=fault.others_live)
        )
        ended = self._run(world, effects)
        assert effects.step is self.steps[number], "it was not the effect that was recorded"
        now = look(world)
        self._check_ended(ended, now, fault)
        end = self._run_again(world, now)
        check_end(world, end, self.undisturbed, repeats=self.scenario.repeats)
        assert {*watched.seen} <= self._may_be_seen, "readers saw something else on the way"
        if self.scenario.spec is not None:
            check_found(world, end)
        # Each costs as much as the rest: a seam has them in turns, by the fault.
        turn = number + [*Fault].index(fault)
        if turn % 2:
            self._check_exports(world, changed=turn // 2 % 2 == 1)
        else:
            self._check_cleaned_up(world)

    def check_meddled(self, meddle: Callable[[Path], None], numbers: Iterable[int]) -> None:
        """Let the table's owner do something before each of some effects; then run it again."""
        for number in numbers:
            world = self._prepared.world()
            world.effects = watched = Watched(world)
            fault = Fault.PAUSED_BEFORE_ALIVE
            effects = struck(watched, number, fault, partial(meddle, world.directory))
            ended = self._run(world, effects)
            now = look(world)
            self._check_ended(ended, now, fault)
            end = self._run_again(world, now)
            check_end(world, end, self.undisturbed, repeats=self.scenario.repeats)
            assert {*watched.seen} <= self._may_be_seen, f"something else is seen: {number}"
            check_found(world, end)
            self._check_cleaned_up(world)

    @property
    def _may_be_seen(self) -> set[Visible]:
        """What readers may see: all as before, or all as after.

        Of a MOVE it is in both tables between, of shards that come apart one of them is there.
        """
        first, last = self.at_first.visible, self.undisturbed.visible
        if not self.scenario.apart:
            return {first, last}
        if first.there != last.there:
            return {first, last, Visible(first.here, first.detached, last.there)}
        (one,) = self._on_the_way - {first, last}
        other = Counter(last.here) - Counter(one.here) + Counter(first.here)
        return {first, last, one, replace(one, here=tuple(sorted(other.elements())))}

    def _run(self, world: World, effects: Effects, *, alive: bool = False) -> _Ended:
        """Run the statement as a new process."""
        try:
            status = self.scenario.act(world.directory, world.source, Seat(effects, alive))
        except Dies:
            return _Ended(None)
        except InternalError:
            raise
        except TableFormatError as error:
            return _Ended(None, error)
        return _Ended(status)

    def _check_ended(self, ended: _Ended, now: Seen, fault: Fault) -> None:
        """Check what is visible after the fault, and that the reported status is true."""
        assert now.visible in self._may_be_seen, "half of it is visible"
        done = now.visible == self.undisturbed.visible and (
            now.tags == self.undisturbed.tags or self.scenario.repeats
        )
        if ended.status in (self.scenario.did, *_NOTHING):
            assert done, f"{ended}, and it is not done"
        if ended.status in (Status.FAILED, Status.KILLED) and fault not in PAUSES:
            # Another run may have done what this one could not go on with.
            changes = self.at_first.visible != self.undisturbed.visible
            assert not (changes and done), f"{ended}, and it is done"

    def _run_again(self, world: World, before: Seen) -> Seen:
        """Run the statement until it has nothing more to do; return the end."""
        for _ in range(_MOST_RUNS):
            ended = self._run(world, world.effects)
            now = look(world)
            if ended.status in (self.scenario.did, *_NOTHING):
                return now
            is_done = before.visible == self.undisturbed.visible and now.visible == before.visible
            if self.scenario.refused and isinstance(ended.error, RefusedError | NotFoundError):
                assert is_done, f"{ended.error}, and it is not done"
                return now
            before = now
        message = f"Run again {_MOST_RUNS} times, and it is not done: {ended}"
        raise AssertionError(message)

    def _check_cleaned_up(self, world: World) -> None:
        for name in (TO, OTHER) if self.scenario.name == "move" else (TO,):
            check_cleaned_up(world, name)

    def _check_exports(self, world: World, *, changed: bool) -> None:
        """Export p1, inside its time to live, and then after it."""
        expected = self.scenario.exports
        again = self._export(world, CLOCK)
        assert again is expected.again
        if changed:
            world.source.by_id["p1"] = parts_of("p1", 30)
        then = self._export(world, LATER)
        assert then is (expected.changed if changed else expected.later)
        assert world.source.left == {}, "a source snapshot is left"

    def _export(self, world: World, clock: Iterator[int]) -> Status:
        """Export as a new process, to which all others are dead; its outcome about p1 is true."""
        at, source = world.directory, world.source
        ports = ports_of(at, source, clock=clock.__next__)
        own = f"job{ports.owner.pid}"
        ports = replace(ports, job=own, job_is_alive=lambda job: job in ("job", own))
        request = replace(IN_FILES, partition_spec=self.scenario.spec)
        with contextlib.closing(ports.ledger):
            ended = {o.partition_id: o for o in export(request, ports, slots=1)}["p1"]
        if ended.status in IN_MAIN:
            key = Key(source.table.key_source, "p1", lake(at).load().layout.table_uuid)
            assert rows_by_key(at)[key.hash] == ended.rows > 0, ended
        return ended.status
