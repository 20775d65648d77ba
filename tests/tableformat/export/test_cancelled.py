"""A run whose partitions are taken over while it works on them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.ledgers.memory import MemoryLedger
from catalog.ledgers.sqlite import SqliteLedger
from tableformat.effects import Direct, Step
from tableformat.export import leases as module
from tableformat.export.give_up import GivenUp, kill
from tableformat.export.leases import Leases
from tableformat.export.ports import Writing
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import LeaseHeld, Owner, Row, State
from tests.support.lake import KEY, claim, ports
from tests.support.scenarios import (
    ALL,
    AtStep,
    Partitions,
    RealFiles,
    lake,
    ports_of,
    row_of,
    rows_by_key,
    rows_in_main,
    run,
    statuses,
)

ME, OTHER = Owner("here", 1, "now"), Owner("there", 2, "now")
LONG = 30.0


def cancel(directory: Path, partition: str) -> None:
    """Cancel an export, as another process does."""
    ledger = SqliteLedger(directory / "ledger.db")
    key = row_of(directory, partition).key.hash
    assert isinstance(kill(ports(lake(directory), ledger), key, state=State.KILLED), GivenUp)
    ledger.close()


@pytest.mark.parametrize("step", [Step.WRITE_FILES, Step.CHECK_FILES, Step.STAGE, Step.SEND])
def test_one_of_two_partitions_is_cancelled_and_the_other_goes_on(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: cancelling one partition stops the others, or does not stop itself."""
    source = Partitions()
    first = 2 if step in (Step.STAGE, Step.SEND) else 1
    # The table's first snapshot is staged by the same step; it is sent by another.
    nth = first if step is Step.STAGE else 1

    outcomes = run(tmp_path, source, effects=AtStep(step, lambda: cancel(tmp_path, "p1"), nth=nth))

    assert statuses(outcomes) == ["killed", "committed"]
    assert row_of(tmp_path, "p1").state is State.KILLED
    assert rows_in_main(tmp_path) == source.rows["p2"]
    assert statuses(run(tmp_path, source, request=ALL)) == ["committed", "already_exported"]
    held = rows_by_key(tmp_path)
    assert held[row_of(tmp_path, "p1").key.hash] == source.rows["p1"]


def cancel_and_clean_up(directory: Path) -> None:
    """Cancel an export and remove its files, as `exports cancel` does."""
    cancel(directory, "p1")
    key = row_of(directory, "p1").key.hash
    for file in (directory / "warehouse").rglob(f"{key}-*.parquet"):
        file.unlink()


@pytest.mark.parametrize("step", [Step.WRITE_FILES, Step.CHECK_FILES])
def test_files_that_a_cancel_removes_are_not_missed(tmp_path: Path, step: Step) -> None:
    """Harm prevented: "failed, run it again" of what somebody has just cancelled."""
    source = Partitions()
    effects = AtStep(step, lambda: cancel_and_clean_up(tmp_path), after=step is Step.WRITE_FILES)

    outcomes = run(tmp_path, source, effects=effects)

    assert statuses(outcomes) == ["killed", "committed"]
    assert row_of(tmp_path, "p1").state is State.KILLED
    assert rows_in_main(tmp_path) == source.rows["p2"]


class Slow(RealFiles):
    """Writes, and then goes on saying so until somebody stops it."""

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__()
        self._before = before

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        self._before()
        written = yield from super().write(plan, tasks, on_rows=on_rows, should_stop=should_stop)
        pause = threading.Event()
        for _ in range(3_000):
            on_rows(1)
            pause.wait(0.01)
        return written


def test_writing_stops_once_every_partition_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a cancelled export uses the cluster for hours."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)

    def both() -> None:
        cancel(tmp_path, "p1")
        cancel(tmp_path, "p2")

    slow = replace(ports_of(tmp_path, Partitions()), writer=lambda: Slow(both))

    assert statuses(run(tmp_path, Partitions(), ports=slow)) == ["killed", "killed"]
    assert rows_in_main(tmp_path) == 0


class Read(MemoryLedger):
    """A ledger that tells when it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_again = threading.Semaphore(0)

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        rows = super().read_all(keys)
        self.read_again.release()
        return rows


def test_a_later_claim_of_a_watched_key_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is seen by looking, also while the lease is still ours."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    ledger = Read()
    row = claim(ledger)
    with Leases(ledger, ME, effects=Direct(), is_alive=lambda _: True) as leases:
        assert leases.take(KEY.hash) is None
        leases.watch(KEY.hash, row.claim.epoch)
        looks(ledger)
        assert not leases.taken_over(KEY.hash)
        claim(ledger)
        looks(ledger)
        assert leases.taken_over(KEY.hash)


def looks(ledger: Read) -> None:
    """Wait until the row was read again and acted on."""
    while ledger.read_again.acquire(blocking=False):
        pass
    for _ in range(3):
        assert ledger.read_again.acquire(timeout=LONG)


def test_a_lease_is_taken_from_the_living_only_to_give_an_export_up() -> None:
    """Harm prevented: two runs work on one partition because one is in a hurry."""
    ledger = MemoryLedger()
    ledger.take_lease(KEY.hash, OTHER, LONG)
    with Leases(ledger, ME, effects=Direct(), is_alive=lambda _: True) as leases:
        held = leases.take(KEY.hash)
        assert isinstance(held, LeaseHeld)
        assert held.owner == OTHER

        leases.take_over(KEY.hash)

        held = ledger.holder(KEY.hash)
        assert held is not None
        assert held.owner == ME
    assert ledger.holder(KEY.hash) is None
