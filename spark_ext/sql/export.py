"""Runs exports in the caller's Spark session, for CALL, ALTER TABLE and Python.

Names, catalogs and ledger are those of the session; the job is the same as in `mergeberg export`.

A partition that was not exported is an error, because a script that ignores it would lose rows.
One error covers the whole statement. It lists the partitions that are not in the lake, with
reasons, and those that are.

With `wait => false` the exports continue after the statement returned. The result has the
transaction ids; `mergeberg.system.replicated_partition_exports` shows their state. The exports
run in the process that handles the statement. That process waits for them before it ends.
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
from spark_ext.actions.logs import log_note
from spark_ext.sql.catalogs import open_destination_in, refresh_errors, session_ledger
from spark_ext.sql.session_settings import SessionSettings
from spark_ext.sql.statement_exports import SessionExport
from tableformat.effects import Effects
from tableformat.errors import (
    Advice,
    DestinationError,
    InternalError,
    KilledError,
    LedgerError,
    NotFoundError,
    RefusedError,
    SourceError,
    StoppedError,
    TableFormatError,
    UnsupportedError,
    UsageError,
)
from tableformat.export.dry_run import Forecast, Replaced, check_replacements
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts, Observer, ObserverAround, Silent
from tableformat.quantities import counted

__all__ = [
    "KINDS_OF_STATUS",
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
# In the order of isinstance checks: a subclass comes before its base class.
_KINDS: Final[tuple[type[TableFormatError], ...]] = (
    InternalError,
    KilledError,
    StoppedError,
    NotFoundError,
    UnsupportedError,
    RefusedError,
    UsageError,
    SourceError,
    DestinationError,
    LedgerError,
)
KINDS_OF_STATUS: Final[Mapping[Status, type[TableFormatError]]] = {
    Status.REFUSED: RefusedError,
    Status.KILLED: StoppedError,
    Status.STOPPED: StoppedError,
    Status.FAILED: SourceError,
}
"""The class of the error for a partition with this status; DestinationError for any other."""
_IN_LAKE: Final = frozenset(
    (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED, Status.ALREADY_EXPORTED)
)


@dataclass(frozen=True, slots=True)
class Ended:
    """An export of a statement with its results.

    `errors` has the error that ended the export, and errors of single shards. If `is_stopped`, the
    export was stopped, and partitions without an outcome were not begun.
    """

    export: SessionExport
    outcomes: tuple[Outcome, ...]
    errors: tuple[TableFormatError, ...]
    is_stopped: bool = False

    @property
    def wrong(self) -> tuple[Outcome, ...]:
        """The outcomes of partitions that were not exported successfully."""
        return tuple(one for one in self.outcomes if one.status.exit_code)

    @property
    def is_good(self) -> bool:
        """Whether all partitions of the export are in the lake."""
        return not (self.wrong or self.errors or self.is_stopped)


def check_all_exported(ended: Sequence[Ended]) -> None:
    """Check that all exports of a statement succeeded.

    Raises:
        TableFormatError: a partition is not exported. The message lists these partitions with
            reasons, and the partitions that are in the lake.
    """
    bad = tuple(one for one in ended if not one.is_good)
    if not bad:
        return
    errors = [error for one in bad for error in one.errors]
    wrong = [outcome for one in bad for outcome in one.wrong]
    if len(errors) == 1 and not any(one.outcomes or one.is_stopped for one in ended):
        raise errors[0]
    message = (
        f"Cannot export everything: {' '.join(_failures(one) for one in bad)}{_in_lake(ended)} The "
        "same statement again is safe: it continues with the rest."
    )
    kind, code = _kind_and_code(errors, wrong, is_stopped=any(one.is_stopped for one in bad))
    raise kind(message, code=code) from (errors[0] if errors else None)


def joined(errors: Sequence[TableFormatError], more: str) -> TableFormatError:
    """Return one error for one or several errors, with a further sentence at its end ('' for none).

    Its class and code are those of the first error, except that a bug counts most.
    """
    if len(errors) == 1 and not more:
        return errors[0]
    kind, code = _kind_and_code(errors, (), is_stopped=False)
    messages = " ".join(error.message for error in errors)
    advice = frozenset[Advice]().union(*(error.advice for error in errors))
    return kind(f"{messages} {more}".strip(), code=code, advice=advice)


def _failures(one: Ended) -> str:
    """Return sentences on the partitions that an export did not bring to the lake, with reasons."""
    request = one.export.request
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
    """Return a sentence that lists the partitions in the lake; it begins with a space."""
    there = [
        f"{o.partition_id} of {one.export.request.table}"
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
    """Return class and ClickHouse code for several errors: a bug counts most, then a stop."""
    kinds = [next(k for k in (*_KINDS, TableFormatError) if isinstance(e, k)) for e in errors]
    if InternalError in kinds:
        return InternalError, None
    if KilledError in kinds:
        return KilledError, None
    if is_stopped:
        return StoppedError, None
    if errors:
        return kinds[0], errors[0].code
    # A failure, which the same statement may cure, counts more than a refusal.
    worst = max(wrong, key=lambda one: one.status is not Status.REFUSED)
    return KINDS_OF_STATUS.get(worst.status, DestinationError), worst.code


_LOGGER: Final = logging.getLogger("mergeberg")
_CHANGED: Final = frozenset({Status.COMMITTED, Status.REPLACED, Status.UNKNOWN, Status.UNVERIFIED})


def export_in_session(
    exports: Sequence[SessionExport],
    spark: SparkSession,
    conf: Mapping[str, str],
    *,
    observer: Observer | None = None,
    effects: Effects | None = None,
) -> tuple[Outcome, ...]:
    """Run the exports of a statement one after the other; return the outcome of each partition.

    A failure of one export does not stop the others. After KILL QUERY no other export begins.

    Args:
        exports: the exports.
        spark: the session whose tasks write, and in which the lake table is refreshed.
        conf: the settings of the session.
        observer: receives progress and outcomes.
        effects: performs the effects outside of this process; None for the default.

    Raises:
        TableFormatError: as for `check_all_exported`.
    """
    exporting = _Exporting(spark, conf, observer or Silent(), effects)
    ended = tuple(exporting.export(one) for one in exports)
    check_all_exported(ended)
    return tuple(outcome for one in ended for outcome in one.outcomes)


@dataclass(slots=True)
class _Exporting:
    """Runs the exports of one statement; `stops` return whether a Spark job was cancelled.

    `is_killed`: KILL QUERY has ended the statement.
    """

    spark: SparkSession
    conf: Mapping[str, str]
    observer: Observer
    effects: Effects | None
    stops: list[Callable[[], bool]] = field(default_factory=list)
    is_killed: bool = False

    def is_stopped(self) -> bool:
        """Whether the statement or the Spark job of any run was; then no further export begins."""
        return self.is_killed or any(stop() for stop in self.stops)

    def export(self, export: SessionExport) -> Ended:
        """Run one export and return its result; do not begin it if an earlier one was stopped."""
        if self.is_stopped():
            return Ended(export, (), (), is_stopped=True)
        kept = _Kept(self.observer)
        errors: list[TableFormatError] = []
        try:
            self._export(export, kept, errors)
        except TableFormatError as error:
            errors.append(error)
            self.is_killed = self.is_killed or isinstance(error, KilledError)
        finally:
            # An interrupted export may have committed partitions, which the session must see.
            if any(one.status in _CHANGED for one in kept.outcomes):
                errors.extend(refresh_errors(self.spark, export.request.to))
        return Ended(export, (*kept.outcomes,), (*errors,), is_stopped=self.is_stopped())

    def _export(self, export: SessionExport, kept: _Kept, errors: list[TableFormatError]) -> None:
        places = _places(export, self.conf)
        running = RunningSpark(self.spark)
        slots = self.spark.sparkContext.defaultParallelism
        failed: list[TableFormatError] = []
        tables = export.source.tables(cluster=export.cluster)

        def begin(one: LocalTable) -> None:
            if self.is_stopped():
                raise StoppedError(f"Cannot export {one.table}: the statement was stopped before.")

        def opened(place: SourcePlace) -> JobPorts:
            ports = open_ports(
                replace(places, source=place),
                running,
                kept,
                effects=self.effects,
                verify=export.verify,
                check_rows=export.request.options.check_rows,
            )
            self.stops.append(ports.should_stop)
            return ports

        export_tables(
            export.request,
            tables,
            opened,
            slots=slots,
            note=log_note,
            begin=begin,
            failed=failed.append,
        )
        # `each_table` only notes failed shards if the exit code is worse than a failure. A named
        # partition that only some shards have is no failure.
        errors.extend(e for e in failed if not isinstance(e, NotFoundError) or e.code is not None)


@dataclass(frozen=True, slots=True)
class _Kept(ObserverAround):
    """An observer that keeps the outcomes, because a run that raises does not return them."""

    outcomes: list[Outcome] = field(default_factory=list)

    def finished(self, outcome: Outcome) -> None:
        """Keep the outcome of one partition."""
        self.outcomes.append(outcome)
        self.observer.finished(outcome)


def rehearse_in_session(
    export: SessionExport, spark: SparkSession, conf: Mapping[str, str]
) -> tuple[Forecast, ...]:
    """Return the forecast of an export, and change nothing.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    places = _places(export, conf, looks_only=True)
    slots = spark.sparkContext.defaultParallelism
    tables = export.source.tables(cluster=export.cluster)
    found = [
        forecasts_of(
            export.request.of_table(one.table, len(tables)),
            replace(places, source=one.place),
            slots=slots,
            note=log_note,
        )
        for one in tables
    ]
    check_replacements(export.request, sum((one.replaced for one in found), Replaced()))
    return tuple(forecast for one in found for forecast in one.forecasts)


def _places(export: SessionExport, conf: Mapping[str, str], *, looks_only: bool = False) -> Places:
    lake = open_destination_in(conf, export.request.to, looks_only=looks_only)
    return Places(export.source.place, lake, session_ledger(SessionSettings.of(conf), lake))


T = TypeVar("T")

# Several threads add exports, so every iteration uses a copy.
_RUNNING: Final[set[threading.Thread]] = set()


def begin_in_session(
    exports: Sequence[SessionExport], spark: SparkSession, conf: Mapping[str, str]
) -> tuple[Outcome, ...]:
    """Start exports in the background; return when each has begun to write files or has ended.

    After KILL QUERY no other export begins.

    A running partition has the status `in_progress` and its transaction id. An export of more
    than 100 partitions returns the group that it begins first.

    Raises:
        TableFormatError: an export failed before it began to write files. The message lists the
            exports that are running.
    """
    found: list[Outcome] = []
    errors: list[TableFormatError] = []
    for one in exports:
        begun = _Begun(one, spark, conf)
        begun.start()
        try:
            found.extend(begun.outcomes())
        except TableFormatError as error:
            errors.append(error)
            if isinstance(error, KilledError):
                break
    if errors:
        raise joined(errors, _under_way(found)) from errors[0]
    return tuple(found)


def are_running() -> bool:
    """Whether exports that were started in this process are still running."""
    return any(thread.is_alive() for thread in tuple(_RUNNING))


def wait_for_all() -> None:
    """Wait for all exports that were started in this process."""
    while _RUNNING:
        _RUNNING.pop().join()


def _under_way(found: Sequence[Outcome]) -> str:
    """Return a sentence on the exports that keep running after an error; '' if none does."""
    going = [
        f"partition {one.partition_id} (transaction {one.transaction_id})"
        for one in found
        if one.status is Status.IN_PROGRESS
    ]
    return f"Begun, and still running: {', '.join(going)}." if going else ""


class _Begun(Silent):
    """An export in a background thread; also the observer of that export."""

    def __init__(self, export: SessionExport, spark: SparkSession, conf: Mapping[str, str]) -> None:
        """Keep the export; `start` begins it."""
        self._export, self._spark, self._conf = export, spark, conf
        self._lock = threading.Lock()
        self._claimed = ClaimedTransactions()
        self._ended: dict[str, Outcome] = {}
        self._failed: BaseException | None = None
        self._is_ready = threading.Event()

    def begin(self, partitions: int, rows: int, size: int) -> None:  # noqa: ARG002  an observer's
        """Note that writing begins: the statement returns the partitions claimed so far."""
        self._is_ready.set()

    def finished(self, outcome: Outcome) -> None:
        """Keep the outcome of a partition."""
        with self._lock:
            self._ended[outcome.partition_id] = outcome

    def start(self) -> None:
        """Start the export; return when `outcomes` has a result."""
        _RUNNING.difference_update(one for one in tuple(_RUNNING) if not one.is_alive())
        thread = InheritableThread(target=self._run, name="mergeberg-export", daemon=False)
        thread.start()
        _RUNNING.add(thread)
        self._is_ready.wait()

    def _run(self) -> None:
        """Run the export; log an error that occurs after the statement has returned."""
        try:
            export_in_session(
                (self._export,), self._spark, self._conf, observer=self, effects=self._claimed
            )
        # `outcomes` raises it in the thread of the statement.
        except BaseException as error:
            self._failed = error
            if self._is_ready.is_set():
                _LOGGER.exception("export_failed")
        finally:
            self._is_ready.set()

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return the partitions that are running or have ended.

        Raises:
            TableFormatError: the export has ended, and a partition is not exported.
        """
        if self._failed is not None:
            raise self._failed
        to = str(self._export.request.to)
        with self._lock:
            under_way = {
                one: Outcome(one, Status.IN_PROGRESS, to, transaction_id=transaction_id)
                for transaction_id, one in self._claimed.partitions().items()
            }
            return tuple((under_way | self._ended).values())
