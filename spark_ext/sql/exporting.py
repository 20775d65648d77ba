"""Exports inside a session that the user started: for CALL, ALTER TABLE and Python alike.

Names, catalogs and ledger are those of the session; the job is the one that `mergeberg export`
runs. What was not exported is an error, and says what was: a statement of a script that goes on as
if all were well would lose rows (`told`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession

from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.shards import LocalTable
from catalog.sources import SourcePlace, open_source
from spark_ext.failing_over import export_from_any
from spark_ext.running_exports import exit_code
from spark_ext.sharding import each_table
from spark_ext.sql.asked import SessionExport
from spark_ext.sql.catalogs import open_destination_in, session_ledger
from spark_ext.sql.refreshing import unseen
from spark_ext.sql.session_settings import SessionSettings
from spark_ext.sql.told import Ended, check_all_exported
from spark_ext.wiring import Places, RunningSpark, open_ports
from tableformat.effects import Effects
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    SourceError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.dry_run import Forecast, rehearse
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts, Observer, ObserverAround, Silent

__all__ = ["export_in_session", "rehearse_in_session"]

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

        def export_one(one: LocalTable) -> int:
            def opened(place: SourcePlace) -> JobPorts:
                at = replace(places, source=place)
                ports = open_ports(at, running, kept, effects=self.effects, verify=asked.verify)
                self.stops.append(ports.should_stop)
                return ports

            wanted = asked.request.of_table(one.table, len(tables))
            if self.is_stopped():
                raise StoppedError(f"Cannot export {one.table}: the statement was stopped before.")
            try:
                return exit_code(export_from_any(wanted, one.place, opened, slots=slots))
            except (SourceError, RefusedError) as error:
                failed.append(error)
                raise

        each_table(tables, export_one, _LOGGER.info, doing="export from")
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
    found: list[Forecast] = []
    tables = asked.source.tables(cluster=asked.cluster)
    for one in tables:
        ledger = open_ledger(places.ledger, local_warehouse=places.lake.ledger_directory)
        source = open_source(one.place, is_exporting=True)
        try:
            rehearsal = rehearse(
                asked.request.of_table(one.table, len(tables)),
                source,
                places.lake,
                ledger,
                now=milliseconds(),
                slots=slots,
                note=_LOGGER.info,
                storage=places.lake.storages,
            )
        finally:
            source.close()
            ledger.close()
        found.extend(rehearsal.forecasts)
    return tuple(found)


def _places(asked: SessionExport, conf: Mapping[str, str], *, looks_only: bool = False) -> Places:
    lake = open_destination_in(conf, asked.request.to, looks_only=looks_only)
    return Places(asked.source.place, lake, session_ledger(SessionSettings.of(conf), lake))
