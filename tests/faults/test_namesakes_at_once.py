"""Tables of one name, and of two identities, that are exported for the first time at once.

Their keys differ, and so do their leases: only what each sees of the other keeps the rows of a
partition from being there twice.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar, cast

import pytest

from tableformat.effects import Direct, Step
from tableformat.export.commit import Ports
from tableformat.export.dry_run import EXPORT, rehearse
from tableformat.export.give_up import GivenUp, kill
from tableformat.export.job import export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.request import ExportOptions
from tableformat.ledger import Ledger, State
from tests.support.fakes import TABLE
from tests.support.scenarios import (
    ALL,
    AtStep,
    CountingReads,
    Partitions,
    in_shard,
    ledger_rows,
    parts_of,
    ports_of,
    rows_in_main,
)

T = TypeVar("T")
_PARTITION: Final = "p1"
_SECONDS: Final = 30
_WORD: Final = "rows of another table db.t may be there already"


def table_of(identity: str) -> Partitions:
    """Return a table db.t of an identity, with one partition that it shares with the others."""
    return Partitions(
        table=replace(TABLE, identity=identity), by_id={_PARTITION: parts_of(_PARTITION, 7, 5)}
    )


def run(ports: JobPorts, options: ExportOptions | None = None) -> Outcome:
    """Export, as a new process; return what became of the partition."""
    with contextlib.closing(ports.ledger):
        (outcome,) = export(replace(ALL, options=options or ExportOptions()), ports, slots=1)
    return outcome


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Make the lake table by an export of another partition."""
    source = Partitions(table=replace(TABLE, identity="uuid:a"), by_id={"p0": parts_of("p0", 3)})
    assert run(ports_of(tmp_path, source)).status is Status.COMMITTED
    return tmp_path


def assert_once(directory: Path, outcomes: list[Outcome]) -> None:
    """Check that one of them landed, and that nothing else is under way."""
    assert sorted(o.status for o in outcomes) == [Status.COMMITTED, Status.REFUSED]
    (refused,) = (o for o in outcomes if o.status is Status.REFUSED)
    assert _WORD in refused.message
    assert rows_in_main(directory) == 3 + 12
    assert all(row.state is not State.RUNNING for row in ledger_rows(directory))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "step",
    [
        Step.TAKE_LEASE,
        Step.SNAPSHOT_SOURCE,
        Step.CHECK_FINISHED,
        Step.CLAIM,
        Step.WRITE_FILES,
        Step.STAGE,
        Step.SEND,
    ],
)
def test_another_export_begins_while_one_is_at_a_step(
    lake: Path, step: Step, *, after: bool
) -> None:
    """Harm prevented: two servers with a copy of a table, and every row twice in the lake."""
    one, other, outcomes = table_of("uuid:a"), table_of("uuid:b"), list[Outcome]()
    effects = AtStep(step, lambda: outcomes.append(run(ports_of(lake, other))), after=after)

    outcomes.append(run(ports_of(lake, one, effects=effects)))

    assert_once(lake, outcomes)
    assert other.left == {}
    again = [run(ports_of(lake, source)) for source in (one, other)]
    assert {o.status for o in again} == {Status.ALREADY_EXPORTED, Status.REFUSED}
    assert rows_in_main(lake) == 3 + 12


class Meets:
    """Effects of one of two that claim at the same moment; tells when it has given up."""

    def __init__(self, together: threading.Barrier, given_up: threading.Event) -> None:
        self._together, self._given_up = together, given_up
        self._has_met = False

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        if step is Step.CLAIM and not self._has_met:
            self._has_met = True
            # Neither has seen the other, and each looks when both have claimed.
            self._together.wait(_SECONDS)
            result = act()
            self._together.wait(_SECONDS)
            return result
        result = act()
        if step is Step.GIVE_UP:
            self._given_up.set()
        return result


def until(event: threading.Event) -> None:
    assert event.wait(_SECONDS)


def begin_and_kill(directory: Path, source: Partitions) -> None:
    """Let an export be interrupted with nothing finished, and give it up."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(ports_of(directory, source, effects=AtStep(Step.WRITE_FILES, interrupt)))
    ports = ports_of(directory, source)
    table = ports.lake.table(ALL.to)
    assert table is not None
    with contextlib.closing(ports.ledger) as ledger:
        (row,) = (row for row in ledger.rows() if row.state is State.RUNNING)
        of_commit = Ports(Direct(), table, ledger, ports.clock, ports.pause)
        assert isinstance(kill(of_commit, row.key.hash, state=State.KILLED), GivenUp)


@pytest.mark.parametrize("began_before", [False, True], ids=["first claims", "killed before"])
def test_of_two_that_see_each_other_the_older_goes_on(lake: Path, *, began_before: bool) -> None:
    """Harm prevented: both give up, again and again; or both go on."""
    together, given_up = threading.Barrier(2), threading.Event()
    sources = [table_of("uuid:a"), table_of("uuid:b")]
    if began_before:
        for source in sources:
            begin_and_kill(lake, source)

    def one(source: Partitions) -> Outcome:
        ports = ports_of(lake, source, effects=Meets(together, given_up))
        return run(replace(ports, pause=lambda _: until(given_up)))

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(one, sources))

    assert_once(lake, outcomes)
    rows = [row for row in ledger_rows(lake) if row.key.partition_id == _PARTITION]
    ended = {row.state: int(row.last.transaction_id) for row in rows}
    assert ended[State.COMPLETED] < ended[State.FAILED]


def test_an_export_that_misses_the_others_give_up_ends_in_time(lake: Path) -> None:
    """The younger dies where it would give up; a cancel of it lets the older be exported."""
    together, never = threading.Barrier(2), threading.Event()
    sources = [table_of("uuid:a"), table_of("uuid:b")]

    class DiesThere(Meets):
        def __call__(self, step: Step, act: Callable[[], T], /) -> T:
            if step is Step.GIVE_UP and not never.is_set():
                never.set()
                raise KeyboardInterrupt
            return super().__call__(step, act)

    def one(source: Partitions) -> Outcome | None:
        with contextlib.suppress(KeyboardInterrupt):
            return run(ports_of(lake, source, effects=DiesThere(together, never)))
        return None

    with ThreadPoolExecutor(2) as pool:
        outcomes = [o for o in pool.map(one, sources) if o is not None]

    assert [o.status for o in outcomes] == [Status.REFUSED]
    assert rows_in_main(lake) == 3
    again = [run(ports_of(lake, source)).status for source in sources]
    assert sorted(again) == [Status.COMMITTED, Status.REFUSED]
    assert rows_in_main(lake) == 3 + 12


def test_a_rehearsal_reads_the_ledger_once_for_all_partitions(lake: Path) -> None:
    """Harm prevented: ten thousand partitions, and as many times ten thousand rows."""
    assert run(ports_of(lake, table_of("uuid:b"))).status is Status.COMMITTED
    source = table_of("uuid:a")
    source.by_id |= {f"q{number}": parts_of(f"q{number}", 1) for number in range(5)}
    ports = ports_of(lake, source)
    with contextlib.closing(ports.ledger):
        ledger = CountingReads(ports.ledger)
        found = rehearse(
            ALL,
            source,
            ports.lake,
            cast("Ledger", ledger),
            now=ports.clock(),
            slots=1,
            note=lambda _: None,
            storage=ports.storage,
        )

    assert ledger.reads == 1
    assert {f.partition_id: f.action for f in found.forecasts} == {
        _PARTITION: Status.REFUSED,
        **dict.fromkeys([f"q{number}" for number in range(5)], EXPORT),
    }


def test_shards_and_rows_declared_as_different_are_exported_together(lake: Path) -> None:
    together, never = threading.Barrier(2), threading.Event()
    sources = [table_of("uuid:a"), table_of("uuid:b")]
    sources[1].by_id = in_shard("b", sources[1].by_id)

    def one(source: Partitions) -> Outcome:
        ports = ports_of(lake, source, effects=Meets(together, never))
        return run(
            ports,
            ExportOptions(shards=2)
            if source is sources[0]
            else ExportOptions(overwrite_file_if_exists=True),
        )

    with ThreadPoolExecutor(2) as pool:
        statuses = [o.status for o in pool.map(one, sources)]

    assert statuses == [Status.COMMITTED, Status.COMMITTED]
    assert rows_in_main(lake) == 3 + 12 + 12
