"""A file whose failure may pass is written again, so many times and no more; any other never is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from tableformat.effects import Direct, Effects, Step
from tableformat.errors import (
    DestinationError,
    EndedCredentialsError,
    InternalError,
    LastingError,
    RefusedError,
    SourceError,
    TableFormatError,
)
from tableformat.export.outcome import Outcome
from tableformat.export.ports import SliceFailure, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import State
from tableformat.ledger_text import manifest
from tests.support.fakes import FakeWriter
from tests.support.scenarios import Partitions, ports_of, row_of, rows_in_main, run
from tests.support.scene import TWO_FILES

T = TypeVar("T")
FULL = DestinationError("Cannot write: the disk is full. Make room.")
FIRST, SECOND = "p1_1_1_0", "p1_2_2_0"


@dataclass
class Flaky(FakeWriter):
    """Fails to write a part so often, counting the tries of each; `crash` ends the whole job."""

    often: Counter[str] = field(default_factory=Counter)
    error: TableFormatError = FULL
    crash: Callable[[int], bool] = lambda _: False
    tries: Counter[str] = field(default_factory=Counter)
    calls: int = 0

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        self.calls += 1
        fine, failures = [], []
        for piece in (s for task in tasks for s in task.slices):
            name = piece.ranges[0].source_name
            self.tries[name] += 1
            if self.tries[name] <= self.often[name]:
                failures.append(SliceFailure(piece.number, self.error))
            else:
                fine.append(SliceTask((piece,)))
        writing = super().write(plan, tuple(fine), on_rows=on_rows, should_stop=should_stop)
        written = yield from writing
        if self.crash(self.calls):
            message = "Cannot export db.t: a Spark task failed: the worker died. Run it again."
            raise SourceError(message)
        return Written(written.receipts, tuple(failures))


@dataclass
class Away(Direct):
    """A catalog that cannot load a table, a given number of times; notes what was tried."""

    left: int = 0
    tried: list[Step] = field(default_factory=list)

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        self.tried.append(step)
        if step is Step.LOAD_METADATA and self.left:
            self.left -= 1
            message = "Cannot load lake.n.t: the catalog is away. Check it."
            raise DestinationError(message)
        return super().__call__(step, act)


@dataclass
class World:
    """A warehouse, and what the writer, the pauses and the progress were."""

    directory: Path
    pauses: list[int] = field(default_factory=list)
    on_pause: Callable[[int], None] = lambda _: None
    rows: list[int] = field(default_factory=list)
    stopped: bool = False

    def run(self, writer: Flaky, *, most: int = 3, effects: Effects | None = None) -> Outcome:
        ports = ports_of(self.directory, Partitions(), effects=effects)
        ports = replace(
            ports,
            writer=lambda: writer,
            pause=self._pause,
            should_stop=lambda: self.stopped and writer.calls > 0,
        )
        ports.observer.rows = self.rows.append  # type: ignore[assignment]
        request = replace(TWO_FILES, max_retries=most)
        (outcome,) = run(self.directory, Partitions(), ports=ports, request=request)
        ports.ledger.close()
        return outcome

    def _pause(self, tries: int) -> None:
        self.pauses.append(tries)
        self.on_pause(tries)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("error", [FULL, SourceError("Cannot read: the disk is busy. Wait.")])
def test_a_file_that_fails_for_a_while_is_written_again_alone(
    world: World, error: TableFormatError
) -> None:
    """Harm prevented: a store that hiccups fails the partition, or all files are written again."""
    writer = Flaky(often=Counter({FIRST: 3}), error=error)

    assert world.run(writer).status.value == "committed"

    assert writer.tries == {FIRST: 4, SECOND: 1}
    assert world.pauses == [1, 2, 3]
    assert rows_in_main(world.directory) == 12
    assert world.rows == sorted(world.rows)
    assert world.rows[-1] == 12


def test_after_the_last_try_finished_files_stay_and_the_next_run_goes_on(
    world: World,
) -> None:
    """Harm prevented: it is tried for ever, or what is finished is written again."""
    writer = Flaky(often=Counter({FIRST: 4}))

    outcome = world.run(writer)

    assert (outcome.status.value, outcome.message) == ("failed", str(FULL))
    assert writer.tries == {FIRST: 4, SECOND: 1}
    row = row_of(world.directory, "p1")
    assert (row.state, row.last_error) == (State.RUNNING, str(FULL))
    again = Flaky()
    assert world.run(again).status.value == "committed"
    assert again.tries == {FIRST: 1}


@pytest.mark.parametrize(
    "error",
    [
        RefusedError("Cannot export: a bad value. Mend it."),
        InternalError("A bug."),
        LastingError("Cannot write: AccessDenied. Grant it."),
    ],
)
def test_a_value_without_a_place_a_bug_or_a_lasting_refusal_is_not_retried(
    world: World, error: TableFormatError
) -> None:
    """Harm prevented: hours of reading the same bad value, or of waiting for the same outage."""
    writer = Flaky(often=Counter({FIRST: 1}), error=error)

    assert world.run(writer).message.startswith(str(error))

    assert writer.tries == {FIRST: 1, SECOND: 1}
    assert world.pauses == []


def test_a_lost_worker_costs_only_the_files_that_it_had_not_finished(world: World) -> None:
    """Harm prevented: a local Spark gives up with the first worker that dies, and so do we."""
    writer = Flaky(often=Counter({SECOND: 1}), crash=lambda call: call == 1)

    assert world.run(writer).status.value == "committed"

    assert writer.tries == {FIRST: 1, SECOND: 2}
    assert rows_in_main(world.directory) == 12


def test_a_job_that_never_runs_is_tried_so_often(world: World) -> None:
    """Harm prevented: a cluster that is gone is asked for ever."""
    writer = Flaky(often=Counter({FIRST: 9, SECOND: 9}), crash=lambda _: True)

    outcome = world.run(writer, most=2)

    assert (outcome.status.value, writer.calls) == ("failed", 3)
    assert "the worker died" in outcome.message


@pytest.mark.parametrize("most", [0, 1, 5])
def test_the_number_of_tries_is_the_users(world: World, most: int) -> None:
    """Harm prevented: --max-retries that means something else."""
    writer = Flaky(often=Counter({FIRST: 99}))

    assert world.run(writer, most=most).status.value == "failed"

    assert writer.tries[FIRST] == most + 1


def test_a_stopped_export_tries_nothing_again(world: World) -> None:
    """Harm prevented: a shutdown waits for tries that it has no time for."""
    world.stopped = True
    writer = Flaky(often=Counter({FIRST: 9}))

    world.run(writer)

    assert writer.tries[FIRST] <= 1
    assert world.pauses == []


def test_the_table_is_loaded_before_a_file_is_written_again(world: World) -> None:
    """Harm prevented: credentials that a catalog vended have ended, and every try has the old."""
    effects = Away()
    loads: list[int] = []

    @dataclass
    class Looking(Flaky):
        def write(
            self,
            plan: WritePlan,
            tasks: tuple[SliceTask, ...],
            *,
            on_rows: Callable[[int], None],
            should_stop: Callable[[], bool],
        ) -> Writing:
            loads.append(effects.tried.count(Step.LOAD_METADATA))
            return super().write(plan, tasks, on_rows=on_rows, should_stop=should_stop)

    writer = Looking(often=Counter({FIRST: 2}))

    assert world.run(writer, effects=effects).status.value == "committed"

    first, second, third = loads
    assert first < second < third


def test_a_catalog_that_is_away_just_then_does_not_end_it(world: World) -> None:
    """Harm prevented: of two that are away for a minute one alone would have been waited for."""
    effects = Away()

    def leave(_tries: int) -> None:
        effects.left = 1

    world.on_pause = leave
    writer = Flaky(often=Counter({FIRST: 2}))

    assert world.run(writer, effects=effects).status.value == "committed"

    assert writer.tries == {FIRST: 3, SECOND: 1}
    assert effects.left == 0


ENDED = EndedCredentialsError("Cannot write: InvalidAccessKeyId. Get new ones.")


@dataclass
class Vended(Flaky):
    """Writes one file, then its vended credentials have ended: no more until the next request."""

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        first, *others = (s for task in tasks for s in task.slices)
        one = (SliceTask((first,)),)
        written = yield from super().write(plan, one, on_rows=on_rows, should_stop=should_stop)
        self.tries.update(s.ranges[0].source_name for s in others)
        ended = tuple(SliceFailure(s.number, ENDED) for s in others)
        return Written(written.receipts, (*written.failures, *ended))


def test_a_run_outlives_any_number_of_credentials(world: World) -> None:
    """Harm prevented: a run of hours fails after the fourth expiry of its vended credentials."""
    writer = Vended()

    assert world.run(writer, most=0).status.value == "committed"

    assert writer.calls == 2
    assert world.pauses == [], "nobody has to wait for new ones"
    assert rows_in_main(world.directory) == 12


def test_credentials_in_whose_time_nothing_is_finished_are_a_try(world: World) -> None:
    """Harm prevented: credentials that nobody renews, or that are too short, are asked for ever."""
    writer = Flaky(often=Counter({FIRST: 99, SECOND: 99}), error=ENDED)

    outcome = world.run(writer, most=2)

    assert (outcome.status.value, outcome.message) == ("failed", str(ENDED))
    assert writer.tries == {FIRST: 3, SECOND: 3}


def test_a_part_whose_files_are_done_has_its_path_though_the_export_failed(world: World) -> None:
    """N-15. Harm prevented: the manifest of a failed export denies what is finished and kept."""
    assert world.run(Flaky(often=Counter({SECOND: 99})), most=0).status.value == "failed"

    row = row_of(world.directory, "p1")
    first, second = row.claim.parts
    assert (first.name, second.name) == (FIRST, SECOND)
    assert [path.rpartition(".")[2] for path in first.remote_paths] == ["parquet"]
    assert second.remote_paths == ()
    stored = json.loads(manifest(row))
    assert [p["remote_path"] for p in stored["parts"]] == [first.remote_paths[0], ""]
    assert not stored["completed"]
