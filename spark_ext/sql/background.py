"""Exports that go on when their statement has returned: `wait => false`.

The answer has the transaction ids, by which `mergeberg.system.replicated_partition_exports` shows
what becomes of them. They go on in the process that answers; one that would end waits for them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from spark_ext.sql.asked import SessionExport
from spark_ext.sql.exporting import export_in_session
from spark_ext.sql.told import joined
from tableformat.effects import Direct, Effects, Step
from tableformat.errors import TableFormatError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import Silent
from tableformat.ledger import Row

__all__ = ["are_running", "begin_in_session", "wait_for_all"]

T = TypeVar("T")

_LOGGER: Final = logging.getLogger("mergeberg")
# Statements of several threads begin exports: who walks through it walks through a copy.
_RUNNING: Final[set[threading.Thread]] = set()


def begin_in_session(
    asked: Sequence[SessionExport], spark: SparkSession, conf: Mapping[str, str]
) -> tuple[Outcome, ...]:
    """Begin exports; return when the first files of each are being written, or it has ended.

    A partition that is under way has the status `in_progress` and its transaction id. Of more
    than 100 partitions the answer has those that are begun first, the others follow.

    Raises:
        TableFormatError: one of them ended before a file was begun, and not everything of it is
            exported; the message says what is under way.
    """
    found: list[Outcome] = []
    errors: list[TableFormatError] = []
    for one in asked:
        begun = _Begun(one, spark, conf)
        begun.start()
        try:
            found.extend(begun.answer())
        except TableFormatError as error:
            errors.append(error)
    if errors:
        raise joined(errors, _under_way(found)) from errors[0]
    return tuple(found)


def are_running() -> bool:
    """Whether exports that were begun in this process go on."""
    return any(thread.is_alive() for thread in tuple(_RUNNING))


def wait_for_all() -> None:
    """Wait for all exports that were begun in this process."""
    while _RUNNING:
        _RUNNING.pop().join()


def _under_way(found: Sequence[Outcome]) -> str:
    """Return which exports go on although the statement failed, '' for none."""
    going = [
        f"partition {one.partition_id} (transaction {one.transaction_id})"
        for one in found
        if one.status is Status.IN_PROGRESS
    ]
    return f"Begun, and going on: {', '.join(going)}." if going else ""


class _Begun(Silent):
    """One export in a thread of its own, as its observer and as its effects."""

    def __init__(self, asked: SessionExport, spark: SparkSession, conf: Mapping[str, str]) -> None:
        """Keep what is to be done."""
        self._asked, self._spark, self._conf = asked, spark, conf
        self._direct: Effects = Direct()
        self._lock = threading.Lock()
        self._claimed: dict[str, str] = {}
        self._ended: dict[str, Outcome] = {}
        self._failed: BaseException | None = None
        self._is_told = threading.Event()

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        """Perform an effect, and hear which transaction a partition has."""
        result = self._direct(step, act)
        if step is Step.CLAIM:
            rows = result if isinstance(result, tuple) else (result,)
            with self._lock:
                self._claimed.update(
                    (row.key.partition_id, row.claim.transaction_id)
                    for row in rows
                    if isinstance(row, Row)
                )
        return result

    def begin(self, partitions: int, rows: int, size: int) -> None:  # noqa: ARG002  an observer's
        """Hear that files begin to be written: what is claimed by now is the answer."""
        self._is_told.set()

    def finished(self, outcome: Outcome) -> None:
        """Hear what became of a partition."""
        with self._lock:
            self._ended[outcome.partition_id] = outcome

    def start(self) -> None:
        """Begin the export; return when there is an answer."""
        _RUNNING.difference_update(one for one in tuple(_RUNNING) if not one.is_alive())
        thread = InheritableThread(target=self._run, name="mergeberg-export", daemon=False)
        thread.start()
        _RUNNING.add(thread)
        self._is_told.wait()

    def _run(self) -> None:
        """Export; what goes wrong after the answer was given is logged, and in the ledger."""
        try:
            export_in_session((self._asked,), self._spark, self._conf, observer=self, effects=self)
        # Raised by who waits for the answer, in its thread.
        except BaseException as error:
            self._failed = error
            if self._is_told.is_set():
                _LOGGER.exception("export_failed")
        finally:
            self._is_told.set()

    def answer(self) -> tuple[Outcome, ...]:
        """Return what is known when the statement returns.

        Raises:
            TableFormatError: it has ended, and not everything is exported.
        """
        if self._failed is not None:
            raise self._failed
        to = str(self._asked.request.to)
        with self._lock:
            under_way = {
                one: Outcome(one, Status.IN_PROGRESS, to, transaction_id=transaction_id)
                for one, transaction_id in self._claimed.items()
            }
            return tuple((under_way | self._ended).values())
