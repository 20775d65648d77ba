"""Writes the slices of a plan in Spark tasks, and collects their receipts.

Rows never pass through the JVM: the job sends one row for each task, and receipts come back.
The job runs in its own job group, so cancelling it stops no other job of the session.
`write` reports progress and stops starting slices when the caller says so.

`SparkWriter` is the `tableformat.export.ports.SliceWriter` of a job on Spark.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Row, SparkSession

import tableformat.errors
from catalog.clickhouse.server.replicas import kill_queries
from catalog.clickhouse.server.settings import ServerSettings
from catalog.storages.schemes import Storages, open_storage
from spark_ext.engine.jobs import JOB_ERRORS, plain_error, run_job
from spark_ext.engine.tasks import (
    ANSWER_SCHEMA,
    ProgressListener,
    ServerAccess,
    StorageAccess,
    TaskWork,
    installed_versions,
)
from tableformat.errors import InternalError, StoppedError, TableFormatError
from tableformat.export.ports import SliceFailure, WriterAround, Writing, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.file_names import stop_mark
from tableformat.receipt import Receipt
from tableformat.source import ServedLayout

__all__ = ["Cancellable", "Progress", "SparkWriter", "run", "write", "write_all"]

_THEN: Final = "Finished files are kept; run the same command again."
# Asking Spark itself so often would take the processors from its tasks.
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: rows written as far as is known, Spark's tasks done and in all, seconds."""

    rows: int
    tasks_done: int
    tasks: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """The speed since the job began."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


def run(
    spark: SparkSession,
    plan: WritePlan,
    tasks: tuple[SliceTask, ...],
    *,
    on_progress: Callable[[Progress], None],
) -> tuple[Receipt, ...]:
    """Write all slices; raise the first failure, if there is one.

    Raises:
        TableFormatError: as `write`, or the error of the first slice that has no file.
    """
    written = write_all(write(spark, plan, tasks, on_progress=on_progress))
    if written.failures:
        raise written.failures[0].error
    return written.receipts


def write_all(writing: Writing) -> Written:
    """Wait for all files; return what became of every slice."""
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
    """Write all slices and say for each what became of it; yield about ten times a second.

    Finished files stay whatever happens, with their receipts beside the table. An exception in the
    calling thread, Ctrl-C or one that `on_progress` raises, cancels the job within two seconds, and
    so does closing it.

    Args:
        spark: a session of this process.
        plan: of the job.
        tasks: of the plan; none is fine.
        on_progress: called about ten times a second from the calling thread.
        should_stop: once it is true no slice is begun any more, on any host.
        access: how tasks reach the source's server, if it is one.
        storage: how they reach the lake's storage, if it is none of files.

    Raises:
        SourceError: Spark could not run the tasks; the message is the one of the task.
        StoppedError: the Spark job was cancelled from outside.
        InternalError: a slice has no answer, or two.
    """
    if not tasks:
        return Written((), ())
    listener = ProgressListener(_progress_host(spark))
    work = TaskWork(plan, tasks, listener.address, access, storage)
    stop = _Stop(work, should_stop)
    try:
        rows = yield from _collect(spark, work, listener, on_progress, stop)
    finally:
        listener.close()
        stop.forget()
    return _written(tasks, rows)


class _Stop:
    """Tells the tasks, wherever they run, that no slice is to be begun any more."""

    def __init__(self, work: TaskWork, should_stop: Callable[[], bool]) -> None:
        self._mark = stop_mark(work.plan.receipts_location, work.plan.job)
        self._storage = open_storage(self._mark, work.storage_access)
        self._should_stop, self._told = should_stop, False

    def tell(self) -> None:
        """Tell them once, when it is time."""
        if not self._told and self._should_stop():
            self._storage.put(self._mark, b"")
            self._told = True

    def forget(self) -> None:
        """Take back what was told: the job is over."""
        if self._told:
            self._storage.delete(self._mark)


def _collect(
    spark: SparkSession,
    work: TaskWork,
    listener: ProgressListener,
    on_progress: Callable[[Progress], None],
    stop: _Stop,
) -> Generator[None, None, list[Row]]:
    """Run the Spark job, and report meanwhile."""
    group = f"mergeberg-{work.plan.job}-{uuid.uuid4().hex[:8]}"
    share = work.plan.share
    at_once = min(len(work.tasks), share.slices) if share is not None else len(work.tasks)
    context = spark.sparkContext

    def collect() -> list[Row]:
        # Each of Spark's own tasks writes its slices one after the other.
        numbers = spark.range(0, len(work.tasks), 1, at_once)
        return numbers.mapInArrow(work, ANSWER_SCHEMA).collect()

    started = time.monotonic()
    looked, done = started, 0
    with closing(run_job(context, group, f"mergeberg: {work.plan.table}", collect)) as running:
        while (answers := _next(work.plan, running)) is None:
            now = time.monotonic()
            if now - looked >= _LOOK_SECONDS:
                looked, done = now, _tasks_done(context, group)
            on_progress(Progress(listener.rows(), done, at_once, now - started))
            stop.tell()
            yield
    done, seconds = _tasks_done(context, group), time.monotonic() - started
    on_progress(Progress(listener.rows(), done, at_once, seconds))
    return answers


def _next(plan: WritePlan, running: Generator[None, None, list[Row]]) -> list[Row] | None:
    """Return the answers of a job that has ended, None for one that runs."""
    try:
        next(running)
    except StopIteration as end:
        answers: list[Row] = end.value
        return answers
    except JOB_ERRORS as error:
        raise plain_error(f"Cannot export {plan.table}", _THEN, error) from error
    return None


def _tasks_done(context: Any, group: str) -> int:
    """Return the tasks of a job group that have ended: a dozen calls of the JVM."""
    tracker = context.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            stage_info = tracker.getStageInfo(stage)
            done += stage_info.numCompletedTasks if stage_info is not None else 0
    return done


def _progress_host(spark: SparkSession) -> str:
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        return "127.0.0.1"
    return context.getConf().get("spark.driver.host", "127.0.0.1") or "127.0.0.1"


def _written(tasks: Iterable[SliceTask], rows: Iterable[Row]) -> Written:
    """Sort the answers; every slice of the plan has exactly one."""
    receipts: dict[int, Receipt] = {}
    failures: dict[int, SliceFailure] = {}
    for row in rows:
        number = int(row["slice"])
        if number in receipts or number in failures:
            message = f"Cannot use the answers of a job: slice {number} was answered twice."
            raise InternalError(f"{message} This is a bug, please report it.")
        if row["receipt"] is not None:
            receipts[number] = Receipt.from_json(row["receipt"])
        else:
            failures[number] = SliceFailure(number, _error(row))
    planned = {slice_.number for task in tasks for slice_ in task.slices}
    unanswered = planned ^ (receipts.keys() | failures.keys())
    if unanswered:
        message = f"Cannot use the answers of a job: they do not fit slices {sorted(unanswered)}."
        raise InternalError(f"{message} This is a bug, please report it.")
    return Written(
        tuple(receipts[number] for number in sorted(receipts)),
        tuple(failures[number] for number in sorted(failures)),
    )


def _error(row: Row) -> TableFormatError:
    """Return the error of a task as the class it was raised as."""
    kind = getattr(tableformat.errors, row["error"], TableFormatError)
    error: TableFormatError = kind(row["message"], code=row["code"])
    return error


class SparkWriter:
    """Writes slices in the tasks of a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        server: ServerSettings | None = None,
        storages: Storages | None = None,
    ) -> None:
        """Write by `spark`.

        Args:
            spark: the session.
            server: where tasks read, with its secrets; None for files.
            storages: say how tasks reach where they write; None for files.
        """
        self._spark = spark
        # A broadcast, because the plan of a query is written to event logs and shown in the UI.
        self._access = None if server is None else spark.sparkContext.broadcast(server)
        self._server = server
        self._storages = Storages() if storages is None else storages

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
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

        def show(progress: Progress) -> None:
            on_rows(progress.rows)

        # Each time anew: the credentials of a table may have been renewed.
        storage = self._storages.access(plan.receipts_location)
        sent = None if storage is None else self._spark.sparkContext.broadcast(storage)
        writing = write(
            self._spark,
            plan,
            tasks,
            on_progress=show,
            should_stop=should_stop,
            access=self._access,
            storage=sent,
        )
        try:
            return (yield from writing)
        except BaseException:
            # Tasks that are cancelled leave their queries behind.
            if self._server is not None and isinstance(plan.layout, ServedLayout):
                kill_queries(self._server, plan.layout, plan.job)
            raise


@dataclass(frozen=True, slots=True)
class Cancellable(WriterAround):
    """Lets another writer write; calls `on_cancel` when somebody cancelled what that one did."""

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
