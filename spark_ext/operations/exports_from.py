"""How exports run that a statement on a lake table asks for: ATTACH and REPLACE FROM ClickHouse.

Each front door has its own Spark, its own words, and its own way of being stopped; the statement is
`copying_from_clickhouse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from pyspark.sql import SparkSession

from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_settings import StatementSettings
from spark_ext.stopping import Stopping
from spark_ext.wiring import Places, RunningSpark, SparkProvider, open_ports
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts, Observer, ObserverAround, Silent

__all__ = ["ExportsFrom", "OpensPorts", "SessionExports", "StoppableExports", "Untold"]

OpensPorts = Callable[[SourcePlace], JobPorts]
"""Opens what an export acts on, with the source at a place."""


class ExportsFrom(Protocol):
    """Runs the exports of one statement."""

    @property
    def slots(self) -> int:
        """How many tasks can run at a time."""
        ...

    @property
    def settings(self) -> StatementSettings:
        """What the statement and its session say."""
        ...

    def tables(self, source: SourceTable) -> tuple[LocalTable, ...]:
        """Return what is read for a table: one, or one of each shard."""
        ...

    def running(self) -> AbstractContextManager[OpensPorts]:
        """Return what opens exports as long as it is entered."""
        ...


@dataclass(frozen=True, slots=True)
class Untold(ObserverAround):
    """An observer that hears of no outcome: the statement tells what became of it."""

    def finished(self, outcome: Outcome) -> None:
        """Keep it for oneself."""


@dataclass(frozen=True, slots=True)
class SessionExports:
    """In a session that the user started; `places` have the lake, and a source of no meaning."""

    spark: SparkSession
    places: Callable[[SourcePlace], Places] = field(repr=False)
    settings: StatementSettings

    @property
    def slots(self) -> int:
        """How many tasks can run at a time."""
        return self.spark.sparkContext.defaultParallelism

    def tables(self, source: SourceTable) -> tuple[LocalTable, ...]:
        """Return what is read for a table: one, or one of each shard."""
        return source.tables()

    def running(self) -> AbstractContextManager[OpensPorts]:
        """Return what opens exports; Spark is told by others when it is to stop."""
        return nullcontext(self._opened)

    def _opened(self, place: SourcePlace) -> JobPorts:
        return open_ports(self.places(place), RunningSpark(self.spark), Silent())


@dataclass(frozen=True, slots=True)
class StoppableExports:
    """In a process of their own, until it is told to stop; `find` returns what is read."""

    spark: Callable[[], SparkProvider]
    places: Callable[[SourcePlace], Places] = field(repr=False)
    settings: StatementSettings
    slots: int
    find: Callable[[SourceTable], tuple[LocalTable, ...]]
    observer: Observer
    until: Stopping

    def tables(self, source: SourceTable) -> tuple[LocalTable, ...]:
        """Return what is read for a table: one, or one of each shard."""
        return self.find(source)

    @contextmanager
    def running(self) -> Iterator[OpensPorts]:
        """Yield what opens exports, until the process is told to stop."""
        with self.until:
            yield partial(self._opened, self.spark())

    def _opened(self, spark: SparkProvider, place: SourcePlace) -> JobPorts:
        ports = open_ports(self.places(place), spark, self.observer)
        return replace(ports, should_stop=lambda: self.until.is_told() or ports.should_stop())
