"""Every run cleans up a share of what is expired, and nothing that is of use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from tableformat.effects import Direct, Effects, Step
from tableformat.errors import DestinationError, LedgerError
from tableformat.export.cleanup import MOST_EXPORTS
from tableformat.export.commit import Ports
from tableformat.export.give_up import GivenUp, kill
from tableformat.export.options import ABANDONED_TTL
from tableformat.export.outcome import Outcome
from tableformat.export.ports import Silent
from tableformat.export.request import ById, ExportOptions
from tableformat.ledger import Owner, State
from tableformat.messages import plain
from tableformat.names import PartitionId
from tests.support.cleaning_up import clean_up, sweeping
from tests.support.dying import Dies, DiesAt, KilledAt
from tests.support.explained import unexplained
from tests.support.scenarios import (
    ALL,
    AtStep,
    Partitions,
    assert_exported_once,
    lake,
    ledger_rows,
    parts_of,
    ports_of,
    row_of,
    run,
    statuses,
)

T = TypeVar("T")
OTHER = replace(ALL, selection=ById(PartitionId("p2")))
ONE = replace(ALL, selection=ById(PartitionId("p1")))
WEEK = ABANDONED_TTL * 1000


class Notes(Silent):
    """Remembers what was noted."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@dataclass
class World:
    """A small world in which time passes."""

    directory: Path
    source: Partitions = field(default_factory=Partitions)
    now: int = 1_700_000_000_000
    notes: Notes = field(default_factory=Notes)

    def clock(self) -> int:
        self.now += 1
        return self.now

    def run(self, request: object = OTHER, effects: Effects | None = None) -> list[Outcome]:
        """Run a command as a new process."""
        ports = ports_of(self.directory, self.source, effects=effects, clock=self.clock)
        ports = replace(ports, observer=self.notes)
        with contextlib.closing(ports.ledger):
            return run(self.directory, self.source, request=request, ports=ports)  # type: ignore[arg-type]

    def interrupt(self, request: object = ONE) -> None:
        """Leave a resumable export; a file of each partition is finished."""
        with pytest.raises(Dies):
            self.run(request, KilledAt(Step.NOTE_WRITTEN))

    def cancel(self) -> None:
        """Cancel what is under way, and die before its files go."""
        ledger = SqliteLedger(self.directory / "ledger.db", clock=self.clock)
        ports = Ports(Direct(), lake(self.directory), ledger, self.clock, lambda _: None)
        with contextlib.closing(ledger):
            for row in ledger_rows(self.directory):
                if row.state is State.RUNNING:
                    assert isinstance(kill(ports, row.key.hash, state=State.KILLED), GivenUp)

    def files(self, partition: str = "p1") -> list[str]:
        """Return the data files and receipts of a partition."""
        key = row_of(self.directory, partition).key.hash
        found = (self.directory / "warehouse").rglob("*")
        return [p.name for p in found if p.is_file() and key in p.as_posix()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_a_cancelled_export_left_goes_with_any_partitions_next_run(world: World) -> None:
    world.interrupt()
    world.cancel()
    assert len(world.files()) == 2

    assert statuses(world.run()) == ["committed"]

    assert world.files() == []
    assert row_of(world.directory, "p1").state is State.KILLED
    clean_up(sweeping(world.directory, clock=world.clock))
    assert unexplained(world.directory) == []


@pytest.mark.parametrize("by", ["gc", "the next run"])
def test_what_a_cancelled_export_left_goes_though_another_one_is_under_way(
    world: World, by: str
) -> None:
    """Harm prevented: it is kept as if it could still land, or the one under way goes with it."""
    assert statuses(world.run(ALL)) == ["committed", "committed"]
    landed = world.files()
    forced = replace(ONE, options=ExportOptions(force=True))
    world.interrupt(forced)
    world.cancel()
    cancelled = set(world.files()) - set(landed)
    world.interrupt(forced)
    begun = set(world.files()) - cancelled - set(landed)
    assert (len(cancelled), len(begun)) == (2, 2)

    if by == "gc":
        clean_up(sweeping(world.directory, clock=world.clock))
    else:
        world.run()

    assert row_of(world.directory, "p1").state is State.RUNNING
    assert set(world.files()) == begun | set(landed)
    assert unexplained(world.directory) == []
    assert statuses(world.run(forced)) == ["replaced"]


@pytest.mark.parametrize("step", [Step.NOTE_WRITTEN, Step.SEND, Step.SETTLE])
def test_a_run_that_another_process_cleans_up_reports_that_it_landed(
    world: World, step: Step
) -> None:
    """Harm prevented: the leases of a stalled machine are free, and "in progress" is reported."""
    world.interrupt()
    world.cancel()

    def clean() -> None:
        found = clean_up(sweeping(world.directory, clock=world.clock))
        assert [t.why for t in found if t.may_go] == ["its export was given up"] * 2

    outcomes = world.run(ONE, AtStep(step, clean))

    assert statuses(outcomes) == ["committed"]
    row = row_of(world.directory, "p1")
    assert (row.state, [c.parts for c in row.old]) == (State.COMPLETED, [()])


def test_an_export_that_nobody_went_on_with_for_a_week_is_given_up(world: World) -> None:
    """Harm prevented: what an interrupted export finished lies there for ever."""
    world.interrupt()
    world.now += WEEK

    world.run()

    row = row_of(world.directory, "p1")
    assert (row.state, "no later run resumed it" in row.last_error) == (State.FAILED, True)
    assert world.files() == []
    assert statuses(world.run(ALL)) == ["committed", "already_exported"]
    assert_exported_once(world.directory, world.source)


@pytest.mark.parametrize(
    ("ttl", "age"), [(ABANDONED_TTL, WEEK - 60_000), (3_600, 3_500_000), (0, 90 * WEEK)]
)
def test_an_export_that_is_resumed_later_keeps_its_files(world: World, ttl: int, age: int) -> None:
    """Harm prevented: a night's finished files go; 0 is for ever."""
    world.interrupt()
    world.now += age

    world.run(replace(OTHER, abandoned_ttl=ttl))

    assert row_of(world.directory, "p1").state is State.RUNNING
    assert len(world.files()) == 2


def test_the_running_export_decides_when_others_are_abandoned(world: World) -> None:
    """Harm prevented: a disk that is full of a crash's files for a week, whatever one sets."""
    world.interrupt()
    world.now += 3_601_000

    world.run(replace(OTHER, abandoned_ttl=3_600))

    assert row_of(world.directory, "p1").state is State.FAILED
    assert world.files() == []


@pytest.mark.parametrize("ttl", [0, 10 * ABANDONED_TTL])
def test_the_ttl_of_a_manifest_is_of_completed_exports_alone(world: World, ttl: int) -> None:
    """Harm prevented: what a crash left stays for ever, because refusals were to last for ever."""
    world.interrupt(replace(ONE, options=ExportOptions(manifest_ttl=ttl)))
    world.now += WEEK

    world.run()

    assert row_of(world.directory, "p1").state is State.FAILED
    assert world.files() == []


def test_what_somebody_works_on_is_left_alone(world: World) -> None:
    world.interrupt()
    world.cancel()
    ledger = SqliteLedger(world.directory / "ledger.db", clock=world.clock)
    ledger.take_lease(row_of(world.directory, "p1").key.hash, Owner("elsewhere", 7, "x"), 10**6)
    ports = ports_of(world.directory, world.source, clock=world.clock, alive=True)

    run(world.directory, world.source, request=OTHER, ports=ports)

    assert len(world.files()) == 2


def test_a_run_cleans_up_a_bounded_share(world: World) -> None:
    """Harm prevented: an export of one partition waits for the leftovers of thousands."""
    names = [f"q{n}" for n in range(MOST_EXPORTS + 3)]
    world.source.by_id |= {name: parts_of(name, 2) for name in names}
    for name in names:
        world.interrupt(replace(ALL, selection=ById(PartitionId(name))))
    world.cancel()

    world.run()
    assert sum(bool(world.files(name)) for name in names) == 3
    world.run()
    assert not any(world.files(name) for name in names)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Step.FIND_EXPIRED, LedgerError("Cannot read it: gone.")),
        (Step.CLEAN_FILE, DestinationError("Cannot delete it: read only.")),
    ],
)
def test_an_error_is_reported_and_changes_no_outcome(
    world: World, step: Step, error: Exception
) -> None:
    world.interrupt()
    world.cancel()

    def fail() -> None:
        raise error

    assert statuses(world.run(OTHER, AtStep(step, fail))) == ["committed"]

    (text,) = (t for t in map(plain, world.notes.texts) if "not removed" in t)
    assert text.startswith("files of earlier exports were not removed: Cannot ")
    assert text.endswith("`mergeberg gc` removes them")
    world.run()
    assert world.files() == []


class _Recorded:
    """Effects that are counted."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        self.steps.append(step)
        return act()


@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_dies_while_it_cleans_up_is_finished_by_the_next(
    tmp_path: Path, *, after: bool
) -> None:
    """Harm prevented: an export is half given up, or its files are forgotten."""
    recorded = _Recorded()
    _expired(tmp_path / "recorded").run(OTHER, recorded)
    first = recorded.steps.index(Step.FIND_EXPIRED)
    assert {Step.GIVE_UP, Step.CLEAN_FILE, Step.CLEAN_RECEIPT} <= {*recorded.steps[first:]}
    for number in range(first, len(recorded.steps)):
        world = _expired(tmp_path / str(number))
        with contextlib.suppress(Dies):
            world.run(OTHER, DiesAt(number, after=after))
        # An export that was taken over to be given up counts from then on.
        world.now += WEEK

        world.run()

        assert row_of(world.directory, "p1").state is State.FAILED, recorded.steps[number]
        assert world.files() == []
        clean_up(sweeping(world.directory, clock=world.clock))
        assert unexplained(world.directory) == []


def _expired(directory: Path) -> World:
    directory.mkdir()
    world = World(directory)
    world.interrupt()
    world.now += WEEK
    return world
