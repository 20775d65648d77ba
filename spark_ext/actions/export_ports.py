"""Builds the ports of an export job from the options of the caller, and runs the job.

`open_ports` opens source and ledger and connects them with the lake and Spark.
`export_all` runs an export for any interface. It passes every outcome to the observer.
`forecasts_of` returns what an export would do.
`exit_code` returns one exit code for all outcomes; `spark_ext/cli/main.py` documents the codes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from pyspark.sql import SparkSession

from catalog.clickhouse.rows.digests import FileDigests
from catalog.clickhouse.source import ClickHouseSource
from catalog.hive import OpenedTree
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import ledger_warnings, open_ledger
from catalog.processes import job_may_be_alive, may_be_alive, new_job, this_process
from catalog.retry import jitter
from catalog.secret_variables import harmless_environment
from catalog.sources import SourcePlace, open_source, server_of
from spark_ext.actions.logs import LoggedEffects, LoggedObserver
from spark_ext.engine.java import find_java
from spark_ext.engine.runner import Cancellable, SparkWriter
from spark_ext.engine.session import SparkSettings, open_session
from tableformat.committer import LakeTable
from tableformat.effects import Direct, Effects
from tableformat.errors import InternalError
from tableformat.export.commit import Ports
from tableformat.export.dry_run import Rehearsal, rehearse
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, worst
from tableformat.export.ports import JobPorts, Observer, SliceWriter
from tableformat.export.request import Allotment
from tableformat.ledger import Ledger
from tableformat.names import TransactionId, new_transaction_id

__all__ = [
    "ALLOTMENT",
    "Places",
    "RunningSpark",
    "SparkProvider",
    "SparkWhenNeeded",
    "commit_ports",
    "exit_code",
    "export_all",
    "forecasts_of",
    "new_transaction",
    "open_ports",
]

T = TypeVar("T")

ALLOTMENT: Final = Allotment()
"""What the exports of this process share."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is; `ledger` as the user said it, None for the default."""

    source: SourcePlace
    lake: OpenedCatalog | OpenedTree
    ledger: str | None = None


class SparkProvider(Protocol):
    """Has a Spark session, or will have one when it is asked for."""

    def check(self) -> None:
        """Make sure that there can be a session.

        Raises:
            NotFoundError: there is no Java that Spark runs on.
        """
        ...

    def begin(self) -> None:
        """Begin to make the session, where it is not there."""
        ...

    def done(self) -> bool:
        """Whether `result` would not wait."""
        ...

    def result(self) -> SparkSession:
        """Return the session, begun or not, when it is there.

        Raises:
            TableFormatError: there is none.
        """
        ...


@dataclass(frozen=True, slots=True)
class RunningSpark:
    """A session that the user started."""

    session: SparkSession

    def check(self) -> None:
        """There is one."""

    def begin(self) -> None:
        """It has begun."""

    def done(self) -> bool:
        """Return that it is there."""
        return True

    def result(self) -> SparkSession:
        """Return it."""
        return self.session


def _begun(call: Callable[[], T]) -> Future[T]:
    """Begin a call on a thread, which ends with it."""
    starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark-start")
    begun = starter.submit(call)
    starter.shutdown(wait=False)
    return begun


class SparkWhenNeeded:
    """A session that is started when there is work for it, while the source is frozen."""

    def __init__(self, settings: SparkSettings) -> None:
        """Begin to look for Java, which costs nothing; nothing is started yet."""
        self._settings = settings
        self._java = _begun(partial(find_java, harmless_environment()))
        self._session: Future[SparkSession] | None = None

    def check(self) -> None:
        """Make sure that there is a Java to start.

        Raises:
            NotFoundError: there is none that Spark runs on.
        """
        self._java.result()

    def begin(self) -> None:
        """Begin to start the session, once."""
        if self._session is None:
            self._session = _begun(partial(open_session, self._settings))

    def done(self) -> bool:
        """Whether `result` would not wait."""
        return self._session is not None and self._session.done()

    def result(self) -> SparkSession:
        """Return the session, begun or not, when it is there.

        Raises:
            NotFoundError: there is no Java that Spark runs on.
            SourceError: Spark did not start.
        """
        self.begin()
        if self._session is None:
            message = "A session was begun and is not there; this is a bug, please report it."
            raise InternalError(message)
        return self._session.result()


def open_ports(
    places: Places,
    spark: SparkProvider,
    observer: Observer,
    *,
    effects: Effects | None = None,
    verify: bool = False,
    check_rows: bool = False,
) -> JobPorts:
    """Open source and ledger; once its Spark job is cancelled, the export begins nothing more.

    Args:
        places: where they are.
        spark: the session that will write; waited for when the first file is to be written.
        observer: who hears how the job goes.
        effects: the port to the outside; the ordinary one when None.
        verify: compare every export with its source after the commit.
        check_rows: compare partitions whose parts changed before anything is written.

    Raises:
        TableFormatError: one of them cannot be opened.
    """
    places.lake.storages.check()
    for warning in ledger_warnings(places.ledger):
        observer.note(warning)
    server = server_of(places.source)
    source = open_source(places.source, is_exporting=True)
    # The last that can fail: nobody would close it. A source holds nothing until it is asked.
    ledger = open_ledger(places.ledger, local_warehouse=places.lake.ledger_directory)
    cancelled = threading.Event()
    files = FileDigests(places.lake.storages) if verify or check_rows else None

    def writer() -> SliceWriter:
        if not spark.done():
            observer.note("waiting for Spark to start")
        return Cancellable(SparkWriter(spark.result(), server, places.lake.storages), cancelled.set)

    return JobPorts(
        effects=LoggedEffects(effects or Direct()),
        source=source,
        lake=places.lake,
        ledger=ledger,
        writer=writer,
        owner=this_process(),
        is_alive=may_be_alive,
        clock=milliseconds,
        pause=_back_off,
        new_transaction=new_transaction,
        storage=places.lake.storages,
        job=new_job(),
        job_is_alive=job_may_be_alive,
        observer=LoggedObserver(observer),
        check_writer=spark.check,
        begin_writer=spark.begin,
        digests=files if verify else None,
        compares=files,
        should_stop=cancelled.is_set,
        allotment=ALLOTMENT,
    )


def commit_ports(table: LakeTable, ledger: Ledger) -> Ports:
    """Return what the commit protocol acts on, for commands that only settle or clean up."""
    return Ports(LoggedEffects(Direct()), table, ledger, milliseconds, _back_off)


def _back_off(attempt: int) -> None:
    time.sleep(jitter(min(5.0, 0.05 * 2 ** min(attempt, 8))))


def new_transaction(epoch: int) -> TransactionId:
    """Return a snowflake whose machine and sequence are the epoch: never twice from one ledger."""
    return new_transaction_id(milliseconds(), epoch >> 12, epoch)


def export_all(request: ExportRequest, ports: JobPorts, *, slots: int) -> tuple[Outcome, ...]:
    """Export what was asked for, tell the observer of each outcome at once, and return them all.

    Args:
        request: what the user asked for.
        ports: what the job acts on; its observer hears the outcomes.
        slots: how many tasks can run at a time.

    Raises:
        TableFormatError: the request was refused as a whole, or failed before any partition.
    """
    outcomes = []
    # Closed at once when interrupted: only then leases and staging tables are given back.
    with contextlib.closing(export(request, ports, slots=slots)) as running:
        for outcome in running:
            ports.observer.finished(outcome)
            outcomes.append(outcome)
    return tuple(outcomes)


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return the first of 1, 5, 4, 6, 3 that any outcome has, else 0."""
    return worst(outcome.status.exit_code for outcome in outcomes)


def forecasts_of(
    request: ExportRequest,
    places: Places,
    *,
    slots: int,
    note: Callable[[str], None],
    none: Callable[[str], None] | None = None,
    source: ClickHouseSource | None = None,
) -> Rehearsal:
    """Return what an export would do.

    Args:
        request: what the user asked for.
        places: where everything is.
        slots: how many tasks could run at a time.
        note: hears what the export would tell its observer.
        none: hears that no partition is selected; `note` when None.
        source: that of `places`, where it is open already.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    lake = places.lake
    with contextlib.ExitStack() as stack:
        ledger = open_ledger(places.ledger, local_warehouse=lake.ledger_directory)
        stack.callback(ledger.close)
        opened = source or stack.enter_context(open_source(places.source, is_exporting=True))
        return rehearse(
            request,
            opened,
            lake,
            ledger,
            now=milliseconds(),
            slots=slots,
            note=note,
            storage=lake.storages,
            none=none,
        )
