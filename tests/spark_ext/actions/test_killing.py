"""KILL QUERY: whatever a statement has under way is given up, and it begins nothing else.

RQ…QueryCancellation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.ledgers.sqlite import SqliteLedger
from spark_ext.actions import export_ports
from spark_ext.actions.cancel import KilledPartition, kill_in_session
from spark_ext.sql.statements import KillMode
from tableformat.effects import Step
from tableformat.errors import StoppedError
from tableformat.export import job
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import Owner, State
from tests.support.real_export import RealExport
from tests.support.scenarios import ALL, AtStep, Partitions, parts_of, row_of, rows_in_main, run
from tests.support.system_tables import session_of

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
