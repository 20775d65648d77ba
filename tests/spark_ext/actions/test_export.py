"""An export through several replicas: only one that is gone is left for another, each once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.clickhouse.server.settings import Host
from catalog.sources import SourcePlace
from spark_ext.actions import export as failing_over
from spark_ext.actions.export import export_from_any
from tableformat import errors
from tableformat.errors import NotBegunError, SourceGoneError, TableFormatError
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts, SliceFailure, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import TableName
from tests.support.scenarios import (
    ALL,
    Partitions,
    RealFiles,
    parts_of,
    ports_of,
    rows_by_key,
    rows_in_main,
)

GONE = "Cannot reach ClickHouse at http://h1:8123: Connection refused. Check that the server runs."
OTHERS = tuple(
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, TableFormatError)
    and not issubclass(kind, SourceGoneError)
)
ERRORS = st.one_of(st.just(SourceGoneError), st.sampled_from(OTHERS)).map(lambda kind: kind(GONE))
IDS = ("p1", "p2", "p3")


@dataclass
class Replica(Partitions):
    """A source at one host of an address, or an error that describing it meets."""

    host: Host | None = None
    error: TableFormatError | None = None

    def describe(self, table: TableName) -> MergeTreeTable:
        if self.error is not None:
            raise self.error
        return super().describe(table)


@dataclass
class Failing(RealFiles):
    """Fails to write the files of some partitions."""

    fails: dict[str, TableFormatError] = field(default_factory=dict)

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        slices = [s for task in tasks for s in task.slices]
        failed = tuple(
            SliceFailure(s.number, self.fails[s.partition_id])
            for s in slices
            if s.partition_id in self.fails
        )
        fine = tuple(SliceTask((s,)) for s in slices if s.partition_id not in self.fails)
        writing = super().write(plan, fine, on_rows=on_rows, should_stop=should_stop)
        written = yield from writing
        return Written(written.receipts, (*written.failures, *failed))


@dataclass
class Heard:
    """An observer that keeps what it hears."""

    outcomes: list[Outcome] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    when_begun: Callable[[], None] = lambda: None

    def none_selected(self, text: str) -> None:
        self.note(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, *_: int) -> None:
        self.when_begun()

    def rows(self, written: int) -> None:
        """Hear nothing."""

    def finished(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


Meets = dict[str, TableFormatError] | TableFormatError
"""What goes wrong at a host: partitions whose files fail, or the describing of the table."""


@dataclass
class World:
    """A warehouse and hosts; every run at one of them meets what its host does."""

    root: Path
    meets: list[Meets]
    heard: Heard = field(default_factory=Heard)
    asked: list[Host | None] = field(default_factory=list)
    stopped: bool = False

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(Host("http", f"h{number}", 8123) for number, _ in enumerate(self.meets, 1))

    def stop(self) -> None:
        self.stopped = True

    def export(self) -> tuple[Outcome, ...]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failing_over, "ServerSource", Replica)
            patch.setattr(failing_over, "other_replica", self._other)
            place = SourcePlace("http://h1", allow_insecure=True)
            request = replace(ALL, max_retries=0)
            return export_from_any(request, place, self._opened, slots=1)

    def _opened(self, place: SourcePlace) -> JobPorts:
        host = place.hosts[0] if place.hosts else self.hosts[0]
        self.asked.append(host)
        meets = self.meets[self.hosts.index(host)]
        fails, error = (meets, None) if isinstance(meets, dict) else ({}, meets)
        by_id = {one: parts_of(one, 3) for one in IDS}
        source = Replica(by_id=by_id, host=host, error=error)
        return replace(
            ports_of(self.root, source),
            writer=lambda: Failing(fails=fails),
            observer=self.heard,
            should_stop=lambda: self.stopped,
        )

    def _other(self, _place: object, gone: Replica, tried: list[Host], *_: object) -> Host | None:
        assert tried[-1] == gone.host
        return next((host for host in self.hosts if host not in tried), None)


def is_gone(meets: Meets) -> bool:
    failures = meets.values() if isinstance(meets, dict) else (meets,)
    return any(isinstance(one, SourceGoneError) for one in failures)


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(st.dictionaries(st.sampled_from(IDS), ERRORS), ERRORS),
        min_size=1,
        max_size=3,
    )
)
def test_every_partition_is_reported_once_and_every_host_is_tried_once(meets: list[Meets]) -> None:
    """And another host is asked only when the one before is gone, whatever else went wrong."""
    with tempfile.TemporaryDirectory() as made:
        world = World(Path(made), meets)
        raised = None
        try:
            found = world.export()
        except TableFormatError as error:
            raised, found = error, tuple(world.heard.outcomes)

        reported = [one.partition_id for one in world.heard.outcomes]
        assert list(found) == world.heard.outcomes
        assert len(reported) == len(set(reported))
        asked = len(world.asked)
        assert world.asked == list(world.hosts[:asked])
        assert all(is_gone(one) for one in meets[: asked - 1])
        last = meets[asked - 1]
        if raised is None:
            assert set(reported) == set(IDS)
            left = {one.partition_id for one in found if one.status.value != "committed"}
            assert asked == len(meets) or not any(o.source_gone for o in found)
            assert sum(rows_by_key(Path(made)).values()) == 3 * (len(IDS) - len(left))
        else:
            assert raised is last


def test_what_the_first_host_gave_is_kept_and_the_rest_comes_from_the_second(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, [{"p2": SourceGoneError(GONE)}, {}])

    found = world.export()

    assert [(one.partition_id, one.status.value) for one in found] == [
        ("p1", "committed"),
        ("p3", "committed"),
        ("p2", "committed"),
    ]
    assert (
        "h1:8123 no longer responds (Connection refused); continuing with h2:8123"
        in world.heard.notes
    )
    assert rows_in_main(tmp_path) == 9


@pytest.mark.parametrize("kind", OTHERS)
def test_no_other_error_brings_a_second_host(tmp_path: Path, kind: type[TableFormatError]) -> None:
    """Harm prevented: damage, a missing right or a bug that is tried on every replica in turn."""
    error = kind("Cannot read it: because of that. Do this.")
    of_one, of_all = World(tmp_path, [{"p2": error}, {}]), World(tmp_path, [error, {}])

    found = of_one.export()
    with pytest.raises(kind, match="because of that"):
        of_all.export()

    # Of a partition that was never begun there is no more to say.
    why = "stopped before it began" if issubclass(kind, NotBegunError) else "because of that"
    assert why in next(one.message for one in found if one.partition_id == "p2")
    assert of_one.asked == of_all.asked == [of_one.hosts[0]]


def test_a_stopped_export_tries_no_other_host(tmp_path: Path) -> None:
    """SIGTERM keeps its meaning: nothing begins; partitions that lost their host are listed."""
    world = World(tmp_path, [{"p2": SourceGoneError(GONE)}, {}])
    world.heard.when_begun = world.stop

    found = world.export()

    assert world.asked == [world.hosts[0]]
    assert {one.partition_id: one.status.value for one in found} == {
        "p1": "stopped",
        "p2": "failed",
        "p3": "stopped",
    }


def test_an_export_that_a_user_interrupts_asks_no_other_host(tmp_path: Path) -> None:
    world = World(tmp_path, [{"p2": SourceGoneError(GONE)}, {}])
    world.heard.when_begun = _interrupt

    with pytest.raises(KeyboardInterrupt):
        world.export()

    assert world.asked == [world.hosts[0]]


def _interrupt() -> None:
    raise KeyboardInterrupt
