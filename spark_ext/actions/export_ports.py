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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from pyspark.sql import SparkSession

from catalog.clickhouse.server.source import ServerSource
from catalog.clickhouse.source import ClickHouseSource
from catalog.hive import OpenedTree
from catalog.iceberg.catalogs import OpenedCatalog
from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import ledger_warnings, open_ledger
from catalog.processes import job_may_be_alive, may_be_alive, new_job, new_owner
from catalog.rate_limit import sharing_note
from catalog.retry import jitter
from catalog.secret_variables import harmless_environment
from catalog.sources import SourcePlace, open_source, server_of
from catalog.storages.schemes import Storages
from spark_ext.actions.logs import LoggedEffects, LoggedObserver
from spark_ext.actions.verify import DigestsInTasks
from spark_ext.engine.java import find_java
from spark_ext.engine.jobs import is_worth_tasks
from spark_ext.engine.runner import Cancellable, SparkWriter
from spark_ext.engine.session import SparkSettings, open_session
from tableformat.committer import FileInMain, LakeTable
from tableformat.effects import Direct, Effects
from tableformat.errors import InternalError, TableFormatError
from tableformat.export.commit import Ports
from tableformat.export.dry_run import EXPORT, REPLACE, Rehearsal, rehearse
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, worst
from tableformat.export.ports import JobPorts, Observer, SliceWriter
from tableformat.export.request import Allotment
from tableformat.ledger import Ledger
from tableformat.names import PartitionId, TransactionId, new_transaction_id
from tableformat.quantities import counted

__all__ = [
    "ALLOTMENT",
    "LEAST_TO_START",
    "DigestSessions",
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

_FEWEST_TO_START: Final = 2
_SECONDS_BETWEEN_NOTES: Final = 10.0
ALLOTMENT: Final = Allotment()
"""Counts the slices and the write rate that the running exports of this process use together."""


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses of source, lake and ledger; `ledger` is None for the default."""

    source: SourcePlace
    lake: OpenedCatalog | OpenedTree
    ledger: str | None = None


class SparkProvider(Protocol):
    """Provides the Spark session of an export, and may start it later."""

    def check(self) -> None:
        """Check that a session can be started.

        Raises:
            NotFoundError: no Java version that Spark supports is installed.
        """
        ...

    def begin(self) -> None:
        """Begin to start the session, if it is not running yet."""
        ...

    def done(self) -> bool:
        """Whether `result` would return without waiting."""
        ...

    def result(self) -> SparkSession:
        """Return the session; start it if necessary, and wait for it.

        Raises:
            TableFormatError: the session could not be started.
        """
        ...


@dataclass(frozen=True, slots=True)
class RunningSpark:
    """A session that the user started."""

    session: SparkSession

    def check(self) -> None:
        """Succeed: the session is running."""

    def begin(self) -> None:
        """Do nothing: the session is running."""

    def done(self) -> bool:
        """Return True: the session is running."""
        return True

    def result(self) -> SparkSession:
        """Return the user's session."""
        return self.session


def _begun(call: Callable[[], T]) -> Future[T]:
    """Start a call on a thread of its own."""
    starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark-start")
    begun = starter.submit(call)
    starter.shutdown(wait=False)
    return begun


class SparkWhenNeeded:
    """A session that starts when an export has files to write, while the source is snapshotted."""

    def __init__(self, settings: SparkSettings, *, is_likely: bool = True) -> None:
        """Begin to look for Java on a thread, if Spark is likely to be needed; do not start it."""
        self._settings = settings
        self._java = _begun(partial(find_java, harmless_environment())) if is_likely else None
        self._session: Future[SparkSession] | None = None

    def check(self) -> None:
        """Check that a Java version for Spark is installed.

        Raises:
            NotFoundError: no Java version that Spark supports is installed.
        """
        self._java = self._java or _begun(partial(find_java, harmless_environment()))
        self._java.result()

    def begin(self) -> None:
        """Begin to start the session, once."""
        if self._session is None:
            self._session = _begun(partial(open_session, self._settings))

    def done(self) -> bool:
        """Whether `result` would return without waiting."""
        return self._session is not None and self._session.done()

    def result(self) -> SparkSession:
        """Return the session; start it if necessary, and wait for it.

        Raises:
            NotFoundError: no Java version that Spark supports is installed.
            SourceError: Spark did not start.
        """
        self.begin()
        if self._session is None:
            message = "A session was begun and is not there; this is a bug, please report it."
            raise InternalError(message)
        return self._session.result()


LEAST_TO_START: Final = 1024 * 1024 * 1024
"""Bytes of data files for which it is worth starting Spark, which takes about ten seconds."""


@dataclass(frozen=True, slots=True)
class DigestSessions:
    """Chooses the session in whose tasks the lake's files are digested, None for this process.

    A session that runs is used where tasks are faster than this process. One that does not run yet
    is started for large files only. Where it cannot be started, this process reads the files.
    """

    spark: SparkProvider
    note: Callable[[str], None]

    def __call__(self, files: Sequence[FileInMain]) -> SparkSession | None:
        """Return the session for these files."""
        if not self.spark.done():
            if len(files) < _FEWEST_TO_START or sum(f.bytes for f in files) < LEAST_TO_START:
                return None
            self.note("waiting for Spark to start, to compare large files in parallel")
        try:
            session = self.spark.result()
        except TableFormatError as error:
            self.note(f"comparing in this process alone: {error}")
            return None
        return session if is_worth_tasks(session, files) else None


@dataclass(slots=True)
class _NotedRows:
    """Notes at times how many rows of the lake an export or an archive has compared."""

    note: Callable[[str], None]
    rows: int = 0
    noted: float = field(default_factory=time.monotonic)

    def __call__(self, more: int) -> None:
        """Add rows that were read."""
        self.rows += more
        now = time.monotonic()
        if now - self.noted >= _SECONDS_BETWEEN_NOTES:
            self.noted = now
            self.note(f"{counted(self.rows, 'row')} of the lake compared so far")


def open_ports(
    places: Places,
    spark: SparkProvider,
    observer: Observer,
    *,
    effects: Effects | None = None,
    verify: bool = False,
    check_rows: bool = False,
) -> JobPorts:
    """Open source and ledger, and return the ports of an export job with them, lake and Spark.

    Args:
        places: the addresses of source, lake and ledger.
        spark: provides the session that writes files; the first file waits for it.
        observer: receives the progress and the outcomes of the job.
        effects: performs the effects outside of this process; None for the default.
        verify: compare every export with its source after the commit.
        check_rows: for a partition whose parts have changed, compare the rows before writing.

    Raises:
        TableFormatError: source, lake or ledger cannot be opened.
    """
    places.lake.storages.check()
    for warning in ledger_warnings(places.ledger):
        observer.note(warning)
    server, source = server_of(places.source), open_source(places.source, is_exporting=True)
    # Opened last, because a later failure would leave it open; a source connects at its first use.
    ledger = open_ledger(places.ledger, local_warehouse=places.lake.ledger_directory)
    # Set when a Spark job is cancelled: the export then starts no further slice or partition.
    cancelled = threading.Event()
    files = _digests(places.lake.storages, spark, observer) if verify or check_rows else None

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
        owner=new_owner(),
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
        sharing_note=sharing_note,
    )


def _digests(storages: Storages, spark: SparkProvider, observer: Observer) -> DigestsInTasks:
    sessions = DigestSessions(spark, observer.note)
    return DigestsInTasks(storages, sessions, _NotedRows(observer.note))


def commit_ports(table: LakeTable, ledger: Ledger) -> Ports:
    """Return the ports of the commit protocol, for commands that only settle or clean up."""
    return Ports(LoggedEffects(Direct()), table, ledger, milliseconds, _back_off)


def _back_off(attempt: int) -> None:
    time.sleep(jitter(min(5.0, 0.05 * 2 ** min(attempt, 8))))


def new_transaction(epoch: int) -> TransactionId:
    """Return a Snowflake id whose machine and sequence fields hold the epoch."""
    return new_transaction_id(milliseconds(), epoch >> 12, epoch)


def export_all(request: ExportRequest, ports: JobPorts, *, slots: int) -> tuple[Outcome, ...]:
    """Export the selected partitions; pass each outcome to the observer, and return all of them.

    Args:
        request: the export request.
        ports: the ports of the job, with the observer.
        slots: how many tasks can run at a time.

    Raises:
        TableFormatError: the request was refused as a whole, or failed before any partition.
    """
    outcomes = []
    # An interrupted generator releases leases and staging tables only when it is closed.
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
    """Return the forecast of an export for every selected partition, and change nothing.

    Args:
        request: the export request.
        places: the addresses of source, lake and ledger.
        slots: how many tasks could run at a time.
        note: receives the notices that the export would pass to its observer.
        none: receives the notice that no partition is selected; None for `note`.
        source: the source of `places` if the caller has opened it already.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    lake = places.lake
    with contextlib.ExitStack() as stack:
        ledger = open_ledger(places.ledger, local_warehouse=lake.ledger_directory)
        stack.callback(ledger.close)
        opened = source or stack.enter_context(open_source(places.source, is_exporting=True))
        found = rehearse(
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
        if isinstance(opened, ServerSource):
            ids = tuple(
                PartitionId(one.partition_id)
                for one in found.forecasts
                if one.action in (EXPORT, REPLACE)
            )
            for text in opened.readers(request.table, ids):
                note(text)
        return found
