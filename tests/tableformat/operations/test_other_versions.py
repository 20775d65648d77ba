"""A lake table that its owner upgraded to format version 3: everything is refused, or finished."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tableformat.committer import LakeTableState
from tableformat.effects import Step
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.export.give_up import KillOutcome, TooLate, kill
from tableformat.export.outcome import Status
from tableformat.ledger import State
from tableformat.operations.forget import Forget
from tableformat.operations.freeze import Freeze, Unfreeze
from tests.support.dying import Dies, KilledAt
from tests.support.lake_statements import (
    LATER,
    alone,
    attach,
    detach,
    drop,
    drop_detached,
    export_at,
    in_files,
    partition,
    running,
)
from tests.support.other_engines import upgrade
from tests.support.scenarios import Partitions, lake, ledger_rows, row_of, run
from tests.support.two_lake_tables import (
    OTHER,
    P1,
    killed_between,
    move,
    moving,
    other,
    prepared,
    rows_of_p1,
)

VERSION = "it has format version 3, and only tables of format version 2 are written"


def metadata(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.rglob("metadata/*.*"))


@pytest.mark.parametrize(
    "act",
    [
        lambda at: running(at).run(drop("p1")),
        lambda at: running(at).run(detach("p1")),
        lambda at: running(at).run(attach("p2")),
        lambda at: running(at).forecast(drop("p1")),
        lambda at: drop_detached(at, partition("p2")),
        lambda at: alone(at, Freeze(P1, "new")),
        lambda at: alone(at, Unfreeze(P1, "old")),
        lambda at: alone(at, Forget(P1)),
    ],
    ids=["drop", "detach", "attach", "dry", "drop detached", "freeze", "unfreeze", "forget"],
)
def test_a_statement_is_refused_unclaimed(tmp_path: Path, act: Callable[[Path], object]) -> None:
    """Harm prevented: a crash of the library, and a claim that nobody can end."""
    in_files(tmp_path)
    running(tmp_path).run(detach("p2"))
    alone(tmp_path, Freeze(P1, "old"))
    upgrade(lake(tmp_path).load())
    rows, before = ledger_rows(tmp_path), metadata(tmp_path)

    with pytest.raises(UnsupportedError, match=VERSION) as refused:
        act(tmp_path)

    assert refused.value.code == 48
    assert (ledger_rows(tmp_path), metadata(tmp_path)) == (rows, before)


def test_an_export_is_refused_unclaimed(tmp_path: Path) -> None:
    source = in_files(tmp_path)
    upgrade(lake(tmp_path).load())
    rows = ledger_rows(tmp_path)

    with pytest.raises(RefusedError, match="Iceberg of format version 3 does not") as refused:
        export_at(tmp_path, source, LATER)

    assert (refused.value.code, ledger_rows(tmp_path)) == (48, rows)


def interrupted(directory: Path, step: Step, *, after: bool = False, nth: int = 1) -> None:
    """Leave an export of two partitions, and upgrade the table."""
    with pytest.raises(Dies):
        run(directory, Partitions(), effects=KilledAt(step, after=after, nth=nth))
    upgrade(lake(directory).load())


def cancel(directory: Path) -> KillOutcome:
    ports = running(directory).ports.commit
    return kill(ports, row_of(directory, "p1").key.hash, state=State.KILLED)


def test_an_interrupted_export_is_not_claimed_to_be_given_up(tmp_path: Path) -> None:
    """Harm prevented: the claim of a living run is taken, and nothing comes of it."""
    interrupted(tmp_path, Step.WRITE_FILES)
    rows, before = ledger_rows(tmp_path), metadata(tmp_path)

    with pytest.raises(UnsupportedError, match=VERSION) as refused:
        cancel(tmp_path)

    assert refused.value.code == 48
    assert "Its row stays in the ledger, and hinders no export" in refused.value.message
    assert (ledger_rows(tmp_path), metadata(tmp_path)) == (rows, before)


def test_an_export_that_landed_before_is_settled(tmp_path: Path) -> None:
    """Harm prevented: the ledger never knows rows that main has."""
    interrupted(tmp_path, Step.SEND, after=True)

    assert isinstance(cancel(tmp_path), TooLate)

    assert row_of(tmp_path, "p1").state is State.COMPLETED


@pytest.mark.parametrize("side", [lake, other], ids=["here", "there"])
@pytest.mark.parametrize("dry", [False, True], ids=["", "dry"])
def test_a_move_is_refused_unclaimed(
    tmp_path: Path, side: Callable[[Path], object], *, dry: bool
) -> None:
    """Harm prevented: the rows are added there, and cannot be removed here."""
    prepared(tmp_path)
    upgrade(_state(tmp_path, side))
    rows, before = ledger_rows(tmp_path), metadata(tmp_path)

    with pytest.raises(UnsupportedError, match=VERSION) as refused:
        moving(tmp_path).forecast(P1) if dry else move(tmp_path)

    assert "is not finished" not in refused.value.message
    assert (ledger_rows(tmp_path), metadata(tmp_path)) == (rows, before)


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
def test_a_move_that_landed_there_before_is_finished(tmp_path: Path, *, settled: bool) -> None:
    """Harm prevented: rows that stay in both tables."""
    prepared(tmp_path)
    if settled:
        killed_between(tmp_path)
    else:
        with contextlib.suppress(Dies):
            move(tmp_path, KilledAt(Step.SEND, after=True))
    assert rows_of_p1(tmp_path) == (12, 12)
    upgrade(other(tmp_path).load())

    assert move(tmp_path).status is Status.MOVED

    assert rows_of_p1(tmp_path) == (0, 12)


@pytest.mark.parametrize("side", [lake, other], ids=["here", "there"])
def test_a_move_that_cannot_be_finished_says_what_to_do(
    tmp_path: Path, side: Callable[[Path], object]
) -> None:
    prepared(tmp_path)
    with contextlib.suppress(Dies):
        move(tmp_path, KilledAt(Step.SEND))
    upgrade(_state(tmp_path, side))
    rows = ledger_rows(tmp_path)

    with pytest.raises(UnsupportedError, match=VERSION) as refused:
        move(tmp_path)

    assert f"When {OTHER} has been dropped, the same statement gives" in refused.value.message
    assert (ledger_rows(tmp_path), rows_of_p1(tmp_path)) == (rows, (12, 0))


def _state(directory: Path, side: Callable[[Path], object]) -> LakeTableState:
    return lake(directory).load() if side is lake else other(directory).load()
