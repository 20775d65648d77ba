"""KILL QUERY: whatever a statement has under way is given up, and it begins nothing else.

RQ…QueryCancellation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.ledgers.sqlite import SqliteLedger
from spark_ext.actions import export_ports
from spark_ext.actions.cancel import KilledPartition, kill_in_session
from spark_ext.sql.statements import KillMode
from tableformat.effects import Step
from tableformat.errors import KilledError, StoppedError
from tableformat.export import job
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import Owner, State, Stop
from tests.support.real_export import RealExport
from tests.support.scenarios import (
    ALL,
    FORCED,
    AtStep,
    Partitions,
    ledger_rows,
    parts_of,
    row_of,
    rows_in_main,
    run,
)
from tests.support.system_tables import session_of

T = TypeVar("T")
OURS = replace(ALL, query_id="ours")
THREE = {name: parts_of(name, 7) for name in ("p1", "p2", "p3")}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(export_ports, "_back_off", lambda _: None)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))


def kill(
    directory: Path, *query_ids: str, mode: KillMode = KillMode.ASYNC
) -> tuple[KilledPartition, ...]:
    """Kill as a session does that shares ledger and lake."""
    conf = session_of(directory / "warehouse", directory / "ledger.db")
    return kill_in_session(query_ids, conf, mode)


def interrupt() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


def interrupted(directory: Path, source: Partitions) -> None:
    """Leave an export that finished its files and did not end."""
    with pytest.raises(KeyboardInterrupt):
        run(directory, source, request=OURS, effects=AtStep(Step.CHECK_FILES, interrupt))


def killed_while(
    directory: Path, source: Partitions, step: Step, *, nth: int = 1
) -> list[KilledPartition]:
    """Kill a statement while its run takes a step; return the result."""
    killed: list[KilledPartition] = []
    effects = AtStep(step, lambda: killed.extend(kill(directory, "ours")), nth=nth)
    with pytest.raises(StoppedError, match="the query ours was killed"):
        run(directory, source, request=OURS, effects=effects)
    return killed


def test_every_partition_that_is_being_written_is_given_up(tmp_path: Path) -> None:
    """Harm prevented: a killed statement of which a part becomes visible all the same."""
    killed = killed_while(tmp_path, Partitions(by_id=dict(THREE)), Step.WRITE_FILES)

    assert sorted(
        (one.row.key.partition_id, one.row.claim.query_id, one.status.value, one.message)
        for one in killed
    ) == [(name, "ours", "finished", "KILLED") for name in THREE]
    assert rows_in_main(tmp_path) == 0
    assert {row_of(tmp_path, name).state for name in THREE} == {State.KILLED}


def test_partitions_that_were_not_begun_are_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requirement: partitions that have not yet been exported are not; what was, stays."""
    monkeypatch.setattr(job, "MOST_PARTITIONS", 1)

    killed = killed_while(tmp_path, Partitions(by_id=dict(THREE)), Step.WRITE_FILES, nth=2)

    assert [one.row.key.partition_id for one in killed] == ["p2"]
    assert rows_in_main(tmp_path) == 7
    assert row_of(tmp_path, "p1").state is State.COMPLETED
    with pytest.raises(ValueError, match="not enough values"):
        row_of(tmp_path, "p3")


class AtEffect:
    """Effects that keep their names, and call `visit` before the effect of one number."""

    def __init__(self, number: int = -1, visit: Callable[[], object] = list) -> None:
        self._number, self._visit = number, visit
        self.steps: list[Step] = []

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        self.steps.append(step)
        if len(self.steps) - 1 == self._number:
            self._visit()
        return act()


def test_a_kill_at_any_effect_of_a_later_group_ends_the_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a kill between two groups is answered with nothing, and all is exported.

    The query id is known from the first group. Whatever the second does when it is killed, the
    third does not begin, and only what the second had sent may land.
    """
    monkeypatch.setattr(job, "MOST_PARTITIONS", 1)
    watched = AtEffect()
    run(tmp_path / "watched", Partitions(by_id=dict(THREE)), request=OURS, effects=watched)
    first, second, _ = (n for n, one in enumerate(watched.steps) if one is Step.RELEASE_LEASE)

    wrong: dict[str, object] = {}
    for number in range(first + 1, second + 1):
        here = tmp_path / str(number)
        killed: list[KilledPartition] = []
        effects = AtEffect(number, lambda: killed.extend(kill(here, "ours")))  # noqa: B023
        with contextlib.suppress(KilledError):
            run(here, Partitions(by_id=dict(THREE)), request=OURS, effects=effects)
            wrong[f"{number} {watched.steps[number]}: not stopped"] = killed
        states = {row.key.partition_id: row.state for row in ledger_rows(here)}
        in_main = 7 + 7 * (states.get("p2") is State.COMPLETED)
        found = (states.pop("p1"), states.pop("p2", State.KILLED) is not State.RUNNING, states)
        if found != (State.COMPLETED, True, {}) or rows_in_main(here) != in_main or not killed:
            wrong[f"{number} {watched.steps[number]}"] = found, rows_in_main(here), killed

    assert wrong == {}


def test_a_kill_between_groups_answers_for_the_whole_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: nothing is printed, as if the statement were unknown; TEST marks nothing."""
    monkeypatch.setattr(job, "MOST_PARTITIONS", 1)
    looked: list[KilledPartition] = []

    def look_and_kill() -> None:
        looked.extend(kill(tmp_path, "ours", mode=KillMode.TEST))
        assert not [row for row in ledger_rows(tmp_path) if row.stop is not None]
        looked.extend(kill(tmp_path, "ours"))

    effects = AtStep(Step.SNAPSHOT_SOURCE, look_and_kill, nth=2)
    with pytest.raises(KilledError):
        run(tmp_path, Partitions(by_id=dict(THREE)), request=OURS, effects=effects)

    assert [(one.query_id, one.partition_id, one.status.value, one.message) for one in looked] == [
        ("ours", "", "waiting", "it would export no further partition"),
        ("ours", "", "finished", "it exports no further partition"),
    ]
    assert row_of(tmp_path, "p1").stop is Stop.QUERY_KILLED
    assert row_of(tmp_path, "p2").state is State.KILLED


def test_the_mark_of_a_killed_statement_ends_with_the_next_claim(tmp_path: Path) -> None:
    """Harm prevented: marks that pile up, or that stop the statement of somebody else."""
    source = Partitions(by_id=dict(THREE))
    run(tmp_path, source, request=OURS)
    kill(tmp_path, "ours")
    assert {row.stop for row in ledger_rows(tmp_path)} == {Stop.QUERY_KILLED}
    source.by_id["p1"] = parts_of("p1", 7, 5)

    forced = replace(FORCED, query_id="again")
    outcomes = run(tmp_path, source, request=forced)

    assert {one.status.value for one in outcomes} == {"replaced"}
    assert {row.stop for row in ledger_rows(tmp_path)} == {None}


def test_a_resumed_export_is_given_up_if_the_kill_came_before_its_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are finished, and a request of the earlier run may be under way: both end."""
    monkeypatch.setattr(job, "MOST_PARTITIONS", 1)
    source = Partitions(by_id=dict(THREE))
    only, earlier = Partitions(by_id={"p2": THREE["p2"]}), replace(OURS, query_id="earlier")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, only, request=earlier, effects=AtStep(Step.CHECK_FILES, interrupt))

    effects = AtStep(Step.CLAIM, lambda: kill(tmp_path, "ours"), nth=2)
    with pytest.raises(KilledError):
        run(tmp_path, source, request=OURS, effects=effects)

    assert (row_of(tmp_path, "p2").state, rows_in_main(tmp_path)) == (State.KILLED, 7)
    again = run(tmp_path, source, request=replace(OURS, query_id="again"))
    assert rows_in_main(tmp_path) == 21
    assert {one.status.value for one in again} == {"already_exported", "committed"}


def test_a_command_that_claims_after_the_kill_of_another_gives_up(tmp_path: Path) -> None:
    """Two commands of one statement run at once: the second has no row yet when it is killed."""
    ended: list[str] = []

    def second() -> None:
        effects = AtStep(Step.CLAIM, lambda: kill(tmp_path, "ours"))
        try:
            run(tmp_path, Partitions(by_id={"p2": THREE["p2"]}), request=OURS, effects=effects)
        except KilledError as error:
            ended.append(error.message)

    with pytest.raises(KilledError):
        run(
            tmp_path,
            Partitions(by_id={"p1": THREE["p1"]}),
            request=OURS,
            effects=AtStep(Step.WRITE_FILES, second),
        )

    assert [message.partition(".")[0] for message in ended] == [
        "Cannot finish: the query ours was killed"
    ]
    assert [row.state for row in ledger_rows(tmp_path)] == [State.KILLED] * 2
    assert rows_in_main(tmp_path) == 0


def test_a_kill_of_the_first_group_counts_although_it_lands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: the row is settled, and with it goes what the killer noted on it."""
    monkeypatch.setattr(job, "MOST_PARTITIONS", 1)
    effects = AtStep(Step.SETTLE, lambda: kill(tmp_path, "ours"))

    with pytest.raises(KilledError):
        run(tmp_path, Partitions(by_id=dict(THREE)), request=OURS, effects=effects)

    (row,) = ledger_rows(tmp_path)
    assert (row.state, row.stop, rows_in_main(tmp_path)) == (
        State.COMPLETED,
        Stop.QUERY_KILLED,
        7,
    )


def test_the_same_statement_again_exports_the_rest(tmp_path: Path) -> None:
    """The requirement: retry after cancellation."""
    source = Partitions(by_id=dict(THREE))
    killed_while(tmp_path, source, Step.WRITE_FILES)

    outcomes = run(tmp_path, source, request=replace(OURS, query_id="again"))

    assert {o.status.value for o in outcomes} == {"committed"}
    assert rows_in_main(tmp_path) == 21


def test_another_statement_goes_on(tmp_path: Path) -> None:
    """Harm prevented: somebody else's export is killed."""
    source = Partitions(by_id=dict(THREE))
    effects = AtStep(Step.WRITE_FILES, lambda: kill(tmp_path, "theirs", ""))

    outcomes = run(tmp_path, source, request=replace(ALL, query_id=""), effects=effects)

    assert {o.status.value for o in outcomes} == {"committed"}


def test_a_statement_that_nobody_runs_any_more_leaves_nothing_behind(tmp_path: Path) -> None:
    """The requirement: no orphaned export after the query is cancelled, whatever became of it."""
    interrupted(tmp_path, Partitions(by_id={"p1": parts_of("p1", 7)}))
    row = row_of(tmp_path, "p1")
    with contextlib.closing(SqliteLedger(tmp_path / "ledger.db")) as ledger:
        ledger.take_lease(row.key.hash, Owner("elsewhere", 1, "now"), 600)

    (killed,) = kill(tmp_path, "ours", mode=KillMode.SYNC)

    assert (killed.status.value, killed.message) == ("finished", "KILLED")
    assert row_of(tmp_path, "p1").state is State.KILLED
    assert [*(tmp_path / "warehouse").rglob("*.parquet")] == []


def test_a_test_kill_shows_what_it_would_give_up_and_does_nothing(tmp_path: Path) -> None:
    interrupted(tmp_path, Partitions(by_id=dict(THREE)))

    killed = kill(tmp_path, "ours", "unknown", mode=KillMode.TEST)

    assert sorted(one.row.key.partition_id for one in killed) == [*THREE]
    assert {one.status.value for one in killed} == {"waiting"}
    assert {row_of(tmp_path, name).state for name in THREE} == {State.RUNNING}


def test_nothing_is_found_where_nothing_runs(tmp_path: Path) -> None:
    """As in ClickHouse: a query that is not there is no error."""
    assert kill(tmp_path, "ours") == ()
    assert kill_in_session(["ours"], session_of(tmp_path / "warehouse"), KillMode.ASYNC) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_partition_that_cannot_be_given_up_does_not_keep_the_others(tmp_path: Path) -> None:
    """Harm prevented: one lake table that is gone saves a statement from being killed."""
    source = Partitions(by_id={"p1": parts_of("p1", 7)})
    interrupted(tmp_path, source)
    with contextlib.closing(SqliteLedger(tmp_path / "ledger.db")) as ledger:
        (row,) = ledger.rows()
        gone = replace(row, key=replace(row.key, destination="gone"), version=0)
        ledger.write(replace(gone, destination_table="lake.n.gone"))

    killed = {one.row.destination_table: one for one in kill(tmp_path, "ours")}

    assert killed["lake.n.t"].status.value == "finished"
    assert killed["lake.n.gone"].status.value == "cant_cancel"
    assert "is no longer the table that it writes to" in killed["lake.n.gone"].message


@pytest.fixture
def exports(tmp_path: Path) -> Iterator[RealExport]:
    with EmbeddedConnection(tmp_path / "data", create=True) as connection:
        yield RealExport(connection, tmp_path)


def test_a_real_export_stops_and_says_so(exports: RealExport) -> None:
    """With files of a real ClickHouse, from a session that only shares the ledger."""
    name = exports.clickhouse.filled()
    conf = session_of(exports.warehouse)
    killed: list[object] = []

    def stop(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        (query_id,) = {row.claim.query_id for row in exports.ledger_rows(name)}
        killed.extend(kill_in_session([query_id], conf, KillMode.ASYNC))

    exports.before = stop
    with pytest.raises(StoppedError, match=r"was killed. Exported partitions stay"):
        exports.run(name)

    assert len(killed) == 2
    assert exports.in_lake(name) == []
    assert {row.state for row in exports.ledger_rows(name)} == {State.KILLED}
    exports.before = lambda *_: None
    exports.run(name)
    assert exports.in_lake(name) == exports.in_source(name)
