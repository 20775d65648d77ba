"""Writes the slices of a plan in Spark tasks, and collects their receipts.

Rows never pass through the JVM: the job sends one row for each task, and receipts come back.
The job runs in its own job group, so cancelling it stops no other job of the session.
`write` reports progress and stops starting slices when the caller says so.

`SparkWriter` is the `tableformat.export.ports.SliceWriter` of a job on Spark.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from catalog.clickhouse.server.replicas import kill_queries
from catalog.clickhouse.server.settings import ServerSettings
from catalog.storages.schemes import Storages, open_storage
from spark_ext.engine.jobs import JOB_ERRORS, plain_error, run_job
from spark_ext.engine.tasks import (
    ProgressListener,
    ServerAccess,
    SliceRow,
    StorageAccess,
    TaskWork,
    error_of,
    installed_versions,
    progress_host,
)
from tableformat.errors import DeniedError, InternalError, StoppedError
from tableformat.export.ports import SliceFailure, WriterAround, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.file_names import stop_mark
from tableformat.receipt import Receipt
from tableformat.source import ServedLayout

__all__ = ["Cancellable", "Progress", "SparkWriter", "run", "write", "write_all"]

_THEN: Final = "Finished files are kept; run it again."
# A call of Spark's status tracker at every poll would take processor time from the tasks.
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job: rows written so far, finished and total Spark tasks, and seconds."""

    rows: int
    tasks_done: int
    tasks: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows written per second since the job began."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


def run(
    spark: SparkSession,
    plan: WritePlan,
    tasks: tuple[SliceTask, ...],
    *,
    on_progress: Callable[[Progress], None],
) -> tuple[Receipt, ...]:
    """Write all slices; return their receipts.

    Raises:
        TableFormatError: as for `write`, or the error of the first slice that failed.
    """
    written = write_all(write(spark, plan, tasks, on_progress=on_progress))
    if written.failures:
        raise written.failures[0].error
    return written.receipts


def write_all(writing: Writing) -> Written:
    """Run a writing generator to its end; return receipts and failures of all slices."""
    while True:
        try:
            next(writing)
        except StopIteration as end:
            written: Written = end.value
            return written


def write(
    spark: SparkSession,
    plan: WritePlan,
    tasks: tuple[SliceTask, ...],
    *,
    on_progress: Callable[[Progress], None],
    should_stop: Callable[[], bool] = lambda: False,
    access: ServerAccess | None = None,
    storage: StorageAccess | None = None,
) -> Writing:
    """Write all slices; yield about ten times a second; return a receipt or failure for each.

    Finished files and their receipts stay in every case. An exception in the calling thread, such
    as Ctrl-C or one of `on_progress`, cancels the job within two seconds. Closing the generator
    does the same.

    Args:
        spark: a session of this process.
        plan: the write plan of the job.
        tasks: the tasks of the plan; may be empty.
        on_progress: called about ten times a second from the calling thread.
        should_stop: once it returns True, no task on any host starts another slice.
        access: how tasks reach the source's server; None if tasks read files.
        storage: how tasks reach the lake's storage; None if tasks write local files.

    Raises:
        SourceError: Spark could not run the tasks, or a task failed.
        StoppedError: the Spark job was cancelled from outside.
        InternalError: a slice has no result, or two.
    """
    if not tasks:
        return Written((), ())
    listener = ProgressListener(progress_host(spark))
    work = TaskWork(plan, tasks, listener.address, access, storage)
    stop = _Stop(work, should_stop)
    try:
        rows = yield from _collect(spark, work, listener, on_progress, stop)
    finally:
        listener.close()
        stop.clear()
    return _written(tasks, rows)


class _Stop:
    """The mark in the lake's storage that keeps tasks on all hosts from starting slices."""

    def __init__(self, work: TaskWork, should_stop: Callable[[], bool]) -> None:
        self._mark = stop_mark(work.plan.receipts_location, work.plan.job)
        self._storage = open_storage(self._mark, work.storage_access)
        self._should_stop, self._is_set = should_stop, False

    def set_if_due(self) -> None:
        """Write the mark once, as soon as the caller wants to stop."""
        if not self._is_set and self._should_stop():
            self._storage.put(self._mark, b"")
            self._is_set = True

    def clear(self) -> None:
        """Remove the mark after the job has ended, if the storage allows that.

        No other job has its name.
        """
        if self._is_set:
            with contextlib.suppress(DeniedError):
                self._storage.delete(self._mark)


def _collect(
    spark: SparkSession,
    work: TaskWork,
    listener: ProgressListener,
    on_progress: Callable[[Progress], None],
    stop: _Stop,
) -> Generator[None, None, list[SliceRow]]:
    """Run the Spark job, and report its progress; return its rows."""
    group = f"mergeberg-{work.plan.job}-{uuid.uuid4().hex[:8]}"
    share = work.plan.share
    at_once = min(len(work.tasks), share.slices) if share is not None else len(work.tasks)
    context = spark.sparkContext

    def collect() -> list[SliceRow]:
        # A Spark task writes its slices one after the other, so this bounds the parallel slices.
        # No data frame: its first query costs a new JVM several seconds of CPU time.
        return context.parallelize(range(len(work.tasks)), at_once).mapPartitions(work).collect()

    started = time.monotonic()
    looked, done = started, 0
    with closing(run_job(context, group, f"mergeberg: {work.plan.table}", collect)) as running:
        while (rows := _next(work.plan, running)) is None:
            now = time.monotonic()
            if now - looked >= _LOOK_SECONDS:
                looked, done = now, _tasks_done(context, group)
            on_progress(Progress(listener.rows(), done, at_once, now - started))
            stop.set_if_due()
            yield
    done, seconds = _tasks_done(context, group), time.monotonic() - started
    on_progress(Progress(listener.rows(), done, at_once, seconds))
    return rows


def _next(plan: WritePlan, running: Generator[None, None, list[SliceRow]]) -> list[SliceRow] | None:
    """Return the rows of a job that has ended; None while it runs."""
    try:
        next(running)
    except StopIteration as end:
        rows: list[SliceRow] = end.value
        return rows
    except JOB_ERRORS as error:
        raise plain_error(f"Cannot {plan.action} {plan.table}", _THEN, error) from error
    return None


def _tasks_done(context: Any, group: str) -> int:
    """Return the number of finished tasks of a job group; costs a dozen calls of the JVM."""
    tracker = context.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            stage_info = tracker.getStageInfo(stage)
            done += stage_info.numCompletedTasks if stage_info is not None else 0
    return done


def _written(tasks: Iterable[SliceTask], rows: Iterable[SliceRow]) -> Written:
    """Return receipts and failures by slice number, and check that each slice has exactly one."""
    receipts: dict[int, Receipt] = {}
    failures: dict[int, SliceFailure] = {}
    for row in rows:
        number = row["slice"]
        if number in receipts or number in failures:
            message = f"Cannot use the results of a job: slice {number} has two."
            raise InternalError(f"{message} This is a bug, please report it.")
        if row["receipt"] is not None:
            receipts[number] = Receipt.from_json(row["receipt"])
        else:
            error = error_of((row["error"] or "", row["message"] or "", row["code"]))
            failures[number] = SliceFailure(number, error)
    planned = {slice_.number for task in tasks for slice_ in task.slices}
    unmatched = planned ^ (receipts.keys() | failures.keys())
    if unmatched:
        message = f"Cannot use the results of a job: they do not fit slices {sorted(unmatched)}."
        raise InternalError(f"{message} This is a bug, please report it.")
    return Written(
        tuple(receipts[number] for number in sorted(receipts)),
        tuple(failures[number] for number in sorted(failures)),
    )


class SparkWriter:
    """Writes slices in the tasks of a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        server: ServerSettings | None = None,
        storages: Storages | None = None,
    ) -> None:
        """Prepare to write with a Spark session.

        Args:
            spark: the session.
            server: the server that tasks read, with its secrets; None if tasks read files.
            storages: give tasks access to the lake's storage; None for local files.
        """
        self._spark = spark
        # A broadcast keeps the secrets out of the query plan, which event logs and the UI show.
        self._access = None if server is None else spark.sparkContext.broadcast(server)
        self._server = server
        self._storages = Storages() if storages is None else storages

    @property
    def slots(self) -> int:
        """The number of tasks that run at the same time."""
        return self._spark.sparkContext.defaultParallelism

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the versions that every executor must have: those of this process."""
        return installed_versions()

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every slice; return one receipt or one failure for each.

        Raises:
            SourceError: the tasks could not be run at all.
            StoppedError: their Spark job was cancelled.
        """
        # Read for each job, because vended credentials may have been renewed.
        storage = self._storages.access(plan.receipts_location)
        sent = None if storage is None else self._spark.sparkContext.broadcast(storage)
        writing = write(
            self._spark,
            plan,
            tasks,
            on_progress=lambda progress: on_rows(progress.rows),
            should_stop=should_stop,
            access=self._access,
            storage=sent,
        )
        try:
            return (yield from writing)
        except BaseException:
            # Cancelled tasks leave their queries running on the server.
            if self._server is not None and isinstance(plan.layout, ServedLayout):
                copies = (s.copy.host for task in tasks for s in task.slices if s.copy)
                kill_queries(self._server, {plan.layout.host, *copies}, plan.job)
            raise


@dataclass(frozen=True, slots=True)
class Cancellable(WriterAround):
    """A writer that delegates to another writer, and calls `on_cancel` if its job is cancelled."""

    on_cancel: Callable[[], None]

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every slice; return one receipt or one failure for each.

        Raises:
            SourceError: the tasks could not be run at all.
            StoppedError: their job was cancelled.
        """
        try:
            return (
                yield from self.writer.write(plan, tasks, on_rows=on_rows, should_stop=should_stop)
            )
        except StoppedError:
            self.on_cancel()
            raise
