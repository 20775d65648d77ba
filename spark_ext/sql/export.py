"""Runs exports in the caller's Spark session, for CALL, ALTER TABLE and Python.

Names, catalogs and ledger are those of the session; the job is the same as in `mergeberg export`.

A partition that was not exported is an error, because a script that ignores it would lose rows.
One error covers the whole statement. It lists the partitions that are not in the lake, with
reasons, and those that are.

With `wait => false` the exports continue after the statement returned. The result has the
transaction ids; `mergeberg.system.replicated_partition_exports` shows their state. The exports
run in the process that answers the statement. That process waits for them before it ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from spark_ext.actions.export import ClaimedTransactions, export_tables
from spark_ext.actions.export_ports import Places, RunningSpark, forecasts_of, open_ports
from spark_ext.sql.catalogs import open_destination_in, session_ledger, unseen
from spark_ext.sql.session_settings import SessionSettings
from spark_ext.sql.statement_exports import SessionExport
from tableformat.effects import Effects
from tableformat.errors import (
    Advice,
    DestinationError,
    InternalError,
    LedgerError,
    NotFoundError,
    RefusedError,
    SourceError,
    StoppedError,
    TableFormatError,
    UnsupportedError,
    UsageError,
)
from tableformat.export.dry_run import Forecast
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts, Observer, ObserverAround, Silent
from tableformat.quantities import counted

__all__ = [
    "Ended",
    "are_running",
    "begin_in_session",
    "check_all_exported",
    "export_in_session",
    "joined",
    "rehearse_in_session",
    "wait_for_all",
]

_SHOWN: Final = 3
# The first that fits: an error of several is of the kind that the first of them is.
_KINDS: Final[tuple[type[TableFormatError], ...]] = (
    InternalError,
    StoppedError,
    NotFoundError,
    UnsupportedError,
    RefusedError,
    UsageError,
    SourceError,
    DestinationError,
    LedgerError,
)
_OF_STATUS: Final = {
    Status.REFUSED: RefusedError,
    Status.IN_PROGRESS: RefusedError,
    Status.KILLED: StoppedError,
    Status.STOPPED: StoppedError,
    Status.FAILED: SourceError,
}
_IN_LAKE: Final = frozenset(
    (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED, Status.ALREADY_EXPORTED)
)


@dataclass(frozen=True, slots=True)
class Ended:
    """One export that a statement asked for, and what became of it.

    `errors` ended it, or befell shards of it. With `is_stopped` it was told to stop: what has no
    outcome was not begun.
    """

    asked: SessionExport
    outcomes: tuple[Outcome, ...]
    errors: tuple[TableFormatError, ...]
    is_stopped: bool = False

    @property
    def wrong(self) -> tuple[Outcome, ...]:
        """Outcomes of partitions that are not in the lake as they are in the source."""
        return tuple(one for one in self.outcomes if one.status.exit_code)

    @property
    def is_good(self) -> bool:
        """Whether everything of it is exported."""
        return not (self.wrong or self.errors or self.is_stopped)


def check_all_exported(ended: Sequence[Ended]) -> None:
    """Check that everything that a statement asked for is in the lake now.

    Raises:
        TableFormatError: some is not; the message says what, why, and what is there.
    """
    bad = tuple(one for one in ended if not one.is_good)
    if not bad:
        return
    errors = [error for one in bad for error in one.errors]
    wrong = [outcome for one in bad for outcome in one.wrong]
    if len(errors) == 1 and not any(one.outcomes or one.is_stopped for one in ended):
        raise errors[0]
    message = (
        f"Cannot export everything: {' '.join(_said(one) for one in bad)}{_in_lake(ended)} The "
        "same statement again is safe: it goes on with what is left."
    )
    kind, code = _kind_and_code(errors, wrong, is_stopped=any(one.is_stopped for one in bad))
    raise kind(message, code=code) from (errors[0] if errors else None)


def joined(errors: Sequence[TableFormatError], more: str) -> TableFormatError:
    """Return several errors, at least one, as one, and a sentence behind it ('' for none)."""
    if len(errors) == 1 and not more:
        return errors[0]
    kind, code = _kind_and_code(errors, (), is_stopped=False)
    said = " ".join(error.message for error in errors)
    advice = frozenset[Advice]().union(*(error.advice for error in errors))
    return kind(f"{said} {more}".strip(), code=code, advice=advice)


def _said(one: Ended) -> str:
    """Return what is not exported of one export, and why."""
    request = one.asked.request
    parts = [
        f"partition {each.partition_id} of {request.table}: {each.status.value}: "
        f"{each.message.rstrip('. ') or 'no reason was given'}."
        for each in one.wrong[:_SHOWN]
    ]
    if len(one.wrong) > _SHOWN:
        parts.append(
            f"So are {len(one.wrong) - _SHOWN} more of {counted(len(one.outcomes), 'partition')}."
        )
    parts.extend(error.message for error in one.errors)
    if not parts:
        parts.append(f"the export of {request.table} to {request.to} was not begun.")
    return " ".join(parts)


def _in_lake(ended: Iterable[Ended]) -> str:
    """Return which partitions are in the lake, as a sentence; it begins with a space."""
    there = [
        f"{o.partition_id} of {one.asked.request.table}"
        for one in ended
        for o in one.outcomes
        if o.status in _IN_LAKE
    ]
    if not there:
        return " Nothing of it is in the lake."
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return f" In the lake: {', '.join(there[:_SHOWN])}{more}."


def _kind_and_code(
    errors: Sequence[TableFormatError], wrong: Sequence[Outcome], *, is_stopped: bool
) -> tuple[type[TableFormatError], int | None]:
    """Return the class and ClickHouse's code for all; a bug counts most, then who stopped it."""
    kinds = [next(k for k in (*_KINDS, TableFormatError) if isinstance(e, k)) for e in errors]
    if InternalError in kinds:
        return InternalError, None
    if is_stopped:
        return StoppedError, None
    if errors:
        return kinds[0], errors[0].code
    # Where one can be tried again as it is, this says more than that another was refused.
    worst = max(wrong, key=lambda one: one.status is not Status.REFUSED)
    return _OF_STATUS.get(worst.status, DestinationError), worst.code


_LOGGER: Final = logging.getLogger("mergeberg")
_CHANGED: Final = frozenset({Status.COMMITTED, Status.REPLACED, Status.UNKNOWN, Status.UNVERIFIED})


def export_in_session(
    asked: Sequence[SessionExport],
    spark: SparkSession,
    conf: Mapping[str, str],
    *,
    observer: Observer | None = None,
    effects: Effects | None = None,
) -> tuple[Outcome, ...]:
    """Export what a statement asks for; return what became of each partition.

    One that cannot be exported keeps none of the others back.

    Args:
        asked: what is exported, one after the other.
        spark: the session whose tasks write, and which sees the lake table as it is afterwards.
        conf: the settings of the session.
        observer: who hears how the job goes.
        effects: the port to the outside; the ordinary one when None.

    Raises:
        TableFormatError: not everything is exported; the message says what is, what not, and why.
    """
    exporting = _Exporting(spark, conf, observer or Silent(), effects)
    ended = tuple(exporting.export(one) for one in asked)
    check_all_exported(ended)
    return tuple(outcome for one in ended for outcome in one.outcomes)


@dataclass(slots=True)
class _Exporting:
    """The exports of one statement; `stops` say for each run whether Spark was told to stop it."""

    spark: SparkSession
    conf: Mapping[str, str]
    observer: Observer
    effects: Effects | None
    stops: list[Callable[[], bool]] = field(default_factory=list)

    def is_stopped(self) -> bool:
        """Whether any run was stopped: then nothing else is begun."""
        return any(stop() for stop in self.stops)

    def export(self, asked: SessionExport) -> Ended:
        """Return what became of one of them; it is not begun when one before it was stopped."""
        if self.is_stopped():
            return Ended(asked, (), (), is_stopped=True)
        kept = _Kept(self.observer)
        errors: list[TableFormatError] = []
        try:
            self._export(asked, kept, errors)
        except TableFormatError as error:
            errors.append(error)
        finally:
            # Also when it is interrupted: what is committed by then is to be seen.
            if any(one.status in _CHANGED for one in kept.outcomes):
                errors.extend(unseen(self.spark, asked.request.to))
        return Ended(asked, (*kept.outcomes,), (*errors,), is_stopped=self.is_stopped())

    def _export(self, asked: SessionExport, kept: _Kept, errors: list[TableFormatError]) -> None:
        places = _places(asked, self.conf)
        running = RunningSpark(self.spark)
        slots = self.spark.sparkContext.defaultParallelism
        failed: list[TableFormatError] = []
        tables = asked.source.tables(cluster=asked.cluster)

        def begin(one: LocalTable) -> None:
            if self.is_stopped():
                raise StoppedError(f"Cannot export {one.table}: the statement was stopped before.")

        def opened(place: SourcePlace) -> JobPorts:
            ports = open_ports(
                replace(places, source=place),
                running,
                kept,
                effects=self.effects,
                verify=asked.verify,
                check_rows=asked.request.options.check_rows,
            )
            self.stops.append(ports.should_stop)
            return ports

        export_tables(
            asked.request,
            tables,
            opened,
            slots=slots,
            note=_LOGGER.info,
            begin=begin,
            failed=failed.append,
        )
        # What `each_table` only notes: shards that failed where something worse was found, too. A
        # named partition that only some shards have is no failure.
        errors.extend(e for e in failed if not isinstance(e, NotFoundError) or e.code is not None)


@dataclass(frozen=True, slots=True)
class _Kept(ObserverAround):
    """An observer that keeps the outcomes.

    Those of a run that ends with an error are not returned by it.
    """

    outcomes: list[Outcome] = field(default_factory=list)

    def finished(self, outcome: Outcome) -> None:
        """Keep what became of one partition."""
        self.outcomes.append(outcome)
        self.observer.finished(outcome)


def rehearse_in_session(
    asked: SessionExport, spark: SparkSession, conf: Mapping[str, str]
) -> tuple[Forecast, ...]:
    """Return what an export would do, and do nothing.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    places = _places(asked, conf, looks_only=True)
    slots = spark.sparkContext.defaultParallelism
    tables = asked.source.tables(cluster=asked.cluster)
    return tuple(
        forecast
        for one in tables
        for forecast in forecasts_of(
            asked.request.of_table(one.table, len(tables)),
            replace(places, source=one.place),
            slots=slots,
            note=_LOGGER.info,
        ).forecasts
    )


def _places(asked: SessionExport, conf: Mapping[str, str], *, looks_only: bool = False) -> Places:
    lake = open_destination_in(conf, asked.request.to, looks_only=looks_only)
    return Places(asked.source.place, lake, session_ledger(SessionSettings.of(conf), lake))


T = TypeVar("T")

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
    """One export in a thread of its own, as its observer."""

    def __init__(self, asked: SessionExport, spark: SparkSession, conf: Mapping[str, str]) -> None:
        """Keep what is to be done."""
        self._asked, self._spark, self._conf = asked, spark, conf
        self._lock = threading.Lock()
        self._claimed = ClaimedTransactions()
        self._ended: dict[str, Outcome] = {}
        self._failed: BaseException | None = None
        self._is_told = threading.Event()

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
            export_in_session(
                (self._asked,), self._spark, self._conf, observer=self, effects=self._claimed
            )
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
                for transaction_id, one in self._claimed.partitions().items()
            }
            return tuple((under_way | self._ended).values())
