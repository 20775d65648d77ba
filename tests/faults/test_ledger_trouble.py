"""A ledger that is lost, emptied, put back from a copy, or that fails: never twice, never a lie."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tableformat.effects import Step
from tableformat.errors import LedgerError, RefusedError, TableFormatError
from tableformat.ledger import Ledger
from tests.support.scenarios import (
    ALL,
    AtStep,
    Partitions,
    assert_exported_once,
    ports_of,
    pyiceberg,
    rows_in_main,
    run,
    statuses,
)


class FailsAt:
    """A ledger whose n-th call fails, before or after it was performed, as on a full disk."""

    def __init__(self, ledger: Ledger, number: int, *, after: bool) -> None:
        self._ledger, self._left, self._after = ledger, number, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ledger, name)
        return self._failing(found) if callable(found) else found

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            now, self._left = self._left == 0, self._left - 1
            message = "Cannot use the ledger: database or disk is full. Make room."
            if now and not self._after:
                raise LedgerError(message)
            result = call(*args, **named)
            if now:
                raise LedgerError(message)
            return result

        return called


def compact(directory: Path) -> None:
    """Rewrite all rows of main under other names."""
    table = pyiceberg(directory)
    table.overwrite(table.scan().to_arrow())


def back_up(directory: Path) -> None:
    """Copy the ledger as an operator's nightly job does."""
    with (
        contextlib.closing(sqlite3.connect(directory / "ledger.db")) as ledger,
        contextlib.closing(sqlite3.connect(directory / "copy.db")) as copy,
    ):
        ledger.backup(copy)


def restore(directory: Path) -> None:
    """Put the copy in the ledger's place."""
    lose(directory)
    (directory / "copy.db").rename(directory / "ledger.db")


def lose(directory: Path) -> None:
    """Delete the ledger and what SQLite keeps next to it."""
    for path in directory.glob("ledger.db*"):
        path.unlink()


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done all the same"])
@pytest.mark.parametrize("number", range(0, 36, 2))
def test_a_ledger_that_fails_once_and_the_same_command_again(
    tmp_path: Path, number: int, *, after: bool
) -> None:
    """Harm prevented: rows twice, or "failed" of rows that are in main, when a disk was full."""
    source = Partitions()
    ports = ports_of(tmp_path, source)
    outcomes = []
    with contextlib.suppress(LedgerError):
        outcomes = run(
            tmp_path,
            source,
            ports=replace(ports, ledger=FailsAt(ports.ledger, number, after=after)),
        )
    again = run(tmp_path, source)

    assert_exported_once(tmp_path, source)
    assert statuses(run(tmp_path, source)) == ["already_exported"] * 2
    landed = {o.partition_id for o in again if o.status.value == "already_exported"}
    assert not landed & {o.partition_id for o in outcomes if o.status.value == "failed"}


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        (Step.CHECK_FINISHED, 1),
        (Step.CHECK_FINISHED, 2),
        (Step.CLAIM, 1),
        (Step.WRITE_FILES, 1),
        (Step.SEND, 1),
        (Step.SEND, 2),
        (Step.SETTLE, 1),
        (Step.SETTLE, 2),
        (Step.RELEASE_LEASE, 1),
    ],
)
def test_a_copy_of_the_ledger_from_any_moment_never_exports_twice(
    tmp_path: Path, step: Step, nth: int
) -> None:
    """Harm prevented: a copy taken while a group was written has drawn all its epochs."""
    source = Partitions()
    one_by_one = replace(ALL, commit_every=1)
    effects = AtStep(step, lambda: back_up(tmp_path), nth=nth)
    run(tmp_path, source, effects=effects, request=one_by_one)
    compact(tmp_path)
    restore(tmp_path)

    with contextlib.suppress(RefusedError):
        run(tmp_path, source)

    assert rows_in_main(tmp_path) == sum(source.rows.values())


@pytest.mark.parametrize("empty", [False, True], ids=["deleted", "empty file"])
def test_a_lost_ledger_is_refused_also_after_a_compaction(tmp_path: Path, *, empty: bool) -> None:
    """Harm prevented: a ledger that knows nothing exports everything again."""
    source = Partitions()
    run(tmp_path, source)
    compact(tmp_path)
    lose(tmp_path)
    if empty:
        (tmp_path / "ledger.db").touch()

    with pytest.raises(RefusedError, match="exported to with another ledger"):
        run(tmp_path, source)

    assert rows_in_main(tmp_path) == sum(source.rows.values())


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE])
def test_a_ledger_deleted_under_a_working_job(tmp_path: Path, step: Step) -> None:
    """Harm prevented: the job continues with a file that nobody sees, the next one starts again."""
    source = Partitions()
    with contextlib.suppress(TableFormatError):
        run(tmp_path, source, effects=AtStep(step, lambda: lose(tmp_path)), meddled=True)

    with pytest.raises(RefusedError, match="exported to with another ledger"):
        run(tmp_path, source)

    assert rows_in_main(tmp_path) in (0, 3, 12, 15)
