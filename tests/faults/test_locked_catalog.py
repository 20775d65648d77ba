"""A catalog in a database that is locked, or lost at the end of a transaction: the same promise.

SQLite is locked by another connection. What PostgreSQL shows when its connection breaks at COMMIT
is played on the same database: the transaction ends, or not, and the client learns neither.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from catalog.iceberg.catalogs import OpenedCatalog
from tableformat.effects import Effects, Step
from tableformat.errors import TableFormatError
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts
from tests.support.scenarios import Partitions, assert_exported_once, ports_of, run, statuses

T = TypeVar("T")
DONE = {"committed", "already_exported"}


def database(directory: Path) -> Path:
    """Return the file that the helpers of `scenarios` look into; made when missing."""
    path = directory / "warehouse" / "lake.db"
    path.parent.mkdir(exist_ok=True)
    return path


def impatient(directory: Path, source: Partitions, effects: Effects) -> JobPorts:
    """Return the ports of a process that waits for a lock for a moment only."""
    path = database(directory)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{path}?timeout=0.05",
        "warehouse": path.parent.as_uri(),
    }
    ports = ports_of(directory, source, effects=effects)
    return replace(ports, lake=OpenedCatalog("lake", None, properties))


class Within:
    """Effects that perform the n-th effect of one name inside a context."""

    def __init__(
        self, step: Step, context: Callable[[], contextlib.AbstractContextManager[object]], nth: int
    ) -> None:
        self._step, self._context, self._left = step, context, nth

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        self._left -= step is self._step
        if step is self._step and self._left == 0:
            with self._context():
                return act()
        return act()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the database as another program does: nobody reads, nobody writes."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextlib.contextmanager
def locked_once_the_metadata_is_written(path: Path) -> Iterator[None]:
    """Hold the database from the moment when only the swap of the pointer is left to do."""
    write = SqlCatalog._write_metadata
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        def then_lock(*arguments: object, **named: object) -> None:
            write(*arguments, **named)  # type: ignore[arg-type]
            stack.enter_context(locked(path))

        patch.setattr(SqlCatalog, "_write_metadata", staticmethod(then_lock))
        yield


@contextlib.contextmanager
def connection_lost_at_commit(*, landed: bool) -> Iterator[None]:
    """Lose the connection at COMMIT: nobody knows whether the server had ended the transaction."""
    commit = Session.commit

    def lost(session: Session) -> None:
        if landed:
            commit(session)
        else:
            session.rollback()
        reason = ValueError("server closed the connection unexpectedly")
        raise OperationalError("COMMIT", {}, reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "commit", lost)
        yield


def assert_exactly_once(
    directory: Path, context: Callable[[], contextlib.AbstractContextManager[object]], step: Step
) -> None:
    """Run with a database that fails at one effect, then again with one that works."""
    source, first = Partitions(), list[str]()
    effects = Within(step, context, nth=1)
    with contextlib.suppress(TableFormatError):
        first = statuses(run(directory, source, ports=impatient(directory, source, effects)))
    again = statuses(run(directory, source))

    assert_exported_once(directory, source)
    assert {*again} <= DONE
    if step in {Step.SEND, Step.FIRST_SNAPSHOT}:
        assert first == ["committed"] * 2


_STEPS = [Step.OPEN_TABLE, Step.CREATE_TABLE, Step.FIRST_SNAPSHOT, Step.LOAD_METADATA, Step.SEND]


@pytest.mark.parametrize("step", _STEPS)
def test_a_database_that_another_program_has_locked(tmp_path: Path, step: Step) -> None:
    """Harm prevented: rows twice, or an export that is called failed, because of a backup."""
    path = database(tmp_path)
    assert_exactly_once(tmp_path, lambda: locked(path), step)


@pytest.mark.parametrize("step", [Step.CREATE_TABLE, Step.FIRST_SNAPSHOT, Step.SEND])
def test_a_database_that_is_locked_between_the_metadata_and_its_pointer(
    tmp_path: Path, step: Step
) -> None:
    """Harm prevented: metadata that was written is taken for metadata that the table has."""
    path = database(tmp_path)
    assert_exactly_once(tmp_path, lambda: locked_once_the_metadata_is_written(path), step)


@pytest.mark.parametrize("landed", [False, True], ids=["not landed", "landed"])
@pytest.mark.parametrize("step", [Step.CREATE_TABLE, Step.FIRST_SNAPSHOT, Step.SEND])
def test_a_database_whose_connection_breaks_at_the_end_of_the_transaction(
    tmp_path: Path, step: Step, *, landed: bool
) -> None:
    """Harm prevented: an error at COMMIT is taken for a commit that did not happen."""
    assert_exactly_once(tmp_path, lambda: connection_lost_at_commit(landed=landed), step)


def test_a_database_that_stays_locked_after_the_request_leaves_it_unknown(tmp_path: Path) -> None:
    """Harm prevented: "failed" of rows that are in main."""
    source, path, outcomes = Partitions(), database(tmp_path), list[Outcome]()
    with contextlib.ExitStack() as until_the_end:

        @contextlib.contextmanager
        def lost_and_then_locked() -> Iterator[None]:
            with connection_lost_at_commit(landed=True):
                yield
            until_the_end.enter_context(locked(path))

        effects = Within(Step.SEND, lost_and_then_locked, nth=1)
        with contextlib.suppress(TableFormatError):
            outcomes.extend(run(tmp_path, source, ports=impatient(tmp_path, source, effects)))
    again = run(tmp_path, source)

    landed = {o.partition_id for o in again if o.status.value == "already_exported"}
    assert landed
    assert not landed & {o.partition_id for o in outcomes if o.status.value == "failed"}
    assert_exported_once(tmp_path, source)
